//! Processes that pin the memory of a guest for a device (VFIO).

use std::path::Path;

use crate::proc_file::DESCRIPTORS;
use crate::reader;
use crate::root::Root;

/// Returns true if a process holds VFIO files, so that the memory of a guest is pinned for the device; `None` if that
/// is unknown.
pub fn holds_vfio(root: &Root, pid: u32) -> Option<bool> {
    let directory = root.path(format!("proc/{pid}/fd"));
    let mut entries = std::fs::read_dir(&directory).ok()?.flatten();
    let names =
        entries.by_ref().take(DESCRIPTORS as usize).filter_map(|entry| entry.file_name().into_string().ok());
    let found = match root.is_host() {
        true => {
            let links: Vec<String> = names.map(|name| format!("fd/{name}")).collect();
            reader::links(pid, &links).ok()?.into_iter().flatten().any(|target| is_vfio(&target))
        }
        false => names.map(|name| directory.join(name)).any(|link| is_target_vfio(&link)),
    };
    if !found && entries.next().is_some() { None } else { Some(found) }
}

/// Returns true if a link of a captured tree points to a file of VFIO.
fn is_target_vfio(link: &Path) -> bool {
    std::fs::read_link(link).is_ok_and(|target| is_vfio(&target.to_string_lossy()))
}

fn is_vfio(target: &str) -> bool {
    target.starts_with("/dev/vfio/") || target.contains("[vfio") || target.contains("kvm-vfio")
}
