//! The NUMA nodes to which the mergeable memory of guests is bound.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ksmith_core::kernel::{MappingNodes, nodes, parse_numa_maps};
use ksmith_core::sample::ProcessId;

use super::lookups::ProcessLookups;
use ksmith_host::mappings;
use ksmith_host::root::Root;

/// The age from which a binding is looked up again: the kernel walks all page tables for it.
const FRESH: Duration = Duration::from_secs(30);

/// The nodes of each process, and when they were looked up.
#[derive(Debug)]
pub struct NodeBindings {
    found: BTreeMap<ProcessId, (Duration, Option<BTreeSet<u32>>)>,
    /// Lookups, each with the time of its request.
    lookups: ProcessLookups<Option<BTreeSet<u32>>, Duration>,
}

impl NodeBindings {
    /// Creates the bindings of no process.
    pub fn new(root: &Root) -> Self {
        Self { found: BTreeMap::new(), lookups: ProcessLookups::new(root, read_bound_nodes) }
    }

    /// Returns the nodes that the mergeable memory of these processes is bound to. `None` if some of it is not bound,
    /// not known, or being looked up.
    pub fn nodes(&mut self, processes: &[ProcessId], now: Duration) -> Option<BTreeSet<u32>> {
        for (id, nodes, at) in self.lookups.take_found() {
            self.found.insert(id, (at, nodes));
        }
        self.found.retain(|_, (at, _)| now.saturating_sub(*at) < FRESH);
        let mut all = Some(BTreeSet::new());
        for id in processes {
            let is_young = self.found.get(id).is_some_and(|(at, _)| now.saturating_sub(*at) < FRESH / 2);
            if !is_young && let Some((nodes, at)) = self.lookups.request_lookup(*id, now) {
                self.found.insert(*id, (at, nodes));
            }
            let nodes = self.found.get(id).and_then(|(_, nodes)| nodes.as_ref());
            all = all.zip(nodes).map(|(mut all, nodes)| {
                all.extend(nodes);
                all
            });
        }
        all
    }
}

/// Returns the nodes of a process's mergeable memory: those that it is bound to, and those on which it has pages now. A
/// process that may run on one node only is bound to it; else each mergeable mapping must be bound. The kernel merges
/// a page with those of the node on which it lies, and a page from before the binding may lie on any.
fn read_bound_nodes(root: &Root, pid: u32) -> Option<BTreeSet<u32>> {
    let text = |file: &str| root.text(format!("proc/{pid}/{file}"));
    let status = text("status");
    let allowed = status.value()?.lines().find_map(|line| line.strip_prefix("Mems_allowed_list:"))?;
    let only = nodes(allowed).filter(|allowed| allowed.len() == 1);
    let mut marked = Vec::new();
    let read = mappings::read(root, pid, "smaps", |mapping| {
        if mapping.is_mergeable() != Some(false) {
            marked.push(mapping.start);
        }
    });
    read.value()?;
    let maps = text("numa_maps");
    let known: BTreeMap<u64, MappingNodes> =
        parse_numa_maps(maps.value()?).map(|mapping| (mapping.start, mapping)).collect();
    let mut all = only.clone().unwrap_or_default();
    for start in marked {
        let mapping = match known.get(&start) {
            Some(mapping) => mapping,
            // It is gone, or one with another that has been looked at.
            None if only.is_some() => continue,
            None => return None,
        };
        all.extend(only.as_ref().or(mapping.bound.as_ref())?);
        all.extend(&mapping.present);
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_is_bound_by_its_cpuset_or_by_each_mergeable_mapping() {
        let tree = tempfile::tempdir().unwrap();
        let directory = tree.path().join("proc/9");
        std::fs::create_dir_all(&directory).unwrap();
        let write = |file: &str, text: &str| std::fs::write(directory.join(file), text).unwrap();
        let root = Root::at(tree.path());
        let nodes = || read_bound_nodes(&root, 9);
        assert_eq!(nodes(), None);
        write("status", "Name:\tq\nMems_allowed_list:\t1\n");
        assert_eq!(nodes(), None, "its pages may lie anywhere");
        write(
            "smaps",
            "1000-2000 rw-p 00000000 00:00 0 \nVmFlags: rd mg\n3000-4000 rw-p 00000000 00:00 0 \nVmFlags: rd\n",
        );
        write("numa_maps", "1000 default anon=1 N1=1\n3000 default anon=1 N0=1\n");
        assert_eq!(nodes(), Some(BTreeSet::from([1])));
        write("numa_maps", "1000 default anon=2 N0=1 N1=1\n3000 default anon=1 N0=1\n");
        assert_eq!(nodes(), Some(BTreeSet::from([0, 1])), "a page from before the binding lies on another node");
        write("status", "Name:\tq\nMems_allowed_list:\t0-1\n");
        write("numa_maps", "1000 default\n3000 default\n");
        assert_eq!(nodes(), None);
        write("numa_maps", "1000 bind:1 anon=1 N1=1\n3000 default anon=1 N0=1\n");
        assert_eq!(nodes(), Some(BTreeSet::from([1])), "what is not mergeable may lie anywhere");
        write("numa_maps", "1000 bind:1 anon=2 N0=1 N1=1\n");
        assert_eq!(nodes(), Some(BTreeSet::from([0, 1])));
        write("numa_maps", "1000 prefer:1 anon=1 N1=1\n3000 default\n");
        assert_eq!(nodes(), None);
    }
}
