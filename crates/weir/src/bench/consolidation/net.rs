//! A network namespace with veth pairs, for VNFs that are joined by the kernel.

use super::chain::LENGTH;
use crate::bench::own::ENDS_WITH_US;
use std::process::{Command, ExitCode, Output, Stdio};

/// Pairs: one into the first VNF, one behind each.
const PAIRS: usize = LENGTH + 1;

/// Longest frame that the pairs carry, in bytes, without the Ethernet header.
const MTU: usize = 9_000;

/// The interface that frames are sent into, or come out of, of pair `at`.
pub fn end(at: usize, far: bool) -> String {
    format!("weir{at}{}", if far { "b" } else { "a" })
}

/// Words for `unshare` that a new network namespace takes: root makes one in its own name, anybody else in a
/// user namespace of its own, if the kernel permits that.
fn words() -> &'static [&'static str] {
    if rustix::process::getuid().is_root() {
        &["--net", "--"]
    } else {
        &["--user", "--map-root-user", "--net", "--"]
    }
}

/// Runs this very command inside a new network namespace, with `--inside`; `Err` says why there is none.
pub fn enter() -> Result<ExitCode, String> {
    let mut trial = Command::new("unshare");
    run(trial
        .args(words())
        .args(["ip", "link", "add", "weir0a", "type", "veth", "peer", "weir0b"]))?;
    let own = std::env::current_exe().map_err(|e| e.to_string())?;
    let mut inner = Command::new("unshare");
    inner
        .args(words())
        .args(ENDS_WITH_US)
        .arg(own)
        .args(std::env::args_os().skip(1))
        .arg("--inside");
    let status = inner.status().map_err(|e| format!("unshare: {e}"))?;
    Ok(ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
}

/// Refuses a network namespace that anybody uses: what comes next makes interfaces and changes settings. In a new one nothing is up.
pub fn must_be_new() -> Result<(), String> {
    let output = ip("-o link show up")?;
    let up = String::from_utf8_lossy(&output.stdout);
    match up.lines().next().and_then(|line| line.split(": ").nth(1)) {
        None => Ok(()),
        Some(name) => Err(format!(
            "{name} is up here: this is to be run in a network namespace of its own (unshare --net), as its interfaces are made and changed"
        )),
    }
}

/// Makes the pairs. Nobody but the VNFs speaks on them.
pub fn make_pairs() -> Result<(), String> {
    // Else the kernel asks for neighbours there.
    for which in ["all", "default"] {
        let path = format!("/proc/sys/net/ipv6/conf/{which}/disable_ipv6");
        // There is no such file in a kernel without IPv6.
        let _ = std::fs::write(path, "1");
    }
    for at in 0..PAIRS {
        let (near, far) = (end(at, false), end(at, true));
        ip(&format!("link add {near} mtu {MTU} type veth peer name {far} mtu {MTU}"))?;
        for name in [near, far] {
            ip(&format!("link set {name} arp off up"))?;
        }
    }
    Ok(())
}

fn ip(words: &str) -> Result<Output, String> {
    run(Command::new("ip").args(words.split(' ')))
}

fn run(command: &mut Command) -> Result<Output, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().map_err(|e| format!("{name}: {e}"))?;
    if output.status.success() {
        return Ok(output);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{name}: {}", said.lines().next().unwrap_or("failed")))
}
