//! The NUMA nodes of a host.

use ksmith_core::kernel::nodes;

use crate::root::Root;

/// Returns the number of NUMA nodes with memory; 0 on a kernel without NUMA.
///
/// Source: `/sys/devices/system/node/has_memory` (`Documentation/ABI/stable/sysfs-devices-node`).
pub fn memory_nodes(root: &Root) -> usize {
    let text = root.text("sys/devices/system/node/has_memory");
    text.value().and_then(|list| nodes(list)).map_or(0, |nodes| nodes.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::put_file;

    #[test]
    fn nodes_without_memory_do_not_count() {
        let tree = tempfile::tempdir().unwrap();
        let root = Root::at(tree.path());
        assert_eq!(memory_nodes(&root), 0);
        put_file(tree.path(), "sys/devices/system/node/has_memory", "0-1,4\n");
        assert_eq!(memory_nodes(&root), 3);
    }
}
