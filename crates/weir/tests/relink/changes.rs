//! A graph that is changed while packets flow: none lost, none reordered, state kept, and when a change fails the
//! graph goes on as it was.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_crash::*;
use crate::common_relink::*;
use rustix::process::{Pid, Signal, kill_process};
use std::time::{Duration, Instant};
use weir_mem::fault::Step;

#[test]
fn more_workers_than_are_started_at_once_begin_and_take_over_like_any() {
    let names: Vec<String> = (0..70).map(|n| format!("s{n}")).collect();
    let declared: String = names.iter().map(|n| format!("MacSwap {n};  ")).collect();
    let policy = format!(
        "Port<0> lan;  Port<1> wan;  {declared} Busy slow {{ cycles: 300000 }};
pipelet {{ lan -> {} -> slow -> wan; }}",
        names.join(" -> ")
    );
    let args = ["--ring", "64", "--start-patience", "60"];
    let mut graph = Changing::start_with("many", PACKETS, &policy, &args);
    graph.run.wait_for_workers(73);
    for how in ["none", "each"] {
        graph.isolate(how);
        let said = graph.reload();
        assert!(said.contains(": relinked in "), "{how}: {said}");
        graph.wait_for_traffic();
    }
    let out = graph.out();
    graph.run.signal(Signal::INT);
    let finished = graph.run.finish();
    finished.assert_sound("many");
    assert_eq!(finished.number("/balance/lost"), 0, "{:#}", finished.report);
    assert_in_order(&read_capture(&out, number), "many");
}

#[test]
fn an_interrupt_while_what_is_under_way_runs_out_gives_the_change_up_and_ends_the_run() {
    // What waits before the slow one takes half a second or more, and a batch so little that it is not taken for standing still.
    let slow = |policy: &str, cycles: &str| {
        assert!(policy.contains(cycles));
        policy.replace(cycles, "cycles: 400000")
    };
    let (before, after) = (slow(CHAIN, "cycles: 160000"), slow(LONGER, "cycles: 150000"));
    let args = ["--ring", "4096"];
    let mut graph = Changing::start_with("interrupted", PACKETS, &before, &args);
    std::fs::write(&graph.policy, after).unwrap();
    graph.run.signal(Signal::HUP);
    wait_until("the new worker", PATIENCE, || graph.run.workers().contains_key("more"));
    graph.wait_for_traffic();
    graph.run.signal(Signal::INT);
    let said = graph.outcome();
    assert!(said.contains("not relinked: the graph ends"), "{said}");
    let finished = graph.run.finish();
    finished.assert_sound("interrupted");
    assert_eq!(finished.number("/balance/lost"), 0, "{:#}", finished.report);
}

#[test]
fn segments_are_fused_and_taken_apart_at_full_load_and_no_packet_is_lost() {
    let mut graph = Changing::start("fuse", &[]);
    for how in ["none", "each", "none", "each"] {
        graph.isolate(how);
        let line = graph.reload();
        assert!(line.contains(": relinked in "), "{line}");
        graph.run.wait_for_workers(if how == "each" { 5 } else { 3 });
        graph.wait_for_traffic();
    }
    let (finished, came) = graph.finish_whole();
    assert_eq!(relinks(&finished), 4);
    for name in ["rx:lan", "head", "sizes", "slow", "tx:wan"] {
        assert_eq!(node(&finished, name)["packets"], came, "{name}");
    }
    // What it remembers went over each time.
    let sizes = serde_json::to_string(&node(&finished, "sizes")["report"]).unwrap();
    assert!(sizes.contains(&came.to_string()), "{sizes}");
}

#[test]
fn an_nf_is_inserted_and_removed_and_another_gets_a_new_configuration() {
    let mut graph = Changing::start("insert", &[]);
    for policy in [LONGER, CHAIN] {
        std::fs::write(&graph.policy, policy).unwrap();
        let line = graph.reload();
        assert!(line.contains(": relinked in "), "{line}");
        graph.wait_for_traffic();
    }
    // Who passed the second MacSwap too has its addresses as they were sent.
    let way = |bytes: &[u8]| (bytes[0..6] == [2, 0, 0, 0, 0, 1], number(bytes));
    let (finished, swapped, came) = graph.finish(way, |way| way.1);
    assert_eq!(finished.number("/balance/lost"), 0);
    let twice = swapped.iter().filter(|p| p.0).count() as u64;
    let more = node(&finished, "more");
    assert_eq!((&more["packets"], &more["removed"]), (&twice.into(), &true.into()));
    assert!(twice > 0 && twice < came);
    // One change after the other: those with it are one run.
    let changes = swapped.windows(2).filter(|pair| pair[0].0 != pair[1].0).count();
    assert_eq!(changes, 2);
    assert_eq!(node(&finished, "slow")["packets"], came);
}

