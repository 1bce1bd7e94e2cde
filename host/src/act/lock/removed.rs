//! Holders of a lock file that was removed.
//!
//! Whoever removes the state directory leaves the holder with a file that nobody else can open by its path. It is still
//! among the descriptors of the holder. Those of other users' processes are never listed: such processes may have as
//! many as they like.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, StatxFlags, statx};
use rustix::io::Errno;

use crate::owner::ProcessOwner;
use crate::proc_file;
use crate::root::Root;

/// The kernel's mark of a file without a name (`d_path` in `fs/d_path.c`).
const DELETED: &[u8] = b" (deleted)";

/// Returns the PID of a process of our user that has a removed file of this path open, and with it the file, if that
/// is locked.
///
/// A process that may not be examined is passed over. With CAP_SYS_PTRACE there is none.
///
/// # Errors
/// Processes or descriptors can't be listed.
pub(super) fn find_holder(path: &Path) -> io::Result<Option<(u32, File)>> {
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        if !unless_ended(is_ours(pid))?.unwrap_or(false) {
            continue;
        }
        if let Some(file) = unless_ended(find_in_process(pid, path))?.flatten()
            && has_our_ksm(pid)
        {
            return Ok(Some((pid, file)));
        }
    }
    Ok(None)
}

/// Returns true if a process has the rights of our user and of no other, and is in no container: root of one may give a file
/// any name that it likes. The kernel makes the effective user the owner
/// of the directory, unlike of the files in it, also for a process that has made itself undumpable. A set-user-id
/// program such as `su` has the descriptors of the user that has started it.
fn is_ours(pid: u32) -> io::Result<bool> {
    let ours = rustix::process::geteuid().as_raw();
    let is_effective = fs::metadata(format!("/proc/{pid}"))?.uid() == ours;
    // One whose status can't be read is examined.
    let is_only =
        || ProcessOwner::from_pid(&Root::host(), pid).is_none_or(|it| it.only() == Some(ours) && it.is_of_host());
    Ok(is_effective && is_only())
}

/// Returns false if a process has other files than we where KSM's are, or none, as on a simulated host: it controls another
/// KSM, or none.
fn has_our_ksm(pid: u32) -> bool {
    let identity = |path: String| fs::metadata(path).map(|file| (file.dev(), file.ino()));
    let run = "/sys/kernel/mm/ksm/run";
    match (identity(run.to_owned()), identity(format!("/proc/{pid}/root{run}"))) {
        (Ok(ours), Ok(its)) => ours == its,
        (Ok(_), Err(error)) => error.kind() != io::ErrorKind::NotFound,
        (Err(_), _) => true,
    }
}

/// Returns the removed and locked file of this path among the first descriptors of a process.
fn find_in_process(pid: u32, path: &Path) -> io::Result<Option<File>> {
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))?.take(proc_file::DESCRIPTORS as usize) {
        let descriptor = entry?.path();
        if let Some(file) = unless_ended(open_removed(&descriptor, path))?.flatten()
            && matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))
        {
            return Ok(Some(file));
        }
    }
    Ok(None)
}

/// Opens the file of a descriptor if it had this path, is removed, and is one that only our user may open. The file
/// system is not asked: it may be one that a user serves (FUSE).
fn open_removed(descriptor: &PathBuf, path: &Path) -> io::Result<Option<File>> {
    if !has_name(&fs::read_link(descriptor)?, path) {
        return Ok(None);
    }
    let found = statx(CWD, descriptor, AtFlags::STATX_DONT_SYNC, StatxFlags::BASIC_STATS)?;
    let is_file = FileType::from_raw_mode(found.stx_mode.into()) == FileType::RegularFile;
    let is_private = found.stx_uid == rustix::process::geteuid().as_raw() && found.stx_mode & 0o077 == 0;
    if !is_file || !is_private || found.stx_nlink != 0 {
        return Ok(None);
    }
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(descriptor)?;
    // The descriptor may be another file's by now.
    Ok(Some(file).filter(|file| file.metadata().is_ok_and(|now| now.ino() == found.stx_ino && now.nlink() == 0)))
}

