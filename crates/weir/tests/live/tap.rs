//! TAP interfaces: the kernel's own stack as the other end.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_crash::*;
use crate::common_live::*;
use rustix::process::{Signal, kill_process};

const HERE: &str = "192.0.2.3/24";

/// Weir between its TAP interface, which gets an address, and the server's veth pair.
fn run_with_tap(net: &Network, scratch: &Scratch) -> Run {
    let policy = scratch.policy(THROUGH);
    let run = net.run(&policy, &["--bind", "0=tap:weir0", "--bind", "1=afp:m1"]);
    let show = || net.weir.exec("ip", &["link", "show", "dev", "weir0", "up"]);
    wait_until("the interface", PATIENCE, || !show().stdout.is_empty());
    address(net);
    wait_until("the first answered ping", PATIENCE, || net.weir.ping(SERVER));
    run
}

fn address(net: &Network) {
    net.weir.ip(&format!("addr add {HERE} dev weir0"));
    net.weir.ip("addr add fd00::3/64 dev weir0 nodad");
}

#[test]
fn pings_and_pages_pass_a_tap_interface_that_goes_with_the_run() {
    if skipped("pings_and_pages_pass_a_tap_interface") {
        return;
    }
    let (scratch, net) = (Scratch::new("live-tap"), Network::new());
    let (_nginx, page) = net.web_server(&scratch);
    let run = run_with_tap(&net, &scratch);
    assert!(net.weir.ping(SERVER6), "ping over IPv6");
    for host in [SERVER, "[fd00::2]"] {
        let arrived = net.weir.curl(&format!("http://{host}/large")).unwrap();
        assert!(arrived == page, "{host}: {} bytes of {}", arrived.len(), page.len());
    }
    // The other way the kernel leaves segments and checksums to this end.
    let upload = scratch.file("site/large").display().to_string();
    let listen = "import socket\ns = socket.create_server(('192.0.2.2', 99))\n\
                  print('ready', flush=True)\nc = s.accept()[0]\nn = 0\n\
                  while d := c.recv(1 << 20): n += len(d)\nprint(n, flush=True)\n";
    let mut server = net.server.command("python3");
    let server = server.args(["-c", listen]).stdout(std::process::Stdio::piped());
    let mut server = server.spawn().unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(server.stdout.take().unwrap()));
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    let send = "import socket, sys\ns = socket.create_connection(('192.0.2.2', 99))\n\
                s.sendall(open(sys.argv[1], 'rb').read())\n";
    assert!(net.weir.exec("python3", &["-c", send, &upload]).status.success());
    assert_eq!(lines.next().unwrap().unwrap(), page.len().to_string());
    server.wait().unwrap();
    net.assert_checksums();
    run.signal(Signal::INT);
    let finished = run.finish();
    finished.assert_sound("tap");
    assert_eq!(drops(&finished.report), [], "{:#}", finished.report);
    let show = net.weir.exec("ip", &["link", "show", "dev", "weir0"]);
    assert!(!show.status.success(), "the interface is still there");
}

#[test]
fn the_tap_interface_outlives_its_services() {
    if skipped("the_tap_interface_outlives_its_services") {
        return;
    }
    let (scratch, net) = (Scratch::new("live-tap-kill"), Network::new());
    let mut run = run_with_tap(&net, &scratch);
    for victim in ["rx:a", "tx:a"] {
        kill_process(run.workers()[victim], Signal::KILL).unwrap();
        run.wait_for_line(victim, |l| l.starts_with(&format!("weir: worker {victim} runs again")));
        // The address is still there, so the interface is the same.
        wait_until("an answered ping", PATIENCE, || net.weir.ping(SERVER));
    }
    run.signal(Signal::INT);
    run.finish().assert_sound("tap services killed");
}

#[test]
fn a_tap_interface_that_goes_down_or_is_deleted_is_told_and_taken_up_again() {
    if skipped("a_tap_interface_that_goes_down_or_is_deleted") {
        return;
    }
    let (scratch, net) = (Scratch::new("live-tap-gone"), Network::new());
    let mut run = run_with_tap(&net, &scratch);
    let mut wait = |text: &str| {
        let wanted = format!("weir: warning: tap:weir0: interface is {text}");
        run.wait_for_line(&wanted, |line| line == wanted);
    };
    net.weir.ip("link set weir0 down");
    wait("down");
    net.weir.ip("link set weir0 up");
    wait("up again");
    wait_until("an answered ping", PATIENCE, || net.weir.ping(SERVER));
    net.weir.ip("link del weir0");
    wait("gone; waiting for one of that name");
    net.weir.ip("tuntap add dev weir0 mode tap");
    net.weir.ip("link set weir0 up");
    wait("up again");
    address(&net);
    wait_until("an answered ping", PATIENCE, || net.weir.ping(SERVER));
    run.signal(Signal::INT);
    run.finish().assert_sound("tap deleted");
}
