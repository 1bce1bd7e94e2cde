//! Connection slots with their users, and the choice of the connection to close when all are taken.

use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The slots. When all are taken, a connection of the user with the most is closed for a user with fewer: the oldest
/// idle one, and the newest where each awaits its answer. Root has no limit, and counts as the user with the fewest.
#[derive(Debug)]
pub(super) struct ConnectionSlots {
    most: usize,
    most_of_one_user: usize,
    taken: Mutex<SlotTable>,
}

#[derive(Debug, Default)]
struct SlotTable {
    /// In the order in which they were taken.
    slots: Vec<SlotEntry>,
    next: u64,
}

#[derive(Debug)]
struct SlotEntry {
    number: u64,
    /// The accountable uid.
    uid: u32,
    /// True if no request is being answered.
    is_idle: bool,
    /// The connection, to close it; `None` once its thread closes it.
    stream: Option<Arc<UnixStream>>,
}

const ROOT: u32 = 0;

/// A slot, which is released on drop.
#[derive(Debug)]
pub(super) struct TakenSlot {
    slots: Arc<ConnectionSlots>,
    number: u64,
}

impl ConnectionSlots {
    /// Creates `most` slots, of which one user may hold `most_of_one_user`.
    pub(super) fn new(most: usize, most_of_one_user: usize) -> Arc<Self> {
        Arc::new(Self { most, most_of_one_user, taken: Mutex::default() })
    }

    /// Assigns a slot to a connection of a user.
    ///
    /// # Errors
    /// There is none; says why.
    pub(super) fn take_slot(
        self: &Arc<Self>,
        uid: u32,
        stream: &Arc<UnixStream>,
    ) -> Result<TakenSlot, &'static str> {
        let mut table = self.table();
        if uid != ROOT && table.count_slots(uid) >= self.most_of_one_user {
            return Err("this user has too many connections; try again");
        }
        if table.slots.len() >= self.most && !table.close_one_for(uid) {
            return Err("there are too many connections; try again");
        }
        let number = table.next;
        table.next += 1;
        table.slots.push(SlotEntry { number, uid, is_idle: true, stream: Some(Arc::clone(stream)) });
        Ok(TakenSlot { slots: Arc::clone(self), number })
    }

    fn table(&self) -> MutexGuard<'_, SlotTable> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SlotTable {
    fn count_slots(&self, uid: u32) -> usize {
        self.slots.iter().filter(|slot| slot.uid == uid).count()
    }

    /// Closes a connection of the user with the most, unless that is hardly more than `uid` has. Returns true if one
    /// was closed.
    fn close_one_for(&mut self, uid: u32) -> bool {
        let least = if uid == ROOT { 0 } else { self.count_slots(uid) + 1 };
        let others =
            self.slots.iter().map(|slot| slot.uid).filter(|uid| *uid != ROOT && self.count_slots(*uid) > least);
        let has_idle = |uid: u32| self.slots.iter().any(|slot| slot.uid == uid && slot.is_idle);
        let Some(heaviest) = others.max_by_key(|uid| (self.count_slots(*uid), has_idle(*uid), *uid)) else {
            return false;
        };
        let idle = self.slots.iter().position(|slot| slot.uid == heaviest && slot.is_idle);
        let at = idle.or_else(|| self.slots.iter().rposition(|slot| slot.uid == heaviest));
        let Some(at) = at else { return false };
        // Its thread then reads the end of the connection.
        if let Some(stream) = self.slots.remove(at).stream {
            let _ = stream.shutdown(Shutdown::Both);
        }
        true
    }
}

impl TakenSlot {
    /// Records if a request is being answered.
    pub(super) fn set_idle(&self, is_idle: bool) {
        if let Some(slot) = self.slots.table().slots.iter_mut().find(|slot| slot.number == self.number) {
            slot.is_idle = is_idle;
        }
    }

