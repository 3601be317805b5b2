//! The link layer.

use super::{Place, either};
use crate::primitive::{Direction, LlcKind};

impl Place<'_> {
    /// What follows is of this EtherType, or for small numbers behind this SAP.
    pub(super) fn is(&self, kind: u16) -> Option<bool> {
        let kind = u128::from(kind);
        if self.labels > 0 {
            let version = match kind {
                0x0800 => 4,
                0x86dd => 6,
                _ => return None,
            };
            let last_label = self.number(self.network() - 4, 4)?;
            return Some(
                last_label / 256 % 2 == 1 && self.number(self.network(), 1)? / 16 == version,
            );
        }
        let found = self.number(self.kind, 2)?;
        if self.ppp {
            let in_ppp = match kind {
                0x0800 => 0x21,
                0x86dd => 0x57,
                0x6003 => 0x27,
                0x809b => 0x29,
                0x0600 => 0x25,
                0xfe => 0x23,
                0x42 => 0x31,
                0xe0 => 0x2b,
                same => same,
            };
            return Some(found == in_ppp);
        }
        let is_llc = found <= 1500;
        let load = |at: usize, len: usize| self.number(self.payload + at, len);
        match kind {
            0xfe | 0x06 | 0xf0 => Some(is_llc && load(0, 2)? == kind * 256 + kind),
            0xe0 => {
                if found == 0x8137 {
                    return Some(true);
                }
                if !is_llc {
                    return Some(false);
                }
                let snap = load(4, 4)? == 0x8137 && load(0, 4)? == 0xaaaa_0300;
                Some(snap || load(0, 1)? == 0xe0 || load(0, 2)? == 0xffff)
            }
            0x809b => Some(
                found == kind
                    || (is_llc && load(4, 4)? == 0x0007_809b && load(0, 4)? == 0xaaaa_0308),
            ),
            0x80f3 => Some(
                found == kind
                    || (is_llc && load(4, 4)? == 0x0000_80f3 && load(0, 4)? == 0xaaaa_0300),
            ),
            0..=1500 => Some(is_llc && load(0, 1)? == kind),
            _ => Some(found == kind),
        }
    }

    pub(super) fn vlan(&self, id: Option<u16>) -> Option<bool> {
        if self.ppp || self.labels > 0 {
            return None;
        }
        if ![0x8100, 0x88a8, 0x9100].contains(&self.number(self.kind, 2)?) {
            return Some(false);
        }
        match id {
            None => Some(true),
            Some(id) => Some(self.number(self.payload, 2)? % 4096 == u128::from(id)),
        }
    }

    pub(super) fn mpls(&self, label: Option<u32>) -> Option<bool> {
        let here = if self.labels > 0 {
            // The label before must not be the last.
            self.number(self.network() - 2, 1)? % 2 == 0
        } else {
            self.number(self.kind, 2)? == if self.ppp { 0x0281 } else { 0x8847 }
        };
        match label {
            Some(label) if here => {
                Some(self.number(self.network(), 4)? / 4096 == u128::from(label))
            }
            _ => Some(here),
        }
    }

    pub(super) fn llc(&self, kind: Option<LlcKind>) -> Option<bool> {
        if self.ppp {
            return None;
        }
        if self.number(self.kind, 2)? > 1500 || self.number(self.payload, 2)? == 0xffff {
            return Some(false);
        }
        let Some(kind) = kind else {
            return Some(true);
        };
        let control = self.number(self.payload + 2, 1)?;
        let without_poll = control & !0x10;
        Some(match kind {
            LlcKind::I => control % 2 == 0,
            LlcKind::S => control % 4 == 1,
            LlcKind::U => control % 4 == 3,
            LlcKind::Rr => control % 16 == 1,
            LlcKind::Rnr => control % 16 == 5,
            LlcKind::Rej => control % 16 == 9,
            LlcKind::Ui => without_poll == 0x03,
            LlcKind::Ua => without_poll == 0x63,
            LlcKind::Disc => without_poll == 0x43,
            LlcKind::Dm => without_poll == 0x0f,
            LlcKind::Sabme => without_poll == 0x6f,
            LlcKind::Test => without_poll == 0xe3,
            LlcKind::Xid => without_poll == 0xaf,
            LlcKind::Frmr => without_poll == 0x87,
        })
    }

    pub(super) fn iso(&self, number: u8) -> Option<bool> {
        let at = self.payload + if self.ppp { 0 } else { 3 };
        Some(self.is(0xfe)? && self.number(at, 1)? == u128::from(number))
    }

    pub(super) fn isis(&self, types: &[u8]) -> Option<bool> {
        let at = self.payload + if self.ppp { 4 } else { 7 };
        Some(self.iso(0x83)? && types.iter().any(|t| self.number(at, 1) == Some((*t).into())))
    }

    pub(super) fn decnet(&self, direction: Direction, address: u16) -> Option<bool> {
        if !self.is(0x6003)? {
            return Some(false);
        }
        let wanted = u128::from(address % 256) * 256 + u128::from(address / 256);
        let load = |at: usize, len: usize| self.number(self.network() + at, len);
        // Short headers have addresses in them, long ones in the last bytes of six; a byte of padding
        // may stand before either.
        let side = |short: usize, long: usize| {
            Some(
                (load(2, 1)? % 8 == 2 && load(short, 2)? == wanted)
                    || (load(2, 2)? & 0xff07 == 0x8102 && load(short + 1, 2)? == wanted)
                    || (load(2, 1)? % 8 == 6 && load(long, 2)? == wanted)
                    || (load(2, 2)? & 0xff07 == 0x8106 && load(long + 1, 2)? == wanted),
            )
        };
        either(direction, || side(5, 17), || side(3, 9))
    }
}