#[test]
fn what_cannot_be_is_refused_with_why_and_the_graph_goes_on() {
    let mut graph = Changing::start("refuse", &[]);
    let more_ports = "Port<0> lan; Port<1> wan; Port<2> dmz; MacSwap head;
pipelet { lan -> head; head [udp] -> wan; head [!(udp)] -> dmz; }";
    for (policy, why) in [
        ("Port<0> lan; nonsense", "policy.weir:1:"),
        (more_ports, "packets leave by port 2"),
        (CHAIN, "relinked in"),
    ] {
        std::fs::write(&graph.policy, policy).unwrap();
        let line = graph.reload();
        let said = graph.run.said.join("\n");
        assert!(said.contains(why), "{why}: {line}\n{said}");
        graph.wait_for_traffic();
    }
    let options = graph.scratch.file("options");
    std::fs::remove_file(&options).unwrap();
    let made = std::process::Command::new("mkfifo").arg(&options).status().unwrap();
    assert!(made.success());
    let line = graph.reload();
    assert!(line.contains("not relinked"), "{line}");
    assert!(graph.run.said.iter().any(|l| l.contains("a pipe")), "{:?}", graph.run.said);
    std::fs::remove_file(&options).unwrap();
    std::fs::write(graph.scratch.file("options"), "--isolate sometimes").unwrap();
    let line = graph.reload();
    assert!(line.contains("not relinked"), "{line}");
    assert!(graph.run.said.iter().any(|l| l.contains("sometimes") && l.contains("options")));
    let (finished, _) = graph.finish_whole();
    assert_eq!(relinks(&finished), 1);
}

#[test]
fn a_worker_that_dies_before_the_switch_leaves_the_graph_as_it_was() {
    let at = |step: Step| step as u32;
    for (args, why) in [
        (
            ["--later-fault".to_owned(), format!("2:slow:{}:1", at(Step::StandingBy))],
            "died before it began",
        ),
        (
            ["--later-fault".to_owned(), format!("2:sizes:{}:1", at(Step::TakenOver))],
            "died before it began",
        ),
        (["--fault".to_owned(), format!("slow:{}:1", at(Step::HandingOver))], "died meanwhile"),
    ] {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let mut graph = Changing::start("before", &args);
        graph.isolate("each");
        let line = graph.reload();
        assert!(line.contains("not relinked") && line.contains(why), "{line}");
        graph.wait_for_traffic();
        let (finished, ..) = graph.finish(number, |number| *number);
        assert_eq!(relinks(&finished), 0);
    }
}

/// What is told of a change in which a service dies at a step, and of the service.
const SERVICES: [(&str, Step, &str); 9] = [
    ("rx:lan", Step::Adopting, "worker rx:lan died meanwhile"),
    ("tx:wan", Step::Adopting, "worker tx:wan died meanwhile"),
    ("rx:lan", Step::Holding, "worker rx:lan died meanwhile"),
    ("rx:lan", Step::HandingOver, "worker rx:lan died meanwhile"),
    ("tx:wan", Step::HandingOver, "worker tx:wan died meanwhile"),
    ("rx:lan", Step::GoingOver, ": relinked in "),
    ("tx:wan", Step::GoingOver, ": relinked in "),
    ("rx:lan", Step::CarriedOver, ": relinked in "),
    ("tx:wan", Step::CarriedOver, ": relinked in "),
];

#[test]
fn a_service_that_dies_at_any_step_of_a_relink_takes_its_device_up_in_one_generation_or_the_other()
{
    for (service, step, told) in SERVICES {
        let what = format!("{service} at {step:?}");
        let fault = format!("{service}:{}:1", step as u32);
        let mut graph = Changing::start("service", &["--fault", &fault]);
        graph.isolate("none");
        let line = graph.reload();
        assert!(line.contains(told), "{what}: {line}");
        let went = line.contains(": relinked in ");
        graph.wait_for_traffic();
        // The next change finds all as it must be.
        let line = graph.reload();
        assert!(line.contains(": relinked in "), "{what}: {line}");
        graph.wait_for_traffic();
        let (finished, ..) = graph.finish(number, |number| *number);
        assert_eq!(finished.restarts()[service], 1, "{what}: {:#}", finished.report["workers"]);
        assert_eq!(relinks(&finished), 1 + usize::from(went), "{what}");
        // With all at rest nobody has anything that could be lost.
        let lost = finished.number("/balance/lost");
        assert!(lost <= if went { 0 } else { BATCH }, "{what}: {lost} lost");
    }
}

