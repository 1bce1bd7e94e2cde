//! Reading a plain process, to decide if it is worth watching.

use std::io;

use ksmith_core::kernel::Statm;
use ksmith_core::reading::Reading;

use super::figures::ProcessFigures;
use super::proc_dir::ProcDir;
use super::scratch::ReadBuffer;
use super::silences::FileAnswer;
use crate::hypervisor::may_be_vm;
use crate::proc_file::UnansweredRead;

/// The outcome of reading a plain process.
pub(super) enum PlainReading {
    /// Mergeable memory, or a program that may be a hypervisor.
    Promising,
    /// No mergeable memory. `is_sure` if this kernel would have shown it.
    Nothing {
        is_sure: bool,
    },
    Hidden,
    Memoryless,
    Gone,
    /// The process did not answer.
    Silent(UnansweredRead),
    /// The sample's time ended before its turn.
    Late,
    /// Silent processes of its user have used up the user's share of this sample.
    HeldBack,
    /// Its command line is deferred.
    Unnamed,
}

impl<T> From<Reading<T>> for PlainReading {
    /// Converts a reading without a value.
    fn from(reading: Reading<T>) -> Self {
        match reading {
            Reading::Value(_) | Reading::Malformed(_) => Self::Nothing { is_sure: true },
            Reading::Absent => Self::Gone,
            Reading::Denied => Self::Hidden,
        }
    }
}

/// Classifies a plain process by its name; `None` if that does not suffice.
pub(super) fn look_at_name(proc: &ProcDir, pid: u32, scratch: &mut ReadBuffer) -> Option<PlainReading> {
    match proc.read(pid, "comm", scratch) {
        Reading::Value(comm) if may_be_vm(comm.trim_end_matches('\n')) => Some(PlainReading::Promising),
        Reading::Absent if proc.process(pid).is_err() => Some(PlainReading::Gone),
        _ => None,
    }
}

/// Classifies a plain process by its figures.
pub(super) fn look_at_figures(
    proc: &ProcDir,
    pid: u32,
    told: FileAnswer,
    scratch: &mut ReadBuffer,
) -> PlainReading {
    let answer = match told {
        FileAnswer::Answer(answer) => answer,
        FileAnswer::Nothing(unanswered) => return PlainReading::Silent(unanswered),
        FileAnswer::NotAsked => return PlainReading::Late,
        FileAnswer::HeldBack => return PlainReading::HeldBack,
    };
    let mut figures = ProcessFigures::default();
    // One file decides: a second one may be of the next process with this PID. Merged pages are among those of `ksm_stat`.
    let has_ksm_stat = answer.is_ok();
    let merging = || match has_ksm_stat {
        true => Err(io::ErrorKind::NotFound.into()),
        false => proc.bytes(pid, "ksm_merging_pages", scratch),
    };
    match figures.read(answer, merging) {
        _ if !figures.are_there() && proc.process(pid).is_err() => PlainReading::Gone,
        Reading::Value(Some(ksm)) if ksm.is_involved() => PlainReading::Promising,
        Reading::Value(None) => PlainReading::Memoryless,
        // No figure shows then that a process has no memory.
        found if found == Reading::Denied || !figures.are_there() => {
            match proc.read(pid, "statm", scratch).and_then(Statm::parse) {
                Reading::Value(Statm { mapped_pages: 0, .. }) => PlainReading::Memoryless,
                _ if found == Reading::Denied => PlainReading::Hidden,
                _ => PlainReading::Nothing { is_sure: false },
            }
        }
        Reading::Value(Some(ksm)) => PlainReading::Nothing { is_sure: ksm.mergeable.is_some() },
        other => other.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::Root;

    #[test]
    fn the_next_process_with_a_pid_adds_nothing_to_the_figures_of_the_one_that_was_read() {
        let tree = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(tree.path().join("proc/7")).unwrap();
        let next = tree.path().join("proc/7/ksm_merging_pages");
        std::fs::write(&next, "999\n").unwrap();
        let proc = ProcDir::open(&Root::at(tree.path())).unwrap();
        let look = |told| look_at_figures(&proc, 7, FileAnswer::Answer(told), &mut ReadBuffer::new());
        // As of Linux 6.1, which has the merged pages in a file of their own.
        let read = || Ok(b"ksm_rmap_items 0\n".to_vec());
        assert!(matches!(look(read()), PlainReading::Nothing { is_sure: false }));
        assert!(matches!(look(Ok(b"ksm_rmap_items 3\n".to_vec())), PlainReading::Promising));
        // As of Linux 5.19, which has no other file.
        let none = || Err(io::ErrorKind::NotFound.into());
        assert!(matches!(look(none()), PlainReading::Promising));
        std::fs::write(&next, "0\n").unwrap();
        assert!(matches!(look(none()), PlainReading::Nothing { is_sure: false }));
    }
}
