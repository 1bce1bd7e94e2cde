//! Waiting for a program: its signals are forwarded, and its exit code is returned.

use std::fs::File;
use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::os::fd::FromRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, wait as wait_any};

/// Forwarded signals, which end or instruct a program. Signals that stop and continue are left out, because a terminal
/// sends them to both processes.
const PASSED_ON: [libc::c_int; 8] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGABRT,
    libc::SIGALRM,
    libc::SIGTERM,
    libc::SIGUSR1,
    libc::SIGUSR2,
];

/// `si_code` of a signal from the kernel, such as Ctrl-C at a terminal. The whole process group gets such a
/// signal.
const SI_KERNEL: i32 = 0x80;

/// The way in which a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramEnd {
    /// The program exited with this code.
    Code(u8),
    /// This signal ended the program.
    Signal(u8),
}

impl ProgramEnd {
    /// Returns the exit code as shells do: 128 + the number of the signal.
    pub fn code(self) -> u8 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => signal.saturating_add(128),
        }
    }

    fn from_status(status: WaitStatus) -> Option<Self> {
        let small = |number: i32| u8::try_from(number).unwrap_or(u8::MAX);
        let code = status.exit_status().map(|code| Self::Code(small(code)));
        code.or_else(|| status.terminating_signal().map(|signal| Self::Signal(small(signal))))
    }
}

/// A signalfd, used instead of handlers so that a signal ignored before (as under nohup) stays ignored in the program.
#[derive(Debug)]
pub struct BlockedSignals {
    file: File,
    before: libc::sigset_t,
    ignores_children: bool,
}

/// Blocks signals in this thread and all threads that it starts later. Must be called before the program is
/// started, in which signals work as usual.
///
/// # Errors
/// The kernel refuses the signal file.
#[allow(unsafe_code, reason = "no safe wrapper is at hand")]
pub fn block_signals() -> io::Result<BlockedSignals> {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initialises the set before it is read; the numbers are those of real signals.
    let set = unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in PASSED_ON.into_iter().chain([libc::SIGCHLD]) {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        set.assume_init()
    };
    let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: the set is initialised, and `before` has space for the old one.
    let failed = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, before.as_mut_ptr()) };
    if failed != 0 {
        return Err(io::Error::from_raw_os_error(failed));
    }
    // SAFETY: the call above has initialised the set; a set of zeros is valid too.
    let before = unsafe { before.assume_init() };
    // SAFETY: the set is initialised; -1 asks for a new descriptor.
    let descriptor = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // Where SIGCHLD is ignored (`trap '' CHLD`), the kernel reports no end of a child and keeps no exit code.
    // SAFETY: the default disposition needs no handler, and no other code in this process has one for SIGCHLD.
    let ignores_children = unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) } == libc::SIG_IGN;
    // SAFETY: the descriptor is open and has no other owner.
    Ok(BlockedSignals { file: unsafe { File::from_raw_fd(descriptor) }, before, ignores_children })
}

/// Waits for the end of the program. Meanwhile it forwards signals and reaps adopted orphans.
///
/// # Errors
/// Signals or children can't be read.
pub fn wait(child: &Child, signals: &mut BlockedSignals) -> io::Result<ProgramEnd> {
    let main = Pid::from_child(child);
    write_in_the_background();
    loop {
        if let Some(ended) = collect(main)? {
            return Ok(ended);
        }
        let (signal, code) = signals.next()?;
        // A terminal sends its signals to the program too, except for its hang-up, which only the session leader
        // gets.
        let is_told = code == SI_KERNEL && !(signal == libc::SIGHUP && leads_a_session());
        // A failure means that the program has ended meanwhile.
        if signal != libc::SIGCHLD
            && !is_told
            && let Some(signal) = Signal::from_named_raw(signal)
        {
            let _ = kill_process(main, signal);
        }
    }
}

fn leads_a_session() -> bool {
    rustix::process::getsid(None).is_ok_and(|session| session == rustix::process::getpid())
}

/// Lets the report be written even if the program has left the terminal to another group. Must be called after
/// the program was started, because a child inherits it.
#[allow(unsafe_code, reason = "no safe wrapper is at hand")]
fn write_in_the_background() {
    // SAFETY: to ignore a signal needs no handler, and no other code in this process has one for SIGTTOU.
    unsafe { libc::signal(libc::SIGTTOU, libc::SIG_IGN) };
}

/// Reaps children that have ended. Several ends may be reported by one signal.
fn collect(main: Pid) -> io::Result<Option<ProgramEnd>> {
    let mut found = None;
    loop {
        match wait_any(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) if pid == main => found = ProgramEnd::from_status(status),
            Ok(Some(_)) => {}
            Ok(None) => return Ok(found),
            Err(rustix::io::Errno::CHILD) if found.is_some() => return Ok(found),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

impl BlockedSignals {
    /// Restores the signal mask in the program, because the kernel keeps a mask over exec.
    #[allow(unsafe_code, reason = "std leaves the mask as it is")]
    pub(super) fn release_in(&self, command: &mut Command) {
        let (before, ignores_children) = (self.before, self.ignores_children);
        let release = move || {
            if ignores_children {
                // SAFETY: signal is async-signal-safe; to ignore one needs no handler.
                unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
            }
            // SAFETY: the kernel initialised the set; pthread_sigmask is async-signal-safe.
            match unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) } {
                0 => Ok(()),
                error => Err(io::Error::from_raw_os_error(error)),
            }
        };
        // SAFETY: the closure makes two system calls; it neither allocates nor takes locks.
        unsafe { command.pre_exec(release) };
    }

    /// Reads the next signal and its `si_code`.
    fn next(&mut self) -> io::Result<(libc::c_int, i32)> {
        let mut bytes = [0_u8; size_of::<libc::signalfd_siginfo>()];
        self.file.read_exact(&mut bytes)?;
        // The first three fields are number, errno and code, of 32 bits each.
        let field = |at: usize| i32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        Ok((field(0), field(8)))
    }
}

/// Waits for the end of a child, without forwarding signals.
#[cfg(test)]
fn outlive(child: &Child) -> Option<ProgramEnd> {
    rustix::process::waitpid(Some(Pid::from_child(child)), WaitOptions::empty())
        .ok()?
        .and_then(|(_, status)| ProgramEnd::from_status(status))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_told_as_the_shell_tells_it() {
        let end = |script: &str| outlive(&Command::new("sh").args(["-c", script]).spawn().unwrap()).unwrap();
        assert_eq!(end("exit 7"), ProgramEnd::Code(7));
        let killed = end("kill -TERM $$");
        assert_eq!((killed, killed.code()), (ProgramEnd::Signal(15), 143));
    }
}
