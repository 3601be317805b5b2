//! The library with the VNF templates that come with weir: what the command knows.

use super::root;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use weir_control::library::Library;
use weir_plan::service::{Syntax, Template};
use weir_plan::{Around, Catalog, ConfigProblem, NfInfo};

pub struct Shipped(BTreeMap<String, Arc<Template>>);

impl Shipped {
    pub fn new() -> Self {
        let mut templates = BTreeMap::new();
        for entry in std::fs::read_dir(root().join("templates")).unwrap() {
            let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
            let template = Template::read(&text, Syntax::Yaml, &Library).unwrap();
            templates.insert(template.name().to_owned(), Arc::new(template));
        }
        Shipped(templates)
    }
}

impl Catalog for Shipped {
    fn nf(&self, type_name: &str) -> Option<NfInfo> {
        Library.nf(type_name)
    }

    fn types(&self) -> Vec<String> {
        Library.types()
    }

    fn template(&self, name: &str) -> Option<Arc<Template>> {
        self.0.get(name).cloned()
    }

    fn generate(
        &self,
        name: &str,
        config: &Value,
        around: &Around,
    ) -> Result<Value, ConfigProblem> {
        Library.generate(name, config, around)
    }

    fn check_config(&self, name: &str, config: &Value) -> Result<(), ConfigProblem> {
        Library.check_config(name, config)
    }
}
