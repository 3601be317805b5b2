//! Letters between those who move flows.

use super::{FdList, Memory, MemoryError};
use crate::crews::{self, Crew, Unmovable};
use crate::setup::Setup;
use std::collections::{BTreeMap, BTreeSet};
use weir_flow::Party;
use weir_mem::{Region, RegionError, mail};
use weir_runtime::spec::{CrewSpec, Fd, MailSpec};

/// Sender's and reader's memory of a mail.
type Mail = (Region, Region);

/// The crews of a graph.
pub(crate) struct Crews {
    pub(crate) all: Vec<Result<Crew, Unmovable>>,
    /// By crew: mails by sender and reader.
    mails: Vec<BTreeMap<(Party, Party), Mail>>,
    /// Those who divide packets ask the instances first where flows are.
    asks: bool,
    /// By worker: how often it was started again.
    lives: Vec<u32>,
    /// Workers that are not started again.
    gone: BTreeSet<usize>,
}

/// All of a crew, each with its worker.
fn parties(crew: &Crew) -> Vec<(Party, usize)> {
    let replicas = crew.instances.iter().zip(0..).map(|(own, i)| (Party::Replica(i), own.worker));
    let directors = crew.senders.iter().zip(0..).map(|(w, i)| (Party::Director(i), *w));
    replicas.chain(directors).collect()
}

impl Crews {
    pub(super) fn new(setup: &Setup) -> Result<Self, RegionError> {
        let all = crews::of(setup);
        let mut mails = Vec::new();
        for (c, crew) in all.iter().enumerate() {
            let mut own = BTreeMap::new();
            let parties = crew.as_ref().map(parties).unwrap_or_default();
            for (from, _) in &parties {
                for (to, _) in parties.iter().filter(|(to, _)| speak(*from, *to)) {
                    let name = format!("weir/crew{c}/{}", own.len());
                    own.insert((*from, *to), mail::create(&name)?);
                }
            }
            mails.push(own);
        }
        Ok(Crews {
            all,
            mails,
            asks: false,
            lives: vec![0; setup.workers.len()],
            gone: BTreeSet::new(),
        })
    }

    /// What worker `w` is told of its crews.
    pub(super) fn tell<'f>(
        &'f self,
        setup: &Setup,
        w: usize,
        fds: &mut FdList<'f>,
        bell: &mut dyn FnMut(&mut FdList<'f>, usize) -> Fd,
    ) -> Result<Vec<CrewSpec>, MemoryError> {
        let mut told = Vec::new();
        let crews = self.all.iter().zip(&self.mails);
        for (crew, mails) in crews.filter_map(|(crew, mails)| Some((crew.as_ref().ok()?, mails))) {
            let parties = parties(crew);
            for (me, _) in parties.iter().filter(|(_, worker)| *worker == w) {
                let (lanes, nodes) = match me {
                    Party::Replica(i) => {
                        let own = crew.instances.get(usize::from(*i));
                        let nodes = own.map(|own| own.nodes.clone()).unwrap_or_default();
                        (crew.lanes_in(setup, usize::from(*i)), nodes)
                    }
                    Party::Director(_) => (crew.lanes_out(setup, w), Vec::new()),
                };
                let mut letters = Vec::new();
                for (with, worker) in &parties {
                    let (to, from) = (mails.get(&(*me, *with)), mails.get(&(*with, *me)));
                    let Some((to, from)) = to.zip(from) else { continue };
                    letters.push(MailSpec {
                        with: *with,
                        to: (fds.lend(to.0.fd()), fds.give(to.1.read_only_fd()?)),
                        from: (fds.give(from.0.read_only_fd()?), fds.lend(from.1.fd())),
                        bell: bell(fds, *worker),
                    });
                }
                let asks = self.asks && matches!(me, Party::Director(_));
                // One that stands in for a director divides packets as that did.
                let is_gone = |(party, worker): &(Party, usize)| {
                    let divides = matches!(party, Party::Director(_));
                    let stands_in = divides && crews::is_drain(setup, *worker);
                    (self.gone.contains(worker) && !stands_in).then_some(*party)
                };
                told.push(CrewSpec {
                    gone: parties.iter().filter_map(is_gone).collect(),
                    groups: crew.groups.clone(),
                    me: *me,
                    life: self.lives.get(w).copied().unwrap_or(0) + u32::from(asks),
                    nodes,
                    directors: crew.senders.len() as u16,
                    lanes,
                    mails: letters,
                });
            }
        }
        Ok(told)
    }
}

/// True when the protocol has letters from one to the other: directors write to replicas only.
fn speak(from: Party, to: Party) -> bool {
    from != to && !matches!((from, to), (Party::Director(_), Party::Director(_)))
}

impl Memory {
    /// The next process of worker `w` begins.
    pub(crate) fn begin_life(&mut self, w: usize) {
        if let Some(life) = self.crews.lives.get_mut(w) {
            *life += 1;
        }
    }

    /// Where flows are is handed over to the instances: who divides packets asks them, as one that was started anew does.
    pub(crate) fn ask_for_flows(&mut self) {
        self.crews.asks = true;
    }

    /// Worker `w` is not started again: nobody waits for a word of it.
    pub(crate) fn end_life(&mut self, w: usize) {
        self.crews.gone.insert(w);
    }

    /// NFs whose flows can be moved, and why those of others cannot.
    pub(crate) fn crews(&self) -> &[Result<Crew, Unmovable>] {
        &self.crews.all
    }
}
