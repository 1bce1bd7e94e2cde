//! The NUMA nodes of a host, and those on which pages of another process lie.

#![allow(unsafe_code, reason = "one system call that rustix does not have")]

use std::io;

use ksmith_core::kernel::nodes;

use crate::root::Root;

/// Pages of one call.
const BATCH: usize = 1024;

/// Returns the number of NUMA nodes with memory; 0 on a kernel without NUMA.
///
/// Source: `/sys/devices/system/node/has_memory` (`Documentation/ABI/stable/sysfs-devices-node`).
pub fn memory_nodes(root: &Root) -> usize {
    let text = root.text("sys/devices/system/node/has_memory");
    text.value().and_then(|list| nodes(list)).map_or(0, |nodes| nodes.len())
}

/// Returns true if this host has several NUMA nodes with memory.
pub fn has_several_nodes() -> bool {
    memory_nodes(&Root::host()) > 1
}

/// Returns the node of each page of the process; `None` for a page that is not in memory, or the kernel's zero page.
///
/// It calls `move_pages(2)` without nodes to move to: nothing is moved, faulted in or pinned. It takes the right to read the
/// process's memory (`PTRACE_MODE_READ_REALCREDS`).
///
/// # Errors
/// As `move_pages(2)`: no such process, no permission, a kernel without NUMA (`ENOSYS`).
pub fn page_nodes(pid: u32, addresses: &[u64]) -> io::Result<Vec<Option<u32>>> {
    let mut nodes = Vec::with_capacity(addresses.len());
    let mut states = [0_i32; BATCH];
    for addresses in addresses.chunks(BATCH) {
        // SAFETY: the kernel reads as many addresses as the slice has, and writes as many states, of which there are no fewer. The
        // addresses are another process's and are not dereferenced here. Without nodes nothing is moved.
        let failed = unsafe {
            libc::syscall(
                libc::SYS_move_pages,
                pid,
                addresses.len(),
                addresses.as_ptr(),
                std::ptr::null::<i32>(),
                states.as_mut_ptr(),
                0,
            )
        };
        if failed != 0 {
            return Err(io::Error::last_os_error());
        }
        // A state is a node, or an error as a negative number.
        nodes.extend(states.iter().take(addresses.len()).map(|state| u32::try_from(*state).ok()));
    }
    Ok(nodes)
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

    #[test]
    fn a_page_that_was_written_to_lies_on_a_node_and_one_that_is_not_mapped_on_none() {
        let memory = vec![1_u8; 3000 * 4096];
        let mut addresses: Vec<u64> = memory.chunks(4096).map(|page| page.as_ptr() as u64).collect();
        addresses.push(4096);
        let nodes = match page_nodes(std::process::id(), &addresses) {
            Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => return,
            nodes => nodes.unwrap(),
        };
        assert_eq!(nodes.len(), 3001);
        assert!(nodes[..3000].iter().all(Option::is_some) && nodes[3000].is_none());
        assert!(page_nodes(u32::MAX >> 1, &addresses).is_err(), "there is no such process");
    }
}
