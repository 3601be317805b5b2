//! Policies in several files.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::common::Types;
use proptest::prelude::*;
use weir_plan::{
    Document, LoadError, Loader, MAX_FILES, MAX_INCLUDE_DEPTH, MAX_TEXT, MAX_TEXTS, PolicyFiles,
    check,
};

/// Files in a folder, by name.
struct Folder(BTreeMap<PathBuf, String>);

impl Folder {
    fn new<N: Into<PathBuf>, T: Into<String>>(files: impl IntoIterator<Item = (N, T)>) -> Self {
        Self(files.into_iter().map(|(name, text)| (name.into(), text.into())).collect())
    }

    fn document(&self, path: PathBuf) -> Result<Document, LoadError> {
        let text = self.0.get(&path).cloned();
        let text = text.ok_or_else(|| LoadError::Missing { path: path.clone() })?;
        Ok(Document { key: path.clone(), path, text })
    }

    /// What is said about a policy: its errors, else its warnings.
    fn said(&self, name: &str) -> String {
        let (texts, checked) = self.read(name).check(&Types);
        match checked {
            Ok(checked) => texts.render_warnings(&checked.warnings),
            Err(errors) => {
                for error in &errors {
                    let all = texts.joined();
                    assert!(all.get(error.span.start..error.span.end).is_some(), "{error:?}");
                }
                texts.render(&errors)
            }
        }
    }

    fn read(&self, name: &str) -> PolicyFiles {
        PolicyFiles::read(&self.document(name.into()).unwrap(), self)
    }
}

impl Loader for Folder {
    fn load(&self, from: &Document, written: &str) -> Result<Document, LoadError> {
        self.document(from.path.parent().unwrap_or(Path::new("")).join(written))
    }
}

/// The lines that begin with a file's name.
fn heads(said: &str) -> Vec<&str> {
    said.lines().filter(|line| !line.starts_with(' ')).collect()
}

#[test]
fn an_included_file_s_statements_stand_where_it_is_included() {
    let folder = Folder::new([
        ("a.weir", "include \"sub/ports.weir\";\nMacSwap x;\npipelet { lan -> x -> wan; }"),
        ("sub/ports.weir", "Port<0> lan;\ninclude 'more.weir';"),
        ("sub/more.weir", "Port<1> wan;"),
    ]);
    let source = folder.read("a.weir");
    assert_eq!(
        source.policy().to_string(),
        "Port<0> lan;\nPort<1> wan;\nMacSwap x;\npipelet {\n  lan -> x -> wan;\n}\n"
    );
    let together = check(&source.policy().to_string(), &Types).unwrap();
    assert_eq!(source.check(&Types).1.unwrap().graph, together.graph);
}

#[test]
fn errors_and_warnings_stand_under_the_name_of_their_file() {
    let folder = Folder::new([
        ("a.weir", "include \"b.weir\";\nPort<0> lan;\npipelet { lan -> x -> lan; }\n"),
        ("b.weir", "// b\n  include \"c.weir\";\nPort<1> lan;\n"),
        ("c.weir", "MacSwap x;\nMacSwop y;"),
    ]);
    assert_eq!(
        folder.said("a.weir"),
        "\
a.weir:2:9: error: `lan` is declared in line 3 of b.weir already
 2 | Port<0> lan;
   |         ^^^
   = write another name
c.weir:2:1: error: no NF type is called `MacSwop`
 2 | MacSwop y;
   | ^^^^^^^
   = write `MacSwap`
   > included in b.weir:2:11
   > included in a.weir:1:9
"
    );
    let folder = Folder::new([
        ("a.weir", "include \"b.weir\";\npipelet { lan -> lan; }\n"),
        ("b.weir", "Port<0> lan;\nMacSwap x;\n"),
    ]);
    assert_eq!(
        heads(&folder.said("a.weir")),
        ["b.weir:2:9: warning: `x` is never used and left out"]
    );
}

#[test]
fn a_file_is_taken_once_however_often_it_is_included() {
    let folder = Folder::new([
        (
            "a.weir",
            "include \"b.weir\";\ninclude \"c.weir\"; include \"c.weir\";\npipelet { lan -> lan; }",
        ),
        ("b.weir", "include \"c.weir\";"),
        ("c.weir", "Port<0> lan;"),
    ]);
    assert_eq!(folder.said("a.weir"), "");
}

#[test]
fn a_file_that_includes_itself_is_an_error_that_shows_the_way() {
    let folder = Folder::new([
        ("a.weir", "include \"b.weir\";"),
        ("b.weir", "include \"c.weir\";"),
        ("c.weir", "\n include \"b.weir\";"),
        ("self.weir", "include \"self.weir\";"),
    ]);
    let said = folder.said("a.weir");
    assert_eq!(
        heads(&said),
        ["c.weir:2:10: error: the file includes itself: b.weir -> c.weir -> b.weir"]
    );
    assert_eq!(
        heads(&folder.said("self.weir")),
        ["self.weir:1:9: error: the file includes itself: self.weir -> self.weir"]
    );
}

#[test]
fn what_cannot_be_had_is_an_error_and_what_it_may_declare_is_not() {
    let folder =
        Folder::new([("a.weir", "Port<0> lan;\ninclude \"no.weir\";\npipelet { lan -> x; }\n")]);
    assert_eq!(
        folder.said("a.weir"),
        "\
a.weir:2:9: error: there is no file no.weir
 2 | include \"no.weir\";
   |         ^^^^^^^^^
   = write its name relative to the file that this stands in, or from `/` on
"
    );
    let alone = check("include \"b.weir\"; pipelet { lan -> x; }", &Types).unwrap_err();
    let why: Vec<String> = alone.iter().map(ToString::to_string).collect();
    assert_eq!(why, ["there are no files beside this text; write the included text here"]);
}

