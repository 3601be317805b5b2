//! What is to be said and was not written yet.

use std::collections::VecDeque;
use std::io::Write;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Bytes that wait at most.
const MOST: usize = 256 << 10;

/// Texts that one thread writes and nobody waits for.
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    /// There is something to write.
    more: Condvar,
    /// Everything is written.
    done: Condvar,
}

#[derive(Default)]
struct State {
    texts: VecDeque<String>,
    bytes: usize,
    /// Lines that had no room, and were not told of.
    omitted: u64,
    /// One is being written.
    busy: bool,
}

impl State {
    /// What is to be written next. What was left out came after all that waited then.
    fn next(&mut self) -> Option<String> {
        if let Some(text) = self.texts.pop_front() {
            self.bytes -= text.len();
            return Some(text);
        }
        let omitted = std::mem::take(&mut self.omitted);
        (omitted > 0)
            .then(|| format!("weir: nobody read what was said: {omitted} lines are left out\n"))
    }

    fn is_done(&self) -> bool {
        self.texts.is_empty() && self.omitted == 0 && !self.busy
    }
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        // Nobody panics who holds it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a text written, if there is room for it. Never waits.
    pub(super) fn push(&self, text: String) {
        let mut state = self.state();
        // Once something was left out, so is the rest until that can be told in its place.
        if state.omitted > 0 || (state.bytes > 0 && state.bytes + text.len() > MOST) {
            state.omitted += text.matches('\n').count() as u64;
        } else {
            state.bytes += text.len();
            state.texts.push_back(text);
        }
        self.more.notify_one();
    }

    /// Waits until all is written, for `patience` at most.
    pub(super) fn flush(&self, patience: Duration) {
        let end = Instant::now() + patience;
        let mut state = self.state();
        while !state.is_done() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.done.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Writes what comes, for ever. A log that cannot be written to is no reason to stop.
    pub(super) fn write_to(&self, mut out: impl Write) {
        let mut state = self.state();
        loop {
            if let Some(text) = state.next() {
                state.busy = true;
                drop(state);
                let _ = out.write_all(text.as_bytes());
                state = self.state();
                state.busy = false;
                continue;
            }
            self.done.notify_all();
            state = self.more.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::sync::Arc;

    const LONG: Duration = Duration::from_secs(30);

    #[test]
    fn what_is_said_while_nobody_reads_is_kept_as_far_as_there_is_room_and_the_rest_counted() {
        let (reader, writer) = std::io::pipe().unwrap();
        let queue = Arc::new(Queue::default());
        let theirs = queue.clone();
        std::thread::spawn(move || theirs.write_to(writer));
        let line = |n: u32| format!("{n:0>1023}\n");
        for n in 0..2000 {
            queue.push(line(n));
        }
        // It does not end, as nobody reads.
        let begin = Instant::now();
        queue.flush(Duration::from_millis(10));
        assert!(begin.elapsed() < LONG);
        let mut lines = BufReader::new(reader).lines().map(Result::unwrap);
        let mut kept = 0;
        let told = loop {
            let next = lines.next().unwrap();
            if next.starts_with("weir: ") {
                break next;
            }
            assert_eq!(format!("{next}\n"), line(kept));
            kept += 1;
        };
        assert!(kept >= 256, "{kept}");
        let omitted = 2000 - kept;
        assert_eq!(told, format!("weir: nobody read what was said: {omitted} lines are left out"));
        queue.push("again\n".to_owned());
        assert_eq!(lines.next().unwrap(), "again");
        queue.flush(LONG);
        assert!(queue.state().is_done());
    }
}
