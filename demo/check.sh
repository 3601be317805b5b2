#!/usr/bin/env bash
# Checks a recorded capture against its list of requests, and prints a summary. Needs tshark.
#
# usage: check.sh CAPTURE REQUESTS_TSV
set -euo pipefail
[ $# -eq 2 ] || { sed -n '2,4s/^# \{0,1\}//p' "$0" >&2; exit 2; }
capture=$1 requests=$2
failed=0
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# tshark says who it runs as on its error output; its real errors still end this script.
shark() { tshark -r "$capture" "$@" 2>"$scratch/errors" || { cat "$scratch/errors" >&2; exit 1; }; }
verified=(-o ip.check_checksum:TRUE -o tcp.check_checksum:TRUE -o udp.check_checksum:TRUE)
count() { shark "${verified[@]}" -Y "$1" | wc -l; }
expect() { # expect WHAT GOT WANTED
    if [ "$2" = "$3" ]; then echo "ok    $1: $2"; else echo "WRONG $1: $2, wanted $3"; failed=1; fi
}
rows() { awk -F'\t' -v column="$1" -v value="$2" 'NR > 1 && $column == value' "$requests" | wc -l; }

echo "== Capture"
capinfos -M -c -s -d -u -l -t -E "$capture"
shark -q -z io,phs | sed -n '/eth/,$p' | grep -v '^=*$'
echo "== Requests"
awk -F'\t' 'NR > 1 { n[$4 " in " $5 ", " $6]++ } END { for (k in n) printf "%5d %s\n", n[k], k }' "$requests" | sort -k2

echo "== Checks"
# 0 = bad, 1 = good (Wireshark's proto_checksum_vals). Linux writes a TCP checksum of 0 as 0xffff, which
# verifies as well; Wireshark calls it bad, but tells it apart as tcp.checksum.ffff.
expect "packets with a bad IP, TCP, UDP or ICMP checksum" "$(count 'ip.checksum.status == 0 ||
    (tcp.checksum.status == 0 && !tcp.checksum.ffff) ||
    udp.checksum.status == 0 || icmp.checksum.status == 0 || icmpv6.checksum.status == 0')" 0
expect "TCP segments with a good checksum, of all" "$(count 'tcp.checksum.status == 1 || tcp.checksum.ffff')" "$(count 'tcp && !icmp')"
expect "frames longer than the MTU (1500 + 14 Ethernet + 4 for a VLAN tag)" "$(count '(frame.len > 1514 && !vlan) || frame.len > 1518')" 0
expect "frames cut by the snap length" "$(count 'frame.cap_len < frame.len')" 0
expect "TCP retransmissions and gaps" "$(count 'tcp.analysis.retransmission || tcp.analysis.lost_segment')" 0

# Pipelined requests share a packet: tshark puts '|' between them.
shark -o 'uat:custom_http_header_fields:"X-Weir-Id","request"' -Y http.request -T fields -E separator=/t -E 'aggregator=|' \
    -e http.header.X-Weir-Id -e http.request.method -e http.request.uri |
    awk -F'\t' '{ n = split($1, id, "|"); split($2, method, "|"); split($3, url, "|")
        for (i = 1; i <= n; i++) print id[i] "\t" method[i] "\t" url[i] }' | sort -n >"$scratch/seen"
# To tshark a URL ends at its first space.
tail -n +2 "$requests" | cut -f 1-3 | sed 's/ .*//' | sort -n >"$scratch/wanted"
expect "HTTP requests in the capture" "$(wc -l <"$scratch/seen")" "$(wc -l <"$scratch/wanted")"
expect "requests whose id, method or URL differs" "$({ diff "$scratch/seen" "$scratch/wanted" || true; } | grep -c '^[<>]' || true)" 0
expect "packets that begin a request but do not hold its whole URL" \
    "$(count 'tcp.payload[0:5] == "GET /" && !(tcp.payload contains " HTTP/1.")')" "$(rows 6 cut-url)"
expect "requests that took more than one segment" "$(count 'http.request && tcp.segments')" \
    "$(($(rows 6 cut-url) + $(rows 6 cut-header) + $(rows 6 cut-body) + $(rows 6 body-apart)))"
[ $failed -eq 0 ]
