//! Policy files and those that they include.

use crate::known::{self, TextError};
use crate::policy::PolicyFailure;
use std::fs;
use std::path::{Path, PathBuf};
use weir_plan::{Document, LoadError, Loader};

/// A policy's own file, which may be a pipe.
pub fn document(path: &Path) -> Result<Document, PolicyFailure> {
    let text = known::read_text(path)?;
    // A pipe has no other name; nobody includes it.
    let key = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    Ok(Document { path: path.to_owned(), key, text })
}

/// Includes from the file system, relative to the file that includes.
pub struct Files;

impl Loader for Files {
    fn load(&self, from: &Document, written: &str) -> Result<Document, LoadError> {
        let path = from.path.parent().unwrap_or(Path::new("")).join(written);
        let failed = |error: TextError| {
            let path = path.clone();
            match error {
                TextError::NotAFile(_) => LoadError::NotAFile { path },
                TextError::Io(source) if source.kind() == std::io::ErrorKind::NotFound => {
                    LoadError::Missing { path }
                }
                error => LoadError::Unreadable { path, why: error.to_string() },
            }
        };
        let text = known::text(&path, false).map_err(failed)?;
        let key: PathBuf = fs::canonicalize(&path).map_err(|e| failed(e.into()))?;
        Ok(Document { path, key, text })
    }
}
