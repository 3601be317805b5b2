//! Deaths that a µNF brought upon its worker: which µNF, at which packet, of what; and packets that
//! did so twice, which it is not given any more.
//!
//! A death is a crash when nobody else had a hand in it: a signal that the processor or the sandbox
//! sends, an abort, a panic, an endless loop. `kill -9` is none.

use super::{Agent, Event};
use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use weir_mem::{Entry, Testimony};

/// Crashes that the report lists.
const LISTED: usize = 100;
/// Packets of a node that are remembered as suspects, and as poison.
const REMEMBERED: usize = 4096;
/// A packet that has killed so often is poison.
const KILLS: u32 = 2;

/// What a µNF did to its worker.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Crash {
    /// Name of the worker.
    pub worker: String,
    /// Name of the µNF's instance, when it is known that one ran.
    pub node: Option<String>,
    /// Its type.
    pub nf: Option<String>,
    /// Why it ended.
    pub cause: String,
    /// The packet that it looked at last, as it was then, in hexadecimal; `None` when it had none.
    pub packet: Option<String>,
    /// The packet is not given to the µNF again: it has killed it before.
    pub poison: bool,
}

/// Who brought a death about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// No µNF.
    Elsewhere,
    /// A µNF, at a packet or by itself.
    Nf,
    /// A µNF that hung, and no packet is to blame: it had none, or hung on at one that it was not to be given
    /// any more. A packet is no reason to close a worker: poison stops it.
    Hung,
}

/// What the agent remembers of crashes.
#[derive(Default)]
pub(super) struct Crashes {
    pub(super) listed: Vec<Crash>,
    /// By worker: what it said when it panicked.
    pub(super) panics: BTreeMap<usize, String>,
    /// By worker: what it was ended for, when it hung.
    pub(super) hung: BTreeMap<usize, &'static str>,
    /// By worker and node: how often which packet has killed.
    suspects: BTreeMap<(usize, u16), BTreeMap<u64, u32>>,
}

impl Agent {
    /// Looks at what is left of worker `w`, which has just ended so, before anything is put right.
    pub(super) fn examine(&mut self, w: usize, status: ExitStatus, how: &str) -> Cause {
        let panic = self.crashes.panics.remove(&w);
        let hung = self.crashes.hung.remove(&w);
        let brought_upon_itself = match status.signal() {
            Some(signal) => [
                libc::SIGILL,
                libc::SIGTRAP,
                libc::SIGABRT,
                libc::SIGBUS,
                libc::SIGFPE,
                libc::SIGSEGV,
                libc::SIGSYS,
            ]
            .contains(&signal),
            None => panic.is_some(),
        };
        let looped = hung.is_some_and(super::liveness::is_of_packet);
        if !self.setup.workers[w].runs_nfs() || !(brought_upon_itself || looped) {
            return Cause::Elsewhere;
        }
        let Testimony { node, entry, fingerprint } = self.memory.workers[w].ledger.testimony();
        let node = node.and_then(|n| u16::try_from(n).ok());
        let spec = node.and_then(|n| self.setup.workers[w].nodes.get(usize::from(n)));
        let named = spec.and_then(|n| Some((n.name.clone(), n.nf.as_ref()?.0.clone())));
        let entry = Entry::from_first_word(entry);
        let bytes =
            named.is_some().then(|| self.memory.bytes(self.setup.workers[w].domain, &entry));
        let bytes = bytes.flatten();
        let (mut poison, mut blamed) = (false, false);
        if let (Some(node), Some((_, found))) = (node.filter(|_| named.is_some()), &bytes) {
            let fingerprint = if fingerprint == 0 { *found } else { fingerprint };
            let suspects = self.crashes.suspects.entry((w, node)).or_default();
            if suspects.len() >= REMEMBERED && !suspects.contains_key(&fingerprint) {
                suspects.retain(|_, kills| *kills >= KILLS);
            }
            if suspects.len() < REMEMBERED {
                let kills = suspects.entry(fingerprint).or_default();
                *kills += 1;
                poison = *kills >= KILLS;
                blamed = *kills <= KILLS;
            }
            self.tell_successor(w, node);
        }
        let crash = Crash {
            worker: self.setup.workers[w].name.clone(),
            node: named.as_ref().map(|n| n.0.clone()),
            nf: named.map(|n| n.1),
            cause: panic.or(hung.map(str::to_owned)).unwrap_or_else(|| how.to_owned()),
            packet: bytes.map(|(bytes, _)| hex(&bytes)),
            poison,
        };
        if self.crashes.listed.len() < LISTED {
            self.crashes.listed.push(crash.clone());
        }
        self.events.push_back(Event::Crashed(crash));
        if looped && !blamed { Cause::Hung } else { Cause::Nf }
    }

    /// The successor of worker `w` gives `node` its packets one at a time, and none that is poison.
    fn tell_successor(&mut self, w: usize, node: u16) {
        let suspects = self.crashes.suspects.get(&(w, node)).into_iter().flatten();
        let poison = suspects.filter(|(_, kills)| **kills >= KILLS).map(|(fp, _)| *fp).collect();
        let careful = &mut self.setup.workers[w].careful;
        careful.retain(|(n, _)| *n != node);
        careful.push((node, poison));
    }

    /// Crashes so far, the first hundred.
    pub fn crashes(&self) -> &[Crash] {
        &self.crashes.listed
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
