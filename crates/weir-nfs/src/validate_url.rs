//! Drops HTTP requests that carry an SQL injection.

mod judged;

pub use judged::{Blocked, Judged, URL_SHOWN};

use crate::payload::Scratch;
use judged::note;
use schemars::JsonSchema;
use serde::Deserialize;
use std::cell::RefCell;
use weir_http::{Inspector, Scope, Verdict, requests};
use weir_nf::{
    ConfigError, Ctx, Descriptor, DropReason, Effect, Env, LayerAccess, Nf, Packets, ReadOnly,
    Touch,
};

/// Drops segments with an HTTP request that carries an SQL injection in its URL, its urlencoded
/// body or a cookie, and remembers those requests.
///
/// *Output:* `out`. *Drops:* `injection`. *Config:* `keep`, how many blocked requests are listed
/// (1,000 unless told otherwise; the earliest, the rest is only counted). *Source:* the µNF paper's
/// ValidateURL; see [`Inspector`] for what is decoded and judged. All requests that are pipelined in
/// a segment are judged. There is no reassembly: what of a request the segment's end cuts off is
/// not guessed at; unless there is an injection before the cut, it passes and counts as unjudged,
/// and a body in a segment of its own passes as it has no request line. JSON and multipart bodies are
/// not judged.
#[derive(Debug)]
pub struct ValidateUrl {
    keep: usize,
    scratch: RefCell<(Scratch, Inspector)>,
}

/// Blocked requests that are listed unless told otherwise.
const KEPT: usize = 1000;

/// Configuration of [`ValidateUrl`].
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// How many blocked requests are listed at most.
    #[schemars(extend("default" = KEPT))]
    pub keep: Option<usize>,
}

impl Nf for ValidateUrl {
    const DESCRIPTOR: Descriptor = Descriptor {
        name: "ValidateUrl",
        summary: "Drops HTTP requests that carry an SQL injection",
        layers: LayerAccess {
            l2: Touch::Read,
            l3: Touch::Read,
            l4: Touch::Read,
            payload: Touch::Read,
        },
        may_drop: true,
        effect: Effect::Stateful,
        affinity: weir_nf::Affinity::None,
        cost_cycles: 1500,
        ..Descriptor::BASE
    };
    type Access = ReadOnly;
    type Config = Config;
    type Flow = ();
    type Shared = Judged;

    fn build(config: Config, _: &Env) -> Result<Self, ConfigError> {
        let scratch = RefCell::new((Scratch::new(), Inspector::new()));
        Ok(ValidateUrl { keep: config.keep.unwrap_or(KEPT), scratch })
    }

    fn process(&self, packets: &mut Packets<'_, ReadOnly>, ctx: &mut Ctx<'_, Self>) {
        const SCOPE: Scope = Scope { cookies: true, body: true };
        let (scratch, inspector) = &mut *self.scratch.borrow_mut();
        let judged = ctx.shared();
        judged.keep = self.keep;
        for mut packet in packets.iter_mut() {
            let Some(payload) = scratch.requests(&packet) else {
                continue;
            };
            for request in requests(payload) {
                judged.requests += 1;
                match inspector.request(payload, &request, SCOPE) {
                    Verdict::Clean => {}
                    Verdict::Unjudged => judged.unjudged += 1,
                    Verdict::Injection { place, fingerprint } => {
                        packet.drop(DropReason::Injection);
                        judged.injections += 1;
                        if judged.blocked.len() < self.keep {
                            let kind = fingerprint.as_str();
                            judged.blocked.push(note(&packet, payload, &request, place, kind));
                        }
                    }
                }
            }
        }
    }
}

weir_nf::register!(ValidateUrl);
