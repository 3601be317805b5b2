#!/usr/bin/env bash
# The demo's clients. record.sh runs this inside the client's network namespace.
#
# usage: clients.sh REQUESTS_TSV WORK_DIRECTORY
#
# Each HTTP request carries "X-Weir-Id: N" and has one line in REQUESTS_TSV, written
# before it is sent: what the capture must hold and what a firewall should say to it.
set -euo pipefail
[ $# -eq 2 ] || { sed -n '2,7s/^# \{0,1\}//p' "$0" >&2; exit 2; }
requests=$1 work=$2
here=$(cd "$(dirname "$0")" && pwd)
RANDOM=1 # the same choices on every recording

declare -A server=([v4]=192.0.2.2 [v6]=fd00::2 [vlan]=198.51.100.2 [vlan6]=fd00:0:0:7::2 [qinq]=203.0.113.2)
id=0
curl_args=() # requests waiting for `send`: one curl, so one connection per host and port
who='' client=() # the current client and its options

printf 'id\tmethod\turl\tclass\twhere\tlayout\thost\n' >"$requests"

# note METHOD TARGET CLASS WHERE LAYOUT HOST: takes the next id and writes the request's line.
note() {
    id=$((id + 1))
    printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$id" "$@" >>"$requests"
}

# ask CLASS WHERE LAYOUT METHOD NET:PORT TARGET [CURL OPTION...]: adds a request to the next `send`.
ask() {
    local class=$1 where=$2 layout=$3 method=$4 net=${5%:*} port=${5#*:} target=$6
    shift 6
    local name=$net.weir.example host url
    host=$name:$port
    if [ "$port" = 80 ]; then host=$name; fi
    url=http://$host$target
    case $method in
    GET | POST) ;;
    HEAD) set -- --head "$@" ;;
    *) set -- --request "$method" "$@" ;;
    esac
    # Through a proxy the request line holds the absolute URL (RFC 9112, 3.2.2).
    case " $* " in *" --proxy "*) target=$url ;; esac
    note "$method" "$target" "$class" "$where" "$layout" "$host"
    if [ -n "${source_address[$net:$who]-}" ]; then set -- --interface "${source_address[$net:$who]}" "$@"; fi
    if [ ${#curl_args[@]} -gt 0 ]; then curl_args+=(--next); fi
    curl_args+=(--silent --globoff --path-as-is --output /dev/null --max-time 10
        --resolve "$name:$port:${server[$net]}" --header "X-Weir-Id: $id"
        "${client[@]}" "$@" --url "$url")
}

# send [CURL OPTION...]: sends what `ask` gathered; more than one at a time with --parallel.
send() {
    curl --no-progress-meter "$@" "${curl_args[@]}"
    curl_args=()
    sleep 0.02
}

# raw_request METHOD TARGET HOST HEADERS: prints a request as a hand-made client writes it.
raw_request() { printf '%s %s HTTP/1.1\r\nHost: %s\r\nX-Weir-Id: %s\r\n%b\r\n' "$1" "$2" "$3" "$id" "$4"; }

letters() { printf "%$1s" '' | tr ' ' "${2:-x}"; }

# be WHO: from now on requests come from this client.
be() {
    who=$1
    case $who in
    ben) client=(--user-agent ben/1 --compressed) ;;
    cleo) client=(--user-agent cleo/1 --http1.0) ;;
    *) client=(--user-agent "$who/1") ;;
    esac
}

# Where a client has an address of its own; elsewhere all share one.
declare -A source_address=([v4:anna]=192.0.2.10 [v4:ben]=192.0.2.11 [v4:cleo]=192.0.2.12
    [v4:mallory]=192.0.2.66 [v6:anna]=fd00::10 [v6:ben]=fd00::10 [v6:cleo]=fd00::10 [v6:mallory]=fd00::66)

