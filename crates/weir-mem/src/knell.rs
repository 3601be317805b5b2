//! What rings when a worker dies: the agent hears of it when the kernel begins to take the process apart, not when it has done so.
//!
//! A descriptor of a process becomes readable when its memory is gone, and to unmap what a worker shares with others takes milliseconds, for which
//! its packets wait. Before that the kernel goes through the *robust list* of a thread that ends, however it ends, and says in each lock word there
//! that its owner has died, and wakes who waits for it (get_robust_list(2); the kernel's `Documentation/locking/robust-futexes.rst`). A worker
//! holds one such word, in the header of its ledger, and nobody ever wants the lock.
//!
//! It is a hint, as the worker can write the word itself: who hears it looks whether the process is on its way out.

use crate::region::Mapping;
use rustix::thread::futex::{self, Wait, WaitFlags, WaitPtr, WaitvFlags};
use rustix::time::ClockId;
use std::ffi::{c_long, c_void};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// How many knells one thread can listen for at a time (futex_waitv(2) knows 128 words; one is its own).
pub const MOST: usize = 127;

/// `struct robust_list` (linux/futex.h).
#[repr(C)]
struct Link {
    next: *const Link,
}

/// `struct robust_list_head`, and its only entry behind it.
#[repr(C)]
struct Robust {
    head: Link,
    /// From an entry to its lock word.
    offset: c_long,
    pending: *const Link,
    entry: Link,
}

/// The length that the kernel wants of the head alone.
const HEAD_LEN: usize = std::mem::offset_of!(Robust, entry);

/// Has it ring when the calling thread ends, which may call this once; false when the kernel knows no such thing. Whatever
/// robust locks the thread had before, which a worker has not, are forgotten.
pub(crate) fn arm(knell: Knell) -> bool {
    let word = knell.word;
    // As the list, and with it the memory that the word is in.
    std::mem::forget(knell);
    // Never freed: the kernel reads it when the process ends.
    let robust: *mut Robust = Box::into_raw(Box::new(Robust {
        head: Link { next: std::ptr::null() },
        offset: 0,
        pending: std::ptr::null(),
        entry: Link { next: std::ptr::null() },
    }));
    // SAFETY: nobody else has it yet, and all of it is there.
    unsafe {
        let (head, entry) = (&raw const (*robust).head, &raw const (*robust).entry);
        let offset = word.as_ptr().expose_provenance().wrapping_sub(entry.expose_provenance());
        (*robust).offset = offset as c_long;
        (*robust).head.next = entry;
        (*robust).entry.next = head;
    }
    let owner = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
    // Relaxed: the agent reads it after the message that the worker is ready, and believes none of it.
    // SAFETY: alive for ever, as the knell is not dropped.
    unsafe { word.as_ref() }.store(owner | futex::WAITERS, Ordering::Relaxed);
    // SAFETY: the head and its entry live for ever, and are a list as the kernel wants it; all that it ever writes is the word.
    unsafe { libc::syscall(libc::SYS_set_robust_list, robust, HEAD_LEN) == 0 }
}

/// The end of who listens.
#[derive(Clone)]
pub struct Knell {
    word: NonNull<AtomicU32>,
    _backing: Option<Arc<Mapping>>,
}

// SAFETY: only an atomic behind the pointer, alive with the mapping.
unsafe impl Send for Knell {}
// SAFETY: as for Send.
unsafe impl Sync for Knell {}

impl Knell {
    /// # Safety
    /// There is a word at `word`, alive with `backing`.
    pub(crate) unsafe fn new(word: NonNull<AtomicU32>, backing: Option<Arc<Mapping>>) -> Self {
        Knell { word, _backing: backing }
    }

    fn value(&self) -> u32 {
        // SAFETY: alive with the mapping (`new`). Relaxed: a hint.
        unsafe { self.word.as_ref() }.load(Ordering::Relaxed)
    }

    /// Whether a worker lives, by its word, that rings when it dies.
    #[must_use]
    pub fn is_armed(&self) -> bool {
        let value = self.value();
        value & futex::WAITERS != 0 && value & futex::OWNER_DIED == 0
    }
}

/// Has who [listens](listen) look at `call` again, which has been changed.
pub fn call(call: &AtomicU32) {
    let _ = futex::wake(call, futex::Flags::PRIVATE, 1);
}

