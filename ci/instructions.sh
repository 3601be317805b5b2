#!/usr/bin/env bash
# Counts the instructions per packet of chains in one thread (valgrind) and compares with the
# committed numbers: they may not grow unnoticed. Counts do not depend on the machine's mood, so a
# difference is a difference of the code (or of the compiler: then commit the new numbers).
# Usage: ci/instructions.sh [--update]
set -euo pipefail
cd "$(dirname "$0")/.."
numbers=ci/instructions.txt
target=${CARGO_TARGET_DIR:-target}
# Not the release build: that takes minutes for what no packet passes (Cargo.toml says which is which).
cargo build --profile counted --quiet --locked -p weir
count() { # length packets flag
  # shellcheck disable=SC2086
  valgrind --tool=callgrind --callgrind-out-file=/dev/null "$target/counted/weir" bench instructions \
    --length "$1" --packets "$2" $3 2>&1 >/dev/null | sed -n 's/.*Collected : //p'
}
measured=""
for kind in fused isolated; do
  flag=""
  if [ "$kind" = isolated ]; then flag=--isolated; fi
  for n in 1 8; do
    few=$(count "$n" 20000 "$flag")
    many=$(count "$n" 40000 "$flag")
    measured+="$kind $n $(((many - few) / 20000))"$'\n'
  done
done
printf 'instructions per packet, generator to sink (chain, length, count):\n%s' "$measured"
if [ "${1:-}" = --update ]; then
  printf '%s' "$measured" >"$numbers"
  echo "written to $numbers"
  exit 0
fi
failed=0
while read -r kind n committed; do
  now=$(awk -v k="$kind" -v n="$n" '$1 == k && $2 == n { print $3 }' <<<"$measured")
  # Two in a hundred: hash seeds and alignment move the count a little.
  if [ "$now" -gt $((committed * 102 / 100)) ]; then
    echo "FAILED: $kind n=$n takes $now instructions per packet, $committed are committed in $numbers"
    failed=$((failed + 1))
  elif [ "$now" -lt $((committed * 95 / 100)) ]; then
    echo "note: $kind n=$n has become better ($committed -> $now): run ci/instructions.sh --update"
  fi
done <"$numbers"
echo "$((4 - failed)) passed, $failed failed"
[ "$failed" -eq 0 ]
