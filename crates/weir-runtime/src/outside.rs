//! What a program that brings NFs of its own (an *outside* program) says of itself, and how. It links
//! the library, so its worker can run the library's NFs beside its own; whether both mean the same
//! by everything that they share, three numbers tell.

use crate::spec::PROTOCOL_VERSION;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::OnceLock;
use weir_nf::TagKind;

/// The package whose NFs are the library's.
const LIBRARY: &str = "weir-nfs";

/// The answer to `PROGRAM describe`, as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// [`PROTOCOL_VERSION`].
    pub protocol: u32,
    /// Layout version of shared memory.
    pub layout: u32,
    /// [`catalogue`] of the library that is linked in.
    pub catalogue: u64,
    /// The program's own NFs. Empty when one of the three numbers is not the reader's: what else
    /// there is may have another form then.
    #[serde(default)]
    pub nfs: Vec<DescribedNf>,
}

/// One NF of an outside program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DescribedNf {
    /// The type's name.
    pub name: String,
    /// What it does, in one sentence.
    pub summary: String,
    /// Its inputs in their order.
    pub inputs: Vec<String>,
    /// Its outputs in their order.
    pub outputs: Vec<String>,
    /// True when it may change packets.
    pub writes: bool,
    /// True when it may drop packets.
    pub may_drop: bool,
    /// Its trust domain; empty for the graph's own.
    pub domain: String,
    /// Whether it adds or removes headers.
    pub resizes: bool,
    /// How many packets it makes at most for each that it is given.
    pub creates: u8,
    /// How many packets it holds at most.
    pub holds: u32,
    /// Whether it remembers something of each flow.
    pub follows: bool,
    /// Its tags: names and kinds.
    pub tags: Vec<(String, TagKind)>,
    /// Its whole descriptor, as `weir nf show` prints it.
    pub descriptor: Value,
    /// JSON schema of its configuration.
    pub schema: Value,
}

/// The question on `PROGRAM check`'s standard input, as JSON.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CheckRequest {
    /// The type's name.
    pub nf: String,
    /// The configuration.
    pub config: Value,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckAnswer {
    /// What is wrong: where, as a JSON pointer, and why. `None`: nothing.
    pub problem: Option<(String, String)>,
}

impl Description {
    /// Of this very program.
    pub fn own() -> Self {
        let own = weir_nf::registrations().into_iter().filter(|r| r.package.0 != LIBRARY);
        let names = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect();
        let nfs = own.map(|r| DescribedNf {
            name: r.descriptor.name.to_owned(),
            summary: r.descriptor.summary.to_owned(),
            inputs: names(r.descriptor.inputs),
            outputs: names(r.descriptor.outputs),
            writes: r.writes,
            may_drop: r.descriptor.may_drop,
            domain: r.descriptor.domain.to_owned(),
            resizes: r.descriptor.resizes,
            creates: r.descriptor.creates,
            holds: r.descriptor.holds,
            follows: r.follows,
            tags: r.descriptor.tags.iter().map(|t| (t.name.to_owned(), t.kind)).collect(),
            descriptor: serde_json::to_value(r.descriptor).unwrap_or(Value::Null),
            schema: serde_json::to_value(r.schema()).unwrap_or(Value::Null),
        });
        Description {
            protocol: PROTOCOL_VERSION,
            layout: weir_mem::meta::LAYOUT_VERSION,
            catalogue: catalogue(),
            nfs: nfs.collect(),
        }
    }
}

impl CheckRequest {
    /// Tries the configuration.
    pub fn answer(&self) -> CheckAnswer {
        let made = weir_nf::find(&self.nf)
            .and_then(|r| r.make(&self.config, &weir_nf::Env::default()).map(|_| ()));
        let problem = match made {
            Ok(()) => None,
            Err(weir_nf::BuildError::Config(e)) => Some((e.at, e.why)),
            Err(e) => Some((String::new(), e.to_string())),
        };
        CheckAnswer { problem }
    }
}

/// A number for the library that is linked into this program: equal for equal names, versions and
/// descriptors of its NFs. Against mistakes, not against malice.
pub fn catalogue() -> u64 {
    static NUMBER: OnceLock<u64> = OnceLock::new();
    *NUMBER.get_or_init(|| {
        // FNV-1a, 64 bit (Fowler, Noll, Vo): the same number in every build, unlike the standard hashers'.
        let mut number = 0xcbf2_9ce4_8422_2325_u64;
        for r in weir_nf::registrations().into_iter().filter(|r| r.package.0 == LIBRARY) {
            let text = format!("{} {:?}\n", r.package.1, r.descriptor);
            for byte in text.bytes() {
                number = (number ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
            }
        }
        number
    })
}
