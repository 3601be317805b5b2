//! What hosts learn of a path on which Weir is a hop: `examples/router-hop.weir` between two veth pairs.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_crash::*;
use crate::common_live::*;
use rustix::process::Signal;
use serde_json::Value;
use std::time::Instant;

/// The operator's example, as it is.
const HOP: &str = include_str!("../../../../examples/router-hop.weir");
/// What the example answers from.
const WEIR: &str = "192.0.2.254";
const WEIR6: &str = "fd00::fe";
const CLIENT6: &str = "fd00::1";

fn end(run: Run) -> Finished {
    run.signal(Signal::INT);
    let finished = run.finish();
    finished.assert_sound("hop");
    finished
}

/// What a program says, whatever its exit code: ping fails when nobody answers.
fn said(ns: &Namespace, program: &str, args: &str) -> String {
    let args: Vec<_> = args.split_whitespace().collect();
    let output = ns.exec(program, &args);
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

fn node<'a>(report: &'a Value, name: &str) -> &'a Value {
    report["nodes"].as_array().unwrap().iter().find(|n| n["name"] == name).unwrap()
}

/// What an IcmpError has to say: errors sent, packets not answered because of the limit.
fn errors(report: &Value, name: &str) -> (u64, u64) {
    let count = |key: &str| node(report, name)["report"][key].as_u64().unwrap();
    assert_eq!((count("no_source"), count("no_buffer")), (0, 0), "{report:#}");
    (count("sent"), count("limited"))
}

/// Hops as traceroute names them.
fn hops(ns: &Namespace, args: &str) -> Vec<String> {
    // One probe for each hop, one after the other.
    let text = said(ns, "traceroute", &format!("-n -q 1 -N 1 -w 10 -m 5 {args}"));
    let hops = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        words.next()?.parse::<u8>().ok()?;
        words.next().map(str::to_owned)
    });
    hops.collect()
}

/// Most times that something is tried again.
const TRIES: u64 = 6;

/// Does something until its outcome is `wanted`; gives how many times that took. On a machine whose processors others take,
/// an answer may come when nobody waits for it any more; that it came is seen in what Weir counts.
fn until<T: std::fmt::Debug>(wanted: impl Fn(&T) -> bool, act: impl Fn() -> T) -> u64 {
    let mut last = None;
    for tries in 1..=TRIES {
        let outcome = act();
        if wanted(&outcome) {
            return tries;
        }
        last = Some(outcome);
    }
    panic!("not once of {TRIES} times: {last:?}");
}

/// Leaves what hosts answer to Weir and the test alone: they do not limit their errors, and, having found each other, do
/// not look for each other again. (They wait three seconds for an answer, and then drop what they have to send.)
fn settle(net: &Network) {
    let ends = [
        (&net.client, "c0", [SERVER, SERVER6], (&net.server, "s0")),
        (&net.server, "s0", [CLIENT, CLIENT6], (&net.client, "c0")),
    ];
    for (ns, interface, others, (at, other)) in ends {
        for limit in ["net.ipv4.icmp_ratelimit=0", "net.ipv6.icmp.ratelimit=0"] {
            let set = ns.exec("sysctl", &["-q", "-w", limit]);
            assert!(set.status.success(), "{}", String::from_utf8_lossy(&set.stderr));
        }
        let mac = at.exec("cat", &[&format!("/sys/class/net/{other}/address")]).stdout;
        let mac = String::from_utf8(mac).unwrap();
        for to in others {
            ns.ip(&format!(
                "neigh replace {to} lladdr {} dev {interface} nud permanent",
                mac.trim()
            ));
        }
    }
}

