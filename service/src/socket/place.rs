//! The file of a socket, in a directory that is held open: neither a link nor a rename redirects changes to another
//! file.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, Stat, chmodat, chownat, fchmod, fstat, openat, statat, unlinkat,
};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};

use ksmith_host::acl::open_to_group;
use ksmith_host::passed_descriptors::refuse_descriptors;

/// Connections that may wait for the accept loop.
const BACKLOG: i32 = 128;

/// The rights to connect to a socket, in an access control list.
const READ_AND_WRITE: u16 = 6;

/// The file of a socket, and its directory.
#[derive(Debug)]
pub(super) struct SocketFile {
    directory: OwnedFd,
    name: OsString,
    /// The socket's file, once it is there.
    file: Option<OwnedFd>,
}

impl SocketFile {
    /// Opens the directory of the path.
    ///
    /// # Errors
    /// There is none, or others may rename files in it.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = openat(CWD, parent, flags, Mode::empty())?;
        let found = fstat(&directory)?;
        let mode = Mode::from_raw_mode(found.st_mode);
        let is_ours = is_trusted(found.st_uid);
        let is_shared = mode.intersects(Mode::WGRP | Mode::WOTH) && !mode.contains(Mode::SVTX);
        if !is_ours || is_shared {
            let what = format!("others may rename files in {}", parent.display());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
        }
        Ok(Self { directory, name, file: None })
    }

    /// Makes the socket, to which only its owner may connect. Another socket there is removed, and nothing else: an
    /// operator gave the path, and may have mistyped it. Returns with it true if no peer can pass descriptors to it.
    ///
    /// # Errors
    /// It can't be made. [`io::ErrorKind::AlreadyExists`]: there is something else than a socket.
    pub(super) fn bind(&mut self, path: &Path) -> io::Result<(UnixListener, bool)> {
        match self.stat(&self.name) {
            Ok(found) if is_socket(&found) => unlinkat(&self.directory, &self.name, AtFlags::empty())?,
            Ok(_) => return Err(io::ErrorKind::AlreadyExists.into()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        let refuses_descriptors = refuse_descriptors(&socket);
        // The file gets the mode that the socket has: there is no moment at which others may connect.
        fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
        bind(&socket, &SocketAddrUnix::new(path)?)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&self.directory, &self.name, flags, Mode::empty())?;
        let found = fstat(&file)?;
        if !is_socket(&found) || !is_trusted(found.st_uid) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.file = Some(file);
        listen(&socket, BACKLOG)?;
        Ok((socket.into(), refuses_descriptors))
    }

    /// Lets the members of a group connect, and pass through the directory to get there. Their right to list the
    /// directory stays as it is. A file of another group gets an access control list: under the systemd unit no file
    /// changes its owner. If the file system has no such lists, the file is given to the group.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(super) fn allow(&self, group: u32, also_directory: bool) -> io::Result<()> {
        let Some(file) = &self.file else { return Err(io::ErrorKind::NotFound.into()) };
        let has_group = fstat(file)?.st_gid == group;
        if has_group || open_to_group(file, group, READ_AND_WRITE).is_err() {
            if !has_group {
                give(file, group)?;
            }
            chmod(file, Mode::from_raw_mode(0o660))?;
        }
        let mode = Mode::from_raw_mode(fstat(&self.directory)?.st_mode);
        if also_directory && !mode.contains(Mode::XOTH) {
            chmod(&self.directory, mode | Mode::XGRP | Mode::XOTH)?;
        }
        Ok(())
    }

    fn stat(&self, name: &OsStr) -> io::Result<Stat> {
        Ok(statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Removes the socket, unless another is in its place by now.
    fn remove(&self) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let (ours, found) = (fstat(file)?, self.stat(&self.name)?);
        if (ours.st_dev, ours.st_ino) == (found.st_dev, found.st_ino) {
            unlinkat(&self.directory, &self.name, AtFlags::empty())?;
        }
        Ok(())
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // A file that stays behind is removed by the next daemon.
        let _ = self.remove();
    }
}

/// Gives the file to the group.
fn give(file: &OwnedFd, group: u32) -> Result<(), Errno> {
    chownat(file, "", None, Some(Gid::from_raw(group)), AtFlags::EMPTY_PATH)
}

/// Returns true if the owner is root or this process's user.
fn is_trusted(owner: u32) -> bool {
    owner == 0 || owner == rustix::process::geteuid().as_raw()
}

fn is_socket(found: &Stat) -> bool {
    FileType::from_raw_mode(found.st_mode) == FileType::Socket
}

/// Changes the mode of an open file. chmod(2) by descriptor takes no `O_PATH`, so it goes by the descriptor's link.
fn chmod(file: &OwnedFd, mode: Mode) -> io::Result<()> {
    Ok(chmodat(CWD, format!("/proc/self/fd/{}", file.as_raw_fd()), mode, AtFlags::empty())?)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn a_directory_in_which_others_rename_files_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        for (mode, is_fit) in [(0o700, true), (0o755, true), (0o775, false), (0o777, false), (0o1777, true)] {
            fs::set_permissions(directory.path(), Permissions::from_mode(mode)).unwrap();
            let opened = SocketFile::open(&directory.path().join("socket"));
            assert_eq!(opened.is_ok(), is_fit, "{mode:o}: {opened:?}");
        }
    }

    #[test]
    fn rights_go_to_the_socket_that_was_made_and_to_no_other_file() {
        let directory = tempfile::tempdir().unwrap();
        let (path, secret) = (directory.path().join("socket"), directory.path().join("secret"));
        let mut place = SocketFile::open(&path).unwrap();
        let _listener = place.bind(&path).unwrap();
        assert_eq!(mode(&path), 0o600);
        // Another name leads to a file of root's by now.
        fs::write(&secret, "").unwrap();
        fs::set_permissions(&secret, Permissions::from_mode(0o600)).unwrap();
        fs::rename(&path, directory.path().join("moved")).unwrap();
        std::os::unix::fs::symlink(&secret, &path).unwrap();
        let own_group = rustix::process::getegid().as_raw();
        place.allow(own_group, true).unwrap();
        assert_eq!((mode(&secret), mode(&directory.path().join("moved"))), (0o600, 0o660));
        assert_eq!(mode(directory.path()) & 0o011, 0o011);
        drop(place);
        assert!(fs::symlink_metadata(&path).is_ok(), "what is no longer ours stays");
    }

    #[test]
    fn a_group_is_let_in_without_the_right_to_change_owners() {
        use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

        if !rustix::process::geteuid().is_root() {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
        let path = directory.path().join("socket");
        let mut place = SocketFile::open(&path).unwrap();
        let _listener = place.bind(&path).unwrap();
        // Capabilities are a thread's own.
        let allowed = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let mut sets = capabilities(None).unwrap();
                sets.effective.remove(CapabilitySet::CHOWN);
                set_capabilities(None, sets).unwrap();
                place.allow(65532, false)
            });
            thread.join().unwrap()
        });
        if allowed.as_ref().is_err_and(|why| why.raw_os_error() == Some(libc::EOPNOTSUPP)) {
            return;
        }
        allowed.unwrap();
        let connects = |group: u32| {
            use std::os::unix::process::CommandExt;
            let script = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])";
            let mut python = std::process::Command::new("python3");
            let python = python.args(["-c", script]).arg(&path).uid(65533).gid(group).current_dir("/");
            python.output().unwrap().status.success()
        };
        assert_eq!((connects(65532), connects(65531)), (true, false));
    }
}
