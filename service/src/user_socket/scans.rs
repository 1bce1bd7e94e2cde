//! Users' scans, on the daemon's side: requests that come while a scan is under way wait for the next, which is made
//! once for all of them. Ranks of one program ask at the same moment.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crossbeam_channel::Sender;

use super::budget::{BudgetError, UserBudgets};
use super::protocol::RefusalKind;
use crate::control::PeerWatch as Alive;

/// A user's request for a scan.
#[derive(Debug)]
pub struct UserScan {
    /// Clean passes that are wanted.
    pub passes: u64,
    /// The accountable uid.
    pub user: u32,
    /// Channel for one answer.
    pub reply: Sender<Done>,
    /// Handle that shows if its process still waits.
    pub peer: Alive,
}

/// The outcome of a scan: passes made, and ksmd's nanoseconds for all requests that waited together; or the refusal.
pub type Done = Result<(u64, u64), (RefusalKind, String)>;

/// The most waiting requests. Further ones are refused.
const MOST: usize = 256;

/// Requests for scans that the daemon has not received yet. However many they are, the daemon gets one message for all:
/// users do not fill its inbox, in which root's requests wait. Clones share the queue.
#[derive(Debug, Clone, Default)]
pub struct ScanQueue(Arc<Mutex<Vec<UserScan>>>);

impl ScanQueue {
    /// Adds a scan. Returns true if the daemon must be notified: it receives all that wait at once.
    pub fn add(&self, scan: UserScan) -> bool {
        let mut waiting = self.lock();
        let was_empty = waiting.is_empty();
        admit(&mut waiting, scan) && was_empty
    }

