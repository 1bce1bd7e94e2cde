//! The boot from which an entry is.

/// This boot's id, if the kernel has one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BootId(pub(super) Option<String>);

impl BootId {
    /// Returns true if an entry is from another boot. Settings do not survive a boot, so nothing of it is undone.
    pub(super) fn is_another(&self, boot_id: Option<&str>) -> bool {
        matches!((&self.0, boot_id), (Some(this), Some(that)) if this != that)
    }
}