    /// Closes the connection, of which this is the last holder but for the slot, and then releases the slot. A close
    /// may block: meanwhile the slot counts to its user, and no lock is held.
    pub(super) fn close(self, stream: Arc<UnixStream>) {
        if let Some(slot) = self.slots.table().slots.iter_mut().find(|slot| slot.number == self.number) {
            slot.stream = None;
        }
        drop(stream);
    }
}

impl Drop for TakenSlot {
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
    fn full(slots: &Arc<ConnectionSlots>, streams: &mut Vec<Arc<UnixStream>>) -> Vec<TakenSlot> {
        let user = |at: usize| if at < OF_ONE_USER { 1 } else { 2 };
        let take = |at| {
            let (ours, theirs) = pair();
            let taken = slots.take_slot(user(at), &ours).unwrap();
            streams.extend([ours, theirs]);
            taken
        };
        (0..MOST).map(take).collect()
    }

    #[test]
    fn the_heaviest_user_loses_its_oldest_idle_connection_to_another() {
        let (slots, mut streams) = (ConnectionSlots::new(MOST, OF_ONE_USER), Vec::new());
        let taken = full(&slots, &mut streams);
        let (ours, _theirs) = pair();
        assert!(slots.take_slot(1, &ours).is_err() && slots.take_slot(2, &ours).is_err(), "half of all is enough");
        // User 1's first is answered; its second is the oldest that is idle.
        taken[0].set_idle(false);
        taken[OF_ONE_USER..].iter().for_each(|taken| taken.set_idle(false));
        let third = slots.take_slot(3, &ours).unwrap();
        assert_eq!((&*streams[3]).read(&mut [0]).unwrap(), 0, "it was closed");
        streams[1].set_nonblocking(true).unwrap();
        assert!((&*streams[1]).read(&mut [0]).is_err(), "this one goes on");
        drop((third, taken));
        assert!(slots.table().slots.is_empty());
    }

    #[test]
    fn requests_that_last_do_not_shut_others_out() {
        let (slots, mut streams) = (ConnectionSlots::new(MOST, OF_ONE_USER), Vec::new());
        let taken = full(&slots, &mut streams);
        taken.iter().for_each(|taken| taken.set_idle(false));
        let (ours, _theirs) = pair();
        let third = slots.take_slot(3, &ours).unwrap();
        let newest = streams.last().unwrap();
        assert_eq!((&**newest).read(&mut [0]).unwrap(), 0, "the newest request of a user with the most");
        taken[7].set_idle(true);
        let fourth = slots.take_slot(4, &ours).unwrap();
        assert_eq!((&*streams[15]).read(&mut [0]).unwrap(), 0, "an idle one, as soon as there is one");
        drop((third, fourth));
    }

    #[test]
    fn root_has_a_slot_whatever_users_hold() {
        let (slots, mut streams) = (ConnectionSlots::new(4, 4), Vec::new());
        let taken: Vec<_> = (1..=4)
            .map(|user| {
                let (ours, theirs) = pair();
                let taken = slots.take_slot(user, &ours).unwrap();
                taken.set_idle(false);
                streams.extend([ours, theirs]);
                taken
            })
            .collect();
        let (ours, _theirs) = pair();
        assert!(slots.take_slot(9, &ours).is_err(), "each user has one");
        let roots: Vec<_> = (0..4).map(|_| slots.take_slot(ROOT, &ours).unwrap()).collect();
        assert!(slots.take_slot(9, &ours).is_err(), "root loses none");
        drop((roots, taken));
    }

    #[test]
    fn users_end_with_about_as_many_each() {
        let (slots, mut streams) = (ConnectionSlots::new(MOST, OF_ONE_USER), Vec::new());
        let _taken = full(&slots, &mut streams);
        let (ours, _theirs) = pair();
        let third: Vec<_> = (0..OF_ONE_USER).map_while(|_| slots.take_slot(3, &ours).ok()).collect();
        let table = slots.table();
        assert!((MOST / 3 - 1..=MOST / 3 + 1).contains(&third.len()), "{}", third.len());
        assert_eq!(table.count_slots(1) + table.count_slots(2) + table.count_slots(3), MOST);
        drop(table);
        drop(third);
    }
}
