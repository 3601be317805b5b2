//! Edges whose filter takes no packet.

use weir_filter::Expr;
use weir_logic::Universe;

use crate::edges::Link;
use crate::error::PolicyWarning;
use crate::graph::Graph;
use crate::merge::resolve;
use crate::warning::Warning;

/// Notes edges that are proved to take none. Those whose text shows it are noted elsewhere: no output of
/// theirs is left. Asks the diagrams alone, and last, so that it takes nothing from what must be decided.
pub(super) fn note(
    graph: &Graph,
    links: &[Link],
    universe: &mut Universe,
    notes: &mut Vec<PolicyWarning>,
) {
    for (edge, link) in graph.edges().iter().zip(links) {
        let (Some(filter), false) = (&link.filter, edge.outputs.is_empty()) else { continue };
        let takes = graph.outputs(edge.from).iter().any(|output| {
            let filter = resolve(Some(filter), &output.name);
            filter != Expr::False && {
                let class = universe.class(&filter);
                universe.may_meet(class, class)
            }
        });
        if universe.is_spent() {
            return;
        }
        if !takes {
            notes.push(PolicyWarning { span: link.span, why: Warning::NeverMatches });
        }
    }
}
