//! The switch: what is under way runs out, all workers rest, state goes over, and the next generation begins.

use super::in_front::InFront;
use super::places::Places;
use super::share::{Known, parted, share_out, stranded};
use super::{HELD, Next, RelinkError, Relinked};
use crate::agent::hear::Heard;
use crate::agent::{Agent, AgentError, State};
use crate::setup::WorkerSetup;
use crate::voice::shortened;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use weir_runtime::handover::{Handed, NfState, OpenDatagrams};
use weir_runtime::moves::Placed;
use weir_runtime::spec::{EndSpec, Handing, command};

/// How long what is under way may take to run out, and workers to rest. Live devices may drop packets meanwhile, so it is not
/// for ever; a graph that is not through in that time has packets that take as long.
const PATIENCE: Duration = Duration::from_secs(1);
/// The same where all that comes in can wait: nothing is lost by it. But nowhere may nothing move for longer than the
/// other.
const LONG_PATIENCE: Duration = Duration::from_secs(10);
/// How long the next generation may take to read what it is given. Long: it is given what could be written down in time.
const TAKING: Duration = Duration::from_secs(5);
/// Time between two looks at it.
const LOOK: Duration = Duration::from_micros(50);

/// Why the switch did not come about: the graph goes on, or cannot.
pub(super) type Switch<T> = Result<Result<T, RelinkError>, AgentError>;

/// What one look found.
#[derive(PartialEq, Eq)]
enum Flow {
    /// Packets are under way.
    Runs,
    /// None are: what had been given and taken by then, of all rings.
    Rests(u64),
}

impl Agent {
    /// Switches to the next generation. When it fails, this one goes on.
    pub(super) fn switch(&mut self, next: &mut Next) -> Switch<Relinked> {
        let switched = self.try_switch(next);
        next.in_front = None;
        switched
    }

    fn try_switch(&mut self, next: &mut Next) -> Switch<Relinked> {
        let prepared = next.since.elapsed();
        let begun = Instant::now();
        next.in_front.get_or_insert_with(|| InFront::step(&self.setup, self.turns));
        let missed = self.missed_by_devices();
        let tapered =
            next.calm.as_ref().map(|calm| (calm.since, missed.saturating_sub(calm.missed)));
        self.generation.handed.clear();
        self.hold(command::HOLD);
        let rested = self.come_to_rest(begun);
        let ready = match rested {
            Ok(Ok(())) => self
                .look_now()
                .map(|()| self.hand_over(next))
                .unwrap_or_else(|e| Err(RelinkError::Start(Box::new(e)))),
            Ok(Err(why)) => Err(why),
            Err(e) => {
                self.go_back();
                return Err(e);
            }
        };
        match ready {
            Ok(carried) => {
                self.commit(next);
                next.agent.wait_until_received();
                let ms = |d: Duration| d.as_secs_f64() * 1e3;
                let pause_ms = ms(begun.elapsed());
                let prepared_ms = ms(prepared);
                let copied = next.precopy.as_ref().map_or(0, |precopy| precopy.copied);
                // The rest is found out when the pause is over.
                let (tapered_ms, missed) =
                    tapered.map_or((0.0, 0), |(since, missed)| (ms(begun - since), missed));
                let uneven = 0;
                let left = next.leaving.as_ref().map_or(0, |errands| errands.moved);
                Ok(Ok(Relinked {
                    prepared_ms,
                    pause_ms,
                    tapered_ms,
                    missed,
                    carried,
                    copied,
                    left,
                    uneven,
                }))
            }
            Err(why) => {
                self.go_back();
                Ok(Err(why))
            }
        }
    }

    /// Tells all Rx services to hold their devices, or to go on.
    pub(super) fn hold(&mut self, command: u32) {
        for w in 0..self.workers.len() {
            if matches!(self.setup.workers[w].end, EndSpec::Rx { .. }) {
                self.order(w, command);
            }
        }
    }

    /// Until nothing is under way and all workers rest.
    fn come_to_rest(&mut self, begun: Instant) -> Switch<()> {
        loop {
            if let Err(why) = self.drain(begun)? {
                return Ok(Err(why));
            }
            // Each round is two messages of each worker's, which are no flood.
            self.trust.forgive_messages();
            self.generation.asked = true;
            for w in 0..self.workers.len() {
                self.order(w, command::HAND_OVER);
            }
            if let Err(why) = self.wait_until_handed()? {
                return Ok(Err(why));
            }
            let waits = |h: &Handing| matches!(h, Handing::Whole { backlog } if *backlog > 0);
            if self.nothing_is_under_way() && !self.generation.handed.values().any(waits) {
                return Ok(Ok(()));
            }
            // Somebody was not through when the others had rested already.
            self.let_go();
            let patience = self.switch_patience();
            if begun.elapsed() > patience {
                let why = "a worker has packets, or flows that are being moved, and is not through with them";
                return Ok(Err(RelinkError::NotDrained { patience, why: why.to_owned() }));
            }
        }
    }

