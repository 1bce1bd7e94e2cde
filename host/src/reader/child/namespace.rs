//! The owner of a process's user namespace.

#![allow(unsafe_code, reason = "rustix has no ioctls for namespaces")]

use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::fs::{AtFlags, Mode, OFlags, fstat, openat, statat};
use rustix::io::Errno;

/// `NS_GET_PARENT` and `NS_GET_OWNER_UID` of `linux/nsfs.h`.
const NS_GET_PARENT: u32 = 0xb702;
const NS_GET_OWNER_UID: u32 = 0xb704;

/// The kernel's limit on the depth of nested user namespaces.
const DEEPEST: usize = 33;

/// The maker of a user namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamespaceOwner {
    /// Its user.
    pub user: u32,
    /// The namespace's inode number, which the kernel takes from 32 bits.
    pub namespace: u32,
}

impl NamespaceOwner {
    /// Finds the owner of the outermost user namespace between a process and us, by its link under `/proc`; `None` if
    /// there is none.
    pub(super) fn read(proc: BorrowedFd<'_>, link: &CStr) -> Result<Option<Self>, Errno> {
        let ours = statat(proc, c"self/ns/user", AtFlags::empty())?;
        let mut namespace = openat(proc, link, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let mut found = None;
        for _ in 0..DEEPEST {
            let its = fstat(&namespace)?;
            if (its.st_dev, its.st_ino) == (ours.st_dev, ours.st_ino) {
                break;
            }
            let inode = u32::try_from(its.st_ino).map_err(|_| Errno::OVERFLOW)?;
            found = Some(Self { user: owner_of(&namespace)?, namespace: inode });
            namespace = parent_of(&namespace)?;
        }
        Ok(found)
    }

    pub(super) fn to_bytes(self) -> [u8; 8] {
        (u64::from(self.user) << 32 | u64::from(self.namespace)).to_ne_bytes()
    }

    /// Decodes the child's reply; `None` if it is none.
    pub(in super::super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let word = u64::from_ne_bytes(bytes.try_into().ok()?);
        Some(Self { user: (word >> 32) as u32, namespace: word as u32 })
    }
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

fn owner_of(namespace: &OwnedFd) -> Result<u32, Errno> {
    let mut owner: libc::uid_t = 0;
    // SAFETY: this request writes one uid_t, which is ours.
    match unsafe { libc::ioctl(namespace.as_raw_fd(), NS_GET_OWNER_UID.into(), &raw mut owner) } {
        0 => Ok(owner),
        _ => Err(last_error()),
    }
}

fn parent_of(namespace: &OwnedFd) -> Result<OwnedFd, Errno> {
    // SAFETY: this request takes nothing and returns a descriptor.
    let descriptor = unsafe { libc::ioctl(namespace.as_raw_fd(), NS_GET_PARENT.into()) };
    if descriptor < 0 {
        return Err(last_error());
    }
    // SAFETY: the descriptor is open, close-on-exec, and owned by no other value.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}
