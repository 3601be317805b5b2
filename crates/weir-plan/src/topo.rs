//! Order of NFs, and the cycles that prevent one.

use std::collections::VecDeque;

/// A directed graph by the numbers of its nodes: per node its edges as (destination, edge).
pub(crate) type Successors = Vec<Vec<(usize, usize)>>;

/// The nodes so that each comes before those it leads to, and chains stay together; without those
/// that are on or behind a cycle.
pub(crate) fn order(next: &Successors) -> Vec<usize> {
    let mut waiting_for = vec![0_usize; next.len()];
    for (to, _) in next.iter().flatten() {
        if let Some(count) = waiting_for.get_mut(*to) {
            *count = count.saturating_add(1);
        }
    }
    // A stack, so that what follows a node is taken before its rivals.
    let mut ready: Vec<usize> =
        waiting_for.iter().enumerate().filter(|(_, n)| **n == 0).map(|(i, _)| i).rev().collect();
    let mut order = Vec::with_capacity(next.len());
    while let Some(node) = ready.pop() {
        order.push(node);
        for (to, _) in next.get(node).into_iter().flatten().rev() {
            if let Some(count) = waiting_for.get_mut(*to) {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    ready.push(*to);
                }
            }
        }
    }
    order
}

/// Edges without which there is no cycle: those that lead back in a depth-first walk, which begins at
/// `roots` in their order and takes edges in theirs. So what packets come to first stays first.
pub(crate) fn closing(next: &Successors, roots: Vec<usize>) -> Vec<usize> {
    #[derive(Clone, Copy, PartialEq)]
    enum Seen {
        No,
        /// It is on the way that is walked.
        Open,
        Done,
    }
    let mut seen = vec![Seen::No; next.len()];
    let mut closing = Vec::new();
    for root in roots.into_iter().chain(0..next.len()) {
        if seen.get(root) != Some(&Seen::No) {
            continue;
        }
        // The way from the root, each node with how many of its edges were taken.
        let mut way = vec![(root, 0_usize)];
        while let Some((node, taken)) = way.last_mut() {
            let node = *node;
            let edge = next.get(node).and_then(|edges| edges.get(*taken));
            *taken = taken.saturating_add(1);
            let Some((to, edge)) = edge else {
                if let Some(seen) = seen.get_mut(node) {
                    *seen = Seen::Done;
                }
                way.pop();
                continue;
            };
            if let Some(seen) = seen.get_mut(node) {
                *seen = Seen::Open;
            }
            match seen.get(*to) {
                Some(Seen::Open) => closing.push(*edge),
                Some(Seen::No) => way.push((*to, 0)),
                _ => {}
            }
        }
    }
    closing
}

/// True when one comes from a node to another, or is there.
pub(crate) fn reaches(next: &Successors, from: usize, to: usize) -> bool {
    let mut reached = vec![false; next.len()];
    let mut waiting = vec![from];
    while let Some(at) = waiting.pop() {
        if at == to {
            return true;
        }
        if !is(&reached, at) {
            set(&mut reached, at, true);
            waiting.extend(next.get(at).into_iter().flatten().map(|(to, _)| *to));
        }
    }
    false
}

/// The most cycles that are looked for.
const MAX_CYCLES: usize = 8;

/// Cycles that share no node, each as the edges along it, short ones preferred; none if and only if
/// the graph has none.
pub(crate) fn cycles(next: &Successors) -> Vec<Vec<usize>> {
    let mut next = next.clone();
    let mut found = Vec::new();
    while found.len() < MAX_CYCLES {
        let mut alive = vec![true; next.len()];
        order(&next).into_iter().for_each(|i| set(&mut alive, i, false));
        // Backwards too: what remains then has an edge to what remains.
        let back = reversed(&next, &alive);
        order(&back).into_iter().for_each(|i| set(&mut alive, i, false));
        let Some(start) = alive.iter().position(|a| *a) else {
            break;
        };
        let Some(nodes) =
            walk(&next, &alive, start).and_then(|on_cycle| shortest(&next, &alive, on_cycle))
        else {
            break;
        };
        for (node, _) in &nodes {
            if let Some(edges) = next.get_mut(*node) {
                edges.clear();
            }
        }
        found.push(nodes.into_iter().map(|(_, edge)| edge).collect());
    }
    found
}

