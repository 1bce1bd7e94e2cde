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
    let pids = listed_descendants(root, ancestor).unwrap_or_else(|| numbers_in(root, "proc"));
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

/// Returns the PIDs of the descendants of `ancestor` by the kernel's lists of children, so that the ranks of a node do not all
/// read the files of all processes. `None` on a kernel without these lists (CONFIG_PROC_CHILDREN).
///
/// A list may lack children while one of them ends (`get_children_pid`, fs/proc/array.c): they are in the next one. Children of
/// processes that have ended are in those of the nearest subreaper, which `ksmith run` is.
fn listed_descendants(root: &Root, ancestor: u32) -> Option<Vec<u32>> {
    let mut found = BTreeSet::new();
    let mut next = vec![ancestor];
    while let Some(pid) = next.pop() {
        let directory = format!("proc/{pid}/task");
        let tasks = numbers_in(root, &directory);
        let list = |task: &u32| root.text(format!("{directory}/{task}/children")).value().cloned();
        let lists: Vec<String> = tasks.iter().filter_map(list).collect();
        // One's own threads do not end all at once.
        if pid == ancestor && lists.is_empty() {
            return None;
        }
        let children =
            lists.iter().flat_map(|list| list.split_ascii_whitespace()).filter_map(|pid| pid.parse().ok());
        next.extend(children.filter(|child| found.insert(*child)));
    }
    Some(found.into_iter().collect())
}

/// Returns the numbers that name entries of a directory.
fn numbers_in(root: &Root, directory: &str) -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir(root.path(directory)) else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Reads the KSM figures of a process, which are empty if the kernel has none.
pub(super) fn ksm(root: &Root, pid: u32) -> KsmStat {
    let text = root.text(format!("proc/{pid}/ksm_stat"));
    text.value().and_then(|text| KsmStat::parse(text).ok()).unwrap_or_default()
}

/// Reads the sums over the mappings of a process. The kernel walks its page tables for this.
pub(super) fn memory_sums(root: &Root, pid: u32) -> Reading<SmapsRollup> {
    root.text(format!("proc/{pid}/smaps_rollup")).and_then(|text| SmapsRollup::parse(&text))
}

/// Returns PSS and swap of a process.
pub(super) fn held(sums: Reading<SmapsRollup>) -> Reading<u64> {
    sums.and_then(|sums| {
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
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    use rustix::process::{Pid, Signal, getpid, kill_process, set_child_subreaper};

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
        let names = || -> Vec<String> {
            descendants(&Root::at(tree.path()), 10, 4096).into_iter().map(|member| member.name).collect()
        };
        assert_eq!(names(), ["p11", "p12"]);
        assert_eq!(descendants(&Root::at(tree.path()), 10, 4096)[0].rss_bytes, 33 * 4096);
        // By the lists of children nobody else is read. They are by thread, and may name who has a new parent by now.
        for (pid, task, children) in
            [(10, 10, "11 \n"), (10, 15, "13 14 "), (11, 11, "12 99 "), (12, 12, ""), (13, 13, "")]
        {
            let directory = tree.path().join(format!("proc/{pid}/task/{task}"));
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join("children"), children).unwrap();
        }
        assert_eq!(listed_descendants(&Root::at(tree.path()), 10), Some(vec![11, 12, 13, 14, 99]));
        assert_eq!(names(), ["p11", "p12"]);
    }

    #[test]
    fn a_process_whose_parent_has_ended_still_belongs() {
        set_child_subreaper(Some(getpid())).unwrap();
        let mut shell =
            Command::new("sh").args(["-c", "sleep 1000 & echo $!"]).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(shell.stdout.take().unwrap()).read_line(&mut line).unwrap();
        shell.wait().unwrap();
        let pid: i32 = line.trim().parse().unwrap();
        let own = std::process::id();
        let found = descendants(&Root::host(), own, 4096);
        set_child_subreaper(None).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
        assert!(found.iter().any(|member| member.id.pid == pid.cast_unsigned()), "{found:?}");
    }

    #[test]
    fn own_figures_can_be_read() {
        let own = std::process::id();
        assert!(held(memory_sums(&Root::host(), own)).get().is_some_and(|bytes| bytes > 100_000));
        assert!(mapped_bytes(&Root::host(), own, 4096).is_some_and(|bytes| bytes > 1 << 20));
    }
}
