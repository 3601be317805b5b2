//! What the command refuses, with which exit code and words, and how it explains itself.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_oracle::*;
use std::os::unix::fs::symlink;

/// Bad input: exit code 2, all of `says` on the error output, nothing else.
fn refused(args: &[&str], says: &[&str]) {
    let ended = weir(args);
    assert_eq!(ended.code, Some(2), "{args:?}: {ended:?}");
    assert_eq!(ended.stdout, "", "{args:?}");
    for text in says {
        assert!(ended.stderr.contains(text), "{args:?}: `{text}` is not in:\n{}", ended.stderr);
    }
}

#[test]
fn a_wrong_policy_is_refused_with_file_line_column_and_the_cure() {
    let scratch = Scratch::new();
    let file = scratch.write("bad.weir", "Port<0> lan;\nPort<1> wan;\npipelet { lan -> wann; }\n");
    let at = format!("{file}:3:18");
    refused(&["run", &file, "--bind", "0=gen", "--bind", "1=null"], &[&at, "wann", "`wan`"]);
    refused(&["check", &file], &[&at, "wann", "`wan`"]);

    let file = scratch
        .write("config.weir", "MacSwap x { speed: 1 };\nPort<0> p;\npipelet { p -> x -> p; }\n");
    refused(&["check", &file], &[&format!("{file}:1:"), "speed"]);
    let file = scratch.write("empty.weir", "");
    refused(&["check", &file], &[&file]);
    let file = scratch.write("binary.weir", [0xff, 0xfe, 0]);
    refused(&["check", &file], &[&file, "UTF-8"]);
    let missing = scratch.file("missing.weir");
    let missing = missing.to_str().unwrap();
    refused(&["check", missing], &[missing, "No such file"]);
    refused(&["run", missing, "--bind", "0=gen"], &[missing, "No such file"]);
}

#[test]
fn devices_that_cannot_be_bound_are_refused_with_what_to_write() {
    let scratch = Scratch::new();
    let policy = scratch.write("policy.weir", FORWARD);
    let rx = demo_rx();
    let missing = scratch.file("missing.pcap");
    let missing = missing.to_str().unwrap();
    let run = |binds: &[&str], says: &[&str]| {
        let mut args = vec!["run", policy.as_str()];
        binds.iter().for_each(|b| args.extend(["--bind", b]));
        refused(&args, says);
    };
    run(&[&rx], &["port 1 (`wan`)", "--bind 1=null"]);
    run(&[], &["--bind"]);
    run(&["1=null"], &["no packets come in", "0"]);
    run(&[&rx, "1=null", "7=null"], &["no port 7"]);
    run(&[&rx, "1=null", "1=null"], &["bound twice"]);
    run(&["0=eth0", "1=null"], &["`eth0`", "pcap:rx=FILE"]);
    run(&["zero=null"], &["`zero` is not a port number"]);
    run(&["0=gen:size=1", "1=null"], &["60 to 9000"]);
    run(&[&format!("0=pcap:rx={missing}"), "1=null"], &[missing, "No such file"]);
    run(&[&format!("0=pcap:rx={policy}"), "1=null"], &[&policy, "not a capture file"]);
    run(&[&rx, "1=gen"], &["port 1"]);
    let bound = ["run", &policy, "--bind", &rx, "--bind", "1=null"];
    refused(&[&bound[..], &["--duration", "soon"]].concat(), &["number of seconds"]);
    refused(&[&bound[..], &["--cores", "0-99999"]].concat(), &["--cores"]);
    let empty = scratch.write("zero-bytes.pcap", "");
    run(&[&format!("0=pcap:rx={empty}"), "1=null"], &[&empty, "empty"]);
}

