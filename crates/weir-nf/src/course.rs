//! What goes with all flows of a µNF: its time, its last packet, and timers.

use crate::clock::BEYOND_NS;
use crate::ctx::Cause;
use crate::flows::{Reader, RestoreError, write_len};
use crate::instance::Running;
use crate::nf::Nf;
use crate::timers::MOST_TIMERS;

/// It, as it was read.
pub(crate) struct Course {
    /// Its time: the later one, of two instances.
    pub(crate) now_ns: u64,
    last: Option<Cause>,
    timers: Vec<(u64, u64)>,
}

impl<N: Nf> Running<N> {
    /// Writes it down.
    pub(crate) fn save_course(&self, out: &mut Vec<u8>) {
        out.extend(self.clock.now_ns.to_le_bytes());
        out.push(u8::from(self.last.is_some()));
        self.last.iter().for_each(|last| last.write(out));
        let timers = self.desk.timers.all();
        write_len(timers.len(), out);
        for (due, token) in timers {
            out.extend(due.to_le_bytes());
            out.extend(token.to_le_bytes());
        }
    }

    /// Reads it; and what follows.
    pub(crate) fn read_course<'s>(
        &self,
        saved: &'s [u8],
    ) -> Result<(Course, &'s [u8]), RestoreError> {
        let mut from = Reader(saved);
        let now_ns = self.clock.now_ns.max(from.u64()?);
        if now_ns >= BEYOND_NS {
            return Err(RestoreError::Damaged("its time is none that a clock has"));
        }
        let last = match from.array()? {
            [0] => None,
            [1] => Some(Cause::read(&mut from)?),
            _ => return Err(RestoreError::Damaged("its last packet is none")),
        };
        let count = from.u32()? as usize;
        if count + self.desk.timers.len() > MOST_TIMERS {
            return Err(RestoreError::Timers);
        }
        let mut timers = Vec::new();
        for _ in 0..count {
            timers.push((from.u64()?, from.u64()?));
        }
        Ok((Course { now_ns, last, timers }, from.0))
    }

    /// Goes on from it.
    pub(crate) fn go_on(&mut self, Course { now_ns, last, timers }: Course) {
        for (due, token) in timers {
            self.desk.timers.set(due, token);
        }
        self.clock.resume(now_ns);
        self.last = self.last.or(last);
    }
}
