//! All graphs of the machine together leave a core without real-time workers. The plan sees to it for one graph; two, of
//! which each leaves another core, would take all.
//!
//! Each agent holds an abstract socket for every core that it has such workers on; its name says which, the kernel lists
//! all names, and takes them away with the process, however that ends. An agent binds its own first and looks then, so
//! of two that start at once at least one sees the other. Names are per network namespace: graphs in different ones do not see each other,
//! and have their watchdogs only. Who binds such names to annoy keeps others out of the real-time class, and no more.

use crate::setup::WorkerSetup;
use std::collections::BTreeSet;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::atomic::{AtomicU64, Ordering};

/// What the names begin with; the process, a number and the core follow.
const NAME: &str = "weir-real-time";

/// Cores on which an agent has workers of the real-time class, for as long as it is kept.
pub(crate) struct Claim {
    _sockets: Vec<UnixDatagram>,
}

impl Claim {
    /// Says of these workers' cores that they are taken; when that leaves none of the machine's `online` cores, takes the real-time class
    /// from the workers instead.
    pub(crate) fn of(workers: &mut [WorkerSetup], online: Option<usize>) -> Option<Self> {
        let cores: BTreeSet<u16> = workers
            .iter()
            .filter(|w| w.schedule.real_time)
            .filter_map(|w| w.schedule.core)
            .collect();
        if cores.is_empty() {
            return None;
        }
        let claim = Claim { _sockets: cores.iter().filter_map(|core| bind(*core)).collect() };
        let names = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
        let taken = taken(&names, std::process::id()).union(&cores).count();
        if online.is_some_and(|online| taken >= online) {
            workers.iter_mut().for_each(|worker| worker.schedule.real_time = false);
            return None;
        }
        Some(claim)
    }
}

/// A socket that says so; without it others do not know.
fn bind(core: u16) -> Option<UnixDatagram> {
    // Relaxed: a number that nobody else has; nothing is published by it.
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("{NAME}/{}/{number}/{core}", std::process::id());
    UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(name).ok()?).ok()
}

/// Cores that other processes than `own` have said to have taken. An own graph that is being changed goes when its successor runs.
fn taken(names: &str, own: u32) -> BTreeSet<u16> {
    let cores = names.lines().filter_map(|line| {
        let mut parts = line.split_once(&format!("@{NAME}/"))?.1.split('/');
        let process: u32 = parts.next()?.parse().ok()?;
        let core = parts.nth(1)?.parse().ok()?;
        (process != own).then_some(core)
    });
    cores.collect()
}

/// Cores that the machine has; `None` when it does not say.
pub(crate) fn online() -> Option<usize> {
    count(&std::fs::read_to_string("/sys/devices/system/cpu/online").ok()?)
}

/// How many a list such as `0-3,8` names.
fn count(list: &str) -> Option<usize> {
    let mut sum = 0_usize;
    for part in list.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        sum = sum.checked_add(last.checked_sub(first)?.checked_add(1)?)?;
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_processes_cores_are_read_from_the_kernels_list_and_nothing_else() {
        let names = "Num       RefCount Protocol Flags    Type St Inode Path
0000000000000000: 00000002 00000000 00000000 0002 01 1 @weir-real-time/12/0/3
0000000000000000: 00000002 00000000 00000000 0002 01 2 @weir-real-time/12/1/70
0000000000000000: 00000002 00000000 00000000 0002 01 3 @weir-real-time/13/0/5
0000000000000000: 00000002 00000000 00000000 0002 01 4 @weir-real-time/x/0/6
0000000000000000: 00000002 00000000 00000000 0002 01 5 @weir-real-time/12/0/99999999
0000000000000000: 00000002 00000000 00000000 0002 01 6 @weir-real-time/12
0000000000000000: 00000002 00000000 00000000 0002 01 7 /run/weir-real-time/12/0/4
0000000000000000: 00000002 00000000 00000000 0002 01 8
";
        assert_eq!(taken(names, 13), BTreeSet::from([3, 70]));
        assert_eq!(taken(names, 12), BTreeSet::from([5]));
        assert_eq!(taken("", 12), BTreeSet::new());
    }

    #[test]
    fn what_is_bound_is_in_the_kernels_list_until_it_is_given_up() {
        let seen = || {
            let names = std::fs::read_to_string("/proc/net/unix").unwrap();
            taken(&names, 0).contains(&60_123)
        };
        let socket = bind(60_123);
        assert!(socket.is_some() && seen());
        drop(socket);
        assert!(!seen());
    }

    #[test]
    fn a_list_of_cores_is_counted() {
        for (list, n) in [("0-1\n", Some(2)), ("0", Some(1)), ("0-3,8,10-11", Some(7))] {
            assert_eq!(count(list), n);
        }
        for wrong in ["", "x", "3-1", "0-", "0-18446744073709551615"] {
            assert_eq!(count(wrong), None, "{wrong}");
        }
    }
}
