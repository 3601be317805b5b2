//! A stateless packet filter: ordered rules over layers 2 to 4.

mod hits;

pub use hits::Hits;

use crate::rules;
use hits::Texts;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use std::cell::RefCell;
use weir_classify::{Action, Classifier, HeaderBatch, LANES, NO_RULE, RuleSpec};
use weir_nf::{
    BATCH, ConfigError, Ctx, Descriptor, DropReason, Effect, Env, LayerAccess, Nf, Packets,
    ReadOnly, Touch,
};

/// Passes or drops each packet by the first rule that matches it, or else by the default.
///
/// *Output:* `pass`. *Drops:* `filtered`. *Config:* `rules`, each an `action` and what to match
/// (see [`RuleSpec`]), and `default`. *Source:* the µNF paper's L3/L4 filter; rules are compiled
/// (see [`Classifier`]), so the time per packet hardly depends on their number.
///
/// A rule that asks for what a packet does not have does not match it. So a *later fragment*, which
/// has no ports, TCP flags or ICMP type, is judged only by rules that do not ask for them. The
/// counts per rule are for the operator and decide nothing, so the µNF is pure. A rule keeps its count when the list is
/// another afterwards, wherever it stands then; what was counted for rules that are gone is `gone`.
#[derive(Debug)]
pub struct L3L4Filter {
    classifier: Classifier,
    /// The action of each rule, then the default.
    actions: Vec<Action>,
    /// What the rules are counted by.
    texts: Texts,
    /// Headers of the batch at hand: no state, only memory made once.
    batch: RefCell<Box<HeaderBatch>>,
}

/// Configuration of [`L3L4Filter`].
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The rules; the first that matches decides.
    #[serde(default)]
    // Kept as JSON so that an error names the rule.
    #[schemars(with = "Vec<RuleSpec>", length(max = weir_classify::MAX_RULES))]
    pub rules: Vec<Value>,
    /// What happens when no rule matches: `pass` unless told otherwise.
    #[schemars(extend("default" = Action::Pass))]
    pub default: Option<Action>,
}

impl Nf for L3L4Filter {
    const DESCRIPTOR: Descriptor = Descriptor {
        name: "L3L4Filter",
        summary: "Passes or drops packets by ordered rules over layers 2 to 4",
        outputs: &["pass"],
        layers: LayerAccess {
            l2: Touch::Read,
            l3: Touch::Read,
            l4: Touch::Read,
            payload: Touch::Nop,
        },
        may_drop: true,
        cost_cycles: 120,
        effect: Effect::Pure,
        affinity: weir_nf::Affinity::None,
        ..Descriptor::BASE
    };
    type Access = ReadOnly;
    type Config = Config;
    type Flow = ();
    type Shared = Hits;

    fn build(config: Config, _: &Env) -> Result<Self, ConfigError> {
        let (classifier, mut actions) = rules::compile(&config.rules)?;
        actions.push(config.default.unwrap_or(Action::Pass));
        let texts = Texts::new(&config.rules);
        Ok(L3L4Filter { classifier, actions, texts, batch: RefCell::default() })
    }

    fn process(&self, packets: &mut Packets<'_, ReadOnly>, ctx: &mut Ctx<'_, Self>) {
        let batch = &mut *self.batch.borrow_mut();
        let link = self.classifier.tests_link();
        let mut found = [NO_RULE; BATCH];
        let count = packets.len().min(BATCH);
        let mut answers = found.chunks_mut(LANES);
        let mut packets_left = packets.iter_mut();
        while let Some(answers) = answers.next().filter(|_| packets_left.len() > 0) {
            batch.clear();
            packets_left.by_ref().take(LANES).for_each(|packet| rules::push(&packet, link, batch));
            answers.copy_from_slice(&self.classifier.classify_batch(batch));
        }
        drop(packets_left);
        let default = self.actions.len().saturating_sub(1);
        let hits = ctx.shared();
        hits.align(&self.texts);
        let mut drops = false;
        for found in found.iter().take(count) {
            let rule = (*found as usize).min(default);
            hits.count(rule);
            drops |= self.drops(rule);
        }
        if drops {
            for (mut packet, found) in packets.iter_mut().zip(found) {
                if self.drops((found as usize).min(default)) {
                    packet.drop(DropReason::Filtered);
                }
            }
        }
    }
}

// Batches are looked up in whole pieces.
const _: () = assert!(BATCH.is_multiple_of(LANES));

impl L3L4Filter {
    #[inline]
    fn drops(&self, rule: usize) -> bool {
        self.actions.get(rule) == Some(&Action::Drop)
    }
}

weir_nf::register!(L3L4Filter);
