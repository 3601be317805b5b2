//! Runs as an operator meets them: generators, signals, reports, outputs that fail.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_oracle::*;
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeSet;
use std::process::Command;

/// The report of a run that must go well.
fn report(args: &[&str]) -> Value {
    let ended = weir(args);
    assert_eq!(ended.code, Some(0), "{args:?}: {ended:?}");
    let report = ended.json();
    assert_sound(&format!("{args:?}"), &report);
    report
}

#[test]
fn an_empty_capture_gives_an_empty_capture() {
    let scratch = Scratch::new();
    let policy = scratch.write("policy.weir", TWICE);
    let empty = scratch.write("empty.pcap", &std::fs::read(demo_capture()).unwrap()[..24]);
    for isolate in ["each", "none"] {
        let out = scratch.file("out.pcap");
        let rx = format!("0=pcap:rx={empty}");
        let report = report(&[
            "run",
            &policy,
            "--bind",
            &rx,
            "--bind",
            &tx(&out),
            "--isolate",
            isolate,
            "--json",
            "-q",
        ]);
        assert_eq!(report["balance"]["in"], 0);
        assert_eq!(records(&out).len(), 0);
    }
}

#[test]
fn a_generator_delivers_exactly_as_many_packets_as_asked_for() {
    let scratch = Scratch::new();
    let policy = scratch.write("policy.weir", TWICE);
    for isolate in ["each", "none"] {
        for n in [0_u64, 1, 63, 64, 65, 1000, 100_003] {
            let (rx, json) = (format!("0=gen:packets={n}"), "--json");
            let run = ["run", &policy, "--bind", &rx, "--bind", "1=null", "--isolate", isolate];
            let report = report(&[&run[..], &[json, "-q"]].concat());
            assert_eq!(
                (&report["balance"]["in"], &report["balance"]["out"]),
                (&n.into(), &n.into())
            );
        }
    }
}

#[test]
fn equal_seeds_generate_equal_packets() {
    let scratch = Scratch::new();
    let policy = scratch.write("policy.weir", FORWARD);
    let run = |name: &str, seed: &str| {
        let out = scratch.file(name);
        let rx = format!("0=gen:packets=500,flows=50,seed={seed}");
        report(&["run", &policy, "--bind", &rx, "--bind", &tx(&out), "--json", "-q"]);
        records(&out).into_iter().map(|r| r.0).collect::<Vec<_>>()
    };
    let (a, b, c) = (run("a.pcap", "5"), run("b.pcap", "5"), run("c.pcap", "6"));
    assert_eq!(a.len(), 500);
    assert!(a == b && a != c);
}

#[test]
fn a_duration_ends_an_endless_input_and_everything_is_drained() {
    let scratch = Scratch::new();
    let policy = scratch.write("policy.weir", TWICE);
    for isolate in ["each", "none"] {
        let run = ["run", &policy, "--bind", "0=gen", "--bind", "1=null", "--isolate", isolate];
        let report = report(&[&run[..], &["--duration", "0.3", "--json", "-q"]].concat());
        assert!(report["balance"]["in"].as_u64().unwrap() > 0);
        assert!((0.3..20.0).contains(&report["seconds"].as_f64().unwrap()));
    }
}

#[test]
fn an_interrupt_drains_what_is_under_way() {
    for (signal, isolate) in [(Signal::INT, "each"), (Signal::TERM, "none")] {
        let scratch = Scratch::new();
        let policy = scratch.write("policy.weir", TWICE);
        let out = scratch.file("out.pcap");
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_weir"));
        // Not at full rate: the output is a file.
        command.args([
            "run",
            &policy,
            "--bind",
            "0=gen:rate=200000",
            "--bind",
            &tx(&out),
            "--isolate",
            isolate,
            "--json",
        ]);
        let mut run = spawn(command);
        run.wait_for("workers");
        run.wait_until("writes nothing", || {
            std::fs::metadata(&out).is_ok_and(|m| m.len() > 10_000)
        });
        run.signal(signal);
        let ended = run.end();
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let report = ended.json();
        assert_sound("interrupted", &report);
        assert_eq!(report["balance"]["out"], records(&out).len() as u64);
    }
}

