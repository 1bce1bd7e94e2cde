//! A userfaultfd that keeps writers out of a range, and takes pages out of it (ioctl_userfaultfd(2)).
//!
//! With the events of unmapping, remapping and discarding the kernel refuses to move a page while such a change has not been
//! read from the descriptor (`mmap_changing` in fs/userfaultfd.c). So the mapping that was looked at is the one that is changed.

use core::ffi::{c_int, c_ulong};

use super::count::Method;
use crate::sys::{Descriptor, Errno};

/// `UFFD_API` of include/uapi/linux/userfaultfd.h.
const API: u64 = 0xAA;
/// `UFFD_USER_MODE_ONLY`.
const USER_MODE_ONLY: c_int = 1;

const FEATURE_WP: u64 = 1;
/// Only with `CAP_SYS_PTRACE`.
const FEATURE_EVENT_FORK: u64 = 1 << 1;
const FEATURE_EVENT_REMAP: u64 = 1 << 2;
const FEATURE_EVENT_REMOVE: u64 = 1 << 3;
const FEATURE_EVENT_UNMAP: u64 = 1 << 6;
/// `UFFD_FEATURE_MOVE`, since 6.8.
const FEATURE_MOVE: u64 = 1 << 16;
const FEATURES: u64 = FEATURE_WP | FEATURE_EVENT_REMAP | FEATURE_EVENT_REMOVE | FEATURE_EVENT_UNMAP | FEATURE_MOVE;

const REGISTER_MISSING: u64 = 1;
const REGISTER_WP: u64 = 1 << 1;
const PROTECT: u64 = 1;
const EVENT_FORK: u8 = 0x13;
const EVENT_REMAP: u8 = 0x14;
const EVENT_REMOVE: u8 = 0x15;
const EVENT_UNMAP: u8 = 0x16;

const fn request(direction: c_ulong, kind: u8, number: u8, size: usize) -> c_ulong {
    direction << 30 | (size as c_ulong) << 16 | (kind as c_ulong) << 8 | number as c_ulong
}

const READ: c_ulong = 2;
const READ_WRITE: c_ulong = 3;
const IOC_API: c_ulong = request(READ_WRITE, 0xAA, 0x3F, size_of::<Api>());
const IOC_REGISTER: c_ulong = request(READ_WRITE, 0xAA, 0, size_of::<Register>());
const IOC_UNREGISTER: c_ulong = request(READ, 0xAA, 1, size_of::<Span>());
const IOC_WAKE: c_ulong = request(READ, 0xAA, 2, size_of::<Span>());
const IOC_COPY: c_ulong = request(READ_WRITE, 0xAA, 3, size_of::<Move>());
const IOC_MOVE: c_ulong = request(READ_WRITE, 0xAA, 5, size_of::<Move>());
const IOC_WRITEPROTECT: c_ulong = request(READ_WRITE, 0xAA, 6, size_of::<Protect>());
/// `USERFAULTFD_IOC_NEW` of /dev/userfaultfd, since 6.1.
const IOC_NEW: c_ulong = request(0, 0xAA, 0, 0);

#[repr(C)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

/// A range of addresses (`struct uffdio_range`).
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Span {
    /// Its first byte.
    pub start: u64,
    /// Its length in bytes.
    pub length: u64,
}

impl Span {
    /// The range from `start` to before `end`.
    pub fn between(start: usize, end: usize) -> Self {
        Self { start: start as u64, length: end.saturating_sub(start) as u64 }
    }
}

#[repr(C)]
struct Register {
    range: Span,
    mode: u64,
    ioctls: u64,
}

#[repr(C)]
struct Protect {
    range: Span,
    mode: u64,
}

/// `struct uffdio_move`, and `struct uffdio_copy`, which is alike.
#[repr(C)]
struct Move {
    to: u64,
    from: u64,
    length: u64,
    mode: u64,
    moved: i64,
}

/// `struct uffd_msg`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Message {
    event: u8,
    reserved: [u8; 7],
    /// Of a remapping: from, to, length.
    values: [u64; 3],
}

/// A change of a mapping by another thread, which waits until it was read.
#[derive(Debug)]
pub enum Change {
    /// A child has a copy of the memory. The parent and the child wait until this was read, and accesses of the child to what the
    /// range lacks until this is dropped.
    Forked(Child),
    /// Memory was moved, with what is registered.
    Moved {
        /// Where it was.
        from: u64,
        /// Where it is.
        to: u64,
        /// Its length in bytes.
        length: u64,
    },
    /// The contents from the first address to before the second are gone, or about to go.
    Gone(u64, u64),
}

/// The userfaultfd of a child of fork.
#[derive(Debug)]
pub struct Child {
    descriptor: Descriptor,
}

impl Child {
    /// Gives the child a page that it lacks.
    pub fn give(&self, from: usize, to: usize, length: usize) -> Result<(), Errno> {
        copy(&self.descriptor, from, to, length)
    }
}

fn copy(descriptor: &Descriptor, from: usize, to: usize, length: usize) -> Result<(), Errno> {
    let mut order = Move { to: to as u64, from: from as u64, length: length as u64, mode: 0, moved: 0 };
    descriptor.control(IOC_COPY, &mut order).map(drop)
}

/// A userfaultfd of this process.
#[derive(Debug)]
pub struct Userfault {
    descriptor: Descriptor,
    tells_forks: bool,
}

