#!/usr/bin/env bash
# The concurrency proofs of weir-mem and weir-port: loom models, the same models with mistakes made on purpose (they
# must turn red), and ThreadSanitizer. What they cover: docs/decisions/0004-proofs.md.
#
#   ci/mem-proofs.sh                          everything
#   LOOM_MAX_PREEMPTIONS=4 ci/mem-proofs.sh   a deeper search; each model has a default of 2 or 3
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

target=$(realpath -m "${CARGO_TARGET_DIR:-target/loom}")
host=$(rustc -vV | sed -n 's/^host: //p')
outputs=$target/proofs
rm -rf "$outputs"
mkdir -p "$outputs"
unset WEIR_BROKEN

# A line of its own in $outputs/results for each proof: they run side by side.
pass() {
    echo "  ok    $*" | tee -a "$outputs/results"
}
# With the end of what it said, which is in the file $out.
fail() {
    {
        echo "  FAIL  $*"
        tail -n 40 "$out" | cut -c1-240 | sed 's/^/        | /'
    } | tee -a "$outputs/results"
}

# A proof in the background, as soon as there are fewer than the machine has processors. A model is a search in one thread.
beside() {
    while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do wait -n; done
    "$@" &
}

# Models run optimised (they are searches) but with overflow checked. What takes the time is loom and weir-mem: to optimise
# anything else would only take longer.
export CARGO_PROFILE_RELEASE_LTO=off
export CARGO_PROFILE_RELEASE_DEBUG=false
export CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS=true
unoptimised=()
for package in weir-packet weir-port '"*"'; do
    unoptimised+=(--config "profile.release.package.$package.opt-level=0")
done
optimised=()
for package in loom generator; do
    optimised+=(--config "profile.release.package.$package.opt-level=3")
done

# The path of a test binary of a crate, from cargo's messages.
binary() {
    cargo test --locked -p "$@" --release --no-run --message-format=json |
        sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -n 1
}

loom_binary() {
    CARGO_TARGET_DIR=$target RUSTFLAGS="--cfg loom" binary "$@" --lib "${unoptimised[@]}" "${optimised[@]}"
}

# Runs one test; its output is in $out. (The shell's own word on an abort, which is how loom ends a
# deadlock, goes nowhere.)
run() {
    timeout 900 "$1" --exact "$2" --test-threads 1 --nocapture >"$out" 2>&1
} 2>/dev/null

# A binary and one of its models.
holds() {
    local out=$outputs/$2
    SECONDS=0
    if run "$1" "$2" && grep -q '^test result: ok. 1 passed' "$out"; then
        pass "$2 ($SECONDS s)"
    else
        fail "$2"
    fi
}

green() {
    local models names name out=$outputs/list
    echo "== loom models of $1: green"
    models=$(loom_binary "$1")
    "$models" --list >"$out"
    names=$(sed -n 's/^\(models::.*\): test$/\1/p' "$out")
    [ -n "$names" ] || fail "no models found in $models"
    for name in $names; do
        beside holds "$models" "$name"
    done
    wait
}
green weir-mem
green weir-port

# A binary, a mistake, what loom or the model's assertion says, a model.
found() {
    local out=$outputs/$2.$4
    if WEIR_BROKEN=$2 run "$1" "models::$4"; then
        fail "$4 stays green under WEIR_BROKEN=$2"
    elif grep -q "$3" "$out"; then
        pass "$4: $(grep -m 1 "$3" "$out" | cut -c1-100)"
    else
        fail "$4 fails under WEIR_BROKEN=$2, but not by '$3'"
    fi
}

# A mistake, what is said of it, models: of the crate whose broken build is $broken.
red() {
    local mistake=$1 reason=$2 name
    shift 2
    wait
    echo "== WEIR_BROKEN=$mistake: red"
    for name in "$@"; do
        beside found "$broken" "$mistake" "$reason" "$name"
    done
}

# Without a mistake this build is green, too: red comes of the mistakes, not of how it is built.
broken=$(loom_binary weir-mem --features broken)
holds "$broken" models::ring::entries_in_bulk_arrive_once_and_in_order

red publish 'Causality violation: Concurrent read and write' \
    ring::entries_one_by_one_arrive_once_and_in_order \
    ring::entries_in_bulk_arrive_once_and_in_order \
    ring::entries_staged_in_bulk_and_claimed_one_by_one_arrive_once_and_in_order \
    ring::a_claim_gives_the_packets_before_the_next_marker \
    mail::letters_come_whole_and_in_order
red claim 'Causality violation: Concurrent read and write' \
    ring::entries_one_by_one_arrive_once_and_in_order \
    ring::entries_in_bulk_arrive_once_and_in_order \
    ring::entries_staged_in_bulk_and_claimed_one_by_one_arrive_once_and_in_order \
    mail::letters_come_whole_and_in_order
red claim 'leaked or doubled' \
    sweep::a_worker_killed_at_any_step_of_a_full_batch_leaks_and_doubles_nothing \
    sweep::a_worker_killed_at_any_step_while_its_upstream_goes_on_leaks_and_doubles_nothing \
    sweep::a_buffer_that_comes_round_again_during_the_sweep_is_not_freed
