//! The address of a monitor, and the connection to it.

use std::path::PathBuf;

use super::socket::QmpConnection;
use super::{MonitorError, QmpMonitor};
use crate::owner::ProcessOwner;
use crate::root::Root;

/// A monitor that speaks QMP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MonitorSocket {
    /// A unix socket by its path, relative to the process's working directory unless it begins with a slash.
    Path(String),
    /// A socket that the process inherited from a manager: it can be reached through that one only (libvirt).
    Inherited,
}

/// Connects to the first of the monitors that answers, if the process `pid` itself serves it.
///
/// # Errors
/// The error of the first; [`MonitorError::NoMonitor`] if there is none.
pub fn connect(root: &Root, pid: u32, places: &[MonitorSocket]) -> Result<Box<dyn QmpMonitor>, MonitorError> {
    let mut first = None;
    for place in places {
        let MonitorSocket::Path(path) = place else { continue };
        let Some(owner) = ProcessOwner::from_pid(root, pid) else { continue };
        match QmpConnection::connect(&seen_from_here(root, pid, path), pid, owner.effective()) {
            Ok(monitor) => return Ok(Box::new(monitor)),
            Err(error) => first = first.or(Some(error)),
        }
    }
    Err(first.unwrap_or(MonitorError::NoMonitor))
}

/// Translates a path of the guest to one for this process: it may be relative, or lie in a container.
fn seen_from_here(root: &Root, pid: u32, path: &str) -> PathBuf {
    let process = root.path(format!("proc/{pid}"));
    match path.strip_prefix('/') {
        Some(relative) => {
            let plain = root.path(relative);
            if plain.exists() { plain } else { process.join("root").join(relative) }
        }
        None => process.join("cwd").join(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_that_of_the_guests_own_view() {
        let tree = tempfile::tempdir().unwrap();
        let root = Root::at(tree.path());
        assert_eq!(seen_from_here(&root, 7, "q.sock"), tree.path().join("proc/7/cwd/q.sock"));
        assert_eq!(seen_from_here(&root, 7, "/run/q"), tree.path().join("proc/7").join("root").join("run/q"));
        std::fs::create_dir(tree.path().join("run")).unwrap();
        std::fs::write(tree.path().join("run/q"), "").unwrap();
        assert_eq!(seen_from_here(&root, 7, "/run/q"), tree.path().join("run/q"));
    }
}
