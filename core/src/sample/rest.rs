//! ksmd's pause between two passes.

/// ksmd's pause at a pass boundary, before it has visited anything of the next pass.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum BoundaryPause {
    /// ksmd can't pause: it is not woken under a lease.
    #[default]
    Unavailable,
    /// ksmd will pause at the requested pass boundary.
    Possible,
    /// ksmd is paused.
    Resting,
}
