use super::*;
use crate::audit::clear_lanes;
use crate::census::Census;
use crate::library::Library;
use crate::places;
use crate::wiring::{RunOptions, wire};
use rustix::fd::AsRawFd;
use std::collections::{BTreeMap, BTreeSet};
use weir_device::DeviceSpec;
use weir_mem::{Owner, Seq};
use weir_nfs as _;
use weir_plan::{Isolate, Options, Plan};

/// A chain whose middle is in another trust domain.
fn guest_in_the_middle() -> Setup {
    chain(BTreeMap::from([("guest".to_owned(), "theirs".to_owned())]), None)
}

fn chain(domains: BTreeMap<String, String>, cores: Option<Vec<usize>>) -> Setup {
    let policy = "Port<0> lan; Port<1> wan; MacSwap a; MacSwap guest; MacSwap b;
        pipelet { lan -> a; a -> guest; guest -> b; b -> wan; }";
    wired(policy, domains, cores)
}

fn wired(policy: &str, domains: BTreeMap<String, String>, cores: Option<Vec<usize>>) -> Setup {
    let graph = weir_plan::check(policy, &Library).unwrap().graph;
    let options =
        Options { isolate: Isolate::Each, cores, online: 2, domains, ..Options::default() };
    let plan = Plan::build(&graph, &options).unwrap();
    let binds = BTreeMap::from([(0, "gen:packets=1".parse().unwrap()), (1, DeviceSpec::Null)]);
    let options = RunOptions { pool: Some(64), ..RunOptions::default() };
    wire(&plan, &binds, &BTreeMap::new(), &options).unwrap()
}

fn worker(setup: &Setup, name: &str) -> usize {
    setup.workers.iter().position(|w| w.name == name).unwrap()
}

#[test]
fn a_worker_is_lent_the_doorbells_of_those_whom_it_wakes_and_no_others() {
    let setup = guest_in_the_middle();
    let memory = Memory::new(&setup).unwrap();
    let lent = |w: usize| -> BTreeSet<&str> {
        let (_, fds) = memory.spec(&setup, w, None, None).unwrap();
        let fds: Vec<i32> = fds.as_fds().iter().map(AsRawFd::as_raw_fd).collect();
        let with_names = memory.workers.iter().zip(&setup.workers);
        with_names
            .filter(|(other, _)| fds.contains(&other.bell.fd().as_raw_fd()))
            .map(|(_, other)| other.name.as_str())
            .collect()
    };
    // Itself, both ends of its lanes, and whose pools it gives back to: in the graph's own domain the Rx
    // service and the gate that leads back have one, in the guest's the gate that leads there.
    let (there, back) = ("gate:a -> guest", "gate:guest -> b");
    for (name, wanted) in [
        ("rx:lan", vec!["rx:lan", "a", back]),
        ("a", vec!["a", "rx:lan", there, back]),
        (there, vec![there, "a", "guest", "rx:lan", back]),
        ("guest", vec!["guest", there, back]),
        (back, vec![back, "guest", "b", there]),
        ("b", vec!["b", back, "tx:wan", "rx:lan"]),
        ("tx:wan", vec!["tx:wan", "b", "rx:lan", back]),
    ] {
        assert_eq!(lent(worker(&setup, name)), wanted.into_iter().collect(), "{name}");
    }
}

#[test]
fn a_service_with_another_packet_socket_does_not_go_on_at_the_place_in_the_old_ones_ring() {
    let setup = guest_in_the_middle();
    let mut memory = Memory::new(&setup).unwrap();
    let rx = worker(&setup, "rx:lan");
    let layout = memory.workers[rx].layout;
    let mut words = vec![9; layout.len];
    words[layout.place..layout.seq].copy_from_slice(&[1000, 77, 2048, 3, 0, 1]);
    memory.workers[rx].ledger.reset(&words);
    memory.begin_at_new_socket(rx, 12);
    assert_eq!(memory.place(rx), [1000, 0, 0, 0, 12, 1], "it counts what was left");
    // Nothing else of its record is concerned.
    words[layout.place..layout.seq].copy_from_slice(&[1000, 0, 0, 0, 12, 1]);
    assert_eq!(memory.workers[rx].ledger.read(), Some(words));
}