#[test]
fn a_worker_that_dies_when_it_is_told_to_begin_is_mended_as_ever() {
    let fault = format!("2:sizes:{}:1", Step::Begun as u32);
    let mut graph = Changing::start("begun", &["--later-fault", &fault]);
    graph.run.signal(Signal::HUP);
    graph.run.wait_for_line("the death", |l| l.contains("worker sizes died"));
    graph.wait_for_traffic();
    let (finished, came) = graph.finish_whole();
    assert_eq!((relinks(&finished), finished.restarts()["sizes"]), (1, 1));
    // What was known when it died went over all the same.
    let sizes = serde_json::to_string(&node(&finished, "sizes")["report"]).unwrap();
    assert!(sizes.contains(&came.to_string()), "{sizes}");
}

#[test]
fn a_file_that_changes_is_read_again_when_it_is_watched() {
    let mut graph = Changing::start("watch", &["--watch"]);
    std::fs::write(&graph.policy, LONGER).unwrap();
    let line = graph.outcome();
    assert!(line.contains(": relinked in "), "{line}");
    graph.wait_for_traffic();
    graph.finish_whole();
}

#[test]
fn an_interrupt_while_a_next_generation_stands_by_drains_the_one_that_runs() {
    let graph = Changing::start("interrupt", &[]);
    let before = processes(&graph.run);
    // One of the next generation cannot be ready while it is stopped, so the interrupt comes in the middle.
    graph.run.signal(Signal::HUP);
    let mut next = None;
    wait_until("a worker of the next generation", PATIENCE, || {
        next = processes(&graph.run).into_iter().find(|pid| !before.contains(pid));
        next.is_some()
    });
    let next = next.unwrap();
    kill_process(next, Signal::STOP).unwrap();
    graph.run.signal(Signal::INT);
    let (out, finished) = (graph.out(), graph.run.finish());
    finished.assert_sound("interrupted");
    // Stopped in time it kept the change from being made; the stop may have come too late.
    let told = |what: &str| finished.said.iter().any(|line| line.contains(what));
    assert!(told("the graph ends") || told(": relinked in "), "{:?}", finished.said);
    assert_eq!(state_of(next), None, "it is left");
    let numbers = read_capture(&out, number);
    let all: Vec<u64> = (0..finished.number("/balance/in")).collect();
    assert!(numbers == all, "{} of {} packets", numbers.len(), all.len());
    assert_eq!(finished.number("/balance/lost"), 0);
    drop(graph.scratch);
}

/// The processes of all workers, of both generations where there are two.
fn processes(run: &Run) -> Vec<Pid> {
    let path = |task: &std::fs::DirEntry| task.path().join("children");
    let tasks = std::fs::read_dir(proc(run.agent(), "task")).unwrap().flatten();
    let children = tasks.map(|task| std::fs::read_to_string(path(&task)).unwrap_or_default());
    let is_worker = |pid: &Pid| {
        let line = std::fs::read(proc(*pid, "cmdline")).unwrap_or_default();
        line.split(|b| *b == 0).nth(1) == Some(b"worker")
    };
    let pids = children.flat_map(|line| {
        let pids = line.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?));
        pids.collect::<Vec<_>>()
    });
    pids.filter(is_worker).collect()
}

#[test]
fn kills_at_random_during_relinks_lose_no_more_than_they_say() {
    let mut choices = Choices(22);
    let mut graph = Changing::start("kills", &[]);
    let (mut died, mut relinked, start) = (0, 0, Instant::now());
    for round in 0..12 {
        graph.isolate(if round % 2 == 0 { "none" } else { "each" });
        graph.run.signal(Signal::HUP);
        // At any time between reading and running.
        let moment = Instant::now() + Duration::from_micros(choices.below(60_000));
        while Instant::now() < moment {
            if let Some((_, line)) = graph.run.next_line(Duration::from_millis(1)) {
                relinked += u32::from(line.contains(": relinked in"));
            }
        }
        let workers: Vec<_> = graph.run.workers().into_iter().collect();
        if workers.is_empty() {
            continue;
        }
        let (_, pid) = workers[choices.below(workers.len() as u64) as usize].clone();
        died += u32::from(kill_process(pid, Signal::KILL).is_ok());
        let told = |l: &str| l.contains("relinked");
        let (_, line) = graph.run.wait_for_line("a word on the relink", told);
        relinked += u32::from(line.contains(": relinked in"));
        if start.elapsed() > PATIENCE / 2 {
            break;
        }
    }
    assert!(died > 0 && relinked > 0, "{died} died, {relinked} times relinked");
    graph.finish(number, |number| *number);
}