#[test]
fn an_include_is_written_with_a_name_in_quotes_and_outside_pipelets() {
    for (text, head) in [
        ("include b.weir;", "a.weir:1:9: error: expected a file's name in quotes, found `b`"),
        ("include \"\";", "a.weir:1:9: error: the file's name is empty"),
        ("include \"b.weir\"", "a.weir:1:17: error: expected `;` here"),
        ("include \"b.weir", "a.weir:1:9: error: this string is never closed"),
        ("pipelet { include \"b.weir\"; }", "a.weir:1:11: error: an `include` stands in a pipelet"),
    ] {
        let folder =
            Folder::new([("a.weir", text), ("b.weir", "Port<0> lan; pipelet { lan -> lan; }")]);
        assert_eq!(heads(&folder.said("a.weir"))[..1], [head]);
    }
}

#[test]
fn depth_count_and_size_have_limits() {
    let chain = |n: usize| {
        let link = |i: usize| (format!("{i}"), format!("include \"{}\";", i + 1));
        let last = (n.to_string(), "Port<0> a; pipelet { a -> a; }".to_owned());
        Folder::new((0..n).map(link).chain([last]))
    };
    assert_eq!(chain(MAX_INCLUDE_DEPTH).said("0"), "");
    let said = chain(MAX_INCLUDE_DEPTH + 1).said("0");
    assert_eq!(heads(&said), ["20:1:9: error: more than 20 files include each the next"]);

    let many = |n: usize| {
        let all: String = (0..n).map(|i| format!("include \"{i}\";\n")).collect();
        let ports = "Port<0> a; pipelet { a -> a; }";
        let parts = (0..n).map(|i| (i.to_string(), String::new()));
        Folder::new(parts.chain([("all".to_owned(), format!("{all}{ports}"))]))
    };
    assert_eq!(many(MAX_FILES).said("all"), "");
    let said = many(MAX_FILES + 1).said("all");
    assert_eq!(heads(&said), ["all:1001:9: error: more than 1000 files are included"]);

    let big = Folder::new([
        ("a", "include \"b\"; include \"c\"; include \"d\";".to_owned()),
        ("b", " ".repeat(MAX_TEXT)),
        ("c", " ".repeat(MAX_TEXT)),
        ("d", " ".repeat(MAX_TEXTS - 2 * MAX_TEXT)),
        ("e", "include \"f\";".to_owned()),
        ("f", " ".repeat(MAX_TEXT + 1)),
    ]);
    let (a, e) = (big.said("a"), big.said("e"));
    assert_eq!(
        heads(&a),
        ["a:1:35: error: with this file the policy has more than 10485760 bytes"]
    );
    assert_eq!(heads(&e), ["e:1:9: error: f is longer than 4194304 bytes"]);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn files_that_include_each_other_anyhow_are_judged_without_a_panic(
        files in prop::collection::vec(prop::collection::vec(0_usize..8, 0..4), 1..6),
        words in prop::collection::vec(prop::sample::select(vec![
            "include", "\"0\"", "'1'", ";", "Port<0> a;", "pipelet {", "}", "a -> a;", "\"", "\n", "Drop", "é",
        ]), 0..12),
    ) {
        let file = |(i, includes): (usize, &Vec<usize>)| {
            let text: String = includes.iter().map(|i| format!("include \"{i}\";\n")).collect();
            (i.to_string(), text + &words.iter().skip(i).copied().collect::<Vec<_>>().join(" "))
        };
        Folder::new(files.iter().enumerate().map(file)).said("0");
    }
}

#[test]
fn addresses_of_an_included_file_that_are_not_used_are_one_warning_for_the_file() {
    let nets: String = (0..9).map(|n| format!("Address n{n} 10.{n}.0.0/16;\n")).collect();
    let folder = Folder::new([
        (
            "a.weir",
            "include \"nets.weir\";\ninclude \"one.weir\";\nAddress mine 10.9.0.0/16;\n\
             Port<0> lan; Port<1> wan; default drop; pipelet { lan [dst net n0] -> wan; }"
                .to_owned(),
        ),
        ("nets.weir", nets),
        ("one.weir", "Address other 10.10.0.0/16;".to_owned()),
    ]);
    let said = folder.said("a.weir");
    assert_eq!(
        heads(&said),
        [
            "a.weir:3:9: warning: `mine` is never used and left out",
            "nets.weir:2:9: warning: of this file's addresses 8 are (`n1`, `n2`, `n3`, ...) never used",
            "one.weir:1:9: warning: of this file's addresses `other` is never used",
        ],
        "{said}"
    );
    assert!(said.contains("= nothing to write if other policies use them"), "{said}");
}

#[test]
fn a_file_that_is_too_long_is_named() {
    let long = " ".repeat(MAX_TEXT + 1);
    let folder = Folder::new([
        ("a.weir", "include \"long.weir\";\nPort<0> lan; pipelet { lan -> lan; }".to_owned()),
        ("long.weir", long),
    ]);
    let said = folder.said("long.weir");
    assert_eq!(heads(&said), ["long.weir:1:1: error: the policy is longer than 4194304 bytes"]);
    let said = folder.said("a.weir");
    assert_eq!(heads(&said), ["a.weir:1:9: error: long.weir is longer than 4194304 bytes"]);
}
