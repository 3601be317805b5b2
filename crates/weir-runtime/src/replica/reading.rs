//! What a successor has not read yet of its predecessor's replica.

use super::{Recovered, lost, refusal};
use crate::job::Job;
use crate::spec::FromWorker;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use weir_mem::ReplicaView;
use weir_mem::fault::{self, Step};
use weir_nf::{Records, Unreadable};

/// The records of a µNF's flows as a predecessor has left them. None is written before its flow has been read.
pub(super) struct FlowRecords {
    pub(super) view: ReplicaView,
    /// The slot of flow 0.
    pub(super) first: u32,
    pub(super) committed: u64,
}

impl Records for FlowRecords {
    fn read(&self, number: u32, record: &mut Vec<u8>) -> bool {
        let slot = self.first.checked_add(number);
        slot.is_some_and(|slot| self.view.read(slot, self.committed, record))
    }
}

/// Flows of a predecessor that have not been read yet ([`weir_nf::Replicate::recover_later`]).
#[derive(Default)]
pub(crate) struct Reading {
    took: Duration,
    /// By µNF what could not be read: how many records, and why the first could not.
    refused: BTreeMap<String, (u64, String)>,
    /// What is told when all are read, and when packets came again.
    tells: Option<(Recovered, Instant)>,
}

/// Records that are read between two steps.
const READ_AT_ONCE: usize = 64;

/// The same while somebody waits for all of them, who sees between two steps that the worker is alive.
const READ_IN_HASTE: usize = 4096;

impl Recovered {
    /// What the agent is told: with what was read later, how long that took, and how long after it was ready it was over.
    fn told(self, refused: u64, took: Duration, after: Duration) -> FromWorker {
        let micros = |time: Duration| time.as_micros() as u64;
        FromWorker::Recovered {
            flows: self.flows.saturating_sub(refused),
            refused: self.refused + refused,
            micros: micros(self.took + took),
            after: micros(after),
        }
    }
}

impl Job {
    /// It is ready: tells what it has got back, or will when all is read.
    pub(crate) fn tell_recovered(&mut self) {
        let Some(found) = self.recovered.take() else { return };
        let now = Instant::now();
        self.returned = Some(now);
        match &mut self.reading {
            Some(reading) => reading.tells = Some((found, now)),
            None => self.answers.push(found.told(0, Duration::ZERO, Duration::ZERO)),
        }
    }

    /// True while flows of a predecessor have not been read.
    #[inline]
    pub(crate) fn is_reading(&self) -> bool {
        self.reading.is_some()
    }

    /// Reads some of them; false when there are none.
    #[cold]
    pub(crate) fn read_on(&mut self) -> bool {
        self.read_some(READ_AT_ONCE)
    }

    /// Reads more of them, as somebody waits for all.
    #[cold]
    pub(crate) fn read_in_haste(&mut self) -> bool {
        self.read_some(READ_IN_HASTE)
    }

    fn read_some(&mut self, most: usize) -> bool {
        let Some(mut reading) = self.reading.take() else { return false };
        let begun = Instant::now();
        fault::step(Step::ReadingOn);
        let left = self.segment.read_unread(most);
        for (name, Unreadable { records, why }) in self.segment.unreadable() {
            let first = || (0, refusal(&name, &why));
            reading.refused.entry(name.clone()).or_insert_with(first).0 += records;
        }
        reading.took += begun.elapsed();
        if left > 0 {
            self.reading = Some(reading);
            return true;
        }
        let Reading { took, refused, tells } = reading;
        let count = refused.values().map(|(records, _)| records).sum();
        let warnings = refused.values().map(|(records, why)| lost(*records, why));
        self.answers.extend(warnings.map(FromWorker::Warning));
        if let Some((found, ready)) = tells {
            self.answers.push(found.told(count, took, ready.elapsed()));
        }
        true
    }
}
