//! The accountable uid of a process: its user, or the user that made the user namespace in which it runs.
//!
//! A user with subordinate ids (`/etc/subuid`) can be any of 65,536 users in a namespace of its own. To the kernel
//! outside they are as many users, and each would have a budget of its own.

#![allow(unsafe_code, reason = "rustix has no ioctls for namespaces")]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;

use rustix::fs::{CWD, Mode, OFlags, fstat, open, openat};

use crate::proc_file;

/// `NS_GET_PARENT` and `NS_GET_OWNER_UID` of `linux/nsfs.h`.
const NS_GET_PARENT: u32 = 0xb702;
const NS_GET_OWNER_UID: u32 = 0xb704;

/// The kernel's limit on the depth of nested user namespaces.
const DEEPEST: usize = 33;

const ROOT: u32 = 0;

const READ: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC);

/// Returns the accountable uid of the process that has this PID; `None` if there is none.
pub fn uid_of_pid(pid: u32) -> Option<u32> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    uid_of_directory(&openat(CWD, format!("/proc/{pid}"), flags, Mode::empty()).ok()?)
}

/// Returns the accountable uid of the process of an open /proc directory, by its real user; `None` if the process has
/// ended.
pub fn uid_of_directory(directory: &OwnedFd) -> Option<u32> {
    let file = openat(directory, "status", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let status = proc_file::read_within(File::from(file), proc_file::budget("status")).ok()??;
    let [real, ..] = parse_ids(&proc_file::lossy(status), "Uid:")?;
    Some(accountable_uid(directory, real))
}

/// Parses the four ids of a line of `/proc/PID/status`: real, effective, saved and file system id.
pub(crate) fn parse_ids(status: &str, key: &str) -> Option<[u32; 4]> {
    let line = status.lines().find_map(|line| line.strip_prefix(key))?;
    let numbers = line.split_ascii_whitespace().map(|word| word.parse().ok());
    numbers.collect::<Option<Vec<u32>>>()?.try_into().ok()
}

/// Returns the accountable uid of a process of `user` with this /proc directory: the owner of the outermost user
/// namespace between it and us. Root makes namespaces for others (containers): then each user in them is accountable,
/// and none has root's budget.
pub fn accountable_uid(directory: &OwnedFd, user: u32) -> u32 {
    match owner(directory) {
        Ok(Some(owner)) if owner != ROOT => owner,
        // Denied without CAP_SYS_PTRACE: the user is known all the same.
        _ => user,
    }
}

/// Returns the owner of the outermost user namespace between a process and us; `None` if there is none.
fn owner(directory: &OwnedFd) -> io::Result<Option<u32>> {
    let mut namespace = openat(directory, "ns/user", READ, Mode::empty())?;
    let ours = ours()?;
    let mut found = None;
    for _ in 0..DEEPEST {
        if identity(&namespace)? == ours {
            break;
        }
        found = Some(owner_of(&namespace)?);
        namespace = parent_of(&namespace)?;
    }
    Ok(found)
}

/// Returns the device and inode of this process's user namespace, which it never leaves.
fn ours() -> io::Result<(u64, u64)> {
    static OURS: OnceLock<(u64, u64)> = OnceLock::new();
    if let Some(ours) = OURS.get() {
        return Ok(*ours);
    }
    let ours = identity(&open("/proc/self/ns/user", READ, Mode::empty())?)?;
    Ok(*OURS.get_or_init(|| ours))
}

fn identity(namespace: &OwnedFd) -> io::Result<(u64, u64)> {
    let its = fstat(namespace)?;
    Ok((its.st_dev, its.st_ino))
}

fn owner_of(namespace: &OwnedFd) -> io::Result<u32> {
    let mut owner: libc::uid_t = 0;
    // SAFETY: this request writes one uid_t, which is ours.
    match unsafe { libc::ioctl(namespace.as_raw_fd(), NS_GET_OWNER_UID.into(), &raw mut owner) } {
        0 => Ok(owner),
        _ => Err(io::Error::last_os_error()),
    }
}

fn parent_of(namespace: &OwnedFd) -> io::Result<OwnedFd> {
    // SAFETY: this request takes nothing and returns a descriptor.
    let descriptor = unsafe { libc::ioctl(namespace.as_raw_fd(), NS_GET_PARENT.into()) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is open, close-on-exec, and owned by no other value.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
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
        assert_eq!(owner(&own).unwrap(), None);
        assert_eq!((accountable_uid(&own, 0), accountable_uid(&own, 7)), (0, 7));
        let user = rustix::process::getuid().as_raw();
        assert_eq!((uid_of_pid(std::process::id()), uid_of_pid(u32::MAX)), (Some(user), None));
    }

    /// As newuidmap(1) does it for a user with subordinate ids: within, the process becomes one of them.
    const PROGRAM: &str = "import ctypes, os, sys\n\
                           if ctypes.CDLL(None).unshare(0x10000000): sys.exit('no user namespaces')\n\
                           print('in', flush=True)\n\
                           sys.stdin.readline()\n\
                           os.setuid(5)\n\
                           print('mapped', flush=True)\n\
                           sys.stdin.readline()\n";

    /// Returns the accountable uid of subordinate user 200005, in a namespace that `user` made.
    fn accountable_in_a_namespace_of(user: u32) -> Option<u32> {
        let mut command = Command::new("python3");
        command
            .args(["-c", PROGRAM])
            .uid(user)
            .gid(user)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().ok()?;
        let mut out = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let mut found = None;
        if out.next().as_deref() == Some("in") {
            fs::write(format!("/proc/{}/uid_map", child.id()), "0 200000 10\n").unwrap();
            writeln!(child.stdin.as_mut().unwrap()).unwrap();
            assert_eq!(out.next().as_deref(), Some("mapped"));
            let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
            assert!(status.contains("Uid:\t200005"), "{status}");
            found = Some(accountable_uid(&directory(child.id()), 200_005));
            assert_eq!(uid_of_pid(child.id()), found);
        }
        drop(child.stdin.take());
        child.wait().unwrap();
        found
    }

    #[test]
    fn the_maker_of_a_namespace_is_accountable_for_its_subordinate_users() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("only root can become another user");
            return;
        }
        let Some(found) = accountable_in_a_namespace_of(OTHER_USER) else {
            eprintln!("there is no Python, or users may make no namespaces");
            return;
        };
        assert_eq!(found, OTHER_USER);
        assert_eq!(accountable_in_a_namespace_of(0), Some(200_005), "in root's containers each user");
    }
}
