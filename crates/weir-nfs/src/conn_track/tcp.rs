//! How far a TCP connection is, as someone sees it who stands between its ends.
//!
//! Which segments may belong to it is decided as in G. van Rooij, "Real Stateful TCP Packet Filtering
//! in IP Filter" (SANE 2001), which the usual packet filters follow: of each side is known how far it has
//! sent, how far the other allowed it to, and how much it ever allowed the other.

use super::judged::Why;
use super::segment::Segment;
use serde::{Deserialize, Serialize};
use weir_nf::headers::tcp;

/// How far a connection is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// A SYN was seen: half open.
    #[default]
    SynSent,
    /// And its answer.
    SynReceived,
    /// Both SYNs are acknowledged.
    Established,
    /// One side has sent a FIN.
    Closing,
    /// Both have, and they are acknowledged.
    TimeWait,
    /// One side has reset it.
    Reset,
}

/// What to do about a segment that does not contradict the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// It belongs to the connection, which is updated.
    Belongs,
    /// It begins another one between the same ports: the old one is over.
    Reopens,
}

/// One side, as a sender.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Side {
    /// Sequence number of its SYN.
    first: u32,
    /// Behind the last byte that it sent.
    end: u32,
    /// Behind the last byte that the other side allowed it to send.
    limit: u32,
    /// The largest window that it ever allowed the other side; 0 before its first segment.
    window: u32,
    /// By how much its windows are to be shifted.
    scale: u8,
    /// What it acknowledged last.
    acked: Option<u32>,
    /// Behind its FIN.
    fin: Option<u32>,
}

/// A TCP connection; side 0 opened it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    sides: [Side; 2],
    phase: Phase,
    /// Its windows are not known: picked up in the middle, or its segments come in fragments.
    is_lax: bool,
}

/// An acknowledgment may be so old, in bytes, however small windows are: the largest unscaled window, and a bit.
const OLD_ACK: u32 = 66_000;

/// True when `a` is before `b` in the circle of sequence numbers (RFC 9293 §3.4).
#[inline]
fn before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

#[inline]
fn later(a: u32, b: u32) -> u32 {
    if before(a, b) { b } else { a }
}

impl Connection {
    /// The connection that a SYN asks for.
    pub fn open(syn: &Segment) -> Result<Self, Why> {
        if !syn.has_sound_flags() {
            return Err(Why::Flags);
        }
        if !syn.has(tcp::SYN) || syn.has(tcp::ACK) {
            return Err(Why::NoConnection);
        }
        let mut connection = Connection::default();
        connection.sides[0] = Side::opening(syn);
        Ok(connection)
    }

    /// A connection of which this segment is the first that is seen, though not its first.
    pub fn pick_up(segment: &Segment) -> Result<Self, Why> {
        match Self::open(segment) {
            Err(Why::NoConnection) if segment.has(tcp::ACK) && !segment.has(tcp::RST) => {
                let phase =
                    if segment.has(tcp::SYN) { Phase::SynReceived } else { Phase::Established };
                Ok(Connection { phase, is_lax: true, ..Connection::default() })
            }
            opened => opened,
        }
    }

    /// How far it is.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// From now on windows are not looked at: some of its data is not seen as segments, or not all that was seen is known.
    pub fn relax(&mut self) {
        self.is_lax = true;
    }

    /// Takes a segment in, `from` side 0 or 1.
    ///
    /// # Errors
    /// Why it does not belong to the connection, which then stays as it is.
    pub fn step(&mut self, from: usize, segment: &Segment) -> Result<Step, Why> {
        if !segment.has_sound_flags() {
            return Err(Why::Flags);
        }
        let (me, peer) = self.seen_from(from);
        let syn = segment.has(tcp::SYN);
        let asks = syn && !segment.has(tcp::ACK);
        let is_over = matches!(self.phase, Phase::TimeWait | Phase::Reset);
        if asks && (is_over || self.phase == Phase::SynSent && from == 0 && segment.seq != me.first)
        {
            return Ok(Step::Reopens);
        }
        if segment.has(tcp::RST) {
            return self.reset(from, segment).map(|()| Step::Belongs);
        }
        if self.is_lax {
            self.follow(from, segment);
            return Ok(Step::Belongs);
        }
        if syn {
            return self.shake_hands(from, segment).map(|()| Step::Belongs);
        }
        if me.window == 0 || peer.window == 0 {
            return Err(Why::Handshake);
        }
        in_windows(me, peer, segment)?;
        self.follow(from, segment);
        Ok(Step::Belongs)
    }

