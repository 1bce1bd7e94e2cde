//! The accountable uid of a process: its user, or the user that made the user namespace in which it runs.
//!
//! A user with subordinate ids (`/etc/subuid`) can be any of 65,536 users in a namespace of its own, and outside of it by
//! files with the set-user-id bit. To the kernel they are as many users, and each would have a budget of its own.

mod subordinate;

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;

use rustix::fs::{CWD, Mode, OFlags, open, openat};

use super::{NamespaceOwner, shared};
use crate::proc_file;
use subordinate::with_ranges;

const ROOT: u32 = 0;

const READ: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC);

/// Returns the accountable uid of the process that has this PID; `None` if there is none, or it may not be examined.
pub fn uid_of_pid(pid: u32) -> Option<u32> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    uid_of_directory(&openat(CWD, format!("/proc/{pid}"), flags, Mode::empty()).ok()?, pid)
}

/// Returns the accountable uid of the process of an open /proc directory, by its real user; `None` if the process has
/// ended, or may not be examined. All such processes share one account.
pub fn uid_of_directory(directory: &OwnedFd, pid: u32) -> Option<u32> {
    let [real, ..] = parse_ids(&text(directory, "status").ok()?, "Uid:")?;
    accountable_uid(directory, pid, real).ok()
}

/// Parses the four ids of a line of `/proc/PID/status`: real, effective, saved and file system id.
pub(crate) fn parse_ids(status: &str, key: &str) -> Option<[u32; 4]> {
    let line = status.lines().find_map(|line| line.strip_prefix(key))?;
    let numbers = line.split_ascii_whitespace().map(|word| word.parse().ok());
    numbers.collect::<Option<Vec<u32>>>()?.try_into().ok()
}

/// Returns the accountable uid of a process of `user` with this /proc directory and PID: the owner of the outermost user
/// namespace between it and us. Root makes namespaces for others (containers): such a namespace is accountable as a
/// whole, by its inode number. These begin at 0xf000_0000, where hosts have no users. A user of this host stays
/// accountable in it: sandboxes with the set-user-id bit make as many as a user starts. Outside of namespaces the user
/// is accountable that has `user` as a subordinate one.
///
/// # Errors
/// The process has ended, or may not be examined, or `/etc/subuid` or `/etc/passwd` can't be read. Then `user` may be a
/// subordinate one, so it counts for nothing.
pub fn accountable_uid(directory: &OwnedFd, pid: u32, user: u32) -> io::Result<u32> {
    // Reading this map waits for no process. Only root can make a namespace in which all users are the same as here, and
    // users of this host are accountable in it.
    if maps_users_as_here(directory)? {
        if user == ROOT {
            return Ok(ROOT);
        }
        if let Some(uid) = with_ranges(|ranges| ranges.is_of_host(user).then(|| ranges.accountable(user)))? {
            return Ok(uid);
        }
    }
    let account = with_ranges(|ranges| ranges.accountable(user))?;
    let outermost = outermost(directory, pid, account)?;
    with_ranges(|ranges| match outermost {
        None => account,
        Some(NamespaceOwner { user: ROOT, .. }) if ranges.is_of_host(user) => account,
        Some(NamespaceOwner { user: ROOT, namespace }) => namespace,
        Some(NamespaceOwner { user, .. }) => ranges.accountable(user),
    })
}

/// Returns the user of this host that has `user` as a subordinate one by `/etc/subuid`, or `user` itself. It costs no
/// look at a process, and [`accountable_uid`] may differ: a namespace tells more.
///
/// # Errors
/// `/etc/subuid` or `/etc/passwd` can't be read.
pub fn holder_of(user: u32) -> io::Result<u32> {
    with_ranges(|ranges| ranges.holder(user))
}

/// Returns the owner of the outermost user namespace between a process and us; `None` if there is none. `account` pays if
/// the process does not answer.
fn outermost(directory: &OwnedFd, pid: u32, account: u32) -> io::Result<Option<NamespaceOwner>> {
    let is_there = || openat(directory, "status", READ, Mode::empty());
    let found = match shared::namespace_owner(pid, account) {
        // A kernel without user namespaces.
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        found => found?,
    };
    // The directory shows that the PID is still this process's.
    is_there()?;
    Ok(found)
}

/// Returns true if the users of a process are the same as ours: it is in our user namespace, or in one that root of this
/// host made and that renames no user. Waits for nothing.
///
/// # Errors
/// The process has ended.
pub(crate) fn maps_users_as_here(directory: &OwnedFd) -> io::Result<bool> {
    static OURS: OnceLock<String> = OnceLock::new();
    let its = match text(directory, "uid_map") {
        // A kernel without user namespaces. A process that has ended has no status any more either.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(openat(directory, "status", READ, Mode::empty()).map(|_| true)?);
        }
        its => its?,
    };
    let ours = match OURS.get() {
        Some(ours) => ours,
        None => {
            let ours =
                proc_file::read_within(File::from(open("/proc/self/uid_map", READ, Mode::empty())?), 1 << 20)?;
            OURS.get_or_init(|| proc_file::lossy(ours.unwrap_or_default()))
        }
    };
    Ok(!its.is_empty() && its == *ours)
}

