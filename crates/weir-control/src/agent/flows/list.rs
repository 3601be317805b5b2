//! Which flows there are: asked of all workers that keep some, and told when all have answered that can.
//!
//! Who asks may not have to wait for one that cannot answer: that was stopped, hangs, or is being started again and again. So of those the
//! answer says that they are missing, a moment after the question.

use super::{Answer, Given, Open, is_among};
use crate::agent::liveness::look;
use crate::agent::{Agent, MoveError, State};
use crate::crews::instance_at;
use std::time::{Duration, Instant};
use weir_filter::Expr;
use weir_packet::FlowKey;
use weir_runtime::moves::{FlowLine, FlowTotal, Order};

/// Rows of one worker, at most: its answer has bounds.
const MOST_ROWS: u32 = 5000;

/// So long is waited for one that may not be able to answer: that is being started, or shows no sign of life.
const SOON: Duration = Duration::from_secs(2);
/// So long for one that is at work: it goes through millions of flows, a step between two batches. Who asks waits for longer.
const LATE: Duration = Duration::from_secs(30);
/// Time between two looks at who is waited for.
const EVERY: Duration = Duration::from_millis(100);

/// A flow of an NF.
#[derive(Debug, Clone, PartialEq)]
pub struct FlowRow {
    /// Name of the NF.
    pub nf: String,
    /// Its type.
    pub kind: String,
    /// Its instance, from 1, where it has several.
    pub instance: Option<u32>,
    /// All its keys, the first one first.
    pub keys: Vec<FlowKey>,
    /// Since its first packet, by the NF's time.
    pub age: Duration,
    /// Since its last.
    pub idle: Duration,
}

/// How many flows a µNF has.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct FlowCount {
    /// Name of the NF.
    pub nf: String,
    /// Its instance, from 1, where it has several.
    pub instance: Option<u32>,
    /// In all.
    pub flows: u64,
    /// Those that were asked for.
    pub chosen: u64,
    /// How many keys of flows were moved there one by one: all who divide packets have to remember them.
    pub moved: u64,
    /// How many it may have.
    pub most: u32,
    /// How many new ones found no room.
    pub refused: u64,
    /// Memory that they take, in bytes, without what their states point to.
    pub bytes: u64,
}

/// The flows that there are.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Listed {
    /// By NF and instance.
    pub counts: Vec<FlowCount>,
    /// The first so many of those that were asked for.
    pub rows: Vec<FlowRow>,
    /// Workers that did not answer.
    pub failures: Vec<String>,
}

impl Agent {
    /// Asks which flows there are, of one NF, of several, joined by `+`, or of all; an [`Event::FlowsListed`](crate::Event::FlowsListed) with the number given here has them.
    /// `most`: rows of each worker at most; never more than 5,000.
    ///
    /// # Errors
    /// When it cannot be asked now.
    pub fn list_flows(
        &mut self,
        nf: Option<&str>,
        filter: Option<&Expr>,
        most: u32,
    ) -> Result<u64, MoveError> {
        if self.finished {
            return Err(MoveError::Ending);
        }
        let most = most.min(MOST_ROWS);
        let workers = self.who_keep(nf);
        let (nf, listed) = (nf.map(str::to_owned), Listed::default());
        let answer = Answer::Listed { listed, nf, most: most as usize };
        let filter = filter.cloned();
        self.flows.last += 1;
        let ticket = self.flows.last;
        self.ask(ticket, workers, answer, Order::List { ticket, filter, most });
        Ok(ticket)
    }

    /// Workers that may keep flows of an NF, of several, joined by `+`, or of any.
    fn who_keep(&self, nf: Option<&str>) -> Vec<usize> {
        let asked = |name: &str| nf.is_none_or(|nf| is_among(name, nf));
        let workers = self.setup.workers.iter().enumerate();
        let keep = workers.filter(|(_, worker)| {
            worker.runs_nfs() && worker.nodes.iter().any(|node| asked(&node.name))
        });
        keep.map(|(w, _)| w).collect()
    }

