//! Files that results are written to.

use super::own;
use super::sample::BenchError;
use rustix::fs::OFlags;
use rustix::io::Errno;
use serde::Serialize;
use std::io::{Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Writes a file wholly, or leaves what was there, which has to be an ordinary file: a device or a folder is not written over.
pub fn write_whole(path: &Path, text: &str) -> Result<(), BenchError> {
    let path = leads_to(path)?;
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
fn leads_to(path: &Path) -> Result<PathBuf, BenchError> {
    if let Ok(path) = std::fs::canonicalize(path) {
        return Ok(path);
    }
    let mut at = path.to_owned();
    for _ in 0..LINKS {
        let Ok(to) = std::fs::read_link(&at) else { return Ok(at) };
        at = at.parent().unwrap_or(Path::new("")).join(to);
    }
    Err(BenchError::Write { path: path.to_owned(), source: Errno::LOOP.into() })
}

/// What an ordinary file has, which is `most` bytes at most: a device or a pipe has no end, and of what the kernel makes up as it is read nobody
/// knows how much it is.
pub fn read_whole(path: &Path, most: u64) -> Result<Vec<u8>, BenchError> {
    let failed = |source| BenchError::Read { path: path.to_owned(), source };
    let waits_for_nobody = OFlags::NONBLOCK.bits().cast_signed();
    let open = std::fs::OpenOptions::new().read(true).custom_flags(waits_for_nobody).open(path);
    let file = open.map_err(failed)?;
    let about = file.metadata().map_err(failed)?;
    let mut bytes = Vec::new();
    if about.is_file() && about.len() <= most {
        file.take(most + 1).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() as u64 <= most {
            return Ok(bytes);
        }
    }
    Err(BenchError::NoFile { path: path.to_owned(), most })
}

/// What is there and is no ordinary file is not written over: to know it before anything is measured.
pub fn may_write(path: &Path) -> Result<(), BenchError> {
    let path = leads_to(path)?;
    match std::fs::metadata(&path) {
        Ok(about) if !about.is_file() => Err(BenchError::NotOrdinary(path)),
        _ => Ok(()),
    }
}

/// Removes what may not be there.
pub fn remove(path: &Path) -> Result<(), BenchError> {
    match std::fs::remove_file(path) {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
            Err(BenchError::Write { path: path.to_owned(), source })
        }
        _ => Ok(()),
    }
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
        // One that leads to itself leads nowhere, and stays.
        symlink("ring", at("ring")).unwrap();
        assert!(matches!(write_whole(&at("ring"), "new"), Err(BenchError::Write { .. })));
        assert!(at("ring").is_symlink() && may_write(&at("ring")).is_err());
        std::fs::remove_file(at("ring")).unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 7, "nothing is left beside");
    }

    #[test]
    fn what_has_no_end_or_is_too_long_is_not_read() {
        let folder = Folder::new("weir-read").unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("file"), "1234").unwrap();
        assert_eq!(read_whole(&at("file"), 4).unwrap(), b"1234");
        rustix::fs::mkfifoat(rustix::fs::CWD, at("pipe"), rustix::fs::Mode::RWXU).unwrap();
        symlink("/dev/zero", at("zero")).unwrap();
        // Of it the kernel says that it has no bytes.
        symlink("/proc/self/status", at("status")).unwrap();
        for name in ["pipe", "zero", "status"] {
            assert!(matches!(read_whole(&at(name), 4), Err(BenchError::NoFile { .. })), "{name}");
            let is_file = std::fs::metadata(at(name)).unwrap().is_file();
            assert_eq!(may_write(&at(name)).is_ok(), is_file, "{name}");
        }
        assert!(matches!(read_whole(&at("file"), 3), Err(BenchError::NoFile { .. })));
        assert!(matches!(read_whole(&at("gone"), 3), Err(BenchError::Read { .. })));
        remove(&at("file")).unwrap();
        remove(&at("file")).unwrap();
        assert!(remove(folder.path()).is_err());
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
