//! Any text as a filter and, behind a NUL, any bytes as a packet for it.
#![no_main]

use libfuzzer_sys::{Corpus, fuzz_target};
use weir_filter::{Expr, Filter, naive_matches, parse, warnings};
use weir_fuzz::{planted, text_and_bytes};

fuzz_target!(|data: &[u8]| -> Corpus {
    let Some((text, packet)) = text_and_bytes(data) else { return Corpus::Reject };
    match parse(text) {
        Ok(expr) => {
            assert_eq!(parse(&expr.to_string()), Ok(expr.clone()), "printed: {expr}");
            compiled_and_naive_agree(&expr, packet);
            planted(["vlan 4", "vlan 6"].iter().any(|id| expr.to_string().contains(id)));
        }
        Err(errors) => {
            assert!(!errors.is_empty());
            for error in &errors {
                assert!(text.get(error.span.clone()).is_some(), "{error:?} is nowhere");
                assert!(!error.to_string().is_empty() && !error.instead().is_empty());
            }
        }
    }
    Corpus::Keep
});

fn compiled_and_naive_agree(expr: &Expr, packet: &[u8]) {
    // What is not in the packet has no place until the planner gives it one, and is refused by name.
    if !expr.tag_tests().is_empty() || expr.asks_ingress() {
        assert!(Filter::compile(expr).is_err());
        return;
    }
    // A tag that is not resolved is false for the oracle, so that is what they are resolved to.
    let resolved = expr.resolve_tags(&mut |_, _| Some(false));
    let filters = [Filter::compile(&resolved), Filter::compile(expr)];
    for surprise in warnings(expr) {
        assert!(!surprise.to_string().is_empty());
    }
    assert!(filters[0].is_ok(), "no tag is left, and the text is too short for too many terms");
    assert_eq!(filters[1].is_ok(), expr.tags().is_empty());
    // Whole, and cut at odd places.
    for length in [packet.len(), packet.len() / 2, 13, 15, 37] {
        let Some(packet) = packet.get(..length) else { continue };
        let wanted = naive_matches(expr, packet);
        assert_eq!(naive_matches(&resolved, packet), wanted, "resolved: {resolved}");
        for filter in filters.iter().flatten() {
            assert_eq!(filter.matches(packet), wanted, "{expr} on {packet:02x?}");
        }
    }
}
