//! Workers of the real-time class that always have work leave it for moments, as the kernel would take their cores from them for longer.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod common_crash;

use common_crash::*;
use rustix::process::Signal;

/// What real-time tasks may have of each second, in microseconds; -1: all of it.
fn allowed() -> i64 {
    let text = std::fs::read_to_string("/proc/sys/kernel/sched_rt_runtime_us").unwrap();
    text.trim().parse().unwrap()
}

#[test]
fn who_always_has_work_leaves_the_real_time_class_for_moments_and_comes_back() {
    let skipped =
        |why: &str| println!("skipped: who_always_has_work_leaves_the_real_time_class: {why}");
    let ours = rustix::thread::sched_getaffinity(None).unwrap();
    let all: Vec<String> = (0..1024).filter(|c| ours.is_set(*c)).map(|c| c.to_string()).collect();
    let [first, own, ..] = &all[..] else { return skipped("one core") };
    // By a thread that ends with it.
    if std::thread::spawn(|| weir_mem::realtime::set_fifo(None, 1)).join().unwrap().is_err() {
        return skipped("the real-time class is not permitted");
    }
    if !(0..1_000_000).contains(&allowed()) {
        return skipped("this kernel lets real-time tasks have all of a core");
    }
    let scratch = Scratch::new("breath");
    let policy = scratch.policy(
        "Port<0> lan; Port<1> wan; Busy one { cycles: 3000 }; MacSwap two; pipelet { lan -> one -> two -> wan; }",
    );
    let cores = format!("{first},{own}");
    let args = ["--bind", "0=gen", "--bind", "1=null", "--cores", &cores, "--isolate", "each"];
    let run = Run::start(&policy, &args);
    run.wait_for_workers(4);
    let all_are = |class: bool| {
        let workers = run.workers();
        ["one", "two"].iter().all(|nf| workers.get(*nf).is_some_and(|w| is_real_time(*w) == class))
    };
    wait_until("both to be in the real-time class", PATIENCE, || all_are(true));
    for _ in 0..3 {
        wait_until("both to leave it", PATIENCE, || all_are(false));
        wait_until("both to be back", PATIENCE, || all_are(true));
    }
    run.signal(Signal::INT);
    let finished = run.finish();
    finished.assert_sound("breath");
    assert_eq!(finished.number("/balance/lost"), 0, "{:#}", finished.report);
}
