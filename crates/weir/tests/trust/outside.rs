//! Programs that bring µNFs of their own: they run isolated and fused like the library's, and what
//! does not fit is refused with a sentence.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_oracle::*;
use crate::common_outside::*;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use weir_packet::checksum::checksum;

const POLICY: &str =
    "Port<0> lan; Port<1> wan; CheckIpHeader c; MarkDscp m { dscp: 46 }; MacSwap s;
pipelet { lan -> c; c -> m -> s; s -> wan; }\n";

fn with(program: &Path) -> [String; 2] {
    ["--with".to_owned(), program.to_str().unwrap().to_owned()]
}

fn weir_with(args: &[&str], programs: &[&Path]) -> Ended {
    let mut all: Vec<String> = args.iter().map(|a| (*a).to_owned()).collect();
    for program in programs {
        all.extend(with(program));
    }
    weir(&all)
}

/// What [`POLICY`] does to a frame, in plain words: addresses swapped, expedited forwarding marked,
/// the IPv4 header's checksum computed anew.
fn marked(frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    frame[..12].rotate_left(6);
    let mut at = 12;
    while matches!(frame[at..at + 2], [0x81, 0x00] | [0x88, 0xa8]) {
        at += 4;
    }
    let (ether_type, packet) = frame[at..].split_at_mut(2);
    if ether_type == [0x86, 0xdd] {
        packet[0] = packet[0] & 0xf0 | 46 >> 2;
        packet[1] = packet[1] & 0x3f | (46 & 3) << 6;
    }
    if ether_type == [0x08, 0x00] {
        packet[1] = packet[1] & 3 | 46 << 2;
        let end = usize::from(packet[0] & 15) * 4;
        packet[10..12].fill(0);
        let check = checksum(&packet[..end]);
        packet[10..12].copy_from_slice(&check.to_be_bytes());
    }
    frame
}

