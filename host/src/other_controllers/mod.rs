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

use ksmith_core::other_controllers::{OtherController, name};

use crate::root::Root;
pub use processes::{ControllerProcess, find, find_certain};
pub use survey::survey;

/// Returns the file of tuned's active profile that names khugepaged's settings.
pub fn file_with_khugepaged(root: &Root) -> Option<PathBuf> {
    tuned::file_with_khugepaged(root)
}

/// Returns true if the controller of this row can be on this host: where two rows share a program, its package is
/// installed, or its file says so.
fn is_installed(root: &Root, row: &OtherController) -> bool {
    if row.name == name::QEMU_KVM_OFF {
        let text = root.text("etc/default/qemu-kvm");
        let lines = text.value().into_iter().flat_map(|text| text.lines());
        let mut values = lines.filter_map(|line| {
            let line = line.trim_start();
            line.strip_prefix("export ").unwrap_or(line).trim_start().strip_prefix("KSM_ENABLED=")
        });
        let last = values.next_back().and_then(|value| value.split_ascii_whitespace().next());
        return last.is_some_and(|value| value.trim_matches(['"', '\'']) == "0");
    }
    row.package.is_none_or(|file| root.path(file).symlink_metadata().is_ok())
}
