//! What becomes of a run when its interfaces, or the services on them, go and come back.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_crash::*;
use crate::common_live::*;
use rustix::process::{Signal, kill_process};
use std::process::Command;
use std::time::{Duration, Instant};

/// Waits for a warning about the client's interface.
fn wait_for_warning(run: &mut Run, text: &str) {
    let wanted = format!("weir: warning: afp:m0: interface is {text}");
    run.wait_for_line(&wanted, |line| line == wanted);
}

fn warnings(finished: &Finished) -> Vec<&str> {
    let said = finished.said.iter().map(String::as_str);
    said.filter_map(|l| l.strip_prefix("weir: warning: afp:m0: interface is ")).collect()
}

/// Processor time of all workers.
fn worked(run: &Run) -> Duration {
    let ns = run.workers().into_values().map(|pid| {
        let text = std::fs::read_to_string(proc(pid, "schedstat")).unwrap();
        text.split_whitespace().next().unwrap().parse::<u64>().unwrap()
    });
    Duration::from_nanos(ns.sum())
}

#[test]
fn an_interface_that_goes_down_and_up_is_told_once_each_and_traffic_goes_on() {
    if skipped("an_interface_that_goes_down_and_up_is_told_once_each") {
        return;
    }
    let (scratch, net) = (Scratch::new("live-down"), Network::new());
    let mut run = net.run_between(&scratch.policy(THROUGH));
    net.weir.ip("link set m0 down");
    wait_for_warning(&mut run, "down");
    // What is sent meanwhile cannot leave, and is counted.
    assert!(!net.server.ping(CLIENT));
    net.weir.ip("link set m0 up");
    wait_for_warning(&mut run, "up again");
    net.wait_for_ping();
    run.signal(Signal::INT);
    let finished = run.finish();
    finished.assert_sound("down and up");
    assert_eq!(warnings(&finished), ["down", "up again"]);
}

#[test]
fn an_interface_that_loses_its_carrier_is_told_and_so_is_its_return() {
    if skipped("an_interface_that_loses_its_carrier_is_told") {
        return;
    }
    let (scratch, net) = (Scratch::new("live-carrier"), Network::new());
    let mut run = net.run_between(&scratch.policy(THROUGH));
    // The other end of the cable, so to speak.
    net.client.ip("link set c0 down");
    wait_for_warning(
        &mut run,
        "without a carrier (a pulled cable, or the other end is down): what is sent is lost",
    );
    net.client.ip("link set c0 up");
    wait_for_warning(&mut run, "connected again");
    net.wait_for_ping();
    run.signal(Signal::INT);
    let finished = run.finish();
    finished.assert_sound("carrier");
    assert_eq!(warnings(&finished).len(), 2, "{:?}", finished.said);
}

#[test]
fn what_is_longer_than_the_mtu_of_the_moment_is_dropped_as_oversize_and_what_is_not_passes() {
    if skipped("what_is_longer_than_the_mtu_of_the_moment") {
        return;
    }
    let (scratch, net) = (Scratch::new("live-mtu"), Network::new());
    let run = net.run_between(&scratch.policy(THROUGH));
    net.weir.ip("link set m1 mtu 1000");
    let ping = |size: &str| {
        let args = ["-c", "1", "-W", "1", "-q", "-M", "dont", "-s", size, SERVER];
        net.client.exec("ping", &args).status.success()
    };
    // The kernel takes longer ones, as it might have to cut them: it is Weir that looks, four times a second.
    // The one before it has looked may be the kernel's to drop.
    wait_until("longer ones to be kept back", PATIENCE, || !ping("1300"));
    assert!(!ping("1300") && !ping("1300"));
    wait_until("shorter ones to pass", PATIENCE, || ping("900"));
    run.signal(Signal::INT);
    let finished = run.finish();
    finished.assert_sound("MTU");
    let dropped = drops(&finished.report);
    let oversize = dropped.iter().find(|(n, r, _)| n == "tx:b" && r == "oversize");
    assert!(oversize.is_some_and(|(_, _, n)| *n >= 2), "{dropped:?}");
}

