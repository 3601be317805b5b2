//! The operator's devices against the plan and the file system, before anything runs.

use crate::setup::Setup;
use crate::wiring::WiringError;
use rustix::fd::OwnedFd;
use std::collections::BTreeMap;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weir_capture::{Summary, WriteError};
use weir_device::DeviceSpec;
use weir_plan::{Plan, SegmentKind};
use weir_runtime::spec::EndSpec;

/// What was found out about the captures to read.
pub type Captures = BTreeMap<u16, Summary>;

/// Looks through the captures that are bound.
pub fn scan(binds: &BTreeMap<u16, DeviceSpec>) -> Result<Captures, WiringError> {
    let mut captures = Captures::new();
    for (&port, device) in binds {
        let DeviceSpec::Pcap { rx: Some(path), .. } = device else { continue };
        check_kind(path, false)?;
        let summary = weir_capture::scan(path)
            .map_err(|source| WiringError::Capture { path: path.clone(), source })?;
        let ethernet = summary.link_types.keys().any(|l| l.is_ethernet());
        if summary.records > 0 && !ethernet {
            let found: Vec<_> = summary.link_types.keys().map(ToString::to_string).collect();
            let found = found.join(" and ");
            return Err(WiringError::LinkType { path: path.clone(), found });
        }
        captures.insert(port, summary);
    }
    Ok(captures)
}

/// TAP interfaces by name.
pub type Taps = BTreeMap<String, Arc<OwnedFd>>;

/// Checks that interfaces can be used, and makes those that are to be made.
pub fn open(binds: &BTreeMap<u16, DeviceSpec>) -> Result<Taps, WiringError> {
    let mut taps = Taps::new();
    let mut names = std::collections::BTreeSet::new();
    for (&port, device) in binds {
        let Some(name) = device.interface() else { continue };
        if !names.insert(name) {
            return Err(WiringError::InterfaceTwice { port, name: name.to_owned() });
        }
        weir_device::check(device)?;
        if let DeviceSpec::Tap(name) = device {
            taps.insert(name.clone(), Arc::new(weir_device::create_tap(name)?));
        }
    }
    Ok(taps)
}

/// True when packets come from it.
pub(crate) fn receives(device: &DeviceSpec) -> bool {
    match device {
        DeviceSpec::Pcap { rx, .. } => rx.is_some(),
        DeviceSpec::Generator(_) | DeviceSpec::Listed(_) | DeviceSpec::Replay(_) => true,
        DeviceSpec::Afp(_) | DeviceSpec::Tap(_) => true,
        DeviceSpec::Null => false,
    }
}

/// True when packets go to it.
pub(crate) fn sends(device: &DeviceSpec) -> bool {
    match device {
        DeviceSpec::Pcap { tx, .. } => tx.is_some(),
        DeviceSpec::Null | DeviceSpec::Afp(_) | DeviceSpec::Tap(_) => true,
        DeviceSpec::Generator(_) | DeviceSpec::Listed(_) | DeviceSpec::Replay(_) => false,
    }
}

/// The output that is the same file as `path`, if any: what is read must not be written over.
pub fn written_over<'b>(binds: &'b BTreeMap<u16, DeviceSpec>, path: &Path) -> Option<&'b Path> {
    let outputs = binds.values().filter_map(|d| match d {
        DeviceSpec::Pcap { tx: Some(tx), .. } => Some(tx.as_path()),
        _ => None,
    });
    let id = FileId::of(path);
    outputs.into_iter().find(|tx| FileId::of(tx) == id)
}

/// True when both names lead to one file.
pub fn is_same(one: &Path, other: &Path) -> bool {
    FileId::of(one) == FileId::of(other)
}

/// Checks that files which nothing is bound to can be written: no other file of the run, no pipe.
pub(crate) fn check_outputs<'p>(
    binds: &BTreeMap<u16, DeviceSpec>,
    outputs: impl Iterator<Item = &'p Path>,
) -> Result<(), WiringError> {
    let bound = binds.values().filter_map(|device| match device {
        DeviceSpec::Pcap { rx, tx } => Some([rx.as_deref(), tx.as_deref()]),
        _ => None,
    });
    let mut files: std::collections::BTreeSet<_> =
        bound.flatten().flatten().map(FileId::of).collect();
    for path in outputs {
        check_kind(path, true)?;
        if !files.insert(FileId::of(path)) {
            return Err(WiringError::SameFile(path.to_owned()));
        }
    }
    Ok(())
}

/// Checks that all files a run is to write can be written, by nobody else. They are left as they are.
pub fn check_writable(setup: &Setup) -> Result<(), WiringError> {
    let bound = setup.workers.iter().filter_map(|worker| match &worker.end {
        EndSpec::Tx { device: DeviceSpec::Pcap { tx: Some(path), .. }, .. } => Some(path.as_path()),
        _ => None,
    });
    for path in bound.chain(crate::dumps::files(&setup.workers)) {
        weir_capture::check_writable(path).map_err(|error| {
            let path = path.to_owned();
            match error {
                WriteError::Io(source) => WiringError::NotWritable { path, source },
                source => WiringError::Output { path, source },
            }
        })?;
    }
    Ok(())
}

