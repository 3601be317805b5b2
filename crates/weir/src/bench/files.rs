//! Files that results are written to.

use super::own;
use super::sample::BenchError;
use serde::Serialize;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Writes a file wholly, or leaves what was there, which has to be an ordinary file: a device or a folder is not written over.
pub fn write_whole(path: &Path, text: &str) -> Result<(), BenchError> {
    let path = leads_to(path);
    let failed = |source| BenchError::Write { path: path.clone(), source };
    let rights = match std::fs::metadata(&path) {
        Ok(about) if !about.is_file() => return Err(BenchError::NotOrdinary(path)),
        Ok(about) => Some(about.permissions()),
        Err(_) => None,
    };
    // Beside it, by a name that nobody can have prepared; it is gone when it could not be written, and Ctrl-C waits for it.
    let _whole = own::uninterrupted();
    let mut part = part_in(path.parent().unwrap_or(Path::new(""))).map_err(failed)?;
    part.write_all(text.as_bytes()).map_err(failed)?;
    if let Some(rights) = rights {
        part.as_file().set_permissions(rights).map_err(failed)?;
    }
    part.persist(&path).map_err(|e| failed(e.error))?;
    Ok(())
}

/// The most links that lead to each other, as the kernel has it.
const LINKS: usize = 40;

/// What a link leads to, also where that is not there yet; of what is no link, itself.
fn leads_to(path: &Path) -> PathBuf {
    if let Ok(path) = std::fs::canonicalize(path) {
        return path;
    }
    let mut path = path.to_owned();
    for _ in 0..LINKS {
        let Ok(to) = std::fs::read_link(&path) else { break };
        path = path.parent().unwrap_or(Path::new("")).join(to);
    }
    path
}

/// Whether a file can be made in a folder: to know it before anything is measured.
pub fn may_write_in(folder: &Path) -> Result<(), BenchError> {
    let failed = |source| BenchError::Write { path: folder.to_owned(), source };
    let _whole = own::uninterrupted();
    part_in(folder).map(drop).map_err(failed)
}

fn part_in(folder: &Path) -> std::io::Result<tempfile::NamedTempFile> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    // Less what the process's mask takes away.
    let usual = std::fs::Permissions::from_mode(0o666);
    tempfile::Builder::new().prefix(".weir-").permissions(usual).tempfile_in(folder)
}

/// Writes results to a file; what is no ordinary one, as a pipe, gets them as they come, and so does whatever stands for one that is open
/// (`/dev/stdout`).
pub fn write_json(path: &Path, results: &impl Serialize) -> Result<(), BenchError> {
    let text = serde_json::to_string_pretty(results).unwrap_or_default();
    let is_open = path.starts_with("/dev") || path.starts_with("/proc");
    match std::fs::metadata(path) {
        Ok(about) if is_open || !about.is_file() => std::fs::write(path, text)
            .map_err(|source| BenchError::Write { path: path.to_owned(), source }),
        _ => write_whole(path, &text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::own::Folder;
    use std::os::unix::fs::{FileTypeExt, symlink};

    #[test]
    fn a_file_is_written_wholly_keeps_its_rights_and_costs_no_other() {
        let folder = Folder::new("weir-whole").unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("page.part"), "somebody's").unwrap();
        std::fs::write(at("page.md"), "old").unwrap();
        let private = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(at("page.md"), private).unwrap();
        // By a link, what it leads to.
        symlink(at("page.md"), at("link")).unwrap();
        write_whole(&at("link"), "new").unwrap();
        write_whole(&at("other"), "new").unwrap();
        // And where that is not there yet.
        symlink("second", at("first")).unwrap();
        symlink("page.new", at("second")).unwrap();
        write_whole(&at("first"), "newest").unwrap();
        let read = |name: &str| std::fs::read_to_string(at(name)).unwrap();
        assert!(at("first").is_symlink() && at("second").is_symlink());
        assert_eq!(read("page.new"), "newest");
        assert_eq!(["page.md", "page.part", "other"].map(read), ["new", "somebody's", "new"]);
        assert!(at("link").is_symlink());
        let mode = |name: &str| std::fs::metadata(at(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode("page.md"), 0o600);
        assert_ne!(mode("other") & 0o444, 0, "as usual, not as temporary files are");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 7, "nothing is left beside");
    }

    #[test]
    fn what_is_no_ordinary_file_is_not_written_over_and_a_pipe_gets_json_as_it_comes() {
        let folder = Folder::new("weir-ordinary").unwrap();
        let pipe = folder.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).unwrap();
        for path in [pipe.as_path(), folder.path()] {
            assert!(matches!(write_whole(path, "new"), Err(BenchError::NotOrdinary(_))));
        }
        let text = "[\n  1,\n  2\n]";
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| std::fs::read_to_string(&pipe).unwrap());
            write_json(&pipe, &[1, 2]).unwrap();
            assert_eq!(reader.join().unwrap(), text);
        });
        assert!(std::fs::metadata(&pipe).unwrap().file_type().is_fifo());
        let json = folder.path().join("a.json");
        write_json(&json, &[1, 2]).unwrap();
        assert_eq!(std::fs::read_to_string(&json).unwrap(), text);
        assert!(may_write_in(folder.path()).is_ok() && may_write_in(&json).is_err());
    }
}
