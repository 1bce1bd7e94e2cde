//! Reading a plain process, to decide if it is worth watching.

use ksmith_core::kernel::PidStat;
use ksmith_core::reading::Reading;

use super::asked::Told;
use super::figures::Figures;
use super::proc_dir::ProcDir;
use super::scratch::Scratch;
use crate::hypervisor::may_be_vm;
use crate::proc_file::Unanswered;

/// The outcome of reading a plain process.
pub(super) enum Look {
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
    Silent(Unanswered),
    /// The sample's time ended before its turn.
    Late,
    /// Its command line is deferred.
    Unnamed,
}

impl<T> From<Reading<T>> for Look {
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
pub(super) fn look_at_name(proc: &ProcDir, pid: u32, scratch: &mut Scratch) -> Option<Look> {
    match proc.read(pid, "stat", scratch).and_then(PidStat::parse) {
        Reading::Value(stat) if stat.is_kernel_thread || stat.is_zombie => Some(Look::Memoryless),
        Reading::Value(stat) if may_be_vm(&stat.comm) => Some(Look::Promising),
        Reading::Absent => Some(Look::Gone),
        _ => None,
    }
}

/// Classifies a plain process by its figures.
pub(super) fn look_at_figures(proc: &ProcDir, pid: u32, told: Told, scratch: &mut Scratch) -> Look {
    let answer = match told {
        Told::Answer(answer) => answer,
        Told::Nothing(unanswered) => return Look::Silent(unanswered),
        Told::NotAsked => return Look::Late,
    };
    let mut figures = Figures::default();
    let merging = || proc.bytes(pid, "ksm_merging_pages", scratch);
    match figures.read(answer, merging) {
        _ if !figures.are_there() && proc.open_file(pid, "stat").is_err() => Look::Gone,
        Reading::Value(Some(ksm)) if ksm.is_involved() => Look::Promising,
        Reading::Value(Some(ksm)) => Look::Nothing { is_sure: ksm.mergeable.is_some() },
        Reading::Value(None) => Look::Memoryless,
        other => other.into(),
    }
}
