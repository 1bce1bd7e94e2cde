//! Writing knobs: only those that differ, in the order the kernel needs, recorded in the journal first, read back
//! after.

use ksmith_core::knobs::{Knob, KnobSettings};
use ksmith_core::lease::ends_lease;
use ksmith_core::reading::Reading;

use super::KnobChange;
use super::error::{ActError, hint};
use super::journal::KsmJournal;
use super::knob_file::KeptKnobs;
use super::waker::WriterLease;
use super::{UndoError, knob_file};
use crate::root::Root;

/// A writer of knobs. With a journal, each write is recorded beforehand: the new value, and at the first write the
/// original value.
///
/// Writing `run` waits, uninterruptibly, for the end of ksmd's current batch: as long as a batch of
/// `pages_to_scan` pages takes (`run_store` takes `ksm_thread_mutex`, `mm/ksm.c`).
#[derive(Debug)]
pub struct KnobWriter {
    root: Root,
    dry_run: bool,
    journal: Option<KsmJournal>,
    kept: KeptKnobs,
    /// Wakes ksmd while a lease is in force. A write to `sleep_millisecs` ends it, and so does one that stops ksmd.
    pub(super) waker: WriterLease,
}

impl KnobWriter {
    /// Creates a writer of permanent changes. With `dry_run` it only reports what it would change.
    pub fn new(root: &Root, dry_run: bool) -> Self {
        Self {
            root: root.clone(),
            dry_run,
            journal: None,
            kept: KeptKnobs::new(root),
            waker: WriterLease::default(),
        }
    }

    /// Records original values in `journal`, so that they can be restored.
    #[must_use]
    pub fn with_journal(mut self, journal: KsmJournal) -> Self {
        self.journal = Some(journal);
        self
    }

    /// Returns the host that it writes to.
    pub fn root(&self) -> &Root {
        &self.root
    }

    /// Returns true if it only reports what it would do.
    pub fn is_dry_run(&self) -> bool {
        self.dry_run
    }

    /// Returns the journal, if changes are to be undone.
    pub fn journal(&self) -> Option<&KsmJournal> {
        self.journal.as_ref()
    }

    pub(super) fn journal_mut(&mut self) -> Option<&mut KsmJournal> {
        self.journal.as_mut()
    }

    /// Reads the knob's value; `None` if this kernel lacks the knob.
    ///
    /// # Errors
    /// The file can't be read or parsed.
    pub fn get(&self, knob: Knob) -> Result<Option<u64>, ActError> {
        match self.kept.read(&self.root, knob) {
            Reading::Value(value) => Ok(Some(value)),
            other => match ActError::unread(knob_file::path(&self.root, knob), other) {
                Some(error) => Err(error),
                None => Ok(None),
            },
        }
    }

    /// Sets one knob to `value`. Returns `None` if it already has it or this kernel lacks the knob.
    ///
    /// # Errors
    /// The knob keeps its old value, whatever the error, unless it is [`ActError::NotTaken`].
    pub fn set(&mut self, knob: Knob, value: u64) -> Result<Option<KnobChange>, ActError> {
        let change = self.bring_to(knob, value)?;
        self.confirm(change.as_slice());
        Ok(change)
    }

    /// Writes one knob. The caller confirms the recorded value afterwards.
    fn bring_to(&mut self, knob: Knob, value: u64) -> Result<Option<KnobChange>, ActError> {
        if ends_lease(knob, value) {
            self.end_lease();
        }
        let Some(change) = self.due(knob, value)? else { return Ok(None) };
        if (knob, value) == (Knob::Run, 2) {
            return Err(ActError::UnmergeApart);
        }
        if self.dry_run {
            return Ok(Some(change));
        }
        self.note_changes(&[change])?;
        let (old, path) = (change.old, || knob_file::path(&self.root, knob));
        if let Err(source) = knob_file::write(&self.root, knob, value) {
            let advisor_on = knob_file::read(&self.root, Knob::AdvisorMode) == Reading::Value(1);
            let merged = knob_file::gauge(&self.root, "pages_shared").is_some_and(|pages| pages > 0);
            let hint = hint(knob, source.raw_os_error(), advisor_on, merged);
            return Err(ActError::Refused { knob, path: path(), old, wanted: value, source, hint });
        }
        match self.kept.read(&self.root, knob) {
            Reading::Value(found) if found == value => Ok(Some(change)),
            found => {
                let error = ActError::NotTaken {
                    knob,
                    path: path(),
                    old,
                    wanted: value,
                    found: found.as_ref().map(|found| knob.text(*found)).to_string(),
                };
                // What came of our own write must be restored.
                let taken = found.get().map(|found| KnobChange { new: found, ..change });
                let _ = self.note_changes(&[change].into_iter().chain(taken).collect::<Vec<_>>());
                Err(error)
            }
        }
    }

