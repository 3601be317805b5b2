//! Workers that write what others drop into captures, and the lanes to them.

use crate::setup::{LaneCarries, LaneSetup, WorkerSetup};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use weir_runtime::spec::{DumpSpec, EndSpec, NodeSpec, ScheduleSpec};

/// Adds a dump worker for each trust domain that has workers which may drop, and from each of those a
/// lane for each source that reaches it, behind all its other lanes. `ports` are the policy's that
/// devices are bound to.
pub(crate) fn add(
    file: &Path,
    ports: Vec<(u16, String)>,
    schedule: ScheduleSpec,
    domains: &[String],
    workers: &mut Vec<WorkerSetup>,
    lanes: &mut Vec<LaneSetup>,
) {
    let others = workers.len();
    for (d, domain) in domains.iter().enumerate() {
        let (to, mut droppers) = (workers.len(), Vec::new());
        for (from, worker) in workers.iter().enumerate().take(others) {
            // A Tx service gives no packet on: what its device refuses is counted, not written.
            // Nor does a branch: it says so to the sync port.
            let gives = !matches!(worker.end, EndSpec::Tx { .. }) && !worker.branch;
            if worker.takes_from != d || !gives {
                continue;
            }
            let names = match worker.end {
                EndSpec::None => worker.nodes.iter().map(|n| n.name.clone()).collect(),
                _ => vec![worker.name.clone()],
            };
            for source in sources(from, worker, lanes) {
                let edge = worker.edges.len() as u16;
                let (ordered, node, input) = (false, 0, 0);
                lanes.push(LaneSetup {
                    from,
                    to,
                    source,
                    edge,
                    ordered,
                    closes: false,
                    side: 0,
                    back: false,
                    node,
                    input,
                    carries: LaneCarries::Packets,
                });
                droppers.push(names.clone());
            }
        }
        if droppers.is_empty() {
            continue;
        }
        let path = file_of(file, domain);
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let name = format!("dump:{name}");
        let nodes = vec![NodeSpec {
            name: name.clone(),
            nf: None,
            outputs: Vec::new(),
            tags: Vec::new(),
            fan_in: 1,
            instance_of: None,
            again: false,
            part: None,
            replicate: None,
            flows: None,
            sync: None,
        }];
        workers.push(WorkerSetup {
            name,
            end: EndSpec::Dump(DumpSpec { path, ports: ports.clone(), droppers }),
            nodes,
            edges: Vec::new(),
            arrays: Vec::new(),
            learns: None,
            domain: d,
            takes_from: d,
            creates: false,
            needs: 0,
            holders: 0,
            writable: false,
            branch: false,
            beside: 0,
            program: None,
            schedule: schedule.clone(),
            careful: Vec::new(),
            fault: None,
            attack: None,
        });
    }
}

/// Files that dump workers write.
pub(crate) fn files(workers: &[WorkerSetup]) -> impl Iterator<Item = &Path> {
    workers.iter().filter_map(|w| match &w.end {
        EndSpec::Dump(dump) => Some(dump.path.as_path()),
        _ => None,
    })
}

/// The sources whose packets reach a worker.
fn sources(w: usize, worker: &WorkerSetup, lanes: &[LaneSetup]) -> BTreeSet<u16> {
    let own = match worker.end {
        EndSpec::Rx { source, .. } => Some(source),
        _ => None,
    };
    lanes.iter().filter(|l| l.to == w).map(|l| l.source).chain(own).collect()
}

/// The graph's own domain has the file that the operator named, another one a file beside it:
/// `drops.pcapng` becomes `drops.guest.pcapng`.
fn file_of(file: &Path, domain: &str) -> PathBuf {
    if domain.is_empty() {
        return file.to_owned();
    }
    let mut name = file.file_stem().unwrap_or_default().to_owned();
    name.push(".");
    name.push(domain);
    if let Some(extension) = file.extension() {
        name.push(".");
        name.push(extension);
    }
    file.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_domain_has_a_file_of_its_own_beside_the_one_that_was_named() {
        let file = |path: &str, domain| file_of(Path::new(path), domain);
        assert_eq!(file("a/drops.pcapng", ""), Path::new("a/drops.pcapng"));
        assert_eq!(file("a/drops.pcapng", "guest"), Path::new("a/drops.guest.pcapng"));
        assert_eq!(file("drops", "guest"), Path::new("drops.guest"));
    }
}
