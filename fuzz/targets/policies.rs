//! Any text as a policy: judged, printed, planned. What stands behind a NUL is a file that it may include,
//! called by its number.
#![no_main]

use libfuzzer_sys::{Corpus, fuzz_target};
use std::collections::HashSet;
use std::path::PathBuf;
use weir_fuzz::{Types, planted};
use weir_plan::{
    Document, Graph, Isolate, Lane, LoadError, Loader, Node, NodeKind, Options, Plan, PolicyFiles,
    check, parse, render, render_warnings,
};

fuzz_target!(|data: &[u8]| -> Corpus {
    let Ok(text) = std::str::from_utf8(data) else { return Corpus::Reject };
    if text.contains('\0') {
        several_files(text);
    }
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

/// Files by their numbers.
struct Files<'a>(Vec<&'a str>);

impl Files<'_> {
    fn document(&self, written: &str) -> Option<Document> {
        let number = written.parse::<usize>().ok()?;
        let text = (*self.0.get(number)?).to_owned();
        // `1` and `01` are one file.
        let key = PathBuf::from(number.to_string());
        Some(Document { path: written.into(), key, text })
    }
}

impl Loader for Files<'_> {
    fn load(&self, _: &Document, written: &str) -> Result<Document, LoadError> {
        self.document(written).ok_or_else(|| LoadError::Missing { path: written.into() })
    }
}

fn several_files(text: &str) {
    let files = Files(text.split('\0').collect());
    let Some(first) = files.document("0") else { return };
    let (texts, checked) = PolicyFiles::read(&first, &files).check(&Types);
    match checked {
        Ok(checked) => {
            let said = texts.render_warnings(&checked.warnings);
            assert_eq!(said.is_empty(), checked.warnings.is_empty());
            plans(&checked.graph);
        }
        Err(errors) => {
            for span in errors.iter().map(|error| error.span) {
                assert!(texts.joined().get(span.start..span.end).is_some(), "{span:?}");
            }
            assert!(texts.render(&errors).lines().count() >= errors.len());
        }
    }
}

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
            let options = Options {
                isolate,
                cores,
                online: 2,
                domains: Default::default(),
                ..Options::default()
            };
            // Refused only for its number of rings.
            let Ok(plan) = Plan::build(graph, &options) else { continue };
            // Everything flows forwards, but for what closes a cycle.
            let closes = |lane: &Lane| graph.edge(lane.edge).is_some_and(|edge| edge.closes);
            assert!(plan.lanes.iter().all(|lane| lane.from < lane.to || closes(lane)));
            assert_eq!(plan.edges.len(), graph.edges().len());
            let names: HashSet<_> = plan.segments.iter().map(|s| s.name.as_str()).collect();
            assert_eq!(names.len(), plan.segments.len(), "two segments of one name");
            assert!(!(plan.to_text().is_empty() || plan.to_dot().is_empty()));
            // May need more rings, so be refused.
            let _ = Plan::consolidated(graph, &options);
        }
    }
}
