//! Letters to and from the others of a crew.

use super::Letter;
use super::MOST_PARTS;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, Instant};
use weir_flow::{Message, MoveId, Party};
use weir_mem::fault::{self, Step};
use weir_mem::{MailIn, MailOut};
use weir_port::Doorbell;

/// Letters to and from one of them.
pub(crate) struct Channel {
    pub(crate) with: Party,
    pub(crate) out: MailOut,
    pub(crate) mail: MailIn,
    /// Wakes the other.
    pub(crate) bell: Rc<Doorbell>,
}

/// How long nobody is told anew what is known here, by byte of what he was told last: he who asks again and again has a tenth of
/// this worker's time, or less.
const REST: Duration = Duration::from_nanos(100);

/// What somebody is told who asks what is known here.
#[derive(Default)]
struct Asker {
    /// He has asked in this life, and was told too much just before. What he wrote since waits behind.
    asks: Option<u32>,
    /// He is told nothing more until then.
    rests: Option<Instant>,
}

impl Asker {
    fn may_ask(&self) -> bool {
        self.rests.is_none_or(|until| Instant::now() >= until)
    }
}

/// All letters of a worker in one crew.
pub(crate) struct Post {
    pub(super) channels: Vec<Channel>,
    /// By channel.
    askers: Vec<Asker>,
    /// Which channel is read next: nobody's letters keep back another's.
    turn: usize,
    /// Letters that cannot be, or that nobody takes.
    nonsense: u64,
    /// Letters that leave when what they say counts, if they wait for that.
    held: Option<VecDeque<Written>>,
}

/// A letter, where to, and whether somebody is told what is known here.
type Written = (Party, Option<Vec<u8>>, bool);

impl Post {
    pub(crate) fn new(channels: Vec<Channel>) -> Self {
        let askers = channels.iter().map(|_| Asker::default()).collect();
        Post { channels, askers, turn: 0, nonsense: 0, held: None }
    }

    /// Sends a letter. One that cannot be sent is as one to somebody who died: time-outs see to it.
    pub(crate) fn send(&mut self, to: Party, letter: &Letter) {
        let tells = matches!(letter, Message::Tell(..));
        let written = (to, postcard::to_stdvec(letter).ok(), tells);
        match &mut self.held {
            Some(held) => held.push_back(written),
            None => self.send_written(written),
        }
    }

    /// From now on letters wait until they are [let go](Post::let_go).
    pub(super) fn hold(&mut self) {
        self.held.get_or_insert_default();
    }

    /// True when letters wait.
    pub(super) fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// True while some do.
    pub(super) fn holds(&self) -> bool {
        self.held.as_ref().is_some_and(|held| !held.is_empty())
    }

    /// Sends those that wait; true when any did.
    pub(super) fn let_go(&mut self) -> bool {
        let any = self.holds();
        while let Some(written) = self.held.as_mut().and_then(VecDeque::pop_front) {
            self.send_written(written);
        }
        any
    }

