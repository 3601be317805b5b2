//! NFs that do everything the SDK lets them, for the tests only.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use weir_nf::{
    Bytes, Cause, ConfigError, Ctx, DEFAULT_HOLDS, Descriptor, DropReason, Effect, Env, Held,
    LayerAccess, Merge, Nf, NoConfig, Packets, ReadOnly, ReadWrite, Touch,
};

/// Handles of held packets, the oldest first.
#[derive(Default, Serialize, Deserialize)]
pub struct Line(VecDeque<Held>);

impl Merge for Line {
    fn merge(&mut self, _: Self) {}
}

/// Keeps the last seven packets; each releases the one before those. At the end all but every third
/// leave, in order.
pub struct DelayLine;

impl Nf for DelayLine {
    const DESCRIPTOR: Descriptor = Descriptor {
        name: "DelayLine",
        effect: Effect::Stateful,
        holds: DEFAULT_HOLDS,
        ..Descriptor::BASE
    };
    type Access = ReadOnly;
    type Config = NoConfig;
    type Flow = ();
    type Shared = Line;

    fn build(_: NoConfig, _: &Env) -> Result<Self, ConfigError> {
        Ok(DelayLine)
    }

    fn process(&self, packets: &mut Packets<'_, ReadOnly>, ctx: &mut Ctx<'_, Self>) {
        for packet in packets.iter_mut() {
            let cause = ctx.cause(&packet);
            if let Ok(held) = ctx.hold(packet) {
                ctx.shared().0.push_back(held);
            }
            if ctx.shared().0.len() > 7
                && let Some(oldest) = ctx.shared().0.pop_front()
            {
                ctx.release(oldest, 0, &cause);
            }
        }
    }

    fn on_end(&self, cause: &Cause, ctx: &mut Ctx<'_, Self>) {
        for (i, held) in ctx.all_held().into_iter().enumerate() {
            if i % 3 != 2 {
                ctx.release(held, 0, cause);
            }
        }
    }
}

weir_nf::register!(DelayLine);

/// Collects packets for 2 ms from the first one, then releases them all; before them a packet of its
/// own that says how many. Those with an odd last byte are dropped.
pub struct Batcher;

impl Nf for Batcher {
    const DESCRIPTOR: Descriptor = Descriptor {
        name: "Batcher",
        effect: Effect::Stateful,
        may_drop: true,
        creates: 1,
        holds: DEFAULT_HOLDS,
        timers: true,
        ..Descriptor::BASE
    };
    type Access = ReadOnly;
    type Config = NoConfig;
    type Flow = ();
    type Shared = Line;

    fn build(_: NoConfig, _: &Env) -> Result<Self, ConfigError> {
        Ok(Batcher)
    }

    fn process(&self, packets: &mut Packets<'_, ReadOnly>, ctx: &mut Ctx<'_, Self>) {
        for packet in packets.iter_mut() {
            let cause = ctx.cause(&packet);
            if ctx.shared().0.is_empty() {
                ctx.timer(2_000_000, 7, &cause);
            }
            if let Ok(held) = ctx.hold(packet) {
                ctx.shared().0.push_back(held);
            }
        }
    }

    fn on_timer(&self, token: u64, cause: &Cause, ctx: &mut Ctx<'_, Self>) {
        let all = std::mem::take(&mut ctx.shared().0);
        if let Some(mut own) = ctx.alloc(60) {
            if let Some(mut bytes) = own.bytes_mut() {
                bytes.write(0, &[token as u8; 60]);
                bytes.set_ne16(12, 0x88b5u16.to_be());
                bytes.set_ne16(14, (all.len() as u16).to_be());
            }
            ctx.emit(own, 0, cause);
        }
        for held in all {
            let bytes = ctx.held_bytes(&held);
            let odd = bytes.u8(bytes.len().wrapping_sub(1)).is_some_and(|b| b % 2 == 1);
            if odd {
                ctx.discard(held, DropReason::Filtered, cause);
            } else {
                ctx.release(held, 0, cause);
            }
        }
    }
}

weir_nf::register!(Batcher);

/// Puts a VLAN tag on what comes by `tag`, takes one off what comes by `untag`.
pub struct Tagger;