#[test]
fn an_interface_that_is_deleted_and_made_again_is_bound_again_and_waiting_for_it_costs_nothing() {
    if skipped("an_interface_that_is_deleted_and_made_again_is_bound_again") {
        return;
    }
    let (scratch, net) = (Scratch::new("live-deleted"), Network::new());
    let (_nginx, page) = net.web_server(&scratch);
    let mut run = net.run_between(&scratch.policy(THROUGH));
    net.weir.ip("link del m0");
    wait_for_warning(&mut run, "gone; waiting for one of that name");
    const WINDOW: Duration = Duration::from_secs(2);
    let (before, start) = (worked(&run), Instant::now());
    // What is measured is a length of time.
    std::thread::sleep(WINDOW);
    let share = (worked(&run) - before).as_secs_f64() / start.elapsed().as_secs_f64();
    println!("{:.3} % of a core while it waits", share * 100.0);
    // Who does not sleep takes a core; by how much less this is than that depends on what else the machine does.
    assert!(share < 0.1, "{:.3} % of a core", share * 100.0);
    net.connect_client();
    wait_for_warning(&mut run, "up again");
    net.wait_for_ping();
    let arrived = net.client.curl(&format!("http://{SERVER}/large")).unwrap();
    assert!(arrived == page, "{} bytes of {}", arrived.len(), page.len());
    run.signal(Signal::INT);
    let finished = run.finish();
    finished.assert_sound("deleted");
    let told = warnings(&finished);
    let last: Vec<_> = told.iter().filter(|w| **w != "down").collect();
    assert_eq!(last, [&"gone; waiting for one of that name", &"up again"]);
    assert!(told.len() <= 4, "down at most once on each way: {told:?}");
}

/// Weir on both veth pairs, with workers that may be stopped for as long as it takes.
fn run_patiently(net: &Network, policy: &std::path::Path) -> Run {
    let run = net.run(policy, &["--bind", "0=afp:m0", "--bind", "1=afp:m1", "--patience", "0"]);
    net.wait_for_ping();
    run
}

/// Stops a worker, so that it sees nothing of what `meanwhile` does.
fn unseen(run: &Run, worker: &str, meanwhile: impl FnOnce()) {
    let pid = run.workers()[worker];
    kill_process(pid, Signal::STOP).unwrap();
    wait_until("the worker to stop", PATIENCE, || state_of(pid) == Some('T'));
    meanwhile();
    kill_process(pid, Signal::CONT).unwrap();
}

#[test]
fn an_interface_that_was_made_again_with_the_same_index_before_anybody_looked_is_heard() {
    if skipped("an_interface_that_was_made_again_with_the_same_index") {
        return;
    }
    let (scratch, net) = (Scratch::new("live-same-index"), Network::new());
    let index = net.index_of_m0();
    let run = run_patiently(&net, &scratch.policy(THROUGH));
    unseen(&run, "rx:a", || {
        net.weir.ip("link del m0");
        net.connect_client_with(&format!("index {index}"));
        assert_eq!(net.index_of_m0(), index);
    });
    net.wait_for_ping();
    run.signal(Signal::INT);
    run.finish().assert_sound("same index");
}

#[test]
fn packets_leave_by_the_interface_that_has_the_name_now_when_the_old_one_was_renamed() {
    if skipped("packets_leave_by_the_interface_that_has_the_name_now") {
        return;
    }
    let (scratch, net) = (Scratch::new("live-renamed"), Network::new());
    let run = run_patiently(&net, &scratch.policy(THROUGH));
    unseen(&run, "tx:a", || {
        for (end, name) in [(&net.weir, "m0"), (&net.client, "c0")] {
            end.ip(&format!("addr flush dev {name}"));
            end.ip(&format!("link set {name} down"));
            end.ip(&format!("link set {name} name old0"));
            // It takes packets as before.
            end.ip("link set old0 up");
        }
        net.connect_client();
    });
    net.wait_for_ping();
    run.signal(Signal::INT);
    run.finish().assert_sound("renamed");
}

