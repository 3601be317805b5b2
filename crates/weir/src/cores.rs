//! Which cores to use, as the operator writes it.

use rustix::thread::{CpuSet, sched_getaffinity};
use std::num::NonZero;
use std::sync::OnceLock;

/// How many cores this process had when it was asked first: a benchmark that pins itself later still
/// has the others for its workers.
pub fn online() -> usize {
    static ONLINE: OnceLock<usize> = OnceLock::new();
    *ONLINE.get_or_init(|| std::thread::available_parallelism().map_or(1, NonZero::get))
}

/// Whether this process may use a core, as far as the kernel tells.
pub fn is_ours(core: usize) -> bool {
    let set = sched_getaffinity(None).ok();
    set.is_none_or(|set| core < CpuSet::MAX_CPU && set.is_set(core))
}

/// Cores, by number.
#[derive(Clone, Debug)]
pub struct Cores(pub Vec<usize>);

/// Understands `0,1` or `0-3`.
pub fn parse(text: &str) -> Result<Cores, String> {
    let online = online();
    let wrong = || format!("`{text}`: write cores such as 0,1 or 0-3 (this machine has {online})");
    let mut cores = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first: usize = first.trim().parse().map_err(|_| wrong())?;
        let last: usize = last.trim().parse().map_err(|_| wrong())?;
        if first > last || last >= online.max(1024) {
            return Err(wrong());
        }
        cores.extend(first..=last);
    }
    if let Some(core) = cores.iter().find(|core| !is_ours(**core)) {
        return Err(format!("core {core} is not there, or not ours to use"));
    }
    Ok(Cores(cores))
}