/// Packets of known flows stay with the first back-end when there is a second one.
fn balanced(backends: &str) -> String {
    format!(
        "Port<0> lan;  Port<1> wan;
default drop;  LoadBalancer lb {{ backends: {backends} }};  MacSwap first;  MacSwap second;  Busy slow {{ cycles: 160000 }};
pipelet {{ lan -> lb;  lb [lb.b0] -> first;  lb [lb.b1] -> second;  first -> slow;  second -> slow;  slow -> wan; }}"
    )
}

#[test]
fn what_an_nf_knows_of_flows_goes_over_with_another_configuration() {
    let mut graph = Changing::start_with("flows", PACKETS, &balanced("[0]"), &[]);
    for how in ["each", "none"] {
        graph.isolate(how);
        std::fs::write(&graph.policy, balanced("[0, 1]")).unwrap();
        let line = graph.reload();
        assert!(line.contains(": relinked in "), "{line}");
        graph.wait_for_traffic();
    }
    let (finished, came) = graph.finish_whole();
    assert_eq!(node(&finished, "first")["packets"], came);
    assert_eq!(node(&finished, "second")["packets"], 0);
}

#[test]
fn a_change_that_failed_before_it_had_come_to_rest_does_not_hinder_the_next() {
    // It must not be ended for hanging before the change has come to it.
    let mut graph = Changing::start("again", &["--patience", "0"]);
    let slow = graph.run.workers()["slow"];
    kill_process(slow, Signal::STOP).unwrap();
    let line = graph.reload();
    assert!(line.contains("not relinked"), "{line}");
    let _ = kill_process(slow, Signal::CONT);
    graph.wait_for_traffic();
    let line = graph.reload();
    assert!(line.contains(": relinked in "), "{line}");
    graph.wait_for_traffic();
    graph.finish(number, |number| *number);
}

/// A cycle, and two sources of which the first ends at once: its end stays in front of the cycle.
const AROUND: &str = "
Port<0> lan;  Port<1> wan;  Port<2> other;  default drop;
TtlDecrement t;  MacSwap back;
pipelet { lan -> t;  other -> t;  t [t.out && ip[8] > 60] -> back;  back -> t;  t [t.out && ip[8] <= 60] -> wan; }";

#[test]
fn a_graph_with_a_cycle_is_changed_after_one_of_its_sources_has_ended() {
    let more = ["--bind", "2=gen:rate=20000,size=64"];
    let mut graph = Changing::start_with("cycle", 500, AROUND, &more);
    for how in ["none", "each"] {
        graph.isolate(how);
        let line = graph.reload();
        assert!(line.contains(": relinked in "), "{line}");
        graph.wait_for_traffic();
    }
    graph.run.signal(Signal::INT);
    let finished = graph.run.finish();
    finished.assert_sound("cycle");
    assert_eq!(finished.number("/balance/lost"), 0);
    assert_eq!(relinks(&finished), 2);
    drop(graph.scratch);
}

/// NFs that work side by side, one of several instances, one in another trust domain.
const ALL: &str = "
Port<0> lan;  Port<1> wan;
MacSwap head;  PacketSizeHistogram sizes;  CountSubnet nets;  MacSwap many;  Busy slow { cycles: 150000 };
pipelet { lan -> head -> sizes -> nets -> many -> slow -> wan; }";

#[test]
fn stages_instances_and_trust_domains_come_and_go_at_full_load() {
    let mut graph = Changing::start_with("all", PACKETS, ALL, &[]);
    for options in
        ["--parallel always", "--instances many=2", "--domain slow=other", "--isolate none"]
    {
        graph.scratch.write("options", format!("{options}\n"));
        let line = graph.reload();
        assert!(line.contains(": relinked in "), "{options}: {line}");
        graph.wait_for_traffic();
    }
    let (finished, came) = graph.finish_whole();
    assert_eq!(relinks(&finished), 4);
    assert_eq!(node(&finished, "nets")["packets"], came);
}
