//! What is here again as another instance is gone for good.
//!
//! Whoever divides packets sends what had been moved to that one where it was at first. Who has it then hears so from nobody: it
//! asks all others what they have and send where, and what nobody else has is its own again. Until then it
//! carries out no order.

use super::Holder;
use crate::moves::{Letter, Part, Post};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use weir_flow::{Message, Party, Told};

/// How long all may take to answer. After that what is not known to be here is moved nowhere.
const ANSWER: Duration = Duration::from_millis(500);

/// A question to all others, under way.
pub(super) struct Claim {
    since: Instant,
    /// Who has not answered.
    of: BTreeSet<Party>,
    /// Buckets that were here at first and were not when that was asked, as far as nobody else has said that they are his.
    lacking: BTreeSet<u16>,
}

impl Holder {
    /// Some instance is gone: asks the others.
    pub(super) fn claim(&mut self, post: &mut Post) {
        let lacks = |bucket: &u16| {
            u16::from(self.initial.at(*bucket)) == self.me && !self.is_here(&Part::Bucket(*bucket))
        };
        let lacking: BTreeSet<u16> = (0..=u16::MAX).filter(lacks).collect();
        if lacking.is_empty() {
            return;
        }
        let mut of: BTreeSet<Party> = (0..self.directors).map(Party::Director).collect();
        let there = |own: &u16| *own != self.me && !self.gone.contains(own);
        of.extend((0..self.replicas).filter(there).map(Party::Replica));
        for other in &of {
            let ask: Letter = Message::Hello(self.life);
            post.send(*other, &ask);
        }
        self.claim = Some(Claim { since: Instant::now(), of, lacking });
    }

    /// True while orders wait for the answers. Those that come later count all the same.
    pub(super) fn claims(&self) -> bool {
        self.claim.as_ref().is_some_and(|claim| claim.since.elapsed() < ANSWER)
    }

    /// True when `from` was asked what he knows, and has not answered.
    pub(super) fn asked(&self, from: Party) -> bool {
        self.machine.unheard().any(|unheard| unheard == from)
            || self.claim.as_ref().is_some_and(|claim| claim.of.contains(&from))
    }

    /// Somebody says what he has, or where he sends what.
    pub(super) fn judge_claim(&mut self, from: Party, told: &Told<Part>) {
        let has = matches!(from, Party::Replica(_)).then_some(&told.guests);
        let has = has.into_iter().flatten().filter_map(|(part, _)| bucket(part));
        // What went there when its source was gone is there now.
        let came = told.coming.iter().filter(|(id, ..)| self.gone.contains(&id.source));
        let came = came.flat_map(|(_, parts, _)| parts).filter_map(bucket);
        // Who has not heard yet who is gone sends nothing more there when he has.
        let goes = told.routes.iter().filter(|(_, route)| !self.gone.contains(&route.to));
        let goes = goes.filter_map(|(part, _)| bucket(part));
        let elsewhere: BTreeSet<u16> = has.chain(came).chain(goes).collect();
        if matches!(from, Party::Replica(_)) {
            // Also for one that was just started anew, which does not know what its earlier life had moved away.
            elsewhere.iter().for_each(|bucket| self.own(*bucket, false));
        }
        let Some(claim) = &mut self.claim else { return };
        claim.lacking.retain(|bucket| !elsewhere.contains(bucket));
        claim.of.remove(&from);
        if let Some(claim) = self.claim.take_if(|claim| claim.of.is_empty()) {
            claim.lacking.into_iter().for_each(|bucket| self.own(bucket, true));
        }
    }
}

fn bucket(part: &Part) -> Option<u16> {
    match part {
        Part::Bucket(bucket) => Some(*bucket),
        Part::Flow(_) => None,
    }
}
