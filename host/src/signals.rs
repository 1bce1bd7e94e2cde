//! Signals as messages: a thread that waits on a channel receives Ctrl-C there, and ends in the regular way.
//!
//! Signals that end a program by default are caught. Exceptions are SIGKILL, which can't be, real-time signals, and
//! those for a fault of the program, such as SIGSEGV: after these the next start or `ksmith restore` restores. Signals
//! that stop a program are left alone: ksmd does not scan on while ksmith is stopped ([`ksmith_core::lease`]).

use std::ffi::c_int;
use std::io;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};
use signal_hook::consts::{
    SIGABRT, SIGALRM, SIGHUP, SIGINT, SIGIO, SIGPROF, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGVTALRM, SIGXCPU,
    SIGXFSZ,
};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

/// Signals that request termination.
const ENDING: [c_int; 5] = [SIGINT, SIGTERM, SIGQUIT, SIGABRT, SIGXCPU];

/// Ignored signals: they have no meaning here, and their default action would end the program.
const MEANINGLESS: [c_int; 9] =
    [SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF, SIGIO, SIGXFSZ, libc::SIGPWR, libc::SIGSTKFLT];

/// The time in which a process has to end after SIGABRT. systemd's watchdog sends that to a daemon that hangs, which
/// then ends by the signal, as it would have at once.
const ABORT_PATIENCE: Duration = Duration::from_secs(10);

/// A signal that ksmith acts on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// A request for termination: restore everything and end.
    End,
    /// SIGHUP: reload the configuration.
    Reload,
}

/// The caught signals, which do not end the process. Those that arrive before a thread listens are kept.
#[derive(Debug)]
pub struct CaughtSignals(Signals);

/// Catches the signals. Call it before any change that a sudden end would leave in place.
///
/// # Errors
/// The handlers could not be installed.
pub fn catch() -> io::Result<CaughtSignals> {
    Signals::new(ENDING.into_iter().chain(MEANINGLESS).chain([SIGHUP])).map(CaughtSignals)
}

impl CaughtSignals {
    /// Sends each signal to `sender` from a thread of its own.
    ///
    /// # Errors
    /// The thread could not be started.
    pub fn forward<T: Send + 'static>(self, sender: Sender<T>, wrap: fn(Signal) -> T) -> io::Result<()> {
        forward(self.0, sender, wrap, ABORT_PATIENCE)
    }

    /// Returns a channel that carries the signals and nothing else.
    ///
    /// # Errors
    /// The thread could not be started.
    pub fn listen(self) -> io::Result<Receiver<Signal>> {
        let (sender, receiver) = unbounded();
        self.forward(sender, |signal| signal)?;
        Ok(receiver)
    }
}

fn forward<T: Send + 'static>(
    mut signals: Signals,
    sender: Sender<T>,
    wrap: fn(Signal) -> T,
    patience: Duration,
) -> io::Result<()> {
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for number in signals.forever() {
            if number == SIGABRT {
                abort_after(patience);
            }
            let signal = match number {
                SIGHUP => Signal::Reload,
                _ if MEANINGLESS.contains(&number) => continue,
                _ => Signal::End,
            };
            if sender.send(wrap(signal)).is_err() {
                break;
            }
        }
    })?;
    Ok(())
}

/// Lets SIGABRT end this process unless it ends in time. A separate thread waits, since the message may find no reader.
fn abort_after(patience: Duration) {
    let wait = move || {
        std::thread::sleep(patience);
        let _ = emulate_default_handler(SIGABRT);
    };
    if std::thread::Builder::new().name("abort".to_owned()).spawn(wait).is_err() {
        let _ = emulate_default_handler(SIGABRT);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, ExitStatus};

    use signal_hook::low_level::raise;

    use super::*;

    /// Runs a test's body in a process of its own, since signal handlers are per process. Returns the exit status.
    fn in_own_process(name: &str, body: impl FnOnce()) -> Option<ExitStatus> {
        const MARK: &str = "KSMITH_TEST_HAS_OWN_PROCESS";
        if std::env::var_os(MARK).is_some() {
            body();
            return None;
        }
        let own = std::env::current_exe().unwrap();
        let mut command = Command::new(own);
        command.args(["--exact", &format!("signals::tests::{name}"), "--test-threads=1"]).env(MARK, "1");
        Some(command.output().unwrap().status)
    }

    #[test]
    fn every_signal_that_asks_for_an_end_is_told() {
        let status = in_own_process("every_signal_that_asks_for_an_end_is_told", || {
            let heard = catch().unwrap().listen().unwrap();
            for signal in ENDING {
                raise(signal).unwrap();
                assert_eq!(heard.recv(), Ok(Signal::End), "{signal}");
            }
            raise(SIGHUP).unwrap();
            assert_eq!(heard.recv(), Ok(Signal::Reload));
        });
        assert!(status.is_none_or(|status| status.success()), "{status:?}");
    }

    #[test]
    fn signals_without_a_meaning_end_nothing() {
        let status = in_own_process("signals_without_a_meaning_end_nothing", || {
            let heard = catch().unwrap().listen().unwrap();
            for signal in MEANINGLESS {
                raise(signal).unwrap();
            }
            raise(SIGTERM).unwrap();
            assert_eq!(heard.recv(), Ok(Signal::End));
            raise(SIGHUP).unwrap();
            assert_eq!(heard.recv(), Ok(Signal::Reload), "and nothing in between");
        });
        assert!(status.is_none_or(|status| status.success()), "{status:?}");
    }

    #[test]
    fn a_process_that_does_not_end_is_ended_by_its_abort() {
        let status = in_own_process("a_process_that_does_not_end_is_ended_by_its_abort", || {
            let (sender, heard) = unbounded();
            forward(catch().unwrap().0, sender, |signal| signal, Duration::from_millis(50)).unwrap();
            raise(SIGABRT).unwrap();
            assert_eq!(heard.recv(), Ok(Signal::End));
            loop {
                std::thread::park();
            }
        });
        assert!(status.is_none_or(|status| status.signal() == Some(SIGABRT)), "{status:?}");
    }
}
