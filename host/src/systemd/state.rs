//! The state of a unit, from systemd's own files, so that no program is started.

use std::fs;
use std::path::{Path, PathBuf};

use ksmith_core::other_controllers::BootState;

use super::UNIT_DIRECTORIES;
use crate::root::Root;

/// Directories of the administrator's lasting choices, and of those for this boot.
const LASTING: &str = "etc/systemd/system";
const RUNTIME: &str = "run/systemd/system";

/// Returns true if systemd is the service manager of this host.
pub fn is_running(root: &Root) -> bool {
    root.path("run/systemd/system").is_dir()
}

/// Returns true if a unit file of this name exists. An instance has the unit file of its template.
pub fn exists(root: &Root, unit: &str) -> bool {
    let template = unit.split_once('@').map(|(name, _)| format!("{name}@.service"));
    UNIT_DIRECTORIES.iter().any(|directory| {
        let has = |name: &str| root.path(directory).join(name).symlink_metadata().is_ok();
        has(unit) || template.as_deref().is_some_and(has)
    })
}

/// Returns true if a unit is active: systemd shows the invocation of each unit that is not inactive.
pub fn is_active(root: &Root, unit: &str) -> bool {
    root.path("run/systemd/units").join(format!("invocation:{unit}")).symlink_metadata().is_ok()
}

/// Returns the boot state of a unit: masked, enabled, enabled for this boot, or disabled.
pub fn at_boot(root: &Root, unit: &str) -> BootState {
    let is_masked = |directory: &str| {
        let path = root.path(directory).join(unit);
        fs::read_link(&path).is_ok_and(|target| target == Path::new("/dev/null"))
            || fs::metadata(&path).is_ok_and(|file| file.is_file() && file.len() == 0)
    };
    if is_masked(LASTING) || is_masked(RUNTIME) {
        return BootState::Masked;
    }
    match () {
        () if !links(root, LASTING, unit).is_empty() => BootState::Enabled,
        () if !links(root, RUNTIME, unit).is_empty() => BootState::EnabledRuntime,
        () => BootState::Disabled,
    }
}

/// Returns the links by which other units pull a unit in, as an administrator enabled it.
pub fn enabling_links(root: &Root, unit: &str) -> Vec<PathBuf> {
    links(root, LASTING, unit)
}

fn links(root: &Root, directory: &str, unit: &str) -> Vec<PathBuf> {
    let pulls = |name: &str| [".wants", ".requires", ".upholds"].iter().any(|suffix| name.ends_with(suffix));
    let entries = fs::read_dir(root.path(directory)).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries
        .filter(|entry| entry.file_name().to_str().is_some_and(pulls))
        .map(|entry| entry.path().join(unit))
        .filter(|link| link.symlink_metadata().is_ok())
        .collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn each_state_is_told_from_the_others() {
        let tree = tempfile::tempdir().unwrap();
        let root = Root::at(tree.path());
        let (lasting, runtime) = (root.path("etc/systemd/system"), root.path("run/systemd/system"));
        fs::create_dir_all(lasting.join("multi-user.target.wants")).unwrap();
        fs::create_dir_all(lasting.join("a.service.d")).unwrap();
        fs::create_dir_all(runtime.join("x.target.requires")).unwrap();
        assert!(is_running(&root) && !exists(&root, "a.service"));
        fs::write(lasting.join("a.service"), "[Unit]\n").unwrap();
        assert!(exists(&root, "a.service"));
        assert_eq!(at_boot(&root, "a.service"), BootState::Disabled);
        symlink("../a.service", runtime.join("x.target.requires/a.service")).unwrap();
        assert_eq!(at_boot(&root, "a.service"), BootState::EnabledRuntime);
        let link = lasting.join("multi-user.target.wants/a.service");
        symlink("/nowhere/a.service", &link).unwrap();
        assert_eq!(at_boot(&root, "a.service"), BootState::Enabled);
        assert_eq!(enabling_links(&root, "a.service"), [link]);
        symlink("/dev/null", lasting.join("b.service")).unwrap();
        fs::write(lasting.join("c.service"), "").unwrap();
        assert_eq!(at_boot(&root, "b.service"), BootState::Masked);
        assert_eq!(at_boot(&root, "c.service"), BootState::Masked);
    }
}
