//! Diagnosis of one process: from evidence to a cause for each part of its memory.

mod cause;
mod diagnosis;
mod evidence;
mod examination;
mod judge;
#[cfg(test)]
mod tests;

pub use cause::Cause;
pub use diagnosis::{CauseTotal, Diagnosis, MappingDiagnosis, Part};
pub use examination::{Equals, Examination, Examined, HostState, Look, Pages, Then, Watch};
pub use judge::judge;