    /// Returns the change that would set a knob to `value`, if its value differs.
    fn due(&self, knob: Knob, value: u64) -> Result<Option<KnobChange>, ActError> {
        let old = self.get(knob)?.filter(|old| *old != value);
        Ok(old.map(|old| KnobChange { knob, old, new: value }))
    }

    /// Sets all of `knobs`, in the order of [`KnobSettings::writes`]. A failure does not keep the others from being set, but
    /// ksmd is not started after it.
    pub fn apply(&mut self, knobs: &KnobSettings) -> (Vec<KnobChange>, Vec<ActError>) {
        let (mut changes, mut errors) = (Vec::new(), Vec::new());
        if !self.dry_run {
            if knobs.get(Knob::SleepMillisecs).is_some() {
                self.end_lease();
            }
            let due: Vec<KnobChange> =
                knobs.iter().filter_map(|(knob, value)| self.due(knob, value).ok()?).collect();
            // All at once is cheaper. What that leaves unnoted is noted one by one, and refused where that fails.
            let _ = self.try_note(&due);
        }
        let mut failed = None;
        for (knob, value) in knobs.writes() {
            let outcome = match failed {
                Some(failed) if (knob, value) == (Knob::Run, 1) && !matches!(self.get(knob), Ok(Some(1))) => {
                    Err(ActError::NotStarted { failed })
                }
                _ => self.bring_to(knob, value),
            };
            match outcome {
                Ok(change) => changes.extend(change),
                Err(error) => {
                    failed = failed.or(Some(knob));
                    errors.push(error);
                }
            }
        }
        self.confirm(&changes);
        (changes, errors)
    }

    /// Records changes before they are written. If that fails, a knob with a recorded original may still be written.
    /// The condition: it is certain to be restored, or this write restores it or stops ksmd.
    pub(super) fn note_changes(&mut self, changes: &[KnobChange]) -> Result<(), ActError> {
        let Err(source) = self.try_note(changes) else { return Ok(()) };
        let Some(journal) = &mut self.journal else { return Ok(()) };
        for change @ KnobChange { knob, new, .. } in changes.iter().copied() {
            let original = journal.original(knob);
            let is_harmless = original == Some(new) || (knob, new) == (Knob::Run, 0);
            if original.is_none() || journal.mark_inexact().is_err() && !is_harmless {
                return Err(ActError::Journal { knob, source });
            }
            tracing::warn!("{change} could not be recorded, and is made anyway: {source}");
        }
        Ok(())
    }

    /// Records changes that are not recorded yet.
    ///
    /// Switching the advisor rewrites `pages_to_scan` (`set_advisor_defaults` in `mm/ksm.c`). So with `advisor_mode`
    /// the current `pages_to_scan` is recorded, whatever the advisor has made of it.
    fn try_note(&mut self, changes: &[KnobChange]) -> Result<(), UndoError> {
        let pages = match changes.iter().any(|change| change.knob == Knob::AdvisorMode) {
            true => knob_file::read(&self.root, Knob::PagesToScan).get(),
            false => None,
        };
        let Some(journal) = &mut self.journal else { return Ok(()) };
        // All changes of a knob together: each note of a knob replaces the one before.
        let is_unnoted =
            |knob: Knob| changes.iter().any(|change| change.knob == knob && !journal.is_noted(knob, change.new));
        let unnoted: Vec<KnobChange> = changes.iter().filter(|change| is_unnoted(change.knob)).copied().collect();
        if let Some(pages) = pages {
            journal.note_whatever_comes([(Knob::PagesToScan, pages)])?;
        }
        if unnoted.is_empty() { Ok(()) } else { journal.note_changes(&unnoted) }
    }

    /// Records these values, to be restored whatever the knobs hold then.
    pub(super) fn note_whatever_comes(&mut self, originals: &[(Knob, u64)]) -> Result<(), UndoError> {
        let Some(journal) = &mut self.journal else { return Ok(()) };
        journal.note_whatever_comes(originals.iter().copied())
    }

