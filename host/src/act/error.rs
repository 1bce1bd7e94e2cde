//! Errors from changing knobs and from unmerging, with a remedy for each.

use std::io;
use std::path::PathBuf;

use ksmith_core::knobs::Knob;
use ksmith_core::reading::{Malformed, Reading};

use super::{NoHeadroom, UndoError};

/// An error from changing one knob.
#[derive(Debug, thiserror::Error)]
pub enum ActError {
    /// The file can't be read, so its original value is unknown.
    #[error("{path} may not be read; ksmith needs root to change KSM's settings", path = .path.display())]
    Denied {
        /// The file.
        path: PathBuf,
    },
    /// The file's text does not match its documentation.
    #[error("{path} makes no sense, so it was left alone: {why}", path = .path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The parse error.
        why: Malformed,
    },
    /// The kernel refused the write.
    #[error("can't write {wanted} to {path} (now {old}): {source}; {hint}",
            wanted = .knob.text(*.wanted), old = .knob.text(*.old), path = .path.display())]
    Refused {
        /// The knob.
        knob: Knob,
        /// The file.
        path: PathBuf,
        /// The value before.
        old: u64,
        /// The value written.
        wanted: u64,
        /// The kernel's answer.
        source: io::Error,
        /// The remedy.
        hint: &'static str,
    },
    /// The kernel accepted the write, but the file shows another value.
    #[error("{wanted} was written to {path} (before: {old}), but it reads {found}; is another program writing to it?",
            wanted = .knob.text(*.wanted), old = .knob.text(*.old), path = .path.display())]
    NotTaken {
        /// The knob.
        knob: Knob,
        /// The file.
        path: PathBuf,
        /// The value before.
        old: u64,
        /// The value written.
        wanted: u64,
        /// The file's text after the write.
        found: String,
    },
    /// The original value could not be recorded first, so the knob was not written.
    #[error("{knob} was not changed, because its value could not be recorded for restoring: {source}")]
    Journal {
        /// The knob.
        knob: Knob,
        /// The journal's error.
        source: UndoError,
    },
    /// `run=2` by a plain write. It would make ksmith the first process that the OOM killer ends.
    #[error("run=2 unmerges everything and is not written like a setting; use `ksmith unmerge`")]
    UnmergeApart,
    /// A setting failed, so ksmd was not started.
    #[error("run=1 was not written, because {failed} could not be set")]
    NotStarted {
        /// The first knob that failed.
        failed: Knob,
    },
    /// ksmd's batch has not ended. A write to `run` would wait for it.
    #[error(
        "run={wanted} is not written yet: ksmd is still in its batch. Nothing wakes it for another one, and \
             the write is tried again"
    )]
    Busy {
        /// The value to be written.
        wanted: u64,
    },
    /// The thread that wakes ksmd could not be started.
    #[error(
        "ksmd is left asleep, since the thread that wakes it can't be started: {0}; are there too many processes?"
    )]
    NoWaker(#[source] io::Error),
    /// Unmerging failed. The kernel changes this knob only while nothing is merged.
    #[error("{knob} can only be changed while nothing is merged: {source}")]
    NeedsUnmerge {
        /// The knob.
        knob: Knob,
        /// The error from unmerging.
        source: UnmergeError,
    },
}

impl ActError {
    /// Returns the error for a reading without a value; `None` if it is absent, since a kernel may lack a knob.
    pub(super) fn unread(path: PathBuf, reading: Reading<u64>) -> Option<Self> {
        match reading {
            Reading::Value(_) | Reading::Absent => None,
            Reading::Denied => Some(Self::Denied { path }),
            Reading::Malformed(why) => Some(Self::Malformed { path, why }),
        }
    }
}

