//! Terms of the link layer: EtherTypes, LLC, PPP's numbers, labels, and the old protocols in them.

use super::{Lower, Made, all, directed};
use crate::arith::Size;
use crate::cond::Cond;
use crate::offsets::Misplaced;
use crate::primitive::{Direction, LlcKind};

pub(crate) const IPV4: u16 = 0x0800;
pub(crate) const IPV6: u16 = 0x86dd;
pub(super) const ARP: u16 = 0x0806;
pub(super) const RARP: u16 = 0x8035;
pub(super) const ATALK: u16 = 0x809b;
pub(super) const AARP: u16 = 0x80f3;
pub(super) const DECNET: u16 = 0x6003;
const IPX: u32 = 0x8137;
/// Service access points (ISO/IEC 8802-2): libpcap gives them in the place of an EtherType.
pub(super) const SAP_ISO: u16 = 0xfe;
pub(super) const SAP_STP: u16 = 0x42;
pub(super) const SAP_IPX: u16 = 0xe0;
pub(super) const SAP_NETBEUI: u16 = 0xf0;
const SAP_IP: u16 = 0x06;
/// Up to here the field is a length (IEEE 802.3 §3.2.6).
const MAX_LENGTH: u32 = 1500;

/// The number by which PPP knows what Ethernet calls `kind` (IANA; as far as libpcap maps them).
fn ppp(kind: u16) -> u16 {
    match kind {
        IPV4 => 0x0021,
        IPV6 => 0x0057,
        DECNET => 0x0027,
        ATALK => 0x0029,
        0x0600 => 0x0025,
        SAP_ISO => 0x0023,
        SAP_STP => 0x0031,
        SAP_IPX => 0x002b,
        kind => kind,
    }
}

impl Lower {
    /// The payload is of this kind: an EtherType, or a SAP.
    pub(super) fn kind(&mut self, kind: u16) -> Made {
        let at = self.offsets.kind;
        if self.offsets.labels > 0 {
            // A label says nothing of what follows: libpcap looks at the version (RFC 4928 §3).
            let version = match kind {
                IPV4 => 0x40,
                IPV6 => 0x60,
                _ => return Err(Misplaced::BehindLabel),
            };
            let last = self.is(Self::masked(self.offsets.bottom(), Size::One, 1), 1);
            let first = Self::masked(self.offsets.network(), Size::One, 0xf0);
            return Ok(Cond::All(vec![last, self.is(first, version)]));
        }
        if self.offsets.ppp {
            return Ok(self.is(Self::at(at, Size::Two), ppp(kind).into()));
        }
        let payload = self.offsets.payload;
        Ok(match kind {
            SAP_ISO | SAP_IP | SAP_NETBEUI => {
                let both = u32::from(kind).saturating_mul(0x0101);
                let is = self.is(Self::at(payload, Size::Two), both);
                Cond::All(vec![self.length(), is])
            }
            SAP_IPX => {
                let kind = self.is(Self::at(at, Size::Two), IPX);
                let snap = self.snap(0, IPX);
                let sap = self.is(Self::at(payload, Size::One), SAP_IPX.into());
                let raw = self.is(Self::at(payload, Size::Two), 0xffff);
                let framed = Cond::Any(vec![snap, sap, raw]);
                Cond::Any(vec![kind, Cond::All(vec![self.length(), framed])])
            }
            ATALK | AARP => {
                let oui = if kind == ATALK { 0x08_0007 } else { 0 };
                let typed = self.is(Self::at(at, Size::Two), kind.into());
                let snap = self.snap(oui, kind.into());
                Cond::Any(vec![typed, Cond::All(vec![self.length(), snap])])
            }
            kind if u32::from(kind) <= MAX_LENGTH => {
                let sap = self.is(Self::at(payload, Size::One), kind.into());
                Cond::All(vec![self.length(), sap])
            }
            kind => self.is(Self::at(at, Size::Two), kind.into()),
        })
    }

    /// The field is a length.
    fn length(&mut self) -> Cond {
        self.within(Self::at(self.offsets.kind, Size::Two), 0, MAX_LENGTH)
    }

    /// SNAP (IEEE 802 §9.2.4): an organization and its type behind the LLC header aa aa 03.
    fn snap(&mut self, oui: u32, kind: u32) -> Cond {
        let payload = self.offsets.payload;
        let low = (oui << 16) | kind;
        let behind = self.is(Self::at(payload.saturating_add(4), Size::Four), low);
        let llc = self.is(Self::at(payload, Size::Four), 0xaaaa_0300 | (oui >> 16));
        Cond::All(vec![behind, llc])
    }

