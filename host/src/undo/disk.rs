//! All file operations on which undoing depends, in one place, so that tests can inject faults.

use std::io;

/// A kind of file operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DiskOperation {
    /// The new file of the undo store is created.
    Create,
    /// It is written.
    Write,
    /// It is synced.
    Sync,
    /// It replaces the old one.
    Rename,
    /// The directory is synced.
    SyncDirectory,
    /// A file is removed.
    Remove,
    /// Some bytes of the store are overwritten in place.
    Mark,
    /// A setting of KSM is written.
    Knob,
}

/// Carries out an operation, unless a test injects a fault.
pub(crate) fn run<T>(operation: DiskOperation, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    #[cfg(test)]
    fault::before(operation)?;
    #[cfg(not(test))]
    let _ = operation;
    act()
}

/// Writes all of `bytes`, or half of them if a test injects a fault, as a kill or a full disk would.
pub(crate) fn write_all(file: &mut impl io::Write, bytes: &[u8]) -> io::Result<()> {
    run(DiskOperation::Write, || Ok(())).inspect_err(|_| {
        let _ = file.write_all(bytes.get(..bytes.len() / 2).unwrap_or_default());
    })?;
    file.write_all(bytes)
}

#[cfg(test)]
pub(crate) mod fault {
    //! Fault injection.

    use std::cell::RefCell;
    use std::io;

    use super::DiskOperation;

    /// A fault at an operation.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum DiskFault {
        /// The process is killed: this operation and all later ones do nothing.
        Kill,
        /// This operation fails, and all later ones succeed.
        Once(i32),
        /// From here on the disk is full: operations that need space fail.
        Full,
        /// From here on the undo store is read-only.
        ReadOnly,
        /// The process is killed. From this many operations before the disk is full.
        KillWhenFull(usize),
    }

    #[derive(Debug, Default)]
    struct FaultPlan {
        fault: Option<(usize, DiskFault)>,
        seen: Vec<DiskOperation>,
    }

    thread_local! {
        static PLAN: RefCell<FaultPlan> = RefCell::default();
    }

    /// Runs `work`, with `fault` at this thread's operation of this index. Returns the result, and the operations that
    /// were tried.
    pub(crate) fn with<T>(fault: Option<(usize, DiskFault)>, work: impl FnOnce() -> T) -> (T, Vec<DiskOperation>) {
        PLAN.set(FaultPlan { fault, seen: Vec::new() });
        let result = work();
        (result, PLAN.take().seen)
    }

    pub(super) fn before(operation: DiskOperation) -> io::Result<()> {
        let errno = PLAN.with_borrow_mut(|plan| {
            let number = plan.seen.len();
            plan.seen.push(operation);
            let (at, fault) = plan.fault?;
            let needs_space = matches!(operation, DiskOperation::Create | DiskOperation::Write);
            match fault {
                DiskFault::Kill | DiskFault::KillWhenFull(_) if number >= at => Some(libc::EIO),
                DiskFault::KillWhenFull(before) if number + before >= at && needs_space => Some(libc::ENOSPC),
                DiskFault::Once(errno) if number == at => Some(errno),
                DiskFault::Full if number >= at && needs_space => Some(libc::ENOSPC),
                DiskFault::ReadOnly if number >= at && operation != DiskOperation::Knob => Some(libc::EROFS),
                _ => None,
            }
        });
        errno.map_or(Ok(()), |errno| Err(io::Error::from_raw_os_error(errno)))
    }
}