    /// What all lanes have been given and taken, in all: it changes while packets move.
    fn moved(&self) -> u64 {
        let moved = |i: &weir_mem::RingInspector<_>| i.head().wrapping_add(i.tail());
        self.memory.lanes.iter().map(|ring| moved(&ring.inspector)).fold(0, u64::wrapping_add)
    }

    /// How long the pause may be.
    fn switch_patience(&self) -> Duration {
        let is_lost = |w: &WorkerSetup| match &w.end {
            EndSpec::Rx { device, .. } => device.drops_early(),
            _ => false,
        };
        if self.setup.workers.iter().any(is_lost) { PATIENCE } else { LONG_PATIENCE }
    }

    /// Waits until nothing is under way.
    fn drain(&mut self, begun: Instant) -> Switch<()> {
        let mut before = Flow::Runs;
        let (mut moved, mut still) = (self.moved(), Instant::now());
        loop {
            let now = self.flow();
            // Twice the same: nobody has taken or given anything since.
            if now == before && now != Flow::Runs {
                return Ok(Ok(()));
            }
            before = now;
            let patience = self.switch_patience();
            if std::mem::replace(&mut moved, self.moved()) != moved {
                still = Instant::now();
            }
            if begun.elapsed() > patience || still.elapsed() > PATIENCE {
                let why = self.where_it_stands();
                return Ok(Err(RelinkError::NotDrained { patience, why }));
            }
            if let Err(why) = self.take_in(LOOK)? {
                return Ok(Err(why));
            }
        }
    }

    /// Whether packets are under way, as far as can be seen from outside: in a lane, or in a worker that has
    /// taken some and not committed, or committed and not published.
    fn flow(&self) -> Flow {
        let holds = |w: usize| matches!(self.setup.workers[w].end, EndSpec::Rx { .. });
        let is_told = |w: usize| self.memory.workers[w].has_taken_commands();
        if (0..self.workers.len()).any(|w| holds(w) && !is_told(w)) {
            return Flow::Runs;
        }
        if !self.nothing_is_under_way() {
            return Flow::Runs;
        }
        let heads = self.memory.lanes.iter().map(|ring| ring.inspector.head());
        let sum = heads.fold(0, u64::wrapping_add);
        Flow::Rests(sum)
    }

    fn where_it_stands(&self) -> String {
        let lanes = self.setup.lanes.iter().zip(&self.memory.lanes);
        let fullest = lanes.max_by_key(|(_, ring)| ring.inspector.len());
        match fullest.filter(|(_, ring)| !ring.inspector.is_empty()) {
            Some((lane, ring)) => {
                format!(
                    "{} packets wait for worker {}",
                    ring.inspector.len(),
                    self.setup.workers[lane.to].name
                )
            }
            None => "a worker has taken packets and is not through with them".to_owned(),
        }
    }

    /// Waits until all workers rest and have written down what their µNFs know.
    fn wait_until_handed(&mut self) -> Switch<()> {
        let asked = Instant::now();
        loop {
            let rests = |w: &usize| self.generation.handed.contains_key(w);
            let Some(w) = (0..self.workers.len()).find(|w| !rests(w)) else { break };
            if asked.elapsed() > 2 * PATIENCE {
                let worker = self.setup.workers[w].name.clone();
                return Ok(Err(RelinkError::NoRest { worker, patience: 2 * PATIENCE }));
            }
            if let Err(why) = self.take_in(Duration::from_millis(1))? {
                return Ok(Err(why));
            }
        }
        for (w, handing) in &self.generation.handed {
            match handing {
                Handing::Whole { .. } => {}
                Handing::Held { nf, packets } => {
                    let (nf, packets) = (nf.clone(), *packets);
                    return Ok(Err(RelinkError::Held { nf, packets, patience: HELD }));
                }
                Handing::Not(why) => {
                    let worker = self.setup.workers[*w].name.clone();
                    return Ok(Err(RelinkError::State { worker, why: shortened(why.clone()) }));
                }
            }
        }
        Ok(Ok(()))
    }

