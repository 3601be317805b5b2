#!/usr/bin/env bash
# Fuzzes what reads hostile or foreign input, on stable Rust. What and why: docs/decisions/0005-fuzzing.md.
#
#   ci/fuzz.sh                       each target for 8 seconds
#   ci/fuzz.sh 600                   each target for 10 minutes
#   FUZZ_TARGETS="http rules" FUZZ_SEED=7 ci/fuzz.sh 60
#   ci/fuzz.sh --replay FILE TARGET  one input again, for instance a crash that was found
#   ci/fuzz.sh --lint                clippy of the targets
#   ci/fuzz.sh --build               builds all that a run takes
#   WEIR_FUZZ_SELFTEST=1 ci/fuzz.sh  with a panic planted in each target: every one must be found, so it fails
#
# Without WEIR_FUZZ_SELFTEST one target with a planted panic runs first: a harness that finds nothing fails.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

target_dir=$(realpath -m "${CARGO_TARGET_DIR:-target/fuzz}")
host=$(rustc -vV | sed -n 's/^host: //p')
targets=${FUZZ_TARGETS:-headers captures policies filters http devices offloads rules flows documents}
seed=${FUZZ_SEED:-20261121}
selftest_seconds=${FUZZ_SELFTEST_SECONDS:-20}
bins=()
for name in $targets; do bins+=(--bin "$name"); done

# A line of its own in $results for each target: they run side by side.
pass() {
    echo "  ok    $*" | tee -a "$results"
}
fail() {
    echo "  FAIL  $*" | tee -a "$results"
}

# A target in the background, as soon as there are fewer than the machine has processors: each is one thread.
beside() {
    while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do wait -n; done
    "$@" &
}

# A command of cargo with the flags that cargo-fuzz gives, without its sanitizer (which needs nightly): a counter on each
# edge, compared values as hints. Its -Clink-dead-code is left out: it makes rustc evaluate the constant
# asserts of functions that nothing calls, and some of pulp's do not hold.
fuzz_cargo() {
    local command=$1
    shift
    CARGO_TARGET_DIR=$target_dir RUSTFLAGS="-Cpasses=sancov-module \
        -Cllvm-args=-sanitizer-coverage-level=4 \
        -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
        -Cllvm-args=-sanitizer-coverage-pc-table \
        -Cllvm-args=-sanitizer-coverage-trace-compares" \
        cargo "$command" --quiet --locked --manifest-path fuzz/Cargo.toml --release --target "$host" "$@"
}

# Builds the targets after the options and puts them into the folder named first.
build() {
    local folder=$1 name
    shift
    fuzz_cargo build "$@"
    mkdir -p "$target_dir/$folder"
    # With and without the planted panic they have one name and share their dependencies: so they are copied.
    for name in "$@"; do
        [ ! -x "$target_dir/$host/release/$name" ] || cp "$target_dir/$host/release/$name" "$target_dir/$folder/"
    done
}

# Folder of the binaries, target, seconds: libFuzzer's exit code, its output in $log.
run() {
    local corpus=$target_dir/$1/corpus/$2 found=$target_dir/$1/artifacts/$2 dictionary=fuzz/dictionaries/$2.dict
    mkdir -p "$corpus" "$found"
    log=$target_dir/$1/$2.log
    local flags=(-seed="$seed" -max_total_time="$3" -timeout=10 -rss_limit_mb=2048 -max_len=4096
        -artifact_prefix="$found/" -print_final_stats=1)
    [ ! -f "$dictionary" ] || flags+=(-dict="$dictionary")
    # New inputs go to the first folder, the seeds are only read.
    "$target_dir/$1/$2" "${flags[@]}" "$corpus" "fuzz/seeds/$2" >"$log" 2>&1
}

# What was run, from libFuzzer's last lines.
statistics() {
    local runs cov
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    cov=$(grep -o 'cov: [0-9]*' "$log" | tail -n 1)
    echo "${runs:-0} runs, ${cov:-cov: 0}"
}

# A blind fuzzer passes everything: counters must be there, and the seeds must have moved them.
instrumented() {
    grep -q 'INFO: Loaded 1 modules *([0-9]* inline 8-bit counters)' "$log" &&
        [ "$(grep -o 'INITED cov: [0-9]*' "$log" | grep -o '[0-9]*$')" -gt 50 ]
}

# With the flags of the build: then macros, build scripts and libFuzzer itself are not built twice.
if [ "${1:-}" = --lint ]; then
    fuzz_cargo clippy --all-targets --features planted -- -D warnings
    exit
fi
if [ "${1:-}" = --replay ]; then
    build green --bin "$3"
    exec "$target_dir/green/$3" -timeout=10 -rss_limit_mb=2048 "$2"
fi
if [ "${1:-}" = --build ]; then
    build planted --bin headers --features planted
    build green "${bins[@]}"
    echo "built"
    exit
fi
seconds=${1:-8}
mkdir -p "$target_dir"
results=$(mktemp "$target_dir/results.XXXXXX")
trap 'rm -f "$results"' EXIT

# Whether the panic planted in a target is found; from the seeds alone, so that no earlier run helps.
planted() {
    local name=$1
    rm -rf "$target_dir/planted/corpus/$name" "$target_dir/planted/artifacts/$name"
    if run planted "$name" "$selftest_seconds"; then
        fail "$name: the planted panic was not found in $selftest_seconds s ($(statistics))"
    elif grep -q 'the planted panic' "$log"; then
        pass "$name: the planted panic was found ($(statistics))"
    else
        fail "$name: failed, but not by the planted panic: $log"
    fi
}

# A target as it is, or with its planted panic; what is found makes it fail.
fuzz() {
    local folder=$1 name=$2 artefact
    if run "$folder" "$name" "$seconds"; then
        if instrumented; then
            pass "$name ($(statistics))"
        else
            fail "$name: runs, but without coverage counters: $log"
        fi
        return
    fi
    fail "$name ($(statistics)): $log"
    grep -m 3 -A 2 -E "panicked at|^SUMMARY|ERROR: libFuzzer" "$log" | cut -c1-240 | sed 's/^/        | /' || true
    artefact=$(sed -n 's/.*Test unit written to //p' "$log" | tail -n 1)
    if [ -n "$artefact" ]; then
        echo "        the input is kept: $artefact"
        echo "        again: ci/fuzz.sh --replay $artefact $name"
    fi
}

echo "seed $seed, $seconds s for each target, corpus and findings in $target_dir"
if [ -n "${WEIR_FUZZ_SELFTEST:-}" ]; then
    echo "== fuzz targets with a planted panic: each must fail"
    build planted "${bins[@]}" --features planted
    rm -rf "$target_dir/planted/corpus" "$target_dir/planted/artifacts"
    for name in $targets; do beside fuzz planted "$name"; done
    wait
else
    echo "== a planted panic is found"
    build planted --bin headers --features planted
    planted headers
    echo "== fuzz targets"
    build green "${bins[@]}"
    for name in $targets; do beside fuzz green "$name"; done
    wait
fi

failed=$(grep -c '^  FAIL' "$results" || true)
echo "$(grep -c '^  ok' "$results" || true) passed, $failed failed"
[ "$failed" -eq 0 ]
