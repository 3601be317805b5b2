//! Trust domains: packets are copied between them, and what happens to them is what happens in one.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_crash::{
    PATIENCE, Run, assert_in_order, number, read_capture, wait_until, write_capture,
};
use crate::common_oracle::{
    Scratch, assert_same_flows, assert_same_records, demo_capture, demo_rx,
};
use crate::common_oracle::{oracle, records, weir, written};
use rustix::process::{Pid, Signal, kill_process};
use weir_oracle::read_capture as read_input;

/// Packets part and meet again; each way has an NF of another domain, and one has two of them.
const DIAMOND: &str = "
Port<0> lan;  Port<1> wan;
MacSwap head;  MacSwap a;  MacSwap b;  MacSwap c;  MacSwap join;
pipelet {
  lan -> head;
  head [tcp] -> a;  head [!(tcp)] -> b;  b -> c;
  a -> join;  c -> join;  join -> wan;
}";

#[test]
fn a_graph_in_several_domains_does_what_it_does_in_one() {
    let scratch = Scratch::new();
    let policy = scratch.write("policy.weir", DIAMOND);
    let (packets, _) = read_input(&demo_capture(), 0).unwrap();
    let expected = oracle(DIAMOND, &[0], &packets);
    let expected: Vec<_> = expected.sent.values().flatten().map(written).collect();
    for domains in [&["a=one"][..], &["b=one", "c=two"], &["head=x", "a=y", "b=x", "join=z"]] {
        for isolate in ["each", "none"] {
            let what = format!("{domains:?} {isolate}");
            let out = scratch.file("out.pcap");
            let _ = std::fs::remove_file(&out);
            let tx = format!("1=pcap:tx={}", out.display());
            let rx = demo_rx();
            let mut args = vec!["run", &policy, "--bind", &rx, "--bind", &tx, "--isolate", isolate];
            args.extend(["--json", "-q"]);
            args.extend(domains.iter().flat_map(|d| ["--domain", d]));
            let ended = weir(&args);
            assert_eq!(ended.code, Some(0), "{what}: {ended:?}");
            let report = ended.json();
            crate::common_oracle::assert_sound(&what, &report);
            assert!(report["copied_bytes"].as_u64().unwrap() > 0, "{what}");
            let got = records(&out);
            assert_same_records(&what, &got, &expected);
            assert_same_flows(&what, &got, &expected);
        }
    }
}

/// A chain whose middle is in another domain.
const CHAIN: &str = "
Port<0> lan;  Port<1> wan;  MacSwap a;  MacSwap guest;  MacSwap b;
pipelet { lan -> a;  a -> guest;  guest -> b;  b -> wan; }";

/// Names of the shared memories that a process has mapped or holds open.
fn memories(pid: Pid) -> String {
    let maps = std::fs::read_to_string(crate::common_crash::proc(pid, "maps")).unwrap();
    let open = std::fs::read_dir(crate::common_crash::proc(pid, "fd")).unwrap().flatten();
    let open = open.filter_map(|fd| std::fs::read_link(fd.path()).ok());
    open.fold(maps, |all, link| all + &link.to_string_lossy() + "\n")
}

#[test]
fn a_worker_has_no_memory_of_a_domain_that_it_is_not_in() {
    let scratch = crate::common_crash::Scratch::new("domain-memory");
    let policy = scratch.policy(CHAIN);
    let bind = ["--bind", "0=gen:size=64,flows=10,rate=1000", "--bind", "1=null"];
    let run = Run::start(&policy, &[&bind[..], &["--domain", "guest=theirs"]].concat());
    let workers = run.wait_for_workers(7);
    let has = |worker: &str, memory: &str| memories(workers[worker]).contains(memory);
    for part in ["data", "meta", "owners"] {
        let (own, theirs) = (format!("memfd:weir/{part}"), format!("memfd:weir/theirs/{part}"));
        for (worker, in_own, in_theirs) in [
            ("rx:lan", true, false),
            ("a", true, false),
            ("gate:a -> guest", true, true),
            ("guest", false, true),
            ("gate:guest -> b", true, true),
            ("b", true, false),
            ("tx:wan", true, false),
        ] {
            assert_eq!((has(worker, &own), has(worker, &theirs)), (in_own, in_theirs), "{worker}");
        }
    }
    run.signal(Signal::INT);
    run.finish().assert_sound("memory");
}

