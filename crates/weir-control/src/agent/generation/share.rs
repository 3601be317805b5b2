//! Who of the next generation gets what the µNFs of this one know.

use super::precopy::Precopy;
use crate::agent::Agent;
use crate::crews::Unmovable;
use crate::scale::Way;
use crate::setup::{ScaleSetup, Setup};
use std::collections::{BTreeMap, BTreeSet};
use weir_runtime::handover::NfState;
use weir_runtime::moves::Placed;
use weir_runtime::spec::{GroupSpec, PartSpec, SpreadSpec};

/// By name and type of the NF what its instances know, and which worker says so.
pub(super) type Known = BTreeMap<(String, String), Vec<(usize, NfState)>>;

/// The weights of an NF, by name and type, whose packets divide by leases of ports.
fn leased<'s>(setup: &'s Setup, (name, kind): (&str, &str)) -> Option<&'s [u32]> {
    let nodes = setup.workers.iter().flat_map(|worker| &worker.nodes);
    let mut own = nodes.filter(|node| {
        node.name == name && node.nf.as_ref().is_some_and(|(found, _)| found == kind)
    });
    let group = |part: PartSpec| setup.groups.get(usize::from(part.group));
    let group = own.find_map(|node| node.part.and_then(group))?;
    (group.spread == SpreadSpec::Ends).then_some(&group.weights)
}

/// True when the packets of this NF, which had `had` instances and will have `has`, divide by leases of ports, and otherwise than before, or
/// one of them was stopped for good; and its flows cannot move, so that they would have to be where they are.
pub(super) fn is_divided_anew(
    before: &Setup,
    next: &Agent,
    nf: (&str, &str),
    (had, has): (usize, usize),
) -> bool {
    let weights = leased(&next.setup, nf);
    let moves = next.memory.crews().iter().flatten().any(|crew| crew.is_of(nf.0));
    has > 1 && !moves && weights.is_some() && (had != has || weights != leased(before, nf))
}

/// NFs whose flows are to move together and that had different numbers of instances: what they remember of one flow may be at two places.
pub(super) fn parted(next: &Agent, known: &Known) -> Option<String> {
    let count = |nf: &str| {
        known.iter().filter(|((name, _), _)| name == nf).map(|(_, states)| states.len()).sum()
    };
    let is_parted = |crew: &&crate::crews::Crew| {
        let counts: BTreeSet<usize> =
            crew.name.split('+').map(count).filter(|count| *count > 0).collect();
        counts.len() > 1
    };
    let crew = next.memory.crews().iter().flatten().find(is_parted)?;
    Some(format!(
        "the flows of {} are to move together, and these had different numbers of instances; give them the same number first",
        crew.name
    ))
}

/// How packets divide over the instances of group `group`, by weights and rule: by itself; or, where they come as they were divided for others, by all
/// that divide in the graph, as it is not looked at which of them that are.
fn divisions(setup: &Setup, group: u16) -> Vec<(&[u32], SpreadSpec)> {
    let own = setup.groups.get(usize::from(group));
    fn by(group: &GroupSpec) -> (&[u32], SpreadSpec) {
        (&group.weights, group.spread)
    }
    match has_divider(setup, group) {
        true => own.into_iter().map(by).collect(),
        false => setup.groups.iter().map(by).collect(),
    }
}

/// True when somebody divides packets for this group, so that they do not come as they were divided for others.
fn has_divider(setup: &Setup, group: u16) -> bool {
    let nodes = setup.workers.iter().flat_map(|worker| &worker.nodes);
    let mut branches = nodes.flat_map(|node| node.outputs.iter().flatten());
    branches.any(|branch| branch.share.is_some_and(|share| share.group == group))
}

/// NFs whose packets divide otherwise in the next generation, and whose flows cannot move there: each flow would stay where it is, and its packets
/// go elsewhere.
pub(super) fn stranded(before: &Setup, next: &Agent, known: &Known) -> Option<String> {
    let group = |setup: &Setup, (name, kind): (&str, &str)| {
        let mut nodes = setup.workers.iter().flat_map(|worker| &worker.nodes);
        nodes.find_map(|node| {
            let is_own = node.name == name && node.nf.as_ref().is_some_and(|nf| nf.0 == kind);
            node.part.filter(|_| is_own).map(|part| part.group)
        })
    };
    let crews = next.memory.crews();
    known.iter().find_map(|((name, kind), states)| {
        let nf = (name.as_str(), kind.as_str());
        let flows = states.iter().fold(0_u64, |all, (_, state)| all.saturating_add(state.count));
        let own = group(&next.setup, nf)?;
        let moves = crews.iter().flatten().any(|crew| crew.is_of(name));
        let spread = next.setup.groups.get(usize::from(own))?.spread;
        if flows == 0 || moves || !meets(&next.setup, name, spread) {
            return None;
        }
        let is_same = |of| divisions(before, of) == divisions(&next.setup, own);
        if group(before, nf).is_some_and(is_same) {
            return None;
        }
        let all = || crews.iter().filter_map(|crew| crew.as_ref().err());
        let is_own = |why: &&Unmovable| why.nf().split('+').any(|nf| nf == name);
        let said_of = |which: &dyn Fn(&&Unmovable) -> bool| {
            all().filter(which).map(ToString::to_string).collect::<Vec<_>>()
        };
        let mut why = said_of(&is_own);
        if why.is_empty() && !has_divider(&next.setup, own) {
            // It comes behind one of these.
            why = said_of(&|_| true);
        }
        if why.is_empty() {
            // Nothing leads to it from another worker, so there is no crew that could be spoken of.
            why.push(Unmovable::Fused(name.clone()).to_string());
        }
        let why = why.join("; ");
        Some(format!(
            "{flows} flows of {name} would be parted from their packets, which divide otherwise in the new graph, where they cannot move: {why}. \
             Or stop and start, if its flows may begin anew"
        ))
    })
}