#[test]
fn the_example_passes_its_own_tests() {
    let output = cargo(&example(), &["test"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("3 passed; 0 failed"), "{text}");
}

#[test]
fn an_outside_nf_does_the_same_isolated_and_fused_with_library_nfs() {
    let scratch = Scratch::new();
    let policy = scratch.write("policy.weir", POLICY);
    let input = records(&demo_capture());
    let expected: Vec<_> = input.iter().map(|(b, len, t)| (marked(b), *len, *t)).collect();
    let changed = input.iter().zip(&expected).filter(|(i, e)| i.0[12..] != e.0[12..]).count();
    assert!(changed > 3000);
    for (isolate, workers) in [("each", ["c", "m", "s"]), ("none", ["c+m+s"; 3])] {
        let out = scratch.file("out.pcap");
        let run = ["run", &policy, "--bind", &demo_rx(), "--bind", &tx(&out), "--json", "-q"];
        let ended = weir_with(&[&run[..], &["--isolate", isolate]].concat(), &[&outside_nf()]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let report = ended.json();
        assert_sound(isolate, &report);
        let node = |name: &str| {
            let nodes = report["nodes"].as_array().unwrap();
            nodes.iter().find(|n| n["name"] == name).unwrap().clone()
        };
        let ran = ["c", "m", "s"].map(|n| node(n)["worker"].as_str().unwrap().to_owned());
        assert_eq!(ran, workers, "{isolate}");
        assert_eq!(node("m")["report"]["changed"], changed as u64, "{isolate}");
        assert_eq!(records(&out), expected, "{isolate}");
    }
}

#[test]
fn a_program_that_puts_itself_into_the_graphs_own_domain_is_said_at_the_start() {
    let scratch = Scratch::new();
    let policy = scratch.write("policy.weir", POLICY);
    let run = ["run", &policy, "--bind", &demo_rx(), "--bind", "1=null"];
    let said = |args: &[&str]| {
        let ended = weir_with(&[&run[..], args].concat(), &[&outside_nf()]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        ended.stderr.contains("worker m is ") && ended.stderr.contains("by its own word")
    };
    assert!(said(&[]) && !said(&["--domain", "m=theirs"]) && !said(&["--domain", "m="]));
}

#[test]
fn nfs_of_two_programs_never_share_a_worker() {
    let scratch = Scratch::new();
    let policy = "Port<0> lan; Port<1> wan; MacSwap s; MacSwap t; MarkDscp m { dscp: 1 };
Attack a { what: \"open-read\", when: \"packet\" };
pipelet { lan -> s -> m -> t; t -> a; a -> wan; }\n";
    let policy = scratch.write("policy.weir", policy);
    let programs = [&*outside_nf(), &*hostile("hostile-nf")];
    let run = ["run", &policy, "--bind", "0=gen:packets=1000", "--bind", "1=null"];
    let ended = weir_with(&[&run[..], &["--isolate", "none", "--json", "-q"]].concat(), &programs);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let report = ended.json();
    let workers: Vec<_> = report["workers"].as_array().unwrap().iter().collect();
    let names: Vec<_> = workers.iter().map(|w| w["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["rx:lan", "s+m+t", "a", "tx:wan"]);
    assert_eq!(report["balance"]["out"], 1000);
}

#[test]
fn a_configuration_that_an_outside_nf_refuses_is_shown_like_any_other() {
    let scratch = Scratch::new();
    for (config, expected) in [
        ("{ dscp: 64 }", "64 is no DSCP; the largest is 63"),
        ("{ dcsp: 1 }", "unknown field `dcsp`"),
        ("{ dscp: 300 }", "integer `300`, expected a whole number from 0 to 255"),
    ] {
        let text = POLICY.replace("{ dscp: 46 }", config);
        let policy = scratch.write("policy.weir", text);
        let ended = weir_with(&["check", &policy], &[&outside_nf()]);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.stderr.contains(expected), "{ended:?}");
        // With file, line and the line itself.
        assert!(ended.stderr.contains("policy.weir:1:"), "{ended:?}");
        assert!(ended.stderr.contains("MarkDscp m"), "{ended:?}");
        // What it says to type works as it stands.
        let cure =
            ended.stderr.lines().find_map(|l| l.trim().strip_prefix("= `weir nf show ")).unwrap();
        let (words, rest) = cure.split_once('`').unwrap();
        assert_eq!(rest, " shows what it takes");
        let shown = weir(&[&["nf", "show"][..], &words.split(' ').collect::<Vec<_>>()].concat());
        assert_eq!(shown.code, Some(0), "{shown:?}");
    }
}

#[test]
fn without_the_program_its_nf_is_unknown() {
    let scratch = Scratch::new();
    let policy = scratch.write("policy.weir", POLICY);
    let ended = weir(&["check", &policy]);
    assert_eq!(ended.code, Some(2));
    assert!(ended.stderr.contains("MarkDscp"), "{ended:?}");
}

#[test]
fn outside_nfs_are_listed_and_shown_with_their_schema() {
    let list = weir_with(&["nf", "list"], &[&outside_nf()]);
    let line = list.stdout.lines().find(|l| l.starts_with("MarkDscp ")).unwrap();
    assert!(line.contains("Writes a DSCP into IP headers"), "{line}");
    assert!(list.stdout.lines().any(|l| l.starts_with("MacSwap ")));
    let show = weir_with(&["nf", "show", "MarkDscp"], &[&outside_nf()]).json();
    assert_eq!(show["description"]["layers"]["l3"], "write");
    assert_eq!(show["config"]["properties"]["dscp"]["type"], "integer");
}

/// `weir nf list --with PROGRAM` must be refused, and say so in these words.
fn refused(program: &Path, words: &[&str]) {
    let ended = weir_with(&["nf", "list"], &[program]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{ended:?}");
    for word in words {
        assert!(ended.stderr.contains(word), "no {word:?} in: {ended:?}");
    }
    assert!(ended.stderr.contains(program.to_str().unwrap()), "{ended:?}");
    assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
    let escapes = ended.stderr.chars().filter(|c| c.is_control() && *c != '\n').count();
    assert_eq!(escapes, 0, "{ended:?}");
}

#[test]
fn a_program_of_another_version_is_refused() {
    let cure = "build it with this one's crates";
    refused(&hostile("other-protocol"), &["another version of weir (protocol", cure]);
    refused(&hostile("other-layout"), &["another version of weir (memory layout", cure]);
    refused(&hostile("other-catalogue"), &["other library µNFs than this weir", cure]);
}

#[test]
fn a_program_whose_nf_has_a_name_that_is_taken_is_refused() {
    refused(&hostile("clash"), &["`MacSwap` is called like one of the library's; rename it"]);
    let ended = weir_with(&["nf", "list"], &[&outside_nf(), &outside_nf()]);
    assert_eq!(ended.code, Some(2));
    assert!(ended.stderr.contains("--with names it twice; once is enough"), "{ended:?}");
}

#[test]
fn a_program_that_does_not_answer_is_ended_and_refused() {
    refused(&hostile("hang"), &["no answer after 10 s"]);
}

#[test]
fn a_program_that_answers_nonsense_is_refused() {
    refused(&hostile("garbage"), &["not a description", "weir_worker::main()"]);
    refused(&hostile("flood"), &["more than 4 MiB came; it was ended"]);
    refused(&hostile("dies"), &["exit status: 3", "no  licence"]);
    // A program, and no worker.
    refused(Path::new("/bin/true"), &["not a description"]);
}

#[test]
fn what_is_no_program_is_refused() {
    let scratch = Scratch::new();
    refused(&scratch.file("nothing"), &["No such file"]);
    refused(scratch.path(), &["not an executable file"]);
    let text = scratch.write("text", "hello");
    refused(Path::new(&text), &["not an executable file"]);
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&text, mode).unwrap();
    refused(Path::new(&text), &["cannot be started"]);
}

/// The handshake at a worker's start: the file was replaced after it had said what it has.
#[test]
fn a_worker_that_has_become_another_program_ends_the_run_with_a_sentence() {
    let scratch = Scratch::new();
    let policy = scratch.write("policy.weir", POLICY);
    // It describes itself as the example does, and is a worker that has no MarkDscp.
    let ended = weir_with(
        &["run", &policy, "--bind", &demo_rx(), "--bind", "1=null"],
        &[&hostile("pretends")],
    );
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("there is no NF type `MarkDscp`"), "{ended:?}");
}
