//! Guests, their threads, the pool and a policy: one turn looks at all, decides within the bounds, and acts.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, unbounded};
use ksmith_core::balance::{
    self, BalanceAction, BalanceConfig, BalancePolicy, BalanceView, PlanBounds, PoolScope, PoolView, ResizeBackoff,
};
use ksmith_core::model::ResizeRecord;
use ksmith_host::fair_pool::FairPool;
use ksmith_host::root::Root;
use tracing::info;

use super::member::{PendingResize, PoolMember};
use super::pool::{PoolError, PoolReader};
use super::worker::{ActuatorAnswer, LIMITS};
use super::{HoldList, MemoryLedger};
use crate::folder::FoldedFigures;

mod answers;
mod give_back;
mod members;
mod orders;
mod report;

pub use orders::{AcceptedOrder, OrderError};

/// The number of resizes that are kept for reports.
const REMEMBERED: usize = 32;

/// Balances the guests of one pool.
pub struct Balancer {
    root: Root,
    config: BalanceConfig,
    ledger: MemoryLedger,
    holds: HoldList,
    pool: PoolReader,
    folded: FoldedFigures,
    policy: Box<dyn BalancePolicy>,
    bounds: PlanBounds,
    backoff: ResizeBackoff,
    members: BTreeMap<String, PoolMember>,
    numbers: u64,
    pool_of_threads: Arc<FairPool>,
    sender: Sender<ActuatorAnswer>,
    answers: Receiver<ActuatorAnswer>,
    started: Instant,
    turn: Option<BalanceTurn>,
    done: VecDeque<(Duration, ResizeRecord)>,
    has_first_answer: bool,
    polls_new_guests: bool,
}

impl fmt::Debug for Balancer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Balancer").field("members", &self.members.keys()).finish_non_exhaustive()
    }
}

/// One turn: the view and the plan.
#[derive(Debug, Clone)]
pub struct BalanceTurn {
    /// The pool and its guests.
    pub view: BalanceView,
    /// The plan, within the bounds.
    pub plan: balance::BalancePlan,
}

/// Decides which guests may be acted on. All others are only polled.
struct ActingFilter<'a> {
    config: &'a BalanceConfig,
    holds: &'a HoldList,
    is_to_read: bool,
}

impl ActingFilter<'_> {
    fn on(&self, member: &PoolMember) -> bool {
        let PoolMember { candidate, ordered, .. } = member;
        let is_held = || candidate.terms(self.config).is_held || self.holds.has(candidate.names_in_holds());
        let is_balanced = || self.config.enabled && candidate.is_trusted(self.config) && !is_held();
        !self.is_to_read && (ordered.is_some() || is_balanced())
    }
}

impl Balancer {
    /// Creates a balancer without guests.
    pub fn new(root: Root, config: BalanceConfig, ledger: MemoryLedger, holds: HoldList) -> Self {
        let (sender, answers) = unbounded();
        Self {
            pool: PoolReader::new(root.clone(), config.pool.clone(), FoldedFigures::default()),
            folded: FoldedFigures::default(),
            policy: balance::policy(&config),
            root,
            config,
            ledger,
            holds,
            bounds: PlanBounds::default(),
            backoff: ResizeBackoff::default(),
            members: BTreeMap::new(),
            numbers: 0,
            pool_of_threads: Arc::new(FairPool::new("balance guest", LIMITS)),
            sender,
            answers,
            started: Instant::now(),
            turn: None,
            done: VecDeque::new(),
            has_first_answer: false,
            polls_new_guests: false,
        }
    }

    /// Counts folded memory into the exposure.
    #[must_use]
    pub fn with_folded(mut self, folded: FoldedFigures) -> Self {
        self.pool = PoolReader::new(self.root.clone(), self.config.pool.clone(), folded.clone());
        self.folded = folded;
        self
    }

    /// Replaces the configuration.
    pub fn configure(&mut self, config: BalanceConfig) {
        if config == self.config {
            return;
        }
        self.pool = PoolReader::new(self.root.clone(), config.pool.clone(), self.folded.clone());
        self.policy = balance::policy(&config);
        self.config = config;
        // While nothing is balanced, new guests are looked at like all others.
        self.polls_new_guests = false;
    }

