//! Whether ksmd tracks a process that the observer does not know: the observer looks at processes that offered
//! nothing only now and then.
//!
//! The kernel's own count gives it away: the pages that ksmd tracks in all are more than those of all processes that
//! are known. Then every process is asked. A process that has ended leaves pages behind too, until ksmd visits them: so
//! the count alone says nothing.

use std::collections::BTreeSet;

use ksmith_core::kernel::KsmStat;
use ksmith_core::sample::Sample;

use ksmith_host::root::Root;

/// Processes with mergeable memory that the sample does not have.
pub fn unknown_processes(root: &Root, sample: &Sample) -> Vec<u32> {
    let known: u64 = sample.processes.iter().filter_map(|process| process.ksm.rmap_items).sum();
    if sample.ksm.tracked_pages() <= known {
        return Vec::new();
    }
    let known_pids: BTreeSet<u32> = sample.processes.iter().map(|process| process.id.pid).collect();
    let entries = std::fs::read_dir(root.path("proc")).into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_involved = |pid: &u32| {
        let stat = root.text(format!("proc/{pid}/ksm_stat")).and_then(|text| KsmStat::parse(&text));
        stat.get().is_some_and(|stat| stat.mergeable == Some(true) || stat.rmap_items.unwrap_or(0) > 0)
    };
    pids.filter(|pid| !known_pids.contains(pid)).filter(is_involved).collect()
}

#[cfg(test)]
mod tests {
    use ksmith_core::reading::Reading;

    use super::*;

    #[test]
    fn an_unknown_process_is_found_once_the_count_says_so() {
        let tree = tempfile::tempdir().unwrap();
        let add = |pid: u32, text: &str| {
            let directory = tree.path().join(format!("proc/{pid}"));
            std::fs::create_dir_all(&directory).unwrap();
            std::fs::write(directory.join("ksm_stat"), text).unwrap();
        };
        add(7, "ksm_rmap_items 5\nksm_mergeable: yes\n");
        add(8, "ksm_rmap_items 0\nksm_mergeable: no\n");
        let root = Root::at(tree.path());
        let mut sample = Sample { page_size: 4096, ..Sample::default() };
        sample.ksm.pages_unshared = Reading::Value(0);
        assert!(unknown_processes(&root, &sample).is_empty(), "no process is asked while the count is right");
        sample.ksm.pages_unshared = Reading::Value(5);
        assert_eq!(unknown_processes(&root, &sample), [7]);
    }
}
