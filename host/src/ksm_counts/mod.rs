//! The reader of KSM's counts for all callers that do not keep its files open. Zero pages of no process are subtracted.
//!
//! [`crate::observe`] keeps the files open, and measures from its own samples what to subtract.

mod lost;

use std::time::{Duration, Instant};

use ksmith_core::kernel::{KernelFileSource, Ksm};
use ksmith_core::reading::Reading;

pub use self::lost::LostZeroPages;
use crate::root::Root;

/// Lifetime of a measured counter error. Measuring reads a file of every process, and the error changes rarely.
const LEARNED_FOR: Duration = Duration::from_secs(600);

/// Attempts to measure it while ksmd merges zero pages.
const TRIES: usize = 3;

/// The gauges of merged pages.
const MERGED: [&str; 3] = ["pages_shared", "pages_sharing", "ksm_zero_pages"];

/// A repeated reader of KSM's files.
#[derive(Debug)]
pub struct KsmCounts {
    root: Root,
    lost: LostZeroPages,
    learned: Option<Instant>,
}

impl KsmCounts {
    /// Creates a reader. Nothing is read yet.
    pub fn new(root: &Root) -> Self {
        Self { root: root.clone(), lost: LostZeroPages::default(), learned: None }
    }

    /// Reads all files.
    pub fn read(&mut self) -> Ksm {
        self.read_these(|_| true)
    }

    /// Reads the gauges of merged pages. All other fields are absent.
    pub fn read_merged(&mut self) -> Ksm {
        self.read_these(|name| MERGED.contains(&name))
    }

    fn read_these(&mut self, are_wanted: fn(&str) -> bool) -> Ksm {
        let mut ksm = as_counted(&self.root, are_wanted);
        let is_due = self.learned.is_none_or(|at| at.elapsed() >= LEARNED_FOR);
        if let Some(counted) = ksm.ksm_zero_pages.get().filter(|_| is_due) {
            self.learn(counted);
        }
        self.lost.take_off_count(&mut ksm);
        ksm
    }

    fn learn(&mut self, mut counted: i64) {
        self.learned = Some(Instant::now());
        for _ in 0..TRIES {
            let lost = LostZeroPages::of_processes(&self.root, counted);
            let now = as_counted(&self.root, |name| name == "ksm_zero_pages").ksm_zero_pages.get();
            if now == Some(counted) {
                self.lost = lost.unwrap_or(LostZeroPages::at_least(counted));
                return;
            }
            counted = now.unwrap_or(counted);
        }
        self.lost = LostZeroPages::at_least(counted);
    }
}

/// Reads KSM's files unchanged, with zero pages of no process included. For display of the settings, or for a single
/// reply that does not justify reading every process.
pub fn ksm_as_counted(root: &Root) -> Ksm {
    as_counted(root, |_| true)
}

fn as_counted(root: &Root, are_wanted: fn(&str) -> bool) -> Ksm {
    Ksm::read(&mut KsmCountFiles { root, are_wanted, text: String::new() })
}

/// The KSM directory, without kept descriptors.
struct KsmCountFiles<'a> {
    root: &'a Root,
    are_wanted: fn(&str) -> bool,
    text: String,
}

impl KernelFileSource for KsmCountFiles<'_> {
    fn text(&mut self, path: &'static str) -> Reading<&str> {
        if !path.rsplit('/').next().is_some_and(self.are_wanted) {
            return Reading::Absent;
        }
        self.root.text(path.trim_start_matches('/')).map(|text| {
            self.text = text;
            self.text.as_str()
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    fn put(tree: &Path, file: &str, text: &str) {
        let path = tree.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn zero_pages_of_no_process_are_no_merged_pages() {
        let tree = tempfile::tempdir().unwrap();
        let count = |pages: &str| put(tree.path(), "sys/kernel/mm/ksm/ksm_zero_pages", pages);
        put(tree.path(), "sys/kernel/mm/ksm/pages_sharing", "7\n");
        put(tree.path(), "sys/kernel/mm/ksm/run", "1\n");
        put(tree.path(), "proc/9/ksm_stat", "ksm_zero_pages 5\n");
        count("696\n");
        let mut counts = KsmCounts::new(&Root::at(tree.path()));
        assert_eq!((counts.read().saved_pages(), counts.read_merged().saved_pages()), (12, 12));
        assert_eq!((counts.read().run.get(), counts.read_merged().run.get()), (Some(1), None));
        count("700\n");
        assert_eq!(counts.read().saved_pages(), 16, "what is learned holds for a while");
        assert_eq!(ksm_as_counted(&Root::at(tree.path())).saved_pages(), 707);
        counts.learned = None;
        count("-3\n");
        assert_eq!(counts.read().saved_pages(), 12);
    }
}