    /// Records that the files hold what was written. A failure does no harm: more values count as ours.
    pub(super) fn confirm(&mut self, changes: &[KnobChange]) {
        let Some(journal) = self.journal.as_mut().filter(|_| !self.dry_run) else { return };
        if let Err(error) = journal.confirm(changes.iter().map(|change| (change.knob, change.new))) {
            tracing::debug!("{error}");
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::fs;
    use std::path::Path;

    use proptest::prelude::*;
    use tempfile::TempDir;

    use super::*;
    use crate::root::put_file;

    /// Creates a tree with a KSM directory of plain files, and those of khugepaged that are named.
    pub(in super::super) fn tree(files: &[(&str, &str)]) -> TempDir {
        let tree = tempfile::tempdir().unwrap();
        put(tree.path(), files);
        tree
    }

    fn put(tree: &Path, files: &[(&str, &str)]) {
        let ksm = tree.join("sys/kernel/mm/ksm");
        fs::create_dir_all(&ksm).unwrap();
        put_file(tree, "proc/cpuinfo", "vendor_id\t: AuthenticAMD\n");
        for (name, text) in files {
            let knob = name.parse::<Knob>().map(|knob| tree.join(knob.path().trim_start_matches('/')));
            let path = knob.unwrap_or_else(|_| ksm.join(name));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    /// Creates a tree with every knob of Linux 6.18 at its default.
    pub(in super::super) fn whole_tree() -> TempDir {
        let tree = tempfile::tempdir().unwrap();
        fill(tree.path());
        tree
    }

    /// Creates that tree's files.
    pub(in super::super) fn fill(tree: &Path) {
        let files = [
            ("max_ptes_shared", "256\n"),
            ("max_ptes_none", "511\n"),
            ("khugepaged_pages_to_scan", "4096\n"),
            ("khugepaged_scan_sleep_millisecs", "10000\n"),
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
        ];
        put(tree, &files);
    }

    #[test]
    fn what_is_so_already_or_absent_is_not_written() {
        let tree = tree(&[("run", "1\n")]);
        let mut writer = KnobWriter::new(&Root::at(tree.path()), false);
        assert_eq!(writer.set(Knob::Run, 1).unwrap(), None);
        assert_eq!(writer.set(Knob::SmartScan, 0).unwrap(), None);
        assert!(!tree.path().join("sys/kernel/mm/ksm/smart_scan").exists());
    }

    #[test]
    fn a_dry_run_says_what_it_would_do_and_does_nothing() {
        let tree = whole_tree();
        let mut writer = KnobWriter::new(&Root::at(tree.path()), true);
        let (changes, errors) = writer.apply(&KnobSettings::none().with(Knob::Run, 1).with(Knob::AdvisorMode, 1));
        let texts: Vec<_> = changes.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["advisor_mode none -> scan-time", "run 0 -> 1"]);
        assert!(errors.is_empty());
        assert_eq!(writer.get(Knob::Run).unwrap(), Some(0));
    }

    #[test]
    fn unmerging_is_no_setting() {
        let tree = whole_tree();
        let mut writer = KnobWriter::new(&Root::at(tree.path()), false);
        assert!(matches!(writer.set(Knob::Run, 2), Err(ActError::UnmergeApart)));
        assert_eq!(writer.get(Knob::Run).unwrap(), Some(0));
    }

    #[test]
    fn a_malformed_knob_is_left_alone_and_ksmd_is_not_started() {
        let tree = tree(&[("smart_scan", "maybe\n"), ("pages_to_scan", "100\n"), ("run", "0\n")]);
        let mut writer = KnobWriter::new(&Root::at(tree.path()), false);
        let wanted = KnobSettings::none().with(Knob::SmartScan, 0).with(Knob::PagesToScan, 9).with(Knob::Run, 1);
        let (changes, errors) = writer.apply(&wanted);
        assert_eq!(changes, [KnobChange { knob: Knob::PagesToScan, old: 100, new: 9 }]);
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
        let error = KnobWriter::new(&Root::at(tree.path()), false).set(Knob::SleepMillisecs, 64).unwrap_err();
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
        let mut writer = KnobWriter::new(&Root::at(tree.path()), false);
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
            settings in prop::collection::vec((0_usize..Knob::ALL.len(), 0_u64..2), 0..20),
        ) {
            let tree = whole_tree();
            let mut writer = KnobWriter::new(&Root::at(tree.path()), false);
            let wanted: KnobSettings = settings.into_iter().map(|(i, value)| (Knob::ALL[i], value)).collect();
            let (changes, errors) = writer.apply(&wanted);
            prop_assert!(errors.is_empty());
            // But ksmd is stopped first.
            let stops = changes.first().is_some_and(|change| (change.knob, change.new) == (Knob::Run, 0));
            prop_assert!(changes.iter().skip(usize::from(stops)).map(|change| change.knob).is_sorted());
            prop_assert!(changes.iter().all(|change| change.old != change.new));
            for (knob, value) in wanted.iter() {
                prop_assert_eq!(writer.get(knob).unwrap(), Some(value));
            }
        }
    }
}
