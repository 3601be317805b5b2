//! What the plan must know of NF types. Whoever has the types' code provides it.

use serde::{Deserialize, Serialize};

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
}

/// What is wrong with an NF's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigProblem {
    /// Where, as a JSON pointer (RFC 6901); empty for the whole.
    pub path: String,
    /// What is wrong and what to write instead.
    pub why: String,
}

/// The NF types that a policy may use.
pub trait Catalog {
    /// The description of a type; `None` when there is no such type.
    fn nf(&self, type_name: &str) -> Option<NfInfo>;

    /// The names of all types.
    fn types(&self) -> Vec<String>;

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
