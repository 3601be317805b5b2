//! Which µNFs may work on a packet at the same time, and which stages come of it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use crate::common::Types;
use proptest::prelude::*;
use serde_json::Value;
use weir_plan::{
    Access, Allowed, Catalog, ConfigProblem, Conflict, Effect, Field, FieldSet, Isolate, NfInfo,
    Options, Parallel, SideBySide, TagInfo, TagKind, Touch, Verdict, Work, check, judge,
    parallelise, render,
};

/// A packet of the reference model: a number for each field, and tags.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Packet {
    fields: [u64; 18],
    tags: BTreeMap<String, u64>,
}

/// What a µNF of the model remembers, and what is seen of it outside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct World {
    /// By µNF: what it remembers.
    memory: [u64; 2],
    /// By µNF: its counters, which tell packets by the output they leave by.
    counters: [[u32; 16]; 2],
    /// Effects outside, in their order.
    outside: Vec<(usize, u64)>,
    /// What leaves, or nothing where a packet was dropped.
    left: Vec<Option<Packet>>,
}

fn digest(of: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

/// A µNF that uses every right that its description gives it: what it may read decides everything, what it may
/// write changes. True when it drops the packet.
fn work(who: usize, nf: &NfInfo, packet: &mut Packet, world: &mut World) -> bool {
    let touched = nf.work.touched();
    let read: Vec<u64> = touched.reads.iter().map(|f| packet.fields[f as usize]).collect();
    let tags: Vec<_> = nf.tags.iter().map(|tag| packet.tags.get(&tag.name).copied()).collect();
    let memory = &mut world.memory[who];
    let found = digest((who, &read, tags, *memory));
    world.counters[who][(found % 16) as usize] += 1;
    if nf.work.effect != Effect::Pure {
        *memory = found;
    }
    if nf.work.effect == Effect::External {
        world.outside.push((who, found));
    }
    for field in touched.writes.iter() {
        packet.fields[field as usize] = digest((found, field as usize));
    }
    for tag in &nf.tags {
        packet.tags.insert(tag.name.clone(), digest((found, &tag.name)));
    }
    nf.may_drop && found.is_multiple_of(3)
}

const PACKETS: u64 = 128;

fn packet(number: u64) -> Packet {
    Packet {
        fields: std::array::from_fn(|i| digest((number, i))),
        tags: BTreeMap::from([("t".to_owned(), number)]),
    }
}

/// One after the other: the second is not given what the first drops.
fn in_sequence(nfs: [&NfInfo; 2]) -> World {
    let mut world = World::default();
    for number in 0..PACKETS {
        let mut packet = packet(number);
        let dropped =
            work(0, nfs[0], &mut packet, &mut world) || work(1, nfs[1], &mut packet, &mut world);
        world.left.push((!dropped).then_some(packet));
    }
    world
}

/// On the same packet at the same time: now one is first, now the other, and both see each packet.
fn side_by_side(nfs: [&NfInfo; 2]) -> World {
    let mut world = World::default();
    for number in 0..PACKETS {
        let mut packet = packet(number);
        let order = if number.is_multiple_of(2) { [1, 0] } else { [0, 1] };
        let dropped = order.map(|who| work(who, nfs[who], &mut packet, &mut world));
        world.left.push((!dropped.contains(&true)).then_some(packet));
    }
    world
}

fn nf() -> impl Strategy<Value = NfInfo> {
    let touch = || prop::sample::select(vec![Touch::Nop, Touch::Nop, Touch::Read, Touch::Write]);
    let set = || prop::collection::vec(prop::sample::select(Field::ALL.to_vec()), 0..6);
    let effect = prop::sample::select(vec![Effect::Pure, Effect::Stateful, Effect::External]);
    let access = (touch(), touch(), touch(), touch());
    (access, set(), set(), effect, prop::bool::weighted(0.3), prop::bool::weighted(0.3)).prop_map(
        |((l2, l3, l4, payload), reads, writes, effect, may_drop, tag)| NfInfo {
            alone_by: Vec::new(),
            name: "nf".to_owned(),
            inputs: vec!["in".to_owned()],
            outputs: vec!["out".to_owned()],
            writes_packets: true,
            may_drop,
            domain: String::new(),
            resizes: false,
            creates: 0,
            holds: 0,
            tags: if tag {
                vec![TagInfo { name: "t".to_owned(), kind: TagKind::Flag }]
            } else {
                Vec::new()
            },
            program: None,
            work: Work {
                access: Access { l2, l3, l4, payload },
                reads: FieldSet::of(&reads),
                writes: FieldSet::of(&writes),
                effect,
                ..Work::default()
            },
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn what_may_stand_side_by_side_gives_the_same_in_either_order_and_nothing_else_does(
        first in nf(), second in nf()
    ) {
        let same = in_sequence([&first, &second]) == side_by_side([&first, &second]);
        prop_assert_eq!(judge(&first, &second).is_ok(), same, "{:?}", judge(&first, &second));
    }
}

/// A type in short: which fields it reads and writes.
fn type_of(name: &str) -> Option<NfInfo> {
    let base = Types.nf("MacSwap")?;
    let none = Access::all(Touch::Nop);
    let work = |access, reads: &[Field], writes: &[Field], cost_cycles| Work {
        access,
        reads: FieldSet::of(reads),
        writes: FieldSet::of(writes),
        effect: Effect::Stateful,
        cost_cycles,
        ..Work::default()
    };
    let l2 = Access { l2: Touch::Write, ..none };
    let l3 = Access { l2: Touch::Read, l3: Touch::Write, ..none };
    let all = Access::all(Touch::Read);
    let work = match name {
        "Swap" => work(l2, &[], &[Field::EthDst, Field::EthSrc], 700),
        "Ttl" => work(l3, &[Field::EthType, Field::Vlan], &[Field::IpTtl], 700),
        "Ports" => work(
            Access { l3: Touch::Read, l4: Touch::Read, ..none },
            &[Field::IpSrc, Field::IpDst, Field::L4Dst],
            &[],
            700,
        ),
        "Look" | "Judge" => work(all, &[], &[], 700),
        "Cheap" => work(all, &[], &[], 20),
        _ => return None,
    };
    let outputs = if name == "Look" { vec!["a", "b"] } else { vec!["out"] };
    Some(NfInfo {
        alone_by: Vec::new(),
        name: name.to_owned(),
        outputs: outputs.into_iter().map(str::to_owned).collect(),
        may_drop: name == "Judge",
        writes_packets: !matches!(name, "Ports" | "Look" | "Judge" | "Cheap"),
        work,
        ..base
    })
}

struct Some6;

impl Catalog for Some6 {
    fn nf(&self, type_name: &str) -> Option<NfInfo> {
        type_of(type_name)
    }

    fn types(&self) -> Vec<String> {
        ["Swap", "Ttl", "Ports", "Look", "Judge", "Cheap"].map(str::to_owned).to_vec()
    }

    fn check_config(&self, _: &str, _: &Value) -> Result<(), ConfigProblem> {
        Ok(())
    }
}

fn options(isolate: Isolate, online: usize) -> Options {
    Options { isolate, cores: None, online, domains: BTreeMap::new(), ..Options::default() }
}

/// The stages of a policy over `nfs` (declarations) and `edges`, with enough cores; as text without headings.
fn planned(nfs: &str, edges: &str, options: &Options) -> (Parallel, Vec<String>) {
    let text = format!("Port<0> lan; Port<1> wan; {nfs} pipelet {{ {edges} }}");
    let checked = check(&text, &Some6)
        .unwrap_or_else(|errors| panic!("{}", render(&errors, "test.weir", &text)));
    let parallel = parallelise(&checked.graph, options, SideBySide::Auto);
    let said = parallel.to_text(&checked.graph);
    let lines = said.lines().filter_map(|line| line.strip_prefix("  ")).map(str::to_owned);
    (parallel, lines.collect())
}

const ENOUGH: usize = 9;

#[test]
fn what_follows_each_other_and_touches_different_fields_is_one_stage() {
    let (_, said) = planned(
        "Swap s; Ttl t; Ports p; Swap again;",
        "lan -> s -> t -> p -> again -> wan;",
        &options(Isolate::Each, ENOUGH),
    );
    assert_eq!(
        said,
        [
            "s | t | p: side by side on 3 cores, saves 59 % of the stage's latency",
            "s, again: both write the destination MAC address",
        ]
    );
}

#[test]
fn only_the_last_of_a_stage_may_drop() {
    let (parallel, said) = planned(
        "Look a; Judge b; Look c;",
        "lan -> a -> b -> c -> wan;",
        &options(Isolate::Each, ENOUGH),
    );
    assert_eq!(parallel.stages.len(), 1);
    assert_eq!(
        said,
        [
            "a | b: side by side on 2 cores, saves 42 % of the stage's latency",
            "b, c: b may drop, and what it drops must not get further",
        ]
    );
}

#[test]
fn where_packets_divide_or_join_no_stage_reaches_across() {
    let (parallel, said) = planned(
        "Look a; Look b; Look c;",
        "lan -> a; a [a.a] -> b -> c; a [a.b] -> c; c -> wan;",
        &options(Isolate::Each, ENOUGH),
    );
    assert_eq!(parallel.stages, []);
    assert_eq!(
        said,
        [
            "a, b: packets of a divide",
            "a, c: packets of a divide",
            "b, c: c has packets from elsewhere too",
        ]
    );
    // By whichever output, all packets go there: that is no division.
    let (parallel, _) = planned(
        "Look a; Look b;",
        "lan -> a; a [a.a] -> b; a [a.b] -> b; b -> wan;",
        &options(Isolate::Each, ENOUGH),
    );
    assert_eq!(parallel.stages.len(), 1);
}

#[test]
fn what_saves_too_little_or_has_too_few_cores_stays_in_sequence_and_says_so() {
    let dear = ("Look a; Look b;", "lan -> a -> b -> wan;");
    let said = |nfs: &str, edges: &str, options| planned(nfs, edges, &options).1.join("\n");
    assert_eq!(
        said(dear.0, dear.1, options(Isolate::Each, 2)),
        "a | b: in sequence: 2 cores are needed and there is 1 for NFs; 42 % of the stage's latency would be saved"
    );
    assert_eq!(
        said(dear.0, dear.1, options(Isolate::None, ENOUGH)),
        "a | b: in sequence: one worker runs all NFs"
    );
    assert_eq!(
        said("Cheap a; Cheap b;", "lan -> a -> b -> wan;", options(Isolate::Each, ENOUGH)),
        "a | b: in sequence: branching and joining would cost more than it saves"
    );
}

#[test]
fn packets_of_other_trust_domains_are_not_shared() {
    let mut apart = options(Isolate::Each, ENOUGH);
    apart.domains.insert("b".to_owned(), "theirs".to_owned());
    let (parallel, said) = planned("Look a; Look b;", "lan -> a -> b -> wan;", &apart);
    assert!(parallel.stages.is_empty());
    assert_eq!(said, ["a, b: they are in different trust domains"]);
}

#[test]
fn each_reason_against_is_named() {
    let look = type_of("Look").unwrap();
    let with = |change: fn(&mut NfInfo)| {
        let mut nf = look.clone();
        change(&mut nf);
        nf
    };
    let letter = |a: &NfInfo, b: &NfInfo| judge(a, b).unwrap_err().letter();
    assert_eq!(letter(&with(|nf| nf.may_drop = true), &look), 'd');
    assert_eq!(letter(&look, &with(|nf| nf.resizes = true)), 'r');
    assert_eq!(letter(&with(|nf| nf.creates = 1), &look), 'm');
    assert_eq!(letter(&look, &with(|nf| nf.holds = 1)), 'm');
    let ttl = type_of("Ttl").unwrap();
    assert_eq!(
        judge(&look, &ttl),
        Err(Conflict::WriteRead {
            writer: "Ttl".to_owned(),
            reader: "Look".to_owned(),
            field: Field::IpTtl
        })
    );
    assert_eq!(judge(&look, &look), Ok(Allowed::OnlyRead));
    assert_eq!(judge(&ttl, &type_of("Swap").unwrap()), Ok(Allowed::Disjoint));
}

#[test]
fn a_verdict_has_the_numbers_of_the_cost_model() {
    let (parallel, _) =
        planned("Look a; Look b;", "lan -> a -> b -> wan;", &options(Isolate::Each, ENOUGH));
    // 2 x (700 + 60) in sequence; 700 + 60 + 2 x 60 side by side.
    let Verdict::Parallel { saved, cores: 2 } = parallel.stages[0].verdict else {
        panic!("{parallel:?}")
    };
    assert!((saved - 640.0 / 1520.0 * 100.0).abs() < 1e-9, "{saved}");
}
