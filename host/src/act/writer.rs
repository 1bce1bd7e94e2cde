//! Writing knobs: only what differs, in the order the kernel needs, read back, noted in the journal first.

use std::fmt;

use ksmith_core::knobs::{Knob, Knobs};
use ksmith_core::reading::Reading;

use super::error::{ActError, hint};
use super::journal::Journal;
use super::knob_file;
use crate::root::Root;

/// A knob that got another value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// The knob that was changed.
    pub knob: Knob,
    /// What it was.
    pub old: u64,
    /// What it is now.
    pub new: u64,
}

/// `pages_to_scan 100 -> 1000`
impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} -> {}", self.knob, self.knob.text(self.old), self.knob.text(self.new))
    }
}

/// Writes knobs to the kernel. With a journal, the first change of a knob notes its original value beforehand.
///
/// Writing `run` waits, uninterruptibly, for the end of ksmd's current batch: as long as a batch of
/// `pages_to_scan` pages takes (`run_store` takes `ksm_thread_mutex`, `mm/ksm.c`).
#[derive(Debug)]
pub struct Writer {
    root: Root,
    dry_run: bool,
    journal: Option<Journal>,
}

impl Writer {
    /// A writer of changes that last. With `dry_run` it says what it would change and writes nothing.
    pub fn new(root: &Root, dry_run: bool) -> Self {
        Self { root: root.clone(), dry_run, journal: None }
    }

    /// Notes original values in `journal`, so that they can be restored.
    #[must_use]
    pub fn with_journal(mut self, journal: Journal) -> Self {
        self.journal = Some(journal);
        self
    }

    /// Where it writes.
    pub fn root(&self) -> &Root {
        &self.root
    }

    /// Whether it only says what it would do.
    pub fn is_dry_run(&self) -> bool {
        self.dry_run
    }

    /// The journal, if changes are to be undone.
    pub fn journal(&self) -> Option<&Journal> {
        self.journal.as_ref()
    }

    pub(super) fn journal_mut(&mut self) -> Option<&mut Journal> {
        self.journal.as_mut()
    }

    /// The knob's value now. `None` where this kernel lacks it.
    ///
    /// # Errors
    /// The file may not be read or makes no sense.
    pub fn get(&self, knob: Knob) -> Result<Option<u64>, ActError> {
        match knob_file::read(&self.root, knob) {
            Reading::Value(value) => Ok(Some(value)),
            other => match ActError::unread(knob_file::path(&self.root, knob.name()), other) {
                Some(error) => Err(error),
                None => Ok(None),
            },
        }
    }

    /// Brings one knob to `value`. `None` if it has it already or this kernel lacks the knob.
    ///
    /// # Errors
    /// The knob keeps its old value, whatever the error, unless it is [`ActError::NotTaken`].
    pub fn set(&mut self, knob: Knob, value: u64) -> Result<Option<Change>, ActError> {
        let Some(old) = self.get(knob)?.filter(|old| *old != value) else { return Ok(None) };
        if knob == Knob::Run && value == 2 {
            return Err(ActError::UnmergeApart);
        }
        let change = Change { knob, old, new: value };
        if self.dry_run {
            return Ok(Some(change));
        }
        self.note(knob, old)?;
        let path = || knob_file::path(&self.root, knob.name());
        if let Err(source) = knob_file::write(&self.root, knob, value) {
            let advisor_on = knob_file::read(&self.root, Knob::AdvisorMode) == Reading::Value(1);
            let merged = knob_file::gauge(&self.root, "pages_shared").is_some_and(|pages| pages > 0);
            let hint = hint(knob, source.raw_os_error(), advisor_on, merged);
            return Err(ActError::Refused { knob, path: path(), old, wanted: value, source, hint });
        }
        match knob_file::read(&self.root, knob) {
            Reading::Value(found) if found == value => Ok(Some(change)),
            found => {
                let found = found.map(|found| knob.text(found)).to_string();
                Err(ActError::NotTaken { knob, path: path(), old, wanted: value, found })
            }
        }
    }

    /// Brings all of `knobs` about, in the order of writing. One that fails does not keep the others from
    /// being set, but ksmd is not started after a failure.
    pub fn apply(&mut self, knobs: &Knobs) -> (Vec<Change>, Vec<ActError>) {
        let (mut changes, mut errors) = (Vec::new(), Vec::new());
        let mut failed = None;
        for (knob, value) in knobs.iter() {
            let outcome = match failed {
                Some(failed) if (knob, value) == (Knob::Run, 1) && !matches!(self.get(knob), Ok(Some(1))) => {
                    Err(ActError::NotStarted { failed })
                }
                _ => self.set(knob, value),
            };
            match outcome {
                Ok(change) => changes.extend(change),
                Err(error) => {
                    failed = failed.or(Some(knob));
                    errors.push(error);
                }
            }
        }
        (changes, errors)
    }

