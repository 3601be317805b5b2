//! What the plan must know of NF types. Whoever has the types' code provides it.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::describe::Work;
use crate::service::Template;

/// The description of an NF type, as far as the plan needs it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NfInfo {
    /// The type's name.
    pub name: String,
    /// Its inputs in their order. One that is not needed by name may have any name; none counts as one.
    pub inputs: Vec<String>,
    /// Its outputs in their order; none means that no packet leaves it.
    pub outputs: Vec<String>,
    /// True when it may change packets, so its worker needs write access to packet data.
    pub writes_packets: bool,
    /// True when it may drop packets.
    pub may_drop: bool,
    /// The trust domain that its author gives it; empty for the graph's own.
    pub domain: String,
    /// True when it adds or removes headers.
    #[serde(default)]
    pub resizes: bool,
    /// How many packets it makes at most for each that it is given.
    #[serde(default)]
    pub creates: u8,
    /// How many packets it holds at most at a time.
    #[serde(default)]
    pub holds: u32,
    /// The tags that it attaches.
    #[serde(default)]
    pub tags: Vec<TagInfo>,
    /// The program whose code it is; `None` for the library's. Every program has the library's, none
    /// has another program's: two of different programs never share a worker.
    #[serde(default)]
    pub program: Option<ProgramId>,
    /// What merging and moving it may rely on.
    #[serde(default)]
    pub work: Work,
    /// Fields of its configuration for which there may be one instance only; without them several might be.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alone_by: Vec<String>,
}

/// A tag that an NF attaches to packets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TagInfo {
    /// Its name, without the NF's.
    pub name: String,
    /// What its value is.
    pub kind: TagKind,
}

/// What a tag's value is.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum TagKind {
    /// True or not: `fw.safe`.
    Flag,
    /// A number: `ids.score >= 3`.
    Number,
    /// Bytes: `http.url ~ "^/admin"`.
    Text,
}

/// An outside program, by its place in the operator's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ProgramId(pub u16);

/// What is wrong with an NF's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigProblem {
    /// Where, as a JSON pointer (RFC 6901); empty for the whole.
    pub path: String,
    /// What is wrong and what to write instead.
    pub why: String,
}

/// What a µNF is connected to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Around {
    /// Each input with the names of the nodes that packets come from.
    pub inputs: Vec<(String, Vec<String>)>,
    /// Each output with the names of the nodes that packets go to; none: nothing takes them.
    pub outputs: Vec<(String, Vec<String>)>,
}

/// The NF types that a policy may use.
pub trait Catalog {
    /// The description of a type; `None` when there is no such type.
    fn nf(&self, type_name: &str) -> Option<NfInfo>;

    /// The same with a configuration, on which may depend which packets must meet at one instance.
    fn nf_with(&self, type_name: &str, _config: &serde_json::Value) -> Option<NfInfo> {
        self.nf(type_name)
    }

    /// The names of all types.
    fn types(&self) -> Vec<String>;

    /// The VNF template of that name, which goes before an NF type of the same name.
    fn template(&self, _name: &str) -> Option<Arc<Template>> {
        None
    }

    /// The names of all templates.
    fn templates(&self) -> Vec<String> {
        Vec::new()
    }

    /// False for a type that is only described: it can be planned and explained, not run.
    fn has_code(&self, _type_name: &str) -> bool {
        true
    }

    /// The configuration of a µNF of a VNF, generated from what its template says and from its
    /// neighbours (µNF paper §IV-A). Most take what the template says.
    ///
    /// # Errors
    /// What keeps it from being configured.
    fn generate(
        &self,
        _type_name: &str,
        config: &serde_json::Value,
        _around: &Around,
    ) -> Result<serde_json::Value, ConfigProblem> {
        Ok(config.clone())
    }

    /// What the command that shows a type needs besides its name, with a space before it: of what an outside program
    /// brings, that program.
    fn shown_with(&self, _type_name: &str) -> String {
        String::new()
    }

    /// Checks a configuration; an instance that has none gets `{}`.
    ///
    /// # Errors
    /// The first problem found.
    fn check_config(
        &self,
        type_name: &str,
        config: &serde_json::Value,
    ) -> Result<(), ConfigProblem>;
}
