//! Any text as a service document: a template, NUL, a request that may use it; each also as every
//! other kind, in both syntaxes.
#![no_main]

use libfuzzer_sys::{Corpus, fuzz_target};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use weir_fuzz::{Types, planted, text_and_bytes};
use weir_plan::service::{Hardware, Request, Server, Syntax, Template, choose, describe};
use weir_plan::{
    Catalog, ConfigProblem, Isolate, NfInfo, NodeKind, Options, Plan, PolicyError, render,
};

/// The types, and one template.
struct With(Option<Arc<Template>>);

impl Catalog for With {
    fn nf(&self, type_name: &str) -> Option<NfInfo> {
        Types.nf(type_name)
    }

    fn types(&self) -> Vec<String> {
        Types.types()
    }

    fn template(&self, name: &str) -> Option<Arc<Template>> {
        self.0.clone().filter(|template| template.name() == name)
    }

    fn check_config(&self, type_name: &str, config: &Value) -> Result<(), ConfigProblem> {
        Types.check_config(type_name, config)
    }
}

fuzz_target!(|data: &[u8]| -> Corpus {
    let Some((template, request)) = text_and_bytes(data) else { return Corpus::Reject };
    let Ok(request) = std::str::from_utf8(request) else { return Corpus::Reject };
    for syntax in [Syntax::Yaml, Syntax::Json] {
        let read = said(template, Template::read(template, syntax, &Types));
        let catalog = With(read.map(Arc::new));
        if let Some(request) = said(request, Request::read(request, syntax, &catalog)) {
            runs(&request);
        }
        said(template, describe(template, syntax));
        said(template, Hardware::read(template, syntax));
    }
    Corpus::Keep
});

/// What was read; else what is wrong is said, in words that do not steer a terminal.
fn said<T>(text: &str, read: Result<T, Vec<PolicyError>>) -> Option<T> {
    match read {
        Ok(read) => Some(read),
        Err(errors) => {
            assert!(!errors.is_empty());
            let said = render(&errors, "p", text);
            assert!(!said.contains('\u{1b}'), "a control character reaches the terminal");
            assert!(said.lines().count() >= errors.len());
            None
        }
    }
}

/// No VNF is left, nothing waits for itself, and the cost model has a word on it.
fn runs(request: &Request) {
    let graph = &request.checked.graph;
    assert!(!graph.nodes().iter().any(|node| matches!(node.kind, NodeKind::Vnf(_))));
    planted(graph.nodes().iter().any(|node| node.vnf.is_some() && node.name.contains('z')));
    assert_eq!(graph.order().len(), graph.nodes().iter().filter(|node| node.is_nf()).count());
    let domains = BTreeMap::default();
    let options =
        Options { isolate: Isolate::Each, cores: None, online: 2, domains, ..Options::default() };
    if let Ok(plan) = Plan::build(graph, &options) {
        assert!(plan.lanes.iter().all(|lane| lane.from < lane.to));
    }
    if let Some(objective) = &request.objective {
        let server = Server { name: "s".to_owned(), cores: 4, ghz: 2.0, nic_bps: None };
        let _ = choose(graph, objective, &server, &options.domains);
    }
}
