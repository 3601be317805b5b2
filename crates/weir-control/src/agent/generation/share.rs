//! Who of the next generation gets what the µNFs of this one know.

use super::precopy::Precopy;
use crate::agent::Agent;
use crate::setup::Setup;
use std::collections::{BTreeMap, BTreeSet};
use weir_runtime::handover::NfState;
use weir_runtime::spec::{PartSpec, SpreadSpec};

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

/// True when the packets of this NF, of so many instances, divide by leases of ports, and otherwise than before.
pub(super) fn is_divided_anew(
    before: &Setup,
    next: &Setup,
    nf: (&str, &str),
    instances: usize,
) -> bool {
    let weights = leased(next, nf);
    instances > 1 && weights.is_some() && weights != leased(before, nf)
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

/// NFs whose packets divide otherwise in the next generation, and whose flows cannot move there: each flow would stay where it is, and its packets
/// go elsewhere.
pub(super) fn stranded(before: &Setup, next: &Agent, known: &Known) -> Option<String> {
    let group = |setup: &Setup, nf: &str| {
        let mut nodes = setup.workers.iter().flat_map(|worker| &worker.nodes);
        let part = nodes.find_map(|node| node.part.filter(|_| node.name == nf))?;
        setup.groups.get(usize::from(part.group)).cloned()
    };
    next.memory.crews().iter().filter_map(|crew| crew.as_ref().err()).find_map(|why| {
        why.nf().split('+').find_map(|nf| {
            let divides = group(&next.setup, nf)?;
            // Of what need not meet nobody misses a flow, and leases go over with their flows.
            let meets = match divides.spread {
                SpreadSpec::InTurn | SpreadSpec::LeastLoaded | SpreadSpec::Ends => false,
                SpreadSpec::Source
                | SpreadSpec::Tuple
                | SpreadSpec::Flow
                | SpreadSpec::Fields { .. } => true,
            };
            if !meets || group(before, nf).is_some_and(|before| before == divides) {
                return None;
            }
            let own = known.iter().filter(|((name, _), _)| name == nf);
            let states = own.flat_map(|(_, states)| states);
            let flows = states.fold(0_u64, |all, (_, state)| all.saturating_add(state.count));
            (flows > 0).then(|| {
                format!(
                    "{flows} flows of {nf} would be parted from their packets, which divide otherwise in the new graph, where flows of {nf} cannot \
                     move: {why}. Or stop and start, if its flows may begin anew"
                )
            })
        })
    })
}

/// For each worker of `setup` what its µNFs go on from, of what is `known` by name and type. Of several instances each gets
/// that of one: whose flows it was given already, or the next one's; when there are fewer than before, the last gets the rest.
///
/// # Errors
/// Which worker left out flows as if they had been copied, when none of it are.
pub(super) fn share_out(
    before: &Setup,
    setup: &Setup,
    mut known: Known,
    copied: Option<&Precopy>,
) -> Result<Vec<Vec<NfState>>, usize> {
    let mut takers: BTreeMap<(String, String), Vec<usize>> = BTreeMap::new();
    for (w, worker) in setup.workers.iter().enumerate().filter(|(_, w)| w.runs_nfs()) {
        for node in &worker.nodes {
            if let Some((kind, _)) = node.nf.as_ref().filter(|_| node.instance_of.is_none()) {
                takers.entry((node.name.clone(), kind.clone())).or_default().push(w);
            }
        }
    }
    let mut shares = vec![Vec::new(); setup.workers.len()];
    for (key, takers) in takers {
        let states = known.remove(&key).unwrap_or_default();
        let nf = (key.0.as_str(), key.1.as_str());
        let counts_differ = takers.len() != states.len();
        if takers.len() > 1
            && leased(setup, nf).is_some()
            && (counts_differ || is_divided_anew(before, setup, nf, takers.len()))
        {
            // Each gets the flows of all, and keeps its own: who has a lease has to know which of its ports are taken.
            if let Some((giver, _)) = states.iter().find(|(_, state)| state.rest) {
                return Err(*giver);
            }
            for (n, w) in takers.iter().enumerate() {
                let Some(share) = shares.get_mut(*w) else { continue };
                share.extend(states.iter().enumerate().map(|(i, (_, state))| {
                    let is_own = i.min(takers.len() - 1) == n;
                    let shared = if is_own { state.shared.clone() } else { Vec::new() };
                    NfState { shared, placed: None, divides: true, ..state.clone() }
                }));
            }
            continue;
        }
        for (i, (giver, mut state)) in states.into_iter().enumerate() {
            // One instance has all flows, wherever they were.
            state.placed = state.placed.filter(|_| takers.len() > 1);
            let has_copies = copied.and_then(|copied| copied.taker(giver, nf));
            if state.rest && has_copies.is_none() {
                return Err(giver);
            }
            let taker = has_copies.or(takers.get(i).or(takers.last()).copied());
            if let Some(share) = taker.and_then(|w| shares.get_mut(w)) {
                share.push(state);
            }
        }
    }
    // Who was given copies of an NF of which nothing is known any more, as its worker is stopped for good, is to forget them.
    for (taker, (name, kind)) in copied.into_iter().flat_map(|copied| copied.takers()) {
        let Some(share) = shares.get_mut(taker) else { continue };
        if !share.iter().any(|state| state.name == name && state.kind == kind) {
            share.push(NfState::nothing(name, kind));
        }
    }
    Ok(shares)
}
