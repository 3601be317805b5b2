//! Ending a worker on purpose, so that a successor goes on from what is remembered for it: NFActor's call to recover a replica
//! (§3.1), for whoever finds that one does not do well.

use super::{Agent, State};
use crate::setup::WorkerSetup;
use std::time::{Duration, Instant};
use weir_runtime::spec::NodeSpec;

/// A successor that is ready, and does not tell what it has got back, has nothing to tell; unless it still reads.
const TELLS: Duration = Duration::from_millis(500);
/// For so long that is believed.
const READS: Duration = Duration::from_secs(20);

/// Why an instance is not started anew.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RenewError {
    /// There is no such NF.
    #[error("there is no NF `{0}`")]
    NoNf(String),
    /// It has several instances.
    #[error("{0} has {1} instances; say which (--instance 1 to {1})")]
    Which(String, usize),
    /// It has fewer.
    #[error("{0} has no instance {1}; it has 1 to {2}")]
    NoInstance(String, u32, usize),
    /// It does not run.
    #[error(
        "worker {0} is being started already, or was stopped for good; see what was said of it"
    )]
    Away(String),
    /// The graph is being changed.
    #[error("the graph is being changed; try again")]
    Changing,
}

/// A worker that was ended, and is to come back.
#[derive(Debug)]
pub struct Renewing {
    worker: usize,
    restarts: u32,
    times: u32,
    flows: u64,
    since: Instant,
    ready: Option<Instant>,
}

/// What became of it.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Renewed {
    /// Name of the worker.
    pub worker: String,
    /// Flows that its successor has got back from the replica, of all its NFs; 0 where they are not replicated.
    pub flows: u64,
    /// Time from the order until that was known, in milliseconds.
    pub ms: f64,
}

impl Agent {
    /// Ends the worker of an instance, from 1, of an NF; it may be left out where there is one. Its successor begins from what is
    /// replicated; packets wait in its rings. [`Agent::renewed`] tells what becomes of it.
    ///
    /// # Errors
    /// When there is no such instance, or it does not run; then nothing was done.
    pub fn renew(&mut self, nf: &str, instance: Option<u32>) -> Result<Renewing, RenewError> {
        if self.is_relinking() {
            return Err(RenewError::Changing);
        }
        // One that was stopped for good has no µNF, but its place.
        let is_own = |node: &&NodeSpec| {
            let is_nf = node.nf.is_some() || node.part.is_some();
            node.name == nf && is_nf && node.instance_of.is_none()
        };
        // Several may share a worker.
        let places = |(w, worker): (usize, &WorkerSetup)| {
            let own = worker.nodes.iter().filter(is_own);
            own.map(|node| (node.instance(), w)).collect::<Vec<_>>()
        };
        let mut all: Vec<_> = self.setup.workers.iter().enumerate().flat_map(places).collect();
        all.sort_unstable();
        let w = match (instance, all.as_slice()) {
            (_, []) => return Err(RenewError::NoNf(nf.to_owned())),
            (None, [(_, only)]) => *only,
            (None, several) => return Err(RenewError::Which(nf.to_owned(), several.len())),
            (Some(n), all) => {
                let at = usize::try_from(n).ok().and_then(|n| n.checked_sub(1));
                let found = at.and_then(|at| all.get(at));
                found.ok_or_else(|| RenewError::NoInstance(nf.to_owned(), n, all.len()))?.1
            }
        };
        let is_ready = self.liveness.is_ready(w);
        let worker = &mut self.workers[w];
        let State::Running(process) = &mut worker.state else {
            return Err(RenewError::Away(self.setup.workers[w].name.clone()));
        };
        if !is_ready || !self.setup.workers[w].runs_nfs() {
            return Err(RenewError::Away(self.setup.workers[w].name.clone()));
        }
        process.kill();
        worker.renewed = true;
        let (restarts, recovered) = (worker.restarts, worker.recovered);
        Ok(Renewing {
            worker: w,
            restarts,
            times: recovered.times,
            flows: recovered.flows,
            since: Instant::now(),
            ready: None,
        })
    }

    /// Whether that worker runs again, and with what. To be asked of the generation that was told to renew it.
    pub fn renewed(&self, renewing: &mut Renewing) -> Option<Result<Renewed, RenewError>> {
        let w = renewing.worker;
        let worker = self.workers.get(w)?;
        let setup = self.setup.workers.get(w)?;
        if !setup.runs_nfs() {
            return Some(Err(RenewError::Away(setup.name.clone())));
        }
        if worker.restarts == renewing.restarts || !self.liveness.is_ready(w) {
            return None;
        }
        let ready = *renewing.ready.get_or_insert_with(Instant::now);
        let waits = setup.nodes.iter().any(|node| node.replicate.is_some());
        let told = worker.recovered.times != renewing.times;
        let most = if worker.reads { READS } else { TELLS };
        if waits && !told && ready.elapsed() < most {
            return None;
        }
        Some(Ok(Renewed {
            worker: setup.name.clone(),
            flows: worker.recovered.flows.saturating_sub(renewing.flows),
            ms: renewing.since.elapsed().as_secs_f64() * 1e3,
        }))
    }
}
