//! A traffic generator: UDP packets of a number of flows, or TCP segments with HTTP requests, the same ones for the same seed.

use crate::segments::{http_request, renumber, tcp_at};
use crate::{DeviceError, GeneratorSpec, Place, Rate, Receive, Room, Status};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use weir_mem::meta::Arrival;
use weir_packet::DropReason;
use weir_packet::headers::{proto, tcp};
use weir_packet::wire::Frame;

/// Templates that are kept ready; flows beyond them are made by changing addresses and ports.
const TEMPLATES: u32 = 1024;

/// Packets that are due and wait at most, before others are dropped: as many as an interface's ring has places for.
const QUEUE: u64 = 4096;

/// Makes packets: packet `n` is of flow `n mod flows`, a UDP or TCP flow whose addresses and ports come from the seed.
pub struct Generator {
    spec: GeneratorSpec,
    templates: Vec<Vec<u8>>,
    made: u64,
    /// When, and at which count, this incarnation began: what its rate is reckoned from.
    since: (Instant, u64),
    base_ns: u64,
}

/// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): a stateless spreading of numbers.
pub(crate) fn mix(n: u64) -> u64 {
    let mut z = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Generator {
    /// A generator of `spec`, going on from `place`.
    pub fn new(spec: &GeneratorSpec, place: Place) -> Self {
        let templates = (0..spec.flows.min(TEMPLATES)).map(|flow| template(spec, flow)).collect();
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Generator {
            spec: spec.clone(),
            templates,
            made: place[0],
            since: (Instant::now(), place[0]),
            base_ns: since_epoch.as_nanos() as u64,
        }
    }

    /// The first packet of a flow that a generator of `spec` makes.
    #[must_use]
    pub fn packet(spec: &GeneratorSpec, flow: u32) -> Vec<u8> {
        template(spec, flow)
    }

    /// How many packets may be made now, and how long to wait when none.
    fn allowed(&self, elapsed_ns: u64) -> Result<u64, Status> {
        let left = self.spec.packets.map_or(u64::MAX, |n| n.saturating_sub(self.made));
        if left == 0 {
            return Err(Status::End);
        }
        let Rate::PerSecond(rate) = self.spec.rate else {
            return Ok(left);
        };
        let due = u128::from(elapsed_ns) * u128::from(rate) / 1_000_000_000;
        let due = (due as u64 + self.since.1).saturating_sub(self.made);
        if due == 0 { Err(Status::Later(1_000_000_000 / rate)) } else { Ok(due.min(left)) }
    }
}

fn template(spec: &GeneratorSpec, flow: u32) -> Vec<u8> {
    let r = mix(spec.seed ^ u64::from(flow)).to_be_bytes();
    let ports = (1024 + (u16::from_be_bytes([r[0], r[1]]) % 60_000), 53 + u16::from(r[2] % 4));
    let (a, b) = (flow.to_be_bytes(), [r[3], r[4], r[5]]);
    let size = usize::from(spec.longest());
    let (ip, transport) = (if spec.ipv6 { 40 } else { 20 }, if spec.http { 20 } else { 8 });
    let room = size.saturating_sub(14 + ip + transport);
    let carried = if spec.http { http_request(room) } else { vec![0; room] };
    let frame = if spec.ipv6 {
        let mut source = [0u8; 16];
        source[..2].copy_from_slice(&[0xfd, 0]);
        source[12..].copy_from_slice(&a);
        let mut destination = [0u8; 16];
        destination[..2].copy_from_slice(&[0xfd, 1]);
        destination[13..].copy_from_slice(&b);
        Frame::ipv6(source, destination)
    } else {
        Frame::ipv4([10, a[1], a[2], a[3]], [172, 16 | (b[0] & 15), b[1], b[2]])
    };
    let frame = match spec.http {
        true => frame.tcp(ports.0, ports.1, tcp::ACK),
        false => frame.udp(ports.0, ports.1),
    };
    let frame = frame.payload(&carried).build();
    debug_assert_eq!(frame.len(), size);
    frame
}

impl Generator {
    /// The sequence number of the flows' segments in this round through them; none of what has no such number.
    fn numbering(&self) -> Option<(usize, u32)> {
        let tcp = tcp_at(proto::TCP, self.spec.ipv6).filter(|_| self.spec.http)?;
        let carried = u64::from(self.spec.longest()) - tcp as u64 - 20;
        // Of what was dropped, too, as nobody sends it again. Modulo 2^32, as sequence numbers are.
        Some((tcp, (self.made / u64::from(self.spec.flows)).wrapping_mul(carried) as u32))
    }

    /// Gives templates from `flow` on the sequence numbers that are due, as many as may be taken.
    fn number(&mut self, flow: usize, most: usize) {
        let Some((tcp, seq)) = self.numbering() else { return };
        self.templates.iter_mut().skip(flow).take(most).for_each(|t| renumber(t, tcp, |_| seq));
    }
}

impl Receive for Generator {
    fn receive(&mut self, room: &mut Room<'_>) -> Result<Status, DeviceError> {
        let elapsed_ns = self.since.0.elapsed().as_nanos() as u64;
        let allowed = match self.allowed(elapsed_ns) {
            Ok(n) => n,
            Err(status) => return Ok(status),
        };
        let arrival = Arrival {
            time_ns: self.base_ns.wrapping_add(elapsed_ns),
            wire_len: u32::from(self.spec.longest()),
            ..Arrival::default()
        };
        let flows = u64::from(self.spec.flows);
        let mut left = allowed;
        if self.spec.drops && left > QUEUE {
            room.missed(DropReason::KernelFull, left - QUEUE);
            self.made += left - QUEUE;
            left = QUEUE;
        }
        while left > 0 {
            // The rest of this round through the flows, those with a template first.
            let flow = self.made % flows;
            self.number(flow as usize, room.left.min(room.pool.free()));
            let ready = self.templates.get(flow as usize..).unwrap_or_default();
            let taken = if ready.is_empty() {
                let mut bytes = template(&self.spec, flow as u32);
                if let Some((tcp, seq)) = self.numbering() {
                    renumber(&mut bytes, tcp, |_| seq);
                }
                let taken = room.take(bytes.len(), &arrival, |b| {
                    b.write(0, &bytes);
                });
                u64::from(taken)
            } else {
                room.take_all(left, &arrival, |i| ready.get(i).map(Vec::as_slice)) as u64
            };
            if taken == 0 {
                break;
            }
            self.made += taken;
            left -= taken;
        }
        Ok(Status::More)
    }

    fn place(&self) -> Place {
        [self.made, 0, 0, 0, 0, 1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segments::tests::sound;
    use weir_packet::{Depth, check_ip, parse};

    #[test]
    fn generated_packets_are_sound_have_the_size_and_depend_on_the_seed_only() {
        for (size, ipv6) in [(60, false), (64, false), (1500, false), (62, true), (9000, true)] {
            let spec = GeneratorSpec { size, ipv6, ..GeneratorSpec::default() };
            for flow in [0, 1, 999_999] {
                let frame = template(&spec, flow);
                assert_eq!(frame.len(), usize::from(size));
                let layers = parse(frame.as_slice(), Depth::L4);
                assert_eq!(check_ip(frame.as_slice(), &layers, frame.len()), Ok(()));
                assert_eq!(frame, template(&spec, flow));
            }
            assert_ne!(template(&spec, 1), template(&GeneratorSpec { seed: 2, ..spec.clone() }, 1));
        }
    }

    #[test]
    fn requests_of_a_flow_follow_each_other_and_their_packets_have_room_for_them() {
        for (size, ipv6, long) in [(60, false, 133), (62, true, 153), (196, false, 196)] {
            let spec = GeneratorSpec { size, ipv6, http: true, flows: 7, ..Default::default() };
            assert_eq!(spec.longest(), long);
            let mut expected = 0;
            for round in 0..3 {
                // It goes on anew in each round, with the third flow.
                let mut generator = Generator::new(&spec, [round * 7 + 2, 0, 0, 0, 0, 1]);
                generator.number(2, 1);
                let frame = &generator.templates[2];
                let (seq, request) = sound(frame);
                assert_eq!((frame.len(), seq), (usize::from(long), expected));
                assert!(request.starts_with(b"GET /") && request.ends_with(b"\r\n\r\n"));
                expected = seq + request.len() as u32;
            }
        }
    }
}