#[test]
fn a_second_interrupt_ends_at_once_with_code_1_and_leaves_no_worker() {
    let scratch = Scratch::new();
    // A packet takes about a second: draining would take an hour.
    let slow = "Port<0> lan; Port<1> wan; Busy x { cycles: 3000000000 };
pipelet { lan -> x; x -> wan; }\n";
    let policy = scratch.write("policy.weir", slow);
    for isolate in ["each", "none"] {
        let mut run = start(&[
            "run",
            &policy,
            "--bind",
            "0=gen",
            "--bind",
            "1=null",
            "--isolate",
            isolate,
            "--json",
        ]);
        run.wait_for("workers");
        // Two signals, so that the kernel cannot join them into one.
        run.signal(Signal::INT);
        run.signal(Signal::TERM);
        // The end of the error output means that workers are gone as well.
        let start = std::time::Instant::now();
        let ended = run.end();
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""), "{ended:?}");
        assert!(ended.stderr.contains("interrupted twice"), "{ended:?}");
        assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
    }
}

/// Paths of all fields, arrays as `[]`; `nodes[].drops` and `nodes[].report` are free inside.
fn paths(value: &Value, at: &str, out: &mut BTreeSet<String>) {
    match value {
        // Whose keys are names of µNFs or reasons.
        Value::Object(_) if at == "crashed" || at.ends_with(".drops") => {
            out.insert(at.to_owned());
        }
        Value::Object(map) if !at.ends_with(".report") => {
            if !at.is_empty() && !at.ends_with("[]") && at.starts_with("nodes") {
                out.insert(at.to_owned());
            }
            for (key, value) in map {
                let dot = if at.is_empty() { "" } else { "." };
                paths(value, &format!("{at}{dot}{key}"), out);
            }
        }
        Value::Array(list) if !at.ends_with(".report") => {
            out.insert(at.to_owned());
            list.iter().for_each(|v| paths(v, &format!("{at}[]"), out));
        }
        _ => {
            out.insert(at.to_owned());
        }
    }
}

/// The fields in the table of `docs/operating.md`: `` `a.b`, `.c` `` are a.b and a.c.
fn documented() -> BTreeSet<String> {
    let text = std::fs::read_to_string(root().join("docs/operating.md")).unwrap();
    let section = text.split("### `--json`").nth(1).unwrap().split("\n#").next().unwrap();
    let mut fields = BTreeSet::new();
    for line in section.lines().filter(|l| l.starts_with("| `")) {
        let cell = line.split('|').nth(1).unwrap();
        let mut before = String::new();
        for name in cell.split('`').skip(1).step_by(2) {
            let name = match name.strip_prefix('.') {
                Some(last) => format!("{}.{last}", before.rsplit_once('.').unwrap().0),
                None => name.to_owned(),
            };
            fields.insert(name.clone());
            before = name;
        }
    }
    fields
}

#[test]
fn the_json_report_has_the_documented_fields_and_no_others() {
    let (chain, vnfs) = ("demo/chain.weir", "examples/fig1-chain.yaml");
    let rx = demo_rx();
    let mut found = BTreeSet::new();
    for (graph, isolate) in [(chain, "each"), (chain, "none"), (vnfs, "each")] {
        let graph = root().join(graph);
        let run = ["run", graph.to_str().unwrap(), "--isolate", isolate, "--json", "-q"];
        let mut args = [&run[..], &["--bind", &rx, "--bind", "1=null"]].concat();
        if graph.ends_with(vnfs) {
            args.extend(["--bind", "2=null"]);
        } else {
            args.extend(["--instances", "edge_rules=2"]);
        }
        let report = report(&args);
        assert_eq!(report["version"], 1);
        paths(&report, "", &mut found);
    }
    // Every field of some run is documented, and every documented one is a field of some.
    assert_eq!(found, documented());
}