    /// Worker `w` says which flows it has.
    pub(in crate::agent) fn flows_listed(
        &mut self,
        w: usize,
        ticket: u64,
        totals: Vec<FlowTotal>,
        lines: Vec<FlowLine>,
    ) {
        let Some(open) = self.flows.waits_for(ticket, w) else {
            // Nobody waits for it any more, and it could not know.
            if self.flows.late.remove(&(ticket, w)) {
                return self.trust.forgive_message(w);
            }
            return self.convict(w, "told of flows that it was not asked for");
        };
        self.trust.forgive_message(w);
        if let Answer::Listed { listed, nf, most } = &mut open.answer {
            let crews = self.memory.crews();
            let node = |at: u16| {
                let node = self.setup.workers[w].nodes.get(usize::from(at))?;
                let asked = nf.as_ref().is_none_or(|nf| is_among(&node.name, nf));
                let instance = instance_at(&self.setup, crews, (w, at.into()));
                asked.then(|| (node.name.clone(), node.nf.clone(), instance))
            };
            for FlowTotal { node: at, flows, chosen, moved, most, refused, bytes } in totals {
                if let Some((nf, _, instance)) = node(at) {
                    listed.counts.push(FlowCount {
                        nf,
                        instance,
                        flows,
                        chosen,
                        moved,
                        most,
                        refused,
                        bytes,
                    });
                }
            }
            for line in lines.iter().take(*most) {
                let Some((nf, kind, instance)) = node(line.node) else { continue };
                // A worker's word: what is no key is left out.
                let key = |bytes: &Vec<u8>| FlowKey::from_bytes(bytes.as_slice().try_into().ok()?);
                let keys: Vec<FlowKey> = line.keys.iter().filter_map(key).collect();
                let kind = kind.map(|(kind, _)| kind).unwrap_or_default();
                let (age, idle) =
                    (Duration::from_nanos(line.age_ns), Duration::from_nanos(line.idle_ns));
                if !keys.is_empty() {
                    listed.rows.push(FlowRow { nf, kind, instance, keys, age, idle });
                }
            }
        }
        self.close_if_answered(ticket);
    }

    /// A question of the generation before is asked of this one, from which nobody has answered.
    pub(super) fn list_anew(&mut self, ticket: u64, mut open: Open) {
        let Answer::Listed { listed, nf, .. } = &mut open.answer else { return };
        *listed = Listed::default();
        let workers = self.who_keep(nf.as_deref());
        open.waits.clear();
        open.untold.clear();
        self.tell_all(ticket, open, workers);
    }

    /// Looks now and then whether somebody who is asked cannot answer, and waits for him no longer.
    pub(in crate::agent) fn answer_in_time(&mut self) {
        if self.flows.open.is_empty() || self.flows.looked.is_some_and(|at| at.elapsed() < EVERY) {
            return;
        }
        self.flows.looked = Some(Instant::now());
        self.tell_who_has_read();
        let is_due = |open: &Open| {
            matches!(open.answer, Answer::Listed { .. }) && open.begun.elapsed() >= SOON
        };
        let due = self.flows.open.iter().filter(|(_, open)| is_due(open));
        let why = |w: usize, open: &Open| {
            self.why_silent(w, open.untold.contains(&w), open.begun.elapsed())
        };
        let waits = due.flat_map(|(t, open)| open.waits.iter().map(move |w| (*t, *w, open)));
        let missing: Vec<_> =
            waits.filter_map(|(t, w, open)| Some((t, w, why(w, open)?))).collect();
        for (ticket, w, why) in missing {
            let name = &self.setup.workers[w].name;
            if let Some(open) = self.flows.open.get_mut(&ticket) {
                open.waits.remove(&w);
                if !open.untold.remove(&w) {
                    self.flows.late.insert((ticket, w));
                }
                open.fail(name, why);
            }
            self.close_if_answered(ticket);
        }
    }

    /// Who had not read what he was told before is told now, if he has.
    fn tell_who_has_read(&mut self) {
        if self.generation.holds_still() {
            return;
        }
        let is_question = |open: &Open| matches!(open.answer, Answer::Listed { .. });
        let open = self.flows.open.iter().filter(|(_, open)| is_question(open));
        let untold = open.flat_map(|(t, open)| open.untold.iter().map(move |w| (*t, *w, open)));
        let ready = untold.filter(|(_, w, _)| self.liveness.is_ready(*w));
        let ready: Vec<_> = ready.map(|(t, w, open)| (t, w, open.order.clone())).collect();
        for (ticket, w, order) in ready {
            if matches!(self.give(w, &order), Given::Told)
                && let Some(open) = self.flows.open.get_mut(&ticket)
            {
                open.untold.remove(&w);
            }
        }
    }

    /// Why worker `w` is not waited for any longer, when it has been for so long, which is a while.
    fn why_silent(&self, w: usize, untold: bool, waited: Duration) -> Option<&'static str> {
        let (State::Running(process) | State::Done(process)) = &self.workers[w].state else {
            return Some("is being started again; ask again");
        };
        if !self.liveness.is_ready(w) {
            return Some("is being started, and not ready yet; ask again");
        }
        let is_stopped = || look(process.pid()).is_some_and(|seen| matches!(seen.state, 'T' | 't'));
        if is_stopped() {
            return Some("was stopped (SIGSTOP, or a debugger); ask again when it goes on");
        }
        if untold {
            return Some(Given::FULL);
        }
        // While the graph is held still nobody looks for signs of life: what is known of them is old.
        let is_deaf = || !self.memory.workers[w].has_taken_commands();
        if !self.is_relinking() && is_deaf() && self.liveness.is_silent_for(w, SOON / 2) {
            return Some("gives no sign of life, or had no processor; ask again");
        }
        (waited >= LATE).then_some("is at work, and has not answered within 30 s; ask again")
    }
}
