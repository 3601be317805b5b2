//! A µNF that breaks at packets with certain bytes, as one with a fault would.

use schemars::JsonSchema;
use serde::Deserialize;
use weir_nf::{
    ConfigError, Ctx, Descriptor, Effect, Env, LayerAccess, Nf, Packets, ReadWrite, Touch,
};

pub struct Fragile(Config);

#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// How it breaks: `panic`, `segv`, `abort` or `loop`.
    how: String,
    /// It has written into the packet before it breaks.
    after_writing: bool,
}

/// What a packet must end with.
const FATAL: &[u8] = b"break";

impl Nf for Fragile {
    const DESCRIPTOR: Descriptor = Descriptor {
        name: "Fragile",
        summary: "Breaks at certain packets",
        layers: LayerAccess { l2: Touch::Write, payload: Touch::Read, ..LayerAccess::NONE },
        effect: Effect::Stateful,
        ..Descriptor::BASE
    };
    type Access = ReadWrite;
    type Config = Config;
    type Flow = ();
    type Shared = ();

    fn build(config: Config, _: &Env) -> Result<Self, ConfigError> {
        Ok(Fragile(config))
    }

    fn process(&self, packets: &mut Packets<'_, ReadWrite>, _: &mut Ctx<'_, Self>) {
        for mut packet in packets.iter_mut() {
            let mut end = [0; FATAL.len()];
            let at = packet.len().saturating_sub(end.len());
            packet.bytes().copy_to(at, &mut end);
            if end == FATAL {
                if self.0.after_writing {
                    packet.bytes_mut().unwrap().set_ne8(0, 0xff);
                }
                self.break_down();
            }
        }
    }
}

impl Fragile {
    fn break_down(&self) {
        match self.0.how.as_str() {
            "segv" => {
                // SAFETY: none; that is the point.
                unsafe { std::ptr::null_mut::<u8>().wrapping_add(8).write_volatile(1) }
            }
            "abort" => std::process::abort(),
            "loop" => loop {
                std::hint::spin_loop();
            },
            _ => panic!("a packet that I do not like"),
        }
    }
}

weir_nf::register!(Fragile);
