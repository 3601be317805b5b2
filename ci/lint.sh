#!/usr/bin/env bash
# Format, lints and documentation of the whole workspace; fails on any finding.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. ci/setup.sh
export CARGO_INCREMENTAL=0
needs rust linker components cxx

say "Format (cargo fmt --check)"
cargo fmt --all --check
# A workspace of its own: its build needs flags that the rest must not have.
cargo fmt --manifest-path fuzz/Cargo.toml --check
# Projects outside of the workspace on purpose; the tests build them.
cargo fmt --manifest-path examples/outside-nf/Cargo.toml --check
cargo fmt --manifest-path crates/weir/tests/hostile-nf/Cargo.toml --check
say "Lints (cargo clippy, warnings are errors)"
# With the tests' feature, as in ci/test.sh: then tests that need it are seen too.
cargo clippy --locked --workspace --all-targets --features weir/faults,weir/attacks -- -D warnings
# The fuzz targets are built only where they run: what no longer fits them is said here.
ci/fuzz.sh --lint
say "Documentation (cargo doc, warnings are errors)"
# With the examples, the dependencies have the same features as above, and are not checked twice.
RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps --lib --bins --examples