# visit NET:PORT N: a browser-like visit of page N over one connection.
visit() {
    local at=$1 n=$2 word=${words[RANDOM % ${#words[@]}]}
    ask benign path whole GET "$at" /
    ask benign path whole GET "$at" /style.css
    ask benign path whole GET "$at" "/page/$((n % 12 + 1)).html"
    ask benign path whole GET "$at" "/img/$((n % 8 + 1)).png"
    ask benign path whole GET "$at" "/img/$(((n + 3) % 8 + 1)).png"
    ask benign query whole GET "$at" "/search?q=$word+${words[n % ${#words[@]}]}&page=$n"
}
words=(packet queue buffer ring worker filter chain monitor policy burst caf%C3%A9 %22two+words%22)

# The files are read line by line: WHERE METHOD TARGET [DATA], '|' between them.
mapfile -t attacks < <(grep -v '^#' "$here/attacks.txt")
mapfile -t lookalikes < <(grep -v '^#' "$here/lookalikes.txt")

# ask_line CLASS NET:PORT LINE: a request from one of the two lists.
ask_line() {
    local where method target data
    IFS='|' read -r where method target data <<<"$3"
    case $where in
    body) ask "$1" body whole "$method" "$2" "$target" --data-raw "$data" ;;
    json) ask "$1" body whole "$method" "$2" "$target" --header 'Content-Type: application/json' --data-raw "$data" ;;
    cookie) ask "$1" cookie whole "$method" "$2" "$target" --header "Cookie: $data" ;;
    *) ask "$1" "$where" whole "$method" "$2" "$target" ;;
    esac
}