/// Returns true if a link of a descriptor names this path as removed. A mount of its own that has gone with the
/// directory, as the service manager makes one, leaves nothing of the path but the file's name.
fn has_name(link: &Path, path: &Path) -> bool {
    let Some(before) = link.as_os_str().as_bytes().strip_suffix(DELETED) else { return false };
    let name = path.file_name().map(OsStrExt::as_bytes).unwrap_or_default();
    before == path.as_os_str().as_bytes() || before.strip_prefix(b"/") == Some(name)
}

/// Returns `None` if a process has ended, or a descriptor is closed or can't be examined: a path longer than PATH_MAX, a
/// dead file system. Only our own want of descriptors or memory is an error.
fn unless_ended<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) => match Errno::from_io_error(&error) {
            Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM) | None => Err(error),
            Some(_) => Ok(None),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_removed_lock_is_found_among_many_and_only_while_it_is_held() {
        let tree = tempfile::tempdir().unwrap();
        let path = tree.path().join("lock");
        let make = |path: &Path| {
            let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path).unwrap();
            file.try_lock().unwrap();
            fs::remove_file(path).unwrap();
            file
        };
        let _others: Vec<File> = (0..300).map(|number| make(&tree.path().join(number.to_string()))).collect();
        let held = make(&path);
        // The PID may be that of another test's child, until it executes its program.
        let (_, found) = find_holder(&path).unwrap().unwrap();
        assert_eq!(found.metadata().unwrap().ino(), held.metadata().unwrap().ino());
        held.unlock().unwrap();
        assert!(find_holder(&path).unwrap().is_none());
    }

    #[test]
    fn a_removed_lock_of_root_in_a_container_holds_nobody_up() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("only root can make a PID namespace");
            return;
        }
        let tree = tempfile::tempdir().unwrap();
        let path = tree.path().join("lock");
        let program = "import fcntl, os, sys\nfile = open(sys.argv[1], 'w')\nos.fchmod(file.fileno(), 0o600)\n\
                       fcntl.flock(file, fcntl.LOCK_EX)\nos.unlink(sys.argv[1])\nprint(flush=True)\nsys.stdin.readline()";
        let container: &[&str] = &["unshare", "--pid", "--fork"];
        for (within, is_found) in [(&[] as &[&str], true), (container, false)] {
            let words: Vec<&str> = within.iter().copied().chain(["python3", "-c", program]).collect();
            let mut command = Command::new(words[0]);
            command.args(&words[1..]).arg(&path).stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut child = command.spawn().unwrap();
            BufReader::new(child.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
            let found = find_holder(&path).unwrap().map(|(pid, _)| pid);
            drop(child.stdin.take());
            child.wait().unwrap();
            assert_eq!(found, is_found.then_some(child.id()), "{words:?}");
        }
    }

    #[test]
    fn descriptors_that_another_user_has_opened_are_not_listed() {
        assert!(is_ours(std::process::id()).unwrap());
        if !rustix::process::geteuid().is_root() {
            eprintln!("only root can become another user");
            return;
        }
        // PR_SET_DUMPABLE
        let undumpable = "import ctypes; ctypes.CDLL(None).prctl(4, 0)";
        // As after the execution of a file of root's with the set-user-id bit.
        let has_set_id = "import os; os.setresuid(65534, 0, 0)";
        for (program, uid, has_effective) in [(undumpable, 65534, false), (has_set_id, 0, true)] {
            let program = format!("{program}; import sys; print(flush=True); sys.stdin.readline()");
            let mut command = Command::new("python3");
            command.args(["-c", &program]).uid(uid).gid(65534).current_dir("/");
            let Ok(mut child) = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn() else {
                eprintln!("there is no Python");
                return;
            };
            BufReader::new(child.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
            let directory = format!("/proc/{}", child.id());
            let owners = [&directory, &format!("{directory}/fd")].map(|path| fs::metadata(path).unwrap().uid());
            let found = is_ours(child.id()).unwrap();
            drop(child.stdin.take());
            child.wait().unwrap();
            assert_eq!((owners, found), ([if has_effective { 0 } else { 65534 }, 0], false), "{program}");
        }
    }

    #[test]
    fn an_error_that_no_end_of_a_process_explains_is_one() {
        for errno in [Errno::SRCH, Errno::NAMETOOLONG, Errno::NOTCONN] {
            assert!(matches!(unless_ended::<()>(Err(errno.into())), Ok(None)), "{errno}");
        }
        assert!(unless_ended::<()>(Err(Errno::MFILE.into())).is_err());
    }
}
