//! Which two µNFs may work on the same packet at the same time.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::catalog::NfInfo;
use crate::describe::Effect;
use crate::fields::Field;

/// Why two µNFs that follow each other may be put side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Allowed {
    /// Neither writes anything that the other touches, because neither writes.
    OnlyRead,
    /// What either writes the other neither reads nor writes.
    Disjoint,
}

/// Why they may not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Conflict {
    /// The first may drop, and the second must not be given what it drops.
    Drops {
        /// The first.
        who: String,
    },
    /// One adds or removes headers: then all of the packet is elsewhere.
    Resizes {
        /// Which.
        who: String,
    },
    /// One makes packets or holds them, so that what leaves it is not what came.
    MakesOrHolds {
        /// Which.
        who: String,
    },
    /// One writes what the other reads.
    WriteRead {
        /// Who writes.
        writer: String,
        /// Who reads.
        reader: String,
        /// What: the first of such fields.
        field: Field,
    },
    /// Both write it.
    BothWrite {
        /// What: the first of such fields.
        field: Field,
    },
    /// Both have a tag, and who sets it is not known.
    Tag {
        /// Its name.
        name: String,
    },
    /// Both have effects outside, which would come in another order.
    BothOutside,
    /// They are in different trust domains, which share no packets.
    Domains,
    /// Not every packet of the first goes straight to the second.
    Divides {
        /// The first.
        who: String,
    },
    /// Not every packet of the second comes from the first.
    Joins {
        /// The second.
        who: String,
    },
}

impl Conflict {
    /// One letter for tables.
    #[must_use]
    pub const fn letter(&self) -> char {
        match self {
            Conflict::Drops { .. } => 'd',
            Conflict::Resizes { .. } => 'r',
            Conflict::MakesOrHolds { .. } => 'm',
            Conflict::WriteRead { .. } | Conflict::BothWrite { .. } => 'w',
            Conflict::Tag { .. } => 't',
            Conflict::BothOutside => 'o',
            Conflict::Domains => 'x',
            Conflict::Divides { .. } | Conflict::Joins { .. } => 'g',
        }
    }
}

impl fmt::Display for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Allowed::OnlyRead => "both only read",
            Allowed::Disjoint => "what one writes the other does not touch",
        })
    }
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Conflict::Drops { who } => {
                write!(f, "{who} may drop, and what it drops must not get further")
            }
            Conflict::Resizes { who } => write!(f, "{who} adds or removes headers"),
            Conflict::MakesOrHolds { who } => write!(f, "{who} makes or holds packets"),
            Conflict::WriteRead { writer, reader, field } => {
                write!(f, "{writer} writes {}, which {reader} reads", field.name())
            }
            Conflict::BothWrite { field } => write!(f, "both write {}", field.name()),
            Conflict::Tag { name } => write!(f, "both have the tag {name}"),
            Conflict::BothOutside => {
                f.write_str("both have effects outside, whose order would change")
            }
            Conflict::Domains => f.write_str("they are in different trust domains"),
            Conflict::Divides { who } => write!(f, "packets of {who} divide"),
            Conflict::Joins { who } => write!(f, "{who} has packets from elsewhere too"),
        }
    }
}

/// Whether two µNFs of which the second is given every packet that leaves the first may work on a
/// packet at the same time, with the same outcome: packets, drops, counters, tables.
///
/// The µNF paper (§V-B) names three conditions: both only read, or they touch different parts, or they
/// leave the stream of packets as it is. Here all must hold: what one writes the other does not touch,
/// *and* the stream stays. Only the last in chain order may drop: the others saw its packets anyway. An effect
/// outside is seen for the same packets in the same order as before, unless both have one. Each
/// µNF gets the packets in their order; the stage hands them on in it.
///
/// # Errors
/// The first reason against it, in the order of [`Conflict`].
pub fn judge(first: &NfInfo, second: &NfInfo) -> Result<Allowed, Conflict> {
    if first.may_drop {
        return Err(Conflict::Drops { who: first.name.clone() });
    }
    if let Some(who) = [first, second].into_iter().find(|nf| nf.resizes) {
        return Err(Conflict::Resizes { who: who.name.clone() });
    }
    if let Some(who) = [first, second].into_iter().find(|nf| nf.creates > 0 || nf.holds > 0) {
        return Err(Conflict::MakesOrHolds { who: who.name.clone() });
    }
    let (a, b) = (first.work.touched(), second.work.touched());
    if let Some(field) = a.writes.and(b.writes).iter().next() {
        return Err(Conflict::BothWrite { field });
    }
    for (w, writer, r, reader) in [(a, first, b, second), (b, second, a, first)] {
        if let Some(field) = w.writes.and(r.reads).iter().next() {
            let (writer, reader) = (writer.name.clone(), reader.name.clone());
            return Err(Conflict::WriteRead { writer, reader, field });
        }
    }
    let has = |name: &str| second.tags.iter().any(|tag| tag.name == name);
    if let Some(tag) = first.tags.iter().find(|tag| has(&tag.name)) {
        return Err(Conflict::Tag { name: tag.name.clone() });
    }
    if first.work.effect == Effect::External && second.work.effect == Effect::External {
        return Err(Conflict::BothOutside);
    }
    let writes = !a.writes.is_empty() || !b.writes.is_empty();
    Ok(if writes { Allowed::Disjoint } else { Allowed::OnlyRead })
}
