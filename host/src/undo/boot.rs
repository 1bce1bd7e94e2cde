//! Which boot an entry is from.

/// This boot, as far as the kernel names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Boot(pub(super) Option<String>);

impl Boot {
    /// Whether an entry is from another boot. Nothing that is undone survives one.
    pub(super) fn is_another(&self, boot_id: Option<&str>) -> bool {
        matches!((&self.0, boot_id), (Some(this), Some(that)) if this != that)
    }
}
