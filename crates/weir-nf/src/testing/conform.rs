//! Whether a µNF is what its descriptor says, packet by packet: what the planner believes, a test can find out.

use super::{Bench, BenchError, Seen};
use crate::ctx::Env;
use crate::descriptor::{Descriptor, Field, LayerAccess, TagKind, Touch};
use crate::instance::{BuildError, Running};
use crate::nf::Nf;
use crate::tags::{TagError, TagPlace, TagSpec};
use serde_json::{Value, json};
use weir_packet::Depth;
use weir_packet::wire::Frame;

/// A packet as it was captured: its bytes, and its length on the wire, which may be more.
pub type Captured = (Vec<u8>, usize);

/// What is not as the descriptor says.
#[derive(Debug, thiserror::Error)]
pub enum ConformError {
    /// It does not run at all.
    #[error("{0}")]
    Bench(#[from] BenchError),
    /// Its tags cannot be asked for.
    #[error("its tags: {0}")]
    Tags(#[from] TagError),
    /// Who misspells a key would not be told.
    #[error("it takes a configuration with any key: add #[serde(deny_unknown_fields)]")]
    TakesAnyKey,
    /// What it did to a packet.
    #[error("{nf}: {what}: {packet:02x?}")]
    Packet {
        /// Its type.
        nf: &'static str,
        /// What.
        what: String,
        /// The packet, as it came.
        packet: Vec<u8>,
    },
    /// What it did with many.
    #[error("{nf}: {what}")]
    Batch {
        /// Its type.
        nf: &'static str,
        /// What.
        what: String,
    },
}

/// Sends packets of many kinds through a µNF of type `N`: well-formed ones, every cut of them, damaged ones and random
/// bytes, the same at every call. None may make it panic, have it change what it does not declare to write, or leave by an
/// output that it does not have; and a key that its configuration does not know has to be refused.
///
/// # Errors
/// The first thing that is not as its descriptor says.
pub fn conform<N: Nf>(config: Value) -> Result<(), ConformError> {
    let unknown = Running::<N>::new(&json!({ "no_such_key": 1 }), &Env::default());
    let names_it = |e: BuildError| e.to_string().contains("no_such_key");
    if !unknown.err().is_some_and(names_it) {
        return Err(ConformError::TakesAnyKey);
    }
    let mut subject = Conformance::of::<N>(config)?;
    let frames = frames();
    let whole: Vec<Captured> = frames.iter().map(|f| (f.clone(), f.len())).collect();
    subject.check(&whole)?;
    for frame in &frames {
        let cuts = (0..frame.len().min(200)).filter_map(|len| frame.get(..len));
        // As a capture has them that cut them, and as they are when they came so.
        let captured: Vec<Captured> = cuts.clone().map(|c| (c.to_vec(), frame.len())).collect();
        let sent: Vec<Captured> = cuts.map(|c| (c.to_vec(), c.len())).collect();
        subject.check(&captured)?;
        subject.check(&sent)?;
    }
    subject.check(&broken(&frames))?;
    // Captures say anything: the year 1970, the end of numbers.
    subject.check_at(&whole, &[0, u64::MAX, 1 << 62, 0, (1 << 63) - 1, 1])
}

/// Frames of many kinds: IPv4 with and without options, IPv6 with and without extension headers, TCP, UDP, ICMP and other
/// protocols, fragments, ARP and others that are not IP, with no, one and two VLAN tags.
#[must_use]
pub fn frames() -> Vec<Vec<u8>> {
    const OPTIONS: &[(u8, &[u8])] = &[(0, &[1, 4, 0, 0, 0, 0]), (60, &[1, 4, 0, 0, 0, 0])];
    let v4 = || Frame::ipv4([192, 0, 2, 10], [192, 0, 2, 2]);
    let end = |n: u16| [0xfd00, 0, 0, 0, 0, 0, 0, n];
    let v6 = || Frame::ipv6(end(0x10), end(2));
    let data = [1; 64];
    let of_ip = |net: Frame<'static>| {
        let tcp = net.tcp(40_000, 80, 0x18);
        [tcp, net.tcp(40_000, 80, 2), net.udp(53, 53), net.proto(47)]
    };
    let mut kinds: Vec<Frame<'_>> = Vec::new();
    for net in [v4(), v4().options(&[1; 8]), v6(), v6().extensions(OPTIONS)] {
        kinds.extend(of_ip(net));
    }
    kinds.extend([v4().icmp(8, 0, [0; 4]), v6().icmp(128, 0, [0; 4]), v4().ttl(1), v6().ttl(1)]);
    kinds.extend([Frame::other(0x0806), Frame::other(0x88cc), Frame::other(38)]);
    let tagged = |f: Frame<'static>| [f, f.vlan(7), f.tag(0x88a8, 100).vlan(8)];
    let mut all: Vec<Vec<u8>> = Vec::new();
    for frame in kinds.into_iter().flat_map(tagged) {
        all.extend([frame.build(), frame.payload(&data).build()]);
    }
    let long = vec![b'x'; 3_000];
    for frame in [v4(), v6(), v6().vlan(7).extensions(OPTIONS)] {
        all.extend(frame.udp(53, 53).payload(&long).fragments(1_000));
    }
    all
}

/// Damaged frames, and random bytes.
fn broken(frames: &[Vec<u8>]) -> Vec<Captured> {
    // xorshift64: equal at every call.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below.max(1) as u64) as usize
    };
    let mut all = Vec::new();
    for _ in 0..100 {
        for frame in frames {
            let mut frame = frame.clone();
            for _ in 0..=random(7) {
                let (at, byte) = (random(frame.len().min(120)), random(256) as u8);
                if let Some(there) = frame.get_mut(at) {
                    *there = byte;
                }
            }
            all.push(frame);
        }
        for _ in 0..20 {
            let len = random(300);
            all.push((0..len).map(|_| random(256) as u8).collect());
        }
    }
    all.into_iter().map(|packet| (packet.clone(), packet.len())).collect()
}

