//! A change of one setting.

use std::fmt;

use ksmith_core::knobs::Knob;

/// A change of one knob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnobChange {
    /// The knob that was changed.
    pub knob: Knob,
    /// The value before.
    pub old: u64,
    /// The value after.
    pub new: u64,
}

/// `pages_to_scan 100 -> 1000`
impl fmt::Display for KnobChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} -> {}", self.knob, self.knob.text(self.old), self.knob.text(self.new))
    }
}
