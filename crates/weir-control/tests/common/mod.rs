//! For tests that are their own workers, and so have no harness but this one.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Runs the tests whose names have a word of the command line in them, or all; or is a worker.
pub fn run(tests: &[(&str, fn())]) -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some("worker") {
        return weir_runtime::worker_main();
    }
    let wanted: Vec<_> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let mut failed = 0;
    for (name, test) in tests {
        if wanted.is_empty() || wanted.iter().any(|w| name.contains(w.as_str())) {
            let passed = std::panic::catch_unwind(test).is_ok();
            failed += u32::from(!passed);
            println!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
        }
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A directory that is deleted with everything in it.
pub struct Scratch(pub PathBuf);

impl Scratch {
    /// An empty one. `name` may be that of a worker.
    pub fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let path = path.join(format!("{}-{}", name.replace(':', "-"), std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
