//! A graph in one thread: its workers take turns, in the same memory layout and by the same code as
//! the processes. Nothing is isolated; instruction counts are exactly repeatable.

use crate::memory::{Memory, MemoryError};
use crate::setup::Setup;
use rustix::fd::AsFd;
use weir_device::{DeviceError, lend_packet_socket};
use weir_runtime::Stepper;
use weir_runtime::worker::WorkerError;

/// Why a graph cannot run inline.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InlineError {
    /// No memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// A worker failed.
    #[error(transparent)]
    Worker(#[from] WorkerError),
    /// A live device cannot be had.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A descriptor could not be duplicated.
    #[error("cannot duplicate a descriptor: {0}")]
    Descriptor(#[from] std::io::Error),
}

/// A graph whose workers take turns.
pub struct Inline {
    steppers: Vec<Stepper>,
    // Last: the workers' mappings are their own, but the descriptors go with it.
    _memory: Memory,
}

impl Inline {
    /// Makes memory and workers.
    pub fn new(setup: &Setup) -> Result<Self, InlineError> {
        let memory = Memory::new(setup)?;
        let mut steppers = Vec::new();
        for w in 0..setup.workers.len() {
            steppers.push(stepper(setup, &memory, w)?);
        }
        Ok(Inline { steppers, _memory: memory })
    }

    /// Lets each worker take one step until all have ended; says how many packets came in.
    pub fn run(&mut self) -> Result<u64, InlineError> {
        loop {
            let mut going = false;
            for stepper in &mut self.steppers {
                going |= stepper.step()?;
            }
            if !going {
                return Ok(self.steppers.first().map_or(0, Stepper::packets));
            }
        }
    }

    /// What worker `w`'s µNFs report now: JSON, by node.
    pub fn reports(&self, w: usize) -> Vec<String> {
        self.steppers.get(w).map_or(Vec::new(), Stepper::reports)
    }
}

/// Worker `w` without a process.
pub(crate) fn stepper(setup: &Setup, memory: &Memory, w: usize) -> Result<Stepper, InlineError> {
    let packets = setup.packets(w).map(|(name, receives)| lend_packet_socket(name, receives));
    let packets = packets.transpose()?;
    let lent = packets.as_ref().map(AsFd::as_fd);
    let (spec, fds) = memory.spec(setup, w, None, lent)?;
    let owned: Result<Vec<_>, _> = fds.as_fds().iter().map(|fd| fd.try_clone_to_owned()).collect();
    Ok(Stepper::new(&spec, owned?)?)
}
