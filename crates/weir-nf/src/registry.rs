//! Which µNFs there are: each file registers its own.

use crate::ctx::Env;
use crate::descriptor::{Affinity, Descriptor};
use crate::instance::{BuildError, Instance, Running};
use crate::nf::{ConfigError, Merge, Neighbours, Nf};
use serde_json::Value;

type Generate = fn(Value, &Neighbours) -> Result<Value, ConfigError>;
type Together = fn(&[Value]) -> Option<Value>;
type Make = fn(&Value, &Env) -> Result<Box<dyn Instance>, BuildError>;

/// One registered µNF type.
pub struct Registration {
    /// What it is and may do.
    pub descriptor: &'static Descriptor,
    /// True when packets may be changed.
    pub writes: bool,
    /// True when it has shared state ([`Nf::Shared`](crate::Nf::Shared)).
    pub keeps: bool,
    /// True when it remembers something of each flow ([`Nf::Flow`](crate::Nf::Flow)).
    pub follows: bool,
    /// The package that it is from: name and version.
    pub package: (&'static str, &'static str),
    /// The fields of its configuration on which depends which packets must meet ([`Nf::AFFINITY_BY`](crate::Nf::AFFINITY_BY)).
    pub affinity_by: &'static [&'static str],
    generate: Generate,
    make: Make,
    together: Together,
    affinity: fn(&Value) -> Option<Affinity>,
    schema: fn() -> schemars::Schema,
}

impl Registration {
    /// The registration of `N`; used by [`register!`](crate::register).
    pub const fn of<N: Nf>(package: (&'static str, &'static str)) -> Self {
        use weir_packet::Access;
        Registration {
            descriptor: const {
                assert!(
                    N::DESCRIPTOR.layers.writes() == N::Access::WRITES,
                    "the descriptor's layers and the access type contradict each other"
                );
                assert!(
                    N::DESCRIPTOR.affinity.is_sound(),
                    "the affinity has fields by which packets cannot be divided"
                );
                assert!(
                    !N::DESCRIPTOR.affinity.asks_sides() || N::DESCRIPTOR.inputs.len() > 1,
                    "by which end packets divide depends on the input, and there is one"
                );
                assert!(!N::DESCRIPTOR.outputs.is_empty() && N::DESCRIPTOR.outputs.len() <= 64);
                assert!(!N::DESCRIPTOR.inputs.is_empty() && N::DESCRIPTOR.inputs.len() <= 64);
                &N::DESCRIPTOR
            },
            writes: N::Access::WRITES,
            keeps: size_of::<N::Shared>() > 0,
            follows: size_of::<N::Flow>() > 0 && N::DESCRIPTOR.flows > 0,
            package,
            affinity_by: N::AFFINITY_BY,
            generate: N::generate,
            make: |config, env| Ok(Box::new(Running::<N>::new(config, env)?)),
            together: together::<N>,
            affinity: affinity::<N>,
            schema: crate::schema::of::<N::Config>,
        }
    }

    /// Generates a configuration from another and from the neighbours ([`Nf::generate`](crate::Nf::generate)).
    pub fn generate(&self, config: Value, neighbours: &Neighbours) -> Result<Value, ConfigError> {
        (self.generate)(config, neighbours)
    }

    /// Makes an instance from a configuration (`null` is the empty one).
    pub fn make(&self, config: &Value, env: &Env) -> Result<Box<dyn Instance>, BuildError> {
        (self.make)(config, env)
    }

    /// What several instances have to report, as one would that had had all their packets
    /// ([`Merge`](crate::Merge)); `None` when that cannot be said.
    #[must_use]
    pub fn together(&self, reports: &[Value]) -> Option<Value> {
        (self.together)(reports)
    }

    /// Which packets must meet at one instance with this configuration ([`Nf::affinity`](crate::Nf::affinity)); `None` for one that
    /// is none.
    #[must_use]
    pub fn affinity(&self, config: &Value) -> Option<Affinity> {
        (self.affinity)(config)
    }

    /// The fields of this configuration for which all packets must meet, so that there is one instance: without any of them several
    /// might be. None where that does not depend on the configuration, or several may be.
    #[must_use]
    pub fn alone_by(&self, config: &Value) -> Vec<&'static str> {
        let is_alone = |config: &Value| self.affinity(config) == Some(Affinity::All);
        let without = |field: &&&str| {
            let mut rest = config.clone();
            rest.as_object_mut().is_some_and(|rest| rest.remove(**field).is_some())
                && !is_alone(&rest)
        };
        if !is_alone(config) {
            return Vec::new();
        }
        self.affinity_by.iter().filter(without).copied().collect()
    }

    /// JSON schema of the configuration.
    pub fn schema(&self) -> schemars::Schema {
        (self.schema)()
    }
}

/// A report is the shared state as JSON, so it can be read back and merged.
fn together<N: Nf>(reports: &[Value]) -> Option<Value> {
    let mut all: Option<N::Shared> = None;
    for report in reports {
        let one: N::Shared = serde_json::from_value(report.clone()).ok()?;
        match &mut all {
            Some(all) => all.merge(one),
            None => all = Some(one),
        }
    }
    serde_json::to_value(all?).ok()
}

/// Packets cannot be divided by what is not sound: then as the descriptor says.
fn affinity<N: Nf>(config: &Value) -> Option<Affinity> {
    let affinity = N::affinity(&serde_json::from_value(config.clone()).ok()?);
    Some(if affinity.is_sound() { affinity } else { N::DESCRIPTOR.affinity })
}

inventory::collect!(Registration);

/// All registered µNFs, by name.
pub fn registrations() -> Vec<&'static Registration> {
    let mut all: Vec<_> = inventory::iter::<Registration>().collect();
    all.sort_by_key(|r| r.descriptor.name);
    all
}

/// The µNF type called `name`. Two of one name are refused: which is meant would depend on the order
/// of linking.
pub fn find(name: &str) -> Result<&'static Registration, BuildError> {
    let mut found = inventory::iter::<Registration>().filter(|r| r.descriptor.name == name);
    match (found.next(), found.next()) {
        (Some(only), None) => Ok(only),
        (None, _) => Err(BuildError::Unknown(name.to_owned())),
        (Some(_), Some(_)) => Err(BuildError::Twice(name.to_owned())),
    }
}

/// Registers a µNF type: one line at the bottom of its file.
#[macro_export]
macro_rules! register {
    ($nf:ty) => {
        $crate::inventory::submit! {
            $crate::Registration::of::<$nf>((env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION")))
        }
    };
}
