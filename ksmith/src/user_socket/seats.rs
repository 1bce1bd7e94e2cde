//! Who is connected, and who makes room when all places are taken.

use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Open connections at most, and of one user.
pub(super) const MOST: usize = 256;
const OF_ONE_USER: usize = 128;

/// The places. Nobody is shut out by who only holds connections open: when all are taken, the user with the most of them
/// loses one that is asking nothing to who has fewer.
#[derive(Debug, Default)]
pub(super) struct Seats(Mutex<Book>);

#[derive(Debug, Default)]
struct Book {
    /// In the order in which they were taken.
    seats: Vec<Seat>,
    next: u64,
}

#[derive(Debug)]
struct Seat {
    number: u64,
    payer: u32,
    /// Nothing is asked at the moment.
    is_idle: bool,
    /// The connection, to end it.
    stream: Arc<UnixStream>,
}

/// A place, given back on drop.
#[derive(Debug)]
pub(super) struct Taken<'a> {
    seats: &'a Seats,
    number: u64,
}

impl Seats {
    /// Takes a place.
    ///
    /// # Errors
    /// There is none; says why.
    pub(super) fn take(&self, payer: u32, stream: &Arc<UnixStream>) -> Result<Taken<'_>, &'static str> {
        let mut book = self.book();
        if book.of(payer) >= OF_ONE_USER {
            return Err("this user has too many connections; try again");
        }
        if book.seats.len() >= MOST && !book.make_room(payer) {
            return Err("too many are connected; try again");
        }
        let number = book.next;
        book.next += 1;
        book.seats.push(Seat { number, payer, is_idle: true, stream: Arc::clone(stream) });
        Ok(Taken { seats: self, number })
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Book {
    fn of(&self, payer: u32) -> usize {
        self.seats.iter().filter(|seat| seat.payer == payer).count()
    }

    /// Ends the oldest idle connection of who has the most, unless that is hardly more than `payer` has.
    fn make_room(&mut self, payer: u32) -> bool {
        let own = self.of(payer);
        let idle = self.seats.iter().filter(|seat| seat.is_idle);
        let Some(most) = idle.map(|seat| (self.of(seat.payer), seat.payer)).max() else { return false };
        let at = self.seats.iter().position(|seat| seat.payer == most.1 && seat.is_idle);
        let Some(at) = at.filter(|_| most.0 > own + 1) else { return false };
        // Its thread reads the end of it.
        let _ = self.seats.remove(at).stream.shutdown(Shutdown::Both);
        true
    }
}

impl Taken<'_> {
    /// Notes whether something is asked.
    pub(super) fn set_idle(&self, is_idle: bool) {
        if let Some(seat) = self.seats.book().seats.iter_mut().find(|seat| seat.number == self.number) {
            seat.is_idle = is_idle;
        }
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.seats.book().seats.retain(|seat| seat.number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    use super::*;

    fn pair() -> (Arc<UnixStream>, Arc<UnixStream>) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (Arc::new(ours), Arc::new(theirs))
    }

    /// Two tests at a time have more open than a program may at first. (The observer's tests raise that too, if they come
    /// before.)
    fn allow_many_descriptors() {
        let limit = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    }

    fn full<'a>(seats: &'a Seats, streams: &mut Vec<Arc<UnixStream>>) -> Vec<Taken<'a>> {
        allow_many_descriptors();
        let user = |at: usize| if at < OF_ONE_USER { 1 } else { 2 };
        let take = |at| {
            let (ours, theirs) = pair();
            let taken = seats.take(user(at), &ours).unwrap();
            streams.extend([ours, theirs]);
            taken
        };
        (0..MOST).map(take).collect()
    }

    #[test]
    fn who_holds_the_most_makes_room_for_others() {
        let (seats, mut streams) = (Seats::default(), Vec::new());
        let taken = full(&seats, &mut streams);
        let (ours, _theirs) = pair();
        assert!(seats.take(1, &ours).is_err() && seats.take(2, &ours).is_err(), "half of all is enough");
        // User 1's first asks something; its second is the oldest that does not.
        taken[0].set_idle(false);
        taken[OF_ONE_USER..].iter().for_each(|taken| taken.set_idle(false));
        let third = seats.take(3, &ours).unwrap();
        assert_eq!((&*streams[3]).read(&mut [0]).unwrap(), 0, "it was told so");
        streams[1].set_nonblocking(true).unwrap();
        assert!((&*streams[1]).read(&mut [0]).is_err(), "this one goes on");
        drop((third, taken));
        assert!(seats.book().seats.is_empty());
    }

    #[test]
    fn who_asks_something_is_not_interrupted() {
        let (seats, mut streams) = (Seats::default(), Vec::new());
        let taken = full(&seats, &mut streams);
        taken.iter().for_each(|taken| taken.set_idle(false));
        let (ours, _theirs) = pair();
        assert_eq!(seats.take(3, &ours).unwrap_err(), "too many are connected; try again");
        taken[7].set_idle(true);
        assert!(seats.take(3, &ours).is_ok());
    }

    #[test]
    fn all_come_to_about_as_many() {
        let (seats, mut streams) = (Seats::default(), Vec::new());
        let _taken = full(&seats, &mut streams);
        let (ours, _theirs) = pair();
        let third: Vec<_> = (0..OF_ONE_USER).map_while(|_| seats.take(3, &ours).ok()).collect();
        let book = seats.book();
        assert!((84..=86).contains(&third.len()) && book.of(1) + book.of(2) + book.of(3) == MOST);
        drop(book);
        drop(third);
    }
}
