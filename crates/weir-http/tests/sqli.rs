//! SQL injection: what is found, what is let pass, and what is left unjudged.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // tests may: helper functions too

use std::time::{Duration, Instant};
use weir_http::{Inspector, Part, Request, Scope, Verdict, Where, request};

fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.starts_with("# ") && !line.is_empty())
}

fn judge_target(target: &[u8]) -> Verdict {
    Inspector::new().sqli(Part { bytes: target, cut: false }, None, &mut std::iter::empty())
}

fn found(verdict: Verdict) -> Option<Where> {
    match verdict {
        Verdict::Injection { place, .. } => Some(place),
        _ => None,
    }
}

fn judge(payload: &str, scope: Scope) -> Verdict {
    Inspector::new().request(payload.as_bytes(), &request(payload.as_bytes()), scope)
}

const ALL: Scope = Scope { cookies: true, body: true };

/// Exact counts on purpose: a change for better or worse must be seen, and the lists below updated.
#[test]
fn of_100_attack_strings_these_are_missed() {
    let attacks: Vec<&str> = lines(include_str!("attacks.txt")).collect();
    let missed: Vec<&str> = attacks
        .iter()
        .copied()
        .filter(|value| found(judge_target(format!("/a?id={value}").as_bytes())).is_none())
        .collect();
    println!("found {} of {} attacks", attacks.len() - missed.len(), attacks.len());
    assert_eq!(attacks.len(), 100);
    assert_eq!(missed, MISSED);
}

#[test]
fn of_106_harmless_look_alikes_these_are_taken_for_attacks() {
    let benign: Vec<&str> = lines(include_str!("benign.txt")).collect();
    let wrong: Vec<&str> = benign
        .iter()
        .copied()
        .filter(|value| judge_target(format!("/a?q={value}&page=2").as_bytes()) != Verdict::Clean)
        .collect();
    println!("{} of {} harmless values taken for attacks", wrong.len(), benign.len());
    assert_eq!(benign.len(), 106);
    assert_eq!(wrong, WRONG);
}

/// Known limits of libinjection: MySQL's `procedure`, and a stacked statement without arguments.
const MISSED: [&str; 2] = ["1+procedure+analyse()", "';shutdown--"];

/// Known false alarms of libinjection: arithmetic and boolean search in parentheses.
const WRONG: [&str; 2] = ["(1+2)*3", "(red+OR+blue)+AND+car"];

#[test]
fn an_injection_is_found_wherever_an_application_may_take_it_from() {
    let attack = "1'%20or%201=1--";
    let get = |target: &str| judge(&format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"), ALL);
    assert_eq!(found(get(&format!("/item/{attack}/show"))), Some(Where::Path));
    assert_eq!(found(get(&format!("/?a=1&{attack}=2"))), Some(Where::QueryName));
    assert_eq!(found(get(&format!("/?a=1&b={attack}&c=3"))), Some(Where::QueryValue));
    assert_eq!(found(get(&format!("http://a.example/x?b={attack}"))), Some(Where::QueryValue));
    assert_eq!(found(get("/x?b=1' or 1=1-- ")), Some(Where::QueryValue), "raw blanks");
    assert_eq!(
        found(get("/item/1'/**/or/**/1=1--")),
        Some(Where::Path),
        "comments that span path segments"
    );
    let cookie = format!("GET / HTTP/1.1\r\nHost: a\r\nCookie: a=1; id={attack}\r\n\r\n");
    assert_eq!(found(judge(&cookie, ALL)), Some(Where::Cookie));
    assert_eq!(
        judge(&cookie, Scope::default()),
        Verdict::Clean,
        "cookies are judged only when asked for"
    );
    let form = |body: &str| {
        let head = "POST /x HTTP/1.1\r\nContent-Type: application/x-www-form-urlencoded\r\n";
        format!("{head}Content-Length: {}\r\n\r\n{body}", body.len())
    };
    assert_eq!(found(judge(&form(&format!("a=1&b={attack}")), ALL)), Some(Where::BodyValue));
    assert_eq!(found(judge(&form(&format!("{attack}=1")), ALL)), Some(Where::BodyName));
}

#[test]
fn a_fingerprint_is_reported_for_the_log() {
    let Verdict::Injection { fingerprint, .. } = judge_target(b"/?id=1'+or+'1'='1") else {
        panic!()
    };
    assert_eq!(fingerprint.as_str(), "s&sos");
}

#[test]
fn a_request_cut_in_its_url_is_judged_by_its_whole_parameters_and_never_guessed() {
    let line = "GET /a?first=1'%20or%201=1--&second=x HTTP/1.1\r\n";
    let whole_first = line.find("&second").unwrap() + 1;
    for cut in 5..line.len() - 1 {
        let verdict = judge(&line[..cut], Scope::default());
        if cut >= whole_first {
            assert_eq!(found(verdict), Some(Where::QueryValue), "{}", &line[..cut]);
        } else {
            assert_eq!(verdict, Verdict::Unjudged, "{}", &line[..cut]);
        }
    }
}

#[test]
fn a_cut_head_matters_only_when_cookies_or_the_body_are_judged() {
    let cut = "GET /a?x=1 HTTP/1.1\r\nHost: a\r\nCoo";
    assert_eq!(judge(cut, Scope::default()), Verdict::Clean);
    assert_eq!(judge(cut, ALL), Verdict::Unjudged);
    let attack = "GET /a?x=1'+or+1=1-- HTTP/1.1\r\nHost: a\r\nCoo";
    assert_eq!(found(judge(attack, ALL)), Some(Where::QueryValue));
}

#[test]
fn a_cut_form_is_unjudged_unless_a_whole_parameter_attacks() {
    let head = "POST /x HTTP/1.1\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 999\r\n\r\n";
    assert_eq!(judge(&format!("{head}a=1&b=2"), ALL), Verdict::Unjudged);
    assert_eq!(judge(&format!("{head}a=1&b=2"), Scope::default()), Verdict::Clean);
    assert_eq!(found(judge(&format!("{head}a=1'+or+1=1--&b=2"), ALL)), Some(Where::BodyValue));
}

#[test]
fn beyond_the_limits_a_request_is_unjudged() {
    let many = format!("/?{}", "a=1&".repeat(2000));
    assert_eq!(judge_target(many.as_bytes()), Verdict::Unjudged);
    let long = format!("/?a={}", "'x".repeat(40_000));
    assert_eq!(judge_target(long.as_bytes()), Verdict::Unjudged);
    assert_eq!(Inspector::new().request(b"", &Request::None, ALL), Verdict::Clean);
}

#[test]
fn no_64_kib_of_hostile_bytes_take_long() {
    let mut worst = (Duration::ZERO, "");
    for piece in [
        "'", "\"", "\\", "/*", "--", "#", "%", "%25", "1+", "(", "[", "`", "$a$", "q'[", "@", "{",
        "+", "a ", "1,", "''", "\\'", ";", "%00", "u&'", "&", "&a", "/", ".",
    ] {
        let value = piece.repeat(60_000 / piece.len());
        let target = format!("/?a={value}");
        let started = Instant::now();
        judge_target(target.as_bytes());
        worst = worst.max((started.elapsed(), piece));
    }
    println!("slowest: {worst:?}");
    assert!(worst.0 < Duration::from_secs(1), "{worst:?}");
}
