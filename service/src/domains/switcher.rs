//! Switches guests in the background: un-merging a large guest takes seconds, and a monitor may hang.

use crossbeam_channel::{Receiver, Sender, unbounded};
use ksmith_core::guest::GuestId;

use ksmith_host::fair_pool::{FairPool, PoolLimits};
use ksmith_host::guests::GuestTarget;
use ksmith_host::root::Root;

/// Switches under way. One that hangs holds its thread for ten minutes.
pub(super) const LIMITS: PoolLimits =
    PoolLimits { threads: 16, of_users: 6, of_one_user: 1, waiting_of_one_user: 64, waiting_of_host: 1 << 16 };

/// The outcome of an order.
#[derive(Debug)]
pub struct SwitchOutcome {
    /// The guest's first process.
    pub id: GuestId,
    /// The guest's name.
    pub name: String,
    /// True if it was to be switched on.
    pub on: bool,
    /// Success, or the reason for the failure.
    pub result: Result<(), String>,
}

/// Carries out orders in the background, and collects their outcomes.
#[derive(Debug)]
pub struct GuestSwitcher {
    root: Root,
    pool: FairPool,
    sender: Sender<SwitchOutcome>,
    outcomes: Receiver<SwitchOutcome>,
}

impl GuestSwitcher {
    /// Creates a switcher without orders.
    pub fn new(root: Root) -> Self {
        let (sender, outcomes) = unbounded();
        Self { root, pool: FairPool::new("switch", LIMITS), sender, outcomes }
    }

    /// Orders a guest switched. The monitors of one user that hang delay the guests of no other.
    pub fn order(&self, target: GuestTarget, on: bool) {
        let (root, sender) = (self.root.clone(), self.sender.clone());
        let (id, name, account) = (target.id, target.name.clone(), target.account(&root));
        let work = move || {
            let result = target.switch(&root, on, false).map(|_| ()).map_err(|error| error.to_string());
            // At the daemon's end there is no receiver any more.
            let _ = sender.send(SwitchOutcome { id, name: target.name, on, result });
        };
        if !self.pool.push(account, work) {
            let why = "too many of its user's guests wait for their switches".to_owned();
            let _ = self.sender.send(SwitchOutcome { id, name, on, result: Err(why) });
        }
    }

    /// Returns the outcome of an order, if there is a new one.
    pub fn outcome(&self) -> Option<SwitchOutcome> {
        self.outcomes.try_recv().ok()
    }
}
