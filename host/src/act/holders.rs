//! Other programs that write to KSM on this host.
//!
//! Only root can write there. So only programs of root count, and no user can keep ksmith from starting by a name.

use std::fmt;

use ksmith_core::kernel::CommandLine;
use ksmith_core::reading::Reading;
use ksmith_core::sample::ProcessId;

use super::{identity, tuned};
use crate::owner::Glance;
use crate::root::Root;

/// Which program it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HolderKind {
    /// The shell script of Debian, Fedora and Proxmox (there a fork of it, under the same name).
    Ksmtuned,
    /// The Memory Overcommitment Manager of oVirt.
    Momd,
    /// The daemon `tuned`, with a profile that mentions KSM.
    Tuned {
        /// The profile, or the one that it includes.
        profile: String,
    },
}

/// A process that controls KSM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// The program that the process runs.
    pub kind: HolderKind,
    /// The process's PID and start.
    pub id: ProcessId,
}

impl Holder {
    /// The program's name.
    pub fn name(&self) -> &'static str {
        match self.kind {
            HolderKind::Ksmtuned => "ksmtuned",
            HolderKind::Momd => "momd",
            HolderKind::Tuned { .. } => "tuned",
        }
    }

    /// How to end it for good.
    pub fn remedy(&self) -> &'static str {
        match self.kind {
            HolderKind::Ksmtuned => "systemctl stop ksmtuned",
            HolderKind::Momd => "systemctl stop mom-vdsm",
            HolderKind::Tuned { .. } => "tuned-adm profile <one without ksm>",
        }
    }

    /// Whether it can be stopped for a while. tuned answers requests over D-Bus, which would hang; it
    /// writes when a profile is applied and not in between.
    pub fn can_be_paused(&self) -> bool {
        !matches!(self.kind, HolderKind::Tuned { .. })
    }
}

/// `ksmtuned (pid 812)`
impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (pid {})", self.name(), self.id)?;
        match &self.kind {
            HolderKind::Tuned { profile } => write!(f, " with the profile {profile}, which sets KSM"),
            _ => Ok(()),
        }
    }
}

/// Looks at all processes. Another ksmith is not among them: it is known by its [`Lock`](super::Lock).
pub fn find(root: &Root) -> Vec<Holder> {
    let Ok(processes) = std::fs::read_dir(root.path("proc")) else { return Vec::new() };
    let pids = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let mut holders: Vec<Holder> = pids.filter_map(|pid| holder(root, pid)).collect();
    holders.sort_by_key(|holder| holder.id);
    holders
}

fn holder(root: &Root, pid: u32) -> Option<Holder> {
    let before = Glance::at(root, pid);
    if !before.is_roots_program() {
        return None;
    }
    let Reading::Value(text) = root.text(format!("proc/{pid}/cmdline")) else { return None };
    let kind = match script(&CommandLine::parse(text.as_bytes()))? {
        "ksmtuned" => HolderKind::Ksmtuned,
        "momd" => HolderKind::Momd,
        "tuned" => HolderKind::Tuned { profile: tuned::profile_with_ksm(root)? },
        _ => return None,
    };
    let holder = Holder { kind, id: identity::of(root, pid).get()? };
    // It may have executed another program meanwhile.
    (Glance::at(root, pid) == before).then_some(holder)
}

/// The name of what runs: the program, or the script where the program is an interpreter. A program that has
/// such a name among its arguments only (an editor, `grep`) is none.
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
