//! Unmerging everything: checked beforehand, done by a child process, watched by this one.

use std::io;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use ksmith_core::knobs::Knob;
use ksmith_core::units::{Bytes, TimeSpan};

use super::error::{UnmergeError, hint};
use super::throwaway::{ChildEnding, WriterChild};
use super::{KnobChange, KnobWriter, UnmergeHeadroom, knob_file};
use crate::ksm_counts::KsmCounts;
use crate::root::Root;
use crate::undo::disk::{self, DiskOperation};

/// Options of an unmerge.
#[derive(Debug, Clone, Copy)]
pub struct UnmergeOptions {
    /// Go ahead although memory may not suffice.
    pub force: bool,
    /// Time limit. What is unmerged by then stays so.
    pub patience: Duration,
}

impl Default for UnmergeOptions {
    /// Not forced, for one minute: a service manager would soon lose its own patience (systemd waits 90 s for a service
    /// to stop). A core of an EPYC VM unmerged 1 GiB in 0.74 s: `time echo 2 > run`.
    fn default() -> Self {
        Self { force: false, patience: Duration::from_secs(60) }
    }
}

/// The outcome of an unmerge. `run` is 2, and ksmd sleeps until something else is written there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnmergeOutcome {
    /// The value of `run` before.
    pub run_before: u64,
    /// Bytes that merging had saved.
    pub returned_bytes: u64,
}

/// Interval of progress reports.
const TICK: Duration = Duration::from_millis(100);
/// Time limit for a killed child to end: it may wait for the end of ksmd's batch.
const AFTER_KILL: Duration = Duration::from_secs(10);

/// Unmerges all pages. `progress` is called at intervals with the number of processes' pages that are still merged, and
/// may break off. The number falls in steps: the kernel updates its counters process by process.
///
/// With a journal in `writer`, `run` is recorded first. In a dry run only the memory is checked.
///
/// # Errors
/// See [`UnmergeError`]. What was unmerged by then stays so.
pub fn unmerge(
    writer: &mut KnobWriter,
    how: UnmergeOptions,
    progress: impl FnMut(u64) -> ControlFlow<()>,
) -> Result<UnmergeOutcome, UnmergeError> {
    let run_before = writer.get(Knob::Run).map_err(Box::new)?.ok_or(UnmergeError::NoKsm)?;
    let mut counts = KsmCounts::new(writer.root());
    let headroom = UnmergeHeadroom::with_counts(writer.root(), &mut counts);
    match headroom.check() {
        Err(why) if !how.force => return Err(why.into()),
        _ => {}
    }
    let done = UnmergeOutcome { run_before, returned_bytes: headroom.exposure_bytes };
    if writer.is_dry_run() || run_before == 2 && !headroom.is_anything_merged {
        return Ok(done);
    }
    // An unmerge that stops half way makes it 0.
    let into = |new| KnobChange { knob: Knob::Run, old: run_before, new };
    writer.note_changes(&[into(2), into(0)]).map_err(Box::new)?;
    let outcome = unmerge_noted(writer.root(), done, how, counts, progress);
    if outcome.is_ok() {
        writer.confirm(&[into(2)]);
    }
    outcome
}

fn unmerge_noted(
    root: &Root,
    done: UnmergeOutcome,
    how: UnmergeOptions,
    mut counts: KsmCounts,
    mut progress: impl FnMut(u64) -> ControlFlow<()>,
) -> Result<UnmergeOutcome, UnmergeError> {
    let mut merged = || -> u64 {
        let ksm = counts.read_merged();
        ksm.saved_pages().saturating_add(ksm.pages_shared.get().unwrap_or(0))
    };
    let path = knob_file::path(root, Knob::Run);
    let mut child =
        disk::run(DiskOperation::Knob, || WriterChild::write(&path, b"2\n")).map_err(UnmergeError::Child)?;
    let (ending, broken_off) =
        watch(&mut child, how.patience, || progress(merged())).map_err(UnmergeError::Child)?;

    let run = knob_file::read(root, Knob::Run).get().unwrap_or(done.run_before);
    let left_pages = merged();
    let why = match (ending, broken_off) {
        (Some(ChildEnding::Written), _) if run == 2 => return Ok(done),
        (Some(ChildEnding::Refused(errno)), _) => {
            let hint = hint(Knob::Run, Some(errno), false, true);
            let source = io::Error::from_raw_os_error(errno);
            return Err(UnmergeError::Refused { source, hint, run, left_pages });
        }
        (Some(ChildEnding::Written), _) => "by another program, which wrote to run meanwhile".to_owned(),
        (Some(ChildEnding::Killed), None) => "by the kernel, to free memory".to_owned(),
        (Some(ChildEnding::Killed), Some(why)) => why,
        (None, why) => format!("{}, but the kernel is still at it", why.unwrap_or_default()),
    };
    Err(UnmergeError::Stopped { why, run, left_pages })
}

