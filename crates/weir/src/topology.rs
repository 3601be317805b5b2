//! NUMA nodes of this machine and where its NICs are, as the kernel shows it. What cannot be read is not known, which is no error: then it
//! decides nothing.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::OnceLock;
use weir_device::DeviceSpec;
use weir_plan::Topology;

const SYS: &str = "/sys";

/// This machine's nodes, without NICs.
pub fn of_machine() -> Topology {
    static NODES: OnceLock<Topology> = OnceLock::new();
    NODES.get_or_init(|| Topology { nodes: nodes(Path::new(SYS)), nics: BTreeMap::new() }).clone()
}

/// The node of each port's NIC, of those that are bound to an interface that is one.
pub fn nics(binds: &[(u16, DeviceSpec)]) -> BTreeMap<u16, u32> {
    let node = |device: &DeviceSpec| nic(Path::new(SYS), device.interface()?);
    binds.iter().filter_map(|(port, device)| Some((*port, node(device)?))).collect()
}

/// Nodes that have cores, by number.
fn nodes(sys: &Path) -> BTreeMap<u32, Vec<usize>> {
    let list = std::fs::read_dir(sys.join("devices/system/node"));
    let node = |entry: std::fs::DirEntry| {
        let number = entry.file_name().to_str()?.strip_prefix("node")?.parse().ok()?;
        let cores = std::fs::read_to_string(entry.path().join("cpulist")).ok()?;
        Some((number, cores_of(&cores)?)).filter(|(_, cores)| !cores.is_empty())
    };
    list.into_iter().flatten().flatten().filter_map(node).collect()
}

/// The kernel's form: `0-3,8`; empty for a node of memory only. `None` for anything else.
fn cores_of(text: &str) -> Option<Vec<usize>> {
    let mut cores = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<u16>().ok()?, last.parse::<u16>().ok()?);
        cores.extend((first..=last).map(usize::from));
    }
    Some(cores)
}

/// -1 stands there on machines of one node.
fn nic(sys: &Path, interface: &str) -> Option<u32> {
    let path = sys.join("class/net").join(interface).join("device/numa_node");
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;

    #[test]
    fn nodes_and_nics_are_read_as_the_kernel_writes_them() {
        let sys = std::env::temp_dir().join(format!("weir-topology-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let path = sys.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("devices/system/node/node0/cpulist", "0-1,4\n");
        write("devices/system/node/node1/cpulist", "2-3\n");
        // Of memory only, and what is none.
        write("devices/system/node/node2/cpulist", "\n");
        write("devices/system/node/node3/cpulist", "nonsense\n");
        write("devices/system/node/has_cpu", "0-1\n");
        write("class/net/eth0/device/numa_node", "1\n");
        write("class/net/eth1/device/numa_node", "-1\n");
        assert_eq!(nodes(&sys), BTreeMap::from([(0, vec![0, 1, 4]), (1, vec![2, 3])]));
        assert_eq!([nic(&sys, "eth0"), nic(&sys, "eth1"), nic(&sys, "lo")], [Some(1), None, None]);
        assert!(nodes(&sys.join("class")).is_empty());
        std::fs::remove_dir_all(&sys).unwrap();
    }
}
