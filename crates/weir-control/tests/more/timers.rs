//! Timers over a change of the graph.

use super::*;

/// Packets of `a` go past the alarm in the first two; only those of `b` set it.
const BEFORE: &str =
    "Port<0> a; Port<1> b; Port<2> of_a; Port<3> of_b; Port<4> past; Alarm x; Null n;
    pipelet { a [arp] -> x; a [!arp] -> past; b -> x; x -> n;
              n [ingress == 0] -> of_a; n [ingress == 1] -> of_b; }";

/// The same with the sources in the other order, and one NF more on the alarm's way.
const REORDERED: &str =
    "Port<1> b; Port<0> a; Port<2> of_a; Port<3> of_b; Port<4> past; Alarm x; Null m; Null n;
    pipelet { b -> x; a [arp] -> x; a [!arp] -> past; x -> m -> n;
              n [ingress == 0] -> of_a; n [ingress == 1] -> of_b; }";

/// Who set the timer does not come any more.
const WITHOUT: &str =
    "Port<0> a; Port<1> b; Port<2> of_a; Port<3> of_b; Port<4> past; Alarm x; Null n;
    pipelet { a [arp] -> x; a [!arp] -> past; b -> past; x -> n;
              n [ingress == 0] -> of_a; n [!(ingress == 0)] -> of_b; }";

pub(crate) fn come_by_their_source_after_a_relink() {
    let binds = BTreeMap::from([
        (0, "gen:rate=1".parse().unwrap()),
        (1, "gen:rate=1,seed=2".parse().unwrap()),
        (2, DeviceSpec::Null),
        (3, DeviceSpec::Null),
        (4, DeviceSpec::Null),
    ]);
    let options = RunOptions::default();
    let captures = devices::scan(&binds).unwrap();
    let plans = [BEFORE, REORDERED, WITHOUT].map(|policy| {
        let graph = weir_plan::check(policy, &Library).unwrap_or_else(|e| panic!("{e:?}")).graph;
        Plan::build(&graph, &Options { isolate: Isolate::Each, online: 2, ..Options::default() })
            .unwrap()
    });
    let wired = |n: usize| wire(&plans[n], &binds, &captures, &options).unwrap();
    let mut agent = Agent::start(wired(0), RestartPolicy::default()).unwrap();
    let end = Instant::now() + PATIENCE;
    // By which generation: alarms that left by `of_a` and by `of_b`.
    let (mut alarms, mut generation) = (Vec::new(), 0);
    let mut finished = false;
    while !finished {
        assert!(Instant::now() < end, "after {generation} changes {alarms:?}");
        agent.turn(Duration::from_millis(1)).unwrap();
        for event in std::iter::from_fn(|| agent.event()).collect::<Vec<_>>() {
            match event {
                Event::Relinked(_) => generation += 1,
                Event::NotRelinked { why } => panic!("{why}"),
                Event::Finished => finished = true,
                _ => {}
            }
        }
        if agent.is_relinking() || alarms.len() > generation {
            continue;
        }
        let came = ["tx:of_a", "tx:of_b"].map(|name| seen(&agent, worker(&agent, name)));
        if came != [0, 0] {
            alarms.push(came.map(|n| n > 0));
            match generation {
                2 => agent.stop(),
                n => agent.relink(wired(n + 1)).unwrap(),
            }
        }
    }
    assert_eq!(alarms, [[false, true], [false, true], [true, false]]);
    let census = agent.dismiss();
    let report = Report::of(&plans[2], &agent, census, 0.0);
    assert!(report.sound, "{:?} {:?}", report.balance, report.census);
}
