//! What becomes of an interface while it is in use.

use crate::offload::VlanTag;
use crate::sys::{Link, link};
use rustix::fd::AsFd;
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use weir_packet::headers::ETHERNET_LEN;

/// Time between two looks at an interface that works. What goes wrong with it mostly wakes whoever
/// waits for its packets at once; this is for what does not.
const QUIET: Duration = Duration::from_millis(250);
/// The same while it does not work.
const ANXIOUS: Duration = Duration::from_millis(100);

/// Without a carrier for so long an interface is told to be so: one that was just set up has none for a moment.
const CARRIER: Duration = Duration::from_secs(2);

/// How an interface is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    Up,
    Down,
    /// Deleted, or an interface of another kind has taken the name.
    Gone,
}

/// Watches an interface by name, and keeps what the operator should be told.
#[derive(Debug)]
pub(super) struct Watch {
    /// As the operator wrote it: `afp:eth0`.
    device: String,
    pub(super) name: String,
    /// Index of the interface that is bound; 0, which none has, while there is none.
    pub(super) index: u32,
    presence: Presence,
    /// Largest payload of a frame when it was looked at last, in bytes.
    mtu: u32,
    /// Since when it is up and has no carrier, and whether that was told.
    cut_off: Option<(Instant, bool)>,
    next: Instant,
    /// Whether the operator is told at all.
    tells: bool,
    notices: VecDeque<String>,
}

impl Watch {
    /// A watch on `name`, bound as `link`; `None`: it is not there.
    pub(super) fn new(kind: &str, name: &str, link: Option<Link>, tells: bool) -> Self {
        let mut watch = Watch {
            device: format!("{kind}:{name}"),
            name: name.to_owned(),
            index: link.map_or(0, |l| l.index),
            presence: Presence::Up,
            mtu: link.map_or(0, |l| l.mtu),
            cut_off: None,
            next: Instant::now() + QUIET,
            tells,
            notices: VecDeque::new(),
        };
        watch.is(match link {
            Some(link) if link.up => Presence::Up,
            Some(_) => Presence::Down,
            None => Presence::Gone,
        });
        watch
    }

    pub(super) fn presence(&self) -> Presence {
        self.presence
    }

    /// Whether a frame of so many bytes may leave by it. A VLAN tag does not count (`packet_snd` in
    /// the kernel's `af_packet.c`).
    pub(super) fn carries(&self, len: usize, tagged: bool) -> bool {
        let tag = if tagged { VlanTag::LEN } else { 0 };
        len <= self.mtu as usize + ETHERNET_LEN + tag
    }

    /// What the operator should be told next.
    pub(super) fn notice(&mut self) -> Option<String> {
        self.notices.pop_front()
    }

    /// The next look is due now.
    pub(super) fn hurry(&mut self) {
        self.next = Instant::now();
    }

    /// Whether a look is due; if so, when the next one is, is settled too.
    pub(super) fn is_due(&mut self) -> bool {
        let now = Instant::now();
        let due = now >= self.next;
        if due {
            self.next = now + if self.presence == Presence::Up { QUIET } else { ANXIOUS };
        }
        due
    }

    /// Nanoseconds until the next look is due.
    pub(super) fn wait_ns(&self) -> u64 {
        self.next.saturating_duration_since(Instant::now()).as_nanos() as u64
    }

    /// Looks. `is_ours` says whether the device is tied to the interface that has the name: one that was
    /// deleted and made again between two looks may have the index of the old one, and only the device
    /// itself tells them apart.
    pub(super) fn look(&mut self, socket: impl AsFd, is_ours: impl FnOnce(Link) -> bool) {
        match link(socket, &self.name) {
            Ok(found) if found.ethernet => {
                if found.index != self.index {
                    self.is(Presence::Gone);
                }
                if !is_ours(found) {
                    return self.is(Presence::Gone);
                }
                (self.index, self.mtu) = (found.index, found.mtu);
                self.is(if found.up { Presence::Up } else { Presence::Down });
                match found.up {
                    true => self.has_carrier(found.carrier, Instant::now()),
                    // Told as down; whether it is cut off as well is asked when it is up again.
                    false => self.cut_off = None,
                }
            }
            Ok(_) | Err(_) => self.is(Presence::Gone),
        }
    }

    /// Settles whether an interface that is up has a carrier; a change that lasts is told. Packets are given to the
    /// kernel as before, which drops them.
    fn has_carrier(&mut self, carrier: bool, now: Instant) {
        let what = match (&mut self.cut_off, carrier) {
            (None, false) => {
                self.cut_off = Some((now, false));
                return;
            }
            (Some((since, told @ false)), false) if now.duration_since(*since) >= CARRIER => {
                *told = true;
                "interface is without a carrier (a pulled cable, or the other end is down): what is sent is lost"
            }
            (Some((_, true)), true) => {
                self.cut_off = None;
                "interface is connected again"
            }
            (cut_off, _) => {
                *cut_off = cut_off.filter(|_| !carrier);
                return;
            }
        };
        if self.tells {
            self.notices.push_back(format!("{}: {what}", self.device));
        }
    }

    /// Settles how the interface is; a change is told.
    pub(super) fn is(&mut self, presence: Presence) {
        if presence == Presence::Gone {
            // Whatever had the name may go on under another: it is not ours any more.
            self.index = 0;
        }
        if self.presence == presence {
            return;
        }
        self.presence = presence;
        if presence != Presence::Up {
            self.next = self.next.min(Instant::now() + ANXIOUS);
        }
        let what = match presence {
            Presence::Up => "interface is up again",
            Presence::Down => "interface is down",
            Presence::Gone => "interface is gone; waiting for one of that name",
        };
        if self.tells {
            self.notices.push_back(format!("{}: {what}", self.device));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch(mtu: u32) -> Watch {
        let link = Link { index: 7, up: true, carrier: true, ethernet: true, mtu };
        Watch::new("afp", "eth0", Some(link), true)
    }

    #[test]
    fn a_frame_is_too_long_when_its_payload_exceeds_the_mtu_where_one_tag_does_not_count() {
        for mtu in [68, 1500, 9000] {
            let (watch, most) = (watch(mtu), mtu as usize + ETHERNET_LEN);
            assert!(watch.carries(most, false) && !watch.carries(most + 1, false), "{mtu}");
            let tagged = most + VlanTag::LEN;
            assert!(watch.carries(tagged, true) && !watch.carries(tagged + 1, true), "{mtu}");
        }
    }

    #[test]
    fn a_carrier_that_is_lost_for_long_is_told_once_and_that_it_is_back_too() {
        let (mut watch, start) = (watch(1500), Instant::now());
        let mut told = |carrier, at: f64| {
            watch.has_carrier(carrier, start + CARRIER.mul_f64(at));
            watch.notice()
        };
        assert_eq!((told(false, 0.0), told(false, 0.9), told(true, 0.95)), (None, None, None));
        assert_eq!((told(false, 1.0), told(false, 1.9)), (None, None));
        assert!(
            told(false, 2.0)
                .is_some_and(|line| line.contains("afp:eth0: interface is without a carrier"))
        );
        assert_eq!(told(false, 9.0), None);
        assert!(told(true, 9.1).is_some_and(|line| line.contains("interface is connected again")));
        assert_eq!(told(true, 9.2), None);
    }
}
