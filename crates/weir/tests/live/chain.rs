//! Chains between two veth pairs: a real client and a real server on either side.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_crash::*;
use crate::common_live::*;
use rustix::process::Signal;

fn end(run: Run) -> Finished {
    run.signal(Signal::INT);
    let finished = run.finish();
    finished.assert_sound("live");
    finished
}

#[test]
fn pages_pings_and_neighbour_discovery_pass_in_both_families_with_right_checksums() {
    if skipped("pages_pings_and_neighbour_discovery_pass") {
        return;
    }
    let (scratch, net) = (Scratch::new("live-pages"), Network::new());
    let (_nginx, page) = net.web_server(&scratch);
    let run = net.run_between(&scratch.policy(THROUGH));
    // The first packets asked for the neighbour: ARP went through, and now IPv6's way of it.
    assert!(net.client.ping(SERVER6), "ping over IPv6");
    for host in [SERVER, "[fd00::2]"] {
        let arrived = net.client.curl(&format!("http://{host}/large")).unwrap();
        assert!(arrived == page, "{host}: {} bytes of {} arrived", arrived.len(), page.len());
    }
    net.assert_checksums();
    let came_in = net.frames_from_server();
    let finished = end(run);
    assert_eq!(drops(&finished.report), [], "{:#}", finished.report);
    // Super-packets came in, each one packet to the kernel, and were cut.
    let nodes = finished.report["nodes"].as_array().unwrap();
    let received = nodes.iter().find(|n| n["name"] == "rx:b").unwrap();
    assert!(received["packets"].as_u64().unwrap() > 2 * came_in, "{came_in}: {received:#}");
}

#[test]
fn through_the_demo_chain_pages_arrive_and_injection_attempts_do_not() {
    if skipped("through_the_demo_chain_pages_arrive_and_injection_attempts_do_not") {
        return;
    }
    let (scratch, net) = (Scratch::new("live-demo"), Network::new());
    let (_nginx, page) = net.web_server(&scratch);
    // The chain stands before the servers; their answers go straight back.
    let chain = include_str!("../../../../demo/chain.weir");
    let policy = scratch.policy(&format!("{chain}\npipelet answers {{ lan -> wan; }}\n"));
    let run = net.run_between(&policy);
    assert!(net.client.ping(SERVER6), "ping over IPv6");
    for host in [SERVER, "[fd00::2]"] {
        let arrived = net.client.curl(&format!("http://{host}/large")).unwrap();
        assert!(arrived == page, "{host}: {} bytes of {} arrived", arrived.len(), page.len());
        let answer = net.client.curl(&format!("http://{host}/product?id=1")).unwrap();
        assert_eq!(answer, b"an answer");
        let attack = format!("http://{host}/product?id=1'%20OR%201=1%20--%20");
        // No answer, as the request never arrived.
        let output = net.client.exec("curl", &["-sSg", "--max-time", "2", &attack]);
        assert_eq!(output.status.code(), Some(28), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let other_port = net.client.exec("curl", &["-sS", "--max-time", "2", "http://192.0.2.2:81/"]);
    assert_eq!(other_port.status.code(), Some(28), "a port that the firewall does not open");
    net.assert_checksums();
    let finished = end(run);
    let mut reasons: Vec<_> = drops(&finished.report);
    assert!(reasons.iter().all(|(_, _, n)| *n >= 2), "{reasons:?}");
    reasons.sort();
    let reasons: Vec<_> = reasons.iter().map(|(n, r, _)| (n.as_str(), r.as_str())).collect();
    assert_eq!(reasons, [("app_urls", "injection"), ("edge_rules", "filtered")]);
}

/// Puts an interface `name` on `trunk` whose frames are tagged there, by the kernel or, where it
/// cannot, by a process.
fn add_vlan(ns: &Namespace, trunk: &str, tags: &str) -> Option<Service> {
    let name = format!("{trunk}v");
    let words = format!("-n {} link add link {trunk} name {name} type vlan id 7", ns.name());
    if tags == "8100:7" {
        let made = std::process::Command::new("ip").args(words.split(' ')).output().unwrap();
        if made.status.success() {
            ns.ip(&format!("link set {name} up"));
            return None;
        }
    }
    let inner = format!("{name}p");
    // Two tags must fit into what the trunk carries.
    ns.ip(&format!("link add {name} mtu 1492 type veth peer name {inner} mtu 1492"));
    let address = ns.exec("cat", &[&format!("/sys/class/net/{trunk}/address")]);
    let address = String::from_utf8(address.stdout).unwrap();
    ns.ip(&format!("link set {name} address {}", address.trim()));
    for interface in [&name, &inner] {
        // The process tags packets as they are: nothing may be left to do to them.
        let off = ["gro", "off", "gso", "off", "tso", "off", "tx", "off", "rx", "off"];
        let args: Vec<_> = ["-K", interface].into_iter().chain(off).collect();
        assert!(ns.exec("ethtool", &args).status.success());
        ns.ip(&format!("link set {interface} up"));
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../demo/vlan_tag.py");
    Some(ns.spawn("python3", &[script, trunk, &inner, tags]))
}

#[test]
fn vlan_tags_pass_one_and_two_of_them() {
    if skipped("vlan_tags_pass_one_and_two_of_them") {
        return;
    }
    for (tags, what) in [("8100:7", "one tag"), ("88a8:100,8100:8", "two tags")] {
        let (scratch, net) = (Scratch::new("live-vlan"), Network::new());
        let (_nginx, page) = net.web_server(&scratch);
        let _client = add_vlan(&net.client, "c0", tags);
        let _server = add_vlan(&net.server, "s0", tags);
        net.client.ip("addr add 198.51.100.1/24 dev c0v");
        net.client.ip("addr add fd07::1/64 dev c0v nodad");
        net.server.ip("addr add 198.51.100.2/24 dev s0v");
        net.server.ip("addr add fd07::2/64 dev s0v nodad");
        let filter = if tags.contains(',') { "vlan 100 and vlan 8" } else { "vlan 7" };
        // Tagged packets take their own edge, by their tags: they were put back.
        let policy = scratch.policy(&format!(
            "Port<0> a;  Port<1> b;  CheckIpHeader tagged;
             pipelet {{ a [{filter}] -> tagged;  a [!({filter})] -> b;
                        tagged [tagged.ip] -> b;  tagged [tagged.non_ip] -> b;  b -> a; }}"
        ));
        let run = net.run_between(&policy);
        wait_until(what, PATIENCE, || net.client.ping("198.51.100.2"));
        assert!(net.client.ping("fd07::2"), "{what}: ping over IPv6");
        for host in ["198.51.100.2", "[fd07::2]"] {
            let arrived = net.client.curl(&format!("http://{host}/large")).unwrap();
            assert!(arrived == page, "{what}: {} of {}", arrived.len(), page.len());
        }
        net.assert_checksums();
        let finished = end(run);
        let nodes = finished.report["nodes"].as_array().unwrap();
        let tagged = nodes.iter().find(|n| n["name"] == "tagged").unwrap();
        assert!(tagged["packets"].as_u64().unwrap() > 100, "{:#}", finished.report);
        assert_eq!(drops(&finished.report), [], "{what}: {:#}", finished.report);
    }
}
