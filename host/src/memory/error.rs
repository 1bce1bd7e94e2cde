//! Errors from reading one process, and from the estimate as a whole.

use std::io;

use ksmith_core::reading::Malformed;

use crate::proc_file::{OverBudget, UnansweredRead};

/// A reason to skip one process.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnreadableProcess {
    /// No process has this PID.
    #[error("there is no such process")]
    NoSuchProcess,
    /// It is a kernel thread.
    #[error("it is a kernel thread and has no memory of its own")]
    KernelThread,
    /// It ended before or while it was read.
    #[error("it has ended")]
    Exited,
    /// Its memory may not be read.
    #[error("its memory may not be read: {}", right("run ksmith as root, or with CAP_SYS_PTRACE"))]
    Denied,
    /// A file of its /proc directory can't be parsed.
    #[error("its /proc file {file} is not understood: {why}")]
    Malformed {
        /// The file.
        file: &'static str,
        /// The parse error.
        why: Malformed,
    },
    /// It exceeds the reading budget of one process.
    #[error(transparent)]
    OverBudget(#[from] OverBudget),
    /// Its files did not answer in time.
    #[error(transparent)]
    Unanswered(#[from] UnansweredRead),
    /// Any other error.
    #[error("it can't be read: {0}")]
    Other(String),
}

impl UnreadableProcess {
    /// Converts an I/O error.
    pub fn from_io(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::ENOENT | libc::ESRCH) => Self::Exited,
            Some(libc::EACCES | libc::EPERM) => Self::Denied,
            _ => match (OverBudget::find_in(&error), UnansweredRead::find_in(&error)) {
                (Some(over), _) => Self::OverBudget(over.clone()),
                (_, Some(unanswered)) => Self::Unanswered(unanswered.clone()),
                (None, None) => Self::Other(error.to_string()),
            },
        }
    }

    /// Converts an error from reading and parsing a file.
    pub fn from_file_io(file: &'static str, error: io::Error) -> Self {
        let why = error.get_ref().and_then(|why| why.downcast_ref::<Malformed>()).cloned();
        why.map_or_else(|| Self::from_io(error), |why| Self::Malformed { file, why })
    }
}

/// A skipped process, with the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedProcess {
    /// The process's PID.
    pub pid: u32,
    /// The reason.
    pub why: UnreadableProcess,
}

/// An error of the estimate as a whole.
#[derive(Debug, thiserror::Error)]
pub enum EstimateError {
    /// None of the processes may be read.
    #[error("{}: {}", denied(*.0, "process", "processes"), right("run ksmith as root, or with CAP_SYS_PTRACE"))]
    NoPrivilege(usize),
    /// There is nothing to read.
    #[error("no process has mergeable memory and no virtual machine runs here: name the PIDs to look at")]
    NothingFound,
    /// All named processes are unreadable.
    #[error("nothing is left to estimate{}", .0.iter().map(|it| format!("; process {}: {}", it.pid, it.why)).collect::<String>())]
    NoneLeft(Vec<SkippedProcess>),
    /// The root is a captured tree, which holds no memory.
    #[error("memory can only be read on the running host, not in a captured tree: leave out --root")]
    NotHost,
    /// The options contradict each other.
    #[error("{0}")]
    Usage(&'static str),
    /// A system call failed unexpectedly.
    #[error("can't {what}: {why}")]
    System {
        /// The failed action.
        what: &'static str,
        /// The I/O error.
        why: io::Error,
    },
}

/// Returns the message that none of `count` may be read.
pub fn denied(count: usize, one: &str, several: &str) -> String {
    match count {
        1 => format!("the {one} may not be read"),
        _ => format!("none of the {count} {several} may be read"),
    }
}

/// Returns the remedy for a missing right to read: `else_do`, or for a root that lacks the right an explanation.
pub fn right(else_do: &'static str) -> &'static str {
    match rustix::process::geteuid().is_root() {
        true => {
            "this root lacks the right too: the process is in another user namespace, or a container or a security module \
             withholds CAP_SYS_PTRACE; ask on the host"
        }
        false => else_do,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_process_is_not_counted() {
        assert_eq!(denied(1, "process", "processes"), "the process may not be read");
        assert_eq!(denied(3, "guest", "guests"), "none of the 3 guests may be read");
    }

    #[test]
    fn absent_denied_and_over_budget_stay_apart() {
        let of = |code| UnreadableProcess::from_io(io::Error::from_raw_os_error(code));
        assert_eq!([of(libc::ESRCH), of(libc::EACCES)], [UnreadableProcess::Exited, UnreadableProcess::Denied]);
        let over = OverBudget::new(812, "smaps", 1 << 18, "mappings");
        let why = UnreadableProcess::from_io(over.clone().into());
        assert_eq!(why, UnreadableProcess::OverBudget(over));
        assert_eq!(why.to_string(), "smaps of process 812 exceeds the budget of 262144 mappings");
    }
}