/// One of eight flows goes by the guest.
const SHARED_SOURCE: &str = "
Port<0> lan;  Port<1> wan;  MacSwap head;
Attack guest { what: \"find-foreign\", when: \"start\" };
pipelet {
  lan -> head;
  head [udp dst port 6007] -> guest;  head [!(udp dst port 6007)] -> wan;
  guest -> wan;
}";

#[test]
fn a_worker_that_searches_all_its_memory_finds_packets_of_its_own_domain_only() {
    let scratch = crate::common_crash::Scratch::new("domain-search");
    let policy = scratch.policy(SHARED_SOURCE);
    let input = scratch.file("in.pcap");
    write_capture(&input, 20_000);
    let program = crate::common_outside::hostile("hostile-nf");
    let rx = format!("0=pcap:rx={}", input.display());
    let run = ["run", policy.to_str().unwrap(), "--bind", &rx, "--bind", "1=null", "-q"];
    let run = [&run[..], &["--with", program.to_str().unwrap()]].concat();
    let ended = weir(&[&run[..], &["--domain", "guest=theirs"]].concat());
    assert!(ended.stderr.contains("weir: guest: refused: EACCES"), "{ended:?}");
    // It knows how to search: in the domain that all are in it finds everything.
    let ended = weir(&run);
    assert!(ended.stderr.contains("weir: guest: REACHED"), "{ended:?}");
}

#[test]
fn a_gate_that_is_killed_loses_at_most_a_batch_and_leaks_nothing() {
    let scratch = crate::common_crash::Scratch::new("domain-kill");
    let policy = scratch.policy(CHAIN);
    let (input, out) = (scratch.file("in.pcap"), scratch.file("out.pcap"));
    write_capture(&input, 400_000);
    let (rx, tx) =
        (format!("0=pcap:rx={}", input.display()), format!("1=pcap:tx={}", out.display()));
    let args = ["--bind", &rx, "--bind", &tx, "--domain", "guest=theirs", "--restart-delay", "0"];
    let mut run = Run::start(&policy, &args);
    run.wait_for_workers(7);
    let grown = || std::fs::metadata(&out).map_or(0, |m| m.len());
    let mut kills = 0;
    for gate in ["gate:a -> guest", "gate:guest -> b"].into_iter().cycle().take(6) {
        let more = grown() + 1000;
        let all = std::fs::metadata(&input).unwrap().len();
        wait_until("packets to flow", PATIENCE, || grown() > more || grown() == all);
        if let Some(pid) = run.workers().get(gate) {
            kill_process(*pid, Signal::KILL).unwrap();
            kills += 1;
            if grown() < all / 2 {
                run.wait_for_line("the successor", |l| l.contains(" runs again "));
            }
        }
    }
    let finished = run.finish();
    finished.assert_sound("gates");
    let lost = finished.number("/balance/lost");
    assert!(kills > 0 && lost <= kills * crate::common_crash::BATCH, "{kills} kills, {lost} lost");
    let numbers = read_capture(&out, number);
    assert_in_order(&numbers, "gates");
    assert_eq!(numbers.len() as u64 + lost, 400_000);
}

/// Two tenants' packets, told apart by their VLAN, through equal chains.
const TENANTS: &str = "
Port<0> lan;  Port<1> wan;
CheckIpHeader a_check;  FlowMonitor a_flows;
CheckIpHeader b_check;  FlowMonitor b_flows;
pipelet tenants {
  first match;
  lan [vlan 10] -> a_check -> a_flows -> wan;
  lan [vlan 20] -> b_check -> b_flows -> wan;
  default drop;
}";

#[test]
fn flows_of_tenants_in_domains_of_their_own_share_no_worker_however_they_are_fused() {
    const PACKETS: u64 = 300;
    let scratch = crate::common_crash::Scratch::new("domain-tenants");
    let policy = scratch.policy(TENANTS);
    let (input, out) = (scratch.file("in.pcap"), scratch.file("out.pcap"));
    // In turn of one tenant, of the other, and of neither.
    let frames = (0..PACKETS).map(|number| {
        let mut frame =
            crate::common_crash::frame(number, crate::common_crash::flow_of(number)).to_vec();
        let vlan = [0x81, 0x00, 0, [10, 20, 30][number as usize % 3]];
        frame.splice(12..12, vlan);
        frame
    });
    crate::common_crash::write_frames(&input, frames);
    let (rx, tx) =
        (format!("0=pcap:rx={}", input.display()), format!("1=pcap:tx={}", out.display()));
    let tenants = ["a_check=a", "a_flows=a", "b_check=b", "b_flows=b"];
    let tenants: Vec<&str> = tenants.iter().flat_map(|nf| ["--domain", nf]).collect();
    for how in [
        &["--isolate", "none"][..],
        &["--isolate", "auto", "--cores", "0"],
        &["--isolate", "each", "--instances", "a_flows=2", "--instances", "b_flows=2"],
        &["--isolate", "none", "--consolidate", "on"],
    ] {
        let _ = std::fs::remove_file(&out);
        let mut args = vec!["run", policy.to_str().unwrap(), "--bind", &rx, "--bind", &tx];
        args.extend(["--json", "-q"]);
        let ended = weir(&[&args[..], how, &tenants].concat());
        assert_eq!(ended.code, Some(0), "{how:?}: {ended:?}");
        let report = ended.json();
        crate::common_oracle::assert_sound(&format!("{how:?}"), &report);
        let workers = report["workers"].as_array().unwrap().iter();
        let names: Vec<&str> = workers.map(|worker| worker["name"].as_str().unwrap()).collect();
        for tenant in ["a_", "b_"] {
            let other = if tenant == "a_" { "b_" } else { "a_" };
            let own: Vec<_> = names.iter().filter(|name| name.contains(tenant)).collect();
            assert!(!own.is_empty() && own.iter().all(|name| !name.contains(other)), "{names:?}");
        }
        assert_eq!(records(&out).len() as u64, PACKETS / 3 * 2, "{how:?}");
    }
}

/// Two ports, and instances of an NF that is apart from the others.
const TWO_PORTS: &str = "
Port<0> lan;  Port<1> wan;  Port<2> out;
MacSwap head;  MacSwap guest;  MacSwap join;
pipelet { lan -> head;  wan -> head;  head -> guest;  guest -> join;  join -> out; }";

/// Gates before and behind the instances have few buffers, and what is merged behind them waits for packets of other gates: were
/// buffers for whoever comes first, gates would wait for each other for ever.
#[test]
fn instances_in_a_domain_of_their_own_serve_several_ports_by_gates_with_few_buffers() {
    const PACKETS: u64 = 40_000;
    let scratch = crate::common_crash::Scratch::new("domain-instances");
    let policy = scratch.policy(TWO_PORTS);
    let (input, out) = (scratch.file("in.pcap"), scratch.file("out.pcap"));
    write_capture(&input, PACKETS);
    let rx = format!("0=pcap:rx={}", input.display());
    let generated = format!("1=gen:size=200,flows=50,packets={PACKETS}");
    let tx = format!("2=pcap:tx={}", out.display());
    let binds = ["--bind", &rx, "--bind", &generated, "--bind", &tx];
    let small = ["--pool", "64", "--ring", "64", "--instances", "guest=3"];
    for domains in [&["guest=theirs"][..], &["guest=theirs", "join=another"]] {
        let domains: Vec<&str> = domains.iter().flat_map(|d| ["--domain", d]).collect();
        let _ = std::fs::remove_file(&out);
        let run = Run::start(&policy, &[&binds[..], &small, &domains].concat());
        let finished = run.finish();
        let what = format!("{domains:?}");
        finished.assert_sound(&what);
        assert_eq!(finished.number("/balance/out"), 2 * PACKETS, "{what}: {}", finished.report);
        let numbers = read_capture(&out, |bytes| (bytes.len() < 200).then(|| number(bytes)));
        let numbers: Vec<u64> = numbers.into_iter().flatten().collect();
        assert_eq!(numbers.len() as u64, PACKETS, "{what}");
        assert_in_order(&numbers, &what);
    }
}

#[test]
fn a_domain_for_an_nf_that_there_is_not_is_refused() {
    let scratch = Scratch::new();
    let policy = scratch.write("policy.weir", CHAIN);
    let ended = weir(&["check", &policy, "--domain", "gust=theirs"]);
    assert_eq!(ended.code, Some(2));
    assert!(ended.stderr.contains("the policy has no NF gust; it has a, guest, b"), "{ended:?}");
    let ended = weir(&["explain", &policy, "--domain", "guest=theirs"]);
    assert!(ended.stdout.contains("gate:a -> guest, writes packets, copies into domain theirs"));
}
