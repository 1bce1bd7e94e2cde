//! The accountable uid of a process: its user, or the user that made the user namespace in which it runs.
//!
//! A user with subordinate ids (`/etc/subuid`) can be any of 65,536 users in a namespace of its own, and outside of it by
//! files with the set-user-id bit. To the kernel they are as many users, and each would have a budget of its own.

#![allow(unsafe_code, reason = "rustix has no ioctls for namespaces")]

mod subordinate;

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;

use rustix::fs::{CWD, Mode, OFlags, fstat, open, openat};
use rustix::io::Errno;

use crate::proc_file;
use subordinate::with_ranges;

/// `NS_GET_PARENT` and `NS_GET_OWNER_UID` of `linux/nsfs.h`.
const NS_GET_PARENT: u32 = 0xb702;
const NS_GET_OWNER_UID: u32 = 0xb704;

/// The kernel's limit on the depth of nested user namespaces.
const DEEPEST: usize = 33;

const ROOT: u32 = 0;

const READ: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC);

/// Returns the accountable uid of the process that has this PID; `None` if there is none, or it may not be examined.
pub fn uid_of_pid(pid: u32) -> Option<u32> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    uid_of_directory(&openat(CWD, format!("/proc/{pid}"), flags, Mode::empty()).ok()?)
}

/// Returns the accountable uid of the process of an open /proc directory, by its real user; `None` if the process has
/// ended, or may not be examined. All such processes share one account.
pub fn uid_of_directory(directory: &OwnedFd) -> Option<u32> {
    let file = openat(directory, "status", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let status = proc_file::read_within(File::from(file), proc_file::budget("status")).ok()??;
    let [real, ..] = parse_ids(&proc_file::lossy(status), "Uid:")?;
    accountable_uid(directory, real).ok()
}

/// Parses the four ids of a line of `/proc/PID/status`: real, effective, saved and file system id.
pub(crate) fn parse_ids(status: &str, key: &str) -> Option<[u32; 4]> {
    let line = status.lines().find_map(|line| line.strip_prefix(key))?;
    let numbers = line.split_ascii_whitespace().map(|word| word.parse().ok());
    numbers.collect::<Option<Vec<u32>>>()?.try_into().ok()
}

/// Returns the accountable uid of a process of `user` with this /proc directory: the owner of the outermost user
/// namespace between it and us. Root makes namespaces for others (containers): such a namespace is accountable as a
/// whole, by its inode number. These begin at 0xf000_0000, where hosts have no users. A user of this host stays
/// accountable in it: sandboxes with the set-user-id bit make as many as a user starts. Outside of namespaces the user
/// is accountable that has `user` as a subordinate one.
///
/// # Errors
/// The process has ended, or may not be examined, or `/etc/subuid` or `/etc/passwd` can't be read. Then `user` may be a
/// subordinate one, so it counts for nothing.
pub fn accountable_uid(directory: &OwnedFd, user: u32) -> io::Result<u32> {
    let outermost = outermost(directory)?;
    if (outermost, user) == (None, ROOT) {
        return Ok(ROOT);
    }
    with_ranges(|ranges| match outermost {
        None => ranges.accountable(user),
        Some(NamespaceOwner { user: ROOT, .. }) if ranges.is_of_host(user) => ranges.accountable(user),
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

/// The maker of a user namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct NamespaceOwner {
    user: u32,
    /// The namespace's inode number, which the kernel takes from 32 bits.
    namespace: u32,
}

/// Returns the owner of the outermost user namespace between a process and us; `None` if there is none.
fn outermost(directory: &OwnedFd) -> io::Result<Option<NamespaceOwner>> {
    let is_there = || openat(directory, "status", READ, Mode::empty()).is_ok();
    let mut namespace = match openat(directory, "ns/user", READ, Mode::empty()) {
        // A kernel without user namespaces. A process that has ended has no status any more either.
        Err(Errno::NOENT) if is_there() => return Ok(None),
        opened => opened?,
    };
    let ours = ours()?;
    let mut found = None;
    for _ in 0..DEEPEST {
        let its = identity(&namespace)?;
        if its == ours {
            break;
        }
        let inode = u32::try_from(its.1).map_err(io::Error::other)?;
        found = Some(NamespaceOwner { user: owner_of(&namespace)?, namespace: inode });
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
        assert_eq!(outermost(&own).unwrap(), None);
        assert_eq!((accountable_uid(&own, 0).unwrap(), accountable_uid(&own, 7).unwrap()), (0, 7));
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
            let accountable = accountable_uid(&directory, outside).unwrap();
            assert_eq!(uid_of_pid(child.id()), Some(accountable));
            // A user that `/etc/passwd` does not name.
            let other = accountable_uid(&directory, 200_006).unwrap();
            assert!(other == accountable || outside < 200_000, "all of its users are one");
            found = Some((accountable, directory));
        }
        drop(child.stdin.take());
        child.wait().unwrap();
        found.map(|(uid, directory)| (uid, accountable_uid(&directory, outside)))
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
