//! Any text is parsed without a panic, and a policy prints as it parses.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common::Types;
use proptest::prelude::*;
use weir_plan::{
    AddressDecl, Bandwidth, Chain, Config, Hop, Include, InstanceDecl, Isolate, Item, Name,
    Options, Pipelet, Plan, Policy, PortDecl, Span, Spanned, Statement, check, parse, render,
    render_warnings,
};

fn said<T>(value: T) -> Spanned<T> {
    Spanned::new(value, Span::default())
}

fn name() -> impl Strategy<Value = Name> {
    "[a-z_][a-zA-Z0-9_]{0,8}"
        .prop_filter("a word of the language", |s| {
            !["pipelet", "default", "include"].contains(&s.as_str())
        })
        .prop_map(said)
}

fn config() -> impl Strategy<Value = Config> {
    let leaf = prop_oneof![
        Just(Config::Null),
        any::<bool>().prop_map(Config::Bool),
        any::<i64>().prop_map(|n| Config::Number(n.into())),
        any::<u64>().prop_map(|n| Config::Number(n.into())),
        any::<f64>()
            .prop_filter_map("finite", serde_json::Number::from_f64)
            .prop_map(Config::Number),
        any::<String>().prop_map(Config::String),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let member = ("[a-z]{1,4}|\\PC{0,4}", inner.clone());
        prop_oneof![
            prop::collection::vec(inner.prop_map(said), 0..4).prop_map(Config::Array),
            prop::collection::vec(member, 0..4).prop_map(|members| {
                let mut seen = std::collections::HashSet::new();
                let members = members.into_iter().filter(|(key, _)| seen.insert(key.clone()));
                Config::Object(members.map(|(key, value)| (said(key), said(value))).collect())
            }),
        ]
    })
}

fn hop() -> impl Strategy<Value = Hop> {
    let filter = || {
        prop::option::of("[a-z0-9.&|!()]([a-z0-9.&|!() \n]{0,12}[a-z0-9.&|!()])?".prop_map(said))
    };
    let bandwidth = prop::option::of(prop_oneof![
        any::<u64>().prop_map(Bandwidth::Bps),
        any::<u32>().prop_map(|n| Bandwidth::Pps(u64::from(n) * 1000)),
    ]);
    (filter(), bandwidth, filter(), name()).prop_map(|(filter_out, bandwidth, filter_in, to)| Hop {
        filter_out,
        bandwidth,
        filter_in,
        to,
        span: said(()),
    })
}

fn statement() -> impl Strategy<Value = Statement> {
    let chain = (name(), prop::collection::vec(hop(), 1..4))
        .prop_map(|(from, hops)| Statement::Chain(Chain { from, hops }));
    prop_oneof![9 => chain, 1 => Just(Statement::DefaultDrop), 1 => Just(Statement::FirstMatch)]
}

fn item() -> impl Strategy<Value = Item> {
    let object = config().prop_map(|c| match c {
        Config::Object(_) => c,
        other => Config::Object(vec![(said("k".to_owned()), said(other))]),
    });
    prop_oneof![
        (name(), any::<u16>(), any::<u16>()).prop_map(|(name, a, b)| {
            Item::Port(PortDecl { name, first: a.min(b), last: a.max(b), numbers: said(()) })
        }),
        (name(), "[0-9a-f.:/]{1,20}")
            .prop_map(|(name, value)| Item::Address(AddressDecl { name, value: said(value) }))
            .prop_filter(
                "a comment",
                |item| !matches!(item, Item::Address(a) if a.value.value.starts_with("//"))
            ),
        ("[A-Z][a-zA-Z]{0,8}", name(), prop::option::of(object.prop_map(said)))
            .prop_filter("a word of the language", |(t, ..)| !["Port", "Address"]
                .contains(&t.as_str()))
            .prop_map(|(type_name, name, config)| Item::Instance(InstanceDecl {
                type_name: said(type_name),
                name,
                config
            })),
        (prop::option::of(name()), prop::collection::vec(statement(), 0..5))
            .prop_map(|(name, statements)| Item::Pipelet(Pipelet { name, statements })),
        any::<String>()
            .prop_filter("a name", |path| !path.is_empty())
            .prop_map(|path| Item::Include(Include { path: said(path) })),
        Just(Item::DefaultDrop),
        Just(Item::FirstMatch),
    ]
}

