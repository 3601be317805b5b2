//! The library with VNF templates.

use super::root;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use weir_control::library::Library;
use weir_plan::service::{Syntax, Template};
use weir_plan::{Around, Catalog, ConfigProblem, NfInfo};

/// The library and VNF templates.
pub struct WithTemplates(BTreeMap<String, Arc<Template>>);

impl WithTemplates {
    /// Those that come with weir: what the command knows.
    pub fn shipped() -> Self {
        let entries = std::fs::read_dir(root().join("templates")).unwrap();
        Self::of(entries.map(|entry| std::fs::read_to_string(entry.unwrap().path()).unwrap()))
    }

    /// Those of these texts (YAML).
    pub fn of(texts: impl IntoIterator<Item = String>) -> Self {
        let mut templates = BTreeMap::new();
        for text in texts {
            let template = Template::read(&text, Syntax::Yaml, &Library);
            let template =
                template.unwrap_or_else(|e| panic!("{}", weir_plan::render(&e, "template", &text)));
            templates.insert(template.name().to_owned(), Arc::new(template));
        }
        WithTemplates(templates)
    }
}

impl Catalog for WithTemplates {
    fn nf(&self, type_name: &str) -> Option<NfInfo> {
        Library.nf(type_name)
    }

    fn nf_with(&self, type_name: &str, config: &Value) -> Option<NfInfo> {
        Library.nf_with(type_name, config)
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
