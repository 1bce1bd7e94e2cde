//! The processes of a job: all descendants of this process.

use std::collections::{BTreeMap, BTreeSet};

use ksmith_core::kernel::{KsmStat, PidStat, SmapsRollup, Statm};
use ksmith_core::reading::{Malformed, Reading};
use ksmith_core::sample::ProcessId;

use crate::reader;
use crate::root::Root;

/// A process of the job, before its memory figures are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct JobMember {
    pub id: ProcessId,
    pub name: String,
    pub rss_bytes: u64,
}

/// Returns the running descendants of `ancestor`, without itself.
pub(super) fn descendants(root: &Root, ancestor: u32, page_size: u64) -> Vec<JobMember> {
    let Ok(entries) = std::fs::read_dir(root.path("proc")) else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let pids: Vec<u32> = pids.collect();
    let stats = pids.iter().zip(root.texts_of(&pids, "stat"));
    let all: BTreeMap<u32, PidStat> =
        stats.filter_map(|(pid, text)| Some((*pid, PidStat::parse(text.value()?).ok()?))).collect();
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (pid, stat) in &all {
        children.entry(stat.parent).or_default().push(*pid);
    }
    // Those that read for this process are no part of the job.
    let own = reader::pids();
    let mut found = BTreeSet::new();
    let mut next = vec![ancestor];
    while let Some(pid) = next.pop() {
        for child in children.get(&pid).into_iter().flatten() {
            // A PID that was reused during the reading could close a circle.
            if *child != ancestor && !own.contains(child) && found.insert(*child) {
                next.push(*child);
            }
        }
    }
    let member = |pid: u32| {
        let stat = all.get(&pid).filter(|stat| !stat.is_zombie)?;
        Some(JobMember {
            id: ProcessId { pid, start_ticks: stat.start_ticks },
            name: stat.comm.clone(),
            rss_bytes: stat.rss_pages.unwrap_or(0).saturating_mul(page_size),
        })
    };
    found.into_iter().filter_map(member).collect()
}

/// Reads the KSM figures of a process, which are empty if the kernel has none.
pub(super) fn ksm(root: &Root, pid: u32) -> KsmStat {
    let text = root.text(format!("proc/{pid}/ksm_stat"));
    text.value().and_then(|text| KsmStat::parse(text).ok()).unwrap_or_default()
}

/// Reads PSS and swap of a process. The kernel walks its page tables for this.
pub(super) fn held(root: &Root, pid: u32) -> Reading<u64> {
    let rollup = root.text(format!("proc/{pid}/smaps_rollup")).and_then(|text| SmapsRollup::parse(&text));
    rollup.and_then(|sums| {
        let pss = sums.pss.ok_or_else(|| Malformed::new(1, "Pss in kB", "none, or an impossible one"))?;
        Ok(pss.saturating_add(sums.swap.unwrap_or(0)))
    })
}

/// The largest address space, in bytes.
const MOST_BYTES: u64 = 1 << 57;

/// Reads the size of a process's address space in bytes. `None` if it is impossible.
pub(super) fn mapped_bytes(root: &Root, pid: u32, page_size: u64) -> Option<u64> {
    let text = root.text(format!("proc/{pid}/statm"));
    Statm::parse(text.value()?).ok()?.mapped_pages.checked_mul(page_size).filter(|bytes| *bytes <= MOST_BYTES)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn all_generations_belong_and_strangers_and_the_dead_do_not() {
        let tree = tempfile::tempdir().unwrap();
        for (pid, parent, state) in [(10, 1, 'S'), (11, 10, 'S'), (12, 11, 'R'), (13, 10, 'Z'), (14, 1, 'S')] {
            let directory = tree.path().join(format!("proc/{pid}"));
            fs::create_dir_all(&directory).unwrap();
            let text = format!("{pid} (p{pid}) {state} {parent} 1 1 0 -1 0 0 0 0 0 5 6 0 0 20 0 1 0 900 1000 33 0");
            fs::write(directory.join("stat"), text).unwrap();
        }
        let found = descendants(&Root::at(tree.path()), 10, 4096);
        let names: Vec<&str> = found.iter().map(|member| member.name.as_str()).collect();
        assert_eq!(names, ["p11", "p12"]);
        assert_eq!(found[0].rss_bytes, 33 * 4096);
    }

    #[test]
    fn own_figures_can_be_read() {
        let own = std::process::id();
        assert!(held(&Root::host(), own).get().is_some_and(|bytes| bytes > 100_000));
        assert!(mapped_bytes(&Root::host(), own, 4096).is_some_and(|bytes| bytes > 1 << 20));
    }
}