#[test]
fn without_json_the_tables_say_that_the_balance_holds() {
    let chain = root().join("demo/chain.weir");
    let ended = weir(&["run", chain.to_str().unwrap(), "--bind", &demo_rx(), "--bind", "1=null"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for text in ["edge_rules", "app_http -> app_urls", ": holds", ": all back", "injection 34"] {
        assert!(ended.stdout.contains(text), "`{text}` is not in:\n{}", ended.stdout);
    }
    assert!(ended.stderr.contains("workers"), "{}", ended.stderr);
}

#[test]
fn an_output_that_cannot_be_written_fails_with_its_name() {
    let scratch = Scratch::new();
    let policy = scratch.write("policy.weir", TWICE);
    let nowhere = scratch.file("no/such/folder/out.pcap");
    for (output, why) in
        [(nowhere.as_path(), "its folder is not there"), (scratch.path(), "it is a folder")]
    {
        for isolate in ["each", "none"] {
            let ended = weir(&[
                "run",
                &policy,
                "--bind",
                &demo_rx(),
                "--bind",
                &tx(output),
                "--isolate",
                isolate,
                "-q",
            ]);
            assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{ended:?}");
            let named = ended.stderr.contains(output.to_str().unwrap());
            assert!(named && ended.stderr.contains(why), "{}", ended.stderr);
            assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
        }
    }
}

#[test]
fn outputs_that_cannot_be_written_are_found_before_anything_starts() {
    let scratch = Scratch::new();
    let policy = scratch.write("policy.weir", TWICE);
    let (taken, loose) = (scratch.file("taken.pcap"), scratch.file("loose.pcap"));
    let format = weir_capture::Format::Pcapng;
    let writer = weir_capture::Writer::create(&taken, format).unwrap();
    std::os::unix::fs::symlink("/proc/none/out.pcap", &loose).unwrap();
    for (output, why) in [
        (taken.as_path(), "another program writes this file"),
        // Nobody, not even root, makes files there.
        (std::path::Path::new("/proc/out.pcap"), "it cannot be written"),
        (&loose, "it cannot be written"),
    ] {
        let (bound, dump) = (tx(output), output.to_str().unwrap());
        for more in [&["--bind", &bound][..], &["--bind", "1=null", "--dump-drops", dump]] {
            let run = ["run", &policy, "--bind", &demo_rx()];
            let ended = weir(&[&run[..], more].concat());
            assert_eq!(ended.code, Some(2), "{ended:?}");
            // Nothing ran: not even the line on what would be used is there.
            assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
            for text in [dump, why] {
                assert!(ended.stderr.contains(text), "{ended:?}");
            }
        }
    }
    drop(writer);
}

#[test]
fn a_full_disk_ends_the_run_with_a_clear_message() {
    let scratch = Scratch::new();
    let policy = scratch.write("policy.weir", TWICE);
    for isolate in ["each", "none"] {
        for rx in [demo_rx(), "0=gen".to_owned()] {
            let ended = weir(&[
                "run",
                &policy,
                "--bind",
                &rx,
                "--bind",
                "1=pcap:tx=/dev/full",
                "--isolate",
                isolate,
                "-q",
            ]);
            assert_eq!(ended.code, Some(1), "{ended:?}");
            for text in ["/dev/full", "the disk is full"] {
                assert!(ended.stderr.contains(text), "{}", ended.stderr);
            }
        }
    }
}

#[test]
fn runs_side_by_side_do_not_disturb_each_other() {
    let scratch = Scratch::new();
    let policy = scratch.write("policy.weir", TWICE);
    let outs = ["a.pcap", "b.pcap", "c.pcap"].map(|name| scratch.file(name));
    let runs = outs.each_ref().map(|out| {
        start(&["run", &policy, "--bind", &demo_rx(), "--bind", &tx(out), "--json", "-q"])
    });
    for (run, out) in runs.into_iter().zip(&outs) {
        let ended = run.end();
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert_sound("side by side", &ended.json());
        assert!(records(out) == records(&demo_capture()));
    }
}

/// `/proc`: nobody, not even root, can make a file there.
#[test]
fn nothing_is_written_to_the_current_directory() {
    let scratch = Scratch::new();
    let policy = scratch.write("policy.weir", TWICE);
    let demo = demo_capture().canonicalize().unwrap();
    for isolate in ["each", "none"] {
        let out = scratch.file("out.pcap");
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        let rx = format!("0=pcap:rx={}", demo.display());
        command.args(["run", &policy, "--bind", &rx, "--bind", &tx(&out), "--isolate", isolate]);
        let ended = spawn({
            command.args(["--json", "-q"]).current_dir("/proc");
            command
        })
        .end();
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
        assert!(records(&out) == records(&demo));
    }
}

#[test]
fn isolated_each_nf_has_a_worker_and_fused_all_share_one() {
    let scratch = Scratch::new();
    let policy = scratch.write("policy.weir", TWICE);
    for (isolate, workers) in [("each", 4), ("none", 3)] {
        let rx = demo_rx();
        let run = ["run", &policy, "--bind", &rx, "--bind", "1=null", "--isolate", isolate];
        let report = report(&[&run[..], &["--json", "-q"]].concat());
        assert_eq!(report["workers"].as_array().unwrap().len(), workers);
        let of: BTreeSet<_> =
            report["nodes"].as_array().unwrap().iter().map(|n| n["worker"].to_string()).collect();
        assert_eq!(of.len(), workers);
    }
}

/// A worker kept busy by one source must pass on what another promises, and its end.
#[test]
fn a_source_that_never_rests_does_not_hold_another_back() {
    let scratch = Scratch::new();
    // `b` is endless and takes one way through `w`; `a` diverges and rejoins there.
    let policy = scratch.write(
        "policy.weir",
        "Port<0> a; Port<1> b; Port<2> out; MacSwap l; MacSwap w; Busy slow { cycles: 2000 };
         pipelet { a [udp src portrange 0-30000] -> l; a [!(udp src portrange 0-30000)] -> w;
            l -> w; b -> w; w -> slow; slow -> out; }",
    );
    let ended = weir(&[
        "run",
        &policy,
        "--bind",
        "0=gen:packets=20000",
        "--bind",
        "1=gen",
        "--bind",
        "2=null",
        "--duration",
        "3",
        "--json",
        "-q",
    ]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let report: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    let nodes = report["nodes"].as_array().unwrap();
    let a = nodes.iter().find(|n| n["name"] == "rx:a").unwrap();
    assert_eq!(a["packets"], 20_000, "{a}");
}

#[test]
fn an_output_that_nobody_reads_ends_neither_run_nor_check_in_a_panic() {
    let scratch = Scratch::new();
    let policy = scratch.write("policy.weir", TWICE);
    for args in [
        vec!["check", &policy],
        vec!["nf", "list"],
        vec!["run", &policy, "--bind", "0=gen:packets=10", "--bind", "1=null"],
    ] {
        let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_weir"));
        let status = command.args(&args).stdout(full()).stderr(full()).status().unwrap();
        assert_ne!(status.code(), Some(101), "{args:?}");
        assert!(status.code().is_some(), "{args:?}");
    }
}

#[test]
fn a_policy_is_read_from_files_and_pipes_only_and_up_to_its_limit() {
    let scratch = Scratch::new();
    let folder = scratch.file("folder");
    std::fs::create_dir(&folder).unwrap();
    let folder = folder.to_str().unwrap();
    let long = scratch.write("long.weir", "é".repeat(3 << 20));
    let odd = scratch.write("odd.weir", [b'a', 0xff]);
    for (file, says) in [
        ("/dev/zero", "a device is not read"),
        (folder, "a directory is not read"),
        (&long, "long.weir:1:1: error: the policy is longer than 4194304 bytes"),
        (&odd, "it is not UTF-8"),
    ] {
        let ended = weir(&["check", file]);
        assert_eq!(ended.code, Some(2), "{}", ended.stderr);
        assert!(ended.stderr.contains(file) && ended.stderr.contains(says), "{}", ended.stderr);
    }
    let policy = scratch.write("policy.weir", TWICE);
    let read = std::fs::File::open(policy).unwrap();
    let mut cat = std::process::Command::new("cat")
        .stdin(read)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let pipe = cat.stdout.take().unwrap();
    let mut check = std::process::Command::new(env!("CARGO_BIN_EXE_weir"));
    let ended = check.args(["check", "-q", "/dev/stdin"]).stdin(pipe).status().unwrap();
    assert!(ended.success() && cat.wait().unwrap().success());
}

#[test]
fn a_policy_from_a_pipe_that_nobody_writes_into_says_what_it_waits_for() {
    let scratch = Scratch::new();
    let pipe = scratch.file("policy.weir");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let mut check = start(&["check", pipe.to_str().unwrap()]);
    check.wait_for("is a pipe, and nothing comes out of it");
    std::fs::write(&pipe, TWICE).unwrap();
    let ended = check.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stderr.contains(pipe.to_str().unwrap()), "{ended:?}");
    assert!(ended.stdout.contains("right"), "{ended:?}");
}

/// What none of these ends by itself would show as a test that does not end.
#[test]
fn an_include_of_what_is_no_file_is_an_error_at_once() {
    let scratch = Scratch::new();
    let pipe = scratch.file("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let pipe = pipe.to_str().unwrap();
    for (file, says) in
        [(pipe, "is not a file"), ("/dev/zero", "is not a file"), ("/", "is not a file")]
    {
        let policy = scratch.write(
            "including.weir",
            format!("include \"{file}\";\nPort<0> a; pipelet {{ a -> a; }}\n"),
        );
        let ended = weir(&["check", &policy]);
        assert_eq!(ended.code, Some(2), "{}", ended.stderr);
        assert!(ended.stderr.contains("including.weir:1:9: error"), "{}", ended.stderr);
        assert!(ended.stderr.contains(says), "{}", ended.stderr);
    }
}

#[test]
fn a_pipe_is_no_capture() {
    let scratch = Scratch::new();
    let policy = scratch.write("policy.weir", TWICE);
    let pipe = scratch.file("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for bind in [format!("0=pcap:rx={}", pipe.display()), demo_rx()] {
        let ended = weir(&["run", &policy, "--bind", &bind, "--bind", &tx(&pipe), "-q"]);
        assert_eq!(ended.code, Some(2), "{}", ended.stderr);
        assert!(ended.stderr.contains("pipe"), "{}", ended.stderr);
    }
}

#[test]
fn the_policy_is_not_written_over() {
    let scratch = Scratch::new();
    let policy = scratch.write("policy.weir", TWICE);
    let ended =
        weir(&["run", &policy, "--bind", &demo_rx(), "--bind", &format!("1=pcap:tx={policy}")]);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert_eq!(std::fs::read_to_string(&policy).unwrap(), TWICE);
}

#[test]
fn copies_come_home_and_are_made_again_however_small_the_pool() {
    let scratch = Scratch::new();
    let policy = scratch.write(
        "policy.weir",
        "Port<0> a; Port<1> b; Tee t; pipelet { a -> t; t [t.out] -> b; t [t.copy] -> Drop; }",
    );
    for isolate in ["each", "none"] {
        let report = report(&[
            "run",
            &policy,
            "--bind",
            "0=gen:packets=5000",
            "--bind",
            "1=null",
            "--pool",
            "128",
            "--isolate",
            isolate,
            "--json",
            "-q",
        ]);
        assert_eq!(report["balance"]["copied"], 5000);
        assert_eq!(report["balance"]["dropped"], 5000);
    }
}
