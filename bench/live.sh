#!/usr/bin/env bash
# A live chain beside the kernel's bridge: the same two veth pairs, the same client and server.
#
# usage: sudo bench/live.sh [WEIR]                       (default: target/release/weir)
#
#   SECONDS_EACH=10   length of each iperf3 run
#   DOWNLOADS=1000    curl downloads, each by a process and a connection of its own
#
# Weir runs the demo's chain (firewall, monitor, application firewall), each µNF a process. Everything
# happens in network namespaces that are removed afterwards. Besides speed it checks that every byte
# arrives and that neither end saw a wrong checksum; the exit code says so.
#
# "busy" is the processor time of the whole machine, other work on it included, and "weir" what Weir's
# processes had of it, both in cores. Packets of TCP are counted at full segments (1,448 bytes).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
case ${1-} in -h | --help) sed -n '2,14s/^# \{0,1\}//p' "$0"; exit 0 ;; esac
weir=$(realpath "${1:-target/release/weir}")
seconds=${SECONDS_EACH:-10} downloads=${DOWNLOADS:-1000}
[ "$(id -u)" = 0 ] || { echo "live.sh: needs root (network namespaces): run it with sudo" >&2; exit 1; }
[ -x "$weir" ] || { echo "live.sh: $weir is not there: make build" >&2; exit 1; }
for tool in ip nginx curl iperf3 python3; do
    command -v $tool >/dev/null || { echo "live.sh: $tool is missing: apt-get install iproute2 nginx-light curl iperf3 python3" >&2; exit 1; }
done

client=weir-bench-c-$$ middle=weir-bench-m-$$ server=weir-bench-s-$$
dir=$(mktemp -d) failed=0

clean_up() {
    status=$?
    trap '' INT TERM
    local ns pids
    for ns in $client $middle $server; do
        [ -e "/run/netns/$ns" ] || continue
        # Everything that runs inside was started here.
        pids=$(ip netns pids "$ns")
        # shellcheck disable=SC2086 # a list of numbers
        [ -z "$pids" ] || kill $pids 2>/dev/null || true
        ip netns del "$ns"
    done
    wait
    rm -rf "$dir"
    exit "$status"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

wait_for() {
    local what=$1
    shift
    for _ in {1..200}; do
        if "$@" >/dev/null 2>&1; then return; fi
        sleep 0.05
    done
    echo "live.sh: waited in vain for $what" >&2
    tail -n 5 "$dir"/*.log >&2 || true
    return 1
}
in_ns() { ip netns exec "$@"; }

make_network() {
    local ns
    for ns in $client $middle $server; do
        ip netns add "$ns"
        ip -n "$ns" link set lo up
    done
    ip link add c0 netns $client type veth peer name m0 netns $middle
    ip link add s0 netns $server type veth peer name m1 netns $middle
    ip -n $client link set c0 up
    ip -n $server link set s0 up
    ip -n $middle link set m0 up
    ip -n $middle link set m1 up
    ip -n $client addr add 192.0.2.1/24 dev c0
    ip -n $server addr add 192.0.2.2/24 dev s0
}

start_servers() {
    mkdir "$dir/site"
    head -c 262144 /dev/urandom >"$dir/site/page"
    cat >"$dir/nginx.conf" <<END
daemon off; master_process off; pid $dir/pid; error_log $dir/nginx.log;
events { }
http {
    access_log off; sendfile on;
    client_body_temp_path $dir/b; proxy_temp_path $dir/p;
    fastcgi_temp_path $dir/f; uwsgi_temp_path $dir/u; scgi_temp_path $dir/g;
    server { listen 80; root $dir/site; }
}
END
    in_ns $server nginx -e "$dir/nginx.log" -c "$dir/nginx.conf" &
    in_ns $server iperf3 -s -p 8080 >"$dir/iperf3.log" 2>&1 &
    wait_for nginx in_ns $server curl -sf -o /dev/null http://127.0.0.1/page
}

# Clock ticks that the machine's cores were busy.
busy() { awk '/^cpu / { print $2 + $3 + $4 + $7 + $8 + $9 }' /proc/stat; }
# Nanoseconds that Weir's agent and workers have had. (Workers are in a network namespace of their own.)
worked() {
    local pid sum=0 ns
    # shellcheck disable=SC2013 # a line of numbers
    for pid in ${weir_pid:-} $(cat "/proc/${weir_pid:-none}"/task/*/children); do
        read -r ns _ <"/proc/$pid/schedstat" && sum=$((sum + ns))
    done 2>/dev/null
    echo $sum
}

# json FILE EXPRESSION: over the report `r`.
json() { python3 -c "import json,sys; r=json.load(open(sys.argv[1])); print($2)" "$1"; }

# row WAY WHAT RATE MPPS
row() { printf '%-8s %-26s %14s %8s %6s %6s\n' "$@"; }

