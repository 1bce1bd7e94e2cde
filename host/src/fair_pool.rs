//! A bounded thread pool with fair queueing, which no single user can exhaust.
//!
//! A query to a guest may take seconds, and any user can start processes that look like guests and hang. So each
//! request belongs to the account of a user. One user has few threads at a time, all users together leave some to the
//! host, and the accounts are served round-robin. Threads are started on demand, and stay.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::accountable;
use crate::root::Root;

/// The account of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RequestAccount {
    /// The host itself, and verified guests.
    Host,
    /// The accountable uid of an unverified guest; `None` for one with a set-user-ID program, or that can't be examined.
    User(Option<u32>),
}

impl RequestAccount {
    /// Returns the account of a guest of this user, by its first process. A user may have many more by a user namespace.
    pub fn of_guest(root: &Root, pid: u32, user: Option<u32>, is_verified: bool) -> Self {
        match is_verified {
            true => Self::Host,
            // The processes of a captured tree are not here.
            false if !root.is_host() => Self::User(user),
            false => Self::User(user.and_then(|_| accountable::uid_of_pid(pid))),
        }
    }
}

/// The limits of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolLimits {
    /// The most threads.
    pub threads: usize,
    /// The most threads for all users.
    pub of_users: usize,
    /// The most threads for one user.
    pub of_one_user: usize,
    /// The longest queue of one user.
    pub waiting_of_one_user: usize,
    /// The longest queue of the host.
    pub waiting_of_host: usize,
}

/// A queued request.
type Job = Box<dyn FnOnce() + Send>;

/// A fair thread pool. Dropping it discards queued requests; running ones are left to finish.
pub struct FairPool(Arc<PoolShared>);

struct PoolShared {
    name: &'static str,
    limits: PoolLimits,
    state: Mutex<PoolState>,
    changed: Condvar,
}

#[derive(Default)]
struct PoolState {
    waiting: BTreeMap<RequestAccount, VecDeque<Job>>,
    running: BTreeMap<RequestAccount, usize>,
    /// Accounts with queued requests, in round-robin order.
    turns: VecDeque<RequestAccount>,
    threads: usize,
    idle: usize,
    has_ended: bool,
}

impl std::fmt::Debug for FairPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FairPool")
            .field("name", &self.0.name)
            .field("limits", &self.0.limits)
            .finish_non_exhaustive()
    }
}

impl FairPool {
    /// Creates a pool without threads. `name` is the name of its threads.
    pub fn new(name: &'static str, limits: PoolLimits) -> Self {
        Self(Arc::new(PoolShared { name, limits, state: Mutex::default(), changed: Condvar::new() }))
    }

    /// Queues a request. Returns `false` if the account's queue is full, or the host has no thread for it.
    pub fn push(&self, account: RequestAccount, job: impl FnOnce() + Send + 'static) -> bool {
        let shared = &self.0;
        let mut state = shared.lock();
        let queue = state.waiting.entry(account).or_default();
        let most = match account {
            RequestAccount::Host => shared.limits.waiting_of_host,
            RequestAccount::User(_) => shared.limits.waiting_of_one_user,
        };
        if queue.len() >= most {
            return false;
        }
        queue.push_back(Box::new(job));
        if queue.len() == 1 {
            state.turns.push_back(account);
        }
        let waiting: usize = state.waiting.values().map(VecDeque::len).sum();
        if waiting > state.idle && state.threads < shared.limits.threads {
            self.start(&mut state);
        }
        if state.threads == 0 {
            state.waiting.clear();
            state.turns.clear();
            return false;
        }
        drop(state);
        shared.changed.notify_one();
        true
    }

    /// Returns the number of threads started so far.
    pub fn threads(&self) -> usize {
        self.0.lock().threads
    }

    fn start(&self, state: &mut PoolState) {
        let shared = Arc::clone(&self.0);
        let thread = std::thread::Builder::new().name(shared.name.to_owned()).stack_size(512 << 10);
        state.threads += usize::from(thread.spawn(move || shared.work()).is_ok());
    }
}

impl Drop for FairPool {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.has_ended = true;
        state.turns.clear();
        state.waiting.clear();
        drop(state);
        self.0.changed.notify_all();
    }
}

impl PoolShared {
    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        let mut state = self.lock();
        while !state.has_ended {
            let Some((account, job)) = state.next(&self.limits) else {
                state.idle += 1;
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
                continue;
            };
            drop(state);
            // A request that breaks off must not take a thread with it, which no other would replace.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
            state = self.lock();
            state.finish_request(account);
            // One that could not run beside this one may run now.
            self.changed.notify_one();
        }
    }
}

impl PoolState {
    /// Takes the next request that may run, and moves its account to the end of the round.
    fn next(&mut self, limits: &PoolLimits) -> Option<(RequestAccount, Job)> {
        let place = self.turns.iter().position(|account| self.may_run(*account, limits))?;
        let account = self.turns.remove(place)?;
        let queue = self.waiting.get_mut(&account)?;
        let job = queue.pop_front()?;
        if queue.is_empty() {
            self.waiting.remove(&account);
        } else {
            self.turns.push_back(account);
        }
        *self.running.entry(account).or_default() += 1;
        Some((account, job))
    }

    fn may_run(&self, account: RequestAccount, limits: &PoolLimits) -> bool {
        let is_user = |account: &RequestAccount| *account != RequestAccount::Host;
        let of_users = || self.running.iter().filter(|(account, _)| is_user(account)).map(|(_, running)| running);
        let own = self.running.get(&account).copied().unwrap_or(0);
        !is_user(&account) || (own < limits.of_one_user && of_users().sum::<usize>() < limits.of_users)
    }

