//! Policy files and those that they include.

use crate::known;
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
        let failed = |source: &std::io::Error| {
            let path = path.clone();
            match source.kind() {
                std::io::ErrorKind::NotFound => LoadError::Missing { path },
                std::io::ErrorKind::InvalidData => {
                    LoadError::Unreadable { path, why: "it is not UTF-8".to_owned() }
                }
                _ => LoadError::Unreadable { path, why: source.to_string() },
            }
        };
        // Opening a pipe would wait for whoever writes into it.
        if !fs::metadata(&path).map_err(|e| failed(&e))?.is_file() {
            return Err(LoadError::NotAFile { path });
        }
        let key: PathBuf = fs::canonicalize(&path).map_err(|e| failed(&e))?;
        let text = known::text(&path).map_err(|e| failed(&e))?;
        Ok(Document { path, key, text })
    }
}
