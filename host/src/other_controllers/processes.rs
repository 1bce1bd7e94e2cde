//! Other programs that write to KSM on this host.
//!
//! Only root can write there. So only programs of root and services of the system count, and no user can keep ksmith
//! from starting by a name.

use std::fmt;

use ksmith_core::kernel::CommandLine;
use ksmith_core::other_controllers::{
    ControllerConflict, FoundController, OTHER_CONTROLLERS, OtherController, TunedProfile, name,
};
use ksmith_core::reading::Reading;
use ksmith_core::sample::ProcessId;

use super::{services, tuned};
use crate::owner::{OwnershipSnapshot, ProcessOwner};
use crate::root::Root;
use crate::undo::identity;

/// A process that controls KSM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControllerProcess {
    /// The controller that the process is.
    pub controller: &'static OtherController,
    /// The process's PID and start.
    pub id: ProcessId,
    /// The profile of tuned.
    pub profile: Option<TunedProfile>,
}

impl ControllerProcess {
    /// Returns the controller's name.
    pub fn name(&self) -> &'static str {
        self.controller.name
    }

    /// Returns the command that ends the controller for good, or a hint if there are several.
    pub fn remedy(&self) -> String {
        match self.found().commands_over().as_slice() {
            [command] => command.clone(),
            _ => format!("`ksmith doctor` shows the commands for {}", self.name()),
        }
    }

    /// Returns true if the controller can be paused.
    pub fn can_be_paused(&self) -> bool {
        self.controller.can_be_paused
    }

    fn found(&self) -> FoundController {
        FoundController {
            controller: self.controller,
            pids: vec![self.id.pid],
            profile: self.profile.clone(),
            states: Vec::new(),
            files: Vec::new(),
            is_on: false,
        }
    }
}

/// Formats as `ksmtuned (pid 812)`.
impl fmt::Display for ControllerProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.found().fmt(f)
    }
}

/// Finds all processes that write to KSM, or may. Another ksmith is not among them: its lock reveals it.
pub fn find(root: &Root) -> Vec<ControllerProcess> {
    let Ok(processes) = std::fs::read_dir(root.path("proc")) else { return Vec::new() };
    let pids = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let mut holders: Vec<ControllerProcess> = pids.filter_map(|pid| holder(root, pid)).collect();
    holders.sort_by_key(|holder| holder.id);
    holders
}

/// Finds the processes that override ksmith's settings.
pub fn find_certain(root: &Root) -> Vec<ControllerProcess> {
    let mut holders = find(root);
    holders.retain(|holder| holder.controller.conflict == ControllerConflict::Certain);
    holders
}

fn holder(root: &Root, pid: u32) -> Option<ControllerProcess> {
    let before = OwnershipSnapshot::at(root, pid);
    let is_of_host = before.owner().is_some_and(ProcessOwner::is_of_host);
    let service = if is_of_host { services::of_process(root, pid) } else { None };
    if !before.is_roots_program() && service.is_none() {
        return None;
    }
    let Reading::Value(text) = root.text(format!("proc/{pid}/cmdline")) else { return None };
    let line = CommandLine::parse(text.as_bytes());
    let program = script(&line)?;
    let is_trusted = |row: &OtherController| {
        before.is_roots_program() || service.as_deref().is_some_and(|service| row.services.contains(&service))
    };
    let is_it = |row: &&OtherController| row.programs.contains(&program) && super::is_installed(root, row);
    let controller = OTHER_CONTROLLERS.iter().find(is_it).filter(|row| is_trusted(row))?;
    let profile = match controller.name {
        name::TUNED => Some(tuned::profile_with_ksm(root)?),
        _ => None,
    };
    let holder = ControllerProcess { controller, id: identity::read_id(root, pid).get()?, profile };
    // It may have executed another program meanwhile.
    (OwnershipSnapshot::at(root, pid) == before).then_some(holder)
}

