//! From one generation of the graph to the next: a service goes on with its device, a worker of µNFs with what they know.

use super::{End, Job, early};
use crate::arrays::Learner;
use crate::handover::{self, Handed};
use crate::segment::Segment;
use crate::spec::{EndSpec, Handing, WorkerSpec};
use crate::station::Station;
use weir_mem::fault::{self, Step};
use weir_nf::CopyProgress;

impl Job {
    /// The same device in the memory of the next generation, which `station` is attached to; `None` when `spec` is
    /// no service of the kind that this one is.
    pub(crate) fn succeed(
        &mut self,
        spec: &WorkerSpec,
        station: &mut Station,
        segment: Segment,
    ) -> Option<Job> {
        let end = match (std::mem::replace(&mut self.end, End::None), &spec.end) {
            (End::Rx { device, stopped, counted, pace, .. }, EndSpec::Rx { port, source, .. }) => {
                let source = usize::from(*source);
                let learner =
                    station.learns.take().and_then(|o| Learner::new(o, source)).map(Box::new);
                let (port, early) = (*port, early(spec).ok()?);
                let (holds, taper) = (false, None);
                End::Rx {
                    device,
                    port,
                    source,
                    stopped,
                    counted,
                    holds,
                    pace,
                    taper,
                    learner,
                    early,
                }
            }
            (End::Tx { device }, EndSpec::Tx { .. }) => {
                station.ingress.set_touches(device.touches());
                End::Tx { device }
            }
            (End::Dump(mut dump), EndSpec::Dump(spec)) => {
                station.ingress.set_unordered();
                dump.relink(spec);
                End::Dump(dump)
            }
            _ => return None,
        };
        Some(Self::with(end, spec, station, segment))
    }

    /// As a service goes over: begins where flows are, and goes on from what all workers of the generation before knew of datagrams that have not come whole,
    /// which is written down for a successor with the next commit.
    pub(crate) fn take_what_services_get(&mut self, station: &mut Station) {
        let Some(memory) = &mut station.handover else { return };
        memory.resync();
        if let Some(Handed::All(_, datagrams, places)) = handover::read(memory) {
            self.segment.restore_datagrams(&datagrams);
            if let Some(moves) = &mut self.moves {
                // What the agent writes can be read; with another table than others have it would be the buckets that others ask for.
                self.warnings.extend(moves.begin_at(&places, &mut self.segment));
            }
        }
        self.replicate(station);
    }

    /// Nothing more is taken from the device, or again.
    pub(crate) fn hold(&mut self, hold: bool) {
        if let End::Rx { holds, .. } = &mut self.end {
            *holds = hold;
        }
        self.take_as_ever();
    }

    /// Who was to have fewer packets under way takes as many as there is room for again.
    pub(crate) fn take_as_ever(&mut self) {
        if let End::Rx { taper, .. } = &mut self.end {
            *taper = None;
        }
    }

    /// Copies some flows of these nodes for the next generation, while packets flow; or why it cannot.
    pub(crate) fn precopy(
        &mut self,
        station: &mut Station,
        nodes: &[u16],
        first: Option<u64>,
        most: usize,
    ) -> Result<CopyProgress, String> {
        let Some(memory) = &mut station.handover else { return Ok(CopyProgress::default()) };
        let (flows, copied) = self.segment.precopy(nodes, first, most)?;
        handover::write_ahead(memory, &flows).map_err(|e| e.to_string())?;
        Ok(copied)
    }

    /// Writes down all that the µNFs know, for the next generation.
    pub(crate) fn hand_over(&mut self, station: &mut Station) -> Handing {
        let mut states = match self.segment.hand_over() {
            Ok(states) => states,
            Err(why) => return why,
        };
        let datagrams = self.segment.save_datagrams();
        let mut backlog = self.segment.more.backlog() as u64;
        if let Some(moves) = &self.moves {
            moves.hand_over(&mut states, &self.segment);
            // Flows that are on their way are waited for as packets are.
            backlog += u64::from(!moves.is_quiet());
        }
        match &mut station.handover {
            None => Handing::Whole { backlog },
            Some(memory) => match handover::write(memory, &states, &datagrams, &[]) {
                Ok(()) => Handing::Whole { backlog },
                Err(e) => Handing::Not(e.to_string()),
            },
        }
    }

    /// Takes up what the generation before has handed over; what of it could not be taken, and why.
    pub(crate) fn take_over(&mut self, station: &mut Station) -> Vec<String> {
        let Some(memory) = &mut station.handover else { return Vec::new() };
        memory.resync();
        let mut refused = Vec::new();
        let handed = handover::read(memory);
        if let Some(Handed::Ahead(flows)) = handed {
            let refused = self.segment.take_ahead(flows);
            // So that it has not to be written all at once, in the pause. It is committed then.
            if let Some(replicator) = &mut self.replicator {
                replicator.write(&mut self.segment, station, true);
            }
            fault::step(Step::CopyTaken);
            return refused;
        }
        if let Some(Handed::All(states, datagrams, places)) = handed {
            self.segment.restore_datagrams(&datagrams);
            let mut taken = self.segment.take_over(states, station.sources_that_come());
            self.warnings.append(&mut taken.warnings);
            refused.extend(taken.refused);
            if let Some(moves) = &mut self.moves {
                refused.extend(moves.begin_at(&places, &mut self.segment));
            }
        }
        if let Some(keeper) = &mut self.keeper {
            keeper.begin();
        }
        // Before the first packet: should it die, its successor goes on from here, also with which flows were moved here.
        if let Some(replicator) = &mut self.replicator {
            if let Some(moves) = &mut self.moves {
                moves.keep(replicator, station);
            }
            replicator.write(&mut self.segment, station, true);
            // Also what was written as flows came ahead, if nothing has changed since.
            station.set(station.layout.replica, station.committed_replica.saturating_add(1));
            station.commit();
        }
        fault::step(Step::TakenOver);
        refused
    }
}
