//! µNF types as descriptions, and what each does: to packets of four layers and a tag.

use serde_json::Value;
use weir_plan::{
    Access, Affinity, Catalog, ConfigProblem, Effect, NfInfo, ProgramId, TagInfo, TagKind, Touch,
    Work,
};

use Effect::{Idempotent, Pure, Stateful};
use Touch::{Nop, Read, Write};

/// A description in short.
struct Type {
    name: &'static str,
    inputs: &'static [&'static str],
    outputs: &'static [&'static str],
    effect: Effect,
    /// From the link header up.
    touches: [Touch; 4],
    may_drop: bool,
    keeps: bool,
    tags: &'static [&'static str],
}

const BASE: Type = Type {
    name: "",
    inputs: &["in"],
    outputs: &["out"],
    effect: Pure,
    touches: [Nop; 4],
    may_drop: false,
    keeps: false,
    tags: &[],
};

const TYPES: [Type; 17] = [
    // Those of the paper's chain.
    Type {
        name: "CheckIpHeader",
        outputs: &["ip", "non_ip"],
        touches: [Read, Read, Nop, Nop],
        may_drop: true,
        ..BASE
    },
    Type {
        name: "HttpClassifier",
        outputs: &["http", "other"],
        // It finds the payload by the headers, so they matter although it does not say that it reads them.
        touches: [Nop, Nop, Nop, Read],
        tags: &["url"],
        ..BASE
    },
    Type {
        name: "L3L4Filter",
        touches: [Read, Read, Read, Nop],
        may_drop: true,
        keeps: true,
        ..BASE
    },
    Type { name: "CountUrl", effect: Stateful, touches: [Read; 4], keeps: true, ..BASE },
    Type {
        name: "ValidateUrl",
        effect: Stateful,
        touches: [Read; 4],
        may_drop: true,
        keeps: true,
        ..BASE
    },
    // One for each thing that matters.
    Type { name: "CheckLink", outputs: &["a", "b"], touches: [Read, Nop, Nop, Nop], ..BASE },
    Type { name: "Nothing", ..BASE },
    Type { name: "WriteLink", effect: Stateful, touches: [Write, Nop, Nop, Nop], ..BASE },
    Type { name: "WriteIp", effect: Stateful, touches: [Read, Write, Nop, Nop], ..BASE },
    Type { name: "WritePayload", effect: Stateful, touches: [Nop, Nop, Nop, Write], ..BASE },
    Type { name: "SetPort", effect: Idempotent, touches: [Read, Read, Write, Nop], ..BASE },
    Type {
        name: "SetOnce",
        outputs: &["new", "old"],
        effect: Idempotent,
        touches: [Read, Read, Write, Nop],
        ..BASE
    },
    Type { name: "Mark", effect: Stateful, tags: &["url"], ..BASE },
    Type {
        name: "Fork",
        inputs: &["p", "q"],
        outputs: &["a", "b"],
        touches: [Read, Nop, Nop, Nop],
        ..BASE
    },
    Type { name: "Grow", effect: Stateful, ..BASE },
    Type { name: "Copy", effect: Stateful, ..BASE },
    Type { name: "Theirs", touches: [Read, Read, Nop, Nop], ..BASE },
];

/// The types.
pub struct Types;

impl Catalog for Types {
    fn nf(&self, type_name: &str) -> Option<NfInfo> {
        let t = TYPES.iter().find(|t| t.name == type_name)?;
        let strings = |list: &[&str]| list.iter().map(ToString::to_string).collect();
        let [l2, l3, l4, payload] = t.touches;
        Some(NfInfo {
            alone_by: Vec::new(),
            name: t.name.to_owned(),
            inputs: strings(t.inputs),
            outputs: strings(t.outputs),
            writes_packets: t.touches.contains(&Write),
            may_drop: t.may_drop,
            domain: String::new(),
            resizes: t.name == "Grow",
            creates: u8::from(t.name == "Copy"),
            holds: 0,
            tags: t
                .tags
                .iter()
                .map(|name| TagInfo { name: (*name).to_owned(), kind: TagKind::Text })
                .collect(),
            program: (t.name == "Theirs").then_some(ProgramId(0)),
            work: Work {
                access: Access { l2, l3, l4, payload },
                effect: t.effect,
                affinity: Affinity::None,
                cost_cycles: if t.name == "HttpClassifier" { 100 } else { 50 },
                keeps: t.keeps,
                ..Work::default()
            },
        })
    }

