//! Tokens to a [`Policy`]. After an error it goes on behind the statement, so that one pass shows
//! all errors.

mod pipelet;

use std::collections::HashSet;

use crate::ast::{AddressDecl, Include, InstanceDecl, Item, Policy, PortDecl};
use crate::config::MAX_CONFIG_DEPTH;
use crate::error::{Errors, PolicyError};
use crate::lexer::{Kind, Lexer, Token};
use crate::nearest::nearest;
use crate::span::{Name, Span, Spanned};
use crate::why::Why;

/// The longest policy text, in bytes.
pub const MAX_TEXT: usize = 4 << 20;
/// The longest name, in bytes.
pub const MAX_NAME: usize = 64;
/// The most edges of a policy.
pub const MAX_EDGES: usize = 100_000;
/// The most declarations of a policy.
pub const MAX_DECLARATIONS: usize = 100_000;

/// Reads a policy. What could be understood is given together with all errors.
#[must_use]
pub fn parse(text: &str) -> (Policy, Vec<PolicyError>) {
    let parsed = parse_all(text);
    (parsed.policy, parsed.errors.into_list())
}

/// What could be read of a policy.
#[derive(Debug, Default)]
pub(crate) struct Parsed {
    pub(crate) policy: Policy,
    pub(crate) errors: Errors,
    /// The names in declarations that could not be read: that they are unknown is no second error.
    pub(crate) lost: HashSet<String>,
    /// True when an included file is missing, so that what is unknown may be in it.
    pub(crate) incomplete: bool,
}

/// What there is at most of in a policy.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    edges: usize,
    declarations: usize,
}

pub(crate) fn parse_all(text: &str) -> Parsed {
    if text.len() > MAX_TEXT {
        let mut parsed = Parsed::default();
        parsed.errors.push(Span::default(), Why::TooLong);
        parsed.errors.stop();
        return parsed;
    }
    let mut parser = Parser::new(text);
    let policy = parser.policy();
    Parsed { policy, errors: parser.errors, lost: parser.lost, incomplete: false }
}

/// The statement that these two words were meant to be: they may as well be an NF's type and name.
pub(crate) fn misspelt(first: &str, second: &str) -> Option<Why> {
    let written = format!("{first} {second}");
    let form = match nearest(&written, ["first match", "default drop"])?.as_str() {
        "first match" => "`first match;`",
        _ => "`default drop;`",
    };
    Some(Why::Misspelt { written, form })
}

/// The statement cannot be read on; the error has been noted.
pub(crate) struct Stop;

pub(crate) struct Parser<'a> {
    pub(crate) text: &'a str,
    lexer: Lexer<'a>,
    /// The token that is looked at.
    pub(crate) token: Token,
    /// Where the token before it stands.
    pub(crate) before: Span,
    pub(crate) errors: Errors,
    pub(crate) lost: HashSet<String>,
    pub(crate) counts: Counts,
}

impl<'a> Parser<'a> {
    /// A parser that looks at the first token of `text`.
    pub(crate) fn new(text: &'a str) -> Self {
        Self::within(text, 0)
    }

    /// A parser that looks at the first token behind byte `start`, a character boundary.
    pub(crate) fn within(text: &'a str, start: usize) -> Self {
        let mut lexer = Lexer::new(text, start);
        let token = lexer.next();
        let (before, errors, lost) = (Span::default(), Errors::default(), HashSet::new());
        Parser { text, lexer, token, before, errors, lost, counts: Counts::default() }
    }
}

