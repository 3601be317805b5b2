//! A policy's text with the files that it includes, one behind the other, so that a place in any of
//! them is one number.

use std::collections::HashSet;
use std::path::PathBuf;

use thiserror::Error;

use crate::ast::{Include, Item, Policy};
use crate::catalog::Catalog;
use crate::check::{Checked, check_parsed};
use crate::error::{Errors, PolicyError, PolicyWarning};
use crate::parse::{Counts, MAX_TEXT, Parsed, Parser};
use crate::render;
use crate::span::{Lines, Span};
use crate::why::Why;

/// The most bytes of a policy and all that it includes.
pub const MAX_TEXTS: usize = 10 << 20;
/// The most files that a policy includes, directly or by others.
pub const MAX_FILES: usize = 1000;
/// The most files of which each includes the next.
pub const MAX_INCLUDE_DEPTH: usize = 20;

/// A policy file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// How errors call it, and what paths in its `include`s are relative to.
    pub path: PathBuf,
    /// What identifies the file however it is named: equal for equal files only.
    pub key: PathBuf,
    /// What is in it.
    pub text: String,
}

/// Why an included file cannot be had.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoadError {
    /// The policy is a text without files.
    #[error("there are no files beside this text")]
    NoFiles,
    /// There is none of that name.
    #[error("there is no file {}", path.display())]
    Missing {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// A directory, a device, or the like.
    #[error("{} is not a file", path.display())]
    NotAFile {
        /// What was found.
        path: PathBuf,
    },
    /// It has more than [`MAX_TEXT`] bytes.
    #[error("{} is longer than {MAX_TEXT} bytes", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
    },
    /// It is there.
    #[error("{} cannot be read: {why}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why not.
        why: String,
    },
}

/// Gets included files: this crate itself opens none.
pub trait Loader {
    /// The file that `from` calls `written`. Of one that is longer than [`MAX_TEXT`] a byte more than
    /// that is enough.
    ///
    /// # Errors
    /// Why it cannot be had.
    fn load(&self, from: &Document, written: &str) -> Result<Document, LoadError>;
}

/// For texts that stand alone: every `include` is an error.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoFiles;

impl Loader for NoFiles {
    fn load(&self, _: &Document, _: &str) -> Result<Document, LoadError> {
        Err(LoadError::NoFiles)
    }
}

/// All texts of a policy: what places in its errors are about.
#[derive(Clone, Debug, Default)]
pub struct Texts {
    joined: String,
    files: Vec<File>,
}

#[derive(Clone, Debug)]
struct File {
    name: String,
    /// Where it begins in the joined text.
    start: usize,
    /// The statement that included it.
    included: Option<Span>,
}

impl Texts {
    /// Errors as text, each under the name of the file it stands in: see [`crate::render`].
    #[must_use]
    pub fn render(&self, errors: &[PolicyError]) -> String {
        render::errors(&self.lines(), "", errors)
    }

    /// Warnings as text, in the form of [`Texts::render`].
    #[must_use]
    pub fn render_warnings(&self, warnings: &[PolicyWarning]) -> String {
        render::warnings(&self.lines(), "", warnings)
    }

    /// The files' names, as errors call them, the policy's own first.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.files.iter().map(|file| file.name.as_str())
    }

    /// Everything, the policy's own text first.
    #[must_use]
    pub fn joined(&self) -> &str {
        &self.joined
    }

    fn lines(&self) -> Lines<'_> {
        let mut lines = Lines::new(&self.joined);
        for file in &self.files {
            lines.add_file(file.start, &file.name, file.included);
        }
        lines
    }

    /// Adds a file behind what is there; gives where it begins.
    fn add(&mut self, document: &Document, included: Option<Span>) -> usize {
        if !self.files.is_empty() {
            // Each begins on a line of its own.
            self.joined.push('\n');
        }
        let start = self.joined.len();
        self.joined.push_str(&document.text);
        let name = document.path.display().to_string();
        self.files.push(File { name, start, included });
        start
    }
}

/// A policy that was read with what it includes.
#[derive(Debug)]
pub struct PolicyFiles {
    texts: Texts,
    parsed: Parsed,
}