impl Userfault {
    /// Opens a userfaultfd. `takes_user_mode`: one that only knows accesses in user mode will do.
    ///
    /// # Errors
    /// `EPERM`: this process may not have a full one. `ENOSYS`: the kernel can't move pages.
    pub fn open(takes_user_mode: bool) -> Result<(Self, Method), Errno> {
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
        let full = Descriptor::of_call(libc::SYS_userfaultfd, flags).or_else(|_| {
            let device = Descriptor::open_to_write(c"/dev/userfaultfd")?;
            device.control_new(IOC_NEW, flags)
        });
        let (descriptor, method) = match full {
            Ok(descriptor) => (descriptor, Method::Full),
            Err(_) if takes_user_mode => {
                (Descriptor::of_call(libc::SYS_userfaultfd, flags | USER_MODE_ONLY)?, Method::User)
            }
            Err(libc::ENOSYS) => return Err(libc::ENOSYS),
            Err(_) => return Err(libc::EPERM),
        };
        let agree = |features: u64| descriptor.control(IOC_API, &mut Api { api: API, features, ioctls: 0 });
        // A kernel without one of the features refuses all, and the event of a fork where the process may not have it.
        let tells_forks = agree(FEATURES | FEATURE_EVENT_FORK).is_ok();
        if !tells_forks {
            agree(FEATURES).map_err(|_| libc::ENOSYS)?;
        }
        Ok((Self { descriptor, tells_forks }, method))
    }

    /// Whether a fork waits until it was read of. Only a process with the right to trace others is told.
    pub fn tells_forks(&self) -> bool {
        self.tells_forks
    }

    /// Watches the range for changes of its mapping. Accesses go on, but for writes to what is protected.
    pub fn watch(&self, range: Span) -> Result<(), Errno> {
        self.descriptor.control(IOC_REGISTER, &mut Register { range, mode: REGISTER_WP, ioctls: 0 }).map(drop)
    }

    /// Watches memory that pages are moved to, which costs nothing at its end.
    pub fn watch_target(&self, range: Span) -> Result<(), Errno> {
        self.descriptor.control(IOC_REGISTER, &mut Register { range, mode: REGISTER_MISSING, ioctls: 0 }).map(drop)
    }

    /// Has each access to a page of the range that is not there wait too.
    pub fn watch_holes(&self, range: Span) -> Result<(), Errno> {
        let mode = if self.tells_forks { REGISTER_MISSING } else { REGISTER_WP | REGISTER_MISSING };
        self.descriptor.control(IOC_REGISTER, &mut Register { range, mode, ioctls: 0 }).map(drop)
    }

    /// Ends the watch, also a protection, and wakes all that wait.
    pub fn unwatch(&self, mut range: Span) -> Result<(), Errno> {
        self.descriptor.control(IOC_UNREGISTER, &mut range).map(drop)
    }

    /// Has all writes to the range wait.
    pub fn protect(&self, range: Span) -> Result<(), Errno> {
        self.descriptor.control(IOC_WRITEPROTECT, &mut Protect { range, mode: PROTECT }).map(drop)
    }

    /// Ends the protection.
    pub fn let_write(&self, range: Span) -> Result<(), Errno> {
        self.descriptor.control(IOC_WRITEPROTECT, &mut Protect { range, mode: 0 }).map(drop)
    }

    /// Wakes all that wait for an access to the range.
    pub fn wake(&self, mut range: Span) -> Result<(), Errno> {
        self.descriptor.control(IOC_WAKE, &mut range).map(drop)
    }

    /// Copies a page to where none is, and wakes all that wait for it.
    pub fn copy_page(&self, from: usize, to: usize, length: usize) -> Result<(), Errno> {
        copy(&self.descriptor, from, to, length)
    }

    /// Moves pages: returns how many bytes were moved, and the reason why not all.
    ///
    /// Without leave to pass over what is not there: a hole that counted as moved would be one in the scratch memory too, where the
    /// third look would wait for itself.
    pub fn move_pages(&self, from: usize, to: usize, length: usize) -> (usize, Option<Errno>) {
        let mut order = Move { to: to as u64, from: from as u64, length: length as u64, mode: 0, moved: 0 };
        match self.descriptor.control(IOC_MOVE, &mut order) {
            Ok(_) => (length, None),
            // Partly done, or refused because of a change: then `moved` is no count.
            Err(errno) => (usize::try_from(order.moved).unwrap_or(0), Some(errno)),
        }
    }

    /// Reads the next change, so that the thread that made it goes on. `None`: there is none.
    pub fn change(&self) -> Option<Change> {
        let mut message = Message { event: 0, reserved: [0; 7], values: [0; 3] };
        while self.descriptor.read_into(&mut message) == Ok(size_of::<Message>()) {
            let [first, second, length] = message.values;
            match message.event {
                // The descriptor is the lower half.
                EVENT_FORK => {
                    return Some(Change::Forked(Child { descriptor: Descriptor::of_event(first as u32 as c_int) }));
                }
                EVENT_REMAP => return Some(Change::Moved { from: first, to: second, length }),
                EVENT_REMOVE | EVENT_UNMAP => return Some(Change::Gone(first, second)),
                // An access that waits: it goes on when the watch ends.
                _ => {}
            }
        }
        None
    }

    /// Reads all changes. Memory that was moved away is not watched any more.
    pub fn read_changes(&self) {
        while let Some(change) = self.change() {
            if let Change::Moved { to, length, .. } = change {
                // It may be unmapped by now.
                let _ = self.unwatch(Span { start: to, length });
            }
        }
    }
}