    fn finish_request(&mut self, account: RequestAccount) {
        if let Some(running) = self.running.get_mut(&account) {
            *running -= 1;
            if *running == 0 {
                self.running.remove(&account);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
    use proptest::prelude::*;

    use super::*;

    const LIMITS: PoolLimits =
        PoolLimits { threads: 4, of_users: 3, of_one_user: 2, waiting_of_one_user: 8, waiting_of_host: 100 };

    fn user(uid: u32) -> RequestAccount {
        RequestAccount::User(Some(uid))
    }

    struct PoolFixture {
        pool: FairPool,
        started: (Sender<RequestAccount>, Receiver<RequestAccount>),
        gate: (Option<Sender<()>>, Receiver<()>),
    }

    impl PoolFixture {
        fn new() -> Self {
            let (sender, receiver) = bounded(0);
            Self { pool: FairPool::new("test", LIMITS), started: unbounded(), gate: (Some(sender), receiver) }
        }

        /// Pushes a request that reports its start and hangs until the gate is opened.
        fn hang(&self, account: RequestAccount) -> bool {
            let (started, gate) = (self.started.0.clone(), self.gate.1.clone());
            self.pool.push(account, move || {
                let _ = started.send(account);
                let _ = gate.recv();
            })
        }

        /// Asserts that a request of this account is carried out while others hang.
        fn goes_through(&self, account: RequestAccount) {
            let (sender, done) = bounded(1);
            assert!(self.pool.push(account, move || sender.send(()).unwrap()));
            done.recv().unwrap();
        }
    }

    #[test]
    fn an_unverified_guest_counts_to_the_accountable_user_of_its_process() {
        let (host, tree) = (Root::host(), Root::at("/nonexistent"));
        let own = std::process::id();
        let account = |root, pid, uid| RequestAccount::of_guest(root, pid, uid, false);
        // Not the uid that a guest has inside of a namespace, of which its user may have many.
        assert_eq!(account(&host, own, Some(200_005)), user(rustix::process::getuid().as_raw()));
        assert_eq!(account(&host, own, None), RequestAccount::User(None), "a program with rights of two users");
        assert_eq!(account(&host, u32::MAX, Some(7)), RequestAccount::User(None), "one that has ended");
        assert_eq!(account(&tree, own, Some(7)), user(7));
        assert_eq!(RequestAccount::of_guest(&host, own, Some(7), true), RequestAccount::Host);
    }

    #[test]
    fn one_user_with_requests_that_hang_leaves_threads_to_others() {
        let stage = PoolFixture::new();
        let accepted = (0..100).filter(|_| stage.hang(user(1))).count();
        assert!((8..=10).contains(&accepted), "those that run, and so many that wait: {accepted}");
        for _ in 0..2 {
            assert_eq!(stage.started.1.recv(), Ok(user(1)));
        }
        for _ in 0..100 {
            stage.goes_through(user(2));
            stage.goes_through(RequestAccount::Host);
        }
        assert!(stage.started.1.is_empty(), "no third request of this user");
    }

    #[test]
    fn all_users_together_leave_a_thread_to_the_host() {
        let stage = PoolFixture::new();
        for uid in 0..50 {
            stage.hang(user(uid));
        }
        for _ in 0..3 {
            stage.started.1.recv().unwrap();
        }
        for _ in 0..100 {
            stage.goes_through(RequestAccount::Host);
        }
        assert!(stage.started.1.is_empty());
        assert!(stage.pool.threads() <= LIMITS.threads);
    }

    #[test]
    fn all_requests_are_carried_out_in_the_end() {
        let mut stage = PoolFixture::new();
        let pushed = (0..40).filter(|n| stage.hang(user(n % 7))).count();
        stage.gate.0 = None;
        for _ in 0..pushed {
            stage.started.1.recv().unwrap();
        }
        stage.goes_through(user(9));
    }

    #[test]
    fn a_request_that_breaks_off_costs_no_thread() {
        let stage = PoolFixture::new();
        for _ in 0..3 * LIMITS.threads {
            stage.pool.push(RequestAccount::Host, || panic!("on purpose"));
        }
        stage.goes_through(RequestAccount::Host);
    }

    proptest! {
        #[test]
        fn no_order_of_requests_breaks_a_limit_or_loses_one(
            accounts in prop::collection::vec(0_u32..5, 0..60), ends in prop::collection::vec(any::<prop::sample::Index>(), 0..60),
        ) {
            let mut state = PoolState::default();
            let mut running: Vec<RequestAccount> = Vec::new();
            for number in &accounts {
                let account = if *number == 0 { RequestAccount::Host } else { user(*number) };
                let queue = state.waiting.entry(account).or_default();
                queue.push_back(Box::new(|| ()));
                if queue.len() == 1 {
                    state.turns.push_back(account);
                }
            }
            let mut done = 0;
            let mut ends = ends.into_iter();
            loop {
                while running.len() < LIMITS.threads && let Some((account, _)) = state.next(&LIMITS) {
                    running.push(account);
                }
                let users: Vec<_> = running.iter().filter(|account| **account != RequestAccount::Host).collect();
                prop_assert!(users.len() <= LIMITS.of_users);
                for account in &users {
                    prop_assert!(users.iter().filter(|other| other == &account).count() <= LIMITS.of_one_user);
                }
                if running.is_empty() {
                    break;
                }
                let end = ends.next().map_or(0, |index| index.index(running.len()));
                state.finish_request(running.swap_remove(end));
                done += 1;
            }
            prop_assert_eq!(done, accounts.len());
        }
    }
}
