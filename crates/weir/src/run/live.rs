//! What the operator sees while it runs.

use super::crashes::Crashes;
use crate::{say, scaling};
use std::io::IsTerminal;
use std::time::{Duration, Instant};
use weir_control::devices::Captures;
use weir_control::{Agent, Event};
use weir_device::DeviceSpec;
use weir_runtime::layout::NodeCounts;
use weir_runtime::moves::Owed;
use weir_runtime::spec::EndSpec;

/// The live line: progress for captures, rates otherwise.
pub(super) struct Live {
    on: bool,
    records: u64,
    last: Instant,
    packets: u64,
    /// In and out, of generations that have ended.
    before: (u64, u64),
    drawn: bool,
    crashes: Crashes,
}

const EVERY: Duration = Duration::from_millis(500);

impl Live {
    pub(super) fn new(quiet: bool, captures: &Captures, agent: &Agent) -> Self {
        let endless = agent
            .setup()
            .workers
            .iter()
            .any(|w| matches!(&w.end, EndSpec::Rx { device, .. } if !matches!(device, DeviceSpec::Pcap { .. })));
        let records = if endless { 0 } else { captures.values().map(|s| s.records).sum() };
        let on = !quiet && std::io::stderr().is_terminal();
        let last = Instant::now();
        let crashes = Crashes::default();
        Live { on, records, last, packets: 0, before: (0, 0), drawn: false, crashes }
    }

    pub(super) fn patience(&self) -> Duration {
        Duration::from_millis(100)
    }

    pub(super) fn clear(&mut self) {
        if std::mem::take(&mut self.drawn) {
            say::raw("\r\x1b[K");
        }
    }

    pub(super) fn say(&mut self, text: &str) {
        self.clear();
        crate::complain!("weir: {}", say::one_line(text));
    }

    pub(super) fn tell(&mut self, agent: &Agent, event: &Event) {
        let name = |w: usize| agent.setup().workers[w].name.as_str();
        match event {
            Event::Died { worker, how, lost, mended, .. } => {
                let name = name(*worker);
                if self.crashes.tells_death(name) {
                    self.say(&format!(
                        "worker {name} died ({how}): {lost} packets lost, mended in {mended:.1?}"
                    ));
                }
            }
            Event::Ready { worker, after: Some(after), .. } => {
                let name = name(*worker);
                if self.crashes.tells_return(name) {
                    self.say(&format!("worker {name} runs again after {after:.1?}"));
                }
            }
            Event::Recovered { worker, recovered: r } => self.say(&format!(
                "worker {} has {} flows back from the replica (read in {:.1} ms)",
                name(*worker),
                r.flows,
                r.reading_us as f64 / 1e3
            )),
            Event::Crashed(crash) => {
                let lines = self.crashes.lines(crash);
                lines.iter().for_each(|line| self.say(line));
            }
            Event::Offence { worker, what } => {
                self.say(&format!("worker {} {what}: killed", name(*worker)));
            }
            Event::Hung { worker, what } => {
                self.say(&format!("worker {} {what}: killed", name(*worker)));
            }
            Event::Said { worker, text } => self.say(&format!("worker {worker} says: {text}")),
            Event::Omitted { worker, bytes } => self.say(&format!(
                "worker {worker} says more than anybody is to read: {bytes} bytes of it are left out"
            )),
            Event::Demoted => self.say(
                "real-time workers kept the agent from running for 2 s; they run in the default class \
                 from now on",
            ),
            Event::StandsStill { why } => self.say(&format!("the graph stands still: {why}")),
            Event::Quarantined { worker } => self.say(&format!(
                "worker {} is not started again: what comes for it is dropped",
                name(*worker)
            )),
            Event::WaitsNoLonger { worker, by, owed: Owed::Flows } => self.say(&format!(
                "worker {} waits no longer for flows that {} announced and did not send",
                name(*worker),
                name(*by)
            )),
            Event::WaitsNoLonger { worker, by, owed: Owed::Word } => self.say(&format!(
                "worker {} waits no longer for {} to tell what it knows of flows that moved",
                name(*worker),
                name(*by)
            )),
            Event::Audited { domain, voided } => {
                let domain = match agent.setup().domains.get(*domain).map_or("", String::as_str) {
                    "" => "the graph's own domain".to_owned(),
                    name => format!("domain {name}"),
                };
                self.say(&format!("the buffers of {domain} were audited: {voided} entries voided"));
            }
            Event::Relinked(relinked) => self.say(&relinked.to_string()),
            Event::FlowsMoved { moved, .. } => {
                let ms = moved.took.as_secs_f64() * 1e3;
                self.say(&format!("{} flows moved in {ms:.1} ms", moved.flows));
                moved.failures.iter().for_each(|why| self.say(&format!("not moved: {why}")));
            }
            Event::WentElsewhere { worker, flows, took } => self.say(&format!(
                "{flows} flows of worker {} go on at other instances, {:.1} ms after its death",
                name(*worker),
                took.as_secs_f64() * 1e3
            )),
            Event::FlowsListed { .. } => {}
            Event::Scaled { nf, decision } => self.say(&scaling::told(nf, decision)),
            Event::Levelled(levelled) => {
                self.say(&levelled.to_string());
                levelled.failures.iter().for_each(|why| self.say(&format!("not moved: {why}")));
            }
            Event::NotRelinked { why } => {
                self.say(&format!("not relinked: {why}; the graph goes on as it was"));
            }
            Event::Warning { text, .. } => self.say(&format!("warning: {text}")),
            Event::Ready { .. } | Event::Finished => {}
        }
    }

    /// Tells of all that has happened, when nothing is to come of it any more.
    pub(super) fn tell_rest(&mut self, agent: &mut Agent) {
        while let Some(event) = agent.event() {
            self.tell(agent, &event);
        }
    }

    /// A generation has ended.
    pub(super) fn retire(&mut self, agent: &Agent) {
        let (input, output) = count(agent);
        self.before = (self.before.0 + input, self.before.1 + output);
    }

    pub(super) fn show(&mut self, agent: &Agent) {
        let elapsed = self.last.elapsed();
        if !self.on || elapsed < EVERY {
            return;
        }
        self.last = Instant::now();
        let (mut input, mut output) = count(agent);
        (input, output) = (input + self.before.0, output + self.before.1);
        let rate = input.saturating_sub(self.packets) as f64 / elapsed.as_secs_f64();
        self.packets = input;
        let progress = if self.records > 0 {
            format!(
                "{:.0} % of {} records",
                100.0 * input as f64 / self.records as f64,
                self.records
            )
        } else {
            format!("{input} packets in")
        };
        say::raw(&format!("\r\x1b[K{progress}, {output} out, {:.3} Mpps", rate / 1e6));
        self.drawn = true;
    }
}

/// Packets in and out.
fn count(agent: &Agent) -> (u64, u64) {
    let (mut input, mut output) = (0, 0);
    for (w, worker) in agent.setup().workers.iter().enumerate() {
        let (Some(words), Some(layout)) = (agent.words(w), agent.layout(w)) else { continue };
        let packets = NodeCounts::read(&words, &layout, 0).packets;
        match worker.end {
            EndSpec::Rx { .. } => input += packets,
            EndSpec::Tx { .. } => output += packets,
            EndSpec::None | EndSpec::Gate { .. } | EndSpec::Drain | EndSpec::Dump(_) => {}
        }
    }
    (input, output)
}