    /// Takes a segment in that is as nearly all are: of an established connection, without SYN, FIN and RST, in its windows if they are known. False when it is none: then
    /// nothing has changed, and [`Connection::step`] tells what it is.
    #[inline]
    pub fn goes_on(&mut self, from: usize, segment: &Segment) -> bool {
        let marks = segment.flags & (tcp::SYN | tcp::FIN | tcp::RST | tcp::ACK);
        if marks != tcp::ACK || self.phase != Phase::Established {
            return false;
        }
        let (me, peer) = self.seen_from(from);
        let known = me.window != 0 && peer.window != 0;
        let fits = self.is_lax || known && in_windows(me, peer, segment).is_ok();
        if !fits {
            return false;
        }
        self.take_in(from, segment);
        true
    }

    /// Its own side, and the other's. Not copied: a processor waits for fields that it has just written one by one to be read as a whole.
    #[inline]
    fn seen_from(&self, from: usize) -> (&Side, &Side) {
        let [opener, answerer] = &self.sides;
        if from == 0 { (opener, answerer) } else { (answerer, opener) }
    }

    /// A segment with SYN in a connection that is not over.
    fn shake_hands(&mut self, from: usize, syn: &Segment) -> Result<(), Why> {
        let (&me, &peer) = self.seen_from(from);
        if me.window != 0 {
            // A repetition; or one side has forgotten the connection and asks anew: the other will
            // answer with what it knows, upon which the first resets (RFC 9293 §3.5.1).
            let asks = !syn.has(tcp::ACK);
            let repeats = syn.seq == me.first && self.phase != Phase::SynSent;
            let answers = !asks && before(peer.first, syn.ack) && !before(peer.end, syn.ack);
            if repeats && answers {
                // The window of an answer that is given again may be another, and the other side minds the wider.
                let (mut me, mut peer) = (me, peer);
                let window = u32::from(syn.window).max(1);
                me.window = me.window.max(window);
                peer.limit = later(peer.limit, syn.ack.wrapping_add(window));
                self.put(from, me, peer);
            }
            return if asks || repeats { Ok(()) } else { Err(Why::Handshake) };
        }
        let answers = syn.has(tcp::ACK);
        // Of data in a SYN less may be acknowledged (RFC 7413).
        if answers && (!before(peer.first, syn.ack) || before(peer.end, syn.ack)) {
            return Err(Why::Handshake);
        }
        let mut me = Side::opening(syn);
        let mut peer = peer;
        if syn.scale.is_none() || peer.scale == UNSCALED {
            // Scaled by both or by none (RFC 7323 §2.2).
            (me.scale, peer.scale) = (0, 0);
        }
        me.limit = me.end.wrapping_add(peer.window);
        peer.limit = peer.first.wrapping_add(1).wrapping_add(me.window);
        if answers {
            me.acked = Some(syn.ack);
            peer.limit = syn.ack.wrapping_add(me.window);
        }
        self.phase = Phase::SynReceived;
        self.put(from, me, peer);
        Ok(())
    }

    /// A reset: RFC 9293 §3.10.7.3 and RFC 5961 §3. One whose place is right, but not exactly, passes: its receiver
    /// asks back, and what comes then is exact.
    fn reset(&mut self, from: usize, rst: &Segment) -> Result<(), Why> {
        let (me, peer) = self.seen_from(from);
        let exact = if self.is_lax || me.window == 0 && peer.window == 0 {
            true
        } else if me.window == 0 {
            // The answer to a SYN.
            let after_syn = peer.first.wrapping_add(1);
            let answers = rst.has(tcp::ACK) && (rst.ack == peer.end || rst.ack == after_syn);
            if !answers {
                return Err(Why::Reset);
            }
            true
        } else {
            let expected = peer.acked.unwrap_or(me.end);
            if before(rst.seq, expected) || before(me.limit, rst.seq) {
                return Err(Why::Reset);
            }
            rst.seq == expected || rst.seq == me.end
        };
        if exact {
            self.phase = Phase::Reset;
        }
        Ok(())
    }

