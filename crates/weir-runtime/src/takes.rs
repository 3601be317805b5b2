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
    BySource(Vec<Filter>),
    /// What asks for tags, or writes one. Graphs without tags have none of it, and pay nothing.
    Tagged(Box<Tagged>),
}

/// A filter over bytes and tags.
pub(crate) struct Tagged {
    /// By source, if it asks for the port that packets came in by; else one for all.
    filters: Vec<Filter>,
    /// What is written into the tags of those that match.
    mark: Option<(TagBits, u64)>,
}

impl Tagged {
    #[inline(never)]
    fn takes(&self, arena: ArenaView<'_>, entry: &Entry, source: usize) -> bool {
        let filter = match self.filters.as_slice() {
            [only] => Some(only),
            filters => filters.get(source),
        };
        let word = |slot| tag_word_of(arena, entry, slot);
        if !filter.is_some_and(|f| f.matches_tagged(&arena.bytes(entry), word)) {
            return false;
        }
        if let Some((bits, word)) = self.mark {
            set_tag_of(arena, entry, bits, word);
        }
        true
    }
}

impl Takes {
    /// `ports` are the sources' ports.
    pub(crate) fn new(
        filter: Option<&Expr>,
        ports: &[u16],
        mark: Option<MarkSpec>,
    ) -> Result<Self, CompileError> {
        if mark.is_some() || filter.is_some_and(Expr::asks_slots) {
            let filter = filter.unwrap_or(&Expr::True);
            let filters = match filter.asks_ingress() {
                true => {
                    let compile = |port: &u16| Filter::compile(&filter.resolve_ingress(*port));
                    ports.iter().map(compile).collect::<Result<_, _>>()?
                }
                false => vec![Filter::compile(filter)?],
            };
            let bits = |m: MarkSpec| (TagBits { slot: m.slot, mask: m.mask }, m.word);
            return Ok(Takes::Tagged(Box::new(Tagged { filters, mark: mark.map(bits) })));
        }
        Ok(match filter {
            None => Takes::All,
            Some(filter) if filter.asks_ingress() => {
                let compile = |port: &u16| Filter::compile(&filter.resolve_ingress(*port));
                Takes::BySource(ports.iter().map(compile).collect::<Result<_, _>>()?)
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
            Takes::BySource(filters) => filters.get(source).is_some_and(|f| f.matches(bytes)),
            Takes::Tagged(tagged) => tagged.takes(arena.view(), packet.entry(), source),
        }
    }
}