/// Waits until one of `knells`, of which the first [`MOST`] are listened to, has changed since it was seen to hang, or `call` is no longer `seen`;
/// which knells have changed.
///
/// # Errors
/// When the kernel does not know how to wait for several words (before Linux 5.16), or for any other reason.
pub fn listen(knells: &[Knell], call: &AtomicU32, seen: u32) -> rustix::io::Result<Vec<usize>> {
    let wait = |word: *mut c_void, value: u32, flags: WaitFlags| {
        let mut wait = Wait::new();
        (wait.val, wait.uaddr, wait.flags) = (value.into(), WaitPtr::new(word), flags);
        wait
    };
    let mut waits =
        vec![wait(call.as_ptr().cast(), seen, WaitFlags::SIZE_U32 | WaitFlags::PRIVATE)];
    let mut values = Vec::new();
    for knell in knells.iter().take(MOST) {
        let value = knell.value();
        values.push(value);
        waits.push(wait(knell.word.as_ptr().cast(), value, WaitFlags::SIZE_U32));
    }
    let changed = |hung: &[u32]| -> Vec<usize> {
        let each = knells.iter().zip(hung).enumerate();
        each.filter(|(_, (knell, value))| !knell.is_armed() || knell.value() != **value)
            .map(|(i, _)| i)
            .collect()
    };
    let rung = changed(&values);
    // Relaxed: what is said by it is said under a lock.
    if !rung.is_empty() || call.load(Ordering::Relaxed) != seen {
        return Ok(rung);
    }
    match futex::waitv(&waits, WaitvFlags::empty(), None, ClockId::Monotonic) {
        // Who is woken and finds nothing changed was woken by who has nothing to say.
        Ok(woken) => Ok(woken.checked_sub(1).into_iter().collect()),
        // A word has changed before the wait began.
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(changed(&values)),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{Ledger, LedgerWriter};
    use crate::region::Region;
    use std::time::{Duration, Instant};

    const PATIENCE: Duration = Duration::from_secs(20);

    fn ledgers() -> (LedgerWriter, Ledger) {
        let region = Region::create("weir-test", Ledger::len_for(3)).unwrap();
        (LedgerWriter::attach(&region, 3).unwrap(), Ledger::attach(&region, 3).unwrap())
    }

    #[test]
    fn who_ends_rings_and_nobody_else_does() {
        let (others, ledgers): (Vec<LedgerWriter>, Vec<Ledger>) = (0..3).map(|_| ledgers()).unzip();
        let knells: Vec<Knell> = ledgers.iter().map(Ledger::knell).collect();
        assert!(knells.iter().all(|knell| !knell.is_armed()));
        let (call, begun) = (AtomicU32::new(0), Instant::now());
        let (end, ends) = std::sync::mpsc::channel::<()>();
        let (hung, has_hung) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let mut ends = Some(ends);
            for (i, writer) in others.iter().enumerate() {
                let ends = ends.take_if(|_| i == 1);
                let hung = hung.clone();
                scope.spawn(move || {
                    hung.send(writer.arm_knell()).unwrap();
                    // The others wait until this one has been heard.
                    match ends {
                        Some(ends) => assert!(ends.recv().is_err()),
                        None => {
                            while writer.committed()[0] == 0 && begun.elapsed() < PATIENCE {
                                std::thread::sleep(Duration::from_millis(1));
                            }
                        }
                    }
                });
            }
            assert!((0..3).all(|_| has_hung.recv().unwrap()));
            assert!(knells.iter().all(Knell::is_armed));
            let heard = scope.spawn(|| listen(&knells, &call, 0));
            drop(end);
            let heard = heard.join().unwrap();
            let still: Vec<bool> = knells.iter().map(Knell::is_armed).collect();
            ledgers.iter().for_each(|ledger| ledger.reset(&[1, 1, 1]));
            assert_eq!((heard.unwrap(), still), (vec![1], vec![true, false, true]));
        });
    }

    #[test]
    fn who_listens_can_be_called_away() {
        const TIMES: u32 = 500;
        let (_writer, ledger) = ledgers();
        let (call, knells) = (AtomicU32::new(0), [ledger.knell()]);
        // One that nobody has armed is not waited for.
        assert_eq!(listen(&knells, &call, 0).unwrap(), [0]);
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let call = &call;
            scope.spawn(move || {
                for time in 0..TIMES {
                    // It mostly waits when it is called.
                    tell.send(()).unwrap();
                    while call.load(Ordering::Relaxed) == time {
                        assert_eq!(listen(&[], call, time).unwrap(), []);
                    }
                }
            });
            for time in 0..TIMES {
                told.recv().unwrap();
                (0..time * 20).for_each(|_| std::hint::spin_loop());
                call.store(time + 1, Ordering::Relaxed);
                super::call(call);
            }
        });
    }
}
