//! Each bad policy in `bad_policies.txt` with exactly what is said about it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common::Types;
use weir_plan::{MAX_CONFIG_DEPTH, MAX_EDGES, MAX_ERRORS, MAX_TEXT, Why, check, render};

#[test]
fn each_bad_policy_gets_its_message_at_its_place() {
    let file = include_str!("../bad_policies.txt");
    let mut actual = String::new();
    let mut cases = 0;
    for case in file.split("=== ").skip(1) {
        let (title, rest) = case.split_once('\n').unwrap();
        let (policy, _) = rest.split_once("---\n").unwrap();
        let policy = policy.strip_suffix('\n').unwrap();
        let said = match check(policy, &Types) {
            Ok(_) => "no error\n".to_owned(),
            Err(errors) => render(&errors, "p.weir", policy),
        };
        actual.push_str(&format!("=== {title}\n{policy}\n---\n{said}"));
        cases += 1;
    }
    assert!(cases >= 50, "{cases}");
    if actual != file {
        let at = actual.lines().zip(file.lines()).take_while(|(a, b)| a == b).count();
        let near = |text: &str| {
            text.lines().skip(at.saturating_sub(4)).take(12).collect::<Vec<_>>().join("\n")
        };
        panic!(
            "differs from line {}:\n{}\n\nexpected:\n{}\n\nwhole:\n{actual}",
            at + 1,
            near(&actual),
            near(file)
        );
    }
}

fn only_error(text: &str) -> Why {
    let errors = check(text, &Types).unwrap_err();
    assert_eq!(
        errors.len(),
        1,
        "{}",
        render(&errors[..errors.len().min(3)], "p", &text[..text.len().min(1000)])
    );
    errors[0].why.clone()
}

#[test]
fn a_text_beyond_the_limit_is_refused() {
    assert_eq!(only_error(&" ".repeat(MAX_TEXT + 1)), Why::TooLong);
    assert_eq!(only_error(&" ".repeat(MAX_TEXT)), Why::NoEdges);
}

#[test]
fn edges_beyond_the_limit_are_refused() {
    let edges = |n: usize| format!("Port<0> a; Port<1> b; pipelet {{ {} }}", "a->b;".repeat(n));
    assert!(matches!(only_error(&edges(MAX_EDGES + 1)), Why::TooManyEdges));
    let few = check(&edges(MAX_EDGES), &Types).unwrap_err();
    assert!(few.iter().all(|e| e.why != Why::TooManyEdges));
    assert_eq!(few.len(), MAX_ERRORS + 1);
}

#[test]
fn deep_nesting_is_an_error_and_no_overflow() {
    let nested = |n: usize| {
        format!(
            "Port<0> a; MacSwap x {{ k: {}{} }}; pipelet {{ a -> x -> a; }}",
            "[".repeat(n),
            "]".repeat(n)
        )
    };
    assert!(check(&nested(MAX_CONFIG_DEPTH - 1), &Types).is_ok());
    assert_eq!(only_error(&nested(MAX_CONFIG_DEPTH)), Why::ConfigTooDeep);
    assert_eq!(only_error(&nested(1_000_000)), Why::ConfigTooDeep);
    for open in ["(", "!", "[", "not "] {
        let text = format!("Port<0> a; pipelet {{ a [{}] -> a; }}", open.repeat(500_000));
        assert!(check(&text, &Types).is_err());
    }
}

#[test]
fn a_long_chain_is_checked_in_time() {
    let mut text = String::from("Port<0> a;\n");
    for i in 0..20_000 {
        text.push_str(&format!("MacSwap x{i};\n"));
    }
    text.push_str("pipelet { a");
    for i in 0..20_000 {
        text.push_str(&format!(" -> x{i}"));
    }
    text.push_str(" -> a; }");
    let start = std::time::Instant::now();
    assert!(check(&text, &Types).is_ok());
    assert!(start.elapsed().as_secs() < 5, "{:?}", start.elapsed());
}

#[test]
fn a_misspelt_statement_is_told_as_the_statement_that_it_is_near_to() {
    for (text, written, form) in [
        ("first macht;", "first macht", "`first match;`"),
        ("frist match;", "frist match", "`first match;`"),
        ("defualt drop;", "defualt drop", "`default drop;`"),
        ("pipelet { p -> p; first macht; }", "first macht", "`first match;`"),
        ("pipelet { p -> p; defualt drop; }", "defualt drop", "`default drop;`"),
        ("Prot<1> q;", "Prot", "`Port<0> name;`"),
        ("Adress net 10.0.0.0/8;", "Adress", "`Address name 10.0.0.0/8;`"),
        ("inlcude \"x.weir\";", "inlcude", "`include \"file\";`"),
        ("pipelt { p -> p; }", "pipelt", "`pipelet { a -> b; }`"),
        ("pipelt inside { p [tcp] -> p; }", "pipelt", "`pipelet { a -> b; }`"),
    ] {
        let text = format!("Port<0> p;\n{text}\npipelet {{ p -> p; }}");
        let errors = check(&text, &Types).unwrap_err();
        let error = &errors[0];
        let span = text.get(error.span.start..error.span.end).unwrap();
        assert_eq!(span, written, "{errors:?}");
        assert_eq!(error.why.to_string(), format!("`{written}` is not a statement"));
        assert!(error.why.instead().contains(form), "{}", error.why.instead());
    }
    // Types that are near to no statement are types.
    let text = "Port<0> p;\nNatt x;\npipelet { p -> p; }";
    let why = check(text, &Types).unwrap_err().remove(0).why;
    assert!(matches!(why, Why::UnknownType { .. }), "{why}");
}