#[test]
fn traceroute_and_ping_see_weir_as_a_hop_from_either_side_in_both_families() {
    if skipped("traceroute_and_ping_see_weir_as_a_hop") {
        return;
    }
    let (scratch, net) = (Scratch::new("hop-trace"), Network::new());
    let run = net.run_between(&scratch.policy(HOP));
    // Neighbour discovery crosses the hop: its packets keep their hop limit of 255.
    until(|answered| *answered, || net.client.ping(SERVER6));
    settle(&net);
    let ends = [(&net.client, SERVER, SERVER6, "to_lan"), (&net.server, CLIENT, CLIENT6, "to_wan")];
    // Each end's probes that had one hop: every trace has one.
    let probes = ends.map(|(ns, v4, v6, _)| {
        let mut probes = 0;
        for probe in ["-U -p 33434", "-I", "-T -p 81"] {
            let trace = |family: &str, to: &str| hops(ns, &format!("{family} {probe} {to}"));
            probes += until(|hops: &Vec<String>| hops[..] == [WEIR, v4], || trace("-4", v4));
            probes += until(|hops: &Vec<String>| hops[..] == [WEIR6, v6], || trace("-6", v6));
        }
        let told = format!("From {WEIR} icmp_seq=1 Time to live exceeded");
        let ping = || said(ns, "ping", &format!("-n -c 1 -W 10 -t 1 {v4}"));
        probes += until(|said: &String| said.contains(&told), ping);
        let told = format!("From {WEIR6} icmp_seq=1 Time exceeded");
        let ping = || said(ns, "ping", &format!("-n -6 -c 1 -W 10 -t 1 {v6}"));
        probes + until(|said: &String| said.contains(&told), ping)
    });
    net.assert_checksums();
    let finished = end(run);
    let mut seen = drops(&finished.report);
    seen.sort();
    // Each side got its own errors, one for each probe, and nothing else was dropped.
    let expired = |(end, probes): (&(_, _, _, &str), &u64)| {
        assert_eq!(errors(&finished.report, end.3), (*probes, 0), "{:#}", finished.report);
        (end.3.to_owned(), "expired".to_owned(), *probes)
    };
    let wanted: Vec<_> = ends.iter().zip(&probes).map(expired).collect();
    assert_eq!(seen, wanted, "{:#}", finished.report);
}

/// The MTU that a host knows of the way to another, if it learnt one.
fn learnt_mtu(ns: &Namespace, to: &str) -> Option<u32> {
    let route = said(ns, "ip", &format!("route get {to}"));
    let mut words = route.split_whitespace().skip_while(|w| *w != "mtu").skip(1);
    words.next().map(|mtu| mtu.parse().unwrap())
}

#[test]
fn a_ping_that_is_too_big_is_told_the_mtu_and_the_host_learns_it() {
    if skipped("a_ping_that_is_too_big_is_told_the_mtu") {
        return;
    }
    let (scratch, net) = (Scratch::new("hop-ping"), Network::new());
    let run = net.run_between(&scratch.policy(HOP));
    let ends = [(&net.client, SERVER, SERVER6), (&net.server, CLIENT, CLIENT6)];
    for (ns, v4, v6) in ends {
        assert!(ns.ping(v6), "ping over IPv6");
        assert_eq!((learnt_mtu(ns, v4), learnt_mtu(ns, v6)), (None, None));
        // The largest that fits, then the first that does not.
        let ping = said(ns, "ping", &format!("-n -c 1 -W 10 -M do -s {} {v4}", 1400 - 28));
        assert!(ping.contains("1 received"), "{ping}");
        let ping = said(ns, "ping", &format!("-n -c 1 -W 10 -M do -s {} {v4}", 1401 - 28));
        let told = format!("From {WEIR} icmp_seq=1 Frag needed and DF set (mtu = 1400)");
        assert!(ping.contains(&told), "{ping}");
        let ping = said(ns, "ping", &format!("-n -6 -c 1 -W 10 -M do -s {} {v6}", 1400 - 48));
        assert!(ping.contains("1 received"), "{ping}");
        let ping = said(ns, "ping", &format!("-n -6 -c 1 -W 10 -M do -s {} {v6}", 1401 - 48));
        let told = format!("From {WEIR6} icmp_seq=1 Packet too big: mtu=1400");
        assert!(ping.contains(&told), "{ping}");
        assert_eq!((learnt_mtu(ns, v4), learnt_mtu(ns, v6)), (Some(1400), Some(1400)));
    }
    // Who knows it sends what fits, in fragments if it must; so does who answers.
    for (ns, v4, v6) in ends {
        for to in [v4, v6] {
            let ping = said(ns, "ping", &format!("-n -c 1 -W 10 -s 4000 {to}"));
            assert!(ping.contains("1 received"), "{ping}");
        }
    }
    net.assert_checksums();
    let finished = end(run);
    for name in ["to_lan", "to_wan"] {
        // One in each family, and nothing too big after it.
        assert_eq!(errors(&finished.report, name), (2, 0), "{name}: {:#}", finished.report);
        assert_eq!(node(&finished.report, name)["drops"]["too-big"], 2);
    }
}

