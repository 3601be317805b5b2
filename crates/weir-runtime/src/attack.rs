//! A worker that turns against everybody else, for tests: it works like any other for a while and then
//! writes random bytes into everything that it may write. Only in builds with the feature `attacks`.

use crate::link;
use crate::spec::FromWorker;
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::io::IoSlice;
use rustix::net::sockopt::socket_domain;
use rustix::net::{AddressFamily, SendAncillaryBuffer, SendFlags, sendmsg};
use std::ops::Range;
use weir_device::{Reach, reach};
use weir_mem::{Mapping, Region, ReplicaTable, mail};
use weir_port::Doorbell;

/// Steps of honest work before the first strike, at most.
const HONEST: u64 = 2_000;
/// Random deeds between two steps of work.
const DEEDS: u64 = 8;

/// First of the seeds of those that try to send by other interfaces, in the order of [`WAYS`].
const REACHES: u64 = 1 << 32;
const WAYS: [Reach; 5] =
    [Reach::Bind, Reach::SendTo, Reach::SendMsg, Reach::SendMmsg, Reach::Promiscuous];
/// Seeds of those that write letters, and of those that spoil what their successors take over.
const LETTERS: Range<u64> = 2 << 32..3 << 32;
const REPLICA: Range<u64> = 3 << 32..4 << 32;
/// Of memory that nearly all of is never touched, so much is written to.
const TOUCHED: u64 = 16 << 20;
/// Of a replica: where the slots of what migrations keep are, and behind them those of its first flows.
const SLOTS: u64 = 320 << 10;
/// Indices of interfaces that are tried.
const INTERFACES: Range<u32> = 1..100;

/// What it does when its honest work is over.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// Writes nonsense, by the seed.
    Scribbles,
    /// Seed 0: neither takes nor gives nor promises, for ever.
    Idles,
    /// Seed 1: the same, but does what the agent commands, as if it were sound.
    Pretends,
    /// Seed 2: does its work, and once writes into its record that it has taken more than it was given.
    Lies,
    /// Seed 3: takes packets, and neither passes them on nor says that it has them.
    Keeps,
    /// Seed 4: does its work, and announces to the others of its NF again and again that their flows move to them.
    Announces,
    /// Seeds of [`LETTERS`]: writes letters about flows that move, and random bytes into others' mailboxes.
    Writes,
    /// Seeds of [`REPLICA`]: writes random bytes into what its successor takes over.
    Spoils,
    /// Seed [`REACHES`] and up, of a service of a packet socket: once tries to send by other interfaces.
    Reaches(Reach),
}

impl Manner {
    /// Whether it writes into memory of so many bytes. By their size mailboxes and replicas are known.
    fn aims_at(self, len: usize) -> bool {
        match self {
            Manner::Writes => len == mail::lens().0,
            Manner::Spoils => len >= ReplicaTable::LEN,
            _ => true,
        }
    }
}

/// What a worker does next.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// A step of its work.
    Work,
    /// Only what the agent commands.
    Obey,
    /// A lie in its record, then a step of its work.
    Lie,
    /// Packets are taken, and that is all.
    Keep,
    /// A letter, then a step of its work.
    Write,
    /// Announcements of what it does not send, then a step of its work.
    Announce,
}

/// The hostile part of a worker.
pub(crate) struct Attack {
    random: u64,
    /// Everything that can be mapped for writing.
    memory: Vec<Mapping>,
    /// Everything that can be written to without being mapped.
    bells: Vec<Doorbell>,
    /// Its packet socket.
    socket: Option<OwnedFd>,
    honest: u64,
    /// What it writes to most of all, or nothing in particular.
    focus: Option<u64>,
    manner: Manner,
    name: String,
}

impl Attack {
    pub(crate) fn new(name: &str, seed: u64, fds: &[OwnedFd]) -> Self {
        let (mut memory, mut bells, mut socket) = (Vec::new(), Vec::new(), None);
        for fd in fds.iter().filter_map(|fd| fd.try_clone().ok()) {
            let len = rustix::fs::fstat(&fd).map_or(0, |s| s.st_size);
            if socket_domain(&fd) == Ok(AddressFamily::PACKET) {
                socket = Some(fd);
            } else if len == 0 {
                bells.push(Doorbell::from_fd(fd));
            } else if let Ok(region) = Region::from_fd(fd, len as usize)
                && let Ok(mapping) = region.map_writable()
            {
                memory.push(mapping);
            }
        }
        let manner = match seed {
            0 => Manner::Idles,
            1 => Manner::Pretends,
            2 => Manner::Lies,
            3 => Manner::Keeps,
            4 => Manner::Announces,
            seed if LETTERS.contains(&seed) => Manner::Writes,
            seed if REPLICA.contains(&seed) => Manner::Spoils,
            REACHES.. => match WAYS.get((seed - REACHES) as usize) {
                Some(way) => Manner::Reaches(*way),
                None => Manner::Scribbles,
            },
            _ => Manner::Scribbles,
        };
        let (name, honest, focus) = (name.to_owned(), 0, None);
        let mut memory = memory;
        if manner != Manner::Scribbles {
            memory.retain(|memory| manner.aims_at(memory.len()));
        }
        let mut attack =
            Attack { random: seed, memory, bells, socket, honest, focus, manner, name };
        let scribbles = matches!(manner, Manner::Scribbles | Manner::Writes | Manner::Spoils);
        attack.honest = 1 + if scribbles { attack.below(HONEST) } else { 100 };
        if attack.below(4) != 0 {
            attack.focus = Some(attack.below(attack.memory.len() as u64));
        }
        attack
    }

