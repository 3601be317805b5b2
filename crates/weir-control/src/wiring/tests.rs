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