    /// Takes in what workers say; who dies is buried when the graph goes on.
    pub(super) fn take_in(&mut self, timeout: Duration) -> Switch<()> {
        if let Some(dog) = &self.watchdog {
            dog.beat();
        }
        if self.ends_when.as_ref().is_some_and(|ends| ends()) {
            return Ok(Err(RelinkError::Ending));
        }
        if let Some(mut serve) = self.meanwhile.take() {
            serve(self);
            self.meanwhile = Some(serve);
        }
        self.answer_in_time();
        for Heard { worker: w, said, spoke, ended } in self.wait(timeout)? {
            if spoke {
                self.hear_words(w);
            }
            while said && self.listen(w)? {}
            if ended {
                return Ok(Err(RelinkError::Died { worker: self.setup.workers[w].name.clone() }));
            }
        }
        Ok(Ok(()))
    }

    /// Workers that rest, or are about to, go on.
    fn let_go(&mut self) {
        let asked = std::mem::take(&mut self.generation.asked);
        for w in 0..self.workers.len() {
            if self.generation.handed.remove(&w).is_none() && asked {
                *self.generation.stale.entry(w).or_default() += 1;
            }
            self.order(w, command::RESUME);
        }
    }

    /// The switch failed: this generation goes on.
    fn go_back(&mut self) {
        self.let_go();
        self.hold(command::RECEIVE);
    }

    /// Writes down for the next generation where it begins; says how many µNFs it has something from. Nobody of it has begun, and of
    /// this one all rest.
    fn hand_over(&mut self, next: &mut Next) -> Result<usize, RelinkError> {
        self.finish_precopy(next)?;
        let mut known = Known::new();
        // By names of trust domain and worker, and whether that is a service: nobody has to believe another domain's workers.
        let mut open: BTreeMap<(&str, &str), (bool, OpenDatagrams)> = BTreeMap::new();
        let hands_over = |w: &usize| {
            let setup = &self.setup.workers[*w];
            setup.runs_nfs() || setup.follows_fragments(&self.setup.groups)
        };
        for w in (0..self.workers.len()).filter(hands_over) {
            let states = self.memory.handed_over(w);
            // Its own word, in its own memory: another NF's state it has none of.
            let own = |s: &NfState| {
                let mut nodes = self.setup.workers[w].nodes.iter();
                nodes.any(|n| {
                    let kind = n.nf.as_ref().is_some_and(|(kind, _)| *kind == s.kind);
                    let is_own = n.name == s.name && n.instance() == s.instance && kind;
                    n.instance_of.is_none() && is_own
                })
            };
            let doubled = |states: &[NfState]| {
                let mut names: Vec<_> =
                    states.iter().map(|s| (&s.name, s.instance, &s.kind)).collect();
                names.sort_unstable();
                names.windows(2).any(|pair| pair[0] == pair[1])
            };
            let states = match states {
                Some(Handed::All(states, datagrams, _)) => Some((states, datagrams)),
                Some(Handed::Ahead(_)) | None => None,
            };
            // Only instances whose flows can move know where these are.
            let knows = |s: &NfState| {
                let mut crews = self.memory.crews().iter().flatten();
                crews.any(|crew| {
                    crew.nfs.contains(&s.name) && crew.instances.iter().any(|own| own.worker == w)
                })
            };
            let may_be = |s: &NfState, placed: &Placed| placed.can_be() && knows(s);
            let can_be =
                |s: &NfState| own(s) && s.placed.as_ref().is_none_or(|placed| may_be(s, placed));
            let sound = states.filter(|(states, _)| states.iter().all(can_be) && !doubled(states));
            let Some((states, datagrams)) = sound else {
                self.convict(w, "handed over what is not its own, or nothing that can be read");
                let why = "it is not to be believed".to_owned();
                let worker = self.setup.workers[w].name.clone();
                return Err(RelinkError::State { worker, why });
            };
            if self.trust.is_named(w) {
                let why = "it was named for nonsense".to_owned();
                let worker = self.setup.workers[w].name.clone();
                return Err(RelinkError::State { worker, why });
            }
            let setup = &self.setup.workers[w];
            let names = (self.setup.domains[setup.domain].as_str(), setup.name.as_str());
            open.insert(names, (!setup.runs_nfs(), datagrams.bounded()));
            for state in states {
                let key = (state.name.clone(), state.kind.clone());
                known.entry(key).or_default().push((w, state));
            }
        }
        let to = &mut next.agent;
        if let Some(why) = parted(to, &known).or_else(|| stranded(&self.setup, to, &known)) {
            return Err(RelinkError::Parted { why });
        }
        let shares = share_out(&self.setup, to, known, next.precopy.as_ref());
        let (shares, went) = shares.map_err(|w| {
            let why = "it leaves out flows that were copied, and instances have come or gone since then; try again".to_owned();
            RelinkError::State { worker: self.setup.workers[w].name.clone(), why }
        })?;
        let Places { of_workers: places, tables } = Places::new(&self.setup, to, &went)?;
        // Who is started again begins there, too.
        for (group, table) in tables {
            let group = to.setup.groups.get_mut(usize::from(group));
            group.into_iter().for_each(|group| group.table = Some(table.clone()));
        }
        let carried = shares.iter().flatten().filter(|state| !state.is_nothing()).count();
        // Once for each trust domain: what services know, and what all others do.
        let mut known: BTreeMap<&str, OpenDatagrams> = BTreeMap::new();
        for (domain, _) in open.keys() {
            known.entry(domain).or_insert_with(|| {
                let of = |services: bool| {
                    let all = open
                        .iter()
                        .filter(move |((of, _), (is, _))| of == domain && *is == services);
                    all.flat_map(|(_, (_, open))| open.own.iter())
                };
                let nfs = open.iter().filter(|((of, _), _)| of == domain);
                let nfs = nfs.map(|(_, (_, open))| &open.others);
                OpenDatagrams {
                    own: Vec::new(),
                    services: OpenDatagrams::merge(of(true)),
                    others: OpenDatagrams::merge(of(false).chain(nfs)),
                }
            });
        }
        let mut takers = Vec::new();
        for (w, states) in shares.iter().enumerate() {
            let setup = &to.setup.workers[w];
            let follows = setup.follows_fragments(&to.setup.groups);
            let domain = to.setup.domains.get(setup.domain).filter(|_| follows);
            let mut datagrams = domain.and_then(|domain| known.get(domain.as_str()).cloned());
            let own = domain.and_then(|domain| open.get(&(domain.as_str(), setup.name.as_str())));
            if let (Some(datagrams), Some((_, own))) = (&mut datagrams, own) {
                datagrams.own.clone_from(&own.own);
            }
            let datagrams = datagrams.unwrap_or_default();
            let places = places.get(w).map_or(&[][..], Vec::as_slice);
            if states.is_empty() && places.is_empty() && datagrams == OpenDatagrams::default() {
                continue;
            }
            to.memory.hand_to(w, states, &datagrams, places).map_err(|e| {
                let worker = setup.name.clone();
                RelinkError::State { worker, why: e.to_string() }
            })?;
            // A service takes up what there is for it when it goes over.
            if setup.runs_nfs() {
                takers.push(w);
            }
        }
        self.have_taken_over(next, &takers, TAKING)?;
        let to = &mut next.agent;
        for &(old, new) in &next.services {
            let from = &self.memory.workers[old];
            let words = from.ledger.read().unwrap_or_default();
            let word = |at: usize| words.get(at).copied().unwrap_or(0);
            let (layout, here) = (to.memory.workers[new].layout, from.layout);
            let mut begins = vec![0; layout.len];
            let place = self.memory.place(old);
            let at = begins.iter_mut().skip(layout.place);
            at.zip(place).for_each(|(to, word)| *to = word);
            if let Some(seq) = begins.get_mut(layout.seq) {
                *seq = word(here.seq);
            }
            to.memory.workers[new].ledger.reset(&begins);
            if let Some(inherited) = to.generation.inherited.get_mut(new) {
                *inherited = place;
            }
        }
        Ok(carried)
    }

