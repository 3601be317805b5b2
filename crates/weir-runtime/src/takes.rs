//! Which packets take a branch.

use crate::spec::MarkSpec;
use weir_filter::{CompileError, Expr, Filter};
use weir_mem::{Arena, ArenaView, Entry, SharedBytes};
use weir_packet::{Packet, TagBits, set_tag_of, tag_word_of};

/// Which packets take a branch.
pub(crate) enum Takes {
    All,
    These(Box<Filter>),
    /// What asks for the port that packets came in by, answered for each source when it was built.
    BySource(Vec<Filter>, Ports),
    /// What asks for tags, or writes one. Graphs without tags have none of it, and pay nothing.
    Tagged(Box<Tagged>),
}

/// By source the port that packets came in by, where those on a lane need not be of its source; else empty.
type Ports = Box<[u16]>;

/// The source that a packet came in by, of one that travels with those of `source`.
#[inline(always)]
fn own_source(ports: &Ports, arena: &Arena, entry: &Entry, source: usize) -> usize {
    if ports.is_empty() {
        return source;
    }
    let port = arena.meta(entry).map(|meta| meta.source_port.get());
    port.and_then(|port| ports.iter().position(|p| *p == port)).unwrap_or(source)
}

/// A filter over bytes and tags.
pub(crate) struct Tagged {
    /// By source, if it asks for the port that packets came in by; else one for all.
    filters: Vec<Filter>,
    ports: Ports,
    /// What is written into the tags of those that match.
    marks: Vec<(TagBits, u64)>,
}

impl Tagged {
    #[inline(never)]
    fn takes(&self, arena: &Arena, entry: &Entry, source: usize) -> bool {
        let filter = match self.filters.as_slice() {
            [only] => Some(only),
            filters => filters.get(own_source(&self.ports, arena, entry, source)),
        };
        let arena: ArenaView<'_> = arena.view();
        let word = |slot| tag_word_of(arena, entry, slot);
        if !filter.is_some_and(|f| f.matches_tagged(&arena.bytes(entry), word)) {
            return false;
        }
        for (bits, word) in &self.marks {
            set_tag_of(arena, entry, *bits, *word);
        }
        true
    }
}

impl Takes {
    /// `ports` are the sources' ports; `held`: packets may be of another source than their lane.
    pub(crate) fn new(
        filter: Option<&Expr>,
        ports: &[u16],
        marks: &[MarkSpec],
        held: bool,
    ) -> Result<Self, CompileError> {
        let by_packet: Ports = if held { ports.into() } else { Box::default() };
        if !marks.is_empty() || filter.is_some_and(Expr::asks_slots) {
            let filter = filter.unwrap_or(&Expr::True);
            let filters = match filter.asks_ingress() {
                true => {
                    let compile = |port: &u16| Filter::compile(&filter.resolve_ingress(*port));
                    ports.iter().map(compile).collect::<Result<_, _>>()?
                }
                false => vec![Filter::compile(filter)?],
            };
            let bits = |m: &MarkSpec| (TagBits { slot: m.slot, mask: m.mask }, m.word);
            let marks = marks.iter().map(bits).collect();
            return Ok(Takes::Tagged(Box::new(Tagged { filters, ports: by_packet, marks })));
        }
        Ok(match filter {
            None => Takes::All,
            Some(filter) if filter.asks_ingress() => {
                let compile = |port: &u16| Filter::compile(&filter.resolve_ingress(*port));
                Takes::BySource(ports.iter().map(compile).collect::<Result<_, _>>()?, by_packet)
            }
            Some(filter) => Takes::These(Box::new(Filter::compile(filter)?)),
        })
    }

    /// True for a packet that takes the branch; it is then marked.
    #[inline(always)]
    pub(crate) fn takes(
        &self,
        bytes: &SharedBytes<'_>,
        source: usize,
        packet: &Packet,
        arena: &Arena,
    ) -> bool {
        match self {
            Takes::All => true,
            Takes::These(filter) => filter.matches(bytes),
            Takes::BySource(filters, ports) => {
                let source = own_source(ports, arena, packet.entry(), source);
                filters.get(source).is_some_and(|f| f.matches(bytes))
            }
            Takes::Tagged(tagged) => tagged.takes(arena, packet.entry(), source),
        }
    }
}
