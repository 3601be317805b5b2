//! Cures in the words of service requests: these are checked as the policies that they are, but who writes them
//! does not write that language.

use crate::error::{PolicyError, PolicyWarning};
use crate::warning::Warning;
use crate::why::Why;

/// The errors of a request's policy as errors of the request.
pub(crate) fn errors(errors: Vec<PolicyError>) -> Vec<PolicyError> {
    let reword = |PolicyError { span, why }| {
        let why = match instead(&why) {
            Some(instead) => Why::InRequest { why: Box::new(why), instead },
            None => why,
        };
        PolicyError { span, why }
    };
    errors.into_iter().map(reword).collect()
}

/// Likewise its warnings.
pub(crate) fn warnings(warnings: &mut [PolicyWarning]) {
    for warning in warnings {
        if let Warning::NoWayIn { in_request, .. } = &mut warning.why {
            *in_request = true;
        }
    }
}

/// What to do about it, where the policy language has other words for that.
fn instead(why: &Why) -> Option<String> {
    let order = "or write `first_match: true` if the order of the links shall decide";
    let exclude = "let one link's filter exclude the other's packets";
    let drop = "or write `default_drop: true`";
    Some(match why {
        Why::NoEdges => {
            "add links, as in `links: [{ from: lan, to: wan }]`, between ports".to_owned()
        }
        Why::TooManyEdges | Why::TooManyDeclarations | Why::TooManyPorts | Why::TooManyTags => {
            "split the request".to_owned()
        }
        Why::UnknownNode { nearest: None, name, is_type: true } => format!(
            "it is a type: add `{{ name: my_{}, type: {name} }}` to `vnfs`, and write that name",
            name.to_lowercase()
        ),
        Why::UnknownNode { nearest: None, name, .. } => format!(
            "add it to `vnfs`, as in `{{ name: {name}, type: ... }}`, or to `ports`, as in `{{ name: {name}, number: 0 }}`"
        ),
        Why::NoOutputs { .. } => "leave the link out".to_owned(),
        Why::OtherScope { outputs, .. } if outputs.is_empty() => {
            "write a filter on packets, as in `filter: tcp port 80`".to_owned()
        }
        Why::WhichInput { inputs, .. } => {
            let inputs: Vec<String> =
                inputs.iter().map(|input| format!("`input: {input}`")).collect();
            format!("add one of {} to the link", inputs.join(", "))
        }
        Why::NoInputs { .. } => "leave `input` out".to_owned(),
        Why::Overlap { port: Some(port), class: None, .. } => format!(
            "{exclude}: by the port that they came in by, as in `filter: ingress == {port}`, or as in `filter: '!(tcp port 80)'`; {order}"
        ),
        Why::Overlap { .. } | Why::PerhapsOverlap { .. } => {
            format!("{exclude}, as in `filter: '!(tcp port 80)'`, {order}")
        }
        Why::Hole { added: true, .. } => {
            format!(
                "its links overlap but for where traffic comes from; add one for these packets, {drop}"
            )
        }
        Why::Hole { name, rest: Some(rest), .. }
        | Why::PerhapsHole { name, rest: Some(rest), .. } => {
            format!(
                "add a link for them, as in `{{ from: {name}, filter: {}, to: Drop }}`, {drop}",
                quoted(rest)
            )
        }
        Why::Hole { name, .. } | Why::PerhapsHole { name, .. } => {
            format!("add a link from `{name}` for what its filters do not match, {drop}")
        }
        Why::OutputOpen { name, output } => format!(
            "add a link for it, as in `{{ from: {name}, label: {output}, to: Drop }}`, {drop}"
        ),
        Why::NoWayOut { name } => {
            format!("add a link, as in `{{ from: {name}, to: Drop }}`")
        }
        _ => return None,
    })
}

/// A text as a string of YAML: nothing in single quotes has a meaning but they themselves.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
