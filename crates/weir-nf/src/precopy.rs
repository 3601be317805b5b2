//! What a µNF remembers of flows, copied while it works.

use crate::clock::BEYOND_NS;
use crate::flows::{CopyProgress, Reader, RestoreError, SaveError};
use crate::instance::Running;
use crate::nf::Nf;

/// A µNF whose flows can be copied into another instance while packets change them: first all, some at a time, and what has changed
/// since; in the end, while no packets come, what is left. What it remembers in all is not copied ([`Instance::save`](crate::Instance::save)).
pub trait Precopy {
    /// Begins, or begins anew: from now on it is noted which flows change. `id` is of no other copy that who takes it may be given.
    fn begin_precopy(&mut self, id: u64);

    /// It is given up, or over.
    fn end_precopy(&mut self);

    /// True from [`Precopy::begin_precopy`] to [`Precopy::end_precopy`].
    fn is_precopied(&self) -> bool;

    /// Writes flows down, to the end of `out`, for [`Precopy::take_precopied`], until that is `most` bytes or a little more.
    ///
    /// # Errors
    /// When a state has no serialised form; it has to begin anew then.
    fn precopy(&mut self, most: usize, out: &mut Vec<u8>) -> Result<CopyProgress, SaveError>;

    /// Makes this instance's flows what was written: of one copy, in that order. The first of another begins anew.
    ///
    /// # Errors
    /// When it is of another version or cannot be read, or there is no room. Then it has to begin anew.
    fn take_precopied(&mut self, saved: &[u8]) -> Result<(), RestoreError>;

    /// Forgets what was taken so.
    fn forget_precopied(&mut self);

    /// Writes down, to the end of `out`, what [`Instance::save_flows`](crate::Instance::save_flows) does, but of flows only what was not copied. Nothing changes by it, so
    /// it can be asked again after more packets.
    ///
    /// # Errors
    /// When a state has no serialised form; `out` is then as it was.
    fn save_rest(&self, out: &mut Vec<u8>) -> Result<(), SaveError>;

    /// Takes what [`Precopy::save_rest`] wrote; how many flows that were. From here on it is an instance like any.
    ///
    /// # Errors
    /// As [`Precopy::take_precopied`].
    fn take_rest(&mut self, saved: &[u8]) -> Result<usize, RestoreError>;
}

impl<N: Nf> Precopy for Running<N> {
    fn begin_precopy(&mut self, id: u64) {
        self.flows.begin_precopy(id);
    }

    fn end_precopy(&mut self) {
        self.flows.end_precopy();
    }

    fn is_precopied(&self) -> bool {
        self.flows.is_precopied()
    }

    fn precopy(&mut self, most: usize, out: &mut Vec<u8>) -> Result<CopyProgress, SaveError> {
        let start = out.len();
        out.extend(self.clock.now_ns.to_le_bytes());
        self.flows.precopy(most, out).inspect_err(|_| out.truncate(start))
    }

    fn take_precopied(&mut self, saved: &[u8]) -> Result<(), RestoreError> {
        let mut from = Reader(saved);
        let now = from.u64()?;
        if now >= BEYOND_NS {
            return Err(RestoreError::Damaged("its time is none that a clock has"));
        }
        self.flows.take_precopied(now, from.0).map(drop)
    }

    fn forget_precopied(&mut self) {
        self.flows.forget_precopied();
    }

    fn save_rest(&self, out: &mut Vec<u8>) -> Result<(), SaveError> {
        let start = out.len();
        self.save_course(out);
        self.flows.save_rest(out).inspect_err(|_| out.truncate(start))
    }

    fn take_rest(&mut self, saved: &[u8]) -> Result<usize, RestoreError> {
        let (course, flows) = self.read_course(saved)?;
        let taken = self.flows.take_rest(course.now_ns, flows)?;
        self.go_on(course);
        Ok(taken)
    }
}
