//! A VNF: a template with its parameters filled in.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::catalog::{Catalog, ConfigProblem, NfInfo};
use crate::error::MAX_ERRORS;
use crate::nearest::nearest;
use crate::service::blueprint::reference;
use crate::service::names;
use crate::service::template::{MAX_PARTS, Template, Way};

/// A VNF of a graph: what it looks like from outside, and what it is made of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vnf {
    /// Its template's name, its inputs and outputs.
    pub info: NfInfo,
    /// Its µNFs.
    pub nodes: Vec<VnfNode>,
    /// By input: the node (its place in `nodes`) and the input that packets get to.
    pub entries: Vec<(usize, usize)>,
    /// The outputs that need not be linked.
    pub optional: Vec<usize>,
    /// By node and output: where packets go.
    pub ways: Vec<Vec<Way>>,
}

/// A µNF of a VNF.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VnfNode {
    /// Its name in the template.
    pub name: String,
    /// Its type.
    pub info: NfInfo,
    /// Its configuration, parameters filled in.
    pub config: Value,
}

/// Which VNF a µNF is of.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct VnfOf {
    /// The VNF's name in the request or policy.
    pub instance: String,
    /// The template.
    pub template: String,
    /// The µNF's name in the template.
    pub node: String,
}

/// The value of a string that refers to a parameter, and where it went.
struct Filled {
    /// The place in the µNF's configuration, as a JSON pointer.
    pointer: String,
    parameter: String,
}

/// Values that the VNFs of a policy have in their configurations and ports at most, together.
const MAX_FILLED: usize = 1_000_000;

/// Bytes of strings in them at most.
const MAX_FILLED_BYTES: usize = 64 << 20;

/// What filling in may still take, for all VNFs of a policy together: a template that refers often to a
/// long parameter, or is used often, would else be a small text with a huge meaning.
pub(crate) struct Budget {
    values: usize,
    bytes: usize,
    spent: bool,
}

impl Default for Budget {
    fn default() -> Self {
        Self { values: MAX_FILLED, bytes: MAX_FILLED_BYTES, spent: false }
    }
}

impl Budget {
    /// True when something did not fit.
    pub(crate) fn is_spent(&self) -> bool {
        self.spent
    }

    fn take(&mut self, values: usize, bytes: usize) {
        match (self.values.checked_sub(values), self.bytes.checked_sub(bytes)) {
            (Some(values), Some(bytes)) => (self.values, self.bytes) = (values, bytes),
            _ => self.spent = true,
        }
    }

