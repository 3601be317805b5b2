//! NFs that make packets, in several instances, with packets of many ports and few buffers: copies of one port's packets that wait
//! further on, for those of it that another instance has, take no buffer from the other ports' packets.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_crash::*;
use rustix::process::{Signal, kill_process};
use std::time::{Duration, Instant};

/// Packets of that many ports are copied; they and their copies meet again in front of one NF.
fn policy(ports: u16) -> String {
    let mut text = format!("Port<{ports}> out;  Tee t;  MacSwap x;\n");
    for port in 0..ports {
        text += &format!("Port<{port}> p{port};  pipelet {{ p{port} -> t; }}\n");
    }
    text + "pipelet { t [t.out] -> x;  t [t.copy] -> x;  x -> out; }"
}

/// Kills instances one after the other while packets come as fast as they can. If some wait for each other for ever then, the run
/// has to be cut short.
fn kill_some(ports: u16, instances: u64, ring: &str, choices: &mut Choices) {
    const KILLS: u32 = 25;
    let what = format!("{ports} ports, {instances} instances, rings of {ring}");
    let scratch = Scratch::new("tees");
    let policy = scratch.policy(&policy(ports));
    let mut args: Vec<String> = Vec::new();
    for port in 0..ports {
        args.extend(["--bind".into(), format!("{port}=gen:rate=max,seed={port}")]);
    }
    let more = format!(
        "--bind {ports}=null --instances t={instances} --pool 64 --ring {ring} --restart-delay 0"
    );
    args.extend(more.split(' ').map(str::to_owned));
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut run = Run::start(&policy, &args);
    run.wait_for_workers(usize::from(ports) + instances as usize + 2);
    for kill in 0..KILLS {
        let name = format!("t#{}", 1 + choices.below(instances));
        let mut lives =
            || run.workers().get(&name).is_some_and(|pid| kill_process(*pid, Signal::KILL).is_ok());
        wait_until("an instance to kill", PATIENCE, &mut lives);
        let end = Instant::now() + Duration::from_millis(choices.below(200));
        let left = || end.saturating_duration_since(Instant::now());
        while let Some((_, line)) = run.next_line(left()) {
            assert!(!line.contains("stands still"), "{what}, kill {kill}: {line}");
        }
    }
    run.signal(Signal::INT);
    let finished = run.finish();
    finished.assert_sound(&what);
    assert!(finished.number("/balance/copied") > 0, "{what}: {:#}", finished.report);
}

#[test]
fn instances_that_copy_do_not_wait_for_each_other_for_ever_whoever_dies() {
    let mut choices = Choices(7);
    // Where buffers are what they could wait for, and where rings are.
    for (ports, instances, ring) in [(16, 4, "1024"), (8, 3, "64"), (16, 6, "64")] {
        kill_some(ports, instances, ring, &mut choices);
    }
}

/// Who takes one port's packets is away for longer than the patience, and the other port's go on meanwhile: whoever makes packets of both
/// has no buffers for the first and does right not to take them.
#[test]
fn who_waits_for_buffers_of_one_port_is_not_named_for_taking_the_others_packets() {
    const POLICY: &str = "
Port<0> a;  Port<1> b;  Port<2> of_a;  Port<3> of_b;
Tee t;  Tee u;  Null n;  MacSwap s;
pipelet { a -> t;  b -> t;  t [t.out] -> u;  t [t.copy] -> u;  u [u.out] -> n;  u [u.copy] -> n;
          n [ingress == 0] -> s;  n [ingress == 1] -> of_b;  s -> of_a; }";
    let scratch = Scratch::new("tees-away");
    let policy = scratch.policy(POLICY);
    let args = "--bind 0=gen:rate=max --bind 1=gen:rate=max,seed=2 --bind 2=null --bind 3=null \
                --pool 64 --ring 1024 --patience 0.5 --restart-delay 60000";
    let mut run = Run::start(&policy, &args.split_whitespace().collect::<Vec<_>>());
    run.wait_for_workers(8);
    run.kill_often("s", 9);
    run.wait_for_line("its successor", |line| line.contains("worker s runs again"));
    run.signal(Signal::INT);
    let finished = run.finish();
    finished.assert_sound("one port waits");
    let restarts = finished.restarts();
    let named: Vec<_> = restarts.iter().filter(|(name, n)| *name != "s" && **n > 0).collect();
    assert!(named.is_empty() && restarts["s"] == 9, "{restarts:?}: {:#?}", finished.said);
}

#[test]
fn with_too_few_buffers_for_a_packet_of_each_port_it_is_refused_before_anything_runs() {
    let scratch = Scratch::new("tees-few");
    let policy = scratch.policy(&policy(40));
    let mut weir = std::process::Command::new(env!("CARGO_BIN_EXE_weir"));
    weir.arg("run").arg(policy).args(["--instances", "t=2", "--bind", "40=null", "--pool", "64"]);
    (0..40).for_each(|port| {
        weir.args(["--bind", &format!("{port}=gen:packets=1")]);
    });
    let refused = weir.output().unwrap();
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(2), "{said}");
    let wanted = "--pool 64: worker t#1 copies or makes packets of 40 ports";
    assert!(said.contains(wanted) && said.contains("--pool 128"), "{said}");
}
