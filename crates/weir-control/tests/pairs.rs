//! The table of pairs in the documentation is that of the library.
#![allow(clippy::unwrap_used, missing_docs, reason = "a test that cannot go on has failed")]

use std::path::Path;

use weir_control::library::Library;
use weir_nfs as _;
use weir_plan::{Catalog, pairs_table};

#[test]
fn the_table_of_pairs_in_docs_is_that_of_the_librarys_descriptions() {
    let infos: Vec<_> = Library.types().iter().map(|name| Library.nf(name).unwrap()).collect();
    let table = pairs_table(&infos);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/parallel-pairs.md");
    if std::env::var_os("WEIR_WRITE_DOCS").is_some() {
        std::fs::write(&path, &table).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(written, table, "write it anew with WEIR_WRITE_DOCS=1");
}