impl Parser<'_> {
    /// What was wrong with the text so far.
    pub(crate) fn into_errors(self) -> Errors {
        self.errors
    }

    pub(crate) fn advance(&mut self) {
        self.before = self.token.span;
        self.token = self.lexer.next();
    }

    pub(crate) fn error(&mut self, span: Span, why: Why) {
        self.errors.push(span, why);
    }

    pub(crate) fn fail(&mut self, span: Span, why: Why) -> Stop {
        self.error(span, why);
        Stop
    }

    /// `wanted` should stand where the token is.
    pub(crate) fn expected(&mut self, wanted: &'static str, instead: &'static str) -> Stop {
        let span = self.token.span;
        let why = match self.token.kind {
            Kind::OpenComment => Why::NotClosed("/*", "*/"),
            Kind::OpenText => Why::OpenText,
            Kind::Ellipsis => Why::Ellipsis,
            Kind::End => Why::Expected { wanted, found: "the end".to_owned(), instead },
            _ => Why::Expected { wanted, found: format!("`{}`", span.of(self.text)), instead },
        };
        self.fail(span, why)
    }

    fn word(&self) -> Option<&str> {
        (self.token.kind == Kind::Name).then(|| self.token.span.of(self.text))
    }

    fn char(&mut self, c: char, wanted: &'static str, instead: &'static str) -> Result<(), Stop> {
        if self.token.kind == Kind::Char(c) {
            self.advance();
            return Ok(());
        }
        Err(self.expected(wanted, instead))
    }

    fn semicolon(&mut self, instead: &'static str) -> Result<(), Stop> {
        if self.token.kind == Kind::Char(';') {
            self.advance();
            return Ok(());
        }
        if matches!(self.token.kind, Kind::OpenComment | Kind::OpenText | Kind::Ellipsis) {
            return Err(self.expected("`;`", instead));
        }
        // Noted behind what it should end, where it is to be written.
        let span = Span::new(self.before.end, self.before.end);
        let stop = self.fail(span, Why::NoSemicolon { instead });
        // On a new line a new statement begins, which is to be read too.
        if self.first_in_line() { Ok(()) } else { Err(stop) }
    }

    fn name(&mut self, wanted: &'static str, instead: &'static str) -> Result<Name, Stop> {
        let Some(word) = self.word() else {
            return Err(self.expected(wanted, instead));
        };
        let name = Spanned::new(word.to_owned(), self.token.span);
        self.advance();
        if name.value.len() > MAX_NAME {
            return Err(self.fail(name.span, Why::NameTooLong { len: name.value.len() }));
        }
        Ok(name)
    }

    pub(crate) fn policy(&mut self) -> Policy {
        let mut policy = Policy::default();
        while self.token.kind != Kind::End && !self.errors.full() {
            self.counts.declarations = self.counts.declarations.saturating_add(1);
            if self.counts.declarations > MAX_DECLARATIONS {
                self.error(self.token.span, Why::TooManyDeclarations);
                self.errors.stop();
                break;
            }
            let start = self.token.span;
            match self.item() {
                Ok(item) => policy.items.push(item),
                Err(Stop) => self.recover(start, false),
            }
        }
        policy
    }

    /// Goes on behind the statement that begins at `start`: behind its `;`, or behind its braces.
    /// In a pipelet (`inside`) the closing brace ends the search and stays.
    fn recover(&mut self, start: Span, inside: bool) {
        self.lexer.seek(start.start);
        self.advance();
        let mut depth = 0_usize;
        loop {
            if let Some(word) = self.word()
                && !inside
            {
                let word = word.to_owned();
                self.lost.insert(word);
            }
            match self.token.kind {
                Kind::End => return,
                Kind::Char(';') if depth == 0 => {
                    self.advance();
                    return;
                }
                // The next statement most likely: rather an error too few than a policy swallowed.
                Kind::Name
                    if self.token.span.start > start.start
                        && (depth == 0 || self.first_in_line())
                        && matches!(self.word(), Some("pipelet" | "Port" | "Address")) =>
                {
                    return;
                }
                Kind::Char('{') => depth = depth.saturating_add(1),
                Kind::Char('}') if depth == 0 && inside => return,
                Kind::Char('}') => {
                    depth = depth.saturating_sub(1);
                    if depth == 0 && !inside {
                        self.advance();
                        if self.token.kind == Kind::Char(';') {
                            self.advance();
                        }
                        return;
                    }
                }
                _ => {}
            }
            self.advance();
        }
    }

    /// True when a line ends between the token before and this one.
    fn first_in_line(&self) -> bool {
        Span::new(self.before.end, self.token.span.start).of(self.text).contains('\n')
    }

    fn item(&mut self) -> Result<Item, Stop> {
        if self.word() == Some("first") && self.first_match() {
            return self.semicolon("`first match;`").map(|()| Item::FirstMatch);
        }
        match self.word() {
            Some("pipelet") => self.pipelet().map(Item::Pipelet),
            Some("default") => self.default_drop().map(|()| Item::DefaultDrop),
            Some("Port") => self.port().map(Item::Port),
            Some("Address") => self.address().map(Item::Address),
            Some("include") => self.include().map(Item::Include),
            Some(_) => self.instance().map(Item::Instance),
            None => Err(self.expected(
                "a statement",
                "`Type name;`, `Port<0> name;`, `Address name 10.0.0.0/8;`, `pipelet { ... }`, `include \"file\";`, `default drop;` or `first match;`",
            )),
        }
    }

    fn include(&mut self) -> Result<Include, Stop> {
        const FORM: &str = "`include \"file\";`";
        self.advance();
        if self.token.kind != Kind::Text {
            return Err(self.expected("a file's name in quotes", FORM));
        }
        let span = self.token.span;
        let path = Spanned::new(self.string()?, span);
        if path.value.is_empty() {
            return Err(self.fail(span, Why::NoFileName));
        }
        self.semicolon(FORM)?;
        Ok(Include { path })
    }

    fn default_drop(&mut self) -> Result<(), Stop> {
        self.advance();
        if self.word() != Some("drop") {
            return Err(self.expected("`drop`", "`default drop;`"));
        }
        self.advance();
        self.semicolon("`default drop;`")
    }

    /// Takes the words `first match`; false when `first` is a name.
    fn first_match(&mut self) -> bool {
        let mut ahead = self.lexer.clone();
        let next = ahead.next();
        let found = next.span.of(self.text) == "match";
        if found {
            self.advance();
            self.advance();
        }
        found
    }

    fn port(&mut self) -> Result<PortDecl, Stop> {
        const FORM: &str = "`Port<0> name;` or `Port<0-7> name;`";
        self.advance();
        self.char('<', "`<`", FORM)?;
        let first = self.port_number()?;
        let mut numbers = self.before;
        let mut last = first;
        if self.token.kind == Kind::Char('-') {
            self.advance();
            last = self.port_number()?;
            numbers = numbers.to(self.before);
        }
        self.char('>', "`>`", FORM)?;
        let name = self.name("a name", FORM)?;
        self.semicolon(FORM)?;
        if first > last {
            return Err(self.fail(numbers, Why::PortRange { first, last }));
        }
        Ok(PortDecl { name, first, last, numbers: Spanned::new((), numbers) })
    }

    fn port_number(&mut self) -> Result<u16, Stop> {
        let written = self.token.span.of(self.text);
        let digits = self.token.kind == Kind::Number && written.chars().all(|c| c.is_ascii_digit());
        match written.parse() {
            Ok(number) if digits => {
                self.advance();
                Ok(number)
            }
            _ => Err(self.expected("a port number", "a number from 0 to 65535")),
        }
    }

    fn address(&mut self) -> Result<AddressDecl, Stop> {
        const FORM: &str = "`Address name 10.0.0.0/8;` or `Address name 2001:db8::/32;`";
        self.advance();
        let name = self.name("a name", FORM)?;
        // An address is no token: it is read again as one word.
        self.lexer.seek(self.token.span.start);
        let span = self.lexer.word();
        if span.start == span.end {
            self.token = self.lexer.next();
            return Err(self.expected("an address", FORM));
        }
        let value = Spanned::new(span.of(self.text).to_owned(), span);
        self.token = self.lexer.next();
        self.before = span;
        self.semicolon(FORM)?;
        Ok(AddressDecl { name, value })
    }

    fn instance(&mut self) -> Result<InstanceDecl, Stop> {
        const FORM: &str = "`Type name;` or `Type name { key: value };`";
        let type_name = self.name("an NF type", FORM)?;
        if matches!(self.token.kind, Kind::Arrow | Kind::Char('[')) {
            return Err(self.fail(type_name.span.to(self.token.span), Why::EdgeOutside));
        }
        self.not_misspelt(&type_name)?;
        let name = self.name("an instance's name", FORM)?;
        self.not_misspelt(&type_name)?;
        let config = match self.token.kind {
            Kind::Char('{') => Some(self.config(MAX_CONFIG_DEPTH)?),
            _ => None,
        };
        self.semicolon(FORM)?;
        Ok(InstanceDecl { type_name, name, config })
    }

    /// Refuses what no instance goes on with, where the first word is nearly that of a statement which does.
    fn not_misspelt(&mut self, first: &Name) -> Result<(), Stop> {
        let form = match self.token.kind {
            Kind::Char('<') => Some(("Port", "`Port<0> name;` or `Port<0-7> name;`")),
            Kind::Text | Kind::OpenText => Some(("include", "`include \"file\";`")),
            Kind::Number => Some(("Address", "`Address name 10.0.0.0/8;`")),
            Kind::Char('{') => {
                let mut ahead = self.lexer.clone();
                let edge = ahead.next().kind == Kind::Name
                    && matches!(ahead.next().kind, Kind::Arrow | Kind::Char('['));
                edge.then_some(("pipelet", "`pipelet { a -> b; }` or `pipelet name { a -> b; }`"))
            }
            _ => None,
        };
        match form.filter(|(word, _)| nearest(&first.value, [*word]).is_some()) {
            Some((_, form)) => {
                let why = Why::Misspelt { written: first.value.clone(), form };
                Err(self.fail(first.span, why))
            }
            None => Ok(()),
        }
    }
}