/// Everything that is done to a policy, on whatever text: must end, and without a panic.
fn try_all(text: &str) {
    match check(text, &Types) {
        Err(errors) => {
            assert!(!errors.is_empty());
            for error in &errors {
                assert!(error.span.start <= error.span.end && error.span.end <= text.len());
                assert!(
                    text.is_char_boundary(error.span.start)
                        && text.is_char_boundary(error.span.end)
                );
            }
            assert!(!render(&errors, "p", text).contains('\u{1b}'));
        }
        Ok(checked) => {
            assert!(!render_warnings(&checked.warnings, "p", text).contains('\u{1b}'));
            for isolate in [Isolate::Each, Isolate::None] {
                let options = Options {
                    isolate,
                    cores: None,
                    online: 2,
                    domains: Default::default(),
                    ..Options::default()
                };
                let plan = Plan::build(&checked.graph, &options).unwrap();
                assert!(!(plan.to_text().is_empty() || plan.to_dot().is_empty()));
            }
        }
    }
}

const SOUND: &str = "// c\nPort<0> lan; Port<1-3> wan; Address n 10.0.0.0/8; CheckIpHeader chk; RateLimiter r;\n\
    L3L4Filter fw { default: \"pass\", rules: [ { action: 'drop', dst_port: 0x50, }, ], /* c */ };\n\
    pipelet out { lan [tcp port 80] -> (10 Gbps) chk -> fw; chk [chk.ip && !(dst net n)] -> [prio0] r; r -> lan; first match; default drop; }\n\
    default drop;\n";

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_printed_policy_parses_to_itself(items in prop::collection::vec(item(), 0..8)) {
        let policy = Policy { items };
        let text = policy.to_string();
        let (parsed, errors) = parse(&text);
        prop_assert!(errors.is_empty(), "{}", render(&errors, "p", &text));
        prop_assert_eq!(parsed, policy, "{}", text);
    }

    #[test]
    fn any_text_is_judged_without_a_panic(text in any::<String>()) {
        try_all(&text);
    }

    #[test]
    fn any_sequence_of_words_of_the_language_is_judged_without_a_panic(
        words in prop::collection::vec(prop::sample::select(vec![
            "pipelet", "Port", "<", "0", "-", "7", ">", "a", "b", ";", "{", "}", "[", "]", "(", ")", "->", "...", "default",
            "drop", "first", "match", "Drop", "Tee", "include", "\"f\"", "MacSwap", "chk", "CheckIpHeader", ".", "ip", "&&", "!", "\"", "'", "//", "/*", "*/", "\n",
            ":", ",", "Address", "10.0.0.0/8", "10 Gbps", "§", "\\", "Clock", "Sink",
        ]), 0..60),
        blank in prop::sample::select(vec!["", " "]),
    ) {
        try_all(&words.join(blank));
    }

    #[test]
    fn a_mutated_policy_is_judged_without_a_panic(
        edits in prop::collection::vec((0_usize..SOUND.len(), 0_usize..12, "\\PC{0,3}"), 1..5)
    ) {
        let mut text: Vec<char> = SOUND.chars().collect();
        for (at, cut, new) in edits {
            let at = at.min(text.len());
            let end = (at + cut).min(text.len());
            text.splice(at..end, new.chars());
        }
        try_all(&text.into_iter().collect::<String>());
    }
}

#[test]
fn every_beginning_of_a_policy_is_judged_without_a_panic() {
    assert!(
        check(SOUND, &Types).is_ok(),
        "{}",
        render(&check(SOUND, &Types).unwrap_err(), "p", SOUND)
    );
    for end in 0..SOUND.len() {
        try_all(&SOUND[..end]);
    }
}
