//! Pipelets: edges with their filters and bandwidths.

use super::{MAX_EDGES, Parser, Stop};
use crate::ast::{Chain, Hop, Pipelet, Statement};
use crate::bandwidth::Bandwidth;
use crate::lexer::Kind;
use crate::span::{Span, Spanned};
use crate::why::Why;

impl Parser<'_> {
    pub(super) fn pipelet(&mut self) -> Result<Pipelet, Stop> {
        const FORM: &str = "`pipelet { a -> b; }` or `pipelet name { a -> b; }`";
        self.advance();
        let name = match self.token.kind {
            Kind::Char('{') => None,
            _ => Some(self.name("a name or `{`", FORM)?),
        };
        let open = self.token.span;
        self.char('{', "`{`", FORM)?;
        let mut statements = Vec::new();
        while self.token.kind != Kind::Char('}') {
            if self.token.kind == Kind::End {
                self.error(open, Why::NotClosed("{", "}"));
                return Ok(Pipelet { name, statements });
            }
            // A pipelet that was never closed must not take the declarations that follow it for edges.
            if self.errors.full() || matches!(self.word(), Some("pipelet" | "Port" | "Address")) {
                self.error(open, Why::NotClosed("{", "}"));
                return Ok(Pipelet { name, statements });
            }
            let start = self.token.span;
            match self.statement() {
                Ok(statement) => statements.push(statement),
                Err(Stop) => self.recover(start, true),
            }
        }
        self.advance();
        if self.token.kind == Kind::Char(';') {
            self.advance();
        }
        Ok(Pipelet { name, statements })
    }

    fn statement(&mut self) -> Result<Statement, Stop> {
        const FORM: &str = "`a -> b;` or `a [filter] -> b;`";
        if self.word() == Some("default") {
            return self.default_drop().map(|()| Statement::DefaultDrop);
        }
        if self.word() == Some("first") && self.first_match() {
            return self.semicolon("`first match;`").map(|()| Statement::FirstMatch);
        }
        if self.word() == Some("include") {
            return Err(self.fail(self.token.span, Why::IncludeInside));
        }
        let from = self.name("an edge", FORM)?;
        if let Some(why) = self.word().and_then(|word| super::misspelt(&from.value, word)) {
            return Err(self.fail(from.span.to(self.token.span), why));
        }
        let mut hops = Vec::new();
        while hops.is_empty() || matches!(self.token.kind, Kind::Arrow | Kind::Char('[')) {
            hops.push(self.hop(FORM)?);
            self.counts.edges = self.counts.edges.saturating_add(1);
            if self.counts.edges > MAX_EDGES {
                self.error(self.before, Why::TooManyEdges);
                self.errors.stop();
                return Err(Stop);
            }
        }
        self.semicolon(FORM)?;
        Ok(Statement::Chain(Chain { from, hops }))
    }

    fn hop(&mut self, form: &'static str) -> Result<Hop, Stop> {
        let start = self.token.span;
        let filter_out = self.filter()?;
        if self.token.kind != Kind::Arrow {
            return Err(self.expected("`->`", form));
        }
        self.advance();
        let bandwidth = self.bandwidth()?;
        let filter_in = self.filter()?;
        let to = self.name("a destination", form)?;
        let span = Spanned::new((), start.to(to.span));
        Ok(Hop { filter_out, bandwidth, filter_in, to, span })
    }

    fn filter(&mut self) -> Result<Option<Spanned<String>>, Stop> {
        if self.token.kind != Kind::Char('[') {
            return Ok(None);
        }
        let open = self.token.span;
        self.lexer.seek(open.end);
        let read = self.lexer.filter();
        self.before = open;
        self.token = self.lexer.next();
        let Some((text, span)) = read else {
            return Err(self.fail(open, Why::NotClosed("[", "]")));
        };
        let blanks = text.len().saturating_sub(text.trim_start().len());
        let text = text.trim().to_owned();
        let start = span.start.saturating_add(blanks).min(span.end);
        let span = Span::new(start, start.saturating_add(text.len()));
        Ok(Some(Spanned::new(text, span)))
    }

    fn bandwidth(&mut self) -> Result<Option<Bandwidth>, Stop> {
        if self.token.kind != Kind::Char('(') {
            return Ok(None);
        }
        let open = self.token.span;
        while !matches!(self.token.kind, Kind::Char(')' | ';' | '}') | Kind::End) {
            self.advance();
        }
        if self.token.kind != Kind::Char(')') {
            return Err(self.fail(open, Why::NotClosed("(", ")")));
        }
        let inner = Span::new(open.end, self.token.span.start);
        let written = inner.of(self.text);
        let Some(bandwidth) = Bandwidth::parse(written) else {
            return Err(
                self.fail(open.to(self.token.span), Why::Bandwidth(written.trim().to_owned()))
            );
        };
        self.advance();
        Ok(Some(bandwidth))
    }
}
