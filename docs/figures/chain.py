#!/usr/bin/env python3
"""Draws chain.svg from what `weir bench chain --json FILE` wrote: the median of each length and kind,
with a line from the least to the largest, of samples in the fast regime (round trip up to 130 ns).
Usage: docs/figures/chain.py FILE > docs/figures/chain.svg"""
import json
import statistics
import sys

FAST = 130
samples = json.load(open(sys.argv[1]))["samples"]
fast = [s for s in samples if max(s["round_trip_ns"]) <= FAST]
lengths = sorted({s["length"] for s in samples})
top = 20 * (1 + int(max(s["mpps"] for s in fast) // 20))
left, right, base, head = 56, 630, 280, 30
y = lambda mpps: base - (base - head) * mpps / top
out = [
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 326" font-family="sans-serif" font-size="12" '
    'role="img" aria-label="Throughput of MacSwap chains, isolated and fused">',
    "<style>.t{fill:#333}.g{stroke:#ccc}.f{fill:#3b76b8}.i{fill:#d9822b}.e{stroke:#333}"
    "@media(prefers-color-scheme:dark){.t{fill:#ddd}.g{stroke:#555}.e{stroke:#ddd}}</style>",
]
for mpps in range(0, top + 1, 20):
    out.append(f'<line class="g" x1="{left}" x2="{right}" y1="{y(mpps):.1f}" y2="{y(mpps):.1f}"/>'
               f'<text class="t" x="{left - 8}" y="{y(mpps) + 4:.1f}" text-anchor="end">{mpps}</text>')
step = (right - left) / len(lengths)
for k, length in enumerate(lengths):
    middle = left + step * (k + 0.5)
    for kind, isolated, shift in (("i", True, -39), ("f", False, 3)):
        mpps = [s["mpps"] for s in fast if s["length"] == length and s["isolated"] == isolated]
        if not mpps:
            continue
        median, x = statistics.median(mpps), middle + shift
        out.append(f'<rect class="{kind}" x="{x:.1f}" y="{y(median):.1f}" width="36" height="{base - y(median):.1f}"/>'
                   f'<line class="e" x1="{x + 18:.1f}" x2="{x + 18:.1f}" y1="{y(min(mpps)):.1f}" y2="{y(max(mpps)):.1f}"/>'
                   f'<text class="t" x="{x + 18:.1f}" y="{y(max(mpps)) - 5:.1f}" text-anchor="middle" font-size="11">{median:.0f}</text>')
    out.append(f'<text class="t" x="{middle:.1f}" y="{base + 18}" text-anchor="middle">n = {length}</text>')
out.append(f'<text class="t" x="{(left + right) / 2:.0f}" y="{base + 37}" text-anchor="middle" font-size="11">'
           'n MacSwaps on one core, 64-byte packets; medians in the fast regime, lines: least to most</text>')
out.append(f'<text class="t" x="{left - 8}" y="16" text-anchor="end">Mpps</text>'
           f'<rect class="i" x="{left + 20}" y="6" width="12" height="12"/><text class="t" x="{left + 38}" y="16">isolated, a process each</text>'
           f'<rect class="f" x="{left + 200}" y="6" width="12" height="12"/><text class="t" x="{left + 218}" y="16">fused, one process</text></svg>')
print("\n".join(out))