red claim 'judged unsound' \
    ring::the_agent_never_finds_fault_with_two_ends_that_are_sound
red watermark 'emitted out of sequence' \
    watermark::alternating_packets_are_merged_in_sequence \
    watermark::a_drop_moves_the_watermark_and_lets_the_other_ring_go_on
red watermark 'promised more than was said' \
    ends::a_source_has_come_as_far_as_any_promise_that_is_seen
red sweep 'leaked or doubled' \
    sweep::a_worker_killed_at_any_step_of_a_full_batch_leaks_and_doubles_nothing \
    sweep::a_worker_killed_at_any_step_while_its_upstream_goes_on_leaks_and_doubles_nothing \
    sweep::a_buffer_that_comes_round_again_during_the_sweep_is_not_freed
red doorbell 'lost wake-up' \
    doorbell::a_publication_is_seen_or_rings_the_bell \
    doorbell::a_watermark_is_seen_or_rings_the_bell \
    doorbell::what_the_agent_rolls_forward_is_seen_or_rings_the_bell \
    doorbell::a_claim_is_seen_or_wakes_the_producer
red doorbell 'deadlock; threads' \
    doorbell::two_sides_that_sleep_whenever_they_can_finish
red ledger 'torn copy' \
    ledger::a_live_reader_gets_one_commit_and_never_an_older_one_than_before \
    ledger::a_writer_that_dies_before_the_generation_leaves_the_commit_before
red state 'torn state' \
    state::a_live_reader_gets_one_write_and_never_an_older_one_than_before \
    state::a_writer_that_dies_before_the_generation_leaves_the_state_before
red replica 'taken back' \
    replica::a_writer_that_dies_at_any_step_leaves_exactly_what_was_committed
red origins 'a learned flow is not found' \
    origins::two_flows_learned_at_once_are_both_found_afterwards
wait
broken=$(loom_binary weir-port --features broken)
holds "$broken" models::stage::no_packet_goes_on_before_each_branch_has_looked_and_answered
red sync 'answered otherwise\|Causality violation: Concurrent read and write' \
    stage::no_packet_goes_on_before_each_branch_has_looked_and_answered \
    stage::a_branch_killed_at_any_step_loses_what_it_had_claimed_and_not_answered_and_holds_up_nothing \
    stage::the_sync_port_killed_at_any_step_drops_and_counts_and_passes_on_nothing_twice \
    stage::who_gives_killed_at_any_step_has_given_all_lanes_alike_or_nothing
red answer 'answered otherwise' \
    stage::a_branch_killed_at_any_step_loses_what_it_had_claimed_and_not_answered_and_holds_up_nothing \
    stage::what_a_branch_that_never_drops_has_lost_passes_it
red stale 'answered otherwise' \
    stage::the_sync_port_killed_at_any_step_drops_and_counts_and_passes_on_nothing_twice
red sleep 'lost wake-up' \
    stage::the_last_answer_is_seen_or_rings_the_bell
red pool 'a buffer leaked or doubled' \
    pool::a_pool_whose_worker_dies_while_it_collects_leaks_and_doubles_nothing
wait

# The sanitizer is in the stable toolchain, its flag is not: RUSTC_BOOTSTRAP lets it through. The
# standard library comes without instrumentation, so the ABI check has to be told that this is meant.
tsan_binary() {
    # With lines: its word on a race names them.
    CARGO_TARGET_DIR=$target/tsan RUSTC_BOOTSTRAP=1 CARGO_PROFILE_RELEASE_DEBUG=line-tables-only \
        RUSTFLAGS="-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer" \
        binary weir-mem --target "$host" "$@" --config 'profile.release.package."*".opt-level=0'
}
# The test harness reports results through a channel of the uninstrumented standard library, whose
# orderings the sanitizer cannot see. Nothing of weir-mem goes through it.
echo 'race:test::event::CompletedTest' >"$outputs/tsan.supp"
export TSAN_OPTIONS="suppressions=$outputs/tsan.supp"
one_mapping=threads::a_chain_of_three_over_one_mapping_delivers_every_packet_once_and_in_order

echo "== ThreadSanitizer: green"
holds "$(tsan_binary --lib)" "$one_mapping"
threads=$(tsan_binary --test ring_threads)
out=$outputs/ring_threads
if timeout 900 "$threads" --test-threads 1 >"$out" 2>&1; then
    pass "ring_threads"
else
    fail "ring_threads"
fi
broken=$(tsan_binary --lib --features broken)
for mistake in publish claim; do
    echo "== ThreadSanitizer, WEIR_BROKEN=$mistake: red"
    out=$outputs/$mistake.$one_mapping
    if WEIR_BROKEN=$mistake run "$broken" "$one_mapping"; then
        fail "$one_mapping stays green under WEIR_BROKEN=$mistake"
    elif grep -q 'WARNING: ThreadSanitizer: data race' "$out" && grep -q 'weir-mem/src/sync.rs' "$out"; then
        pass "$one_mapping: data race on a ring slot"
    else
        fail "$one_mapping fails under WEIR_BROKEN=$mistake, but not by a race on a slot"
    fi
done

passed=$(grep -c '^  ok ' "$outputs/results" || true)
failed=$(grep -c '^  FAIL ' "$outputs/results" || true)
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