#[test]
fn pages_pass_a_hop_with_a_smaller_mtu_both_ways_once_it_is_discovered() {
    if skipped("pages_pass_a_hop_with_a_smaller_mtu_both_ways") {
        return;
    }
    for (way, errors_to, other) in
        [("to-client", "to_wan", "to_lan"), ("to-server", "to_lan", "to_wan")]
    {
        // Anew: an end that knows the MTU says so as it connects, and nobody sends it too much.
        let (scratch, net) = (Scratch::new(way), Network::new());
        let (reader, sender, to, back) = match way {
            "to-client" => (&net.client, &net.server, [SERVER, SERVER6], [CLIENT, CLIENT6]),
            _ => (&net.server, &net.client, [CLIENT, CLIENT6], [SERVER, SERVER6]),
        };
        let (_nginx, page) = sender.web_server(&scratch);
        let run = net.run_between(&scratch.policy(HOP));
        for (to, back) in to.into_iter().zip(back) {
            assert_eq!(learnt_mtu(sender, back), None, "{way}: {to}");
            let host = if to.contains(':') { format!("[{to}]") } else { to.to_owned() };
            let arrived = reader.curl(&format!("http://{host}/large")).unwrap();
            assert!(arrived == page, "{way}: {host}: {} of {}", arrived.len(), page.len());
            assert_eq!(learnt_mtu(sender, back), Some(1400), "{way}: {host}");
        }
        net.assert_checksums();
        let finished = end(run);
        let (sent, _) = errors(&finished.report, errors_to);
        assert!(sent >= 2, "{way}: {:#}", finished.report);
        assert_eq!(errors(&finished.report, other), (0, 0), "{way}: {:#}", finished.report);
        let lost = drops(&finished.report).into_iter().find(|(_, reason, _)| reason != "too-big");
        assert_eq!(lost, None, "{way}: {:#}", finished.report);
    }
}

/// Sends packets that have one hop, to a port where nobody listens.
const FLOOD: &str = "
import socket, sys
v6 = ':' in sys.argv[1]
s = socket.socket(socket.AF_INET6 if v6 else socket.AF_INET, socket.SOCK_DGRAM)
if v6:
    s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS, 1)
else:
    s.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, 1)
for _ in range(int(sys.argv[2])):
    s.sendto(b'flood', (sys.argv[1], 9))
";

#[test]
fn a_flood_without_hops_gets_as_many_errors_as_allowed_and_the_rest_is_counted() {
    if skipped("a_flood_without_hops_gets_as_many_errors_as_allowed") {
        return;
    }
    const PACKETS: u64 = 3000;
    let (rate, burst) = (10, 5);
    let policy = HOP.replace("rate: 100, burst: 50", &format!("rate: {rate}, burst: {burst}"));
    assert_ne!(policy, HOP);
    let (scratch, net) = (Scratch::new("hop-flood"), Network::new());
    let run = net.run_between(&scratch.policy(&policy));
    assert!(net.client.ping(SERVER6), "ping over IPv6");
    let began = Instant::now();
    for to in [SERVER, SERVER6] {
        let flood = net.client.exec("python3", &["-c", FLOOD, to, &PACKETS.to_string()]);
        assert!(flood.status.success(), "{}", String::from_utf8_lossy(&flood.stderr));
    }
    // It does not stop what has hops left.
    assert!(net.client.ping(SERVER), "ping after the flood");
    let allowed = burst + (began.elapsed().as_secs_f64() * f64::from(rate)) as u64 + 1;
    let finished = end(run);
    let (sent, limited) = errors(&finished.report, "to_lan");
    assert_eq!(sent + limited, 2 * PACKETS, "{:#}", finished.report);
    assert_eq!(node(&finished.report, "to_lan")["drops"]["expired"], 2 * PACKETS);
    assert!((burst..=allowed).contains(&sent), "{sent} errors; at most {allowed} in that time");
    let arrived =
        net.client.counter("Icmp", "InTimeExcds") + net.client.counter6("Icmp6InTimeExcds");
    assert_eq!(arrived, sent);
    assert_eq!(errors(&finished.report, "to_wan"), (0, 0));
}