    fn drain(&self) -> Vec<UserScan> {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<UserScan>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Adds a scan to those that wait, or refuses it. Processes that have hung up take no place: a user could ask and hang
/// up as long as another's scan lasts.
fn admit(waiting: &mut Vec<UserScan>, scan: UserScan) -> bool {
    if waiting.len() >= MOST {
        waiting.retain(|other| !other.peer.has_gone());
    }
    if waiting.len() >= MOST {
        refuse(&scan, RefusalKind::Busy, "too many requests for a scan are waiting; try again".to_owned());
        return false;
    }
    waiting.push(scan);
    true
}

fn refuse(scan: &UserScan, refusal: RefusalKind, why: String) {
    // A process that has hung up loses its answer.
    let _ = scan.reply.try_send(Err((refusal, why)));
}

/// Requests for scans that wait, and those that are served.
#[derive(Debug)]
pub struct UserScans {
    waiting: Vec<UserScan>,
    served: Vec<UserScan>,
    passes: u64,
    /// Passes that the users have paid for the scan that is made, or that root's has interrupted.
    paid: BTreeMap<u32, u64>,
    /// True if an interrupted scan has begun them.
    is_begun: bool,
    /// CPU time of the scan that is charged already.
    charged: Duration,
    budget: UserBudgets,
}

impl UserScans {
    /// Creates an empty queue of scans.
    pub fn new(budget: UserBudgets) -> Self {
        Self {
            waiting: Vec::new(),
            served: Vec::new(),
            passes: 0,
            paid: BTreeMap::new(),
            is_begun: false,
            charged: Duration::ZERO,
            budget,
        }
    }

    /// Moves the requests of the queue to those that wait.
    pub fn add_all(&mut self, queue: &ScanQueue) {
        for scan in queue.drain() {
            admit(&mut self.waiting, scan);
        }
    }

    /// Begins to serve all that wait. Returns the number of passes; `None` if no request waits that its user can pay.
    pub fn begin(&mut self) -> Option<u64> {
        self.waiting.retain(|scan| !scan.peer.has_gone());
        if !self.served.is_empty() {
            return None;
        }
        self.served = std::mem::take(&mut self.waiting);
        let users = self.users();
        self.paid.retain(|user, _| users.contains(user));
        self.is_begun &= !self.paid.is_empty();
        self.take_passes();
        self.charged = Duration::ZERO;
        self.passes = self.served.iter().map(|scan| scan.passes).max()?;
        Some(self.passes)
    }

    /// Charges passes to each user: once, for all its requests. Those that ask for more than it has left are refused.
    fn take_passes(&mut self) {
        let mut paid = std::mem::take(&mut self.paid);
        for user in self.users() {
            let before = paid.get(&user).copied().unwrap_or(0);
            let own = || self.served.iter().filter(|scan| scan.user == user).map(|scan| scan.passes);
            let wishes: BTreeSet<u64> = own().collect();
            let mut why = None;
            let granted = wishes.into_iter().rev().find(|wish| {
                let more = wish.saturating_sub(before);
                let taken = if more == 0 { Ok(()) } else { self.budget.take_passes(user, more) };
                taken.map_err(|refusal| why = Some(refusal)).is_ok()
            });
            let is_granted = |scan: &UserScan| scan.user != user || Some(scan.passes) <= granted;
            for scan in self.served.extract_if(.., |scan| !is_granted(scan)) {
                refuse(&scan, RefusalKind::Budget, why.as_ref().map(BudgetError::to_string).unwrap_or_default());
            }
            if let Some(granted) = granted {
                paid.insert(user, granted.max(before));
            }
        }
        self.paid = paid;
    }

    /// Ends the scan for another that goes first. Its requests wait on, and have paid for their passes.
    pub fn interrupt(&mut self, spent: Duration) {
        self.charge(spent);
        self.is_begun = true;
        let later = std::mem::take(&mut self.waiting);
        self.waiting = std::mem::take(&mut self.served);
        self.waiting.extend(later);
    }

    /// Removes requests of processes that have left, and of users without budget for the CPU spent so far. Returns true
    /// if any request is left that has budget. If none is, they are answered by [`finish`](Self::finish), when all is
    /// restored.
    pub fn go_on(&mut self, spent: Duration) -> bool {
        // Before any request is removed: a process that hangs up in time would scan for nothing.
        self.charge(spent);
        self.served.retain(|scan| !scan.peer.has_gone());
        let budget = self.budget.clone();
        let can_pay = |scan: &UserScan| budget.left(scan.user) >= 0.0;
        if !self.served.iter().any(can_pay) {
            return false;
        }
        let (stay, leave): (Vec<UserScan>, Vec<UserScan>) = self.served.drain(..).partition(can_pay);
        self.served = stay;
        for scan in leave {
            let (refusal, why) = self.why_half_way(scan.user, String::new());
            refuse(&scan, refusal, why);
        }
        true
    }

    /// Returns the reason that a scan ended early: its user's budget is used up, or else `other`.
    fn why_half_way(&self, user: u32, other: String) -> (RefusalKind, String) {
        match self.budget.check(user) {
            Err(why) => (RefusalKind::Budget, format!("the scan ended halfway: {why}")),
            Ok(()) => (RefusalKind::Refused, other),
        }
    }

    /// Ends the scan: requests are answered, and each is charged its part.
    pub fn finish(&mut self, spent: Duration, outcome: &Result<(), String>) {
        self.charge(spent);
        let is_begun = std::mem::take(&mut self.is_begun);
        let paid = std::mem::take(&mut self.paid);
        // Where nothing was scanned, nothing was learned. A user that has hung up has chosen the moment, and gets
        // nothing back: ksmd's time is not known everywhere.
        if outcome.is_err() && spent.is_zero() && !is_begun {
            let users = self.users();
            for (user, passes) in paid.into_iter().filter(|(user, _)| users.contains(user)) {
                self.budget.give_back_passes(user, passes);
            }
        }
        let spent_ns = u64::try_from(spent.as_nanos()).unwrap_or(u64::MAX);
        for scan in std::mem::take(&mut self.served) {
            let done = outcome.clone().map(|()| (self.passes, spent_ns));
            let done = done.map_err(|why| self.why_half_way(scan.user, why));
            let _ = scan.reply.try_send(done);
        }
    }

    /// Returns the users that are served.
    fn users(&self) -> BTreeSet<u32> {
        self.served.iter().map(|scan| scan.user).collect()
    }

    /// Charges the requests that are served for the CPU spent since the last time, by equal parts.
    fn charge(&mut self, spent: Duration) {
        let users = self.users();
        let part = spent.saturating_sub(self.charged) / u32::try_from(users.len().max(1)).unwrap_or(u32::MAX);
        self.charged = self.charged.max(spent);
        for user in users {
            self.budget.charge(user, part);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use crossbeam_channel::{Receiver, bounded};

    use super::super::config::PassLimit;
    use super::*;

    fn scan(user: u32, passes: u64) -> (UserScan, Receiver<Done>, crate::control::PeerGuard) {
        let (reply, done) = bounded(1);
        let (waiting, peer) = crate::control::watch_peer();
        (UserScan { passes, user, reply, peer }, done, waiting)
    }

    fn add(scans: &mut UserScans, scan: UserScan) {
        let queue = ScanQueue::default();
        assert!(queue.add(scan));
        scans.add_all(&queue);
    }

    #[test]
    fn however_many_users_wait_the_daemon_gets_one_message() {
        let (queue, mut scans) =
            (ScanQueue::default(), UserScans::new(UserBudgets::new(60.0, PassLimit::Unlimited)));
        let all: Vec<_> = (0..300).map(|user| scan(user, 1)).collect();
        let (mut told, mut held) = (0, Vec::new());
        for (scan, done, waits) in all {
            told += u32::from(queue.add(scan));
            held.push((done, waits));
        }
        assert_eq!((told, queue.lock().len()), (1, MOST));
        assert!(matches!(held[299].0.try_recv(), Ok(Err((RefusalKind::Busy, _)))));
        scans.add_all(&queue);
        assert_eq!(scans.begin(), Some(1));
        assert!(queue.add(scan(7, 1).0), "the next must be told again");
    }

    #[test]
    fn a_user_that_asks_and_hangs_up_takes_no_place_from_another() {
        let (queue, mut scans) =
            (ScanQueue::default(), UserScans::new(UserBudgets::new(60.0, PassLimit::Unlimited)));
        let (first, _first_done, _first_waits) = scan(9, 1);
        add(&mut scans, first);
        assert_eq!(scans.begin(), Some(1), "this one lasts");
        for _ in 0..3 {
            for _ in 0..MOST {
                queue.add(scan(7, 1).0);
            }
            let (other, done, _waits) = scan(8, 1);
            queue.add(other);
            assert!(done.is_empty(), "not refused by the queue");
            scans.add_all(&queue);
            assert!(done.is_empty(), "not refused by the daemon");
        }
    }

    #[test]
    fn ranks_that_ask_together_pay_their_passes_once_and_no_user_has_more_than_the_limit() {
        let budget = UserBudgets::new(60.0, PassLimit::Most(NonZeroU32::new(5).unwrap()));
        let mut scans = UserScans::new(budget.clone());
        let ranks: Vec<_> = (0..100).map(|_| scan(7, 2)).collect();
        let mut held = Vec::new();
        for (scan, done, waits) in ranks {
            add(&mut scans, scan);
            held.push((done, waits));
        }
        assert_eq!(scans.begin(), Some(2));
        scans.finish(Duration::from_secs(1), &Ok(()));
        assert!(held.iter().all(|(done, _)| matches!(done.try_recv(), Ok(Ok((2, _))))));
        let ((much, much_done, _m), (little, little_done, _l)) = (scan(7, 4), scan(7, 3));
        add(&mut scans, much);
        add(&mut scans, little);
        assert_eq!(scans.begin(), Some(3), "3 are left");
        let (refusal, why) = much_done.try_recv().unwrap().unwrap_err();
        assert!(refusal == RefusalKind::Budget && why.contains("passes_per_hour"), "{why}");
        scans.finish(Duration::ZERO, &Err("nothing to scan".to_owned()));
        assert!(little_done.try_recv().unwrap().is_err());
        assert_eq!(budget.check_passes(7, 3), Ok(()), "nothing was scanned");
        assert!(budget.check_passes(7, 4).is_err());
    }

    #[test]
    fn a_user_that_is_interrupted_pays_once_and_one_that_hangs_up_gets_nothing_back() {
        let budget = UserBudgets::new(60.0, PassLimit::Most(NonZeroU32::new(6).unwrap()));
        let mut scans = UserScans::new(budget.clone());
        let (first, first_done, first_waits) = scan(7, 3);
        add(&mut scans, first);
        assert_eq!(scans.begin(), Some(3));
        // Root's scan goes first.
        scans.interrupt(Duration::from_secs(1));
        assert!(first_done.is_empty());
        assert_eq!((scans.begin(), budget.check_passes(7, 3)), (Some(3), Ok(())));
        scans.interrupt(Duration::ZERO);
        drop(first_waits);
        assert_eq!(scans.begin(), None);
        let (second, _second_done, second_waits) = scan(7, 2);
        add(&mut scans, second);
        assert_eq!(scans.begin(), Some(2));
        assert!(budget.check_passes(7, 2).is_err(), "what was paid for a scan that was given up pays for no other");
        // The kernel does not say what ksmd has used.
        drop(second_waits);
        assert!(!scans.go_on(Duration::ZERO));
        scans.finish(Duration::ZERO, &Err("no peer waits".to_owned()));
        assert!(budget.check_passes(7, 2).is_err());
        let (third, third_done, _third_waits) = scan(7, 1);
        add(&mut scans, third);
        assert_eq!(scans.begin(), Some(1));
        scans.interrupt(Duration::ZERO);
        assert_eq!(scans.begin(), Some(1));
        scans.finish(Duration::ZERO, &Err("nothing to scan".to_owned()));
        assert!(third_done.try_recv().unwrap().is_err());
        assert!(budget.check_passes(7, 1).is_err(), "the first part may have scanned");
    }

    #[test]
    fn requests_that_wait_together_are_served_by_one_scan_and_share_its_cost() {
        let budget = UserBudgets::new(60.0, PassLimit::Unlimited);
        let mut scans = UserScans::new(budget.clone());
        let (first, first_done, _first_waits) = scan(7, 1);
        let (second, second_done, _second_waits) = scan(8, 3);
        add(&mut scans, first);
        add(&mut scans, second);
        assert_eq!(scans.begin(), Some(3));
        let (third, third_done, _third_waits) = scan(9, 2);
        add(&mut scans, third);
        assert_eq!(scans.begin(), None, "one at a time");
        assert!(scans.go_on(Duration::from_secs(1)));
        scans.finish(Duration::from_secs(10), &Ok(()));
        assert_eq!(first_done.try_recv(), Ok(Ok((3, 10_000_000_000))));
        assert!(second_done.try_recv().is_ok() && third_done.is_empty());
        assert!((54.9..55.1).contains(&budget.left(7)) && budget.left(9) > 59.9);
        assert_eq!(scans.begin(), Some(2));
    }

    #[test]
    fn a_request_that_leaves_is_charged_until_then_and_one_without_budget_is_told() {
        let budget = UserBudgets::new(10.0, PassLimit::Unlimited);
        let mut scans = UserScans::new(budget.clone());
        let (gone, _gone_done, gone_waits) = scan(7, 2);
        let (poor, poor_done, _poor_waits) = scan(8, 2);
        add(&mut scans, gone);
        add(&mut scans, poor);
        assert_eq!(scans.begin(), Some(2));
        drop(gone_waits);
        assert!(scans.go_on(Duration::from_secs(1)));
        assert!(!scans.go_on(Duration::from_secs(11)));
        assert!(poor_done.is_empty(), "not before everything is put back");
        scans.finish(Duration::from_secs(11), &Err("no process waits".to_owned()));
        let (refusal, text) = poor_done.try_recv().unwrap().unwrap_err();
        assert_eq!(refusal, RefusalKind::Budget);
        assert!(text.contains("used up"), "{text}");
        assert!(budget.left(8) < 0.0);
        assert!((9.4..9.6).contains(&budget.left(7)), "half of the second that it waited: {}", budget.left(7));
    }
}
