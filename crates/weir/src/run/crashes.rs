//! What the operator reads of crashes while a graph runs. A µNF that crashes at many packets is not to push everything
//! else off the screen: from some time on there is one line for each of its crashes.

use std::collections::BTreeMap;
use weir_control::Crash;

/// Crashes of one µNF that are told with their packets.
const WHOLE: u64 = 8;

/// Bytes of the packet that are shown; the JSON report has all.
const SHOWN: usize = 256;

/// Characters of a cause where a crash has one line.
const SHORT: usize = 120;

/// What was told so far.
#[derive(Default)]
pub(super) struct Crashes {
    /// By µNF, or by worker where none ran.
    times: BTreeMap<String, u64>,
    /// Workers whose last crash has one line: neither that death nor the return from it is told besides. Whether the
    /// death has come.
    short: BTreeMap<String, bool>,
}

impl Crashes {
    /// The lines for a crash: which µNF, of what, at which packet.
    pub(super) fn lines(&mut self, crash: &Crash) -> Vec<String> {
        let who = match (&crash.node, &crash.nf) {
            (Some(node), Some(nf)) => format!("{node} ({nf})"),
            _ => format!("worker {} (outside of its NFs)", crash.worker),
        };
        let times = self.times.entry(who.clone()).or_default();
        *times += 1;
        if *times > WHOLE {
            self.short.insert(crash.worker.clone(), false);
            return vec![short(&who, *times, crash)];
        }
        let mut lines = whole(&who, crash);
        if *times == WHOLE {
            lines.push(format!(
                "  that was crash {WHOLE} of {who}: from now on each has one line; the report counts them"
            ));
        }
        lines
    }

    /// Whether the death of a worker is to be told: not when its crash had one line.
    pub(super) fn tells_death(&mut self, worker: &str) -> bool {
        self.short.get_mut(worker).is_none_or(|came| std::mem::replace(came, true))
    }

    /// Whether the return of a worker is to be told.
    pub(super) fn tells_return(&mut self, worker: &str) -> bool {
        self.short.remove(worker).is_none()
    }
}

fn short(who: &str, times: u64, crash: &Crash) -> String {
    let cause: Vec<_> = crash.cause.split_whitespace().collect();
    let cause = cause.join(" ");
    let mut said: String = cause.chars().take(SHORT).collect();
    if said.len() < cause.len() {
        said += "...";
    }
    let packet = match &crash.packet {
        Some(packet) => format!("; at a packet of {} bytes", packet.len() / 2),
        None => String::new(),
    };
    let poison = if crash.poison { ", `poison` from now on" } else { "" };
    format!("{who} crashed again, {times} times by now: {said}{packet}{poison}")
}

fn whole(who: &str, crash: &Crash) -> Vec<String> {
    let mut cause = crash.cause.trim().lines();
    let mut lines = vec![format!("{who} crashed: {}", cause.next().unwrap_or_default())];
    // What it says itself in more lines stands apart from what is said of it.
    lines.extend(cause.map(|line| format!("  {line}")));
    let Some(packet) = &crash.packet else { return lines };
    let len = packet.len() / 2;
    lines.push(format!("the packet that {who} looked at last has {len} bytes:"));
    for (row, line) in packet.as_bytes().chunks(32).enumerate().take(SHOWN / 16) {
        let pairs = line.chunks(2).map(|pair| String::from_utf8_lossy(pair).into_owned());
        lines.push(format!("  {:04x}  {}", row * 16, pairs.collect::<Vec<_>>().join(" ")));
    }
    if len > SHOWN {
        lines.push("  ... (--json has all of it)".to_owned());
    }
    if crash.poison {
        lines.push("  it has killed it before: from now on it is dropped as `poison`".to_owned());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crash(worker: &str) -> Crash {
        Crash {
            worker: worker.to_owned(),
            node: Some(worker.to_owned()),
            nf: Some("Fragile".to_owned()),
            cause: "panicked at src/fragile.rs:70:18:\na packet that I do not like".to_owned(),
            packet: Some("02".repeat(31)),
            poison: false,
        }
    }

    #[test]
    fn what_the_nf_says_and_what_is_said_of_it_have_lines_of_their_own() {
        let lines = Crashes::default().lines(&crash("frail"));
        let wanted = [
            "frail (Fragile) crashed: panicked at src/fragile.rs:70:18:",
            "  a packet that I do not like",
            "the packet that frail (Fragile) looked at last has 31 bytes:",
        ];
        assert_eq!(lines[..3], wanted);
        assert_eq!(lines.len(), 5, "{lines:?}");
    }

    #[test]
    fn from_the_ninth_crash_of_an_nf_on_each_has_one_line_and_others_are_told_as_before() {
        let mut crashes = Crashes::default();
        for _ in 0..WHOLE {
            assert!(crashes.lines(&crash("frail")).len() > 4);
            assert!(crashes.tells_death("frail") && crashes.tells_return("frail"));
        }
        for _ in 0..40 {
            let lines = crashes.lines(&crash("frail"));
            assert_eq!(lines.len(), 1, "{lines:?}");
            assert!(!crashes.tells_death("frail") && !crashes.tells_return("frail"));
        }
        let last = crashes.lines(&crash("frail")).remove(0);
        let words =
            ["frail (Fragile)", "49 times by now", "that I do not like; at a packet of 31 bytes"];
        assert!(words.iter().all(|words| last.contains(words)), "{last}");
        assert!(crashes.lines(&crash("other")).len() > 4 && crashes.tells_death("other"));
        // Of another cause it dies as before, back or not.
        assert!(!crashes.tells_death("frail") && crashes.tells_death("frail"));
        assert!(!crashes.tells_return("frail") && crashes.tells_death("frail"));
    }
}
