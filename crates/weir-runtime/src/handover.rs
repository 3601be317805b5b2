//! What the µNFs of a worker know, and who sends packets to them of datagrams that have not come whole, from one generation of the graph to the
//! next.
//!
//! A worker that is told to hand over writes all of it down at a batch boundary, in memory of its own, and
//! rests. The agent reads that, finds out which worker of the next generation has the µNF of each name and
//! type, and writes its part into that worker's memory; the new one takes it before its first packet. It
//! goes by name, never by place: what is one segment may become two, and the reverse.
//!
//! Flows go ahead of that: they are copied while packets flow, some at a time by the same ways, so that what is written down in
//! the end is what has changed since ([`weir_nf::Precopy`]).
//!
//! This is more than the module `keep` writes down for a successor after a crash: that is what a worker can
//! afford to write all the time.

use crate::moves::{Placed, Placing};
use crate::segment::{More, Segment};
use crate::spec::Handing;
use crate::spread::Leased;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use weir_mem::{KeptState, Seq, TooLarge};
use weir_nf::{CopyProgress, Instance, Take, Walk};
use weir_packet::FragmentTable;

/// What one µNF knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NfState {
    /// Its name.
    pub name: String,
    /// Which instance it is of the NF of that name, of several: they may share a worker.
    pub instance: u8,
    /// Its type.
    pub kind: String,
    /// What it remembers in all, as `Instance::save` writes it. In one piece, here and below: serde takes a `Vec<u8>` byte by byte.
    #[serde(with = "serde_bytes")]
    pub shared: Vec<u8>,
    /// Its flows and timers, as `Instance::save_flows` writes them.
    #[serde(with = "serde_bytes")]
    pub flows: Vec<u8>,
    /// Of flows only what was not copied before: as `Precopy::save_rest` writes it.
    pub rest: bool,
    /// How many flows it has, copied before or not.
    pub count: u64,
    /// Policy ports of the sources whose end it is to be told of, as packets of them have come; and the place of
    /// the last of each.
    pub ports: Vec<(u16, u64)>,
    /// The port of its last packet: what its timers send goes with that source.
    pub last: Option<u16>,
    /// Which buckets of the flow hash are with it, and which flows were moved to it, of one whose flows can be; the same of all whose flows move
    /// together. Of what is given to the next generation that is in its [`Placing`].
    pub placed: Option<Placed>,
    /// Others get the same flows: who takes them keeps those that packets are divided to it for.
    pub divides: bool,
    /// Policy ports of the sources whose packets came to it, if it was told that all have ended: it is not told again.
    pub over: Vec<u16>,
}

impl NfState {
    /// Of a µNF of which nothing is known.
    #[must_use]
    pub fn nothing((name, instance): (&str, u8), kind: &str) -> Self {
        NfState {
            name: name.to_owned(),
            instance,
            kind: kind.to_owned(),
            shared: Vec::new(),
            flows: Vec::new(),
            rest: false,
            count: 0,
            ports: Vec::new(),
            last: None,
            placed: None,
            divides: false,
            over: Vec::new(),
        }
    }

    /// True when nothing is known of it.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        self.shared.is_empty() && self.flows.is_empty() && self.ports.is_empty()
    }
}

/// Some of the flows of one µNF, copied while it works.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NfFlows {
    /// Its name.
    pub name: String,
    /// Which instance it is of the NF of that name, of several.
    pub instance: u8,
    /// Its type.
    pub kind: String,
    /// As `Precopy::precopy` writes them.
    #[serde(with = "serde_bytes")]
    pub flows: Vec<u8>,
}

/// Whose the datagrams are that have not come whole: records of [`FragmentTable::save`], one behind the other. Whoever sends later fragments
/// where their first went may go on from what any other knew of them. A change of the graph does not fail for want of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenDatagrams {
    /// As who sends them on knows by himself, by table; for the next generation, who had his name.
    pub own: Vec<ByteBuf>,
    /// For the next generation: as services of the same trust domain know.
    pub services: ByteBuf,
    /// As a worker's µNFs know; for the next generation, those of the same trust domain, and who else sends packets on there.
    pub others: ByteBuf,
}

