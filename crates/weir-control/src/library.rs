//! The µNFs linked into this program, as the plan sees them.

use weir_plan::{Catalog, ConfigProblem, NfInfo};

/// The µNFs linked into this program, as the plan sees them.
#[derive(Debug, Clone, Copy, Default)]
pub struct Library;

impl Catalog for Library {
    fn nf(&self, type_name: &str) -> Option<NfInfo> {
        let r = weir_nf::find(type_name).ok()?;
        let names = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect();
        Some(NfInfo {
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
            tags: r.descriptor.tags.iter().map(|t| t.name.to_owned()).collect(),
            program: None,
        })
    }

    fn types(&self) -> Vec<String> {
        weir_nf::registrations().iter().map(|r| r.descriptor.name.to_owned()).collect()
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