#[test]
fn who_brings_packets_to_a_core_wakes_those_behind_it_there_and_in_its_domain() {
    let followers = |setup: &Setup, name: &str| -> Vec<String> {
        let found = setup.followers(worker(setup, name));
        found.map(|w| setup.workers[w].name.clone()).collect()
    };
    let two = chain(BTreeMap::new(), Some(vec![0, 1]));
    assert_eq!(followers(&two, "a"), ["guest", "b"]);
    for other in ["rx:lan", "guest", "b", "tx:wan"] {
        assert_eq!(followers(&two, other), Vec::<String>::new(), "{other}");
    }
    let one = chain(BTreeMap::new(), Some(vec![0]));
    assert_eq!(followers(&one, "rx:lan"), ["a", "guest", "b", "tx:wan"]);
    assert_eq!(followers(&one, "a"), Vec::<String>::new());
    let anywhere = chain(BTreeMap::new(), None);
    assert_eq!(followers(&anywhere, "rx:lan"), Vec::<String>::new());
    let domains = BTreeMap::from([("guest".to_owned(), "theirs".to_owned())]);
    let apart = chain(domains, Some(vec![0, 1]));
    for w in ["rx:lan", "a", "guest", "b", "tx:wan"] {
        assert_eq!(followers(&apart, w), Vec::<String>::new(), "{w}");
    }
}

#[test]
fn a_core_has_one_word_that_calls_its_workers_to_sleep_and_only_the_first_may_write_it() {
    let two = chain(BTreeMap::new(), Some(vec![0, 1]));
    let memory = Memory::new(&two).unwrap();
    let muster = |name: &str| {
        let (spec, fds) = memory.spec(&two, worker(&two, name), None, None).unwrap();
        let fd = fds.as_fds()[usize::from(spec.muster?)].try_clone_to_owned().unwrap();
        Some(Region::from_fd(fd, Muster::LEN).unwrap())
    };
    let first = Muster::attach(&muster("a").unwrap(), true).unwrap();
    for follower in ["guest", "b"] {
        let region = muster(follower).unwrap();
        assert!(Muster::attach(&region, true).is_err(), "{follower} may write");
        let seen = Muster::attach(&region, false).unwrap();
        first.call(true);
        assert!(seen.calls(), "{follower}");
        first.call(false);
        assert!(!seen.calls(), "{follower}");
    }
    // On the services' core, by themselves.
    assert!(muster("rx:lan").is_none() && muster("tx:wan").is_none());
}

#[test]
fn no_more_packets_are_believed_to_be_held_than_a_domain_has_buffers() {
    let setup = guest_in_the_middle();
    let mut memory = Memory::new(&setup).unwrap();
    let guest = worker(&setup, "guest");
    let layout = memory.workers[guest].layout;
    let mut says = |held: u64| {
        let region = &memory.workers[guest].ledger_region;
        let mut words = vec![0; layout.len];
        words[layout.held] = held;
        LedgerWriter::attach(region, layout.len).unwrap().commit(&words);
        memory.take_held(&setup, guest)
    };
    // One pool: the gate's.
    assert_eq!([says(3), says(64), says(u64::from(u32::MAX))], [3, 64, 64]);
    assert_eq!(memory.take_held(&setup, guest), 0, "only once");
}

#[test]
fn a_successor_does_not_find_what_was_cleared() {
    let setup = guest_in_the_middle();
    let memory = Memory::new(&setup).unwrap();
    let kept = |name: &str| {
        let region = memory.workers[worker(&setup, name)].state.as_ref().unwrap();
        KeptState::attach(region).unwrap()
    };
    kept("guest").write(b"poison").unwrap();
    kept("a").write(b"fine").unwrap();
    memory.clear_kept(worker(&setup, "guest"));
    // A service has none: nothing to do.
    memory.clear_kept(worker(&setup, "rx:lan"));
    assert_eq!((kept("guest").read(), kept("a").read()), (None, Some(b"fine".to_vec())));
}

/// The lane from the gate to the guest.
fn into_guest(setup: &Setup) -> usize {
    setup.lanes.iter().position(|lane| lane.to == worker(setup, "guest")).unwrap()
}

fn packet(buffer: u32) -> Entry {
    Entry::packet(buffer, 0, 60, Seq::new(buffer.into()), 0)
}

fn write(setup: &Setup, memory: &Memory, entries: &[Entry]) {
    let mut producer = memory.lanes[into_guest(setup)].produce().unwrap();
    for entry in entries {
        assert!(producer.stage(*entry));
    }
    producer.publish();
}

