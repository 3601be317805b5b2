//! NFs whose flows go on at others of their instances when the worker of one has died.

use super::{RunOptions, WiringError};
use crate::crews::{self, Crew, Unmovable};
use crate::setup::Setup;

/// Why flows of a dead instance do not go on at others.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unleavable {
    /// There are no others.
    #[error(
        "{0} has one instance, and there is no other to go on at; write --instances {0}=2 (of NFs that have theirs together A+{0}=2)"
    )]
    OneInstance(String),
    /// They cannot move.
    #[error(transparent)]
    Unmovable(#[from] Unmovable),
    /// Somebody else moves them.
    #[error(
        "instances of {0} come and go by --scale, which moves flows as it sees fit; leave out one of the two"
    )]
    Scaled(String),
}

/// Those that are asked for, each once, and if it can be.
pub(super) fn leaves(setup: &Setup, options: &RunOptions) -> Result<Vec<Crew>, WiringError> {
    if options.leaves.is_empty() {
        return Ok(Vec::new());
    }
    let crews = crews::of(setup);
    let mut all: Vec<Crew> = Vec::new();
    for nf in &options.leaves {
        let crew = find(&crews, setup, nf);
        let crew = crew.map_err(|why| WiringError::Leave { nf: nf.clone(), why })?;
        if !all.contains(crew) {
            all.push(crew.clone());
        }
    }
    Ok(all)
}

fn find<'c>(
    crews: &'c [Result<Crew, Unmovable>],
    setup: &Setup,
    nf: &str,
) -> Result<&'c Crew, Unleavable> {
    let is_its = |crew: &&Result<Crew, Unmovable>| match crew {
        Ok(crew) => crew.is_of(nf),
        Err(why) => why.nf().split('+').any(|own| own == nf),
    };
    let found = crews.iter().find(is_its);
    let found = found.ok_or_else(|| Unleavable::OneInstance(nf.to_owned()))?;
    let crew = found.as_ref().map_err(Unmovable::clone)?;
    match setup.scales.iter().any(|scale| scale.crew.groups == crew.groups) {
        true => Err(Unleavable::Scaled(nf.to_owned())),
        false => Ok(crew),
    }
}
