//! Connection slots: the users that hold them, and the one that loses a slot when all are taken.

use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The slots. When all are taken, the oldest idle connection of the user with the most connections is closed for a user
/// with fewer.
#[derive(Debug)]
pub(super) struct Slots {
    most: usize,
    most_of_one_user: usize,
    taken: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    /// In the order in which they were taken.
    slots: Vec<Slot>,
    next: u64,
}

#[derive(Debug)]
struct Slot {
    number: u64,
    /// The accountable uid.
    uid: u32,
    /// Whether no request is being answered.
    is_idle: bool,
    /// The connection, to close it.
    stream: Arc<UnixStream>,
}

/// A slot, given back on drop.
#[derive(Debug)]
pub(super) struct Taken<'a> {
    slots: &'a Slots,
    number: u64,
}

impl Slots {
    /// So many slots, and so many of them for one user.
    pub(super) fn new(most: usize, most_of_one_user: usize) -> Self {
        Self { most, most_of_one_user, taken: Mutex::default() }
    }

    /// Takes a slot for a connection of a user.
    ///
    /// # Errors
    /// There is none. Says why.
    pub(super) fn take(&self, uid: u32, stream: &Arc<UnixStream>) -> Result<Taken<'_>, &'static str> {
        let mut table = self.table();
        if table.of(uid) >= self.most_of_one_user {
            return Err("this user has too many connections; try again");
        }
        if table.slots.len() >= self.most && !table.close_one_for(uid) {
            return Err("too many are connected; try again");
        }
        let number = table.next;
        table.next += 1;
        table.slots.push(Slot { number, uid, is_idle: true, stream: Arc::clone(stream) });
        Ok(Taken { slots: self, number })
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn of(&self, uid: u32) -> usize {
        self.slots.iter().filter(|slot| slot.uid == uid).count()
    }

    /// Closes the oldest idle connection of the user with the most, unless that is hardly more than `uid` has.
    fn close_one_for(&mut self, uid: u32) -> bool {
        let own = self.of(uid);
        let idle = self.slots.iter().filter(|slot| slot.is_idle);
        let Some(heaviest) = idle.map(|slot| (self.of(slot.uid), slot.uid)).max() else { return false };
        let at = self.slots.iter().position(|slot| slot.uid == heaviest.1 && slot.is_idle);
        let Some(at) = at.filter(|_| heaviest.0 > own + 1) else { return false };
        // Its thread then reads the end of the connection.
        let _ = self.slots.remove(at).stream.shutdown(Shutdown::Both);
        true
    }
}

impl Taken<'_> {
    /// Notes whether a request is being answered.
    pub(super) fn set_idle(&self, is_idle: bool) {
        if let Some(slot) = self.slots.table().slots.iter_mut().find(|slot| slot.number == self.number) {
            slot.is_idle = is_idle;
        }
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.slots.table().slots.retain(|slot| slot.number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    const MOST: usize = 32;
    const OF_ONE_USER: usize = MOST / 2;

    fn pair() -> (Arc<UnixStream>, Arc<UnixStream>) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (Arc::new(ours), Arc::new(theirs))
    }

    /// Slots of which user 1 and user 2 have half each.
    fn full<'a>(slots: &'a Slots, streams: &mut Vec<Arc<UnixStream>>) -> Vec<Taken<'a>> {
        let user = |at: usize| if at < OF_ONE_USER { 1 } else { 2 };
        let take = |at| {
            let (ours, theirs) = pair();
            let taken = slots.take(user(at), &ours).unwrap();
            streams.extend([ours, theirs]);
            taken
        };
        (0..MOST).map(take).collect()
    }

    #[test]
    fn the_heaviest_user_loses_its_oldest_idle_connection_to_another() {
        let (slots, mut streams) = (Slots::new(MOST, OF_ONE_USER), Vec::new());
        let taken = full(&slots, &mut streams);
        let (ours, _theirs) = pair();
        assert!(slots.take(1, &ours).is_err() && slots.take(2, &ours).is_err(), "half of all is enough");
        // User 1's first is answered; its second is the oldest that is idle.
        taken[0].set_idle(false);
        taken[OF_ONE_USER..].iter().for_each(|taken| taken.set_idle(false));
        let third = slots.take(3, &ours).unwrap();
        assert_eq!((&*streams[3]).read(&mut [0]).unwrap(), 0, "it was closed");
        streams[1].set_nonblocking(true).unwrap();
        assert!((&*streams[1]).read(&mut [0]).is_err(), "this one goes on");
        drop((third, taken));
        assert!(slots.table().slots.is_empty());
    }

    #[test]
    fn a_request_is_never_interrupted() {
        let (slots, mut streams) = (Slots::new(MOST, OF_ONE_USER), Vec::new());
        let taken = full(&slots, &mut streams);
        taken.iter().for_each(|taken| taken.set_idle(false));
        let (ours, _theirs) = pair();
        assert_eq!(slots.take(3, &ours).unwrap_err(), "too many are connected; try again");
        taken[7].set_idle(true);
        assert!(slots.take(3, &ours).is_ok());
    }

    #[test]
    fn users_end_with_about_as_many_each() {
        let (slots, mut streams) = (Slots::new(MOST, OF_ONE_USER), Vec::new());
        let _taken = full(&slots, &mut streams);
        let (ours, _theirs) = pair();
        let third: Vec<_> = (0..OF_ONE_USER).map_while(|_| slots.take(3, &ours).ok()).collect();
        let table = slots.table();
        assert!((MOST / 3 - 1..=MOST / 3 + 1).contains(&third.len()), "{}", third.len());
        assert_eq!(table.of(1) + table.of(2) + table.of(3), MOST);
        drop(table);
        drop(third);
    }
}