    /// Returns the channel of the guests' answers; pass each to [`accept`](Self::accept).
    pub fn answers(&self) -> Receiver<ActuatorAnswer> {
        self.answers.clone()
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Polls the new guests that are due, without waiting for their answers. After the first call no look waits for a
    /// new guest. Returns the time until the next one is due.
    pub fn poll_new_guests(&mut self) -> Option<Duration> {
        let now = self.now();
        self.polls_new_guests = true;
        let mut next: Option<Duration> = None;
        let acting =
            ActingFilter { config: &self.config, holds: &self.holds, is_to_read: self.ledger.is_to_read() };
        for member in self.members.values_mut() {
            let is_left = member.candidate.is_left_to_proxmox(&self.config);
            let Some(first_poll) = member.first_poll.filter(|_| !is_left && !member.is_busy()) else { continue };
            if first_poll.due <= now {
                let acts = acting.on(member);
                member.looking = member.worker.as_ref().is_some_and(|worker| worker.request_figures(acts));
            } else {
                next = Some(next.map_or(first_poll.due, |next| next.min(first_poll.due)));
            }
        }
        next.map(|due| due - now)
    }

    /// Returns true if a new guest has answered for the first time since the last call.
    pub fn take_first_answer(&mut self) -> bool {
        std::mem::take(&mut self.has_first_answer)
    }

    /// Polls all guests that are not busy, and waits for their answers for at most `patience`. A guest without an
    /// answer counts as in trouble until it answers.
    pub fn poll_guests(&mut self, patience: Duration) {
        let now = self.now();
        let polls_new_guests = self.polls_new_guests;
        let is_new = |member: &PoolMember| polls_new_guests && member.first_poll.is_some();
        let acting =
            ActingFilter { config: &self.config, holds: &self.holds, is_to_read: self.ledger.is_to_read() };
        for member in self.members.values_mut().filter(|member| !is_new(member)) {
            // A guest that answers and does not follow is still asked: it may come under memory pressure.
            let may_ask = member.error.is_none() || self.backoff.trouble(&member.candidate.key, now).is_none();
            let may_ask = may_ask && !member.candidate.is_left_to_proxmox(&self.config);
            let acts = acting.on(member);
            if may_ask
                && !member.is_busy()
                && member.worker.as_ref().is_some_and(|worker| worker.request_figures(acts))
            {
                member.looking = true;
            }
        }
        let deadline = Instant::now() + patience;
        while self.members.values().any(|member| member.looking && !is_new(member))
            && let Ok(answer) = self.answers.recv_deadline(deadline)
        {
            self.accept(answer);
        }
    }

    /// Returns the pool and the guests as a policy sees them.
    ///
    /// # Errors
    /// The pool can't be read.
    pub fn view(&mut self) -> Result<BalanceView, PoolError> {
        let now = self.now();
        let mut pool = self.pool.read(now)?;
        let guests: Vec<_> = self
            .members
            .values()
            .map(|member| {
                let candidate = &member.candidate;
                let terms = candidate.terms(&self.config);
                let is_held = self.holds.has(candidate.names_in_holds());
                let view = member.view(terms, is_held, self.backoff.trouble(&candidate.key, now), now);
                candidate.held_to_trust(&self.config, view)
            })
            .collect();
        if self.config.pool != PoolScope::Host {
            // KSM's own figures are the host's: this pool has no more of that than its guests have merged and folded.
            let exposed =
                |member: &PoolMember| member.candidate.merged_bytes.saturating_add(member.candidate.folded_bytes);
            let most = self.members.values().map(exposed).fold(0_u64, u64::saturating_add);
            pool.exposure_bytes = pool.exposure_bytes.min(most);
        }
        Ok(BalanceView { now, pool, guests })
    }

    /// Reads the pool alone, which is cheap.
    ///
    /// # Errors
    /// As [`view`](Self::view).
    pub fn pool(&mut self) -> Result<PoolView, PoolError> {
        let now = self.now();
        self.pool.read(now)
    }

    /// Polls the pool and all guests, and decides. Nothing is resized yet.
    ///
    /// # Errors
    /// As [`view`](Self::view).
    pub fn decide(&mut self, patience: Duration) -> Result<&BalanceTurn, PoolError> {
        self.poll_guests(patience);
        // An old turn must not be reported as the present one.
        self.turn = None;
        let view = self.view()?;
        let plan = self.bounds.bound_plan(self.policy.decide(&view), &view, &self.config);
        Ok(self.turn.insert(BalanceTurn { view, plan }))
    }

    /// Starts the resizes that the last turn decided, each in its guest's thread.
    pub fn carry_out(&mut self) {
        let Some(turn) = &self.turn else { return };
        let actions = turn.plan.actions.clone();
        for action in actions {
            let BalanceAction::Resize { key, from_bytes, to_bytes, reason } = action else { continue };
            self.resize(&key, from_bytes, to_bytes, reason);
        }
    }

    fn resize(&mut self, key: &str, from_bytes: u64, to_bytes: u64, reason: String) {
        let now = self.now();
        let Some(member) = self.members.get_mut(key) else { return };
        if member.is_busy()
            || !member.worker.as_ref().is_some_and(|worker| worker.request_resize(from_bytes, to_bytes))
        {
            return;
        }
        member.resizing = Some(PendingResize { since: now, takes: to_bytes < from_bytes });
        let name = member.candidate.name.clone();
        let mib = |bytes: u64| bytes >> 20;
        info!("{name}: memory {} -> {} MiB ({reason})", mib(from_bytes), mib(to_bytes));
        let done = ResizeRecord {
            key: key.to_owned(),
            name,
            seconds_ago: 0.0,
            from_bytes,
            to_bytes,
            got_bytes: None,
            error: None,
            reason,
        };
        self.done.push_back((now, done));
        if self.done.len() > REMEMBERED {
            self.done.pop_front();
        }
    }

    /// Returns true if a resize is under way.
    pub fn is_acting(&self) -> bool {
        self.members.values().any(|member| member.resizing.is_some())
    }
}

#[cfg(test)]
mod tests;