impl OpenDatagrams {
    /// Most that are kept of one table, and of all that others know: as many as a table remembers, as reading takes of the pause.
    const MOST: usize = 1024;
    /// Most tables of one worker.
    const TABLES: usize = 64;

    /// No more of what somebody wrote down than he can know.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        self.own.truncate(Self::TABLES);
        self.own.iter_mut().for_each(|own| own.truncate(Self::MOST * FragmentTable::RECORD));
        self
    }

    /// Puts it into the table of this place. What is no record is passed over: its fragments go by their addresses. Where there is no
    /// room for all, what comes later here stays: what the table had itself is last.
    fn restore_into(&self, at: usize, fragments: &mut FragmentTable) {
        let records = |bytes: &ByteBuf, restore: &mut dyn FnMut(&[u8; FragmentTable::RECORD])| {
            bytes.as_chunks().0.iter().for_each(restore);
        };
        // What is damaged is refused by each alike.
        records(&self.others, &mut |record| {
            let _ = fragments.restore(record);
        });
        let of_others = self.own.iter().enumerate().filter(|(of, _)| *of != at);
        let own = of_others.map(|(_, own)| own).chain(self.own.get(at));
        for bytes in std::iter::once(&self.services).chain(own) {
            records(bytes, &mut |record| {
                let _ = fragments.restore_own(record);
            });
        }
    }

    /// What several know, each datagram once, of those that each wrote last; the later first fragment counts.
    #[must_use]
    pub fn merge<'r>(all: impl Iterator<Item = &'r ByteBuf>) -> ByteBuf {
        let all = all.map(|one| one.as_chunks::<{ FragmentTable::RECORD }>().0);
        let all: Vec<_> = all.filter(|one| !one.is_empty()).collect();
        let longest = all.iter().map(|one| one.len()).max().unwrap_or(0).min(Self::MOST);
        let mut merged: BTreeMap<&[u8], &[u8; FragmentTable::RECORD]> = BTreeMap::new();
        // In turn, so that nobody's many leave no room for another's few.
        let in_turn = (1..=longest)
            .flat_map(|n| all.iter().filter_map(move |one| one.get(one.len().checked_sub(n)?)));
        for record in in_turn {
            let is_full = merged.len() >= Self::MOST;
            match merged.entry(FragmentTable::datagram_of(record)) {
                Entry::Vacant(free) if !is_full => drop(free.insert(record)),
                Entry::Occupied(mut other)
                    if FragmentTable::born(other.get()) < FragmentTable::born(record) =>
                {
                    other.insert(record);
                }
                Entry::Vacant(_) | Entry::Occupied(_) => {}
            }
        }
        let mut records: Vec<_> = merged.into_values().collect();
        records.sort_unstable_by_key(|record| FragmentTable::born(record));
        ByteBuf::from(records.into_iter().flatten().copied().collect::<Vec<u8>>())
    }
}

/// What stands in a worker's memory for what is handed over.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub enum Handed {
    /// Flows, while packets flow.
    Ahead(Vec<NfFlows>),
    /// All that µNFs know; and what is known of datagrams that have not come whole. For the next generation where flows are, too, by crew.
    All(Vec<NfState>, OpenDatagrams, Vec<Placing>),
}

