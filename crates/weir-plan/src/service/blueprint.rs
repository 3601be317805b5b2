//! The document that a VNF template is (µNF paper §IV-D).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A VNF template as it is written: the µNFs that make the VNF, and the links between them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "VNF template")]
pub struct TemplateDocument {
    /// Its name: what requests and policies use as the type of a VNF.
    pub template: String,
    /// What the VNF does, in one sentence.
    #[serde(default)]
    pub about: String,
    /// What whoever uses it may set.
    #[serde(default)]
    pub parameters: Vec<Parameter>,
    /// Its µNFs.
    pub nodes: Vec<TemplateNode>,
    /// Where packets come in. A VNF with one input needs no name for it in links.
    pub inputs: Vec<TemplateInput>,
    /// Where packets go from µNF to µNF, to an output of the VNF, or to `Drop`.
    pub links: Vec<TemplateLink>,
    /// Where packets leave. None: nothing leaves the VNF.
    #[serde(default)]
    pub outputs: Vec<TemplateOutput>,
}

/// A parameter of a template.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Parameter {
    /// Its name; configurations refer to it as `$name`.
    pub name: String,
    /// The type of its value.
    #[serde(rename = "type")]
    pub kind: ParameterType,
    /// Its value unless given. Without one it must be given, unless it is optional.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<Value>,
    /// Left out, it leaves out the key that it is the value of, so that the µNF's default holds.
    #[serde(default)]
    pub optional: bool,
    /// What it is for, with its unit.
    #[serde(default)]
    pub about: String,
}

/// The type of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ParameterType {
    /// Text.
    String,
    /// A whole number.
    Integer,
    /// Any number.
    Number,
    /// `true` or `false`.
    Boolean,
    /// A list.
    List,
    /// A mapping.
    Object,
    /// Anything.
    Any,
}

/// A µNF of a template.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TemplateNode {
    /// Its name in the template. In a VNF `fw` the µNF `check` is called `fw/check`.
    pub name: String,
    /// The µNF type.
    #[serde(rename = "type")]
    pub type_name: String,
    /// Its configuration. A string `$name` stands for the value of that parameter; `$$` begins a
    /// string with a `$`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<Value>,
}

/// An input of a template.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TemplateInput {
    /// Its name.
    pub name: String,
    /// The µNF that gets what comes in here.
    pub to: String,
    /// By which of its inputs, if it has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<String>,
}

/// An output of a template.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TemplateOutput {
    /// Its name.
    pub name: String,
    /// True when it is fine that nothing is linked to it.
    #[serde(default)]
    pub optional: bool,
}

/// A link of a template.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TemplateLink {
    /// The µNF that packets come from.
    pub from: String,
    /// Which of its outputs; without it all that no other link names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Where they go: a µNF, an output of the template, or `Drop`.
    pub to: String,
    /// By which input of that µNF, if it has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<String>,
}

impl ParameterType {
    /// True for a value of this type.
    pub(crate) fn takes(self, value: &Value) -> bool {
        match self {
            ParameterType::String => value.is_string(),
            ParameterType::Integer => value.is_i64() || value.is_u64(),
            ParameterType::Number => value.is_number(),
            ParameterType::Boolean => value.is_boolean(),
            ParameterType::List => value.is_array(),
            ParameterType::Object => value.is_object(),
            ParameterType::Any => true,
        }
    }

    /// As a JSON schema names it; `None` for anything.
    pub(crate) fn json_schema_type(self) -> Option<&'static str> {
        match self {
            ParameterType::String => Some("string"),
            ParameterType::Integer => Some("integer"),
            ParameterType::Number => Some("number"),
            ParameterType::Boolean => Some("boolean"),
            ParameterType::List => Some("array"),
            ParameterType::Object => Some("object"),
            ParameterType::Any => None,
        }
    }

    /// In words.
    pub(crate) fn what(self) -> &'static str {
        match self {
            ParameterType::String => "a string",
            ParameterType::Integer => "a whole number",
            ParameterType::Number => "a number",
            ParameterType::Boolean => "true or false",
            ParameterType::List => "a list",
            ParameterType::Object => "an object",
            ParameterType::Any => "a value",
        }
    }
}

/// The parameter that a string stands for.
pub(crate) fn reference(text: &str) -> Option<&str> {
    text.strip_prefix('$').filter(|name| !name.starts_with('$'))
}
