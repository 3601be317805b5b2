//! The µNF paper's inputs (§IV-D) and E2's (§3.2) as JSON or YAML documents.
//!
//! ```text
//! service request ──▶ Policy ──┐
//! policy text ───── parse ─────┴─ check ──▶ Graph with VNFs ── expand ──▶ Graph of µNFs
//! ```
//!
//! - A **service request** ([`RequestDocument`]) is a graph of VNFs: what a policy says, in the paper's form. Both are
//!   checked by the same code and end in the same [`Graph`](crate::Graph).
//! - A **VNF template** ([`TemplateDocument`]) is a graph of µNFs with labelled links, and parameters.
//!   Policies can use it as well, by its name as an NF type.
//! - A **µNF descriptor** ([`DescriptorDocument`]) and an **NF description** ([`NfDocument`]) say
//!   what an NF does, so that chains with NFs that have no code here can be planned.
//! - A **hardware description** ([`HardwareDocument`]) says what there is to run on.
//!
//! `docs/service-chains.md` teaches them, `docs/schemas` has the JSON schemas.

mod blueprint;
mod descriptor;
mod expand;
mod hardware;
mod names;
mod nf;
mod objective;
mod request;
mod schema;
mod template;
mod tree;
mod typed;
mod vnf;
mod words;

pub use blueprint::{
    Parameter, ParameterType, TemplateDocument, TemplateInput, TemplateLink, TemplateNode,
    TemplateOutput,
};
pub use descriptor::{DescriptorDocument, PaperTouch, Word, YesNo};
pub(crate) use expand::configure;
pub use expand::{SEPARATOR, expand};
pub use hardware::{Hardware, HardwareDocument, Server, ServerDocument};
pub(crate) use names::push_step;
pub use nf::{
    AffinityField, Attribute, Described, Method, NfDocument, NfKind, Ports, Rate, Scaling,
    affinity_of, describe,
};
pub use objective::{
    Choice, LatencyDocument, Objective, ObjectiveDocument, ObjectiveError, Placement, choose,
};
pub use request::{Request, RequestDocument, RequestLink, RequestPort, RequestVnf};
pub use schema::{DocumentKind, schema};
pub use template::{MAX_PARTS, Template, Way};
pub use tree::{MAX_VALUES, Syntax};
pub(crate) use typed::value;
pub(crate) use vnf::Budget;
pub use vnf::{Vnf, VnfNode, VnfOf};