#[test]
fn services_that_are_killed_while_their_interface_is_gone_wait_for_it_as_before() {
    if skipped("services_that_are_killed_while_their_interface_is_gone") {
        return;
    }
    let (scratch, net) = (Scratch::new("live-gone-killed"), Network::new());
    let mut run = net.run_between(&scratch.policy(THROUGH));
    net.weir.ip("link del m0");
    wait_for_warning(&mut run, "gone; waiting for one of that name");
    for victim in ["rx:a", "tx:a"] {
        kill_process(run.workers()[victim], Signal::KILL).unwrap();
        run.wait_for_line(victim, |l| l.starts_with(&format!("weir: worker {victim} runs again")));
    }
    net.connect_client();
    wait_for_warning(&mut run, "up again");
    net.wait_for_ping();
    run.signal(Signal::INT);
    run.finish().assert_sound("killed while gone");
}

#[test]
fn a_killed_rx_or_tx_service_goes_on_with_a_new_socket_and_the_balance_holds() {
    if skipped("a_killed_rx_or_tx_service_goes_on_with_a_new_socket") {
        return;
    }
    let (scratch, net) = (Scratch::new("live-killed"), Network::new());
    let (_nginx, page) = net.web_server(&scratch);
    let mut run = net.run_between(&scratch.policy(THROUGH));
    for victim in ["rx:a", "tx:a", "rx:b", "tx:b"] {
        let mut curl = net.client.command("curl");
        let url = format!("http://{SERVER}/large");
        let curl = curl.args(["-sS", "--fail", "--limit-rate", "6M", "--max-time", "25", &url]);
        let download = curl.stdout(std::process::Stdio::piped()).spawn().unwrap();
        let pid = run.workers()[victim];
        kill_process(pid, Signal::KILL).unwrap();
        run.wait_for_line(victim, |l| l.starts_with(&format!("weir: worker {victim} runs again")));
        let output = download.wait_with_output().unwrap();
        assert!(output.stdout == page, "{victim}: {} of {}", output.stdout.len(), page.len());
    }
    net.assert_checksums();
    run.signal(Signal::INT);
    let finished = run.finish();
    finished.assert_sound("killed");
    assert_eq!(finished.restarts().values().sum::<u64>(), 4, "{:?}", finished.restarts());
}

#[test]
fn a_chain_that_is_slower_than_its_interface_leaves_packets_to_the_kernel_and_counts_its_drops() {
    if skipped("a_chain_that_is_slower_than_its_interface") {
        return;
    }
    let (scratch, net) = (Scratch::new("live-slow"), Network::new());
    let policy = scratch.policy(
        "Port<0> a;  Port<1> b;  Busy slow { cycles: 1000000 };
         pipelet { a [udp] -> slow -> b;  a [!udp] -> b;  b -> a; }",
    );
    let run = net.run_between(&policy);
    // More than the ring (8,192), the pool and the lanes hold.
    let flood = "import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
                 s.connect(('192.0.2.2', 9))\n\
                 for i in range(30000):\n  try: s.send(b'x' * 100)\n  except OSError: pass\n";
    assert!(net.client.exec("python3", &["-c", flood]).status.success());
    kill_process(run.agent(), Signal::INT).unwrap();
    let finished = run.finish();
    finished.assert_sound("slow");
    let dropped = drops(&finished.report);
    let kernel = dropped.iter().find(|(n, r, _)| n == "rx:a" && r == "kernel-full");
    assert!(kernel.is_some_and(|(_, _, n)| *n > 1000), "{dropped:?}");
    assert_eq!(dropped.len(), 1, "nothing is dropped after work was spent: {dropped:?}");
}

