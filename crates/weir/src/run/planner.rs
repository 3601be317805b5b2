//! From what the operator says to what is to run: at the start, and whenever the policy is read again.

use super::{Poll, RunArgs, RunError};
use crate::planning::PlanArgs;
use crate::{policy, scaling, topology};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::PathBuf;
use std::sync::OnceLock;
use weir_control::devices::{self, Captures, Taps};
use weir_control::setup::Setup;
use weir_control::wiring::{self, RunOptions, WiringError};
use weir_device::DeviceSpec;
use weir_plan::Plan;
use weir_runtime::spec::Trial;

/// What is to run.
pub(super) struct Planned {
    pub(super) plan: Plan,
    pub(super) setup: Setup,
    /// The files that it was read from.
    pub(super) files: Vec<PathBuf>,
}

/// Plans a policy for devices that stay.
pub(super) struct Planner<'a> {
    args: &'a RunArgs,
    /// Of all generations.
    seed: u64,
    /// What was found out about the captures when they were looked through, at the start.
    captures: OnceLock<(BTreeMap<u16, DeviceSpec>, Captures)>,
}

impl<'a> Planner<'a> {
    pub(super) fn new(args: &'a RunArgs) -> Self {
        // Who sends packets and knows the seed can make them all meet at one instance, or one port.
        let is_live = args.bind.iter().any(|(_, device)| device.interface().is_some());
        let seed = match args.seed {
            Some(seed) => seed,
            None if is_live => RandomState::new().build_hasher().finish(),
            None => 0,
        };
        Planner { args, seed, captures: OnceLock::new() }
    }

    /// The seed, if nobody gave it.
    pub(super) fn by_chance(&self) -> Option<u64> {
        (self.args.seed.is_none() && self.seed != 0).then_some(self.seed)
    }

    /// What was found out about the captures; nothing before anything was planned.
    pub(super) fn captures(&self) -> Captures {
        self.captures.get().map(|both| both.1.clone()).unwrap_or_default()
    }

    /// The policy's own file, that of options, and programs.
    pub(super) fn own_files(&self) -> impl Iterator<Item = PathBuf> {
        let RunArgs { policy, planning, .. } = self.args;
        std::iter::once(policy.clone()).chain(planning.files().cloned())
    }

    /// Whether the policy is to be read again when it changes.
    pub(super) fn watches(&self) -> bool {
        self.args.watch
    }

    /// Plans the graph's `generation`, counted from 1, from what its files say now. For the first, devices
    /// are opened. `set`: what was said at the control socket.
    pub(super) fn plan(&self, generation: u32, set: PlanArgs) -> Result<Planned, RunError> {
        let args = self.args;
        let nics = topology::nics(&args.bind);
        let planned = args.planning.planned_near(&args.policy, args.quiet, nics, set)?;
        policy::has_code(&planned.loaded.graph, &args.policy, &planned.known)?;
        policy::runs(&planned.loaded.graph, &args.policy)?;
        let crate::planning::Planned { told, known, loaded, plan, replicated, most_flows, .. } =
            planned;
        let (binds, captures) = match self.captures.get() {
            Some(both) => both,
            None => {
                let both = self.look()?;
                self.captures.get_or_init(|| both)
            }
        };
        let faults = match generation {
            1 => args.fault.clone(),
            n => args.later_fault.iter().filter(|(at, _)| *at == n).map(|f| f.1.clone()).collect(),
        };
        let leaves = replicated.iter().filter(|(_, own)| own.leaves);
        let options = RunOptions {
            prefetch: args.prefetch,
            trial: Trial::default(),
            ring: args.ring,
            pool: args.pool,
            spin_us: args.spin,
            busy: args.poll == Poll::Busy,
            real_time: !args.no_real_time,
            seed: self.seed,
            leaves: leaves.map(|(nf, _)| nf.clone()).collect(),
            replicate: replicated.iter().map(|(nf, own)| (nf.clone(), own.spec)).collect(),
            flows: most_flows,
            faults,
            attacks: args.attack.clone(),
            programs: known.programs.paths(),
            dump_drops: args.dump_drops.clone(),
            sandbox: args.planning.outside.sandbox(),
            scale: scaling::scaled(&told.scale)?,
            early: told.early_drop,
        };
        let taps = if generation == 1 { devices::open(binds)? } else { Taps::new() };
        let mut setup = wiring::wire(&plan, binds, captures, &options)?;
        for unused in devices::unused_ways(&plan, binds) {
            crate::complain!("weir: warning: {unused}");
        }
        setup.taps = taps;
        if generation == 1 {
            devices::check_writable(&setup)?;
        }
        Ok(Planned { plan, setup, files: loaded.files })
    }

    /// Looks at what is bound, once.
    fn look(&self) -> Result<(BTreeMap<u16, DeviceSpec>, Captures), RunError> {
        let args = self.args;
        let mut binds = BTreeMap::new();
        for (port, device) in &args.bind {
            if binds.insert(*port, device.clone()).is_some() {
                return Err(RunError::BoundTwice(*port));
            }
        }
        if let Some(output) = devices::written_over(&binds, &args.policy) {
            return Err(WiringError::SameFile(output.to_owned()).into());
        }
        if let Some(file) = &args.dump_drops
            && devices::is_same(file, &args.policy)
        {
            return Err(WiringError::SameFile(file.clone()).into());
        }
        let captures = devices::scan(&binds)?;
        for (port, summary) in &captures {
            if summary.largest > wiring::LONGEST_PACKET {
                crate::complain!(
                    "weir: warning: the capture of port {port} has packets of up to {} bytes; those \
                     over {} do not fit a buffer and are dropped as `oversize`",
                    summary.largest,
                    wiring::LONGEST_PACKET
                );
            }
        }
        Ok((binds, captures))
    }
}