/// Whatever name it has: an input must never be overwritten.
#[test]
fn input_and_output_in_one_file_are_refused_and_the_file_stays_as_it_is() {
    let scratch = Scratch::new();
    let policy = scratch.write("policy.weir", FORWARD);
    let content = std::fs::read(demo_capture()).unwrap();
    let input = scratch.write("in.pcap", &content);
    let (soft, hard) = (scratch.file("soft.pcap"), scratch.file("hard.pcap"));
    symlink(&input, &soft).unwrap();
    std::fs::hard_link(&input, &hard).unwrap();
    let dotted = scratch.path().join("./in.pcap");
    for output in [std::path::Path::new(&input), &soft, &hard, &dotted] {
        let rx = format!("0=pcap:rx={input}");
        refused(&["run", &policy, "--bind", &rx, "--bind", &tx(output)], &["name another file"]);
        assert!(std::fs::read(&input).unwrap() == content, "{}", output.display());
    }
}

#[test]
fn every_command_explains_itself() {
    for (args, says) in [
        (&["--help"][..], &["run", "check", "nf", "bench"][..]),
        (&["run", "--help"], &["--bind", "--isolate", "--cores", "--duration", "--json", "POLICY"]),
        (&["check", "--help"], &["--isolate", "--cores", "POLICY"]),
        (&["explain", "--help"], &["--stage", "--format", "policy", "merged", "plan", "svg"]),
        (&["diff", "--help"], &["OLD", "NEW", "--json"]),
        (&["nf", "--help"], &["list", "show"]),
        (&["nf", "list", "--help"], &["Usage"]),
        (&["nf", "show", "--help"], &["NAME"]),
        (&["bench", "--help"], &["Usage"]),
        (&["--version"], &["weir"]),
    ] {
        let ended = weir(args);
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{args:?}");
        for text in says {
            assert!(ended.stdout.contains(text), "{args:?}: `{text}` is not in:\n{}", ended.stdout);
        }
    }
    refused(&["fly"], &["fly"]);
    refused(&["run"], &["POLICY"]);
    refused(&["run", "x", "--isolate", "some"], &["each", "none", "auto"]);
}