fn text(directory: &OwnedFd, name: &str) -> io::Result<String> {
    let file = openat(directory, name, READ, Mode::empty())?;
    let bytes = proc_file::read_within(File::from(file), proc_file::budget(name))?;
    Ok(proc_file::lossy(bytes.ok_or(io::ErrorKind::FileTooLarge)?))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    use super::*;

    const OTHER_USER: u32 = 65534;

    fn directory(pid: u32) -> OwnedFd {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        open(format!("/proc/{pid}"), flags, Mode::empty()).unwrap()
    }

    #[test]
    fn outside_of_namespaces_each_user_is_accountable() {
        let own = directory(std::process::id());
        let at = |user| accountable_uid(&own, std::process::id(), user).unwrap();
        assert_eq!(outermost(&own, std::process::id(), 7).unwrap(), None);
        assert_eq!((at(0), at(7)), (0, 7));
        let user = rustix::process::getuid().as_raw();
        assert_eq!((uid_of_pid(std::process::id()), uid_of_pid(u32::MAX)), (Some(user), None));
    }

    /// As newuidmap(1) does it for a user with subordinate ids: within, the process becomes one of them.
    const PROGRAM: &str = "import ctypes, os, sys\n\
                           if ctypes.CDLL(None).unshare(0x10000000): sys.exit('no user namespaces')\n\
                           print('in', flush=True)\n\
                           sys.stdin.readline()\n\
                           os.setuid(int(sys.argv[1]))\n\
                           print('mapped', flush=True)\n\
                           sys.stdin.readline()\n";

    /// Returns the accountable uid of user `outside`, which is `inside` in a namespace that `maker` made, while its
    /// process runs and by its directory once it has ended. `None` if there is no Python, or no user may make one.
    fn accountable_in_a_namespace_of(
        maker: u32,
        map: &str,
        [inside, outside]: [u32; 2],
    ) -> Option<(u32, io::Result<u32>)> {
        let mut command = Command::new("python3");
        command
            .args(["-c", PROGRAM, &inside.to_string()])
            .uid(maker)
            .gid(maker)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().ok()?;
        let mut out = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let mut found = None;
        if out.next().as_deref() == Some("in") {
            fs::write(format!("/proc/{}/uid_map", child.id()), map).unwrap();
            writeln!(child.stdin.as_mut().unwrap()).unwrap();
            assert_eq!(out.next().as_deref(), Some("mapped"));
            let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
            assert!(status.contains(&format!("Uid:\t{outside}")), "{status}");
            let directory = directory(child.id());
            let accountable = accountable_uid(&directory, child.id(), outside).unwrap();
            assert_eq!(uid_of_pid(child.id()), Some(accountable));
            // A user that `/etc/passwd` does not name.
            let other = accountable_uid(&directory, child.id(), 200_006).unwrap();
            assert!(other == accountable || outside < 200_000, "all of its users are one");
            found = Some((accountable, directory));
        }
        drop(child.stdin.take());
        child.wait().unwrap();
        found.map(|(uid, directory)| (uid, accountable_uid(&directory, child.id(), outside)))
    }

    #[test]
    fn the_maker_of_a_namespace_is_accountable_for_its_subordinate_users() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("only root can become another user");
            return;
        }
        let (map, ids) = ("0 200000 10\n", [5, 200_005]);
        let Some((found, after)) = accountable_in_a_namespace_of(OTHER_USER, map, ids) else {
            eprintln!("there is no Python, or users may make no namespaces");
            return;
        };
        assert_eq!(found, OTHER_USER);
        assert!(after.is_err(), "a process that has ended is not its subordinate user's: {after:?}");
        let of_container = accountable_in_a_namespace_of(ROOT, map, ids).unwrap().0;
        assert!(of_container >= 0xf000_0000, "a container that root made has one account: {of_container:#x}");
    }

    #[test]
    fn a_user_of_the_host_stays_accountable_in_a_namespace_that_root_made() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("only root can become another user");
            return;
        }
        // As of a sandbox with the set-user-id bit.
        let map = format!("0 0 1\n{OTHER_USER} {OTHER_USER} 1\n");
        let Some((found, _)) = accountable_in_a_namespace_of(ROOT, &map, [OTHER_USER; 2]) else {
            eprintln!("there is no Python, or users may make no namespaces");
            return;
        };
        assert_eq!(found, OTHER_USER, "/etc/passwd names nobody");
        let root = accountable_in_a_namespace_of(ROOT, "0 0 65536\n", [0, 0]).unwrap().0;
        assert!(root >= 0xf000_0000, "root of a container has no end of passes: {root:#x}");
    }
}
