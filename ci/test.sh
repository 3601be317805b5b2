#!/usr/bin/env bash
# All tests, each part to its end whatever the others do, and a summary. Whole logs are in target/test.
#
# usage: ci/test.sh [PART...]    parts: tests proofs fuzz instructions; all without any
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
. ci/setup.sh
# What is built once needs no notes for the next time: they are as large as what is built.
export CARGO_INCREMENTAL=0
needs rust linker libpcap cxx valgrind live rivals

logs=target/test
mkdir -p "$logs"
rm -f "$logs"/*.log "$logs"/*.took
results=()
failed=0

# Warnings and headlines of cargo and of our own scripts.
headlines='^ *(Compiling weir|Running|Doc-tests|ok |FAIL)|^(==|error|warning: unused)'
headlines+='|^test result|FAILED|panicked at|^skipped:'

# part NAME WHAT COMMAND...: runs it; the terminal gets the log's headlines.
part() {
    local what=$2 log=$logs/$1.log start=$SECONDS
    shift 2
    say "$what ($*)"
    "$@" </dev/null 2>&1 | tee "$log" | grep --line-buffered -E "$headlines" | cut -c1-200
    ended "$what" "$log" "${PIPESTATUS[0]}" $((SECONDS - start))
}

# The same for several at a time: each runs in the background, and `await NAME WHAT` says how it went, its headlines at once.
declare -A started
begin() {
    local name=$1
    shift
    say "$name begins ($*)"
    (
        start=$SECONDS status=0
        "$@" </dev/null >"$logs/$name.log" 2>&1 || status=$?
        echo $((SECONDS - start)) >"$logs/$name.took"
        exit "$status"
    ) &
    started[$name]=$!
}
await() {
    local log=$logs/$1.log status
    [ -n "${started[$1]:-}" ] || return 0
    wait "${started[$1]}"
    status=$?
    say "$2"
    grep -E "$headlines" "$log" | cut -c1-200
    ended "$2" "$log" "$status" "$(cat "$logs/$1.took" 2>/dev/null || echo ?)"
}

# WHAT LOG STATUS SECONDS: keeps for the summary how it went.
ended() {
    if [ "$3" = 0 ]; then
        results+=("ok      $1: $(outcome "$2"), $4 s")
    else
        echo "-- the end of $2:"
        tail -n 60 "$2"
        results+=("FAILED  $1: exit code $3 after $4 s; see $2")
        failed=1
    fi
}

# One phrase on what a log says.
outcome() {
    local tests last
    tests=$(awk '/^test result:/ { p += $4; f += $6; i += $8; n++ }
        END { if (n) printf "%d passed, %d failed, %d ignored", p, f, i }' "$1")
    last=$(tail -n 1 "$1" | cut -c1-120)
    echo "${tests:-$last}"
}

wanted() {
    local part
    [ ${#parts[@]} = 0 ] && return
    for part in "${parts[@]}"; do [ "$part" = "$1" ] && return; done
    return 1
}
parts=("$@")

# What takes no times and has a build of its own runs beside the tests, which wait much, where it does not stand in their way: in the class that
# has what all others leave (SCHED_IDLE, which needs no privileges), one after the other. While the tests are built nothing would be left.
beside() { chrt --idle 0 flock "$logs/beside" "$@"; }

# One build for all: `faults` lets tests kill workers at named steps of the protocol, `attacks` lets
# them turn one hostile; both change nothing unless a test asks; a second build without it would take as long again.
# --show-output: what a test skipped is said by passing tests too.
features=weir/faults,weir/attacks
wanted tests && part build "Build of the workspace's tests" cargo test --locked --workspace --features $features --no-run
wanted proofs && begin proofs beside ci/mem-proofs.sh
wanted instructions && begin instructions beside ci/instructions.sh
wanted fuzz && wanted tests && begin fuzz-build beside ci/fuzz.sh --build
wanted tests && part tests "Workspace tests" \
    cargo test --locked --workspace --features $features --no-fail-fast -- --show-output
# Usually they have ended by now; in that class they would wait for all that follows.
await proofs "Proofs of the memory protocol"
await instructions "Instructions per packet"
await fuzz-build "Build of the fuzz targets"
wanted fuzz && part fuzz "Short fuzz run" ci/fuzz.sh

echo
say "Summary"
printf '   %s\n' "${results[@]}"
# Why tests failed, where nobody has to look for it in logs that may be gone.
[ $failed = 0 ] || grep -h -A 6 'panicked at' "$logs"/*.log | cut -c1-400 | head -n 80
skipped=$(grep -h '^skipped:' "$logs"/*.log | sort | uniq -c)
[ -z "$skipped" ] || printf '   %s\n' "Skipped (times, what):" "$skipped"
if [ $failed = 0 ]; then echo "   All passed."; else echo "   Something FAILED."; fi
exit $failed
