//! The user of a process, from kernel data that the process can't choose.

use crate::reader;
use crate::reader::accountable::parse_ids;
use crate::root::Root;

/// The set-user-ID and set-group-ID bits of a file's mode.
const SET_ID: u32 = 0o6000;

/// The users of a process, from its `status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessOwner {
    /// The real, effective, saved and file system user.
    uids: [u32; 4],
    /// True if it is in the PID namespace of this host, and not in that of a container.
    is_of_host: bool,
}

impl ProcessOwner {
    /// Parses the owner from the text of `/proc/PID/status`.
    pub fn parse(status: &str) -> Option<Self> {
        let line = |key: &str| status.lines().find_map(|line| line.strip_prefix(key));
        let uids = parse_ids(status, "Uid:")?;
        // One PID for each namespace, that of this procfs first. A kernel without namespaces has no such line.
        let is_of_host = line("NSpid:").is_none_or(|pids| pids.split_ascii_whitespace().count() == 1);
        Some(Self { uids, is_of_host })
    }

    /// Reads the present owner of a process.
    pub fn from_pid(root: &Root, pid: u32) -> Option<Self> {
        root.text(format!("proc/{pid}/status")).value().and_then(|text| Self::parse(text))
    }

    /// Returns the effective user.
    pub fn effective(self) -> u32 {
        self.uids[1]
    }

    /// Returns the only user that it has the rights of; `None` for a program that a user has started and that has
    /// rights of another, such as `su`. Its arguments and part of its memory are the user's choice.
    pub fn only(self) -> Option<u32> {
        self.uids.iter().all(|uid| *uid == self.uids[0]).then_some(self.uids[0])
    }

    /// Returns true if it is in the PID namespace of this host, and not in that of a container.
    pub fn is_of_host(self) -> bool {
        self.is_of_host
    }

    fn is_root_of_host(self) -> bool {
        self.only() == Some(0) && self.is_of_host
    }
}

/// The owner and the program of a process at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnershipSnapshot {
    owner: Option<ProcessOwner>,
    /// The executed file, read for root's processes only.
    program: Option<ExecutedFile>,
}

impl OwnershipSnapshot {
    /// Reads the owner and the program of a process.
    pub fn at(root: &Root, pid: u32) -> Self {
        let owner = ProcessOwner::from_pid(root, pid);
        let is_roots = owner.is_some_and(ProcessOwner::is_root_of_host);
        Self { owner, program: if is_roots { program(root, pid) } else { None } }
    }

    /// Returns the owner of the process.
    pub fn owner(self) -> Option<ProcessOwner> {
        self.owner
    }

    /// Returns true if the process runs a program that root of this host has started, so that its command line can be
    /// trusted. A command line counts only if a glance before the read equals one after it: the process may have
    /// executed another program meanwhile.
    ///
    /// Root of a container does not count: it has a PID namespace of its own. Nor does a set-user-ID program, with
    /// arguments that any user chooses: some of these, such as `sudo`, take all of root's rights before they ask for a
    /// password.
    pub fn is_roots_program(self) -> bool {
        self.program.is_some_and(|program| !program.has_set_id)
    }
}

/// The identity of the file that a process executes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct ExecutedFile {
    /// Device and inode.
    file: ([u32; 2], u64),
    has_set_id: bool,
}

/// Returns the executed file of a process; `None` if it can't be read. A captured tree has no programs.
fn program(root: &Root, pid: u32) -> Option<ExecutedFile> {
    if !root.is_host() {
        return Some(ExecutedFile::default());
    }
    let file = reader::file_status(pid, "exe").ok()?;
    Some(ExecutedFile { file: (file.device, file.inode), has_set_id: file.mode & SET_ID != 0 })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    use super::*;

    fn owner(uids: &str, pids: &str) -> ProcessOwner {
        ProcessOwner::parse(&format!("Name:\tx\nUid:\t{uids}\nNSpid:\t{pids}\n")).unwrap()
    }

    #[test]
    fn root_of_a_container_and_a_set_user_id_program_are_not_root_of_the_host() {
        assert!(owner("0\t0\t0\t0", "812").is_root_of_host());
        assert!(!owner("0\t0\t0\t0", "812\t1").is_root_of_host(), "of a container");
        for uids in ["1000\t0\t0\t0", "0\t0\t1000\t0", "1000\t1000\t1000\t1000"] {
            assert!(!owner(uids, "812").is_root_of_host(), "{uids}");
        }
        assert_eq!(owner("64\t64\t64\t64", "1").only(), Some(64));
        assert_eq!((owner("1000\t0\t0\t0", "1").only(), owner("1000\t0\t0\t0", "1").effective()), (None, 0));
        for bad in ["", "Uid:\t1\t2\t3", "Uid:\ta\tb\tc\td"] {
            assert_eq!(ProcessOwner::parse(bad), None, "{bad}");
        }
        assert!(ProcessOwner::parse("Uid:\t0\t0\t0\t0\n").unwrap().is_root_of_host(), "without namespaces");
    }

    #[test]
    fn a_process_of_another_user_is_never_roots_program_whatever_it_is_called() {
        let root = Root::host();
        if ProcessOwner::from_pid(&root, std::process::id()).unwrap().effective() != 0 {
            return;
        }
        let start = |uid: u32| {
            let mut command = Command::new("sleep");
            command.arg0("qemu-system-x86_64").arg("60").uid(uid).stdin(Stdio::null());
            command.spawn().unwrap()
        };
        for (uid, expected) in [(0, true), (65534, false)] {
            let mut child = start(uid);
            assert_eq!(OwnershipSnapshot::at(&root, child.id()).is_roots_program(), expected, "{uid}");
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert!(!OwnershipSnapshot::at(&root, u32::MAX).is_roots_program());
    }

    #[test]
    fn a_process_that_changes_its_user_is_seen_to_change() {
        let tree = tempfile::tempdir().unwrap();
        let directory = tree.path().join("proc/7");
        fs::create_dir_all(&directory).unwrap();
        let is =
            |uid: u32| fs::write(directory.join("status"), format!("Uid:\t{uid}\t{uid}\t{uid}\t{uid}\n")).unwrap();
        let root = Root::at(tree.path());
        is(0);
        let before = OwnershipSnapshot::at(&root, 7);
        assert!(before.is_roots_program() && before == OwnershipSnapshot::at(&root, 7));
        is(1000);
        assert!(before != OwnershipSnapshot::at(&root, 7) && !OwnershipSnapshot::at(&root, 7).is_roots_program());
    }
}
