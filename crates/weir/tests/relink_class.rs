//! Workers that are in the real-time class no more after a change stand by on other cores, and begin on their own.
#![cfg(feature = "faults")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod common_crash;
mod common_moves;

use common_crash::*;
use common_moves::weir;
use rustix::process::Signal;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use weir_mem::fault::Step;

const POLICY: &str = "
Port<0> lan;  Port<1> wan;
FlowMonitor one;  FlowMonitor two;
pipelet { lan -> one -> two -> wan; }";

const FLOWS: u64 = 200;

/// Says of all of the machine's cores but `own` that another graph has real-time workers there, as graphs tell each other: none is left then.
fn claim_all_but(own: &str) -> Vec<UnixDatagram> {
    let claim = |core: usize| {
        let name = format!("weir-real-time/{}/0/{core}", std::process::id());
        UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(name).unwrap()).unwrap()
    };
    let cores = std::thread::available_parallelism().unwrap().get().max(64);
    (0..cores).filter(|core| core.to_string() != own).map(claim).collect()
}

fn skipped(why: &str) {
    println!("skipped: who_leaves_the_real_time_class_by_a_change_ends_up_on_its_own_core: {why}");
}

#[test]
fn who_leaves_the_real_time_class_by_a_change_ends_up_on_its_own_core() {
    let ours = rustix::thread::sched_getaffinity(None).unwrap();
    let all: Vec<String> = (0..1024).filter(|c| ours.is_set(*c)).map(|c| c.to_string()).collect();
    let [first, own, ..] = &all[..] else { return skipped("one core") };
    // By a thread that ends with it.
    if std::thread::spawn(|| weir_mem::realtime::set_fifo(None, 1)).join().unwrap().is_err() {
        return skipped("the real-time class is not permitted");
    }
    let scratch = Scratch::new("relink-class");
    let (policy, socket) = (scratch.policy(POLICY), scratch.file("control"));
    let path = socket.display().to_string();
    let source = format!("0=gen:flows={FLOWS},rate=20000");
    let both = format!("{first},{own}");
    // Whoever stands by in the third change dies of it.
    let fault = format!("4:one+two:{}:1", Step::StandingBy as u32);
    let args = ["--bind", &source, "--bind", "1=null", "--cores", &both, "--control", &path];
    let args = [&args[..], &["--isolate", "each", "--later-fault", &fault]].concat();
    let run = Run::start(&policy, &args);
    run.wait_for_workers(4);
    let of = |name: &str| run.workers().get(name).copied();
    let are_real_time = || ["one", "two"].iter().all(|nf| of(nf).is_some_and(is_real_time));
    wait_until("two on one core to be in the real-time class", PATIENCE, are_real_time);
    wait_until("the socket", PATIENCE, || socket.exists());
    let counts = || {
        let said = weir(&socket, &["get", "flows"]);
        common_moves::counted(&said).filter(|_| said.code == Some(0))
    };
    wait_until("all flows", PATIENCE, || counts() == Some(vec![FLOWS, FLOWS]));

    let claims = claim_all_but(own);
    let changed = weir(&socket, &["set", "--isolate", "none"]);
    assert_eq!(changed.code, Some(0), "{changed:?}");
    let fused = of("one+two").unwrap();
    assert!(!is_real_time(fused), "it would leave no core to others");
    assert_eq!(status(fused, "Cpus_allowed_list"), *own);
    wait_until("all flows to have come along", PATIENCE, || counts() == Some(vec![FLOWS, FLOWS]));

    // And back.
    drop(claims);
    let changed = weir(&socket, &["set", "--isolate", "each"]);
    assert_eq!(changed.code, Some(0), "{changed:?}");
    wait_until("two on one core to be in the real-time class", PATIENCE, are_real_time);
    for nf in ["one", "two"] {
        assert_eq!(status(of(nf).unwrap(), "Cpus_allowed_list"), *own, "{nf}");
    }

    // Once more, and who stands by dies.
    let _claims = claim_all_but(own);
    let died = weir(&socket, &["set", "--isolate", "none"]);
    assert_ne!(died.code, Some(0), "{died:?}");
    assert!(died.error.contains("one+two died before it began"), "{died:?}");
    // But for moments: those who are busy leave the class for them.
    wait_until("who was to be gone to go on as it was", PATIENCE, are_real_time);
    wait_until("all flows to be where they were", PATIENCE, || {
        counts() == Some(vec![FLOWS, FLOWS])
    });
    run.signal(Signal::INT);
    let finished = run.finish();
    finished.assert_sound("class");
    assert_eq!(finished.number("/balance/lost"), 0, "{:#}", finished.report);
}