    /// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
    fn next(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`, of the same source as all that it does.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }

    /// Between two steps of the worker's work.
    pub(crate) fn strike(&mut self, agent: BorrowedFd<'_>) -> Next {
        if self.honest > 0 {
            self.honest -= 1;
            if self.honest == 0 {
                eprintln!("weir attack: {} strikes", self.name);
                if let (Manner::Reaches(way), Some(socket)) = (self.manner, &self.socket) {
                    INTERFACES.for_each(|index| reach(socket, index, way));
                }
                if self.manner == Manner::Lies {
                    return Next::Lie;
                }
                if self.manner == Manner::Idles {
                    loop {
                        std::thread::sleep(std::time::Duration::from_secs(1));
                    }
                }
            }
            return Next::Work;
        }
        if matches!(self.manner, Manner::Reaches(_) | Manner::Lies) {
            return Next::Work;
        }
        if self.manner == Manner::Pretends {
            std::thread::sleep(std::time::Duration::from_millis(1));
            return Next::Obey;
        }
        if self.manner == Manner::Keeps {
            std::thread::sleep(std::time::Duration::from_millis(1));
            return Next::Keep;
        }
        if self.manner == Manner::Announces {
            return if self.below(64) == 0 { Next::Announce } else { Next::Work };
        }
        if self.manner == Manner::Writes && self.below(4) != 0 {
            return Next::Write;
        }
        if self.manner == Manner::Spoils && self.below(4096) == 0 {
            // Of what it spoiled somebody has to hear.
            std::process::abort();
        }
        for _ in 0..self.below(DEEDS) {
            match self.below(5000) {
                0 => self.say_something(agent),
                1..250 => self.bells.iter().for_each(Doorbell::ring),
                _ => self.scribble(),
            }
        }
        Next::Work
    }

    fn scribble(&mut self) {
        let any = self.below(self.memory.len() as u64);
        let which = if self.below(20) == 0 { any } else { self.focus.unwrap_or(any) } as usize;
        let Some(len) = self.memory.get(which).map(|m| m.len() as u64) else { return };
        let len = len.min(if self.manner == Manner::Spoils { SLOTS } else { TOUCHED });
        // Half of the time where the indices are.
        let span = if self.below(2) == 0 { len.min(256) } else { len };
        let at = self.below(span) & !7;
        let value = match self.below(6) {
            // Any bits; small numbers; huge ones; entries, true and false, and markers.
            0 => self.next(),
            1 => self.below(1 << 16),
            2 => u64::MAX - self.below(1 << 10),
            3 => self.below(8192) << 32 | 128 << 16 | 64,
            4 => 1 << 63 | self.below(4),
            _ => 0,
        };
        if let Some(memory) = self.memory.get(which) {
            memory.scribble(at as usize, value);
        }
    }

    /// Words to the agent that no sound worker says.
    fn say_something(&mut self, agent: BorrowedFd<'_>) {
        let noise: Vec<u8> = (0..self.below(3000)).map(|_| self.next() as u8).collect();
        match self.below(5) {
            0 => drop(link::send(agent, &FromWorker::Done, &[])),
            1 => drop(link::send(agent, &FromWorker::Failed("I do not like it".into()), &[])),
            2 => drop(link::send(agent, &FromWorker::Paused(vec![0; 4096]), &[])),
            // Frames without an end.
            3 => say(agent, &[&[0], noise.as_slice()].concat()),
            _ => say(agent, &noise),
        }
    }
}

/// By the system call that a worker may make.
fn say(agent: BorrowedFd<'_>, noise: &[u8]) {
    let mut control = SendAncillaryBuffer::default();
    let _ = sendmsg(agent, &[IoSlice::new(noise)], &mut control, SendFlags::DONTWAIT);
}
