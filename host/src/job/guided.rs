//! Progress of libksmith in marking the ranges that the daemon names, by the name of its thread in each process of the
//! job: `ksmith` at first, then `ksmith N` after N replies of the daemon (`preload/src/helper.rs`).

use std::collections::BTreeMap;

use super::tree;
use crate::root::Root;

/// The number of daemon replies that each process of a job has applied. Processes without the thread are missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuidedProgress(BTreeMap<(u32, u64), u64>);

impl GuidedProgress {
    /// Reads the progress of all descendants of this process.
    pub fn now(root: &Root) -> Self {
        Self::from_descendants(root, std::process::id())
    }

    fn from_descendants(root: &Root, ancestor: u32) -> Self {
        let members = tree::descendants(root, ancestor, 1);
        let one = |member: &tree::JobMember| {
            let id = member.id;
            Some(((id.pid, id.start_ticks), followed(root, id.pid)?))
        };
        Self(members.iter().filter_map(one).collect())
    }

    /// Returns true if every process in `then` has applied a reply since, or has ended.
    pub fn all_since(&self, then: &Self) -> bool {
        then.0.iter().all(|(id, before)| self.0.get(id).is_none_or(|now| now > before))
    }
}

/// Returns the number of replies that a process has applied; `None` without libksmith's thread. The first thread is
/// skipped, because it has the name of the program.
fn followed(root: &Root, pid: u32) -> Option<u64> {
    let entries = std::fs::read_dir(root.path(format!("proc/{pid}/task"))).ok()?;
    let tasks = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    tasks.filter(|task| *task != pid).find_map(|task| {
        let text = root.text(format!("proc/{pid}/task/{task}/comm"));
        let number = text.value()?.trim_end().strip_prefix("ksmith")?;
        if number.is_empty() { Some(0) } else { number.strip_prefix(' ')?.parse().ok() }
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    fn process(tree: &Path, pid: u32, parent: u32, threads: &[(u32, &str)]) {
        for (task, name) in threads {
            let directory = tree.join(format!("proc/{pid}/task/{task}"));
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join("comm"), format!("{name}\n")).unwrap();
        }
        let text = format!("{pid} (p) S {parent} 1 1 0 -1 0 0 0 0 0 5 6 0 0 20 0 1 0 900 1000 33 0");
        fs::write(tree.join(format!("proc/{pid}/stat")), text).unwrap();
    }

    #[test]
    fn all_have_followed_when_each_that_was_there_has_once_more_or_is_gone() {
        let directory = tempfile::tempdir().unwrap();
        let (tree, root) = (directory.path(), Root::at(directory.path()));
        process(tree, 11, 10, &[(11, "solver"), (12, "ksmith")]);
        process(tree, 13, 10, &[(13, "solver"), (14, "worker"), (15, "ksmith 4")]);
        // A program named `ksmith`, and one without the library, are not waited for.
        process(tree, 16, 10, &[(16, "ksmith"), (17, "ksmithy")]);
        let then = GuidedProgress::from_descendants(&root, 10);
        assert_eq!(then.0.values().copied().collect::<Vec<_>>(), [0, 4]);
        let is_over = || GuidedProgress::from_descendants(&root, 10).all_since(&then);
        assert!(!is_over());
        process(tree, 11, 10, &[(12, "ksmith 1")]);
        assert!(!is_over(), "one is missing");
        process(tree, 13, 10, &[(15, "ksmith 5")]);
        assert!(is_over());
        process(tree, 13, 10, &[(15, "ksmith 4")]);
        fs::remove_dir_all(tree.join("proc/13")).unwrap();
        assert!(is_over(), "what has ended is not waited for");
    }
}
