#!/usr/bin/env bash
# The demo: Edge Firewall -> Monitor -> Application Firewall on recorded HTTP traffic, every µNF a
# process of its own. Needs no privileges.
#
# usage: demo/demo.sh [WEIR]     WEIR: the program; built by `make demo`
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
weir=${1:-target/release/weir}
out=target/demo
mkdir -p "$out"

command=("$weir" run demo/chain.weir --isolate each
    --bind "0=pcap:rx=demo/http.pcap" --bind "1=pcap:tx=$out/passed.pcap")
echo "== Running the chain (demo/chain.weir), every µNF in a process of its own"
echo "   ${command[*]}"
"${command[@]}" >"$out/report.txt"

# A line `NAME: {...}` is what a µNF has to say itself, as JSON; all other lines are the tables.
echo
grep -v '^[^ ]*: [{[]' "$out/report.txt"

# What a µNF has to say, taken apart for awk: a line `key`, `text`, `number` or `end` (of an object or
# array), a tab, and the value. No JSON tool is needed this way.
tokens() { # tokens NF
    sed -n "s/^$1: //p" "$out/report.txt" | awk '{
        while (match($0, /"([^"\\]|\\.)*"|[0-9]+|[]}]/)) {
            token = substr($0, RSTART, RLENGTH)
            $0 = substr($0, RSTART + RLENGTH)
            if (token ~ /^"/) {
                token = substr(token, 2, length(token) - 2)
                gsub(/\\"/, "\"", token)
                gsub(/\\\\/, "\\", token)
                if ($0 ~ /^:/) { print "key\t" token; continue }
                print "text\t" token
            } else if (token ~ /^[0-9]/) print "number\t" token
            else print "end\t" token
        }
    }'
}

echo
echo "== The Monitor's most asked URLs (CountUrl)"
tokens mon_urls | awk -F'\t' '
    $1 == "key" { on = $2 == "urls" }
    on && $1 == "text" { url = $2 }
    on && $1 == "number" && ++n <= 5 { printf "   %4d  %s\n", $2, url }'

echo
echo "== Requests that the Application Firewall blocked (ValidateUrl)"
printf '   %-12s  %-23s  %-6s  %-11s  %-11s  %s\n' 'time (UTC)' source method where fingerprint URL
tokens app_urls | awk -F'\t' '
    $1 == "key" { key = $2; if (key == "blocked") on = 1; next }
    $1 == "end" && $2 == "]" { on = 0 }
    on && ($1 == "text" || $1 == "number") { is[key] = $2 }
    on && $1 == "end" && $2 == "}" {
        # Nanoseconds since 1970: more digits than awk reckons with, so by halves.
        s = substr(is["time_ns"], 1, length(is["time_ns"]) - 9) % 86400
        ms = substr(is["time_ns"], length(is["time_ns"]) - 8, 3)
        time = sprintf("%02d:%02d:%02d.%s", s / 3600, s % 3600 / 60, s % 60, ms)
        url = length(is["url"]) > 80 ? substr(is["url"], 1, 79) "..." : is["url"]
        printf "   %-12s  %-23s  %-6s  %-11s  %-11s  %s\n", time, is["src"], is["method"],
            is["where"], is["fingerprint"], url
        n++
    }
    on == 0 && $1 == "number" && key != "time_ns" { count[key] = $2 }
    END {
        printf "   %d of %d requests; %d more were cut by a segment\x27s end and not judged.\n", n,
            count["requests"], count["unjudged"]
        exit n == 0
    }'

echo
echo "== What passed is in $out/passed.pcap. To look into it:"
echo "   tshark -r $out/passed.pcap -Y http.request     (or: wireshark $out/passed.pcap)"
echo "   The whole report of this run: $out/report.txt"