    fn send_written(&mut self, (to, bytes, tells): Written) {
        let mut channels = self.channels.iter_mut().zip(&mut self.askers);
        let Some((channel, asker)) = channels.find(|(channel, _)| channel.with == to) else {
            return;
        };
        if let (true, Some(bytes)) = (tells, &bytes) {
            let rest = REST.saturating_mul(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
            asker.rests = Some(Instant::now() + rest);
        }
        match bytes.map(|bytes| channel.out.post(bytes)) {
            Some(Ok(true)) => channel.bell.ring(),
            Some(Ok(false)) => {}
            Some(Err(_)) | None => self.nonsense += 1,
        }
        fault::step(Step::LetterSent);
    }

    /// True when some letter waits for room.
    pub(crate) fn waits(&self) -> bool {
        self.channels.iter().any(|channel| channel.out.waits())
    }

    /// Sends what waits, as far as there is room; true when any went out.
    pub(crate) fn pump(&mut self) -> bool {
        let mut any = false;
        for channel in &mut self.channels {
            if channel.out.waits() && channel.out.pump() {
                channel.bell.ring();
                any = true;
            }
        }
        any
    }

    /// True when there is something to read.
    #[inline]
    pub(crate) fn has_some(&mut self) -> bool {
        let mut channels = self.channels.iter_mut().zip(&self.askers);
        channels.any(|(channel, asker)| match asker.asks {
            Some(_) => asker.may_ask(),
            None => channel.mail.has_some(),
        })
    }

    /// True while somebody who asks waits for his turn.
    pub(crate) fn defers(&self) -> bool {
        self.askers.iter().any(|asker| asker.asks.is_some())
    }

    /// The next letter, and whose it is.
    pub(crate) fn take(&mut self) -> Option<(Party, Letter)> {
        for _ in 0..self.channels.len() {
            let at = self.turn;
            self.turn = (self.turn + 1) % self.channels.len().max(1);
            let Some(channel) = self.channels.get_mut(at) else { continue };
            let Some(asker) = self.askers.get_mut(at) else { continue };
            if let Some(life) = asker.asks {
                if asker.may_ask() {
                    asker.asks = None;
                    return Some((channel.with, Message::Hello(life)));
                }
                continue;
            }
            let Some(bytes) = channel.mail.take() else { continue };
            // Room for what the other has to send.
            channel.bell.ring();
            if is_too_long(&bytes) {
                self.nonsense += 1;
                continue;
            }
            match postcard::from_bytes(&bytes) {
                Ok(Message::Hello(life)) if !asker.may_ask() => asker.asks = Some(life),
                Ok(letter) if may_say(channel.with, &letter) && may_be(&letter) => {
                    fault::step(Step::LetterTaken);
                    return Some((channel.with, letter));
                }
                Ok(_) | Err(_) => self.nonsense += 1,
            }
        }
        None
    }
}

/// False when only another may say so: a migration is begun, given up and handed over by its source.
fn may_say(from: Party, letter: &Letter) -> bool {
    let is_own = |id: &MoveId| from == Party::Replica(id.source);
    match letter {
        Message::Prepare { id, .. } | Message::Cancel(id) | Message::State(id, _) => is_own(id),
        Message::Switch { .. }
        | Message::Prepared(_)
        | Message::Refused(..)
        | Message::Done { .. }
        | Message::Where(_) => {
            matches!(from, Party::Replica(_))
        }
        Message::There(..) => matches!(from, Party::Director(_)),
        Message::Settled { .. }
        | Message::Arrived { .. }
        | Message::Dropped(_)
        | Message::Hello(_)
        | Message::Tell(..) => true,
    }
}

/// True for a letter that is longer than any of its kind that a sound party writes: not worth reading.
fn is_too_long(bytes: &[u8]) -> bool {
    // A part takes 11 bytes at most. What somebody tells one who was started anew is all that he knows, and flows' state is
    // as long as it is.
    const PARTS: usize = 16 * MOST_PARTS;
    const TOLD: usize = 32 << 20;
    match bytes.first() {
        Some(&STATE) => false,
        Some(&TELL) => bytes.len() > TOLD,
        _ => bytes.len() > PARTS,
    }
}

/// How letters of these kinds begin.
const STATE: u8 = 5;
const TELL: u8 = 11;

/// False for a letter of more parts than a migration has.
fn may_be(letter: &Letter) -> bool {
    match letter {
        Message::Prepare { parts, .. }
        | Message::Switch { parts, .. }
        | Message::Arrived { parts, .. } => parts.len() <= MOST_PARTS,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::moves::{Flows, Part};
    use std::collections::BTreeSet;
    use weir_flow::Told;
    use weir_mem::mail;

    /// A post with one other, and the other's end.
    fn post(with: Party) -> (Post, MailOut) {
        let (to, from) = (mail::create("weir-test").unwrap(), mail::create("weir-test").unwrap());
        let channel = Channel {
            with,
            out: MailOut::attach(&to.0, &to.1).unwrap(),
            mail: MailIn::attach(&from.0, &from.1).unwrap(),
            bell: Rc::new(Doorbell::new().unwrap()),
        };
        (Post::new(vec![channel]), MailOut::attach(&from.0, &from.1).unwrap())
    }

    fn say(out: &mut MailOut, letter: &Letter) {
        out.post(postcard::to_stdvec(letter).unwrap()).unwrap();
    }

    #[test]
    fn what_a_hostile_replica_writes_is_counted_and_what_it_may_say_is_heard() {
        let (mut post, mut hostile) = post(Party::Replica(1));
        let own = MoveId { source: 1, life: 0, number: 1 };
        let anothers = MoveId { source: 2, ..own };
        let parts: BTreeSet<Part> = [Part::Flow(7)].into();
        hostile.post(vec![255; 40]).unwrap();
        hostile.post(Vec::new()).unwrap();
        say(&mut hostile, &Message::State(anothers, Flows::default()));
        say(&mut hostile, &Message::Cancel(anothers));
        say(
            &mut hostile,
            &Message::Prepare { id: anothers, parts: parts.clone(), home: false, flows: vec![1] },
        );
        for _ in 0..5 {
            assert_eq!(post.take(), None);
        }
        assert_eq!(post.nonsense, 5);
        let letter = Message::Prepare { id: own, parts, home: false, flows: vec![1] };
        say(&mut hostile, &letter);
        assert_eq!(post.take(), Some((Party::Replica(1), letter)));
    }

    #[test]
    fn letters_of_more_parts_than_a_migration_has_are_not_read() {
        let (mut post, mut hostile) = post(Party::Replica(1));
        let id = MoveId { source: 1, life: 0, number: 1 };
        let switch =
            |count: u64| Message::Switch { id, parts: (0..count).map(Part::Flow).collect(), to: 0 };
        let most = MOST_PARTS as u64;
        let mut hear = |letter: &Letter| {
            say(&mut hostile, letter);
            let mut heard = None;
            while heard.is_none() && (hostile.pump() || post.has_some()) {
                heard = post.take();
            }
            (heard.is_some(), post.nonsense)
        };
        assert_eq!(hear(&switch(most)), (true, 0));
        assert_eq!(hear(&switch(most + 1)), (false, 1));
        assert_eq!(hear(&switch(20 * most)), (false, 2));
        // What may be long is read.
        let guests = (0..20 * most).map(|hash| (Part::Flow(hash), id)).collect();
        assert_eq!(hear(&Message::Tell(0, Told { guests, ..Told::default() })), (true, 2));
        assert_eq!(hear(&Message::State(id, Flows(vec![0; 17 * MOST_PARTS]))), (true, 2));
    }

    #[test]
    fn who_asks_again_and_again_what_is_known_is_told_it_now_and_then() {
        let (mut post, mut hostile) = post(Party::Replica(1));
        let id = MoveId { source: 1, life: 0, number: 1 };
        let hello = |life| Some((Party::Replica(1), Message::Hello(life)));
        say(&mut hostile, &Message::Hello(1));
        assert_eq!(hear(&mut post), hello(1));
        // What is short costs nothing.
        post.send(Party::Replica(1), &Message::Tell(1, Told::default()));
        say(&mut hostile, &Message::Hello(2));
        assert_eq!(hear(&mut post), hello(2));
        let guests = (0..1 << 20).map(|hash| (Part::Flow(hash), id)).collect();
        let told = Instant::now();
        post.send(Party::Replica(1), &Message::Tell(2, Told { guests, ..Told::default() }));
        say(&mut hostile, &Message::Hello(3));
        say(&mut hostile, &Message::Cancel(id));
        assert_eq!((post.take(), post.defers()), (None, true));
        // Then in the order in which he wrote.
        assert_eq!(hear(&mut post), hello(3));
        assert!(told.elapsed() >= Duration::from_millis(300), "{:?}", told.elapsed());
        let cancel = Some((Party::Replica(1), Message::Cancel(id)));
        assert_eq!((hear(&mut post), post.defers()), (cancel, false));
    }

    /// The next letter, within ten seconds.
    fn hear(post: &mut Post) -> Option<(Party, Letter)> {
        let end = Instant::now() + Duration::from_secs(10);
        loop {
            let heard = if post.has_some() { post.take() } else { None };
            if heard.is_some() || Instant::now() > end {
                return heard;
            }
        }
    }

    #[test]
    fn a_director_does_not_speak_for_replicas() {
        let (mut post, mut hostile) = post(Party::Director(0));
        let id = MoveId { source: 1, life: 0, number: 1 };
        say(&mut hostile, &Message::State(id, Flows(vec![1; 100])));
        say(&mut hostile, &Message::Done { id, lost: 0 });
        say(&mut hostile, &Message::Switch { id, parts: BTreeSet::new(), to: 0 });
        for _ in 0..3 {
            assert_eq!(post.take(), None);
        }
        assert_eq!(post.nonsense, 3);
    }
}
