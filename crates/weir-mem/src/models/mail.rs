//! A letter is read whole and in order, also when it takes several frames, and when its sender dies within
//! one.
//!
//! Red under `WEIR_BROKEN=publish` and `WEIR_BROKEN=claim`: loom sees a data race on a word.

use super::explore;
use crate::mail::{MailIn, MailOut};
use crate::ring::{heap_ring, heap_ring_inspected, heap_successors};
use loom::thread;

/// Three frames of a word each: a ring of four words has room for two.
const LONG: [u8; 20] = [1; 20];
const SHORT: [u8; 3] = [2; 3];

#[test]
fn letters_come_whole_and_in_order() {
    explore(2, || {
        let (p, c) = heap_ring(4);
        let sender = thread::spawn(move || {
            let mut out = MailOut::over(p);
            out.post(LONG.to_vec()).unwrap();
            out.post(SHORT.to_vec()).unwrap();
            while out.waits() {
                if !out.pump() {
                    thread::yield_now();
                }
            }
        });
        let mut mail = MailIn::over(c);
        for letter in [&LONG[..], &SHORT] {
            let got = loop {
                match mail.take() {
                    Some(got) => break got,
                    None => thread::yield_now(),
                }
            };
            assert_eq!(got, letter);
        }
        sender.join().unwrap();
        assert_eq!((mail.take(), mail.nonsense()), (None, 0));
    });
}

#[test]
fn of_a_letter_that_its_sender_did_not_finish_nothing_is_read() {
    explore(2, || {
        let (p, c, agent) = heap_ring_inspected(4);
        let sender = thread::spawn(move || {
            // It tries once, and dies: within the letter, unless room was made meanwhile.
            let mut out = MailOut::over(p);
            out.post(LONG.to_vec()).unwrap();
        });
        let mut mail = MailIn::over(c);
        let early = mail.take();
        sender.join().unwrap();
        let (p, _) = heap_successors(&agent);
        let mut out = MailOut::over(p);
        out.post(SHORT.to_vec()).unwrap();
        let mut read: Vec<Vec<u8>> = early.into_iter().collect();
        while out.waits() || mail.has_some() {
            out.pump();
            read.extend(mail.take());
        }
        assert!(read == [SHORT.to_vec()] || read == [LONG.to_vec(), SHORT.to_vec()], "{read:?}");
        assert_eq!(mail.nonsense(), 0);
    });
}