/// The same to be written.
#[derive(Serialize)]
enum Hands<'h> {
    Ahead(&'h [NfFlows]),
    All(&'h [NfState], &'h OpenDatagrams, &'h [Placing]),
}

/// What became of what was handed over.
#[derive(Debug, Default)]
pub(crate) struct TakenOver {
    /// What could not be taken, and why.
    pub(crate) refused: Vec<String>,
    /// What else there is to tell.
    pub(crate) warnings: Vec<String>,
}

/// Reads what [`write()`] or [`write_ahead()`] wrote; `None` for nonsense.
#[must_use]
pub fn read(memory: &KeptState) -> Option<Handed> {
    postcard::from_bytes(&memory.read()?).ok()
}

/// Writes down what one worker is to go on from, or has come to.
///
/// # Errors
/// When it is more than the memory holds; then nothing is written.
pub fn write(
    memory: &mut KeptState,
    states: &[NfState],
    datagrams: &OpenDatagrams,
    places: &[Placing],
) -> Result<(), TooLarge> {
    let none = OpenDatagrams::default();
    write_to(memory, &Hands::All(states, datagrams, places))
        .or_else(|_| write_to(memory, &Hands::All(states, &none, places)))
}

/// Writes down flows that are copied while packets flow.
///
/// # Errors
/// When it is more than the memory holds; then nothing is written.
pub fn write_ahead(memory: &mut KeptState, flows: &[NfFlows]) -> Result<(), TooLarge> {
    write_to(memory, &Hands::Ahead(flows))
}

fn write_to(memory: &mut KeptState, what: &Hands<'_>) -> Result<(), TooLarge> {
    let bytes = postcard::to_stdvec(what).unwrap_or_default();
    memory.write(&bytes)
}

/// Those that remember anything in all, in the form in which a worker keeps it for its successor
/// ([`crate::read_kept`]).
#[must_use]
pub fn as_kept(states: &[NfState]) -> Vec<u8> {
    let remembers = states.iter().filter(|s| !s.shared.is_empty());
    let all: Vec<_> = remembers.map(|s| (&s.name, s.instance, &s.kind, &s.shared)).collect();
    postcard::to_stdvec(&all).unwrap_or_default()
}

impl Segment {
    /// Whose the datagrams are that have not come whole, as who sends them on knows, and as µNFs do: their packets may not have been divided.
    pub(crate) fn save_datagrams(&mut self) -> OpenDatagrams {
        let mut all = OpenDatagrams::default();
        for fragments in self.fragment_tables() {
            let mut own = ByteBuf::new();
            fragments.save(&mut own);
            all.own.push(own);
        }
        let nfs = self.nodes.iter().flat_map(|node| &node.nf);
        nfs.for_each(|nf| nf.save_datagrams(&mut all.others));
        all
    }

    /// Goes on from what others knew of datagrams that have not come whole.
    pub(crate) fn restore_datagrams(&mut self, known: &OpenDatagrams) {
        let tables = self.fragment_tables().enumerate();
        tables.for_each(|(at, fragments)| known.restore_into(at, fragments));
    }

    /// What its µNFs know; nothing of those that know nothing.
    ///
    /// # Errors
    /// When some of it cannot be written down: why.
    pub(crate) fn hand_over(&self) -> Result<Vec<NfState>, Handing> {
        let mut all = Vec::new();
        for node in &self.nodes {
            let Some(nf) = &node.nf else { continue };
            if nf.held() > 0 {
                return Err(Handing::Held { nf: node.name.clone(), packets: nf.held() as u64 });
            }
            let (mut shared, mut flows) = (Vec::new(), Vec::new());
            nf.save(&mut shared);
            let rest = nf.is_precopied();
            let saved = match rest {
                true => nf.save_rest(&mut flows),
                false => nf.save_flows(&mut flows),
            };
            saved.map_err(|e| Handing::Not(format!("flows of {}: {e}", node.name)))?;
            let more = node.more.as_ref();
            let sources = more.map_or(0, |more| more.sources);
            let is_set = |bits: u64, i: usize| bits.checked_shr(i as u32).unwrap_or(0) & 1 == 1;
            let place = |i: usize| more.and_then(|more| more.places.get(i)).map_or(0, |p| p.get());
            let ports = || self.source_ports.iter().enumerate();
            // An end that waits for others, too, was not told: those that have ended end in the next generation again.
            let over = more.map_or(0, |more| match more.comes & !more.over {
                0 => more.comes,
                _ => 0,
            });
            let over = ports().filter(|(i, _)| is_set(over, *i)).map(|(_, port)| *port).collect();
            let ports: Vec<_> = ports()
                .filter(|(i, _)| is_set(sources, *i))
                .map(|(i, port)| (*port, place(i)))
                .collect();
            let last = more.filter(|_| sources != 0).map(|more| more.last_source);
            let last = last.and_then(|source| self.source_ports.get(source)).copied();
            if !shared.is_empty() || !flows.is_empty() || !ports.is_empty() {
                let none = NfState::nothing((&node.name, node.instance), nf.descriptor().name);
                let count = nf.flows().0 as u64;
                all.push(NfState { shared, flows, rest, count, ports, last, over, ..none });
            }
        }
        Ok(all)
    }

    /// Copies some flows of these nodes, until they have written `most` bytes in all, or a little more. `first`: from the beginning, as the copy of that number.
    ///
    /// # Errors
    /// When some of it cannot be written down: why.
    pub(crate) fn precopy(
        &mut self,
        nodes: &[u16],
        first: Option<u64>,
        most: usize,
    ) -> Result<(Vec<NfFlows>, CopyProgress), String> {
        let (mut all, mut sum) = (Vec::new(), CopyProgress::default());
        let keeps = |node: &&u16| {
            let node = self.nodes.get(usize::from(**node));
            node.and_then(|node| node.nf.as_ref()).is_some_and(|nf| nf.has_flows())
        };
        let most = most / nodes.iter().filter(keeps).count().max(1);
        for node in nodes {
            let Some(node) = self.nodes.get_mut(usize::from(*node)) else { continue };
            let Some(nf) = node.nf.as_mut().filter(|nf| nf.has_flows()) else { continue };
            if let Some(id) = first {
                nf.begin_precopy(id);
            }
            let mut flows = Vec::new();
            let copied = nf.precopy(most, &mut flows);
            let copied = copied.map_err(|e| format!("flows of {}: {e}", node.name))?;
            sum.copied += copied.copied;
            sum.left += copied.left;
            sum.walks |= copied.walks;
            let (name, kind) = (node.name.clone(), nf.descriptor().name.to_owned());
            all.push(NfFlows { name, instance: node.instance, kind, flows });
        }
        Ok((all, sum))
    }

    /// No flows are copied any more.
    pub(crate) fn end_precopy(&mut self) {
        for node in &mut self.nodes {
            node.nf.iter_mut().for_each(|nf| nf.end_precopy());
        }
    }

    /// Gives its µNFs flows of others of their names and types, which work on; what of it could not be taken, and why.
    pub(crate) fn take_ahead(&mut self, all: Vec<NfFlows>) -> Vec<String> {
        let mut refused = Vec::new();
        for NfFlows { name, instance, kind, flows } in all {
            let mut nodes = self.nodes.iter_mut();
            let Some(node) = nodes.find(|node| node.is(&name, instance, &kind)) else { continue };
            let Some(nf) = &mut node.nf else { continue };
            if let Err(e) = nf.take_precopied(&flows) {
                nf.forget_precopied();
                refused.push(format!("the flows of {name}: {e}"));
            }
        }
        refused
    }

    /// Gives its µNFs what others of their names and types knew. `comes`: bits of the sources that packets come from.
    pub(crate) fn take_over(&mut self, states: Vec<NfState>, comes: u64) -> TakenOver {
        let mut taken = TakenOver::default();
        for state in states {
            let NfState { name, instance, kind, ports, last, over, .. } = &state;
            let mut nodes = self.nodes.iter_mut();
            let Some(node) = nodes.find(|node| node.is(name, *instance, kind)) else { continue };
            if let Some(more) = &mut node.more {
                more.take_over(&self.source_ports, ports, *last, comes & more.comes);
                more.end_taken_over(&self.source_ports, over);
            }
            let Some(nf) = &mut node.nf else { continue };
            let doubled = nf.flows_doubled();
            if let Err(e) = nf.restore(&state.shared) {
                taken.refused.push(format!("what {name} remembers: {e}"));
            }
            let restored = match state.rest {
                true => nf.take_rest(&state.flows),
                false => {
                    // Who wrote it is not who was copied.
                    nf.forget_precopied();
                    nf.restore_flows(&state.flows)
                }
            };
            if let Err(e) = restored {
                nf.forget_precopied();
                taken.refused.push(format!("the flows of {name}: {e}"));
            }
            if let Some(leased) = node.leased.as_ref().filter(|_| state.divides) {
                keep_own(nf.as_mut(), leased);
            }
            let now = nf.flows_doubled();
            if now > doubled {
                taken.warnings.push(format!(
                    "{} flows of {name} were in several of its instances: those with the later packet stay",
                    now - doubled
                ));
            }
        }
        taken
    }
}

impl More {
    /// Takes up which sources packets have come from, by their ports. One that does not come here any more never ends here, and nothing
    /// leaves with it: where none of them does, the first that comes stands in, so that timers come all the same and the end is told of.
    fn take_over(
        &mut self,
        source_ports: &[u16],
        ports: &[(u16, u64)],
        last: Option<u16>,
        comes: u64,
    ) {
        let bit = |source: usize| 1u64.checked_shl(source as u32).unwrap_or(0);
        for (i, port) in source_ports.iter().enumerate().filter(|(i, _)| comes & bit(*i) != 0) {
            if last == Some(*port) {
                self.last_source = i;
            }
            let Some((_, place)) = ports.iter().find(|told| told.0 == *port) else { continue };
            self.sources |= bit(i);
            // Of several instances that have become one, the one that has come farthest.
            if let Some(own) = self.places.get_mut(i)
                && own.before(Seq::new(*place))
            {
                *own = Seq::new(*place);
            }
        }
        if !ports.is_empty() && self.sources == 0 && comes != 0 {
            let first = comes.trailing_zeros() as usize;
            self.sources |= bit(first);
            (self.last_source, self.stands_in) = (first, Some(first));
        }
    }

    /// Takes up of which sources it was told that they have ended. Where another instance that this one goes on from was still to be
    /// told, it is told.
    fn end_taken_over(&mut self, source_ports: &[u16], over: &[u16]) {
        for (i, port) in source_ports.iter().enumerate() {
            let bit = 1u64.checked_shl(i as u32).unwrap_or(0);
            if over.contains(port) {
                self.over |= bit;
            }
        }
        self.over &= !self.sources;
    }
}

/// Forgets the flows whose packets come to other instances, which have them as well.
fn keep_own(nf: &mut dyn Instance, leased: &Leased) {
    let mut walk = Walk::default();
    loop {
        let take = Take {
            look: usize::MAX,
            take: usize::MAX,
            chosen: &mut |key, start| !leased.has(key, start),
            to: &mut |_, _| {},
        };
        // What cannot be written down could not have come here.
        if !matches!(nf.take_flows(&mut walk, take), Ok(true)) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_packet::wire::Frame;
    use weir_packet::{Depth, FlowHasher, parse};

    fn none_yet() -> More {
        let places = vec![Seq::default(); 3];
        More { comes: 0b111, over: 0, sources: 0, last_source: 0, stands_in: None, places }
    }

    /// By ports, as sources may be numbered otherwise in the new graph.
    #[test]
    fn what_timers_send_goes_with_the_source_of_the_same_port_as_before() {
        let mut more = none_yet();
        more.take_over(&[7, 8, 9], &[(9, 40), (7, 30)], Some(9), 0b111);
        assert_eq!((more.sources, more.last_source, more.stands_in), (0b101, 2, None));
        assert_eq!(more.places, [30, 0, 40].map(Seq::new));
        // Of another instance.
        more.take_over(&[7, 8, 9], &[(9, 20), (7, 50)], Some(7), 0b111);
        assert_eq!((more.sources, more.last_source), (0b101, 0));
        assert_eq!(more.places, [50, 0, 40].map(Seq::new));
    }

    #[test]
    fn a_source_that_does_not_come_any_more_is_not_waited_for_and_another_stands_in_for_the_last() {
        let mut more = none_yet();
        more.take_over(&[7, 8, 9], &[(9, 40), (7, 30)], Some(9), 0b011);
        assert_eq!((more.sources, more.stands_in), (0b001, None));
        let mut more = none_yet();
        more.take_over(&[7, 8, 9], &[(9, 40)], Some(9), 0b010);
        assert_eq!((more.sources, more.last_source, more.stands_in), (0b010, 1, Some(1)));
        // One that has had no packets has no place to go on from.
        let mut more = none_yet();
        more.take_over(&[7, 8, 9], &[], None, 0b111);
        assert_eq!((more.sources, more.stands_in), (0, None));
    }

    #[test]
    fn an_end_that_was_told_is_not_told_again_unless_an_instance_that_it_goes_on_from_had_to_hear_of_it()
     {
        let mut more = none_yet();
        more.take_over(&[7, 8, 9], &[(9, 40)], Some(9), 0b111);
        more.end_taken_over(&[7, 8, 9], &[7]);
        assert_eq!((more.sources, more.over), (0b100, 0b001));
        more.take_over(&[7, 8, 9], &[(7, 40)], Some(7), 0b111);
        more.end_taken_over(&[7, 8, 9], &[8]);
        assert_eq!((more.sources, more.over), (0b101, 0b010));
    }

    /// A record of a table that has seen the first fragment of a datagram, of that flow, at that time.
    fn record(id: u32, port: u16, ns: u64) -> Vec<u8> {
        let mut table = FragmentTable::new(8, FlowHasher::new(1));
        let frame = Frame::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).id(id).udp(port, 53);
        let first = frame.payload(&[0; 80]).fragments(32).remove(0);
        table.key(&first[..], &parse(&first[..], Depth::L4), ns);
        let mut out = Vec::new();
        table.save(&mut out);
        out
    }

    fn hash(table: &mut FragmentTable, id: u32) -> Option<u64> {
        let frame = Frame::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).id(id).udp(1, 53);
        let later = frame.payload(&[0; 80]).fragments(32).remove(1);
        table.hash(&later[..], &parse(&later[..], Depth::L4), 7)
    }

    /// A table that has taken over what there is.
    fn taken(known: &OpenDatagrams) -> FragmentTable {
        let mut table = FragmentTable::new(1024, FlowHasher::new(1));
        known.restore_into(0, &mut table);
        table
    }

    #[test]
    fn what_services_know_of_datagrams_is_believed_before_what_nfs_say_however_much_that_is() {
        let alone = |bytes: Vec<u8>| OpenDatagrams::merge(std::iter::once(&ByteBuf::from(bytes)));
        let service = alone([record(1, 1000, 5), record(2, 2000, 6)].concat());
        let right = [1, 2].map(|id| {
            hash(&mut taken(&OpenDatagrams { others: service.clone(), ..Default::default() }), id)
        });
        // Other flows for those, though later, and more than a table remembers.
        let flood: Vec<u8> = (1..3000).flat_map(|id| record(id, 6666, u64::MAX)).collect();
        let others = alone(flood);
        assert_eq!(others.len(), OpenDatagrams::MOST * FragmentTable::RECORD);
        let mut table = taken(&OpenDatagrams { services: service, others, ..Default::default() });
        assert_eq!([1, 2].map(|id| hash(&mut table, id)), right);
    }

    #[test]
    fn of_several_the_later_first_fragment_counts_each_datagram_is_there_once_and_nobodys_few_are_left_out()
     {
        let all = [record(1, 1000, 5), record(1, 1001, 9), record(1, 1000, 7)].map(ByteBuf::from);
        assert_eq!(OpenDatagrams::merge(all.iter()), record(1, 1001, 9));
        let flood: Vec<u8> = (2..3000).flat_map(|id| record(id, 6666, 10)).collect();
        let merged = OpenDatagrams::merge([ByteBuf::from(flood), all[0].clone()].iter());
        assert!(merged.starts_with(&record(1, 1000, 5)));
        assert_eq!(merged.len(), OpenDatagrams::MOST * FragmentTable::RECORD);
        assert!(OpenDatagrams::merge([ByteBuf::from(vec![7; 30])].iter()).is_empty());
    }

    #[test]
    fn what_a_table_had_itself_stays_whatever_others_and_other_tables_had() {
        let many = |ids: std::ops::Range<u32>, port, ns| {
            ByteBuf::from(ids.flat_map(|id| record(id, port, ns)).collect::<Vec<u8>>())
        };
        let own = many(0..50, 1000, 5);
        let alone = OpenDatagrams { own: vec![own.clone()], ..Default::default() };
        let right: Vec<_> = (0..50).map(|id| hash(&mut taken(&alone), id)).collect();
        let (services, others) = (many(50..1_000, 2000, 6), many(1_000..2_000, 3000, 7));
        let own = vec![own, many(2_000..3_000, 4000, 8)];
        let mut table = taken(&OpenDatagrams { own, services, others });
        assert_eq!((0..50).map(|id| hash(&mut table, id)).collect::<Vec<_>>(), right);
    }

    #[test]
    fn nobody_has_more_written_down_than_a_table_remembers() {
        let own = vec![ByteBuf::from(vec![1; 1 << 20]); 100];
        let bounded = OpenDatagrams { own, ..Default::default() }.bounded();
        let most = OpenDatagrams::MOST * FragmentTable::RECORD;
        assert!(bounded.own.len() <= 64 && bounded.own.iter().all(|own| own.len() <= most));
    }
}
