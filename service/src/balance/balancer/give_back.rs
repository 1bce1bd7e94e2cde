//! The end: guests get back what was taken.

use std::cmp::Reverse;
use std::time::{Duration, Instant};

use ksmith_core::balance::PoolScope;

use super::super::pool::PoolReader;
use super::Balancer;

/// The longest look at the guests before they get memory back.
const LOOK: Duration = Duration::from_secs(2);

impl Balancer {
    /// Gives all guests back what was taken, as far as the pool has it above half its low mark, the highest class
    /// first.
    ///
    /// Waits for that for at most `patience`. Returns a sentence for each guest that did not get all.
    pub fn give_back(&mut self, patience: Duration) -> Vec<String> {
        let deadline = Instant::now() + patience;
        self.poll_guests(LOOK.min(patience));
        self.wait_for_resizes(deadline);
        let view = self.view().or_else(|_| {
            // A pool that has lost its limit, or is gone: its memory is the host's then.
            self.pool = PoolReader::new(self.root.clone(), PoolScope::Host, self.folded.clone());
            self.view()
        });
        let Ok(view) = view else {
            return vec!["the pool can't be read: nothing is given back".to_owned()];
        };
        let mut spare = view.pool.available_bytes.saturating_sub(self.config.marks(&view.pool).min);
        let mut guests: Vec<_> = view.guests.iter().filter(|guest| guest.taken_bytes() > 0).collect();
        guests.sort_by_key(|guest| Reverse(guest.class.weight));
        let (mut notes, mut named) = (Vec::new(), Vec::new());
        for guest in guests {
            let part = guest.taken_bytes().min(spare);
            spare -= part;
            if part < guest.taken_bytes() {
                named.push(guest.key.clone());
                notes.push(format!(
                    "{} gets back {} of {} MiB: the pool has no more; later: ksmith restore",
                    guest.name,
                    part >> 20,
                    guest.taken_bytes() >> 20,
                ));
            }
            if part > 0 {
                let to = guest.given_bytes + part;
                self.resize(&guest.key, guest.given_bytes, to, "the daemon ends".to_owned());
            }
        }
        self.wait_for_resizes(deadline);
        if self.is_acting() {
            notes.push("some guests do not follow in time; later: ksmith restore".to_owned());
        }
        // The ledger also has guests that could not be asked, or are in another pool by now.
        self.remove_ended();
        notes.extend(self.ledger.entries().iter().filter(|it| !named.contains(&it.key)).map(|it| it.left()));
        notes
    }

    fn wait_for_resizes(&mut self, deadline: Instant) {
        while self.is_acting()
            && let Ok(answer) = self.answers.recv_deadline(deadline)
        {
            self.accept(answer);
        }
    }
}
