//! Credentials of a process: whether its user might examine it.
//!
//! A user may read the memory and the figures of processes that have that user's rights and no others. The rule is the
//! kernel's for ptrace (`__ptrace_may_access`): real, effective, saved and file-system user are the same, and so are
//! the groups; no extra capability; dumpable. A program that is set-user-id or set-group-id or has file capabilities
//! breaks the rule, also after dropping some of its rights.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Mode, OFlags, openat, statat};

use crate::accountable::{maps_users_as_here, parse_ids};
use crate::proc_file::{self, lossy};

/// The credentials of a process at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessRights {
    /// The real, effective, saved and file-system user.
    users: [u32; 4],
    /// The real, effective, saved and file-system group.
    groups: [u32; 4],
    /// Permitted capabilities, in the process's own user namespace.
    permitted: u64,
    /// Owner of its files under /proc: root's where it is not dumpable.
    owner: u32,
    /// True if its capabilities do not count here, because it runs in a user namespace of its own. One that root made and
    /// that renames no user is none.
    is_in_namespace: bool,
}

const ROOT: u32 = 0;

impl ProcessRights {
    /// Reads the rights of the process of an open /proc directory.
    ///
    /// # Errors
    /// It has ended, or its files or its user namespace can't be read.
    pub fn read(directory: &OwnedFd) -> io::Result<Self> {
        let owner = statat(directory, "status", AtFlags::empty())?.st_uid;
        let file = openat(directory, "status", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let text = proc_file::read_within(File::from(file), proc_file::budget("status"))?;
        let text = lossy(text.ok_or(io::ErrorKind::FileTooLarge)?);
        let mut rights = Self::parse(&text, owner).ok_or(io::ErrorKind::InvalidData)?;
        rights.is_in_namespace = !maps_users_as_here(directory)?;
        Ok(rights)
    }

    fn parse(status: &str, owner: u32) -> Option<Self> {
        let line = |key: &str| status.lines().find_map(|line| line.strip_prefix(key));
        Some(Self {
            users: parse_ids(status, "Uid:")?,
            groups: parse_ids(status, "Gid:")?,
            permitted: u64::from_str_radix(line("CapPrm:")?.trim(), 16).ok()?,
            owner,
            is_in_namespace: false,
        })
    }

    /// Returns true if they are those of `user` and no others.
    pub fn are_of(&self, user: u32) -> bool {
        self.users == [user; 4]
            && self.groups.iter().all(|group| *group == self.groups[0])
            && self.owner == user
            && (user == ROOT || self.permitted == 0 || self.is_in_namespace)
    }

    /// Returns the effective user.
    pub fn effective_user(&self) -> u32 {
        self.users[1]
    }

    /// Returns true if they are those of a user and a group, and no others.
    pub fn are_of_group(&self, user: u32, group: u32) -> bool {
        self.are_of(user) && self.groups == [group; 4]
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::CWD;

    use super::*;

    fn rights(users: &str, groups: &str, permitted: &str, owner: u32) -> ProcessRights {
        let text = format!("Name:\tx\nUid:\t{users}\nGid:\t{groups}\nCapInh:\t0\nCapPrm:\t{permitted}\n");
        ProcessRights::parse(&text, owner).unwrap()
    }

    #[test]
    fn each_right_besides_those_of_the_user_counts() {
        let plain = rights("7\t7\t7\t7", "8\t8\t8\t8", "0000000000000000", 7);
        assert!(plain.are_of(7) && plain.are_of_group(7, 8) && !plain.are_of_group(7, 9) && !plain.are_of(8));
        for (users, groups, permitted, owner, what) in [
            ("7 0 0 0", "8 8 8 8", "0", 7, "a set-user-id program"),
            ("7 7 0 7", "8 8 8 8", "0", 7, "one that kept it as its saved user"),
            ("7 7 7 7", "8 5 5 5", "0", 7, "a set-group-id program"),
            ("7 7 7 7", "8 8 5 8", "0", 7, "one that kept it as its saved group"),
            ("7 7 7 7", "8 8 8 8", "0000000000002000", 7, "a program with file capabilities"),
            ("7 7 7 7", "8 8 8 8", "0", 0, "one that is not dumpable"),
        ] {
            assert!(!rights(users, groups, permitted, owner).are_of(7), "{what}");
        }
        let root = rights("0 0 0 0", "0 0 0 0", "1ffffffffff", 0);
        assert!(root.are_of(0));
        let in_container =
            ProcessRights { is_in_namespace: true, ..rights("7 7 7 7", "8 8 8 8", "1ffffffffff", 7) };
        assert!(in_container.are_of(7), "capabilities over a namespace of the user's own");
    }

    #[test]
    fn text_without_a_right_is_no_rights() {
        for text in
            ["", "Uid:\t7\t7\t7\t7\n", "Uid:\t7\nGid:\t7\t7\t7\t7\nCapPrm:\t0\n", "Uid: x\nGid: x\nCapPrm: x\n"]
        {
            assert_eq!(ProcessRights::parse(text, 7), None, "{text:?}");
        }
    }

    #[test]
    fn our_own_are_those_of_our_user() {
        let own =
            openat(CWD, "/proc/self", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let rights = ProcessRights::read(&own).unwrap();
        let (user, group) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        assert!(rights.are_of_group(user, group) && !rights.is_in_namespace, "{rights:?}");
    }
}