/// Returns the name of the program, or of the script if the program is an interpreter. A program that has such a name
/// among its arguments only (an editor, `grep`) has none.
fn script(line: &CommandLine) -> Option<&str> {
    const INTERPRETERS: [&str; 6] = ["sh", "bash", "dash", "ash", "ksh", "python"];
    let program = line.program();
    let bare = program.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    if !INTERPRETERS.contains(&bare) {
        return Some(program);
    }
    let arguments = line.arguments().get(1..)?;
    if arguments.iter().take_while(|argument| argument.starts_with('-')).any(|option| option == "-c") {
        return None;
    }
    let path = arguments.iter().find(|argument| !argument.starts_with(['-', '+']))?;
    path.rsplit('/').next()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;

    fn process(tree: &Path, pid: u32, arguments: &[&str]) {
        let directory = tree.join("proc").join(pid.to_string());
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("cmdline"), arguments.iter().map(|a| format!("{a}\0")).collect::<String>())
            .unwrap();
        let stat = format!("{pid} (x) S 1 1 1 0 -1 4194560 0 0 0 0 5 6 0 0 20 0 1 0 {}00 1000 33 0", pid);
        fs::write(directory.join("stat"), stat).unwrap();
        status(tree, pid, "0\t0\t0\t0", "");
    }

    fn status(tree: &Path, pid: u32, uids: &str, namespaces: &str) {
        let text = format!("Name:\tx\nUid:\t{uids}\nNSpid:\t{pid}{namespaces}\n");
        fs::write(tree.join("proc").join(pid.to_string()).join("status"), text).unwrap();
    }

    #[test]
    fn a_controller_is_a_program_of_root_and_of_this_host() {
        let tree = tempfile::tempdir().unwrap();
        process(tree.path(), 12, &["/bin/bash", "/usr/sbin/ksmtuned"]);
        process(tree.path(), 13, &["ksmtuned"]);
        process(tree.path(), 14, &["ksmtuned"]);
        process(tree.path(), 15, &["ksmtuned"]);
        status(tree.path(), 13, "1000\t1000\t1000\t1000", "");
        status(tree.path(), 14, "1000\t0\t0\t0", "");
        status(tree.path(), 15, "0\t0\t0\t0", "\t1");
        let found: Vec<u32> = find(&Root::at(tree.path())).iter().map(|holder| holder.id.pid).collect();
        assert_eq!(found, [12], "not of a user, of a set-user-ID program or of a container");
    }

    #[test]
    fn each_controller_is_known_by_what_runs() {
        let tree = tempfile::tempdir().unwrap();
        process(tree.path(), 12, &["/bin/bash", "/usr/sbin/ksmtuned"]);
        process(tree.path(), 3, &["/usr/bin/python3.11", "-s", "/usr/sbin/momd", "-c", "/etc/vdsm/mom.conf"]);
        process(tree.path(), 40, &["/usr/bin/python3", "-Es", "/usr/sbin/tuned", "-l", "-P"]);
        process(tree.path(), 41, &["vi", "/usr/sbin/ksmtuned"]);
        process(tree.path(), 42, &["bash", "-c", "ksmtuned"]);
        process(tree.path(), 43, &[]);
        let found = find(&Root::at(tree.path()));
        let found: Vec<_> = found.iter().map(|h| (h.name(), h.id.pid, h.id.start_ticks)).collect();
        assert_eq!(found, [("momd", 3, 300), ("ksmtuned", 12, 1200)]);
    }

    #[test]
    fn a_service_of_the_system_counts_whatever_its_user() {
        let tree = tempfile::tempdir().unwrap();
        for (pid, cgroup) in [
            (20, "0::/system.slice/mom-vdsm.service"),
            (21, "13:memory:/x\n1:name=systemd:/system.slice/mom-vdsm.service\n0::/"),
            (22, "0::/user.slice/user-1000.slice/user@1000.service/system.slice/mom-vdsm.service"),
            (23, "0::/machine.slice/a.scope/system.slice/mom-vdsm.service"),
            (24, "0::/system.slice/other.service"),
        ] {
            process(tree.path(), pid, &["/usr/bin/python3", "/usr/sbin/momd"]);
            status(tree.path(), pid, "36\t36\t36\t36", "");
            fs::write(tree.path().join(format!("proc/{pid}/cgroup")), format!("{cgroup}\n")).unwrap();
        }
        let found: Vec<u32> = find(&Root::at(tree.path())).iter().map(|holder| holder.id.pid).collect();
        assert_eq!(found, [20, 21], "oVirt's momd runs as vdsm");
    }

    #[test]
    fn a_handler_that_may_write_is_found_and_is_not_certain() {
        let tree = tempfile::tempdir().unwrap();
        process(tree.path(), 9, &["virt-handler", "--port", "8443"]);
        process(tree.path(), 10, &["/usr/bin/uksmd"]);
        let root = Root::at(tree.path());
        let names =
            |holders: Vec<ControllerProcess>| holders.iter().map(ControllerProcess::name).collect::<Vec<_>>();
        assert_eq!(names(find(&root)), ["virt-handler", "uksmd"]);
        assert_eq!(names(find_certain(&root)), ["uksmd"]);
    }

    #[test]
    fn proxmoxs_package_is_told_from_others() {
        let tree = tempfile::tempdir().unwrap();
        process(tree.path(), 12, &["/bin/bash", "/usr/sbin/ksmtuned"]);
        let root = Root::at(tree.path());
        assert_eq!(find(&root)[0].to_string(), "ksmtuned (pid 12)");
        fs::create_dir_all(tree.path().join("usr/share/doc/ksm-control-daemon")).unwrap();
        assert_eq!(find(&root)[0].to_string(), "ksmtuned of Proxmox VE (pid 12)");
    }

    #[test]
    fn tuned_counts_only_with_a_profile_that_sets_ksm() {
        let tree = tempfile::tempdir().unwrap();
        process(tree.path(), 40, &["/usr/bin/python3", "-Es", "/usr/sbin/tuned", "-l", "-P"]);
        let etc = tree.path().join("etc/tuned/mine");
        fs::create_dir_all(&etc).unwrap();
        fs::write(tree.path().join("etc/tuned/active_profile"), "mine\n").unwrap();
        fs::write(etc.join("tuned.conf"), "[sysfs]\n/sys/kernel/mm/ksm/run=1\n").unwrap();
        let found = find(&Root::at(tree.path()));
        assert_eq!(found[0].to_string(), "tuned (pid 40) with the profile mine, which sets KSM");
        assert!(!found[0].can_be_paused());
    }

    #[test]
    fn a_tree_without_proc_has_no_holders() {
        let tree = tempfile::tempdir().unwrap();
        assert!(find(&Root::at(tree.path())).is_empty());
    }

    proptest! {
        #[test]
        fn no_command_line_panics(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = script(&CommandLine::parse(&bytes));
        }
    }
}