/// A µNF whose packets are held against its descriptor.
pub struct Conformance {
    descriptor: &'static Descriptor,
    bench: Bench,
}

impl Conformance {
    /// A µNF of type `N` with `config`, all of whose tags are asked for.
    ///
    /// # Errors
    /// When it does not run with it.
    pub fn of<N: Nf>(config: Value) -> Result<Self, ConformError> {
        let tags = N::DESCRIPTOR.tags.iter().zip(0..).map(|(tag, slot)| TagSpec {
            name: tag.name.to_owned(),
            place: match tag.kind {
                TagKind::Flag => TagPlace::Flag { slot, bit: 5 },
                TagKind::Number => TagPlace::Number { slot },
                TagKind::Text => TagPlace::Text { slot, bit: 60, patterns: vec!["a.c".to_owned()] },
            },
        });
        let env = Env::new(&tags.collect::<Vec<_>>(), 1)?;
        Ok(Conformance { descriptor: &N::DESCRIPTOR, bench: Bench::with_env::<N>(config, &env)? })
    }

    /// The name of its type.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.descriptor.name
    }

    /// Sends packets through, by each of its inputs in turn.
    ///
    /// # Errors
    /// The first thing that is not as the descriptor says.
    pub fn check(&mut self, packets: &[Captured]) -> Result<(), ConformError> {
        self.check_at(packets, &[7])
    }

    /// The same with packets that come at these times in turn, in nanoseconds since 1970.
    ///
    /// # Errors
    /// As [`Conformance::check`].
    pub fn check_at(&mut self, packets: &[Captured], stamps: &[u64]) -> Result<(), ConformError> {
        let (descriptor, nf) = (self.descriptor, self.descriptor.name);
        let at = packets.iter().zip(stamps.iter().cycle());
        let cut: Vec<_> = at.map(|((bytes, wire), stamp)| (&bytes[..], *wire, *stamp)).collect();
        let inputs = (0..).take(descriptor.inputs.len()).cycle();
        let mut seen = Vec::new();
        for (batch, input) in cut.chunks(64).zip(inputs) {
            seen.extend(self.bench.run_by(input, batch));
            // What it makes may go to its outputs only, and is no more than declared.
            let made = self.bench.made();
            let most = batch.len() * usize::from(descriptor.creates) + self.bench.held();
            let goes = |m: &&Seen| match m.verdict {
                Ok(output) => descriptor.outputs.contains(&output),
                Err(_) => descriptor.holds > 0 && descriptor.may_drop,
            };
            if descriptor.holds == 0 && made.len() > most {
                let what = format!("made {} packets of {most} at most", made.len());
                return Err(ConformError::Batch { nf, what });
            }
            if let Some(bad) = made.iter().find(|m| !goes(m)) {
                let what = format!("made a packet that goes nowhere: {:?}", bad.verdict);
                return Err(ConformError::Batch { nf, what });
            }
        }
        if seen.len() != packets.len() {
            let what = format!("{} of {} packets were judged", seen.len(), packets.len());
            return Err(ConformError::Batch { nf, what });
        }
        for ((before, _), after) in packets.iter().zip(&seen) {
            judged(descriptor, before, after).map_err(|what| ConformError::Packet {
                nf,
                what,
                packet: before.clone(),
            })?;
        }
        Ok(())
    }
}

