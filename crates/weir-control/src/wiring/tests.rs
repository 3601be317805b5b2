use super::*;
use crate::library::Library;
use weir_nfs as _;
use weir_plan::{Catalog, ConfigProblem, Isolate, NfInfo, Options, ProgramId};

/// The library, in which `Busy` is an outside program's.
struct BusyIsOutside;

impl Catalog for BusyIsOutside {
    fn nf(&self, type_name: &str) -> Option<NfInfo> {
        let program = (type_name == "Busy").then_some(ProgramId(0));
        Library.nf(type_name).map(|info| NfInfo { program, ..info })
    }

    fn types(&self) -> Vec<String> {
        Library.types()
    }

    fn check_config(&self, name: &str, config: &serde_json::Value) -> Result<(), ConfigProblem> {
        Library.check_config(name, config)
    }
}

#[test]
fn an_outside_program_is_not_in_the_real_time_class_and_nobody_keeps_it_from_its_core() {
    let policy = "Port<0> lan; Port<1> wan; MacSwap a; MacSwap b; Busy theirs; MacSwap c;
        pipelet { lan -> a; a -> b; b -> theirs; theirs -> c; c -> wan; }";
    let graph = weir_plan::check(policy, &BusyIsOutside).unwrap().graph;
    let options = Options {
        isolate: Isolate::Each,
        // Services on the first; `a` and `b` on the second, `theirs` and `c` on the third.
        cores: Some(vec![0, 1, 2]),
        online: 8,
        domains: BTreeMap::new(),
        ..Options::default()
    };
    let plan = Plan::build(&graph, &options).unwrap();
    let binds = BTreeMap::from([(0, "gen:packets=1".parse().unwrap()), (1, DeviceSpec::Null)]);
    let setup = wire(&plan, &binds, &BTreeMap::new(), &RunOptions::default()).unwrap();
    let place = |name: &str| {
        let worker = setup.workers.iter().find(|w| w.name == name).unwrap();
        (worker.schedule.core, worker.schedule.real_time)
    };
    let places = ["a", "b", "theirs", "c"].map(place);
    assert_eq!(places, [(Some(1), true), (Some(1), true), (Some(2), false), (Some(2), false)]);
}

#[test]
fn a_way_of_a_live_interface_that_the_policy_does_not_use_is_said() {
    let said = |pipelet: &str, devices: [&str; 2]| {
        let policy = format!(
            "Port<0> wan; Port<1> lan; MacSwap s; pipelet {{ wan -> s; s -> lan; {pipelet} }}"
        );
        let graph = weir_plan::check(&policy, &Library).unwrap().graph;
        let plan = Plan::build(&graph, &Options::default()).unwrap();
        let binds = (0..).zip(devices.map(|device| device.parse().unwrap())).collect();
        crate::devices::unused_ways(&plan, &binds)
    };
    let live = ["afp:eth0", "tap:weir0"];
    let one_way = said("", live);
    let wanted = [
        "no edge leads to port 0 (`wan`): nothing leaves by eth0",
        "no edge begins at port 1 (`lan`): nothing that comes in by weir0",
    ];
    assert_eq!(one_way.len(), wanted.len(), "{one_way:?}");
    for (said, wanted) in one_way.iter().zip(wanted) {
        assert!(said.contains(wanted), "{said}");
    }
    assert!(said("lan -> wan;", live).is_empty());
    // Who drops what comes back has thought of it; still nothing leaves by the first.
    assert_eq!(said("lan -> Drop;", live).len(), 1);
    // Of others it is right to have one way only.
    assert!(said("", ["gen:packets=1", "null"]).is_empty());
}

/// How a policy of `ports` inputs is wired whose packets pass Tees, with pools of so many buffers.
fn wired(policy: &str, ports: u16, pool: u32) -> Result<Setup, WiringError> {
    let mut text = format!("Port<{ports}> out; {policy}");
    for port in 0..ports {
        text += &format!("Port<{port}> p{port}; pipelet {{ p{port} -> first; }}");
    }
    let graph = weir_plan::check(&text, &Library).unwrap().graph;
    let plan = Plan::build(&graph, &Options { isolate: Isolate::Each, ..Options::default() });
    let mut binds: BTreeMap<u16, DeviceSpec> =
        (0..ports).map(|port| (port, "gen:packets=1".parse().unwrap())).collect();
    binds.insert(ports, DeviceSpec::Null);
    let options = RunOptions { pool: Some(pool), ..RunOptions::default() };
    wire(&plan.unwrap(), &binds, &BTreeMap::new(), &options)
}

const ONE_TEE: &str = "Tee first; MacSwap x; pipelet { first -> x; x -> out; }";
const TWO_TEES: &str =
    "Tee first; Tee second; MacSwap x; pipelet { first -> second; second -> x; x -> out; }";

#[test]
fn who_copies_packets_of_several_ports_beside_another_has_buffers_for_each_of_them() {
    let shares = |policy, ports| {
        let setup = wired(policy, ports, 64).unwrap();
        let of = |name| setup.workers.iter().position(|w| w.name == name).map(|w| setup.shares(w));
        [of("first"), of("second"), of("rx:p0"), of("x")]
    };
    assert_eq!(shares(TWO_TEES, 3), [Some(3), Some(3), Some(1), Some(1)]);
    // Of one port nobody waits for another's; and one alone waits for nobody who waits for it.
    assert_eq!(shares(TWO_TEES, 1), [Some(1), Some(1), Some(1), Some(1)]);
    assert_eq!(shares(ONE_TEE, 3), [Some(1), None, Some(1), Some(1)]);
}

#[test]
fn where_a_ports_share_is_too_small_the_graph_is_refused_with_the_number_of_buffers_that_do() {
    assert!(wired(TWO_TEES, 32, 64).is_ok());
    let refused = wired(TWO_TEES, 40, 64).unwrap_err();
    assert!(
        matches!(&refused, WiringError::FewBuffers { pool: 64, worker, shares: 40, least: 128 } if worker == "first"),
        "{refused}"
    );
    assert!(refused.to_string().contains("--pool 128"), "{refused}");
    assert!(wired(TWO_TEES, 40, 128).is_ok() && wired(ONE_TEE, 40, 64).is_ok());
}
