//! A VNF: a template with its parameters filled in.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::catalog::{Catalog, ConfigProblem, NfInfo};
use crate::nearest::nearest;
use crate::service::names;
use crate::service::template::{Template, Way, reference};

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

impl Template {
    /// The VNF with these parameters, its µNFs' configurations checked.
    ///
    /// # Errors
    /// What is wrong, with places as JSON pointers into `parameters`.
    pub fn fill(
        &self,
        parameters: &Value,
        catalog: &dyn Catalog,
    ) -> Result<Vnf, Vec<ConfigProblem>> {
        let mut problems = Vec::new();
        let given = self.given(parameters, &mut problems);
        if !problems.is_empty() {
            return Err(problems);
        }
        let mut nodes = Vec::new();
        for (node, info) in self.document.nodes.iter().zip(&self.types) {
            let mut filled = Vec::new();
            let config = node.config.as_ref();
            let config = config.and_then(|config| fill(config, &given, String::new(), &mut filled));
            let config = config.unwrap_or_else(|| Value::Object(Map::new()));
            if let Err(problem) = catalog.check_config(&node.type_name, &config) {
                problems.push(blame(&node.name, problem, &filled, parameters));
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
    fn given(&self, parameters: &Value, problems: &mut Vec<ConfigProblem>) -> Map<String, Value> {
        let empty = Map::new();
        let mut problem = |path: String, why: String| problems.push(ConfigProblem { path, why });
        let given = match parameters {
            Value::Object(given) => given,
            Value::Null => &empty,
            _ => {
                problem(String::new(), "parameters are an object: { name: value }".to_owned());
                &empty
            }
        };
        let known = &self.document.parameters;
        let mut values = Map::new();
        for (name, value) in given {
            let path = format!("/{}", names::step(name));
            let Some(parameter) = known.iter().find(|parameter| parameter.name == *name) else {
                let all: Vec<String> = known.iter().map(|p| p.name.clone()).collect();
                let why = match nearest(name, all.iter().map(String::as_str)) {
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
            values.insert(name.clone(), value.clone());
        }
        for parameter in known {
            if given.contains_key(&parameter.name) {
                continue;
            }
            match &parameter.default {
                Some(default) => {
                    values.insert(parameter.name.clone(), default.clone());
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

/// Fills parameters in; `None` when the value is a parameter without one.
fn fill(
    value: &Value,
    given: &Map<String, Value>,
    pointer: String,
    filled: &mut Vec<Filled>,
) -> Option<Value> {
    match value {
        Value::String(text) => match reference(text) {
            Some(name) => {
                let value = given.get(name).cloned();
                filled.push(Filled { pointer, parameter: name.to_owned() });
                value
            }
            None => Some(text.strip_prefix('$').unwrap_or(text).into()),
        },
        Value::Array(list) => {
            let elements = list.iter().enumerate();
            let elements = elements
                .filter_map(|(i, value)| fill(value, given, format!("{pointer}/{i}"), filled));
            Some(elements.collect())
        }
        Value::Object(members) => {
            let members = members.iter().filter_map(|(key, value)| {
                let pointer = format!("{pointer}/{}", names::step(key));
                Some((key.clone(), fill(value, given, pointer, filled)?))
            });
            Some(Value::Object(members.collect()))
        }
        other => Some(other.clone()),
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
