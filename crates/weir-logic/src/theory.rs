//! What is true of every packet, so of no interest: without it a model allows packets that do not
//! exist, and says "overlap" where there is none.

use crate::bdd::Ref;
use crate::limits::Spent;
use crate::model::Model;
use crate::variable::Variable;

/// A bit, or a length, behind an IPv4 header of a certain length is one at a fixed offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Tie {
    /// Offset of the IPv4 header.
    pub(crate) l3: u32,
    /// The header's length in words of four bytes (its IHL field), 0 to 15.
    pub(crate) words: u32,
    /// [`Variable::L4Has`] or [`Variable::L4Bit`] of this header.
    pub(crate) l4: Variable,
}

impl Tie {
    /// What it is tied to.
    pub(crate) fn fixed(&self) -> Option<Variable> {
        let base = self.l3.checked_add(self.words.checked_mul(4)?)?;
        match self.l4 {
            Variable::L4Has { bytes, .. } => {
                Some(Variable::Has { bytes: base.checked_add(bytes)? })
            }
            Variable::L4Bit { byte, bit, .. } => {
                Some(Variable::Bit { byte: base.checked_add(byte)?, bit })
            }
            _ => None,
        }
    }
}

impl Model {
    /// A packet that has n bytes has all fewer numbers of bytes, for all lengths asked for.
    ///
    /// # Errors
    /// When a limit is reached.
    pub(crate) fn theory(&mut self) -> Result<Ref, Spent> {
        if let Some(f) = self.theory {
            return Ok(f);
        }
        // From the right, as diagrams are built. A header's lengths follow each other in the set.
        let mut all = Ref::TRUE;
        let mut below: Option<(u32, Ref, Ref)> = None;
        for (l3, bytes) in self.l4_has.clone().into_iter().rev() {
            let (some, none) = match below {
                Some((same, some, none)) if same == l3 => (some, none),
                Some((_, some, _)) => (some, some),
                None => (all, all),
            };
            let (some, none) = self.shorter(Variable::L4Has { l3, bytes }, some, none)?;
            below = Some((l3, some, none));
            all = some;
        }
        let (mut some, mut none) = (all, all);
        for bytes in self.has.clone().into_iter().rev() {
            (some, none) = self.shorter(Variable::Has { bytes }, some, none)?;
        }
        self.theory = Some(some);
        Ok(some)
    }

    /// That a packet is long enough for every term.
    ///
    /// # Errors
    /// When a limit is reached.
    pub(crate) fn whole(&mut self) -> Result<Ref, Spent> {
        let fixed = self.has.iter().map(|bytes| Variable::Has { bytes: *bytes });
        let l4 = self.l4_has.iter().map(|&(l3, bytes)| Variable::L4Has { l3, bytes });
        let mut all: Vec<_> = fixed.chain(l4).filter_map(|v| Some((v.place()?, true))).collect();
        self.bdd.cube(&mut all)
    }

    /// One length further left: `some` and `none` say what must hold of the longer ones (and of all
    /// behind them) when the packet has this length, and when not. The same for the next.
    fn shorter(&mut self, has: Variable, some: Ref, none: Ref) -> Result<(Ref, Ref), Spent> {
        let Some(place) = has.place() else {
            return Ok((none, none));
        };
        Ok((self.bdd.choose(place, none, some)?, self.bdd.choose(place, none, Ref::FALSE)?))
    }

    /// `tie` as a function that is true of all packets.
    ///
    /// # Errors
    /// When a limit is reached.
    pub(crate) fn tie(&mut self, tie: &Tie) -> Result<Ref, Spent> {
        let fixed = tie.fixed();
        if let Some(Variable::Has { bytes }) = fixed
            && !self.has.contains(&bytes)
        {
            self.has.insert(bytes);
            self.theory = None;
        }
        // The header's length stands in the lower half of its first byte.
        let mut length: Vec<(u32, bool)> = (0..4)
            .filter_map(|bit| {
                let place = Variable::Bit { byte: tie.l3, bit }.place()?;
                Some((place, tie.words.checked_shr(bit).unwrap_or(0) & 1 == 1))
            })
            .collect();
        let length = self.bdd.cube(&mut length)?;
        let l4 = self.literal(Some(tie.l4))?;
        let fixed = self.literal(fixed)?;
        let both = self.bdd.and(l4, fixed)?;
        let neither = self.bdd.and(l4.negated(), fixed.negated())?;
        let same = self.bdd.or(both, neither)?;
        self.bdd.or(length.negated(), same)
    }

    /// Further right than any packet goes there is nothing.
    fn literal(&mut self, variable: Option<Variable>) -> Result<Ref, Spent> {
        match variable.and_then(Variable::place) {
            Some(place) => self.bdd.choose(place, Ref::FALSE, Ref::TRUE),
            None => Ok(Ref::FALSE),
        }
    }
}
