//! The whole `main` of a program that brings µNFs of its own.
//!
//! Such a program is a complete worker: it links the library's µNFs too, so that its own can be fused
//! with them. `weir run POLICY --with PROGRAM` starts it; `docs/writing-a-nf.md` has the tour.
//!
//! ```no_run
//! fn main() -> std::process::ExitCode {
//!     weir_worker::main()
//! }
//! ```
#![forbid(unsafe_code)]

use std::io::{Read, Write};
use std::process::ExitCode;
// The library's µNFs register themselves; naming the crate links them in.
use weir_nfs as _;
use weir_runtime::outside::{CheckRequest, Description};

/// Longest question that is read, in bytes.
const LONGEST: u64 = 64 << 20;

/// Does what the command line says: `worker`, `describe` or `check`, as `weir` asks for them.
#[must_use]
pub fn main() -> ExitCode {
    let done = match std::env::args().nth(1).as_deref() {
        Some("worker") => return weir_runtime::worker_main(),
        Some("describe") => serde_json::to_vec(&Description::own()).map_err(Into::into),
        Some("check") => check(),
        _ => {
            let usage =
                "this program has network functions for weir: weir run POLICY --with PROGRAM";
            let _ = writeln!(std::io::stderr(), "{usage}");
            return ExitCode::from(2);
        }
    };
    let written = done.and_then(|text| std::io::stdout().write_all(&text));
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            let _ = writeln!(std::io::stderr(), "{e}");
            ExitCode::FAILURE
        }
    }
}

fn check() -> std::io::Result<Vec<u8>> {
    let mut text = Vec::new();
    std::io::stdin().take(LONGEST).read_to_end(&mut text)?;
    let request: CheckRequest = serde_json::from_slice(&text)?;
    Ok(serde_json::to_vec(&request.answer())?)
}