    /// Notes `old` as the knob's original value, unless one is noted already.
    ///
    /// Switching the advisor rewrites `pages_to_scan` (`set_advisor_defaults` in `mm/ksm.c`), so with
    /// `advisor_mode` goes `pages_to_scan`.
    pub(super) fn note(&mut self, knob: Knob, old: u64) -> Result<(), ActError> {
        let pages = match knob {
            Knob::AdvisorMode => self.get(Knob::PagesToScan)?,
            _ => None,
        };
        let Some(journal) = &mut self.journal else { return Ok(()) };
        let originals = pages.map(|pages| (Knob::PagesToScan, pages)).into_iter().chain([(knob, old)]);
        journal.note(originals).map_err(|source| ActError::Journal { knob, source })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::fs;

    use proptest::prelude::*;
    use tempfile::TempDir;

    use super::*;

    /// A tree with a KSM directory of plain files.
    pub(in super::super) fn tree(files: &[(&str, &str)]) -> TempDir {
        let tree = tempfile::tempdir().unwrap();
        let ksm = tree.path().join("sys/kernel/mm/ksm");
        fs::create_dir_all(&ksm).unwrap();
        for (name, text) in files {
            fs::write(ksm.join(name), text).unwrap();
        }
        tree
    }

    /// A tree with every knob of Linux 6.18 at its default.
    pub(in super::super) fn whole_tree() -> TempDir {
        tree(&[
            ("advisor_mode", "[none] scan-time\n"),
            ("advisor_max_cpu", "70\n"),
            ("advisor_min_pages_to_scan", "500\n"),
            ("advisor_max_pages_to_scan", "30000\n"),
            ("advisor_target_scan_time", "200\n"),
            ("smart_scan", "1\n"),
            ("use_zero_pages", "0\n"),
            ("merge_across_nodes", "1\n"),
            ("max_page_sharing", "256\n"),
            ("stable_node_chains_prune_millisecs", "2000\n"),
            ("pages_to_scan", "100\n"),
            ("sleep_millisecs", "20\n"),
            ("run", "0\n"),
            ("pages_shared", "0\n"),
            ("pages_sharing", "0\n"),
        ])
    }

    #[test]
    fn what_is_so_already_or_absent_is_not_written() {
        let tree = tree(&[("run", "1\n")]);
        let mut writer = Writer::new(&Root::at(tree.path()), false);
        assert_eq!(writer.set(Knob::Run, 1).unwrap(), None);
        assert_eq!(writer.set(Knob::SmartScan, 0).unwrap(), None);
        assert!(!tree.path().join("sys/kernel/mm/ksm/smart_scan").exists());
    }

    #[test]
    fn a_dry_run_says_what_it_would_do_and_does_nothing() {
        let tree = whole_tree();
        let mut writer = Writer::new(&Root::at(tree.path()), true);
        let (changes, errors) = writer.apply(&Knobs::none().with(Knob::Run, 1).with(Knob::AdvisorMode, 1));
        let texts: Vec<_> = changes.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["advisor_mode none -> scan-time", "run 0 -> 1"]);
        assert!(errors.is_empty());
        assert_eq!(writer.get(Knob::Run).unwrap(), Some(0));
    }

    #[test]
    fn unmerging_is_no_setting() {
        let tree = whole_tree();
        let mut writer = Writer::new(&Root::at(tree.path()), false);
        assert!(matches!(writer.set(Knob::Run, 2), Err(ActError::UnmergeApart)));
        assert_eq!(writer.get(Knob::Run).unwrap(), Some(0));
    }

    #[test]
    fn a_malformed_knob_is_left_alone_and_ksmd_is_not_started() {
        let tree = tree(&[("smart_scan", "maybe\n"), ("pages_to_scan", "100\n"), ("run", "0\n")]);
        let mut writer = Writer::new(&Root::at(tree.path()), false);
        let wanted = Knobs::none().with(Knob::SmartScan, 0).with(Knob::PagesToScan, 9).with(Knob::Run, 1);
        let (changes, errors) = writer.apply(&wanted);
        assert_eq!(changes, [Change { knob: Knob::PagesToScan, old: 100, new: 9 }]);
        assert!(matches!(
            errors[..],
            [ActError::Malformed { .. }, ActError::NotStarted { failed: Knob::SmartScan }]
        ));
        assert_eq!(writer.get(Knob::Run).unwrap(), Some(0));
    }

    #[test]
    fn a_value_that_does_not_take_is_an_error_with_all_the_names() {
        let tree = tree(&[]);
        // Takes decimal numbers and shows them in hexadecimal (proc(5)).
        let odd = "/proc/self/coredump_filter";
        std::os::unix::fs::symlink(odd, tree.path().join("sys/kernel/mm/ksm/sleep_millisecs")).unwrap();
        let error = Writer::new(&Root::at(tree.path()), false).set(Knob::SleepMillisecs, 64).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, ActError::NotTaken { .. }), "{text}");
        for part in ["64 was written to", "ksm/sleep_millisecs (before: ", "but it reads 40"] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn a_refused_write_leaves_the_old_value() {
        let tree = tree(&[]);
        let odd = "/proc/self/oom_score_adj";
        std::os::unix::fs::symlink(odd, tree.path().join("sys/kernel/mm/ksm/pages_to_scan")).unwrap();
        let mut writer = Writer::new(&Root::at(tree.path()), false);
        let old = writer.get(Knob::PagesToScan).unwrap();
        let error = writer.set(Knob::PagesToScan, 4000).unwrap_err();
        assert!(
            matches!(&error, ActError::Refused { source, .. }
            if source.raw_os_error() == Some(libc::EINVAL)),
            "{error}"
        );
        assert_eq!(writer.get(Knob::PagesToScan).unwrap(), old);
    }

    proptest! {
        #[test]
        fn writes_follow_the_order_of_knobs_and_bring_all_about(
            settings in prop::collection::vec((0_usize..13, 0_u64..2), 0..20),
        ) {
            let tree = whole_tree();
            let mut writer = Writer::new(&Root::at(tree.path()), false);
            let wanted: Knobs = settings.into_iter().map(|(i, value)| (Knob::ALL[i], value)).collect();
            let (changes, errors) = writer.apply(&wanted);
            prop_assert!(errors.is_empty());
            prop_assert!(changes.iter().map(|change| change.knob).is_sorted());
            prop_assert!(changes.iter().all(|change| change.old != change.new));
            for (knob, value) in wanted.iter() {
                prop_assert_eq!(writer.get(knob).unwrap(), Some(value));
            }
        }
    }
}
