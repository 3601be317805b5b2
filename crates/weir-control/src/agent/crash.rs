//! Deaths that a µNF brought upon its worker: which µNF, at which packet, of what; and packets that
//! did so twice, which it is not given any more.
//!
//! A death is a crash when nobody else had a hand in it: a signal that the processor or the sandbox
//! sends, an abort, a panic, an endless loop. `kill -9` is none.

use super::{Agent, Event};
use crate::setup::Setup;
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

impl Crash {
    /// Who crashed: the µNF's instance, or the worker where none ran.
    pub(crate) fn name(&self) -> &str {
        self.node.as_ref().unwrap_or(&self.worker)
    }
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

/// How often which packet has killed, by the packet's fingerprint.
type Kills = BTreeMap<u64, u32>;

/// What the agent remembers of crashes.
#[derive(Default)]
pub(super) struct Crashes {
    pub(super) listed: Vec<Crash>,
    /// All of them, by the name of the µNF's instance, or of the worker where none ran.
    times: BTreeMap<String, u64>,
    /// By worker: what it said when it panicked.
    pub(super) panics: BTreeMap<usize, String>,
    /// By worker: what it was ended for, when it hung.
    pub(super) hung: BTreeMap<usize, &'static str>,
    /// By worker and node: how often which packet has killed.
    suspects: BTreeMap<(usize, u16), Kills>,
}

impl Crashes {
    /// What of these, of the graph `old`, is to be remembered in `new`: it goes by name, type and what is written beside it, and of several
    /// instances each knows what any has died of. How often is that of the instance that died of it most: who sums up what each was told
    /// before counts every kill again at every change.
    pub(super) fn for_next(&self, old: &Setup, new: &Setup) -> Crashes {
        let name = |setup: &Setup, w: usize, n: u16| {
            let worker = setup.workers.get(w)?;
            let node = worker.nodes.get(usize::from(n))?;
            // Beside others it knows packets by other fields.
            Some((node.name.clone(), node.nf.as_ref()?.0.clone(), worker.beside))
        };
        let mut known: BTreeMap<(String, String, u32), Kills> = BTreeMap::new();
        for (&(w, n), suspects) in &self.suspects {
            let Some(name) = name(old, w, n) else { continue };
            let all = known.entry(name).or_default();
            for (packet, kills) in suspects {
                let most = all.entry(*packet).or_default();
                *most = (*most).max(*kills);
            }
        }
        for kills in known.values_mut().filter(|kills| kills.len() > REMEMBERED) {
            kills.retain(|_, n| *n >= KILLS);
            while kills.len() > REMEMBERED {
                kills.pop_last();
            }
        }
        let mut next = Crashes::default();
        for (w, worker) in new.workers.iter().enumerate().filter(|(_, w)| w.runs_nfs()) {
            for n in (0..worker.nodes.len()).filter_map(|n| u16::try_from(n).ok()) {
                if let Some(kills) = name(new, w, n).and_then(|name| known.get(&name)) {
                    next.suspects.insert((w, n), kills.clone());
                }
            }
        }
        next
    }

    /// By worker: nodes that are to be careful, with what is poison for them.
    pub(super) fn careful(&self) -> impl Iterator<Item = (usize, (u16, Vec<u64>))> {
        self.suspects.iter().filter_map(|(&(w, node), suspects)| {
            let poison: Vec<u64> = poison(suspects).collect();
            (!poison.is_empty()).then_some((w, (node, poison)))
        })
    }
}

fn poison(suspects: &Kills) -> impl Iterator<Item = u64> {
    suspects.iter().filter(|(_, kills)| **kills >= KILLS).map(|(packet, _)| *packet)
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
        let worker = &self.setup.workers[w];
        let bytes =
            named.is_some().then(|| self.memory.bytes(worker.domain, &entry, worker.beside));
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
        *self.crashes.times.entry(crash.name().to_owned()).or_default() += 1;
        if self.crashes.listed.len() < LISTED {
            self.crashes.listed.push(crash.clone());
        }
        self.events.push_back(Event::Crashed(crash));
        if looped && !blamed { Cause::Hung } else { Cause::Nf }
    }

    /// The successor of worker `w` gives `node` its packets one at a time, and none that is poison.
    fn tell_successor(&mut self, w: usize, node: u16) {
        let suspects = self.crashes.suspects.get(&(w, node));
        let poison = suspects.into_iter().flat_map(poison).collect();
        let careful = &mut self.setup.workers[w].careful;
        careful.retain(|(n, _)| *n != node);
        careful.push((node, poison));
    }

    /// Crashes so far, the first hundred.
    pub fn crashes(&self) -> &[Crash] {
        &self.crashes.listed
    }

    /// How many there were, by the name of the µNF's instance, or of the worker where none ran.
    pub fn times_crashed(&self) -> &BTreeMap<String, u64> {
        &self.crashes.times
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