/// Waits for the child's end, and kills it when `progress` breaks off or `patience` is over. Returns its outcome
/// (`None`: killed, but still there) and the reason for a break-off, if any.
fn watch(
    child: &mut WriterChild,
    patience: Duration,
    mut progress: impl FnMut() -> ControlFlow<()>,
) -> io::Result<(Option<ChildEnding>, Option<String>)> {
    let started = Instant::now();
    let why = loop {
        if let Some(ending) = child.wait(TICK.min(patience))? {
            return Ok((Some(ending), None));
        }
        if progress().is_break() {
            break "as asked".to_owned();
        }
        if started.elapsed() >= patience {
            break format!("after {}", TimeSpan(patience));
        }
    };
    child.kill()?;
    let killed = Instant::now();
    let mut ending = None;
    while ending.is_none() && killed.elapsed() < AFTER_KILL {
        ending = child.wait(TICK)?;
    }
    Ok((ending, Some(why)))
}

/// `everything is unmerged; 1.20 GiB given back to the processes`
impl std::fmt::Display for UnmergeOutcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "everything is unmerged; {} given back to the processes", Bytes::from(self.returned_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::super::NoHeadroom;
    use super::super::writer::tests::{tree, whole_tree};
    use super::*;

    fn go_on(_: u64) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    #[test]
    fn run_becomes_2_and_what_it_was_is_returned() {
        let tree = whole_tree();
        let mut writer = KnobWriter::new(&Root::at(tree.path()), false);
        writer.set(Knob::Run, 1).unwrap();
        let unmerged = unmerge(&mut writer, UnmergeOptions::default(), go_on).unwrap();
        assert_eq!(unmerged, UnmergeOutcome { run_before: 1, returned_bytes: 0 });
        assert_eq!(writer.get(Knob::Run).unwrap(), Some(2));
    }

    #[test]
    fn without_memory_it_is_refused_unless_forced() {
        let tree = whole_tree();
        std::fs::write(tree.path().join("sys/kernel/mm/ksm/pages_sharing"), "1000\n").unwrap();
        let mut writer = KnobWriter::new(&Root::at(tree.path()), false);
        let error = unmerge(&mut writer, UnmergeOptions::default(), go_on).unwrap_err();
        assert!(matches!(error, UnmergeError::NoHeadroom(NoHeadroom::Unknown { .. })), "{error}");
        assert_eq!(writer.get(Knob::Run).unwrap(), Some(0));
        unmerge(&mut writer, UnmergeOptions { force: true, ..UnmergeOptions::default() }, go_on).unwrap();
        assert_eq!(writer.get(Knob::Run).unwrap(), Some(2));
    }

    #[test]
    fn without_ksm_there_is_nothing_to_do() {
        let tree = tree(&[]);
        let mut writer = KnobWriter::new(&Root::at(tree.path()), false);
        let error = unmerge(&mut writer, UnmergeOptions::default(), go_on).unwrap_err();
        assert!(matches!(error, UnmergeError::NoKsm));
    }

    #[test]
    fn one_that_hangs_is_broken_off_on_request_and_at_the_deadline() {
        let tree = tempfile::tempdir().unwrap();
        let path = tree.path().join("fifo");
        // Opening a FIFO for writing waits for a reader that never comes.
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        let mut child = WriterChild::write(&path, b"2").unwrap();
        let asked = watch(&mut child, Duration::from_secs(600), || ControlFlow::Break(())).unwrap();
        assert_eq!(asked, (Some(ChildEnding::Killed), Some("as asked".to_owned())));
        let mut child = WriterChild::write(&path, b"2").unwrap();
        let late = watch(&mut child, Duration::from_millis(5), || ControlFlow::Continue(())).unwrap();
        assert_eq!(late, (Some(ChildEnding::Killed), Some("after 5 ms".to_owned())));
    }
}
