//! Answers.

use std::fmt::{self, Display, Formatter};

use thiserror::Error;

use crate::fields;
use crate::limits::Spent;

/// Bytes of a packet that are shown.
const MAX_DUMP: usize = 256;

/// Whether a set of packets is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Proved: no packet is in it, whatever opaque terms mean.
    Empty,
    /// This packet is in it: `weir_filter` says so, in both of its ways of evaluating.
    Example(Box<Witness>),
    /// Neither was shown.
    Unknown(Reason),
}

impl Verdict {
    /// True when it was proved that no packet is in the set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(self, Verdict::Empty)
    }
}

/// Why nothing was shown.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Reason {
    /// It depends on numbers that are not looked into, which come in these terms.
    #[error("cannot be decided: it depends on {}", list(.terms))]
    Opaque {
        /// The terms as text, each once.
        terms: Vec<String>,
    },
    /// A limit was reached first.
    #[error("not decided: {0}; write fewer or simpler filters there")]
    Spent(#[from] Spent),
    /// No packet that was tried is an example, nor was it shown that there is none.
    #[error("not decided: none of {tries} packets that were tried is in it")]
    Unconfirmed {
        /// Number of packets.
        tries: u32,
    },
}

fn list(terms: &[String]) -> String {
    let terms: Vec<String> = terms.iter().map(|t| format!("`{t}`")).collect();
    terms.join(", ")
}

/// A packet that is in a set, and what NFs must have said of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Witness {
    /// The bytes captured, from the Ethernet header on.
    pub packet: Vec<u8>,
    /// Bytes on the wire; not less than are captured.
    pub wire_len: u32,
    /// Tags that the sets in question ask for.
    pub tags: Vec<TagValue>,
    /// Numbers that were said of it: compared tags as `scope.name`, and `ingress`. One that is not
    /// here may be anything, or nothing.
    pub numbers: Vec<NumberValue>,
}

/// A number that an NF, or the port, said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumberValue {
    /// As in a filter.
    pub name: String,
    /// What it is.
    pub value: u64,
}

/// What an NF said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagValue {
    /// The instance or type that says it.
    pub scope: String,
    /// What is said.
    pub name: String,
    /// Whether it is so.
    pub value: bool,
}

/// A field of a packet, named by the filter that looks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldValue {
    /// As in a filter: `ip src host`, `tcp dst port`.
    pub name: &'static str,
    /// As in a filter.
    pub value: String,
}

impl Display for FieldValue {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.value)
    }
}

impl Witness {
    /// What its headers say, outermost first, as far as they are there.
    #[must_use]
    pub fn fields(&self) -> Vec<FieldValue> {
        fields::of(&self.packet)
    }

    /// Offsets and bytes in hexadecimal, 16 a line, as `tcpdump -xx` prints them; of a long packet the
    /// first 256 bytes, and how many more there are.
    #[must_use]
    pub fn hex_dump(&self) -> String {
        let mut text = String::new();
        let shown = self.packet.get(..MAX_DUMP).unwrap_or(&self.packet);
        for (line, bytes) in shown.chunks(16).enumerate() {
            if line > 0 {
                text.push('\n');
            }
            text.push_str(&format!("0x{:04x}: ", line.saturating_mul(16)));
            for pair in bytes.chunks(2) {
                text.push(' ');
                pair.iter().for_each(|b| text.push_str(&format!("{b:02x}")));
            }
        }
        let more = self.packet.len().saturating_sub(shown.len());
        if more > 0 {
            text.push_str(&format!("\n… {more} more bytes"));
        }
        text
    }
}

impl Witness {
    /// Its fields, tags and numbers, and its length, in one line.
    #[must_use]
    pub fn headline(&self) -> String {
        let fields = self.fields();
        let tags = self.tags.iter().map(|t| {
            let not = if t.value { "" } else { "not " };
            format!("{not}{}.{}", t.scope, t.name)
        });
        let numbers = self.numbers.iter().map(|n| format!("{} == {}", n.name, n.value));
        let fields = fields.iter().map(ToString::to_string);
        let mut all: Vec<String> = fields.chain(tags).chain(numbers).collect();
        all.push(format!("{} bytes", self.packet.len()));
        all.join(", ")
    }
}

impl Display for Witness {
    /// The headline, and the dump below it.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.headline())?;
        if self.packet.is_empty() { Ok(()) } else { write!(f, "\n{}", self.hex_dump()) }
    }
}