impl Nf for Tagger {
    const DESCRIPTOR: Descriptor = Descriptor {
        name: "Tagger",
        inputs: &["tag", "untag"],
        layers: LayerAccess { l2: Touch::Write, ..LayerAccess::NONE },
        resizes: true,
        effect: Effect::Stateful,
        ..Descriptor::BASE
    };
    type Access = ReadWrite;
    type Config = NoConfig;
    type Flow = ();
    type Shared = ();

    fn build(_: NoConfig, _: &Env) -> Result<Self, ConfigError> {
        Ok(Tagger)
    }

    fn process(&self, packets: &mut Packets<'_, ReadWrite>, ctx: &mut Ctx<'_, Self>) {
        for mut packet in packets.iter_mut() {
            let Some(macs) = packet.bytes().array::<12>(0) else { continue };
            let changed = match ctx.input() {
                0 => packet.grow_front(4),
                _ => packet.shrink_front(4),
            };
            let Some(mut bytes) = packet.bytes_mut().filter(|_| changed) else { continue };
            bytes.write(0, &macs);
            if ctx.input() == 0 {
                bytes.write(12, &[0x81, 0, 0, 7]);
            }
        }
    }
}

weir_nf::register!(Tagger);

/// Counts packets.
#[derive(Default, Serialize, Deserialize)]
pub struct Count {
    pub packets: u64,
}

impl Merge for Count {
    fn merge(&mut self, other: Self) {
        self.packets += other.packets;
    }
}

/// Counts packets.
pub struct Tally;

impl Nf for Tally {
    const DESCRIPTOR: Descriptor =
        Descriptor { name: "Tally", effect: Effect::Stateful, ..Descriptor::BASE };
    type Access = ReadOnly;
    type Config = NoConfig;
    type Flow = ();
    type Shared = Count;

    fn build(_: NoConfig, _: &Env) -> Result<Self, ConfigError> {
        Ok(Tally)
    }

    fn process(&self, packets: &mut Packets<'_, ReadOnly>, ctx: &mut Ctx<'_, Self>) {
        ctx.shared().packets += packets.len() as u64;
    }
}

weir_nf::register!(Tally);

/// A count that ends whoever takes it over.
#[derive(Default, Serialize, Deserialize)]
pub struct Poison {
    packets: u64,
}

impl Merge for Poison {
    fn merge(&mut self, _: Self) {
        std::process::exit(3);
    }
}

/// Counts packets, and cannot live with what it counted before.
pub struct Poisoned;

impl Nf for Poisoned {
    const DESCRIPTOR: Descriptor =
        Descriptor { name: "Poisoned", effect: Effect::Stateful, ..Descriptor::BASE };
    type Access = ReadOnly;
    type Config = NoConfig;
    type Flow = ();
    type Shared = Poison;

    fn build(_: NoConfig, _: &Env) -> Result<Self, ConfigError> {
        Ok(Poisoned)
    }

    fn process(&self, packets: &mut Packets<'_, ReadOnly>, ctx: &mut Ctx<'_, Self>) {
        ctx.shared().packets += packets.len() as u64;
    }
}

weir_nf::register!(Poisoned);

/// A count that lets whoever takes it over live until its first packet.
#[derive(Default, Serialize, Deserialize)]
pub struct Curse {
    packets: u64,
    #[serde(skip)]
    cursed: bool,
}

impl Merge for Curse {
    fn merge(&mut self, other: Self) {
        self.cursed |= other.packets > 0;
        self.packets += other.packets;
    }
}

/// Counts packets, and dies at the first when others counted before it.
pub struct Cursed;

impl Nf for Cursed {
    const DESCRIPTOR: Descriptor =
        Descriptor { name: "Cursed", effect: Effect::Stateful, ..Descriptor::BASE };
    type Access = ReadOnly;
    type Config = NoConfig;
    type Flow = ();
    type Shared = Curse;

    fn build(_: NoConfig, _: &Env) -> Result<Self, ConfigError> {
        Ok(Cursed)
    }

    fn process(&self, packets: &mut Packets<'_, ReadOnly>, ctx: &mut Ctx<'_, Self>) {
        if ctx.shared().cursed {
            std::process::abort();
        }
        ctx.shared().packets += packets.len() as u64;
    }
}

