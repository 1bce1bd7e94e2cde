//! Signals as messages: a thread that waits on a channel learns of Ctrl-C there, and ends as it would anyway.

use std::io;

use crossbeam_channel::{Receiver, Sender, unbounded};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// A signal that ksmith heeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// SIGINT or SIGTERM: put everything back and end.
    End,
    /// SIGHUP: read the configuration again.
    Reload,
}

/// Signals that no longer end the process. Signals from before the thread listens are kept.
#[derive(Debug)]
pub struct Caught(Signals);

/// Catches the signals. To be called before anything is changed that a sudden end would leave behind.
///
/// # Errors
/// The handlers could not be had.
pub fn catch() -> io::Result<Caught> {
    Signals::new([SIGINT, SIGTERM, SIGHUP]).map(Caught)
}

impl Caught {
    /// Sends each signal to `sender` from a thread of its own.
    ///
    /// # Errors
    /// The thread could not be had.
    pub fn forward<T: Send + 'static>(self, sender: Sender<T>, wrap: fn(Signal) -> T) -> io::Result<()> {
        forward(self.0, sender, wrap)
    }

    /// A channel that tells of signals and nothing else.
    ///
    /// # Errors
    /// The thread could not be had.
    pub fn listen(self) -> io::Result<Receiver<Signal>> {
        let (sender, receiver) = unbounded();
        self.forward(sender, |signal| signal)?;
        Ok(receiver)
    }
}

fn forward<T: Send + 'static>(mut signals: Signals, sender: Sender<T>, wrap: fn(Signal) -> T) -> io::Result<()> {
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for signal in signals.forever() {
            let signal = if signal == SIGHUP { Signal::Reload } else { Signal::End };
            if sender.send(wrap(signal)).is_err() {
                break;
            }
        }
    })?;
    Ok(())
}
