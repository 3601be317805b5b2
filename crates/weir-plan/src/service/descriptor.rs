//! µNF descriptors in the µNF paper's own form (§IV-D).

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::catalog::{NfInfo, TagInfo, TagKind};
use crate::describe::{Access, Affinity, Effect, Touch, Work};

/// A µNF descriptor: what a µNF does to packets. What it leaves out is taken as the worst: stateful,
/// every layer read and written, may drop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
#[schemars(title = "µNF descriptor")]
pub struct DescriptorDocument {
    /// The µNF type's name.
    pub packet_processor_class: String,
    /// Whether it remembers anything from packet to packet.
    #[serde(default)]
    pub stateful: Option<YesNo>,
    /// What it does to the Ethernet header and VLAN tags.
    #[serde(default)]
    pub l2_header: Option<PaperTouch>,
    /// What it does to the IP header.
    #[serde(default)]
    pub l3_header: Option<PaperTouch>,
    /// What it does to the transport header.
    #[serde(default)]
    pub l4_header: Option<PaperTouch>,
    /// What it does to what follows.
    #[serde(default)]
    pub payload: Option<PaperTouch>,
    /// Whether it may drop packets. (This key and those below are not the paper's.)
    #[serde(default)]
    pub may_drop: Option<YesNo>,
    /// Names of its inputs; one, `in`, unless given.
    #[serde(default)]
    pub inputs: Option<Vec<String>>,
    /// Names of its outputs; one, `out`, unless given.
    #[serde(default)]
    pub outputs: Option<Vec<String>>,
    /// The tags that it attaches: `flag`, `number` or `text` by name.
    #[serde(default)]
    pub tags: BTreeMap<String, TagKind>,
    /// Processor cycles per packet, roughly.
    #[serde(default)]
    pub cost_cycles: Option<u32>,
}

/// What is done to a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PaperTouch {
    /// Nothing.
    #[serde(rename = "NOP")]
    Nop,
    /// It is read.
    ReadOnly,
    /// It is read and written.
    ReadWrite,
}

/// `Yes` or `No`, as the paper writes, or a truth value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected Yes or No")]
pub enum YesNo {
    /// In words.
    Word(Word),
    /// As a truth value.
    Truth(bool),
}

/// `Yes` or `No`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Word {
    /// It is so.
    Yes,
    /// It is not.
    No,
}

impl YesNo {
    /// True for yes.
    #[must_use]
    pub fn is_yes(self) -> bool {
        matches!(self, YesNo::Word(Word::Yes) | YesNo::Truth(true))
    }
}

impl DescriptorDocument {
    /// As the plan sees it.
    #[must_use]
    pub fn info(&self) -> NfInfo {
        let touch = |written: Option<PaperTouch>| match written {
            Some(PaperTouch::Nop) => Touch::Nop,
            Some(PaperTouch::ReadOnly) => Touch::Read,
            Some(PaperTouch::ReadWrite) | None => Touch::Write,
        };
        let access = Access {
            l2: touch(self.l2_header),
            l3: touch(self.l3_header),
            l4: touch(self.l4_header),
            payload: touch(self.payload),
        };
        let writes = [access.l2, access.l3, access.l4, access.payload].contains(&Touch::Write);
        let stateful = self.stateful.is_none_or(YesNo::is_yes);
        let worst = Work::default();
        let one = |name: &str| vec![name.to_owned()];
        NfInfo {
            alone_by: Vec::new(),
            name: self.packet_processor_class.clone(),
            inputs: self.inputs.clone().unwrap_or_else(|| one("in")),
            outputs: self.outputs.clone().unwrap_or_else(|| one("out")),
            writes_packets: writes,
            may_drop: self.may_drop.is_none_or(YesNo::is_yes),
            domain: String::new(),
            // Who writes may do so by adding or taking headers, for all that is known.
            resizes: writes,
            creates: 0,
            holds: 0,
            tags: self
                .tags
                .iter()
                .map(|(name, kind)| TagInfo { name: name.clone(), kind: *kind })
                .collect(),
            program: None,
            work: Work {
                access,
                // Whether writing twice is writing once is not said: then it is not.
                effect: match (stateful, writes) {
                    (true, _) => worst.effect,
                    (false, true) => Effect::Stateful,
                    (false, false) => Effect::Pure,
                },
                affinity: if stateful { worst.affinity } else { Affinity::None },
                cost_cycles: self.cost_cycles.unwrap_or(worst.cost_cycles),
                keeps: stateful,
                follows: stateful,
                ..worst
            },
        }
    }
}