impl PolicyFiles {
    /// Reads a policy and what it includes. Each file is taken once, where it is included first.
    #[must_use]
    pub fn read(document: &Document, loader: &dyn Loader) -> Self {
        let mut reading = Reading {
            loader,
            texts: Texts::default(),
            errors: Errors::default(),
            lost: HashSet::new(),
            counts: Counts::default(),
            open: Vec::new(),
            seen: HashSet::new(),
            incomplete: false,
        };
        let items = reading.file(document, None);
        let Reading { texts, errors, lost, incomplete, .. } = reading;
        let parsed = Parsed { policy: Policy { items }, errors, lost, incomplete };
        PolicyFiles { texts, parsed }
    }

    /// Its texts.
    #[must_use]
    pub fn texts(&self) -> &Texts {
        &self.texts
    }

    /// What it says, includes replaced by what they stand for, as far as it could be read.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.parsed.policy
    }

    /// Checks it. The errors' places are in its [`Texts`].
    ///
    /// # Errors
    /// As [`crate::check`]; those of an included file stand behind those of the file that includes it.
    pub fn check(self, catalog: &dyn Catalog) -> (Texts, Result<Checked, Vec<PolicyError>>) {
        let PolicyFiles { texts, parsed } = self;
        let checked = check_parsed(parsed, &texts.lines(), catalog);
        (texts, checked)
    }
}

struct Reading<'l> {
    loader: &'l dyn Loader,
    texts: Texts,
    errors: Errors,
    lost: HashSet<String>,
    counts: Counts,
    /// The files that are being read, each included by the one before it.
    open: Vec<(PathBuf, String)>,
    seen: HashSet<PathBuf>,
    /// True when something was not read.
    incomplete: bool,
}

impl Reading<'_> {
    fn file(&mut self, document: &Document, included: Option<Span>) -> Vec<Item> {
        if document.text.len() > MAX_TEXT {
            if included.is_none() {
                // Its name is shown, its text is not.
                self.texts.add(&Document { text: String::new(), ..document.clone() }, None);
            }
            let why = match included {
                Some(_) => Why::Include(LoadError::TooLong { path: document.path.clone() }),
                None => Why::TooLong,
            };
            self.refuse(included.unwrap_or_default(), why);
            self.errors.stop();
            return Vec::new();
        }
        let start = self.texts.add(document, included);
        let mut parser = Parser::within(&self.texts.joined, start);
        parser.errors = std::mem::take(&mut self.errors);
        parser.lost = std::mem::take(&mut self.lost);
        parser.counts = self.counts;
        let policy = parser.policy();
        self.counts = parser.counts;
        self.lost = std::mem::take(&mut parser.lost);
        self.errors = parser.errors;
        let name = document.path.display().to_string();
        self.open.push((document.key.clone(), name));
        self.seen.insert(document.key.clone());
        let mut items = Vec::with_capacity(policy.items.len());
        for item in policy.items {
            match item {
                Item::Include(include) if !self.errors.full() => {
                    items.extend(self.include(&include, document));
                }
                Item::Include(_) => self.incomplete = true,
                item => items.push(item),
            }
        }
        self.open.pop();
        items
    }

    fn include(&mut self, include: &Include, from: &Document) -> Vec<Item> {
        let span = include.path.span;
        let written = &include.path.value;
        let document = match self.loader.load(from, written) {
            Ok(document) => document,
            Err(error) => {
                self.refuse(span, Why::Include(error));
                return Vec::new();
            }
        };
        if let Some(at) = self.open.iter().position(|(key, _)| *key == document.key) {
            let names = self.open.iter().skip(at).map(|(_, name)| name.as_str());
            let mut names: Vec<&str> = names.collect();
            names.extend(names.first().copied());
            let path = names.join(" -> ");
            self.refuse(span, Why::IncludeCycle { path });
            return Vec::new();
        }
        if self.seen.contains(&document.key) {
            return Vec::new();
        }
        if self.open.len() > MAX_INCLUDE_DEPTH {
            self.refuse(span, Why::IncludeDepth);
            return Vec::new();
        }
        let size = self.texts.joined.len().saturating_add(document.text.len());
        if size > MAX_TEXTS || self.seen.len() > MAX_FILES {
            let why = if size > MAX_TEXTS { Why::IncludeSize } else { Why::IncludeCount };
            self.refuse(span, why);
            self.errors.stop();
            return Vec::new();
        }
        self.file(&document, Some(span))
    }

    fn refuse(&mut self, span: Span, why: Why) {
        self.errors.push(span, why);
        self.incomplete = true;
    }
}
