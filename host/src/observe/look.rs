//! Reading a plain process, to decide if it is worth watching.

use ksmith_core::kernel::Statm;
use ksmith_core::reading::Reading;

use super::asked::FileAnswer;
use super::figures::ProcessFigures;
use super::proc_dir::ProcDir;
use super::scratch::ReadBuffer;
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
    };
    let mut figures = ProcessFigures::default();
    let merging = || proc.bytes(pid, "ksm_merging_pages", scratch);
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