    pub(super) fn vlan(&mut self, id: Option<u16>) -> Made {
        self.ethernet()?;
        if self.offsets.labels > 0 {
            return Err(Misplaced::TagBehindLabel);
        }
        let tagged = Self::at(self.offsets.kind, Size::Two);
        let tagged = self.one_of(tagged, &[0x8100, 0x88a8, 0x9100]);
        let tag = Self::masked(self.offsets.payload, Size::Two, 0x0fff);
        let id = id.map(|id| self.is(tag, id.into()));
        Ok(all([Some(tagged), id]))
    }

    pub(super) fn mpls(&mut self, label: Option<u32>) -> Made {
        let before = if self.offsets.labels > 0 {
            self.is(Self::masked(self.offsets.bottom(), Size::One, 1), 0)
        } else {
            let kind = if self.offsets.ppp { 0x0281 } else { 0x8847 };
            self.is(Self::at(self.offsets.kind, Size::Two), kind)
        };
        let word = Self::masked(self.offsets.network(), Size::Four, 0xffff_f000);
        let label = label.map(|label| self.is(word, label << 12));
        Ok(all([Some(before), label]))
    }

    pub(super) fn ether_proto(&mut self, number: u16) -> Made {
        // By its number only the EtherType is meant, by the name `ipx` all ways of framing.
        if u32::from(number) == IPX && self.offsets.labels == 0 {
            return Ok(self.is(Self::at(self.offsets.kind, Size::Two), IPX));
        }
        self.kind(number)
    }

    /// OSI's network layer protocol `number`.
    pub(super) fn iso(&mut self, number: u8) -> Made {
        let iso = self.kind(SAP_ISO)?;
        let id = self.osi();
        Ok(Cond::All(vec![iso, self.is(Self::at(id, Size::One), number.into())]))
    }

    /// IS-IS with a PDU of one of these types, tried one after the other.
    pub(super) fn isis(&mut self, types: &[u8]) -> Made {
        let isis = self.iso(0x83)?;
        let at = self.osi().saturating_add(4);
        let list = types.iter().map(|kind| self.is(Self::at(at, Size::One), (*kind).into()));
        let list = list.collect();
        Ok(Cond::All(vec![isis, Cond::Any(list)]))
    }

    /// Where OSI's network layer header begins: behind LLC's three bytes, which PPP does not have.
    fn osi(&self) -> u32 {
        self.offsets.payload.saturating_add(if self.offsets.ppp { 0 } else { 3 })
    }

    pub(super) fn llc(&mut self, kind: Option<LlcKind>) -> Made {
        self.ethernet()?;
        let payload = self.offsets.payload;
        let raw = self.is(Self::at(payload, Size::Two), 0xffff);
        let length = self.length();
        let control = kind.map(|kind| {
            let (mask, value) = control(kind);
            self.is(Self::masked(payload.saturating_add(2), Size::One, mask), value)
        });
        Ok(all([Some(length), Some(Cond::not(raw)), control]))
    }

    /// DECnet phase IV: long and short routing headers, each with or without a byte of padding.
    pub(super) fn decnet(&mut self, direction: Direction, address: u16) -> Made {
        let kind = self.kind(DECNET)?;
        let network = self.offsets.network();
        let swapped = u32::from(address.swap_bytes());
        let mut side = |long: u32, short: u32| {
            let mut forms = Vec::with_capacity(4);
            for (flag, at) in [(2, short), (6, long)] {
                for padded in [false, true] {
                    let flags = network.saturating_add(2);
                    let flags = if padded {
                        self.is(Self::masked(flags, Size::Two, 0xff07), 0x8100 | flag)
                    } else {
                        self.is(Self::masked(flags, Size::One, 7), flag)
                    };
                    let at = network.saturating_add(at).saturating_add(padded.into());
                    forms.push(Cond::All(vec![flags, self.is(Self::at(at, Size::Two), swapped)]));
                }
            }
            Cond::Any(forms)
        };
        let (src, dst) = (side(17, 5), side(9, 3));
        Ok(Cond::All(vec![kind, directed(direction, src, dst)]))
    }
}

/// The bits of LLC's control byte (ISO/IEC 8802-2 §5.4) that tell a kind, and their value.
fn control(kind: LlcKind) -> (u32, u32) {
    match kind {
        LlcKind::I => (0x01, 0x00),
        LlcKind::S => (0x03, 0x01),
        LlcKind::U => (0x03, 0x03),
        LlcKind::Rr => (0x0f, 0x01),
        LlcKind::Rnr => (0x0f, 0x05),
        LlcKind::Rej => (0x0f, 0x09),
        LlcKind::Ui => (0xef, 0x03),
        LlcKind::Ua => (0xef, 0x63),
        LlcKind::Disc => (0xef, 0x43),
        LlcKind::Dm => (0xef, 0x0f),
        LlcKind::Sabme => (0xef, 0x6f),
        LlcKind::Test => (0xef, 0xe3),
        LlcKind::Xid => (0xef, 0xaf),
        LlcKind::Frmr => (0xef, 0x87),
    }
}
