//! Letters that no sound party writes, and sound ones that mean harm, for tests. Only in builds with the feature
//! `attacks`.

use super::{Crew, Flows, Letter, Moves, Part, Post, Role};
use std::collections::BTreeSet;
use weir_flow::{Going, Message, MoveId, Party, Refusal, Route, Stage, Told};

/// Gives a number below another.
pub(crate) type Random<'r> = &'r mut dyn FnMut(u64) -> u64;

impl Moves {
    /// Writes one letter to somebody of each crew.
    pub(crate) fn write_nonsense(&mut self, random: Random<'_>) {
        self.crews.iter_mut().for_each(|crew| crew.post.write_nonsense(random));
    }

    /// Has all other instances of its crews wait for the flows of all buckets.
    pub(crate) fn announce(&mut self) {
        for Crew { post, role } in &mut self.crews {
            let Role::Holder(holder) = role else { continue };
            let (source, life) = holder.who();
            let others: Vec<Party> = post.channels.iter().map(|channel| channel.with).collect();
            for to in others.into_iter().filter(|to| matches!(to, Party::Replica(_))) {
                // Who may have been started anew may say so of what the other has.
                post.send(to, &Message::Hello(life));
                for half in 0..2u16 {
                    let buckets = (0..=u16::MAX).filter(|bucket| bucket >> 15 == half);
                    let parts = buckets.map(Part::Bucket).collect();
                    let number = self.announced;
                    self.announced += 1;
                    let id = MoveId { source, life, number };
                    post.send(to, &Message::Prepare { id, parts, home: true, flows: Vec::new() });
                }
            }
        }
    }
}

impl Post {
    fn write_nonsense(&mut self, random: Random<'_>) {
        let channels = self.channels.len() as u64;
        let Some(channel) = self.channels.get_mut(random(channels) as usize) else { return };
        let mut bytes: Vec<u8> = match random(4) {
            0 => noise(3000, random),
            _ => postcard::to_stdvec(&letter(random)).unwrap_or_default(),
        };
        match random(8) {
            // Fewer bytes than its lengths say, more, others.
            0 => bytes.truncate(random(bytes.len() as u64 + 1) as usize),
            1 => bytes.extend(noise(3000, random)),
            2 => {
                let at = random(bytes.len() as u64) as usize;
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = 0xff;
                }
            }
            _ => {}
        }
        // What finds no room waits, up to a bound; what is refused is no loss.
        let _ = channel.out.post(bytes);
        channel.bell.ring();
    }
}

fn noise(most: u64, random: Random<'_>) -> Vec<u8> {
    let len = random(most);
    (0..len).map(|_| random(256) as u8).collect()
}

/// A letter that can be read.
fn letter(random: Random<'_>) -> Letter {
    let id = id(random);
    let to = random(5) as u16;
    match random(18) {
        0..4 => Message::Prepare {
            id,
            parts: parts(random),
            home: random(2) == 0,
            flows: (0..random(6)).map(|_| number(random)).collect(),
        },
        4..6 => Message::Switch { id, parts: parts(random), to },
        6 => Message::State(id, flows(random)),
        7 => Message::Prepared(id),
        8 => Message::Refused(id, Refusal::Moving),
        9 => Message::Cancel(id),
        10 => Message::Done { id, lost: number(random) },
        11 => Message::Settled { id, home: random(2) == 0 },
        12 => Message::Arrived { id, parts: parts(random) },
        13 => Message::Dropped(id),
        14 => Message::Hello(random(4) as u32),
        15 => Message::Where(Part::Flow(number(random))),
        16 => Message::There(Part::Flow(number(random)), to),
        _ => Message::Tell(random(4) as u32, told(random)),
    }
}

/// Small, or any.
fn number(random: Random<'_>) -> u64 {
    match random(2) {
        0 => random(64),
        _ => random(u64::MAX),
    }
}

fn id(random: Random<'_>) -> MoveId {
    MoveId { source: random(4) as u16, life: random(3) as u32, number: number(random) }
}

/// Flows and buckets, whoever has them.
fn parts(random: Random<'_>) -> BTreeSet<Part> {
    let most = match random(3) {
        0 => 4,
        1 => 400,
        _ => 1 << 16,
    };
    let mut parts = BTreeSet::new();
    for _ in 0..random(most) {
        parts.insert(match random(3) {
            0 => Part::Flow(number(random)),
            _ => Part::Bucket(random(1 << 16) as u16),
        });
    }
    parts
}

/// Records of wrong lengths, of flows that nobody has.
fn flows(random: Random<'_>) -> Flows {
    let mut flows = Flows::default();
    for _ in 0..random(8) {
        flows.push(random(2) == 0, random(5) as u16, &noise(200, random));
    }
    flows.0.extend(noise(9, random));
    flows
}

fn told(random: Random<'_>) -> Told<Part> {
    let mut told = Told::default();
    for _ in 0..random(4) {
        let by = id(random);
        let parts = parts(random);
        told.guests.extend(parts.iter().map(|part| (*part, by)));
        told.coming.push((by, parts.clone(), random(2) == 0));
        let route = Route {
            to: random(5) as u16,
            by,
            unsettled: BTreeSet::from([id(random)]),
            home: random(2) == 0,
        };
        told.routes.extend(parts.iter().map(|part| (*part, route.clone())));
        let stage = match random(3) {
            0 => Stage::Preparing,
            1 => Stage::Switching,
            _ => Stage::Handing,
        };
        let going = Going { parts, to: random(5) as u16, home: random(2) == 0, stage };
        told.going.push((by, going));
    }
    told
}
