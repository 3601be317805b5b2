//! Builds the projects outside of the workspace that tests run, and copies programs.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]
#![allow(dead_code, reason = "each test uses its part")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// The example of an outside NF: `MarkDscp`.
pub fn outside_nf() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| build(&example())).join("outside-nf")
}

/// The attackers: `hostile-nf` brings `Attack`, the others misbehave when asked what they have.
pub fn hostile(program: &str) -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hostile-nf");
    BUILT.get_or_init(|| build(&project)).join(program)
}

/// The example's project.
pub fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/outside-nf")
}

/// Folder of programs, beside that of `weir` itself: one project's dependencies serve the other.
fn target() -> PathBuf {
    let weir = Path::new(env!("CARGO_BIN_EXE_weir"));
    weir.ancestors().nth(2).unwrap().join("outside")
}

fn build(project: &Path) -> PathBuf {
    cargo(project, &["build"]);
    target().join("debug")
}

/// Copies a program to be run. Another process writes the copy: what this one has open for writing, its
/// children have too until they `exec`, and a test beside this one may just start one (`ETXTBSY`).
pub fn copy_program(from: impl AsRef<Path>, to: impl AsRef<Path>) {
    let cp = Command::new("cp").arg(from.as_ref()).arg(to.as_ref()).status().unwrap();
    assert!(cp.success(), "{cp}");
}

/// Runs cargo in a project; without a network if it can be, with the locked versions if they still
/// are those of the crates that it depends on.
pub fn cargo(project: &Path, command: &[&str]) -> Output {
    let run = |how: &[&str]| {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(command).args(how).current_dir(project).env("CARGO_TARGET_DIR", target());
        // Nobody debugs these programs.
        cargo.env("CARGO_PROFILE_DEV_DEBUG", "false");
        cargo.output().unwrap()
    };
    let mut output = run(&["--locked", "--offline"]);
    for how in [&["--locked"][..], &["--offline"]] {
        if output.status.success() {
            break;
        }
        output = run(how);
    }
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo {command:?} in {}:\n{text}", project.display());
    output
}
