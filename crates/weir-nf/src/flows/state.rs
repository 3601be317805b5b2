//! What a µNF remembers of a flow, and what becomes of a flow that finds no room.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// What a µNF remembers of one flow: a plain value that can be written down and read back, so that
/// a flow can move.
///
/// Reading must not need more memory or time than the bytes are worth. A list of values that are
/// written as nothing (`Vec<()>`) would: its length is all there is of it. A [`Held`](crate::Held) is a byte.
pub trait FlowState: Default + Serialize + DeserializeOwned + Send + 'static {
    /// Version of the serialised form.
    const VERSION: u32 = 1;

    /// Reads what an earlier `version` of the µNF wrote of a flow ([`read_state`](crate::read_state) reads the type that it was then), so
    /// that a running NF can be replaced by a newer one. `None`: it cannot, and the NF is not replaced.
    fn from_version(_version: u32, _bytes: &[u8]) -> Option<Self> {
        None
    }

    /// It was read from a replica that is not written with every batch (`every:N`, `us:T`): the flow's last packets may be
    /// missing in it. What is judged by exactly what the last packets were must be judged more mildly from now on.
    fn recovered_late(&mut self) {}
}

impl FlowState for () {}

/// What becomes of a new flow when as many are busy as may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WhenFull {
    /// It is refused, and counted. For µNFs that judge: what they have let in stays.
    #[default]
    Refuse,
    /// It takes the place of another. Of the next 32 places, from where the last search ended, that is the first flow which has had
    /// one packet only, or else the one whose last packet is longest ago. So a flood of new flows pushes out its own. For µNFs that
    /// count or limit: nothing is let in by it.
    GiveWay,
}
