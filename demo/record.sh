#!/usr/bin/env bash
# Records the demo's HTTP capture: http.pcap, and requests.tsv with what is in it.
#
# usage: sudo demo/record.sh [OUTPUT_DIRECTORY]        (default: the script's own folder)
#
# A real nginx and real clients talk over a veth pair between two network namespaces;
# tcpdump listens on the client's end. No packet leaves the namespaces. Needs root, and
# a Debian-like system: missing packages are installed by apt-get.
# The output is replaced only when the new capture passes check.sh.
set -euo pipefail
usage() { sed -n '2,9s/^# \{0,1\}//p' "$0"; }
case ${1-} in -h | --help) usage; exit 0 ;; esac
[ $# -le 1 ] || { usage >&2; exit 2; }
[ "$(id -u)" -eq 0 ] || { echo "record.sh: needs root (network namespaces, packet capture): run it with sudo" >&2; exit 1; }
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$here}
[ -d "$out" ] || { echo "record.sh: no such folder: $out" >&2; exit 2; }

client=weir-demo-client-$$ server=weir-demo-server-$$
dir=$(mktemp -d) no_services=

clean_up() {
    status=$?
    trap '' INT TERM
    local ns pids
    for ns in $client $server; do
        if [ -e "/run/netns/$ns" ]; then
            # Everything that runs inside was started here.
            pids=$(ip netns pids "$ns")
            # shellcheck disable=SC2086 # a list of numbers
            if [ -n "$pids" ]; then kill $pids 2>/dev/null || true; fi
            ip netns del "$ns"
        fi
    done
    wait
    if [ -n "$no_services" ]; then rm -f "$no_services"; fi
    if [ $status -ne 0 ]; then
        echo "record.sh: failed; logs:" >&2
        tail -n 5 "$dir"/*.log >&2 || true
    fi
    rm -rf "$dir"
    exit $status
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

install_missing() {
    local tool missing=()
    for tool in nginx:nginx-light tcpdump:tcpdump tshark:tshark curl:curl ip:iproute2 ethtool:ethtool \
        ncat:ncat ping:iputils-ping python3:python3; do
        command -v "${tool%:*}" >/dev/null || missing+=("${tool#*:}")
    done
    if [ ${#missing[@]} -eq 0 ]; then return; fi
    echo "record.sh: installing ${missing[*]}"
    # Debian starts a server as it installs it; policy-rc.d is the way to say no.
    if [ ! -e /usr/sbin/policy-rc.d ]; then
        no_services=/usr/sbin/policy-rc.d
        printf '#!/bin/sh\nexit 101\n' >$no_services
        chmod +x $no_services
    fi
    DEBIAN_FRONTEND=noninteractive apt-get -qq update
    DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends "${missing[@]}"
}

in_client() { ip netns exec "$client" "$@"; }
in_server() { ip netns exec "$server" "$@"; }

# wait_for WHAT COMMAND...: until the command succeeds, at most 5 s.
wait_for() {
    local what=$1
    shift
    for _ in {1..100}; do
        if "$@" >/dev/null 2>&1; then return; fi
        sleep 0.05
    done
    echo "record.sh: waited in vain for $what" >&2
    return 1
}

# Segmentation and checksums belong to the sender here: the capture must show what a wire would.
no_offloads() { ip netns exec "$1" ethtool -K "$2" gro off gso off tso off tx off rx off >>"$dir/ethtool.log"; }

make_network() {
    ip netns add $client
    ip netns add $server
    ip link add c0 netns $client address 02:00:00:00:00:01 type veth peer name s0 netns $server address 02:00:00:00:00:02
    no_offloads $client c0
    no_offloads $server s0
    local ns
    for ns in $client $server; do ip -n "$ns" link set lo up; done
    ip -n $client link set c0 up
    ip -n $server link set s0 up
}

# add_vlan NAMESPACE TRUNK NAME MTU TAGS: an interface NAME whose frames are tagged on TRUNK.
add_vlan() {
    local ns=$1 trunk=$2 name=$3 mtu=$4 tags=$5
    ip -n "$ns" link add "$name" mtu "$mtu" type veth peer name "${name}p" mtu "$mtu"
    ip -n "$ns" link set "$name" address "$(ip netns exec "$ns" cat "/sys/class/net/$trunk/address")"
    ip netns exec "$ns" sh -c "echo 1 >/proc/sys/net/ipv6/conf/${name}p/disable_ipv6"
    no_offloads "$ns" "$name"
    no_offloads "$ns" "${name}p"
    ip -n "$ns" link set "${name}p" up
    ip -n "$ns" link set "$name" up
    ip netns exec "$ns" python3 "$here/vlan_tag.py" "$trunk" "${name}p" "$tags" 2>>"$dir/vlan.log" &
}

# add_addresses NAMESPACE INTERFACE ADDRESS...
add_addresses() {
    local ns=$1 interface=$2 address
    shift 2
    for address in "$@"; do ip -n "$ns" addr add "$address" dev "$interface"; done
}

addresses_ready() { [ -z "$(ip -n $client -6 addr show tentative)$(ip -n $server -6 addr show tentative)" ]; }

start_servers() {
    mkdir "$dir/site"
    python3 "$here/make_content.py" "$dir/site"
    sed "s|@DIR@|$dir|" "$here/nginx.conf" >"$dir/nginx.conf"
    chmod -R a+rX "$dir" # nginx's worker is not root
    in_server nginx -e "$dir/nginx.log" -c "$dir/nginx.conf" &
    in_server python3 "$here/other_server.py" 2>>"$dir/other.log" &
    wait_for nginx in_server curl -s -o "$dir/ready" http://127.0.0.1/
    # It opens its TCP port last. The connection goes through the server's loopback, unrecorded.
    wait_for "the other server" in_server ncat -z 127.0.0.1 6379
}

start_capture() {
    in_client tcpdump -i c0 -s 0 -U -B 16384 -Z root -w "$dir/http.pcap" 2>"$dir/tcpdump.log" &
    wait_for tcpdump grep -q 'listening on' "$dir/tcpdump.log"
}

stop_capture() {
    sleep 1 # the last FINs
    local pid
    for pid in $(ip netns pids $client); do
        if [ "$(cat "/proc/$pid/comm")" = tcpdump ]; then kill -INT "$pid"; fi
    done
    wait_for "tcpdump's end" grep -q 'dropped by kernel' "$dir/tcpdump.log"
    grep -q '^0 packets dropped by kernel' "$dir/tcpdump.log"
}

install_missing
make_network
start_capture
add_vlan $client c0 c7 1500 8100:7
add_vlan $server s0 s7 1500 8100:7
# Two tags must fit into what veth carries, so a smaller MTU inside.
add_vlan $client c0 c8 1492 88a8:100,8100:8
add_vlan $server s0 s8 1492 88a8:100,8100:8
add_addresses $client c0 192.0.2.10/24 192.0.2.11/24 192.0.2.12/24 192.0.2.66/24 fd00::10/64 fd00::66/64
add_addresses $server s0 192.0.2.2/24 fd00::2/64
add_addresses $client c7 198.51.100.10/24 fd00:0:0:7::10/64
add_addresses $server s7 198.51.100.2/24 fd00:0:0:7::2/64
add_addresses $client c8 203.0.113.10/24
add_addresses $server s8 203.0.113.2/24
wait_for "duplicate address detection" addresses_ready
start_servers
echo "record.sh: recording"
in_client "$here/clients.sh" "$dir/requests.tsv" "$dir" >"$dir/clients.log"
stop_capture
"$here/check.sh" "$dir/http.pcap" "$dir/requests.tsv"
install -m 644 "$dir/http.pcap" "$dir/requests.tsv" "$out/"
chown --reference="$out" "$out/http.pcap" "$out/requests.tsv" # not root's, under sudo
echo "record.sh: wrote $out/http.pcap and $out/requests.tsv"
