//! The compiled rule list.

use crate::batch::{HeaderBatch, LANES};
use crate::bitvectors::{MAX_VECTOR_RULES, Vectors};
use crate::compiled::{Compiled, Family, Key, classed, words};
use crate::cross::Cross;
use crate::headers::Headers;
use crate::ports::PortClasses;
use crate::rule::Rule;
use crate::trees::{IN_FLIGHT, Trees};
use std::collections::HashSet;

/// Rules of one list at most.
pub const MAX_RULES: usize = 262_144;

/// What [`Classifier::classify_batch`] writes when no rule matches.
pub const NO_RULE: u32 = u32::MAX;

/// Why a rule list cannot be compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// More than [`MAX_RULES`].
    #[error("{0} rules are too many: at most {MAX_RULES} fit one list")]
    TooManyRules(usize),
    /// The rules tell apart all 65,536 ports of one field.
    #[error("the rules tell apart every single port: combine some port ranges")]
    TooManyPortRanges,
}

/// A rule list compiled to tables; immutable, so it can be shared and swapped.
///
/// The rules are compiled apart for IPv4, IPv6 and everything else, each in one of three forms:
///
/// - up to 512: bit vectors, in which a lookup takes the same few loads for every packet;
/// - more, for IPv4: cells of class numbers, where a packet meets a few rules in each of four tables;
/// - what does not suit those (lists of more than 65,535 rules, long ones for IPv6, more than 64 distinct tests of other fields than addresses and ports, rules that
///   overlap so much that a packet would meet more than 16 on average): decision trees.
///
/// *Bounds.* Bit vectors take 12 MiB at most, usually below 1. Cells and their entries are limited to 64 per rule and
/// 1,500,000 in all (46 MiB), usually 150 bytes per rule; a cell has at most 1,024 entries. Entries of the trees are
/// limited to 64 per rule and 2,000,000 per family, the work of a build per rule too. Where rules overlap so much
/// that cuts do not part them within that, leaves stay large and are compared in order: the worst case is all rules
/// of the family, about 1 ns each ([`Shape::largest_leaf`] tells).
#[derive(Debug, Clone)]
pub struct Classifier {
    sport: PortClasses,
    dport: PortClasses,
    link: bool,
    v4: Engine,
    v6: Engine,
    other: Engine,
}

/// The rules of one address family in the form that suits their number.
#[derive(Debug, Clone)]
enum Engine {
    Empty,
    Vectors1(Vectors<1>),
    Vectors2(Vectors<2>),
    Vectors4(Vectors<4>),
    Vectors8(Vectors<8>),
    Cross(Box<Cross>),
    Trees(Trees),
}

/// How large a compiled list is, for reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of all tables.
    pub bytes: usize,
    /// Trees over all families.
    pub trees: usize,
    /// Rules of the largest leaf.
    pub largest_leaf: usize,
}

impl Classifier {
    /// Compiles an ordered list.
    ///
    /// # Errors
    /// See [`BuildError`].
    pub fn build(rules: &[Rule]) -> Result<Classifier, BuildError> {
        if rules.len() > MAX_RULES {
            return Err(BuildError::TooManyRules(rules.len()));
        }
        let usable =
            || rules.iter().filter(|rule| !rule.sport.is_empty() && !rule.dport.is_empty());
        let sport = PortClasses::new(usable().map(|rule| &rule.sport))
            .ok_or(BuildError::TooManyPortRanges)?;
        let dport = PortClasses::new(usable().map(|rule| &rule.dport))
            .ok_or(BuildError::TooManyPortRanges)?;
        let mut link = false;
        let mut engine = |family| {
            // A rule equal to an earlier one never wins, and no cut would part them.
            let mut seen = HashSet::new();
            let compiled: Vec<Compiled> = (0_u32..)
                .zip(rules)
                .filter(|(_, rule)| seen.insert(*rule))
                .filter_map(|(index, rule)| Compiled::new(rule, index, family, &sport, &dport))
                .collect();
            link |= compiled.iter().any(Compiled::tests_link);
            Engine::build(rules, &compiled, family, [&sport, &dport])
        };
        let (v4, v6, other) = (engine(Family::V4), engine(Family::V6), engine(Family::Other));
        Ok(Classifier { link, v4, v6, other, sport, dport })
    }

    /// True when some rule looks at MAC addresses, EtherType or VLAN.
    #[inline]
    pub fn tests_link(&self) -> bool {
        self.link
    }