weir_nf::register!(Cursed);

/// More than is kept of a worker, different after each batch.
#[derive(Default, Serialize, Deserialize)]
pub struct Hoard {
    batches: u64,
    #[serde(serialize_with = "but_for_people")]
    all: String,
}

/// As it is, but in reports.
fn but_for_people<S: serde::Serializer>(all: &str, to: S) -> Result<S::Ok, S::Error> {
    let short = to.is_human_readable();
    to.serialize_str(if short { "much" } else { all })
}

impl Merge for Hoard {
    fn merge(&mut self, other: Self) {
        *self = other;
    }
}

/// Remembers too much.
pub struct Hoarder;

impl Nf for Hoarder {
    const DESCRIPTOR: Descriptor =
        Descriptor { name: "Hoarder", effect: Effect::Stateful, ..Descriptor::BASE };
    type Access = ReadOnly;
    type Config = NoConfig;
    type Flow = ();
    type Shared = Hoard;

    fn build(_: NoConfig, _: &Env) -> Result<Self, ConfigError> {
        Ok(Hoarder)
    }

    fn process(&self, _: &mut Packets<'_, ReadOnly>, ctx: &mut Ctx<'_, Self>) {
        let hoard = ctx.shared();
        hoard.batches += 1;
        if hoard.all.is_empty() {
            hoard.all = " ".repeat(17 << 20);
        }
    }
}

weir_nf::register!(Hoarder);

/// Takes what comes, and sends a packet of its own twenty times a second from the first on.
pub struct Alarm;

impl Nf for Alarm {
    const DESCRIPTOR: Descriptor = Descriptor {
        name: "Alarm",
        effect: Effect::Stateful,
        may_drop: true,
        creates: 1,
        timers: true,
        ..Descriptor::BASE
    };
    type Access = ReadOnly;
    type Config = NoConfig;
    type Flow = ();
    type Shared = Count;

    fn build(_: NoConfig, _: &Env) -> Result<Self, ConfigError> {
        Ok(Alarm)
    }

    fn process(&self, packets: &mut Packets<'_, ReadOnly>, ctx: &mut Ctx<'_, Self>) {
        for mut packet in packets.iter_mut() {
            let cause = ctx.cause(&packet);
            if std::mem::replace(&mut ctx.shared().packets, 1) == 0 {
                ctx.timer(50_000_000, 1, &cause);
            }
            packet.drop(DropReason::Filtered);
        }
    }

    fn on_timer(&self, token: u64, cause: &Cause, ctx: &mut Ctx<'_, Self>) {
        if let Some(mut own) = ctx.alloc(60) {
            if let Some(mut bytes) = own.bytes_mut() {
                bytes.write(0, &[token as u8; 60]);
                bytes.set_ne16(12, 0x88b5u16.to_be());
            }
            ctx.emit(own, 0, cause);
        }
        ctx.timer(50_000_000, token, cause);
    }
}

weir_nf::register!(Alarm);

/// Breaks at packets that end so.
pub const FATAL: &[u8] = b"break";

/// Looks at payloads only, and breaks at some.
pub struct Brittle;

impl Nf for Brittle {
    const DESCRIPTOR: Descriptor = Descriptor {
        name: "Brittle",
        effect: Effect::Stateful,
        layers: LayerAccess { payload: Touch::Read, ..LayerAccess::NONE },
        ..Descriptor::BASE
    };
    type Access = ReadOnly;
    type Config = NoConfig;
    type Flow = ();
    type Shared = ();

    fn build(_: NoConfig, _: &Env) -> Result<Self, ConfigError> {
        Ok(Brittle)
    }

    fn process(&self, packets: &mut Packets<'_, ReadOnly>, _: &mut Ctx<'_, Self>) {
        for packet in packets.iter_mut() {
            let mut end = [0; FATAL.len()];
            let bytes = packet.bytes();
            bytes.copy_to(bytes.len().saturating_sub(end.len()), &mut end);
            if end == FATAL {
                std::process::abort();
            }
        }
    }
}

weir_nf::register!(Brittle);