#[test]
fn check_says_that_a_policy_is_right_and_runs_nothing() {
    let chain = root().join("demo/chain.weir");
    let chain = chain.to_str().unwrap();
    let ended = weir(&["check", chain]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    assert!(ended.stdout.contains("chain.weir: right: 8 NFs"), "{}", ended.stdout);
    let quiet = weir(&["check", chain, "--quiet"]);
    assert_eq!((quiet.code, quiet.stdout.as_str()), (Some(0), ""));
}

#[test]
fn cores_are_written_alike_for_every_command() {
    let chain = root().join("demo/chain.weir");
    let chain = chain.to_str().unwrap();
    let core = first_core();
    let range = format!("{core}-{core}");
    for command in [&["check", chain][..], &["explain", chain], &["diff", chain, chain]] {
        let ended = weir(&[command, &["--cores", &range]].concat());
        assert_eq!(ended.code, Some(0), "{ended:?}");
        refused(&[command, &["--cores", "x"]].concat(), &["write cores such as 0,1 or 0-3"]);
    }
}

#[test]
fn check_warns_of_an_nf_that_is_too_slow_for_the_stated_traffic_and_may_not_be_split() {
    let scratch = Scratch::new();
    let described =
        scratch.write("slow.json", r#"{ "nf": "Slow", "rate": { "per_core_ghz": "1 kpps" } }"#);
    let text = "Port<0> lan; Port<1> wan; Slow s; pipelet { lan -> (1 Mpps) s -> wan; }";
    let policy = scratch.write("slow.weir", text);
    let ended = weir(&["check", &policy, "--describe", &described]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stderr.contains("weir: warning: s: 1.00 Mpps are expected"), "{ended:?}");
    let shown = weir(&["explain", &policy, "--describe", &described, "--stage", "instances"]);
    assert!(shown.stdout.contains("its description allows one"), "{shown:?}");
}

#[test]
fn explain_shows_each_stage_in_each_format() {
    let chain = root().join("demo/chain.weir");
    let chain = chain.to_str().unwrap();
    for isolate in ["each", "none"] {
        let ended = weir(&["explain", chain, "--isolate", isolate]);
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
        for name in ["rx:wan", "edge_rules", "app_urls", "tx:lan"] {
            assert!(ended.stdout.contains(name), "{}", ended.stdout);
        }
    }
    for stage in ["merged", "units", "consolidated", "parallel", "instances", "plan"] {
        let show = |format: &str| {
            let ended = weir(&["explain", chain, "--stage", stage, "--format", format]);
            assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{stage} {format}");
            ended.stdout
        };
        assert!(show("text").contains("edge_rules"), "{stage}");
        assert!(show("dot").starts_with("digraph"));
        assert!(show("svg").contains(">edge_rules</text>"));
        let json: serde_json::Value = serde_json::from_str(&show("json")).unwrap();
        assert!(json.to_string().contains("\"edge_rules\""));
    }
    // What was left out is there in each format, with the reason.
    for format in ["text", "dot", "svg", "json"] {
        let args = ["explain", chain, "--stage", "consolidated", "--format", format];
        let shown = weir(&args).stdout;
        assert!(shown.contains("mon_ip"), "{format}: {shown}");
        assert!(shown.contains(if format == "json" { "known" } else { "left out" }), "{shown}");
    }
    let written = weir(&["explain", chain, "--stage", "policy"]).stdout;
    assert!(written.contains("pipelet"), "{written}");
    let scratch = Scratch::new();
    let file = scratch.file("policy.svg");
    let file = file.to_str().unwrap();
    let args = ["explain", chain, "--stage", "policy", "--format", "svg", "-o", file];
    let ended = weir(&args);
    assert_eq!((ended.code, ended.stdout.as_str(), ended.stderr.as_str()), (Some(0), "", ""));
    assert!(std::fs::read_to_string(file).unwrap().starts_with("<svg"));
    let json = weir(&["explain", chain, "--stage", "policy", "--format", "json"]).stdout;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let statements = json["statements"].as_array().unwrap();
    assert!(statements.iter().any(|s| s["statement"] == "port" && s["first"] == 0), "{json}");
    let pipelet = statements.iter().find(|s| s["statement"] == "pipelet").unwrap();
    let edges = &pipelet["statements"][0];
    assert_eq!(edges["statement"], "edges");
    assert!(edges["edges"][0]["to"].is_string(), "{json}");
    let ended = weir(&["explain", chain, "-o", "/nowhere/x.svg"]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("/nowhere/x.svg: No such file"), "{}", ended.stderr);
}

#[test]
fn diff_lists_what_leads_from_one_policy_to_another() {
    let scratch = Scratch::new();
    let (one, two) = (scratch.write("one.weir", FORWARD), scratch.write("two.weir", TWICE));
    let same = weir(&["diff", &one, &one]);
    assert_eq!((same.code, same.stdout.as_str()), (Some(0), ""));
    assert!(same.stderr.starts_with("weir: the plans are equal; "), "{}", same.stderr);
    let ended = weir(&["diff", &one, &two]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    assert!(ended.stdout.contains("start worker x\n"), "{}", ended.stdout);
    let json = weir(&["diff", &one, &two, "--json"]).stdout;
    let actions: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(actions.as_array().unwrap().len(), ended.stdout.lines().count());
    refused(&["diff", &one, "missing.weir"], &["missing.weir", "No such file"]);
}

#[test]
fn nf_list_names_all_types_and_show_gives_the_schema_of_each() {
    let list = weir(&["nf", "list"]);
    assert_eq!(list.code, Some(0));
    let names: Vec<_> = list.stdout.lines().map(|l| l.split(' ').next().unwrap()).collect();
    for name in [
        "MacSwap",
        "CheckIpHeader",
        "L3L4Filter",
        "HttpClassifier",
        "CountUrl",
        "ValidateUrl",
        "Drop",
        "Busy",
    ] {
        assert!(names.contains(&name), "{names:?}");
    }
    for name in names {
        let shown = weir(&["nf", "show", name]);
        assert_eq!(shown.code, Some(0));
        let json = shown.json();
        assert_eq!(json["description"]["name"], name);
        assert!(json["config"].is_object());
    }
    refused(&["nf", "show", "MacSwop"], &["MacSwop", "weir nf list", "did you mean `MacSwap`?"]);
    refused(&["nf", "show", "tee"], &["did you mean `Tee`?"]);
    // Of two of one name it is said which is which.
    let balancers: Vec<_> =
        list.stdout.lines().filter(|l| l.starts_with("LoadBalancer ")).collect();
    assert!(
        balancers[0].ends_with("(the µNF that the template of this name uses)"),
        "{balancers:?}"
    );
    assert!(balancers[1].ends_with("(VNF template)"), "{balancers:?}");
}

#[test]
fn nf_show_says_how_many_flows_are_remembered_of_nfs_that_remember_flows() {
    let says = |nf: &str| weir(&["nf", "show", nf]).json()["description"].get("flows").is_some();
    assert!(says("ConnTrack") && says("FlowMonitor"));
    assert!(!says("CheckIpHeader") && !says("Tee"));
}

#[test]
fn a_user_of_workers_is_given_by_number() {
    let policy = "Port<0> a; MacSwap x; pipelet { a -> x; x -> a; }";
    let policy = Scratch::new().write("policy.weir", policy);
    for user in ["nobody", "0"] {
        refused(&["run", &policy, "--worker-user", user], &[user, "a user's number is wanted"]);
    }
}

#[test]
fn of_an_nf_whose_type_is_unknown_no_more_is_said_than_that() {
    let policy = "Port<0> a; Port<1> b; Unheard x;\n\
                  pipelet { a -> [in] x; x [x.out && x.tag > 3] -> b; b [x.flag] -> a; }";
    let scratch = Scratch::new();
    let ended = weir(&["check", &scratch.write("policy.weir", policy)]);
    assert_eq!(ended.stderr.matches("error:").count(), 1, "{}", ended.stderr);
}

#[test]
fn nf_show_says_on_which_fields_it_depends_what_packets_must_meet() {
    let shown = |nf: &str| weir(&["nf", "show", nf]).json()["description"].clone();
    let policer = shown("Policer");
    assert_eq!(policer["affinity"], "all");
    assert_eq!(policer["affinity_depends_on"], serde_json::json!(["total"]));
    assert_eq!(policer["affinity_without"], "flow");
    let monitor = shown("FlowMonitor");
    assert_eq!(monitor["affinity"], "flow");
    assert!(monitor["affinity_depends_on"].is_null() && monitor["affinity_without"].is_null());
}

#[test]
fn nf_show_says_what_holds_when_nothing_is_written() {
    let default = |nf: &str, key: &str| {
        weir(&["nf", "show", nf]).json()["config"]["properties"][key]["default"].clone()
    };
    assert_eq!(default("IcmpError", "rate"), 100);
    assert_eq!(default("IcmpError", "unreachable"), "host");
    assert_eq!(default("L3L4Filter", "default"), "pass");
    assert_eq!(default("ValidateUrl", "keep"), 1000);
}

#[test]
fn an_nf_that_is_not_there_may_be_in_a_program_that_was_not_given() {
    let scratch = Scratch::new();
    let policy = "Port<0> a; MarkDscp m; pipelet { a -> m; m -> a; }";
    let policy = scratch.write("outside.weir", policy);
    refused(&["check", &policy], &["MarkDscp", "--with PROGRAM"]);
    // One that is near to a type of the library is misspelt, most likely.
    let near = scratch.write("near.weir", "Port<0> p; MacSwop x; pipelet { p -> x -> p; }");
    let ended = weir(&["check", &near]);
    assert!(ended.stderr.contains("= write `MacSwap`"), "{}", ended.stderr);
    assert!(!ended.stderr.contains("--with PROGRAM"), "{}", ended.stderr);
    refused(&["nf", "show", "MarkDscp"], &["MarkDscp", "--with PROGRAM"]);
}

#[test]
fn names_of_trust_domains_are_words_of_bounded_length_and_given_once() {
    let scratch = Scratch::new();
    let policy = scratch.write("twice.weir", TWICE);
    let long = format!("x={}", "d".repeat(33));
    for (domain, says) in [
        ("guest", &["INSTANCE=NAME"][..]),
        ("=guest", &["names no NF", "vpn=guest"]),
        ("x=a b", &["letters, digits", "x=guest"]),
        ("x=../../etc", &["letters, digits"]),
        ("x=-", &["begins with neither"]),
        (&long, &["at most 32 characters", "33", "shorter"]),
    ] {
        refused(&["check", &policy, "--domain", domain], says);
    }
    let twice = ["--domain", "x=one", "--domain", "y=one", "--domain", "x=two"];
    refused(&[&["check", &policy][..], &twice].concat(), &["--domain x", "twice", "give it one"]);
    let fits = format!("x={}", "d".repeat(32));
    assert_eq!(weir(&["check", &policy, "--domain", &fits]).code, Some(0));
}

#[test]
fn every_fault_of_a_configuration_is_said_at_its_value() {
    let scratch = Scratch::new();
    let policy = "Port<0> a; Port<1> b;
Busy x { cycles: \"many\",
  colour: 3 };
L3L4Filter f { default: \"nothing\",
  rules: [
    { action: \"pass\", proto: \"tcp\" },
    { action: \"let\", proto: \"tcp\" },
    { action: \"drop\", sorce: \"10.0.0.0/8\" } ] };
pipelet { a -> x -> f -> b; }";
    let file = scratch.write("faults.weir", policy);
    let ended = weir(&["check", &file]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    let places: Vec<&str> = ended
        .stderr
        .lines()
        .filter_map(|line| line.strip_prefix(&format!("{file}:"))?.split(": error").next())
        .collect();
    let wanted = ["2:10", "3:3", "4:16", "7:7", "8:23"];
    assert_eq!(places, wanted, "{}", ended.stderr);
}

/// `weir run` of a small policy, in surroundings that a shell makes first.
fn run_after(first: &str) -> Ended {
    run_in("sh", first, "1=null")
}

/// The same of a shell, with an output.
fn run_in(shell: &str, first: &str, output: &str) -> Ended {
    let scratch = Scratch::new();
    let policy = scratch.write("policy.weir", FORWARD);
    let mut command = std::process::Command::new(shell);
    command.args(["-c", &format!("{first} && exec \"$@\""), "sh", env!("CARGO_BIN_EXE_weir")]);
    command.args(["run", &policy, "--bind", &demo_rx(), "--bind", output]);
    spawn(command).end()
}

#[test]
fn too_few_files_are_said_with_how_many_and_what_to_do() {
    // With 64 the kernel does not refuse files, but the limit that a worker is to have.
    for most in [8, 16, 24, 48, 64] {
        let ended = run_after(&format!("ulimit -n {most}"));
        assert_eq!(ended.code, Some(1), "{ended:?}");
        for text in [&format!("only {most} files"), "ulimit -n 384"] {
            assert!(ended.stderr.contains(text), "{ended:?}");
        }
    }
}

#[test]
fn a_limit_on_file_size_is_named_whether_memory_or_a_capture_meets_it() {
    // In units of 1 KiB (bash).
    for most in [8, 100, 4000] {
        let ended = run_in("bash", &format!("ulimit -f {most}"), "1=null");
        assert_eq!(ended.code, Some(1), "{ended:?}");
        for text in ["shared memory", "File too large", "the limit on file size", "ulimit -f"] {
            assert!(ended.stderr.contains(text), "{ended:?}");
        }
        assert!(!ended.stderr.contains("free memory"), "{ended:?}");
    }
}

#[test]
fn a_limit_on_processes_is_named() {
    if !rustix::process::getuid().is_root() {
        eprintln!(
            "skipped: a_limit_on_processes_is_named needs root, which then becomes a user without processes"
        );
        return;
    }
    let scratch = Scratch::new();
    let policy = scratch.write("policy.weir", FORWARD);
    // Folders may be closed to others: program and policy are open before.
    let first = "exec 8<\"$1\" 9<\"$2\"; \
         exec setpriv --reuid=65531 --regid=65531 --clear-groups bash -c \
         \"ulimit -u $3; exec /proc/self/fd/8 run /proc/self/fd/9 --bind 0=gen:packets=1 --bind 1=null\"";
    for most in ["0", "3"] {
        let mut command = std::process::Command::new("bash");
        command.args(["-c", first, "bash", env!("CARGO_BIN_EXE_weir"), &policy, most]);
        let ended = spawn(command).end();
        assert_eq!(ended.code, Some(1), "{ended:?}");
        for text in ["no more processes are allowed", "this user may have", "ulimit -u"] {
            assert!(ended.stderr.contains(text), "{most}: {ended:?}");
        }
    }
}

#[test]
fn what_steers_a_terminal_is_shown_not_sent() {
    let scratch = Scratch::new();
    let policy = scratch.write("policy.weir", FORWARD);
    let escape = "x\u{1b}[2J\u{202e}";
    let odd = scratch.file(&format!("{escape}.weir"));
    std::fs::write(&odd, format!("Port<0> a; {escape}")).unwrap();
    let odd = odd.to_str().unwrap().to_owned();
    let fine = scratch.file(&format!("fine{escape}.weir"));
    std::fs::write(&fine, FORWARD).unwrap();
    let fine = fine.to_str().unwrap().to_owned();
    let bind = format!("0=pcap:rx={escape}");
    let unknown = format!("{escape}=0");
    for (args, code) in [
        (vec!["run", &policy, "--bind", escape], 2),
        (vec!["run", &policy, "--bind", &bind, "--bind", "1=null"], 2),
        (vec!["check", &policy, "--domain", &unknown, "--instances", &unknown], 2),
        (vec![escape], 2),
        (vec!["check", escape], 2),
        (vec!["check", &odd], 2),
        (vec!["check", &fine], 0),
        (vec!["explain", &fine], 0),
        (vec!["nf", "show", escape], 2),
    ] {
        let ended = weir(&args);
        assert_eq!(ended.code, Some(code), "{args:?}: {ended:?}");
        let said = ended.stdout + &ended.stderr;
        assert!(!said.contains(['\u{1b}', '\u{202e}']), "{args:?}: {said:?}");
        let quiet = args[0] == "explain";
        assert!(
            quiet || said.contains("\\u202e") || said.contains('\u{fffd}'),
            "{args:?}: {said:?}"
        );
    }
}

#[test]
fn a_machine_without_proc_is_told_to_mount_it() {
    if !rustix::process::getuid().is_root() {
        eprintln!("skipped: a_machine_without_proc_is_told_to_mount_it needs root");
        return;
    }
    let scratch = Scratch::new();
    let policy = scratch.write("policy.weir", FORWARD);
    let mut unshare = std::process::Command::new("unshare");
    let hide = "mount -t tmpfs none /proc && exec \"$@\"";
    unshare.args(["--mount", "sh", "-c", hide, "sh", env!("CARGO_BIN_EXE_weir")]);
    unshare.args(["run", &policy, "--bind", &demo_rx(), "--bind", "1=null"]);
    let ended = spawn(unshare).end();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("mount -t proc proc /proc"), "{ended:?}");
}

#[test]
fn one_file_as_two_outputs_is_refused_before_it_exists() {
    let scratch = Scratch::new();
    let policy = scratch
        .write("policy.weir", "Port<0> a; Port<1> b; pipelet { a [ip] -> b; a [!ip] -> a; }");
    let (one, other) = (scratch.file("out.pcap"), scratch.path().join("./out.pcap"));
    let first = format!("0=pcap:rx={},tx={}", demo_capture().display(), one.display());
    let run = ["run", &policy, "--bind", &first, "--bind", &tx(&other)];
    refused(&run, &["name another file"]);
    assert!(!one.exists());
}