fn set(list: &mut [bool], at: usize, value: bool) {
    if let Some(place) = list.get_mut(at) {
        *place = value;
    }
}

fn is(list: &[bool], at: usize) -> bool {
    list.get(at).copied().unwrap_or(false)
}

fn reversed(next: &Successors, alive: &[bool]) -> Successors {
    let mut back = vec![Vec::new(); next.len()];
    for (from, edges) in next.iter().enumerate() {
        for (to, edge) in edges {
            if is(alive, from)
                && is(alive, *to)
                && let Some(list) = back.get_mut(*to)
            {
                list.push((from, *edge));
            }
        }
    }
    back
}

/// Goes from `start` along first edges until a node comes again: that one is on a cycle.
fn walk(next: &Successors, alive: &[bool], start: usize) -> Option<usize> {
    let mut seen = vec![false; next.len()];
    let mut at = start;
    while !is(&seen, at) {
        set(&mut seen, at, true);
        at = next.get(at)?.iter().map(|(to, _)| *to).find(|to| is(alive, *to))?;
    }
    Some(at)
}

/// The shortest cycle through `start`, as nodes with the edge that leaves each along it.
fn shortest(next: &Successors, alive: &[bool], start: usize) -> Option<Vec<(usize, usize)>> {
    let mut came_by: Vec<Option<(usize, usize)>> = vec![None; next.len()];
    let mut queue = VecDeque::from([start]);
    while let Some(node) = queue.pop_front() {
        for (to, edge) in next.get(node)?.iter().filter(|(to, _)| is(alive, *to)) {
            let place = came_by.get_mut(*to)?;
            if place.is_some() {
                continue;
            }
            *place = Some((node, *edge));
            if *to != start {
                queue.push_back(*to);
                continue;
            }
            let mut path = Vec::new();
            let mut at = start;
            loop {
                let step = (*came_by.get(at)?)?;
                path.push(step);
                at = step.0;
                if at == start {
                    path.reverse();
                    return Some(path);
                }
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Successors, closing, cycles, order};

    fn graph(nodes: usize, edges: &[(usize, usize)]) -> Successors {
        let mut next = vec![Vec::new(); nodes];
        for (i, (from, to)) in edges.iter().enumerate() {
            next[*from].push((*to, i));
        }
        next
    }

    proptest! {
        #[test]
        fn either_all_nodes_are_in_order_or_a_real_cycle_is_found(
            (n, edges) in (1_usize..12).prop_flat_map(|n| (Just(n), prop::collection::vec((0..n, 0..n), 0..20)))
        ) {
            let next = graph(n, &edges);
            let order = order(&next);
            let cycles = cycles(&next);
            prop_assert_eq!(order.len() == n, cycles.is_empty());
            let place: Vec<_> = (0..n).map(|i| order.iter().position(|x| *x == i)).collect();
            for (from, to) in &edges {
                if let (Some(a), Some(b)) = (place[*from], place[*to]) {
                    prop_assert!(a < b);
                }
            }
            let closing = closing(&next, vec![n - 1]);
            let mut open = next.clone();
            open.iter_mut().for_each(|edges| edges.retain(|(_, edge)| !closing.contains(edge)));
            prop_assert_eq!(super::order(&open).len(), n);
            // None too many: each is on a cycle with edges that stay.
            for edge in &closing {
                let (from, to) = edges[*edge];
                open[from].push((to, *edge));
                prop_assert!(super::order(&open).len() < n);
                open[from].pop();
            }
            for cycle in cycles {
                prop_assert!(!cycle.is_empty());
                for (i, edge) in cycle.iter().enumerate() {
                    prop_assert_eq!(edges[*edge].1, edges[cycle[(i + 1) % cycle.len()]].0);
                }
            }
        }
    }

    #[test]
    fn chains_stay_together_in_the_order() {
        assert_eq!(order(&graph(4, &[(0, 2), (1, 3)])), [0, 2, 1, 3]);
    }

    #[test]
    fn each_of_two_separate_cycles_is_found() {
        assert_eq!(
            cycles(&graph(5, &[(0, 1), (1, 0), (1, 2), (2, 3), (3, 4), (4, 3)])),
            [vec![0, 1], vec![4, 5]]
        );
    }
}
