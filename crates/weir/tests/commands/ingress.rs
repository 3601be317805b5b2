//! Packets of two ports that meet in one µNF and part again by where they came in.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_oracle::*;
use weir_oracle::{Input, read_capture};

const PORTS: &str = "Port<0> lan; Port<1> wan; Port<2> back; Port<3> on; MacSwap x; MacSwap y;\n";

/// As a user may write it, and as two pipelets come to be merged.
const POLICIES: [(&str, &str); 2] = [
    (
        "written",
        "pipelet { lan -> x; wan -> x; x -> y;
           y [ingress == 0] -> on; y [ingress == 1 && tcp] -> back; y [ingress == 1 && !tcp] -> Drop; }",
    ),
    (
        "merged",
        "pipelet out { lan -> x; x -> y; y -> on; }
         pipelet in { wan -> x; x -> y; y [tcp] -> back; y [!tcp] -> Drop; }",
    ),
];

#[test]
fn packets_part_by_the_port_that_they_came_in_by() {
    let (all, _) = read_capture(&demo_capture(), 0).unwrap();
    let input: Vec<Input> =
        all.iter().flat_map(|p| [p.clone(), Input { port: 1, ..p.clone() }]).collect();
    for (name, policy) in POLICIES {
        let text = format!("{PORTS}{policy}");
        let expected = oracle(&text, &[0, 1, 2, 3], &input);
        assert_eq!(expected.sent[&3].len(), all.len(), "{name}: all of `lan`, nothing else");
        let tcp = expected.sent[&2].len();
        assert!(0 < tcp && tcp < all.len() && expected.sent[&2].iter().all(|s| s.source == 1));
        for isolate in ["each", "none"] {
            let what = format!("{name} {isolate}");
            let scratch = Scratch::new();
            let policy = scratch.write("policy.weir", &text);
            let (back, on) = (scratch.file("back.pcap"), scratch.file("on.pcap"));
            let capture = demo_capture();
            let binds = [
                format!("0=pcap:rx={}", capture.display()),
                format!("1=pcap:rx={}", capture.display()),
                format!("2=pcap:tx={}", back.display()),
                format!("3=pcap:tx={}", on.display()),
            ];
            let mut args = vec!["run", &policy, "--isolate", isolate, "--json", "-q"];
            binds.iter().for_each(|bind| args.extend(["--bind", bind]));
            let ended = weir(&args);
            assert_eq!(ended.code, Some(0), "{what}: {ended:?}");
            assert_report(&what, &ended.json(), &expected, true);
            for (port, file) in [(2, &back), (3, &on)] {
                let sent: Vec<Record> = expected.sent[&port].iter().map(written).collect();
                assert_eq!(records(file), sent, "{what}: port {port}");
            }
        }
    }
}
