//! The accept loop, which neither spins nor leaves peers without an answer when no descriptor is left.

use std::fs::File;
use std::io;
use std::time::Duration;

use tracing::warn;

/// The time for which a peer may hold up the accept loop at no cost: a look at its process takes a millisecond, and more
/// on a busy host.
const FREE_DELAY: Duration = Duration::from_millis(10);

/// The cost of a delay, as a multiple of the connections that its user may make in that time: a user whose processes
/// execute programs without an end holds up a tenth of the accept loop.
const DELAY_PRICE: f64 = 10.0;

/// The longest delay that a look costs anything: a read of a peer's process is given up after 50 ms. What lasts longer is the
/// host's doing.
const LONGEST_DELAY: Duration = Duration::from_millis(200);

/// Returns the connections that a look counts as besides its own, if it held up the accept loop for `delay`. Its user may
/// make `per_second` connections.
pub fn connections_for_delay(delay: Duration, per_second: f64) -> f64 {
    delay.min(LONGEST_DELAY).saturating_sub(FREE_DELAY).as_secs_f64() * per_second * DELAY_PRICE
}

/// A descriptor held back, which is closed so that a connection can be accepted and refused.
#[derive(Debug)]
pub(super) struct DescriptorReserve<F> {
    held: Option<F>,
    open: fn() -> io::Result<F>,
}

impl<F> DescriptorReserve<F> {
    /// Creates a reserve with a descriptor opened by `open`.
    pub(super) fn new(open: fn() -> io::Result<F>) -> Self {
        Self { held: open().ok(), open }
    }

    /// Closes the descriptor.
    fn give_up(&mut self) {
        self.held = None;
    }

    /// Opens the descriptor again, unless it is held. Returns true if it is held.
    fn restore(&mut self) -> bool {
        if self.held.is_none() {
            self.held = (self.open)().ok();
        }
        self.held.is_some()
    }
}

/// Opens a descriptor for the reserve.
pub(super) fn spare() -> io::Result<File> {
    File::open("/dev/null")
}

/// The accept loop, by its callbacks.
pub(super) struct AcceptLoop<A, T, R, W> {
    /// Waits for a connection. `None` ends the loop: a test has no more.
    pub(super) accept: A,
    /// Handles a connection.
    pub(super) take: T,
    /// Refuses a connection for want of descriptors, and closes it.
    pub(super) refuse: R,
    /// Waits after an error.
    pub(super) pause: W,
}

impl<S, A, T, R, W> AcceptLoop<A, T, R, W>
where
    A: FnMut() -> Option<io::Result<S>>,
    T: Fn(S),
    R: Fn(S),
    W: Fn(),
{
    /// Handles each connection. Pauses after each error, of which the first of several is logged.
    pub(super) fn run<F>(mut self, mut reserve: DescriptorReserve<F>) {
        let mut is_failing = false;
        while let Some(accepted) = (self.accept)() {
            match accepted {
                Ok(connection) if reserve.restore() => {
                    is_failing = false;
                    (self.take)(connection);
                }
                Ok(connection) => {
                    (self.refuse)(connection);
                    reserve.restore();
                }
                Err(error) => {
                    if !std::mem::replace(&mut is_failing, true) {
                        warn!("connections can't be accepted: {error}; retrying");
                    }
                    if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) {
                        reserve.give_up();
                    }
                    (self.pause)();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    thread_local! {
        static LEFT: Cell<usize> = const { Cell::new(0) };
    }

    /// A descriptor from a limited number.
    struct ScarceDescriptor;

    impl ScarceDescriptor {
        fn open() -> io::Result<Self> {
            match LEFT.get().checked_sub(1) {
                Some(left) => {
                    LEFT.set(left);
                    Ok(Self)
                }
                None => Err(io::Error::from_raw_os_error(libc::EMFILE)),
            }
        }
    }

    impl Drop for ScarceDescriptor {
        fn drop(&mut self) {
            LEFT.set(LEFT.get() + 1);
        }
    }

    /// Returns the numbers of connections accepted and refused, and of pauses.
    fn accept(peers: usize, descriptors: usize) -> (usize, usize, usize) {
        LEFT.set(descriptors);
        let (waiting, pauses) = (Cell::new(peers), Cell::new(0));
        let (held, refused) = (RefCell::new(Vec::new()), Cell::new(0));
        let accept = || {
            let is_over = waiting.get() == 0 || pauses.get() > 100;
            (!is_over).then(|| ScarceDescriptor::open().inspect(|_| waiting.set(waiting.get() - 1)))
        };
        let refuse = |connection| {
            drop(connection);
            refused.set(refused.get() + 1);
        };
        AcceptLoop {
            accept,
            take: |it| held.borrow_mut().push(it),
            refuse,
            pause: || pauses.set(pauses.get() + 1),
        }
        .run(DescriptorReserve::new(ScarceDescriptor::open));
        (held.into_inner().len(), refused.get(), pauses.get())
    }

    #[test]
    fn without_descriptors_peers_are_refused_and_each_costs_a_pause() {
        assert_eq!(accept(3, 10), (3, 0, 0));
        assert_eq!(accept(7, 4), (3, 4, 4));
    }

    #[test]
    fn other_errors_pause_and_go_on() {
        let fails = || Err(io::Error::from_raw_os_error(libc::ENOMEM));
        let mut events = vec![Ok(1), fails(), fails(), Ok(2)];
        let (pauses, taken) = (Cell::new(0), RefCell::new(Vec::new()));
        LEFT.set(1);
        let accept = || events.pop();
        let take = |it: u32| taken.borrow_mut().push(it);
        AcceptLoop {
            accept,
            take,
            refuse: |_| panic!("there are descriptors"),
            pause: || pauses.set(pauses.get() + 1),
        }
        .run(DescriptorReserve::new(ScarceDescriptor::open));
        assert_eq!((pauses.get(), taken.into_inner()), (2, vec![2, 1]));
    }
}
