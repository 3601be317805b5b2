//! Hardware descriptions (E2 §3.2): what there is to run on.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bandwidth::Bandwidth;
use crate::error::{Errors, PolicyError};
use crate::service::tree::{Syntax, read};
use crate::service::typed::{Document, typed};
use crate::why::Why;

/// A hardware description: the servers. (Switches are not described yet.)
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Hardware description")]
pub struct HardwareDocument {
    /// The servers.
    pub servers: Vec<ServerDocument>,
}

/// A server as it is written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServerDocument {
    /// Its name.
    pub name: String,
    /// How many processor cores weir may use.
    pub cores: u32,
    /// Their clock rate in GHz.
    pub ghz: f64,
    /// What its network interfaces carry together, as in `10 Gbps`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nic: Option<String>,
}

/// A server.
#[derive(Clone, Debug, PartialEq)]
pub struct Server {
    /// Its name.
    pub name: String,
    /// Cores that weir may use.
    pub cores: u32,
    /// Clock rate in GHz, above zero.
    pub ghz: f64,
    /// Bits per second of its network interfaces together; `None`: not known.
    pub nic_bps: Option<u64>,
}

/// What there is to run on.
#[derive(Clone, Debug, PartialEq)]
pub struct Hardware {
    /// The servers; at least one.
    pub servers: Vec<Server>,
}

impl Hardware {
    /// Reads a hardware description.
    ///
    /// # Errors
    /// All errors found, in the order of the text.
    pub fn read(text: &str, syntax: Syntax) -> Result<Self, Vec<PolicyError>> {
        let document: Document<HardwareDocument> = typed(read(text, syntax)?, "hardware")?;
        let mut errors = Errors::default();
        let mut error = |pointer: String, message: String, instead: &str| {
            let instead = instead.to_owned();
            errors.push(document.value_at(&pointer), Why::Document { message, instead });
        };
        if document.value.servers.is_empty() {
            error("/servers".to_owned(), "there is no server".to_owned(), "write at least one");
        }
        let mut servers = Vec::new();
        for (i, server) in document.value.servers.iter().enumerate() {
            let at = format!("/servers/{i}");
            if server.cores == 0 {
                error(format!("{at}/cores"), "no cores".to_owned(), "write at least 1");
            }
            if !(0.01..=100.0).contains(&server.ghz) {
                let message = format!("{} GHz", server.ghz);
                error(format!("{at}/ghz"), message, "write the clock rate in GHz, as in `2.1`");
            }
            let nic = server.nic.as_deref().map(|nic| (nic, Bandwidth::parse(nic)));
            let nic_bps = match nic {
                Some((_, Some(Bandwidth::Bps(bps)))) => Some(bps),
                Some((nic, _)) => {
                    let message = format!("`{nic}` is not a bandwidth in bits");
                    error(format!("{at}/nic"), message, "write as in `10 Gbps`");
                    None
                }
                None => None,
            };
            let (name, cores, ghz) = (server.name.clone(), server.cores, server.ghz);
            servers.push(Server { name, cores, ghz, nic_bps });
        }
        if errors.is_empty() { Ok(Self { servers }) } else { Err(errors.into_list()) }
    }
}
