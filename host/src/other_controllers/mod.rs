//! Other controllers of KSM on this host, by the table in `ksmith_core::other_controllers`: which run, and which start
//! at boot.
//!
//! Only reads files: the processes, systemd's directories and tuned's profiles.

mod boot_files;
mod processes;
mod services;
mod survey;
mod tuned;

use std::path::PathBuf;

use ksmith_core::other_controllers::OtherController;

use crate::root::Root;
pub use processes::{ControllerProcess, find, find_certain};
pub use survey::survey;

/// Returns the file of tuned's active profile that names khugepaged's settings.
pub fn file_with_khugepaged(root: &Root) -> Option<PathBuf> {
    tuned::file_with_khugepaged(root)
}

/// Returns true if the controller of this row can be on this host: where two rows share a program, its package is
/// installed.
fn is_installed(root: &Root, row: &OtherController) -> bool {
    row.package.is_none_or(|file| root.path(file).symlink_metadata().is_ok())
}