    /// Takes what a copy of `value` takes; ends where the budget does.
    fn measure(&mut self, value: &Value) {
        if self.spent {
            return;
        }
        match value {
            Value::String(text) => self.take(1, text.len()),
            Value::Array(list) => {
                self.take(1, 0);
                list.iter().for_each(|value| self.measure(value));
            }
            Value::Object(members) => {
                self.take(1, 0);
                for (key, value) in members {
                    self.take(0, key.len());
                    self.measure(value);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => self.take(1, 0),
        }
    }
}

impl Template {
    /// The VNF with these parameters, taken out of `budget`, its µNFs' configurations checked.
    ///
    /// # Errors
    /// What is wrong, with places as JSON pointers into `parameters`.
    pub(crate) fn fill(
        &self,
        parameters: &Value,
        catalog: &dyn Catalog,
        budget: &mut Budget,
    ) -> Result<Vnf, Vec<ConfigProblem>> {
        let mut problems = Vec::new();
        let given = self.given(parameters, &mut problems);
        if !problems.is_empty() {
            return Err(problems);
        }
        let ports = self.entries.len().saturating_add(self.document.outputs.len());
        let ports = self.ways.iter().fold(ports, |sum, ways| sum.saturating_add(ways.len()));
        budget.take(ports, 0);
        let mut filling = Filling { given, budget, at: String::new(), filled: Vec::new() };
        let mut nodes = Vec::new();
        for (node, info) in self.document.nodes.iter().zip(&self.types) {
            filling.filled.clear();
            let config = node.config.as_ref().and_then(|config| filling.fill(config));
            if filling.budget.is_spent() {
                let why = format!(
                    "with it the VNFs' configurations have more than {MAX_FILLED} values and ports or \
                     {MAX_FILLED_BYTES} bytes in all; use fewer VNFs or shorter parameters, or refer \
                     to parameters less often in the template"
                );
                return Err(vec![ConfigProblem { path: String::new(), why }]);
            }
            let config = config.unwrap_or_else(|| Value::Object(Map::new()));
            if let Err(problem) = catalog.check_config(&node.type_name, &config) {
                problems.push(blame(&node.name, problem, &filling.filled, parameters));
            }
            nodes.push(VnfNode { name: node.name.clone(), info: info.clone(), config });
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        let (entries, ways) = (self.entries.clone(), self.ways.clone());
        let outputs = self.document.outputs.iter().enumerate();
        let optional = outputs.filter(|(_, output)| output.optional).map(|(k, _)| k).collect();
        Ok(Vnf { info: self.info(), nodes, entries, optional, ways })
    }

    /// JSON schema of the parameters.
    #[must_use]
    pub fn parameters_schema(&self) -> Value {
        let mut properties = Map::new();
        let mut required: Vec<&str> = Vec::new();
        for parameter in &self.document.parameters {
            let mut property = Map::new();
            if let Some(kind) = parameter.kind.json_schema_type() {
                property.insert("type".to_owned(), kind.into());
            }
            if !parameter.about.is_empty() {
                property.insert("description".to_owned(), parameter.about.as_str().into());
            }
            match &parameter.default {
                Some(default) => {
                    property.insert("default".to_owned(), default.clone());
                }
                None if parameter.optional => {}
                None => required.push(&parameter.name),
            }
            properties.insert(parameter.name.clone(), property.into());
        }
        json!({
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": false,
        })
    }

    /// Every parameter that has a value, with it.
    fn given<'a>(
        &'a self,
        parameters: &'a Value,
        problems: &mut Vec<ConfigProblem>,
    ) -> BTreeMap<&'a str, &'a Value> {
        let mut problem = |path: String, why: String| problems.push(ConfigProblem { path, why });
        let given = match parameters {
            Value::Object(given) => Some(given),
            Value::Null => None,
            _ => {
                problem(String::new(), "parameters are an object: { name: value }".to_owned());
                None
            }
        };
        let known = &self.document.parameters;
        let mut values = BTreeMap::new();
        // Of more than these so many are unknown that no more errors would be taken.
        let looked_at = MAX_PARTS.saturating_add(MAX_ERRORS);
        for (name, value) in given.into_iter().flatten().take(looked_at) {
            let path = format!("/{}", names::step(name));
            let Some(parameter) = known.iter().find(|parameter| parameter.name == *name) else {
                let all: Vec<String> = known.iter().map(|p| p.name.clone()).collect();
                // One that is given already is not meant.
                let open = all.iter().filter(|name| given.is_none_or(|g| !g.contains_key(*name)));
                let why = match nearest(name, open.map(String::as_str)) {
                    Some(near) => format!("no parameter is called `{name}`; write `{near}`"),
                    None if all.is_empty() => {
                        format!("no parameter is called `{name}`, it has none")
                    }
                    None => {
                        format!("no parameter is called `{name}`; it has {}", names::list(&all))
                    }
                };
                problem(path, why);
                continue;
            };
            if !parameter.kind.takes(value) {
                problem(path, format!("`{name}` must be {}", parameter.kind.what()));
                continue;
            }
            values.insert(name.as_str(), value);
        }
        for parameter in known {
            if given.is_some_and(|given| given.contains_key(&parameter.name)) {
                continue;
            }
            match &parameter.default {
                Some(default) => {
                    values.insert(parameter.name.as_str(), default);
                }
                None if parameter.optional => {}
                None => {
                    let why = format!(
                        "the parameter `{}` ({}) is missing",
                        parameter.name,
                        parameter.kind.what()
                    );
                    problem(String::new(), why);
                }
            }
        }
        values
    }
}

/// Fills the parameters `given` in.
struct Filling<'a> {
    given: BTreeMap<&'a str, &'a Value>,
    budget: &'a mut Budget,
    /// The place in the configuration.
    at: String,
    filled: Vec<Filled>,
}

impl Filling<'_> {
    /// `None` when the value is a parameter without one, or when the budget is spent.
    fn fill(&mut self, value: &Value) -> Option<Value> {
        if self.budget.spent {
            return None;
        }
        match value {
            Value::String(text) => match reference(text) {
                Some(name) => {
                    self.budget.take(1, self.at.len());
                    self.filled
                        .push(Filled { pointer: self.at.clone(), parameter: name.to_owned() });
                    let value = *self.given.get(name)?;
                    self.copy(value)
                }
                None => {
                    self.budget.take(1, text.len());
                    Some(text.strip_prefix('$').unwrap_or(text).into())
                }
            },
            Value::Array(list) => {
                self.budget.take(1, 0);
                let mut elements = Vec::new();
                for (i, value) in list.iter().enumerate() {
                    elements.extend(self.step(&i.to_string(), value));
                }
                Some(Value::Array(elements))
            }
            Value::Object(members) => {
                self.budget.take(1, 0);
                let mut object = Map::new();
                for (key, value) in members {
                    self.budget.take(0, key.len());
                    if let Some(value) = self.step(key, value) {
                        object.insert(key.clone(), value);
                    }
                }
                Some(Value::Object(object))
            }
            other => {
                self.budget.take(1, 0);
                Some(other.clone())
            }
        }
    }

    fn step(&mut self, key: &str, value: &Value) -> Option<Value> {
        let len = self.at.len();
        names::push_step(&mut self.at, key);
        let value = self.fill(value);
        self.at.truncate(len);
        value
    }

    fn copy(&mut self, value: &Value) -> Option<Value> {
        self.budget.measure(value);
        (!self.budget.spent).then(|| value.clone())
    }
}

/// Lays a µNF's complaint at the door of the parameter that it is about.
fn blame(
    node: &str,
    problem: ConfigProblem,
    filled: &[Filled],
    parameters: &Value,
) -> ConfigProblem {
    let about = filled.iter().find_map(|filled| {
        let rest = problem.path.strip_prefix(filled.pointer.as_str())?;
        (rest.is_empty() || rest.starts_with('/')).then(|| format!("/{}{rest}", filled.parameter))
    });
    let path = about.filter(|path| {
        let first = path.split('/').nth(1).unwrap_or_default();
        parameters.get(first).is_some()
    });
    ConfigProblem {
        path: path.unwrap_or_default(),
        why: format!("its µNF `{node}`: {}", problem.why),
    }
}