    /// Takes in what a segment says that belongs to it.
    #[inline]
    fn follow(&mut self, from: usize, segment: &Segment) {
        self.take_in(from, segment);
        if segment.has(tcp::FIN) {
            let [opener, answerer] = &mut self.sides;
            let me = if from == 0 { opener } else { answerer };
            me.fin = Some(segment.end());
        }
        if self.is_lax && self.phase == Phase::SynSent && from == 1 {
            // Handshakes are followed where windows are: here an answer is one.
            self.phase = Phase::SynReceived;
        }
        self.advance();
    }

    /// The numbers of a segment that belongs to it.
    #[inline]
    fn take_in(&mut self, from: usize, segment: &Segment) {
        let [opener, answerer] = &mut self.sides;
        let (me, peer) = if from == 0 { (opener, answerer) } else { (answerer, opener) };
        let end = segment.end();
        let known = me.window != 0;
        let scale = if segment.has(tcp::SYN) || me.scale == UNSCALED { 0 } else { me.scale };
        let window = u32::from(segment.window).wrapping_shl(scale.into()).max(1);
        if before(me.limit, end) && known {
            // More than was allowed: a window that was not seen.
            peer.window = peer.window.saturating_add(end.wrapping_sub(me.limit));
        }
        me.end = if known { later(me.end, end) } else { end };
        me.window = me.window.max(window);
        let acked = segment.ack;
        me.acked = Some(me.acked.map_or(acked, |old| later(old, acked)));
        let limit = acked.wrapping_add(window);
        peer.limit = if peer.window == 0 { limit } else { later(peer.limit, limit) };
    }

    fn put(&mut self, from: usize, me: Side, peer: Side) {
        self.sides = if from == 0 { [me, peer] } else { [peer, me] };
    }

    fn advance(&mut self) {
        if self.phase == Phase::Reset {
            return;
        }
        let [a, b] = &self.sides;
        let acks = |one: &Side, place: u32| one.acked.is_some_and(|acked| !before(acked, place));
        let greeted = |one: &Side, other: &Side| acks(one, other.first.wrapping_add(1));
        if self.phase == Phase::SynReceived && (self.is_lax || greeted(a, b) && greeted(b, a)) {
            self.phase = Phase::Established;
        }
        self.phase = match (a.fin, b.fin) {
            (None, None) => return,
            (Some(fin_a), Some(fin_b)) if acks(a, fin_b) && acks(b, fin_a) => Phase::TimeWait,
            _ if self.phase == Phase::TimeWait => return,
            _ => Phase::Closing,
        };
    }

    /// True when side `from` may have sent a segment with this sequence number that is still on its
    /// way, so that an ICMP error may quote it (RFC 5927 §4).
    pub fn may_be_quoted(&self, from: usize, seq: u32) -> bool {
        let (me, peer) = self.seen_from(from);
        let oldest = me.end.wrapping_sub(peer.window.max(OLD_ACK));
        self.is_lax || me.window != 0 && !before(seq, oldest) && !before(me.end, seq)
    }
}

/// No scale option was in its SYN.
const UNSCALED: u8 = u8::MAX;

impl Side {
    /// The side that sends this SYN. Windows of SYNs are not scaled.
    fn opening(syn: &Segment) -> Side {
        let end = syn.end();
        let window = u32::from(syn.window).max(1);
        let scale = syn.scale.unwrap_or(UNSCALED);
        Side { first: syn.seq, end, limit: end, window, scale, acked: None, fin: None }
    }
}

/// Van Rooij's four bounds.
#[inline]
fn in_windows(me: &Side, peer: &Side, segment: &Segment) -> Result<(), Why> {
    let oldest = me.end.wrapping_sub(peer.window);
    if before(me.limit, segment.seq) || before(segment.end(), oldest) {
        return Err(Why::Window);
    }
    let oldest = peer.end.wrapping_sub(me.window.max(OLD_ACK));
    if before(peer.end, segment.ack) || before(segment.ack, oldest) {
        return Err(Why::Acknowledgment);
    }
    Ok(())
}