/// By name and type the instances of an NF in their order: each with its number, its worker, and its node there.
type Holders<'s> = BTreeMap<(&'s str, &'s str), Vec<(u8, usize, u16)>>;

pub(super) fn holders(setup: &Setup) -> Holders<'_> {
    let mut all = Holders::new();
    for (w, worker) in setup.workers.iter().enumerate().filter(|(_, worker)| worker.runs_nfs()) {
        for (node, spec) in (0..).zip(&worker.nodes) {
            if let Some((kind, _)) = spec.nf.as_ref().filter(|_| spec.instance_of.is_none()) {
                all.entry((&spec.name, kind)).or_default().push((spec.instance(), w, node));
            }
        }
    }
    all.values_mut().for_each(|holders| holders.sort_unstable());
    all
}

/// Where what one instance knew has gone.
pub(super) struct Went {
    pub(super) nf: String,
    /// Worker and instance, of this generation and of the next.
    pub(super) from: (usize, u8),
    pub(super) to: (usize, u8),
    /// Where its flows were, of one whose flows could move; and how many it had.
    pub(super) placed: Option<Placed>,
    pub(super) flows: u64,
}

/// Which instance of an NF of several this one is; `None` for the only one.
pub(super) fn part_of(setup: &Setup, nf: &str, (w, instance): (usize, u8)) -> Option<PartSpec> {
    let mut nodes = setup.workers.get(w).into_iter().flat_map(|worker| &worker.nodes);
    nodes.find(|node| node.name == nf && node.instance() == instance)?.part
}

/// True when packets that belong together meet, or have to: where flows are that is not where they go is of no consequence else.
pub(super) fn meets(next: &Setup, name: &str, spread: SpreadSpec) -> bool {
    let parts =
        |scale: &ScaleSetup| matches!(scale.rule.way, Way::Rebalance) && scale.crew.is_of(name);
    let meets = match spread {
        // Of what need not meet nobody misses a flow, or somebody has said so; and leases go over with their flows.
        SpreadSpec::InTurn | SpreadSpec::LeastLoaded | SpreadSpec::Ends => false,
        SpreadSpec::Source
        | SpreadSpec::Tuple
        | SpreadSpec::Flow
        | SpreadSpec::Client
        | SpreadSpec::Fields { .. } => true,
    };
    meets && !next.scales.iter().any(parts)
}

/// For each worker of `next` what its µNFs go on from, of what is `known` by name and type, and what has gone where. Of several instances each gets
/// that of one: whose flows it was given already, or the next one's; when there are fewer than before, the last gets the rest.
///
/// # Errors
/// Which worker left out flows as if they had been copied, when none of it are.
pub(super) fn share_out(
    before: &Setup,
    next: &Agent,
    mut known: Known,
    copied: Option<&Precopy>,
) -> Result<(Vec<Vec<NfState>>, Vec<Went>), usize> {
    let setup = &next.setup;
    let (mut shares, mut went) = (vec![Vec::new(); setup.workers.len()], Vec::new());
    for (nf, takers) in holders(setup) {
        let key = (nf.0.to_owned(), nf.1.to_owned());
        let mut states = known.remove(&key).unwrap_or_default();
        // In an order that nobody chooses; of those that go to one instance, what was copied to it comes first.
        states.sort_by_key(|(_, state)| (!state.rest, state.instance));
        if is_divided_anew(before, next, nf, (states.len(), takers.len())) {
            // Each gets the flows of all, and keeps its own: who has a lease has to know which of its ports are taken.
            if let Some((giver, _)) = states.iter().find(|(_, state)| state.rest) {
                return Err(*giver);
            }
            for (n, (instance, w, _)) in takers.iter().enumerate() {
                let Some(share) = shares.get_mut(*w) else { continue };
                share.extend(states.iter().map(|(_, state)| {
                    let is_own = usize::from(state.instance).min(takers.len() - 1) == n;
                    let shared = if is_own { state.shared.clone() } else { Vec::new() };
                    let (placed, divides, instance) = (None, true, *instance);
                    NfState { instance, shared, placed, divides, ..state.clone() }
                }));
            }
            continue;
        }
        for (giver, mut state) in states {
            let has_copies = copied.and_then(|copied| copied.taker(giver, nf, state.instance));
            if state.rest && has_copies.is_none() {
                return Err(giver);
            }
            // By its number: one before it may have been stopped for good.
            let same = takers.iter().find(|(n, ..)| *n == state.instance).or(takers.last());
            let taker = has_copies.or(same.map(|(n, w, _)| (*n, *w)));
            if let Some((n, w, share)) = taker.and_then(|(n, w)| Some((n, w, shares.get_mut(w)?))) {
                let from = (giver, std::mem::replace(&mut state.instance, n));
                let (placed, flows) = (state.placed.take(), state.count);
                went.push(Went { nf: key.0.clone(), from, to: (w, n), placed, flows });
                share.push(state);
            }
        }
    }
    // Who was given copies of an NF of which nothing is known any more, as its worker is stopped for good, is to forget them.
    for ((n, taker), (name, kind)) in copied.into_iter().flat_map(|copied| copied.takers()) {
        let Some(share) = shares.get_mut(taker) else { continue };
        let is_it =
            |state: &NfState| state.name == name && state.instance == n && state.kind == kind;
        if !share.iter().any(is_it) {
            share.push(NfState::nothing((name, n), kind));
        }
    }
    Ok((shares, went))
}