# measure WAY WHAT COMMAND...: runs it, leaves busy and weir cores in $cores_busy, $cores_weir, seconds in $took.
measure() {
    local b0 w0 b1 w1 t0 t1 ticks
    ticks=$(getconf CLK_TCK)
    b0=$(busy) w0=$(worked) t0=$(date +%s%N)
    "$@"
    b1=$(busy) w1=$(worked) t1=$(date +%s%N)
    read -r took cores_busy cores_weir < <(awk -v t=$((t1 - t0)) -v b=$((b1 - b0)) -v k="$ticks" -v w=$((w1 - w0)) \
        'BEGIN { printf "%.2f %.2f %.2f\n", t / 1e9, b / k * 1e9 / t, w / t }')
}

iperf() { in_ns $client iperf3 -c 192.0.2.2 -p 8080 -t "$seconds" -J "$@" >"$dir/iperf.json"; }

download_all() {
    local n
    for ((n = 0; n < downloads; n++)); do
        in_ns $client curl -sS --fail --max-time 30 -o "$dir/got" http://192.0.2.2/page && cmp -s "$dir/got" "$dir/site/page" ||
            { echo "live.sh: download $n did not arrive whole" >&2; failed=1; }
    done
}

run_all() {
    local way=$1 gbit mpps
    wait_for "the way to the server" in_ns $client ping -c 1 -W 1 192.0.2.2
    measure iperf
    gbit=$(json "$dir/iperf.json" "'%.2f Gbit/s' % (r['end']['sum_received']['bits_per_second'] / 1e9)")
    mpps=$(json "$dir/iperf.json" "'%.3f' % (r['end']['sum_received']['bits_per_second'] / 8 / 1448 / 1e6)")
    row "$way" "TCP to the server" "$gbit" "$mpps" "$cores_busy" "$cores_weir"
    measure iperf -R
    gbit=$(json "$dir/iperf.json" "'%.2f Gbit/s' % (r['end']['sum_received']['bits_per_second'] / 1e9)")
    mpps=$(json "$dir/iperf.json" "'%.3f' % (r['end']['sum_received']['bits_per_second'] / 8 / 1448 / 1e6)")
    row "$way" "TCP from the server" "$gbit" "$mpps" "$cores_busy" "$cores_weir"
    measure iperf -u -b 0 -l 18
    mpps=$(json "$dir/iperf.json" "'%.3f' % ((r['end']['sum']['packets'] - r['end']['sum']['lost_packets']) / r['end']['sum']['seconds'] / 1e6)")
    row "$way" "UDP, 60-byte frames" "$(json "$dir/iperf.json" "'%.1f %% lost' % r['end']['sum']['lost_percent']")" "$mpps" "$cores_busy" "$cores_weir"
    measure download_all
    row "$way" "$downloads downloads, 256 KiB" "$(awk -v n="$downloads" -v t="$took" 'BEGIN { printf "%.0f a second", n / t }')" - "$cores_busy" "$cores_weir"
}

make_network
start_servers
row way what rate Mpps busy weir

ip -n $middle link add br0 type bridge
ip -n $middle link set m0 master br0
ip -n $middle link set m1 master br0
ip -n $middle link set br0 up
run_all kernel
ip -n $middle link del br0

# The demo's chain, and iperf3's datagrams let through too.
sed 's|^  rules: \[|&\n    { action: "pass", proto: "udp", dst_port: 8080 },|' demo/chain.weir >"$dir/chain.weir"
echo 'pipelet answers { lan -> wan; }' >>"$dir/chain.weir"
ip netns exec $middle "$weir" run "$dir/chain.weir" --bind 0=afp:m0 --bind 1=afp:m1 --json -q >"$dir/report.json" 2>"$dir/weir.log" &
weir_pid=$!
run_all weir
kill -TERM $weir_pid
wait $weir_pid || { cat "$dir/weir.log" >&2; failed=1; }

echo
errors=0
for ns in $client $server; do
    # A line of names, then one of numbers; of IPv6 a name and a number in each line. TCP counts both versions of IP together.
    for n in $(in_ns "$ns" awk '/^(Tcp|Udp|Icmp):/ { if ($1 in at) print $at[$1]; else for (i = 2; i <= NF; i++) if ($i == "InCsumErrors") at[$1] = i }
            /^(Udp|Icmp)6InCsumErrors/ { print $2 }' /proc/net/snmp /proc/net/snmp6); do
        errors=$((errors + n))
    done
done
echo "wrong checksums seen by client and server: $errors"
[ $errors = 0 ] || failed=1
json "$dir/report.json" "'weir: in %d, out %d, dropped %d; %s' % (r['balance']['in'], r['balance']['out'], r['balance']['dropped'], 'sound' if r['sound'] else 'NOT SOUND')"
json "$dir/report.json" "'drops: ' + (', '.join('%s %s %d' % (n['name'], k, v) for n in r['nodes'] for k, v in n['drops'].items()) or 'none')"
exit $failed