/// What was done to one packet against what is declared.
fn judged(descriptor: &Descriptor, before: &[u8], after: &Seen) -> Result<(), String> {
    match after.verdict {
        Ok("(held)") if descriptor.holds > 0 => {}
        Ok("(held)") => return Err("holds packets, which it does not declare".to_owned()),
        Ok(output) if !descriptor.outputs.contains(&output) => {
            return Err(format!("sends to an output that it does not have {output}"));
        }
        Err(reason) if !descriptor.may_drop => {
            return Err(format!("drops ({reason}), which it does not declare"));
        }
        _ => {}
    }
    if after.bytes.len() != before.len() {
        let how = format!("{} bytes became {}", before.len(), after.bytes.len());
        return if descriptor.resizes { Ok(()) } else { Err(how) };
    }
    if let Some((at, field)) = undeclared_field(descriptor, before, &after.bytes) {
        return Err(format!("undeclared write of {field:?}: byte {at}"));
    }
    let LayerAccess { l2, l3, l4, payload } = descriptor.layers;
    let names = ["layer 2", "layer 3", "layer 4", "payload"];
    let changed = changed(before, &after.bytes);
    let layers = names.iter().zip(changed).zip([l2, l3, l4, payload]);
    let undeclared = layers.filter(|((_, changed), touch)| *changed && *touch != Touch::Write);
    let undeclared: Vec<_> = undeclared.map(|((name, _), _)| *name).collect();
    match undeclared.is_empty() {
        true => Ok(()),
        false => Err(format!("undeclared writes: {}", undeclared.join(", "))),
    }
}

/// Where two byte strings of equal length differ, by layer of the first: l2, l3, l4, payload.
fn changed(before: &[u8], after: &[u8]) -> [bool; 4] {
    let layers = weir_packet::parse(before, Depth::L4);
    let (l3, l4, payload) = (layers.l3.into(), layers.l4.into(), layers.payload.into());
    [0..l3, l3..l4, l4..payload, payload..before.len()]
        .map(|range| before.get(range.clone()) != after.get(range))
}

/// A byte that changed, of a field that is not declared to be written though others of its layer are.
fn undeclared_field(
    descriptor: &Descriptor,
    before: &[u8],
    after: &[u8],
) -> Option<(usize, Field)> {
    let layers = weir_packet::parse(before, Depth::L4);
    let (l3, l4) = (usize::from(layers.l3), usize::from(layers.l4));
    let is_v4 = before.get(l3).is_some_and(|first| first >> 4 == 4);
    let written = |at: usize| {
        let of_l2 =
            |f: Field| matches!(f, Field::EthDst | Field::EthSrc | Field::EthType | Field::Vlan);
        let of_l3 = |f: Field| format!("{f:?}").starts_with("Ip");
        let named = |f: &Field| if at < l3 { of_l2(*f) } else { of_l3(*f) };
        let mut here = descriptor.fields.iter().filter(|(f, _)| named(f)).peekable();
        let field = field_of(at, l3, is_v4);
        let is_declared = here.peek().is_none()
            || field.is_none_or(|f| here.any(|(g, touch)| *g == f && *touch == Touch::Write));
        field.filter(|_| !is_declared)
    };
    let bytes = before.iter().zip(after).enumerate().take(l4.max(l3));
    bytes.filter(|(_, (b, a))| b != a).find_map(|(at, _)| Some((at, written(at)?)))
}

/// Of layer 2 and of IP: the field of a byte and the first field of its layer; checksums have none.
fn field_of(at: usize, l3: usize, is_v4: bool) -> Option<Field> {
    match (at, at.wrapping_sub(l3)) {
        (0..6, _) => Some(Field::EthDst),
        (6..12, _) => Some(Field::EthSrc),
        // A tag's type, its number, the next type.
        _ if at < l3 && (at - 12) % 4 < 2 => Some(Field::EthType),
        _ if at < l3 => Some(Field::Vlan),
        (_, n) if is_v4 => match n {
            1 => Some(Field::IpTos),
            2..4 => Some(Field::IpLength),
            8 => Some(Field::IpTtl),
            9 => Some(Field::IpProto),
            10..12 => None,
            12..16 => Some(Field::IpSrc),
            16..20 => Some(Field::IpDst),
            _ => Some(Field::IpOther),
        },
        (_, n) => match n {
            0..2 => Some(Field::IpTos),
            4..6 => Some(Field::IpLength),
            6 => Some(Field::IpProto),
            7 => Some(Field::IpTtl),
            8..24 => Some(Field::IpSrc),
            24..40 => Some(Field::IpDst),
            _ => Some(Field::IpOther),
        },
    }
}
