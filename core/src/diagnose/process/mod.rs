//! Diagnosis of one process: from evidence to a cause for each part of its memory.

mod cause;
mod diagnosis;
mod evidence;
mod examination;
mod judge;
#[cfg(test)]
mod tests;

pub use cause::Cause;
pub use diagnosis::{CausePart, CauseTotal, MappingDiagnosis, ProcessDiagnosis};
pub use examination::{
    AnonymousPages, EqualPages, HostState, LaterState, MappingExamination, ProcessExamination, ScanWatch,
    WatchedPage,
};
pub use judge::judge;
