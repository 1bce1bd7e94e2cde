//! What can go wrong: with one process, or with the whole.

use std::io;

use ksmith_core::reading::Malformed;

use crate::proc_file::{OverBudget, Unanswered};

/// Why one process was left out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// No process has this PID.
    #[error("there is no such process")]
    NoSuchProcess,
    /// It belongs to the kernel.
    #[error("it is a kernel thread and has no memory of its own")]
    KernelThread,
    /// It ended before or while it was read.
    #[error("it has ended")]
    Exited,
    /// We may not read its memory.
    #[error("its memory may not be read: {}", right("run ksmith as root, or with CAP_SYS_PTRACE"))]
    Denied,
    /// A file of its /proc directory is not what it should be.
    #[error("its /proc file {file} is not understood: {why}")]
    Malformed {
        /// The file.
        file: &'static str,
        /// What is wrong with it.
        why: Malformed,
    },
    /// It has more than is read of one process.
    #[error(transparent)]
    OverBudget(#[from] OverBudget),
    /// It does not let its files be read.
    #[error(transparent)]
    Unanswered(#[from] Unanswered),
    /// Any other obstacle.
    #[error("it can't be read: {0}")]
    Other(String),
}

impl Unreadable {
    /// What an error of the kernel's means here.
    pub fn of(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::ENOENT | libc::ESRCH) => Self::Exited,
            Some(libc::EACCES | libc::EPERM) => Self::Denied,
            _ => match (OverBudget::of(&error), Unanswered::of(&error)) {
                (Some(over), _) => Self::OverBudget(over.clone()),
                (_, Some(unanswered)) => Self::Unanswered(unanswered.clone()),
                (None, None) => Self::Other(error.to_string()),
            },
        }
    }

    /// The same for an error of a file that is parsed.
    pub fn of_file(file: &'static str, error: io::Error) -> Self {
        let why = error.get_ref().and_then(|why| why.downcast_ref::<Malformed>()).cloned();
        why.map_or_else(|| Self::of(error), |why| Self::Malformed { file, why })
    }
}

/// A process that is left out, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// The process's PID.
    pub pid: u32,
    /// The reason why it is left out.
    pub why: Unreadable,
}

/// Why there is no estimate at all.
#[derive(Debug, thiserror::Error)]
pub enum EstimateError {
    /// None of the processes may be read.
    #[error("{}: {}", denied(*.0, "process", "processes"), right("run ksmith as root, or with CAP_SYS_PTRACE"))]
    NoPrivilege(usize),
    /// Nothing to read.
    #[error("no process has mergeable memory and no virtual machine runs here: name the PIDs to look at")]
    NothingFound,
    /// Only processes that can't be read were named.
    #[error("nothing is left to estimate{}", .0.iter().map(|it| format!("; process {}: {}", it.pid, it.why)).collect::<String>())]
    NoneLeft(Vec<Skipped>),
    /// A captured tree has no memory in it.
    #[error("memory can only be read on the running host, not in a captured tree: leave out --root")]
    NotHost,
    /// What was asked for does not go together.
    #[error("{0}")]
    Usage(&'static str),
    /// The system refused something that it never should.
    #[error("can't {what}: {why}")]
    System {
        /// What was to be done.
        what: &'static str,
        /// Why not.
        why: io::Error,
    },
}

/// Says that none of so many may be read.
pub fn denied(count: usize, one: &str, several: &str) -> String {
    match count {
        1 => format!("the {one} may not be read"),
        _ => format!("none of the {count} {several} may be read"),
    }
}

/// What lets this user read another process: what `else_do` says, unless this is root, which may lack the right too.
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
        let of = |code| Unreadable::of(io::Error::from_raw_os_error(code));
        assert_eq!([of(libc::ESRCH), of(libc::EACCES)], [Unreadable::Exited, Unreadable::Denied]);
        let over = OverBudget::new(812, "smaps", 1 << 18, "mappings");
        let why = Unreadable::of(over.clone().into());
        assert_eq!(why, Unreadable::OverBudget(over));
        assert_eq!(why.to_string(), "smaps of process 812 exceeds the budget of 262144 mappings");
    }
}