    fn types(&self) -> Vec<String> {
        TYPES.iter().map(|t| t.name.to_owned()).collect()
    }

    fn check_config(&self, _: &str, _: &Value) -> Result<(), ConfigProblem> {
        Ok(())
    }
}

/// A packet: each layer is a number below 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Packet {
    pub layers: [u8; 4],
    pub tag: u8,
    /// Bytes that were added.
    pub grown: u8,
}

impl Packet {
    /// As a frame: the layers are the last byte of an address, another one's, a port and the payload.
    pub fn frame(&self) -> Vec<u8> {
        let [l2, l3, l4, payload] = self.layers;
        let mut frame = vec![2, 0, 0, 0, 0, l2, 2, 0, 0, 0, 1, 0, 8, 0];
        let len = 41 + self.grown;
        frame.extend([0x45, 0, 0, len, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, l3, 10, 0, 1, 1]);
        frame.extend([
            0,
            80 + l4,
            0x1f,
            0x90,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0x50,
            0x10,
            0,
            0,
            0,
            0,
            0,
            0,
        ]);
        frame.push(payload);
        frame.extend((0..self.grown).map(|_| 0));
        frame
    }
}

/// What a µNF does with a packet.
pub enum Verdict {
    Output(usize),
    Drop(&'static str),
}

/// A number below `n` that depends on all of `words`, evenly enough.
fn pick(words: &[u8], n: u32) -> usize {
    let mix =
        words.iter().fold(2_166_136_261_u32, |h, w| (h ^ u32::from(*w)).wrapping_mul(16_777_619));
    ((mix >> 15) % n) as usize
}

/// Does what the type's description allows, and as much of it as it can: every layer that it may read
/// matters, every layer that it may write changes. Copies are the second packet.
pub fn act(
    kind: &str,
    config: &Value,
    input: usize,
    packet: &mut Packet,
) -> (Verdict, Option<Packet>) {
    let k = config.get("k").and_then(Value::as_u64).unwrap_or(0) as u8;
    let [l2, l3, l4, payload] = packet.layers;
    let own = kind.len() as u8;
    let out = Verdict::Output;
    let verdict = match kind {
        "CheckIpHeader" | "Theirs" => match pick(&[k, l2, l3, packet.grown], 4) {
            0 if kind == "CheckIpHeader" => Verdict::Drop("bad-header"),
            1 if kind == "CheckIpHeader" => out(1),
            _ => out(0),
        },
        "HttpClassifier" => {
            packet.tag = pick(&[k, l2, l3, l4, payload, 7], 250) as u8;
            out(pick(&[k, l2, l3, l4, payload], 2))
        }
        "L3L4Filter" => match pick(&[k, own, l2, l3, l4], 3) {
            0 => Verdict::Drop("filtered"),
            _ => out(0),
        },
        // It reads the tag: a wrong one would be seen here.
        "ValidateUrl" => match pick(&[k, own, l2, l3, l4, payload, packet.tag], 5) {
            0 => Verdict::Drop("injection"),
            _ => out(0),
        },
        "CheckLink" => out(pick(&[k, own, l2], 2)),
        "WriteLink" => {
            packet.layers[0] = (l2 + 1) % 4;
            out(0)
        }
        "WriteIp" => {
            packet.layers[1] = (l3 + l2 + 1) % 4;
            out(0)
        }
        "WritePayload" => {
            packet.layers[3] = (payload + 1) % 4;
            out(0)
        }
        "SetPort" => {
            packet.layers[2] = (l2 + l3 + k) % 4;
            out(0)
        }
        "SetOnce" => {
            packet.layers[2] = k % 4;
            out(usize::from(l4 == k % 4))
        }
        "Mark" => {
            packet.tag = packet.tag.wrapping_add(1 + k);
            out(0)
        }
        "Fork" => out(pick(&[k, input as u8, l2], 2)),
        "Grow" => {
            packet.grown += 1;
            out(0)
        }
        _ => out(0),
    };
    let made = Packet { layers: [3, 2, 1, 0], tag: 0, grown: 0 };
    (verdict, (kind == "Copy").then_some(made))
}
