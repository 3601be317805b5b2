#!/usr/bin/env bash
# All tests, each part to its end whatever the others do, and a summary. Whole logs are in target/test.
#
# usage: ci/test.sh [PART...]    parts: tests proofs fuzz instructions; all without any
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
. ci/setup.sh
# What is built once needs no notes for the next time: they are as large as what is built.
export CARGO_INCREMENTAL=0
needs rust linker libpcap cxx valgrind live

logs=target/test
mkdir -p "$logs"
rm -f "$logs"/*.log
results=()
failed=0

# part NAME WHAT COMMAND...: runs it; the terminal gets the log's headlines.
part() {
    local what=$2 log=$logs/$1.log start=$SECONDS status took
    shift 2
    say "$what ($*)"
    # Warnings and headlines of cargo and of our own scripts.
    local headlines='^ *(Compiling weir|Running|Doc-tests|ok |FAIL)|^(==|error|warning: unused)'
    headlines+='|^test result|FAILED|panicked at|^skipped:'
    "$@" </dev/null 2>&1 | tee "$log" | grep --line-buffered -E "$headlines" | cut -c1-200
    status=${PIPESTATUS[0]}
    took=$((SECONDS - start))
    if [ "$status" = 0 ]; then
        results+=("ok      $what: $(outcome "$log"), $took s")
    else
        echo "-- the end of $log:"
        tail -n 60 "$log"
        results+=("FAILED  $what: exit code $status after $took s; see $log")
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

# One build for all: `faults` lets tests kill workers at named steps of the protocol, `attacks` lets
# them turn one hostile; both change nothing unless a test asks; a second build without it would take as long again.
# --show-output: what a test skipped is said by passing tests too.
wanted tests && part tests "Workspace tests" \
    cargo test --locked --workspace --features weir/faults,weir/attacks --no-fail-fast -- --show-output
wanted proofs && part proofs "Proofs of the memory protocol" ci/mem-proofs.sh
wanted fuzz && part fuzz "Short fuzz run" ci/fuzz.sh
wanted instructions && part instructions "Instructions per packet" ci/instructions.sh

echo
say "Summary"
printf '   %s\n' "${results[@]}"
skipped=$(grep -h '^skipped:' "$logs"/*.log | sort | uniq -c)
[ -z "$skipped" ] || printf '   %s\n' "Skipped (times, what):" "$skipped"
if [ $failed = 0 ]; then echo "   All passed."; else echo "   Something FAILED."; fi
exit $failed