    /// Position of the first rule that matches.
    pub fn classify(&self, headers: &Headers) -> Option<u32> {
        let (family, key) = words(headers, self.link);
        let found = match self.engine(family) {
            Engine::Empty => NO_RULE,
            Engine::Vectors1(vectors) => vectors.lookup(&key),
            Engine::Vectors2(vectors) => vectors.lookup(&key),
            Engine::Vectors4(vectors) => vectors.lookup(&key),
            Engine::Vectors8(vectors) => vectors.lookup(&key),
            Engine::Cross(cross) => cross.lookup(&key, [&self.sport, &self.dport]),
            Engine::Trees(trees) => trees.lookup(&self.classed(key)),
        };
        (found != NO_RULE).then_some(found)
    }

    /// The position of the first rule that matches each packet of the batch, [`NO_RULE`] when none does (and behind
    /// the batch's end).
    pub fn classify_batch(&self, batch: &HeaderBatch) -> [u32; LANES] {
        let mut found = [NO_RULE; LANES];
        let families = batch.families();
        let Some(&first) = families.first() else { return found };
        let len = families.len();
        if families.iter().all(|family| *family == first) {
            self.lookup_batch(first, batch, found.get_mut(..len).unwrap_or_default());
            return found;
        }
        for family in [Family::V4, Family::V6, Family::Other] {
            if families.contains(&family) {
                // All lanes, as tables answer whatever they are asked; then those of the family count.
                let mut answers = [NO_RULE; LANES];
                self.lookup_batch(family, batch, answers.get_mut(..len).unwrap_or_default());
                for ((found, answer), is) in found.iter_mut().zip(answers).zip(families) {
                    *found = if *is == family { answer } else { *found };
                }
            }
        }
        found
    }

    #[inline]
    fn lookup_batch(&self, family: Family, batch: &HeaderBatch, found: &mut [u32]) {
        match self.engine(family) {
            Engine::Empty => {}
            Engine::Vectors1(vectors) => vectors.lookup_batch(batch, found),
            Engine::Vectors2(vectors) => vectors.lookup_batch(batch, found),
            Engine::Vectors4(vectors) => vectors.lookup_batch(batch, found),
            Engine::Vectors8(vectors) => vectors.lookup_batch(batch, found),
            Engine::Cross(cross) => {
                cross.lookup_batch(batch, [&self.sport, &self.dport], found);
            }
            Engine::Trees(trees) => {
                let mut lane = 0;
                for found in found.chunks_mut(IN_FLIGHT) {
                    let mut keys = [Key::default(); IN_FLIGHT];
                    for key in keys.iter_mut().take(found.len()) {
                        *key = self.classed(batch.key(lane));
                        lane += 1;
                    }
                    trees.lookup_batch(keys.get(..found.len()).unwrap_or_default(), found);
                }
            }
        }
    }

    /// Size of the compiled tables.
    pub fn shape(&self) -> Shape {
        let engines = [&self.v4, &self.v6, &self.other];
        let trees = || {
            engines.into_iter().filter_map(|engine| match engine {
                Engine::Trees(trees) => Some(trees),
                _ => None,
            })
        };
        Shape {
            bytes: engines.map(Engine::bytes).into_iter().sum::<usize>()
                + self.sport.bytes()
                + self.dport.bytes(),
            trees: trees().map(Trees::count).sum(),
            largest_leaf: trees().map(Trees::largest_leaf).max().unwrap_or(0),
        }
    }

    #[inline]
    fn classed(&self, key: Key) -> Key {
        classed(key, &self.sport, &self.dport)
    }

    #[inline]
    fn engine(&self, family: Family) -> &Engine {
        match family {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
            Family::Other => &self.other,
        }
    }
}

impl Engine {
    fn build(
        rules: &[Rule],
        compiled: &[Compiled],
        family: Family,
        ports: [&PortClasses; 2],
    ) -> Engine {
        let [sport, dport] = ports;
        let tables = match compiled.len() {
            0 => Some(Engine::Empty),
            1..=64 => Vectors::build(compiled).map(Engine::Vectors1),
            65..=128 => Vectors::build(compiled).map(Engine::Vectors2),
            129..=256 => Vectors::build(compiled).map(Engine::Vectors4),
            257..=MAX_VECTOR_RULES => Vectors::build(compiled).map(Engine::Vectors8),
            _ if family == Family::V4 => {
                Cross::build(compiled, sport, dport).map(|cross| Engine::Cross(Box::new(cross)))
            }
            _ => None,
        };
        tables.unwrap_or_else(|| {
            Engine::Trees(Trees::build(rules, compiled, (sport.bits(), dport.bits())))
        })
    }

    fn bytes(&self) -> usize {
        match self {
            Engine::Empty => 0,
            Engine::Vectors1(vectors) => vectors.bytes(),
            Engine::Vectors2(vectors) => vectors.bytes(),
            Engine::Vectors4(vectors) => vectors.bytes(),
            Engine::Vectors8(vectors) => vectors.bytes(),
            Engine::Cross(cross) => cross.bytes(),
            Engine::Trees(trees) => trees.bytes(),
        }
    }
}