/// Exit code and standard error of a run that must not begin.
fn refused(mut weir: Command, policy: &std::path::Path, binds: &[&str]) -> (Option<i32>, String) {
    let weir = weir.arg("run").arg(policy);
    for bind in binds {
        weir.args(["--bind", bind]);
    }
    let output = weir.args(["--duration", "1"]).output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn interfaces_that_cannot_be_used_are_refused_with_cause_and_cure_before_anything_runs() {
    if skipped("interfaces_that_cannot_be_used_are_refused") {
        return;
    }
    let scratch = Scratch::new("live-refused");
    let policy = scratch.policy("Port<0> a;  Port<1> b;  pipelet { a -> b;  b -> a; }");
    let ns = Namespace::new("r");
    ns.ip("link add v0 type veth peer name v1");
    let weir = || ns.command(env!("CARGO_BIN_EXE_weir"));
    for (binds, says) in [
        (["0=afp:nosuch", "1=null"], "there is no interface of that name"),
        (["0=afp:lo", "1=null"], "afp:lo: not an Ethernet interface"),
        (["0=afp:v0", "1=afp:v0"], "bound to another port already"),
        (["0=tap:v0", "1=null"], "choose another name"),
        (["0=afp:a_name_of_more_than_15", "1=null"], "1 to 15 characters"),
    ] {
        let (code, said) = refused(weir(), &policy, &binds);
        assert!(code == Some(2) && said.contains(says), "{binds:?}: {code:?}: {said}");
    }
    // Root without the capability is not permitted either.
    for (capability, bind, says) in [
        ("-net_raw", "0=afp:v0", "sudo setcap cap_net_raw+ep"),
        ("-net_admin", "0=tap:t0", "sudo setcap cap_net_admin+ep"),
    ] {
        let mut weir = ns.command("setpriv");
        weir.args(["--bounding-set", capability, env!("CARGO_BIN_EXE_weir")]);
        let (code, said) = refused(weir, &policy, &[bind, "1=null"]);
        assert!(code == Some(2) && said.contains(says), "{bind}: {code:?}: {said}");
    }
}

/// What a service that a packet has taken over tries with its socket, by the seed that has it do so.
const REACHES: u64 = 1 << 32;
const WAYS: [&str; 5] = ["bind", "sendto", "sendmsg", "sendmmsg", "promiscuous"];

/// A run whose receiving service tries `way` with an interface that is not Weir's; says whether it was ended
/// for it, and whether it got through.
fn reached(way: u64, sandbox: &str) -> (bool, bool) {
    let (scratch, net) = (Scratch::new("live-reach"), Network::new());
    // An interface of the same namespace, on which nobody else sends a packet.
    net.weir.ip("link add x0 type veth peer name x1");
    for x in ["x0", "x1"] {
        // Without IPv6's own words.
        net.weir.ip(&format!("link set {x} addrgenmode none arp off multicast off up"));
    }
    let x = |file: &str| {
        let output = net.weir.exec("cat", &[&format!("/sys/class/net/{file}")]);
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let quiet = (x("x1/statistics/rx_packets"), x("x0/flags"));
    let attack = format!("rx:a:{}", REACHES + way);
    let args = ["--bind", "0=afp:m0", "--bind", "1=afp:m1", "--attack", &attack];
    let args = [&args[..], &["--sandbox", sandbox, "--restart-delay", "100"]].concat();
    let mut run = net.run(&scratch.policy(THROUGH), &args);
    let mut ended = false;
    if sandbox == "on" {
        run.wait_for_line("the sandbox to end it", |l| l.contains("killed by the sandbox"));
        ended = true;
    } else {
        run.wait_for_line("the attack", |l| l.contains("weir attack: rx:a strikes"));
        // It goes on after the attack.
        net.wait_for_ping();
    }
    let through = (x("x1/statistics/rx_packets"), x("x0/flags")) != quiet;
    run.signal(Signal::INT);
    run.finish();
    (ended, through)
}

#[test]
fn a_service_that_was_taken_over_reaches_no_interface_but_its_own() {
    if skipped("a_service_that_was_taken_over_reaches_no_interface_but_its_own") {
        return;
    }
    for (seed, way) in (0..).zip(WAYS) {
        assert_eq!(reached(seed, "on"), (true, false), "{way}");
        assert_eq!(reached(seed, "off"), (false, true), "{way} without a sandbox");
    }
}