    /// The word to begin. From here on there is no way back.
    fn commit(&mut self, next: &mut Next) {
        let to = &mut next.agent;
        to.take_own_cores();
        for w in 0..to.workers.len() {
            if matches!(to.workers[w].state, State::Running(_)) {
                to.order(w, command::GO);
            }
        }
        // Tx services before Rx services, as they stand: packets that come find everybody there.
        for &(old, new) in next.services.iter().rev() {
            let state = std::mem::replace(&mut self.workers[old].state, State::Gone);
            if let State::Running(process) | State::Done(process) = state {
                to.workers[new].state = State::Running(process);
                to.liveness.go_on_from(new, &self.liveness, old);
                to.workers[new].allowance = std::mem::take(&mut self.workers[old].allowance);
                to.trust.ready(new);
            }
            // It rests on its old bell.
            self.order(old, command::GO);
        }
    }
}

impl Agent {
    /// The pause is over when all Rx services have begun, which is what it is measured to; of one that has died its successor begins later.
    fn wait_until_received(&self) {
        let since = Instant::now();
        let ended = |w: usize| match &self.workers[w].state {
            State::Running(process) => process.has_ended(),
            _ => true,
        };
        let begun = |w: usize| self.memory.workers[w].ledger.generation() > 0 || ended(w);
        let is_rx = |w: &usize| matches!(self.setup.workers[*w].end, EndSpec::Rx { .. });
        let receive = || (0..self.workers.len()).filter(is_rx);
        while since.elapsed() < PATIENCE && !receive().all(begun) {
            std::thread::sleep(LOOK);
        }
    }
}
