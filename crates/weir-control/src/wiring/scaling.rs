//! NFs whose instances become more and fewer.

use super::{RunOptions, WiringError};
use crate::crews;
use crate::scale::{Rule, Way};
use crate::setup::{ScaleSetup, Setup};
use std::time::Duration;

/// What is asked for of an NF whose instances become more and fewer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScaleOptions {
    /// Fewest instances in use, and most.
    pub limits: (u16, u16),
    /// How packets divide anew; `None`: as suits it.
    pub way: Option<Way>,
    /// Flows that move in a step, about.
    pub step: u32,
    /// How long no change begins after one has ended.
    pub cool: Duration,
}

/// Those that are asked for, each if it can be.
pub(super) fn scales(setup: &Setup, options: &RunOptions) -> Result<Vec<ScaleSetup>, WiringError> {
    let one = |(nf, asked): (&String, &ScaleOptions)| {
        let ScaleOptions { limits: (min, max), way, step, cool } = *asked;
        let (crew, way) = crews::scales(setup, nf, way)
            .map_err(|why| WiringError::Scale { nf: nf.clone(), why })?;
        let rule = Rule { min, max, way, step, cool };
        Ok(ScaleSetup { crew, rule })
    };
    options.scale.iter().map(one).collect()
}
