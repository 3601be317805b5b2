//! Any text as a policy: judged, printed, planned.
#![no_main]

use libfuzzer_sys::{Corpus, fuzz_target};
use std::collections::HashSet;
use weir_fuzz::{Types, planted};
use weir_plan::{
    Graph, Isolate, Node, NodeKind, Options, Plan, check, parse, render, render_warnings,
};

fuzz_target!(|data: &[u8]| -> Corpus {
    let Ok(text) = std::str::from_utf8(data) else { return Corpus::Reject };
    printing_and_parsing_again_changes_nothing(text);
    match check(text, &Types) {
        Ok(checked) => {
            let said = render_warnings(&checked.warnings, "p", text);
            assert_eq!(said.is_empty(), checked.warnings.is_empty());
            assert!(!said.contains('\u{1b}'));
            plans(&checked.graph);
            planted(checked.graph.nodes().iter().any(has_a_high_port));
        }
        Err(errors) => {
            assert!(!errors.is_empty());
            for span in errors.iter().map(|error| error.span) {
                assert!(
                    text.get(span.start..span.end).is_some(),
                    "{span:?} is no place of the text"
                );
            }
            let said = render(&errors, "p", text);
            assert!(!said.contains('\u{1b}'), "a control character reaches the terminal");
            assert!(said.lines().count() >= errors.len());
        }
    }
    Corpus::Keep
});

fn printing_and_parsing_again_changes_nothing(text: &str) {
    let (policy, errors) = parse(text);
    if !errors.is_empty() {
        return;
    }
    let printed = policy.to_string();
    let (again, errors) = parse(&printed);
    assert!(errors.is_empty(), "{}", render(&errors, "printed", &printed));
    assert_eq!(again, policy, "{printed}");
    // And it means the same.
    let graph = |text: &str| check(text, &Types).map(|checked| checked.graph).ok();
    assert_eq!(graph(text), graph(&printed), "{printed}");
}

fn has_a_high_port(node: &Node) -> bool {
    matches!(node.kind, NodeKind::Port { last: 10.., .. })
}

fn plans(graph: &Graph) {
    assert!(!(graph.to_text().is_empty() || graph.to_dot().is_empty()));
    for isolate in [Isolate::Each, Isolate::None] {
        for cores in [None, Some(vec![0, 1])] {
            let options = Options { isolate, cores, online: 2, domains: Default::default() };
            // Refused only for its number of rings.
            let Ok(plan) = Plan::build(graph, &options) else { continue };
            // Everything flows forwards, so that nothing waits for itself.
            assert!(plan.lanes.iter().all(|lane| lane.from < lane.to));
            assert_eq!(plan.edges.len(), graph.edges().len());
            let names: HashSet<_> = plan.segments.iter().map(|s| s.name.as_str()).collect();
            assert_eq!(names.len(), plan.segments.len(), "two segments of one name");
            assert!(!(plan.to_text().is_empty() || plan.to_dot().is_empty()));
        }
    }
}
