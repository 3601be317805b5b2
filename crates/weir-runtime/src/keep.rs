//! Keeping what the µNFs remember, so that a worker that dies loses only what was added last.

use crate::segment::Segment;
use std::time::{Duration, Instant};
use weir_mem::KeptState;

/// State is written down at most so often. What a worker that is killed remembered since then is lost.
const EVERY: Duration = Duration::from_millis(100);

/// Writing down takes at most one part in so many of a worker's time: large state is written down
/// less often than [`EVERY`].
const SHARE: u32 = 20;

/// Batches between two looks at the clock.
const BATCHES: u32 = 16;

/// Writes down what the µNFs of a segment remember.
pub(crate) struct Keeper {
    memory: KeptState,
    /// Packets have come since it was last written down.
    touched: bool,
    batches: u32,
    last: Instant,
    every: Duration,
    /// What was written last, and where the next is made.
    kept: Vec<u8>,
    next: Vec<u8>,
    /// It was too large once: that is said once.
    too_large: bool,
    notice: Option<String>,
}

impl Keeper {
    pub(crate) fn new(memory: KeptState) -> Self {
        Keeper {
            memory,
            touched: false,
            batches: 0,
            last: Instant::now(),
            every: EVERY,
            kept: Vec::new(),
            next: Vec::new(),
            too_large: false,
            notice: None,
        }
    }

    /// Hands what a predecessor kept to the µNFs, but for the nodes `but`, which have it already; says what could not
    /// be taken over.
    pub(crate) fn restore(&mut self, segment: &mut Segment, but: &[usize]) -> Vec<String> {
        match self.memory.read() {
            Some(kept) => segment.restore(&kept, but),
            None => Vec::new(),
        }
    }

    /// What was handed over has been taken: what is written from now on comes behind what the agent wrote.
    pub(crate) fn begin(&mut self) {
        self.memory.resync();
    }

    /// A batch has been processed and committed: writes down what the µNFs remember if that is due.
    #[inline]
    pub(crate) fn after_batch(&mut self, segment: &Segment) {
        self.touched = true;
        self.batches = self.batches.wrapping_add(1);
        if self.batches.is_multiple_of(BATCHES) {
            self.if_due(segment);
        }
    }

    /// There is nothing to do: writes down if that is due. In how long it will be, when it is not yet.
    pub(crate) fn if_due(&mut self, segment: &Segment) -> Option<Duration> {
        if !self.touched {
            return None;
        }
        let left = self.every.saturating_sub(self.last.elapsed());
        if left.is_zero() {
            self.now(segment);
            return None;
        }
        Some(left)
    }

    /// Writes down what the µNFs remember.
    pub(crate) fn now(&mut self, segment: &Segment) {
        let start = Instant::now();
        self.next.clear();
        segment.save(&mut self.next);
        if self.next != self.kept {
            if let Err(e) = self.memory.write(&self.next)
                && !std::mem::replace(&mut self.too_large, true)
            {
                self.notice = Some(format!(
                    "what its NFs remember is not written down while it is so: {e}; should it die, its \
                     successor goes on from what was written last"
                ));
            }
            std::mem::swap(&mut self.next, &mut self.kept);
        }
        self.touched = false;
        self.last = Instant::now();
        self.every = EVERY.max((self.last - start) * SHARE);
    }

    /// What the operator should know; once.
    pub(crate) fn notice(&mut self) -> Option<String> {
        self.notice.take()
    }
}

/// What a µNF remembers, with its name, which instance it is of several, and its type.
pub type Kept = (String, u8, String, Vec<u8>);

impl Segment {
    /// Writes down what the µNFs remember, of each that remembers anything.
    pub(crate) fn save(&self, out: &mut Vec<u8>) {
        let mut all: Vec<Kept> = Vec::new();
        for (node, nf) in self.nodes.iter().filter_map(|n| Some((n, n.nf.as_ref()?))) {
            let mut state = Vec::new();
            nf.save(&mut state);
            if !state.is_empty() {
                let kind = nf.descriptor().name.to_owned();
                all.push((node.name.clone(), node.instance, kind, state));
            }
        }
        if let Ok(bytes) = postcard::to_stdvec(&all) {
            out.extend(bytes);
        }
    }

    /// True when some µNF has anything to remember.
    pub(crate) fn remembers(&self) -> bool {
        self.nodes.iter().filter_map(|n| n.nf.as_ref()).any(|nf| nf.remembers())
    }

    /// Hands what [`Segment::save`] wrote to the µNFs of the same name and type, but for the nodes `but`; says what could not be
    /// taken over.
    pub(crate) fn restore(&mut self, saved: &[u8], but: &[usize]) -> Vec<String> {
        let Some(all) = read_kept(saved) else {
            return vec!["what its NFs remembered cannot be read".to_owned()];
        };
        let mut lost = Vec::new();
        for (name, instance, kind, state) in all {
            let mut others = self.nodes.iter_mut().enumerate().filter(|(at, _)| !but.contains(at));
            let node = others.find(|(_, node)| node.is(&name, instance, &kind));
            if let Some(nf) = node.and_then(|(_, node)| node.nf.as_mut())
                && let Err(e) = nf.restore(&state)
            {
                lost.push(format!("what {name} remembered is lost: {e}"));
            }
        }
        lost
    }
}

/// Reads what a worker's µNFs remembered, as it was written down.
pub fn read_kept(saved: &[u8]) -> Option<Vec<Kept>> {
    postcard::from_bytes(saved).ok()
}
