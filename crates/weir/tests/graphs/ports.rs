//! One suite for every port: whatever way packets take from one NF to the next, they arrive once each, unharmed, in order
//! and counted; a full ring pushes back; the end of the input is passed on; and whoever dies at whatever step of the
//! protocol loses at most the batch in its hands.
#![cfg(feature = "faults")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_crash::*;

/// A port, by a policy whose packets take it.
struct Port {
    name: &'static str,
    policy: &'static str,
    args: &'static [&'static str],
    /// What finds a ring full is dropped, instead of waiting.
    drops: bool,
}

const PORTS: [Port; 9] = [
    Port { name: "device", policy: "pipelet { lan -> wan; }", args: &[], drops: false },
    Port {
        name: "direct",
        policy: "MacSwap a; MacSwap b; pipelet { lan -> a -> b -> wan; }",
        args: &["--isolate", "none"],
        drops: false,
    },
    Port {
        name: "point-to-point",
        policy: "MacSwap a; MacSwap b; pipelet { lan -> a -> b -> wan; }",
        args: &["--isolate", "each"],
        drops: false,
    },
    Port {
        name: "filter and merge",
        policy: "MacSwap a; MacSwap b; MacSwap c; MacSwap d;
pipelet { lan -> a; a [udp dst portrange 6000-6002] -> b; a [!(udp dst portrange 6000-6002)] -> c; b -> d; c -> d; d -> wan; }",
        args: &["--isolate", "each"],
        drops: false,
    },
    Port {
        name: "branch and sync",
        policy: "MacSwap a; PacketSizeHistogram b; CountSubnet c; MacSwap d;
pipelet { lan -> a -> b -> c -> d -> wan; }",
        args: &["--isolate", "each", "--parallel", "always"],
        drops: false,
    },
    // What a branch that writes has died of must not get further: it is dropped, and counted.
    Port {
        name: "branch that writes",
        policy: "PacketSizeHistogram a; MacSwap b; CountSubnet c; MacSwap d;
pipelet { lan -> a -> b -> c -> d -> wan; }",
        args: &["--isolate", "each", "--parallel", "always"],
        drops: true,
    },
    Port {
        name: "balance",
        policy: "MacSwap a; MacSwap b; pipelet { lan -> a -> b -> wan; }",
        args: &["--isolate", "each", "--instances", "b=2"],
        drops: false,
    },
    Port {
        name: "gate",
        policy: "MacSwap a; MacSwap b; pipelet { lan -> a -> b -> wan; }",
        args: &["--isolate", "each", "--domain", "b=other"],
        drops: false,
    },
    // Each packet goes round once: swapped twice it is as it was.
    Port {
        name: "around a cycle",
        policy: "MacSwap a; PacketSizeHistogram b; default drop;
pipelet { lan -> a; a [ether dst 02:00:00:00:00:02] -> b; b -> a; a [ether dst 02:00:00:00:00:01] -> wan; }",
        args: &["--isolate", "each"],
        drops: true,
    },
];

const PACKETS: u64 = 4_000;
/// Steps of the protocol at which each worker dies, of twelve.
const STEPS: u64 = 4;

impl Port {
    /// Runs it; the report, and the numbers of the packets that came.
    fn run(&self, scratch: &Scratch, more: &[&str], what: &str) -> (Finished, Vec<u64>) {
        let (input, out) = (scratch.file("in.pcap"), scratch.file("out.pcap"));
        let policy = scratch.policy(&format!("Port<0> lan; Port<1> wan; {}", self.policy));
        let rx = format!("0=pcap:rx={}", input.display());
        let tx = format!("1=pcap:tx={}", out.display());
        let own = ["--bind", &rx, "--bind", &tx, "--restart-delay", "0", "--spin", "20"];
        let finished = Run::start(&policy, &[&own, self.args, more].concat()).finish();
        let what = format!("{}, {what}", self.name);
        finished.assert_sound(&what);
        // Their addresses stand as NFs have left them; nothing else has changed.
        let numbers = read_capture(&out, number);
        assert_in_order(&numbers, &what);
        let n = |key: &str| finished.number(&format!("/balance/{key}"));
        assert_eq!(n("in"), PACKETS, "{what}");
        assert_eq!(numbers.len() as u64 + n("lost") + n("dropped"), PACKETS, "{what}");
        assert!(self.drops || n("dropped") == 0, "{what}: {:#}", finished.report);
        (finished, numbers)
    }

    fn conforms(&self, choices: &mut Choices) {
        let scratch = Scratch::new(&self.name.replace(' ', "-"));
        write_capture(&scratch.file("in.pcap"), PACKETS);
        let roomy = ["--ring", "8192", "--pool", "8192"];
        let (finished, numbers) = self.run(&scratch, &roomy, "with room for all");
        assert_eq!(numbers.len() as u64, PACKETS, "{}: {:#}", self.name, finished.report);
        let workers: Vec<String> = finished.restarts().into_keys().collect();
        self.run(&scratch, &["--ring", "64", "--pool", "64"], "with little room");
        for worker in &workers {
            for _ in 0..STEPS {
                let (step, nth) = (1 + choices.below(12), 1 + choices.below(4));
                let fault = format!("{worker}:{step}:{nth}");
                let pool = if choices.below(2) == 0 { "64" } else { "1024" };
                let args = ["--fault", &fault, "--pool", pool, "--ring", "128"];
                let (finished, _) = self.run(&scratch, &args, &format!("{args:?}"));
                let lost = finished.number("/balance/lost");
                assert!(lost <= BATCH, "{}, {args:?}: {lost} lost", self.name);
                for (name, restarts) in finished.restarts() {
                    let most = u64::from(name == *worker);
                    assert!(restarts <= most, "{}, {args:?}: restarts of {name}", self.name);
                }
            }
        }
    }
}

#[test]
fn every_port_conforms() {
    let given = std::env::var("WEIR_SEED").ok().and_then(|seed| seed.parse().ok());
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let seed = given.unwrap_or(now.as_nanos() as u64);
    println!("WEIR_SEED={seed} makes the same deaths");
    let choices = &mut Choices(seed);
    PORTS.iter().for_each(|port| port.conforms(choices));
}
