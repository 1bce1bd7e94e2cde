//! Scans that users want, on the daemon's side: those that come while one is under way wait for the next, which is
//! made once for all of them. Ranks of one program ask at the same moment.

use std::collections::BTreeSet;
use std::time::Duration;

use crossbeam_channel::Sender;

use super::budget::Budget;
use super::protocol::Refusal;
use crate::control::Peer as Alive;

/// A scan that a user wants.
#[derive(Debug)]
pub struct UserScan {
    /// Clean passes that are wanted.
    pub passes: u64,
    /// The accountable uid.
    pub user: u32,
    /// Takes one answer.
    pub reply: Sender<Done>,
    /// Whether its process still waits.
    pub peer: Alive,
}

/// What came of it: passes made and ksmd's nanoseconds for all requests that waited together, or why nothing.
pub type Done = Result<(u64, u64), (Refusal, String)>;

/// Waiting at most: others are told to come back.
const MOST: usize = 256;

/// Scans that are wanted and the one that is made.
#[derive(Debug)]
pub struct UserScans {
    waiting: Vec<UserScan>,
    served: Vec<UserScan>,
    passes: u64,
    /// How much of the scan's time is charged already.
    charged: Duration,
    budget: Budget,
}

impl UserScans {
    /// An empty queue of scans.
    pub fn new(budget: Budget) -> Self {
        Self { waiting: Vec::new(), served: Vec::new(), passes: 0, charged: Duration::ZERO, budget }
    }

    /// Takes one in.
    pub fn add(&mut self, scan: UserScan) {
        if self.waiting.len() >= MOST {
            let _ =
                scan.reply.try_send(Err((Refusal::Busy, "too many wait for a scan already; try again".to_owned())));
        } else {
            self.waiting.push(scan);
        }
    }

    /// Begins to serve all that wait. Returns how many passes that takes; `None` if no request waits.
    pub fn begin(&mut self) -> Option<u64> {
        self.waiting.retain(|scan| !scan.peer.has_gone());
        if !self.served.is_empty() || self.waiting.is_empty() {
            return None;
        }
        self.served = std::mem::take(&mut self.waiting);
        self.charged = Duration::ZERO;
        self.passes = self.served.iter().map(|scan| scan.passes).max().unwrap_or(1);
        Some(self.passes)
    }

    /// Removes requests of processes that have left, and of users without budget for the CPU spent so far. Returns whether
    /// any request is left that has budget. If none is, they are told by [`finish`](Self::finish), when all is put back.
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
            let _ = scan.reply.try_send(Err(self.why_half_way(scan.user, String::new())));
        }
        true
    }

    /// Why a scan was not made to its end: its user can't pay, or else `other`.
    fn why_half_way(&self, user: u32, other: String) -> (Refusal, String) {
        match self.budget.check(user) {
            Err(text) => (Refusal::Budget, format!("the scan ended half way: {text}")),
            Ok(()) => (Refusal::Refused, other),
        }
    }

    /// Ends the scan: requests are answered, and each is charged its part.
    pub fn finish(&mut self, spent: Duration, outcome: &Result<(), String>) {
        self.charge(spent);
        let spent_ns = u64::try_from(spent.as_nanos()).unwrap_or(u64::MAX);
        for scan in std::mem::take(&mut self.served) {
            let done = outcome.clone().map(|()| (self.passes, spent_ns));
            let done = done.map_err(|why| self.why_half_way(scan.user, why));
            let _ = scan.reply.try_send(done);
        }
    }

    /// The users that are served.
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
    use crossbeam_channel::{Receiver, bounded};

    use super::*;

    fn scan(user: u32, passes: u64) -> (UserScan, Receiver<Done>, crate::control::Waiting) {
        let (reply, done) = bounded(1);
        let (waiting, peer) = crate::control::waiting();
        (UserScan { passes, user, reply, peer }, done, waiting)
    }

    #[test]
    fn requests_that_wait_together_are_served_by_one_scan_and_share_its_cost() {
        let budget = Budget::new(60.0);
        let mut scans = UserScans::new(budget.clone());
        let (first, first_done, _first_waits) = scan(7, 1);
        let (second, second_done, _second_waits) = scan(8, 3);
        scans.add(first);
        scans.add(second);
        assert_eq!(scans.begin(), Some(3));
        let (third, third_done, _third_waits) = scan(9, 2);
        scans.add(third);
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
        let budget = Budget::new(10.0);
        let mut scans = UserScans::new(budget.clone());
        let (gone, _gone_done, gone_waits) = scan(7, 2);
        let (poor, poor_done, _poor_waits) = scan(8, 2);
        scans.add(gone);
        scans.add(poor);
        assert_eq!(scans.begin(), Some(2));
        drop(gone_waits);
        assert!(scans.go_on(Duration::from_secs(1)));
        assert!(!scans.go_on(Duration::from_secs(11)));
        assert!(poor_done.is_empty(), "not before everything is put back");
        scans.finish(Duration::from_secs(11), &Err("no process waits".to_owned()));
        let (refusal, text) = poor_done.try_recv().unwrap().unwrap_err();
        assert_eq!(refusal, Refusal::Budget);
        assert!(text.contains("used up"), "{text}");
        assert!(budget.left(8) < 0.0);
        assert!((9.4..9.6).contains(&budget.left(7)), "half of the second that it waited: {}", budget.left(7));
    }
}