/// Checks what the operator bound against the plan and the file system.
pub(crate) fn check_binds(
    plan: &Plan,
    binds: &BTreeMap<u16, DeviceSpec>,
) -> Result<(), WiringError> {
    let ports = |rx: bool| {
        plan.segments.iter().filter_map(move |s| match s.kind {
            SegmentKind::Rx { port, .. } if rx => Some(port),
            SegmentKind::Tx { port } if !rx => Some(port),
            _ => None,
        })
    };
    let mut files: BTreeMap<FileId, bool> = BTreeMap::new();
    for (&port, device) in binds {
        if plan.graph.port(port).is_none() {
            let all: std::collections::BTreeSet<u16> = ports(true).chain(ports(false)).collect();
            let has: Vec<_> = all.iter().map(u16::to_string).collect();
            return Err(WiringError::NoSuchPort { port, has: has.join(", ") });
        }
        // A live device may be used for one direction only.
        let live = device.interface().is_some();
        if receives(device) && !live && !ports(true).any(|p| p == port) {
            let what = "has no edge that begins at";
            return Err(WiringError::Direction { port, what });
        }
        if matches!(device, DeviceSpec::Pcap { tx: Some(_), .. })
            && !ports(false).any(|p| p == port)
        {
            let what = "sends nothing to";
            return Err(WiringError::Direction { port, what });
        }
        if let DeviceSpec::Pcap { rx, tx } = device {
            for (path, output) in [(rx, false), (tx, true)] {
                let Some(path) = path else { continue };
                check_kind(path, output)?;
                let before = files.insert(FileId::of(path), output);
                if before.is_some_and(|b| b || output) {
                    return Err(WiringError::SameFile(path.clone()));
                }
            }
        }
    }
    Ok(())
}

/// Ways of live interfaces that the policy does not use, a sentence each. A port may be for one direction only; but who
/// forgets the way back waits for answers that nobody passes on, and sees nothing wrong.
pub fn unused_ways(plan: &Plan, binds: &BTreeMap<u16, DeviceSpec>) -> Vec<String> {
    let is_used = |wanted: u16, rx: bool| {
        plan.segments.iter().any(|segment| match segment.kind {
            SegmentKind::Rx { port, .. } => rx && port == wanted,
            SegmentKind::Tx { port } => !rx && port == wanted,
            _ => false,
        })
    };
    let mut said = Vec::new();
    for (&port, device) in binds {
        let Some(interface) = device.interface() else { continue };
        let node = plan.graph.port(port).and_then(|id| plan.graph.node(id));
        let name = node.map_or("", |node| node.name.as_str());
        if !is_used(port, true) {
            said.push(format!(
                "--bind {port}=...: no edge begins at port {port} (`{name}`): nothing that comes in by {interface} is \
                 taken; if it has answers, add an edge `{name} -> ...` for their way back"
            ));
        }
        if !is_used(port, false) {
            said.push(format!(
                "--bind {port}=...: no edge leads to port {port} (`{name}`): nothing leaves by {interface}, answers \
                 neither; if there are to be some, add an edge `... -> {name}`"
            ));
        }
    }
    said
}

/// What tells files apart, whatever names they have: symbolic and hard links lead to the same one.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum FileId {
    /// One that exists, by device and inode.
    There(u64, u64),
    /// One that does not exist yet, by folder and name.
    ToBe(PathBuf),
}

impl FileId {
    fn of(path: &Path) -> Self {
        if let Ok(found) = std::fs::metadata(path) {
            return FileId::There(found.dev(), found.ino());
        }
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        match (std::fs::canonicalize(folder), path.file_name()) {
            (Ok(folder), Some(name)) => FileId::ToBe(folder.join(name)),
            _ => FileId::ToBe(path.to_owned()),
        }
    }
}

/// Opening a pipe waits for its other end, perhaps for ever; a capture needs a file.
fn check_kind(path: &Path, output: bool) -> Result<(), WiringError> {
    let bad = |what| WiringError::File { path: path.to_owned(), what };
    match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => Err(bad("it is a folder; name a file")),
        Ok(found) if found.file_type().is_fifo() || found.file_type().is_socket() => {
            Err(bad("it is a pipe or a socket; name a file"))
        }
        Ok(_) => Ok(()),
        Err(_) if !output => Ok(()), // reading it will say why
        Err(_) => {
            let folder = path.parent().filter(|p| !p.as_os_str().is_empty());
            match folder {
                Some(folder) if !folder.is_dir() => {
                    Err(bad("its folder is not there; make it, or name another"))
                }
                _ => Ok(()),
            }
        }
    }
}