/// An error from unmerging everything.
#[derive(Debug, thiserror::Error)]
pub enum UnmergeError {
    /// Not tried: memory does not suffice.
    #[error(transparent)]
    NoHeadroom(#[from] NoHeadroom),
    /// Not tried: `run` is unreadable, or its value could not be recorded.
    #[error(transparent)]
    Knob(#[from] Box<ActError>),
    /// Not tried: this kernel has no KSM.
    #[error("this kernel has no KSM, so nothing is merged")]
    NoKsm,
    /// The child could not be forked or watched.
    #[error("can't start the process that unmerges: {0}")]
    Child(#[source] io::Error),
    /// The kernel refused.
    #[error(
        "the kernel did not unmerge everything: {source}; {hint}; run is {run} now, \
             and {left_pages} merged pages are left"
    )]
    Refused {
        /// The kernel's error.
        source: io::Error,
        /// The remedy.
        hint: &'static str,
        /// The value of `run` afterwards: 0 after an unmerge that stopped half way.
        run: u64,
        /// Pages of processes that are still merged: with what is kept of each content, and zero pages.
        left_pages: u64,
    },
    /// The child was killed: by us on request or at the deadline, or by the OOM killer.
    #[error("unmerging was stopped {why}; run is {run} now, and {left_pages} merged pages are left")]
    Stopped {
        /// The cause.
        why: String,
        /// The value of `run` afterwards.
        run: u64,
        /// Pages of processes that are still merged: with what is kept of each content, and zero pages.
        left_pages: u64,
    },
}

/// Returns the remedy for a refused write. `advisor_on` and `pages_merged` describe the state after the refusal.
pub(super) fn hint(knob: Knob, errno: Option<i32>, advisor_on: bool, pages_merged: bool) -> &'static str {
    match errno {
        Some(libc::EINVAL) if knob == Knob::PagesToScan && advisor_on => {
            "the kernel's own advisor is on and owns it: set advisor_mode=none first"
        }
        Some(libc::EINVAL) => "this kernel does not take that value",
        Some(libc::EBUSY) if knob.needs_nothing_merged() && pages_merged => {
            "pages are merged: it can only be changed after `ksmith unmerge`"
        }
        Some(libc::EBUSY) => "the kernel is busy with it: try again",
        Some(libc::EACCES | libc::EPERM) => {
            "this needs root (in a container: a privileged one, with /sys writable)"
        }
        Some(libc::EROFS) => {
            "/sys is read-only here: run ksmith on the host and not in a container, or without ProtectKernelTunables="
        }
        Some(libc::ENOMEM) => "the host has no memory for it",
        Some(libc::ENOENT) => "the file has vanished: was KSM's directory unmounted?",
        _ => "the kernel's documentation does not name this refusal",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_says_what_to_do() {
        let of = |knob, errno, advisor, merged| hint(knob, Some(errno), advisor, merged);
        assert!(of(Knob::PagesToScan, libc::EINVAL, true, false).contains("advisor_mode=none"));
        assert!(of(Knob::PagesToScan, libc::EINVAL, false, false).contains("does not take that value"));
        assert!(of(Knob::MaxPageSharing, libc::EINVAL, true, false).contains("does not take that value"));
        assert!(of(Knob::MaxPageSharing, libc::EBUSY, false, true).contains("ksmith unmerge"));
        assert!(of(Knob::MergeAcrossNodes, libc::EBUSY, false, false).contains("try again"));
        assert!(of(Knob::Run, libc::EACCES, false, false).contains("root"));
        assert!(of(Knob::Run, libc::EPERM, false, false).contains("root"));
        assert!(of(Knob::Run, libc::EROFS, false, false).contains("read-only"));
    }

    #[test]
    fn a_refusal_names_file_old_wanted_and_reason() {
        let error = ActError::Refused {
            knob: Knob::AdvisorMode,
            path: "/sys/kernel/mm/ksm/advisor_mode".into(),
            old: 0,
            wanted: 1,
            source: io::Error::from_raw_os_error(libc::EACCES),
            hint: hint(Knob::AdvisorMode, Some(libc::EACCES), false, false),
        };
        let text = error.to_string();
        for part in ["scan-time to /sys/kernel/mm/ksm/advisor_mode (now none)", "Permission denied", "needs root"] {
            assert!(text.contains(part), "{text}");
        }
    }
}