#[test]
fn what_lies_in_lanes_when_all_have_ended_goes_home_once() {
    let setup = guest_in_the_middle();
    let mut memory = Memory::new(&setup).unwrap();
    let nonsense = Entry::packet(9_999, 0, 60, Seq::new(0), 0);
    write(&setup, &memory, &[packet(1), packet(2), packet(1), nonsense]);
    let d = setup.workers[worker(&setup, "guest")].domain;
    // The pool's worker has taken its buffers, and passed on two.
    let p = memory.pools.iter().position(|p| p.domain == d).unwrap();
    memory.pools[p].allocation.inspector.clear();
    memory.pools[p].give.resync();
    let gate = Owner(memory.pools[p].worker as u32 + 1);
    (0..64).for_each(|b| memory.domains[d].owners.set(b, gate));
    let before = Census::of_domain(&setup, &memory, d);
    assert_eq!(clear_lanes(&setup, &mut memory, d), 2);
    let after = Census::of_domain(&setup, &memory, d);
    assert_eq!((before.in_lanes, after.in_lanes), (3, 0));
    // Three entries were two buffers.
    assert_eq!(after.free, before.free + 2);
    assert_eq!(after.free + after.held, after.buffers);
    assert_eq!(clear_lanes(&setup, &mut memory, d), 0);
}

/// Worker `b` stands for one that was hostile, and is dead.
#[test]
fn packets_with_places_that_their_producer_has_not_come_to_get_others_and_promises_follow() {
    let policy = "Port<0> lan; Port<1> wan; MacSwap a; CheckIpHeader b; MacSwap c;
        pipelet { lan -> a; a -> b; b [b.ip] -> c; b [b.non_ip] -> c; c -> wan; }";
    let setup = wired(policy, BTreeMap::new(), None);
    let memory = Memory::new(&setup).unwrap();
    let (b, c) = (worker(&setup, "b"), worker(&setup, "c"));
    let into = setup.lanes.iter().position(|lane| lane.to == b).unwrap();
    let give = |lane: usize, seqs: &[u64]| {
        let mut producer = memory.lanes[lane].produce().unwrap();
        seqs.iter().for_each(|n| assert!(producer.stage(packet(0).with_seq(Seq::new(*n)))));
        producer.publish();
    };
    // The source has come further than all of them.
    let into_a = setup.lanes.iter().position(|lane| lane.to == worker(&setup, "a")).unwrap();
    memory.lanes[into_a].produce().unwrap().set_watermark(Seq::new(20));
    give(into, &[9, 10]);
    let between = |l: &usize| (setup.lanes[*l].from, setup.lanes[*l].to) == (b, c);
    let out: Vec<usize> = (0..setup.lanes.len()).filter(between).collect();
    give(out[0], &[1 << 30, 4, 11]);
    assert_eq!(places::mend(&setup, &memory, 0, |w| w != b), 2);
    let seqs = |l: usize| -> Vec<u64> {
        memory.lanes[l].inspector.unclaimed().iter().map(|entry| entry.seq().get()).collect()
    };
    assert_eq!((seqs(out[0]), seqs(into)), (vec![4, 4, 9], vec![9, 10]));
    for &l in &out {
        assert_eq!(memory.lanes[l].inspector.watermark(), Seq::new(9), "of what b has not given");
    }
    assert_eq!(places::mend(&setup, &memory, 0, |w| w != b), 0);
}

#[test]
fn nobody_promises_what_a_source_has_not_sent_and_who_does_is_found() {
    let policy = "Port<0> lan; Port<1> wan; MacSwap a; CheckIpHeader b; MacSwap c;
        pipelet { lan -> a; a -> b; b [b.ip] -> c; b [b.non_ip] -> c; c -> wan; }";
    let setup = wired(policy, BTreeMap::new(), None);
    let memory = Memory::new(&setup).unwrap();
    let source = weir_mem::StreamEnd::attach(&memory.ends[0], true).unwrap();
    source.progress(Seq::new(1000));
    let lies = || -> Vec<usize> {
        (0..setup.lanes.len()).filter(|l| places::promises_nonsense(&setup, &memory, *l)).collect()
    };
    let between = |from: &str, to: &str| {
        let (from, to) = (worker(&setup, from), worker(&setup, to));
        setup.lanes.iter().position(|lane| (lane.from, lane.to) == (from, to)).unwrap()
    };
    let promise = |l: usize, seq: u64| {
        memory.lanes[l].produce().unwrap().set_watermark(Seq::new(seq));
    };
    let out = between("b", "c");
    promise(out, 1000);
    assert!(lies().is_empty());
    promise(out, 1 << 46);
    assert_eq!(lies(), [out]);
    // Put right, it is what the lanes before it say; and of what those say no more than can be.
    let far = packet(0).with_seq(Seq::new(1 << 46));
    let mut before = memory.lanes
        [setup.lanes.iter().position(|l| l.to == worker(&setup, "a")).unwrap()]
    .produce()
    .unwrap();
    assert!(before.stage(far));
    before.publish();
    let b = worker(&setup, "b");
    places::mend(&setup, &memory, 0, |w| w != b);
    assert!(lies().is_empty());
    assert_eq!(memory.lanes[between("a", "b")].inspector.watermark(), Seq::new(1000));
}
