//! Whether ksmd rests between two passes.

/// Whether ksmd rests at the end of a pass: it stays asleep there until it is decided what comes next, and has visited nothing of the
/// next pass.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Rest {
    /// Nothing has it rest: it is not woken under a lease.
    #[default]
    Unavailable,
    /// It will do so at the end that was asked for.
    Possible,
    /// It does so now.
    Resting,
}