visits() {
    local nets=(v4:80 v6:80 v4:8080 v6:8080 vlan:80 v4:80 qinq:80 vlan6:8080) who=(anna ben cleo)
    local n at next_attack=0 next_lookalike=0
    for n in {0..39}; do
        at=${nets[n % ${#nets[@]}]}
        be "${who[n % 3]}"
        visit "$at" "$n"
        if [ $((n % 2)) -eq 0 ] && [ $next_lookalike -lt ${#lookalikes[@]} ]; then
            ask_line lookalike "$at" "${lookalikes[next_lookalike]}"
            next_lookalike=$((next_lookalike + 1))
        fi
        # Half of the attacks share a connection with harmless requests, half have their own.
        if [ $((n % 2)) -eq 1 ] && [ $next_attack -lt ${#attacks[@]} ]; then
            ask_line sqli "$at" "${attacks[next_attack]}"
            next_attack=$((next_attack + 1))
        fi
        if [ $((n % 5)) -eq 4 ]; then send --parallel --parallel-immediate --parallel-max 4; else send; fi
        if [ $next_attack -lt ${#attacks[@]} ]; then
            be mallory
            ask_line sqli "$at" "${attacks[next_attack]}"
            next_attack=$((next_attack + 1))
            send
        fi
    done
    # A list that grew beyond the visits must not be cut silently.
    if [ $next_attack -lt ${#attacks[@]} ] || [ $next_lookalike -lt ${#lookalikes[@]} ]; then
        echo "clients.sh: too few visits for all attacks and look-alikes" >&2
        return 1
    fi
}

other_requests() {
    be anna
    ask benign path whole GET v4:80 /missing.html
    ask benign path whole GET v4:80 /old
    ask benign path whole HEAD v4:80 /long.html
    ask benign path whole GET v4:80 /long.html
    ask benign path whole GET v4:80 /long.html --compressed
    ask benign path whole GET v4:80 /img/8.png --range 1000-2999
    ask benign path whole GET v4:80 /page/3.html --header 'If-Modified-Since: Fri, 01 Jan 2038 00:00:00 GMT'
    ask benign path whole OPTIONS v4:80 /
    ask benign path whole DELETE v4:80 /page/3.html
    ask benign path whole GET v4:80 /page/./../page/4.html
    send
    ask benign path whole GET v4:80 /page/5.html --proxy http://192.0.2.2:80
    send
    ask benign body whole POST v6:80 /login --data-raw 'user=anna&password=correct+horse'
    ask benign body whole POST v6:80 /comment --data-urlencode 'text=A short & friendly comment.'
    ask benign body whole POST v6:80 /api/items --header 'Content-Type: application/json' --data-raw '{"name":"ring","size":64}'
    ask benign body cut-body POST v6:80 /comment --data-raw "text=$(letters 3000 a)"
    ask benign body body-apart POST v6:80 /comment --header 'Expect: 100-continue' --data-raw 'text=sent+when+asked+for'
    send
}

# Requests that end beyond their first segment (MSS 1448 with time stamps, 1428 on IPv6).
cut_requests() {
    be ben
    ask benign cookie cut-header GET v4:80 /page/1.html --header "Cookie: basket=$(letters 2200 b)"
    ask benign cookie cut-header GET v6:8080 /page/2.html --header "Cookie: basket=$(letters 4000 c)"
    ask benign query cut-url GET v4:80 "/search?q=$(letters 1600 d)"
    ask benign query cut-url GET v6:80 "/search?q=$(letters 3200 e)&page=2"
    send
    be mallory
    ask sqli query cut-header GET v4:80 "/product?id=7'+OR+1=1--+" --header "Cookie: basket=$(letters 2000 f)"
    ask sqli query cut-url GET v4:80 "/search?pad=$(letters 1500 g)&id=1'+OR+1=1--+"
    ask sqli query cut-url GET v4:8080 "/search?id=1'+OR+1=1--+&pad=$(letters 1500 h)"
    ask sqli body body-apart POST v4:80 /login --header 'Expect: 100-continue' --data-raw "user=admin'+OR+1=1--+&password=x"
    send

    # A client that writes half of its request line, then the rest.
    local target="/product?id=1'+UNION+SELECT+name,password+FROM+users--+" host=v4.weir.example
    note GET "$target" sqli query cut-url $host
    raw_request GET "$target" $host 'Connection: close\r\n' >"$work/raw"
    { head -c 25 "$work/raw"; sleep 0.1; tail -c +26 "$work/raw"; } | ncat -s 192.0.2.66 192.0.2.2 80 >"$work/answer"
}

# A request line with spaces inside the URL: not HTTP (RFC 9112, 3.2), answered by 400, but tools do send it.
raw_spaces() {
    local target="/product?id=1' OR 1=1 --" host=v4.weir.example
    note GET "$target" sqli query whole $host
    raw_request GET "$target" $host 'Connection: close\r\n' >"$work/raw"
    ncat -s 192.0.2.66 192.0.2.2 80 <"$work/raw" >"$work/answer"
}

# Several requests in one segment (RFC 9112, 9.3.2), which curl no longer does.
pipelined_requests() {
    local host=v4.weir.example
    note GET /page/1.html benign path whole $host; raw_request GET /page/1.html $host '' >"$work/raw"
    note GET /page/2.html benign path pipelined $host; raw_request GET /page/2.html $host '' >>"$work/raw"
    note GET /img/1.png benign path pipelined $host; raw_request GET /img/1.png $host 'Connection: close\r\n' >>"$work/raw"
    ncat -s 192.0.2.10 192.0.2.2 80 <"$work/raw" >"$work/answer"
    note GET /page/3.html benign path whole $host; raw_request GET /page/3.html $host '' >"$work/raw"
    note GET "/product?id=2'+OR+2=2--+" sqli query pipelined $host
    raw_request GET "/product?id=2'+OR+2=2--+" $host 'Connection: close\r\n' >>"$work/raw"
    ncat -s 192.0.2.66 192.0.2.2 80 <"$work/raw" >"$work/answer"
}

other_traffic() {
    ping -q -c 4 -i 0.1 192.0.2.2
    ping -q -c 4 -i 0.1 -I fd00::10 fd00::2
    ping -q -c 2 -i 0.1 -s 4000 192.0.2.2
    ping -q -c 2 -i 0.1 -s 4000 -I fd00::10 fd00::2
    ping -q -c 2 -i 0.1 198.51.100.2
    ping -q -c 2 -i 0.1 203.0.113.2
    # UDP to an echo server, one datagram larger than the MTU; then a DNS query nobody answers.
    # ncat leaves at the end of its input, so the input waits for the answer.
    local n
    for n in 1 2 3 4; do { printf 'datagram %s\n' "$n"; sleep 0.1; } | ncat -u 192.0.2.2 5300; done >"$work/answer"
    { letters 3000 u; sleep 0.1; } | ncat -u -s fd00::10 fd00::2 5300 >"$work/answer"
    { printf '\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x04weir\x07example\x00\x00\x01\x00\x01'; sleep 0.1; } |
        ncat -u 192.0.2.2 53 >"$work/answer" 2>&1 || true
    # Text over TCP that is not HTTP: on its own port, then on port 80 (answered by 400).
    { for n in PING 'SET ring 64' 'GET ring' QUIT; do printf '%s\r\n' "$n"; sleep 0.05; done; } | ncat 192.0.2.2 6379 >"$work/answer"
    printf 'HELO this is not HTTP\r\n\r\n' | ncat 192.0.2.2 80 >"$work/answer"
    # A scan of closed ports: SYN, RST.
    for n in 21 22 23 25 110 143 445 3306 5432; do ncat -z -w 1 -s 192.0.2.66 192.0.2.2 "$n" || true; done 2>"$work/answer"
}

other_traffic
visits
other_requests
cut_requests
raw_spaces
pipelined_requests
