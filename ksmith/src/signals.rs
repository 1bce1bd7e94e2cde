//! Signals as messages: whoever waits on a channel learns of Ctrl-C there, and ends as it would anyway.

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

/// Sends each signal to `sender` from a thread of its own.
///
/// # Errors
/// The handlers or the thread could not be had.
pub fn forward<T: Send + 'static>(sender: Sender<T>, wrap: fn(Signal) -> T) -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
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

/// A channel that tells of signals and nothing else.
///
/// # Errors
/// The handlers or the thread could not be had.
pub fn listen() -> io::Result<Receiver<Signal>> {
    let (sender, receiver) = unbounded();
    forward(sender, |signal| signal)?;
    Ok(receiver)
}
