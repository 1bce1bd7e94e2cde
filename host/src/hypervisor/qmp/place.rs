//! The address of a monitor, and the connection to it.

use std::io;
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
        let mut failed = None;
        for path in seen_from_here(root, pid, path) {
            match QmpConnection::connect(&path, pid, owner.effective()) {
                Ok(monitor) => return Ok(Box::new(monitor)),
                Err(error) => {
                    let is_absent = is_absent(&error);
                    failed = Some(error);
                    if !is_absent {
                        break;
                    }
                }
            }
        }
        first = first.or(failed);
    }
    Err(first.unwrap_or(MonitorError::NoMonitor))
}

fn is_absent(error: &MonitorError) -> bool {
    matches!(error, MonitorError::Socket { source, .. } if source.kind() == io::ErrorKind::NotFound)
}

/// Translates a path of the guest to those for this process, of which the first that exists counts: it may be relative, or
/// lie in a container.
fn seen_from_here(root: &Root, pid: u32, path: &str) -> Vec<PathBuf> {
    let process = root.path(format!("proc/{pid}"));
    match path.strip_prefix('/') {
        Some(relative) => vec![root.path(relative), process.join("root").join(relative)],
        None => vec![process.join("cwd").join(path)],
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_path_is_that_of_the_host_or_of_the_guests_own_view() {
        let tree = tempfile::tempdir().unwrap();
        let root = Root::at(tree.path());
        let own = tree.path().join("proc/7");
        assert_eq!(seen_from_here(&root, 7, "q.sock"), [own.join("cwd/q.sock")]);
        assert_eq!(seen_from_here(&root, 7, "/run/q"), [tree.path().join("run/q"), own.join("root/run/q")]);
    }

    #[test]
    fn the_first_path_that_exists_is_tried_and_the_error_names_it() {
        let tree = tempfile::tempdir().unwrap();
        let own_view = Path::new("proc/7/root").join("run/q");
        let put = |path: &Path, text: &str| {
            let path = tree.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let user = rustix::process::geteuid().as_raw();
        put(Path::new("proc/7/status"), &format!("Uid:\t{user}\t{user}\t{user}\t{user}\n"));
        put(&own_view, "");
        let tried = || {
            let places = [MonitorSocket::Path("/run/q".to_owned())];
            match connect(&Root::at(tree.path()), 7, &places).err() {
                Some(MonitorError::Socket { path, .. }) => path.strip_prefix(tree.path()).unwrap().to_owned(),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(tried(), own_view);
        put(Path::new("run/q"), "");
        assert_eq!(tried(), PathBuf::from("run/q"));
    }
}
