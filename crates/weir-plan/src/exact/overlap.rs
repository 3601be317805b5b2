//! Ways that meet: told apart by their pipelets' traffic, else reported.

use weir_filter::Expr;
use weir_logic::{Class, Reason, Spent, Verdict};

use super::{Added, Judge, Judgement, Meetings};
use crate::edges::Link;
use crate::error::PolicyWarning;
use crate::remedy::{self, NoClass};
use crate::span::Line;
use crate::warning::Warning;
use crate::why::Why;

impl Judge<'_, '_> {
    /// Adds the classes of their pipelets to the ways that meet. What meets all the same is an error.
    pub(super) fn remedy(&mut self, meetings: Meetings, judgement: &mut Judgement) {
        let upstream = self.classes.upstream(self.index);
        let mut others: Vec<Vec<usize>> = vec![Vec::new(); self.ways.len()];
        // What one pipelet says twice is a mistake without any merging; the others can still be helped.
        for &(a, b) in meetings.pairs.iter().filter(|pair| !self.in_one_pipelet(**pair)) {
            for (at, other) in [(a, b), (b, a)] {
                if let Some(list) = others.get_mut(at) {
                    list.push(other);
                }
            }
        }
        let class = |(at, others): (usize, &Vec<usize>)| {
            let way = self.ways.get(at).filter(|_| !others.is_empty() && !meetings.cut)?;
            let others: Vec<&Link> =
                others.iter().filter_map(|other| self.ways.get(*other)).map(|w| w.link).collect();
            Some(self.classes.of(way.link, &others, &upstream))
        };
        let added: Vec<Option<Result<remedy::Class, NoClass>>> =
            others.iter().enumerate().map(class).collect();
        let before: Vec<Option<Expr>> = self.ways.iter().map(|way| way.filter.clone()).collect();
        for (way, class) in self.ways.iter_mut().zip(&added) {
            if let Some(Ok(class)) = class {
                let filter = way.filter.take().unwrap_or(Expr::True);
                way.filter = Some(remedy::and(class.expr.clone(), filter));
            }
        }
        let domain = self.domain;
        let helps = added.iter().any(|class| matches!(class, Some(Ok(_))));
        let mut left = Meetings { pairs: Vec::new(), cut: meetings.cut };
        if helps {
            self.set_domain();
            left = self.meetings();
        } else {
            left.pairs.clone_from(&meetings.pairs);
        }
        if !left.pairs.is_empty() {
            self.overlaps(&left, before, domain, &added);
            return;
        }
        let mut other: Vec<Option<usize>> = vec![None; self.ways.len()];
        for &(a, b) in &meetings.pairs {
            for (at, one) in [(a, b), (b, a)] {
                if let Some(first) = other.get_mut(at) {
                    first.get_or_insert(one);
                }
            }
        }
        for (((at, way), class), other) in self.ways.iter().enumerate().zip(added).zip(other) {
            let (Some(Ok(class)), Some(filter)) = (class, &way.filter) else {
                continue;
            };
            judgement.added.push(Added { link: way.place, filter: filter.clone() });
            let line = self.line(other.unwrap_or(at), at);
            let why = match class.entered {
                None => Warning::ClassAdded { class: remedy::bracketed(&class.expr), line },
                Some((entries, writer)) => {
                    let entries = entries
                        .into_iter()
                        .map(|link| self.classes.line(link, way.link.span.start))
                        .collect();
                    Warning::EntryAdded { entries, line, writer }
                }
            };
            judgement.notes.push(PolicyWarning { span: way.link.span, why });
        }
    }

    /// Reports what meets in spite of the classes that were added, with an example that suits the
    /// filters as they were `before`: those are what the user sees.
    fn overlaps(
        &mut self,
        left: &Meetings,
        before: Vec<Option<Expr>>,
        domain: Option<Class>,
        added: &[Option<Result<remedy::Class, NoClass>>],
    ) {
        let limited = self.domain;
        let mut filters = before;
        let mut reported = 0_usize;
        for &pair in &left.pairs {
            if self.errors.full() {
                return;
            }
            if self.disjoint(pair).is_empty() {
                continue;
            }
            self.swap(&mut filters);
            self.domain = domain;
            let verdict = self.disjoint(pair);
            self.swap(&mut filters);
            self.domain = limited;
            let failed = |at: usize| match added.get(at) {
                Some(Some(Err(why))) => Some(why.clone()),
                _ => None,
            };
            let class = match self.in_one_pipelet(pair) {
                true => None,
                false => failed(pair.1)
                    .or_else(|| failed(pair.0))
                    .or_else(|| (!left.cut).then_some(NoClass::Common)),
            };
            self.overlap(pair, verdict, class);
            reported = reported.saturating_add(1);
        }
        if let (0, true, Some(pair)) = (reported, left.cut, left.pairs.last()) {
            self.overlap(*pair, Verdict::Unknown(Reason::Spent(Spent::Steps)), None);
        }
        // What is left to say of the node is said of its filters as they were written.
        self.swap(&mut filters);
        self.domain = domain;
    }

    fn swap(&mut self, filters: &mut [Option<Expr>]) {
        for (way, filter) in self.ways.iter_mut().zip(filters) {
            std::mem::swap(&mut way.filter, filter);
        }
    }

    /// The line of one way, named beside another.
    fn line(&self, at: usize, beside: usize) -> Line {
        let start = |at: usize| self.ways.get(at).map_or(0, |way| way.link.span.start);
        self.declared.lines.line_beside(start(at), start(beside))
    }

    fn overlap(&mut self, (a, b): (usize, usize), verdict: Verdict, class: Option<NoClass>) {
        let line = self.line(a, b);
        let upstream = self.classes.upstream(self.index);
        let port = match self.in_one_pipelet((a, b)) {
            true => self.classes.one_of_several(&upstream),
            false => None,
        };
        let why = match verdict {
            Verdict::Empty => return,
            Verdict::Example(example) => Why::Overlap { line, example, class, port },
            Verdict::Unknown(reason) => Why::PerhapsOverlap { line, reason },
        };
        let span = self.ways.get(b).map_or(self.span, |way| way.link.span);
        self.errors.push(span, why);
    }
}
