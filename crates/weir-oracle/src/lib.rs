//! The meaning of policies, said as plainly as possible: what Weir itself is tested against.
//!
//! One thread takes one packet at a time and walks it along the policy graph to its end before it
//! looks at the next. No processes, rings, batches, plan, segments or compiled filters are involved:
//! edges are tried in the policy's order with [`weir_filter::naive_matches`], and every µNF finds the
//! packet's headers anew. µNFs themselves are the library's: what they do is the business of their own
//! tests.
//!
//! A run of Weir must give, for the same policy and packets, the same records at each port, the same
//! counters for every node and edge, and, where order among sources does not matter, the same
//! reports. At a port the packets *of one source* come in the order in which they were received; how
//! several sources mix is open, as is how a packet and what µNFs made because of it mix where their
//! ways meet again.

mod arrays;
mod bench;
mod capture;
mod oracle;
mod outcome;

pub use capture::read_capture;
pub use oracle::{Oracle, OracleError};
pub use outcome::{Counts, Discarded, Input, Outcome, Sent};
