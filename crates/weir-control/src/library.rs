//! The µNFs linked into this program, as the plan sees them.

use weir_nf::{Descriptor, Registration};
use weir_plan::{
    Access, Affinity, Around, Catalog, ConfigProblem, Effect, Field, FieldSet, NfInfo, TagInfo,
    TagKind, Touch, Work,
};

/// The µNFs linked into this program, as the plan sees them.
#[derive(Debug, Clone, Copy, Default)]
pub struct Library;

impl Catalog for Library {
    fn nf(&self, type_name: &str) -> Option<NfInfo> {
        let r = weir_nf::find(type_name).ok()?;
        let names = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect();
        Some(NfInfo {
            alone_by: Vec::new(),
            name: r.descriptor.name.to_owned(),
            inputs: names(r.descriptor.inputs),
            outputs: names(r.descriptor.outputs),
            // What it makes it writes.
            writes_packets: r.writes || r.descriptor.creates > 0,
            may_drop: r.descriptor.may_drop,
            domain: r.descriptor.domain.to_owned(),
            resizes: r.descriptor.resizes,
            creates: r.descriptor.creates,
            holds: r.descriptor.holds,
            tags: r.descriptor.tags.iter().map(|t| tag(t.name, t.kind)).collect(),
            program: None,
            work: work(r),
        })
    }

    fn nf_with(&self, type_name: &str, config: &serde_json::Value) -> Option<NfInfo> {
        let mut info = self.nf(type_name)?;
        let registration = weir_nf::find(type_name).ok()?;
        if let Some(affinity) = registration.affinity(config) {
            let alone_by = registration.alone_by(config);
            info.alone_by = alone_by.into_iter().map(str::to_owned).collect();
            info.work =
                Work { affinity: affinity_of(affinity), scales: scales(affinity), ..info.work };
        }
        Some(info)
    }

    fn types(&self) -> Vec<String> {
        weir_nf::registrations().iter().map(|r| r.descriptor.name.to_owned()).collect()
    }

    fn generate(
        &self,
        type_name: &str,
        config: &serde_json::Value,
        around: &Around,
    ) -> Result<serde_json::Value, ConfigProblem> {
        let Ok(registration) = weir_nf::find(type_name) else { return Ok(config.clone()) };
        let Around { inputs, outputs } = around.clone();
        let neighbours = weir_nf::Neighbours { inputs, outputs };
        let generated = registration.generate(config.clone(), &neighbours);
        generated.map_err(|e| ConfigProblem { path: e.at, why: e.why })
    }

    fn check_config(
        &self,
        type_name: &str,
        config: &serde_json::Value,
    ) -> Result<(), ConfigProblem> {
        let made = weir_nf::find(type_name).and_then(|r| r.make(config, &weir_nf::Env::default()));
        match made {
            Ok(_) => Ok(()),
            Err(weir_nf::BuildError::Config(e)) => Err(ConfigProblem { path: e.at, why: e.why }),
            Err(e) => Err(ConfigProblem { path: String::new(), why: e.to_string() }),
        }
    }
}

/// A tag's declaration as the planner's.
pub(crate) fn tag(name: &str, kind: weir_nf::TagKind) -> TagInfo {
    let kind = match kind {
        weir_nf::TagKind::Flag => TagKind::Flag,
        weir_nf::TagKind::Number => TagKind::Number,
        weir_nf::TagKind::Text => TagKind::Text,
    };
    TagInfo { name: name.to_owned(), kind }
}

/// The SDK's words for fields as the planner's.
fn fields(d: &Descriptor, wanted: weir_nf::Touch) -> FieldSet {
    let these = d.fields.iter().filter(|(_, touch)| *touch == wanted);
    these.map(|(field, _)| field_of(*field)).collect::<Vec<_>>().into()
}

const fn field_of(field: weir_nf::Field) -> Field {
    match field {
        weir_nf::Field::EthDst => Field::EthDst,
        weir_nf::Field::EthSrc => Field::EthSrc,
        weir_nf::Field::EthType => Field::EthType,
        weir_nf::Field::Vlan => Field::Vlan,
        weir_nf::Field::IpSrc => Field::IpSrc,
        weir_nf::Field::IpDst => Field::IpDst,
        weir_nf::Field::IpTtl => Field::IpTtl,
        weir_nf::Field::IpTos => Field::IpTos,
        weir_nf::Field::IpProto => Field::IpProto,
        weir_nf::Field::IpLength => Field::IpLength,
        weir_nf::Field::IpOther => Field::IpOther,
        weir_nf::Field::L4Src => Field::L4Src,
        weir_nf::Field::L4Dst => Field::L4Dst,
        weir_nf::Field::L4Flags => Field::L4Flags,
        weir_nf::Field::L4Other => Field::L4Other,
    }
}

/// The SDK's words for what a µNF does as the planner's.
fn work(r: &Registration) -> Work {
    let d = r.descriptor;
    let touch = |touch| match touch {
        weir_nf::Touch::Nop => Touch::Nop,
        weir_nf::Touch::Read => Touch::Read,
        weir_nf::Touch::Write => Touch::Write,
    };
    let layers = d.layers;
    Work {
        access: Access {
            l2: touch(layers.l2),
            l3: touch(layers.l3),
            l4: touch(layers.l4),
            payload: touch(layers.payload),
        },
        effect: match d.effect {
            // What it does at its own time is not done twice by being left out once.
            _ if d.timers => Effect::Stateful,
            weir_nf::Effect::Pure => Effect::Pure,
            weir_nf::Effect::Idempotent => Effect::Idempotent,
            weir_nf::Effect::Stateful => Effect::Stateful,
            weir_nf::Effect::External => Effect::External,
        },
        affinity: affinity_of(d.affinity),
        cost_cycles: d.cost_cycles,
        keeps: r.keeps,
        follows: r.follows,
        timers: d.timers,
        reads: fields(d, weir_nf::Touch::Read),
        writes: fields(d, weir_nf::Touch::Write),
        scales: scales(d.affinity),
    }
}

/// An affinity says how packets are divided, if they may be.
fn scales(affinity: weir_nf::Affinity) -> bool {
    affinity != weir_nf::Affinity::All
}

/// The SDK's word for which packets must meet as the planner's.
fn affinity_of(affinity: weir_nf::Affinity) -> Affinity {
    match affinity {
        weir_nf::Affinity::None => Affinity::None,
        weir_nf::Affinity::Flow => Affinity::Flow,
        weir_nf::Affinity::Ends => Affinity::Ends,
        weir_nf::Affinity::Client => Affinity::Client,
        weir_nf::Affinity::Fields { fields, symmetric } => {
            let fields: Vec<Field> = fields.iter().map(|f| field_of(*f)).collect();
            Affinity::of_fields(fields.into(), symmetric).unwrap_or(Affinity::Source)
        }
        weir_nf::Affinity::All => Affinity::Source,
    }
}
