//! The daemon's balance, in a thread of its own: neither a guest that hangs nor a step that takes seconds delays a turn
//! of the daemon.
//!
//! It reads the pool every second and polls the guests when the policy wants to, or at once when the pool falls below
//! its low mark. It sends its steps for merging to the daemon. Any thread may read how short the pool is, and whether
//! more memory may be offered to merging.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use crossbeam_channel::{Receiver, Sender, TrySendError, bounded, never, select};
use ksmith_core::balance::{BalanceAction, BalanceConfig, KsmStep, PoolView, shortness};
use tracing::{debug, info, warn};

use crate::balance::{AcceptedOrder, Balancer, HoldList, MemoryLedger, OrderError};
use crate::control::{ControlReply, HoldRequest, ResizeReply, ResizeRequest};
use crate::folder::FoldedFigures;
use crate::registry::PublishedSnapshot;
use ksmith_core::model::BalanceStatus;
use ksmith_host::act::StateDir;
use ksmith_host::root::Root;
use ksmith_host::undo::UndoError;
use ksmith_host::worker_thread::WorkerThread;

/// The interval between two readings of the pool, each of three small files.
const BEAT: Duration = Duration::from_secs(1);

/// The longest wait of a turn for guests. Their threads wait on.
const PATIENCE: Duration = Duration::from_secs(1);

/// The longest wait at the end for guests to take their memory back.
const LAST_PATIENCE: Duration = Duration::from_secs(20);

/// The capacity of the inbox. A request that finds no room is refused.
const INBOX: usize = 16;

/// The shortest time between two warnings about an unreadable pool.
const SAME_WARNING: Duration = Duration::from_secs(600);

/// State of balance that other threads read without waiting.
#[derive(Debug, Clone, Default)]
pub struct SharedBalance {
    shortness: Arc<AtomicU64>,
    refuses: Arc<AtomicBool>,
}

impl SharedBalance {
    /// Returns the shortness of the pool, from 0 to 1; 0 while balance is off.
    pub fn shortness(&self) -> f64 {
        f64::from_bits(self.shortness.load(Ordering::Relaxed))
    }

    /// Returns true if no more memory may be offered to merging.
    pub fn refuses_switches(&self) -> bool {
        self.refuses.load(Ordering::Relaxed)
    }

    fn set(&self, shortness: f64, refuses: bool) {
        self.shortness.store(shortness.to_bits(), Ordering::Relaxed);
        self.refuses.store(refuses, Ordering::Relaxed);
    }
}

/// The daemon's handle of balance. Dropping it gives guests their memory back, if the configuration says so, and waits
/// for that.
#[derive(Debug)]
pub struct BalanceService {
    worker: WorkerThread<BalanceOrder>,
    shared: SharedBalance,
    status: Arc<ArcSwapOption<BalanceStatus>>,
    waker: Sender<()>,
    ledger: MemoryLedger,
    holds: HoldList,
}

#[derive(Debug)]
enum BalanceOrder {
    Ask(BalanceRequest, Sender<ControlReply>),
    Configure(Box<BalanceConfig>),
}

/// A request to balance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BalanceRequest {
    /// The plan of balance.
    Report,
    /// Hold a guest, or release it.
    Hold(HoldRequest),
    /// Give a guest memory, or take some.
    Resize(ResizeRequest),
}

impl BalanceService {
    /// Starts the thread. `folded` counts into the exposure. `merging` receives the steps for merging, and must not
    /// wait.
    ///
    /// # Errors
    /// The host has no thread for it, or the undo store can't be used: a sentence says so.
    pub fn start(
        root: &Root,
        directory: &StateDir,
        config: BalanceConfig,
        guests: PublishedSnapshot,
        folded: FoldedFigures,
        merging: impl Fn(KsmStep) + Send + 'static,
    ) -> Result<Self, BalanceStartError> {
        let ledger = MemoryLedger::open(directory)?;
        let holds = HoldList::open(directory)?;
        let (waker, woken) = bounded(1);
        let (shared, status) = (SharedBalance::default(), Arc::new(ArcSwapOption::empty()));
        let worker = BalanceWorker {
            balancer: Balancer::new(root.clone(), config.clone(), ledger.clone(), holds.clone())
                .with_folded(folded),
            guests,
            root: root.clone(),
            ledger: ledger.clone(),
            config,
            shared: shared.clone(),
            status: Arc::clone(&status),
            merging: Box::new(merging),
            has_met: false,
            due: Instant::now(),
            turned: Instant::now(),
            has_news: false,
            orders_under_way: Vec::new(),
            warned: None,
            said: String::new(),
        };
        let worker = WorkerThread::start("balance", INBOX, move |inbox, _| worker.work(inbox, &woken))?;
        Ok(Self { worker: worker.with_drop_patience(Duration::MAX), shared, status, waker, ledger, holds })
    }

    /// Writes the ledger and the held guests anew, as into a directory that was removed.
    ///
    /// # Errors
    /// One of the two can't be written.
    pub fn write_anew(&self) -> Result<(), UndoError> {
        let written = self.ledger.write_anew();
        self.holds.write_anew().and(written)
    }

    /// Returns the channel that wakes the thread after a new snapshot of the guests.
    pub fn waker(&self) -> Sender<()> {
        self.waker.clone()
    }

    /// Sends a request; the answer goes to `reply`. A full inbox is answered with an error.
    pub fn send_request(&self, ask: BalanceRequest, reply: Sender<ControlReply>) {
        let full = match self.worker.queue_request(BalanceOrder::Ask(ask, reply)) {
            Ok(()) => return,
            Err(TrySendError::Full(order) | TrySendError::Disconnected(order)) => order,
        };
        if let BalanceOrder::Ask(_, reply) = full {
            let _ = reply.try_send(ControlReply::error("too many requests at once; try again"));
        }
    }

    /// Replaces the configuration.
    pub fn configure(&self, config: BalanceConfig) {
        let _ = self.worker.queue_within(BalanceOrder::Configure(Box::new(config)), Duration::MAX);
    }

    /// Returns the state that other threads may read.
    pub fn shared(&self) -> SharedBalance {
        self.shared.clone()
    }

    /// Returns the status of the last turn; `None` before the first turn, after one that failed, and while balance is
    /// off.
    pub fn status(&self) -> Option<BalanceStatus> {
        self.status.load_full().map(|status| (*status).clone())
    }
}

/// A failed start of balance.
#[derive(Debug, thiserror::Error)]
pub enum BalanceStartError {
    /// The undo store, with the ledger and the guests that are held, can't be used.
    #[error(transparent)]
    Store(#[from] UndoError),
    /// The thread can't be started.
    #[error("no thread for balance: {0}")]
    Thread(#[from] io::Error),
}

/// Returns the answer to an order that is refused.
fn refusal(why: OrderError) -> ControlReply {
    match why {
        OrderError::NotOne(why) => ControlReply::NoGuest { message: why.to_string() },
        OrderError::Refused(message) => ControlReply::Error { message },
    }
}

/// Builds the reply to a resize order. `given_bytes` is `None` if the order was only planned.
pub fn resized(ordered: AcceptedOrder, given_bytes: Option<u64>) -> ResizeReply {
    let AcceptedOrder { name, from_bytes, wanted_bytes, .. } = ordered;
    ResizeReply { guest: name, from_bytes, wanted_bytes, given_bytes: given_bytes.unwrap_or(from_bytes) }
}

struct BalanceWorker {
    root: Root,
    config: BalanceConfig,
    balancer: Balancer,
    guests: PublishedSnapshot,
    ledger: MemoryLedger,
    shared: SharedBalance,
    status: Arc<ArcSwapOption<BalanceStatus>>,
    merging: Box<dyn Fn(KsmStep) + Send>,
    /// True once a snapshot of the guests was received.
    has_met: bool,
    /// Time of the next turn by the policy.
    due: Instant,
    /// Time of the last turn, and whether a new guest has answered since.
    turned: Instant,
    has_news: bool,
    /// Operators' resizes under way, with the channels for their answers.
    orders_under_way: Vec<(AcceptedOrder, Sender<ControlReply>)>,
    warned: Option<Instant>,
    said: String,
}

impl BalanceWorker {
    fn work(mut self, inbox: &Receiver<BalanceOrder>, woken: &Receiver<()>) {
        if !self.config.enabled {
            self.give_back_what_was_left();
        }
        let answers = self.balancer.answers();
        loop {
            let beat =
                if self.config.enabled && self.has_met { crossbeam_channel::after(self.wait()) } else { never() };
            select! {
                recv(inbox) -> order => match order {
                    Ok(BalanceOrder::Ask(ask, reply)) => self.answer(ask, reply),
                    Ok(BalanceOrder::Configure(config)) => self.configure(*config),
                    Err(_) => break,
                },
                recv(woken) -> _ => self.discover(),
                recv(answers) -> told => if let Ok(told) = told {
                    self.balancer.accept(told);
                },
                recv(beat) -> _ => {}
            }
            self.settle_orders();
            self.beat();
        }
        self.end();
    }

    /// Polls the new guests that are due. Returns the longest wait until the next beat or poll.
    fn wait(&mut self) -> Duration {
        let beat = if self.has_news { self.due.saturating_duration_since(Instant::now()) } else { BEAT };
        self.balancer.poll_new_guests().map_or(beat, |soon| soon.min(beat)).min(BEAT)
    }

    /// Gives back what a killed daemon has taken: these guests are not balanced.
    fn give_back_what_was_left(&self) {
        if self.ledger.entries().is_empty() {
            return;
        }
        for note in self.ledger.restore(&self.root, false).sentences() {
            info!("{note}");
        }
    }

    /// Updates the balancer to the newest snapshot of the guests.
    fn discover(&mut self) {
        let snapshot = self.guests.newest();
        let guests: Vec<_> = snapshot.list.guests.iter().map(|guest| (guest, snapshot.target(guest))).collect();
        self.balancer.discover(guests);
        self.has_met = true;
    }

    fn configure(&mut self, config: BalanceConfig) {
        if self.config.enabled && !config.enabled {
            self.shared.set(0.0, false);
            self.publish_status(None);
            self.give_back();
        } else if (self.config.pool != config.pool
            || self.config.cgroups != config.cgroups
            || self.config.proxmox && !config.proxmox)
            && !self.ledger.entries().is_empty()
        {
            // Guests outside the next pool, and those that are left to Proxmox VE, are not looked after any more.
            self.give_back();
        }
        self.balancer.configure(config.clone());
        self.config = config;
        self.due = Instant::now();
    }

    /// Reads the pool, and takes a turn if one is due or the pool is short.
    fn beat(&mut self) {
        if !self.config.enabled || !self.has_met {
            return;
        }
        let now = Instant::now();
        // A new guest's first answer is of use now: it may have memory to give.
        if self.balancer.take_first_answer() {
            self.due = self.due.min(self.turned + BEAT / 2);
            self.has_news = true;
        }
        if now >= self.due {
            self.turn();
            return;
        }
        match self.balancer.pool() {
            Ok(pool) if self.is_short(&pool) => self.turn(),
            Ok(_) => {}
            Err(error) => self.warn(&error.to_string()),
        }
    }

    fn is_short(&self, pool: &PoolView) -> bool {
        pool.available_bytes < self.config.marks(pool).low
    }

    fn turn(&mut self) {
        // For a turn that fails to decide; a pool that is short has one at each beat and answer in any case.
        self.turned = Instant::now();
        self.has_news = false;
        self.due = self.turned + BEAT / 2;
        let turn = match self.balancer.decide(PATIENCE) {
            Ok(turn) => turn.clone(),
            Err(error) => {
                self.due = Instant::now() + BEAT;
                self.publish_status(None);
                self.warn(&error.to_string());
                return;
            }
        };
        self.due = Instant::now() + turn.plan.check_after.max(BEAT / 2);
        let mut refuses = false;
        for action in &turn.plan.actions {
            let BalanceAction::Ksm { step, reason } = action else { continue };
            match step {
                KsmStep::RefuseSwitches => {
                    refuses = true;
                    if !self.shared.refuses_switches() {
                        warn!("{reason}");
                    }
                }
                KsmStep::BurstMerge | KsmStep::Unmerge { .. } => {
                    info!("merging: {reason}");
                    (self.merging)(step.clone());
                }
            }
        }
        self.shared.set(shortness(&self.config, &turn.view.pool), refuses);
        let reason = turn.plan.reason.to_string();
        if turn.plan.reason.state != self.said {
            turn.plan.reason.state.clone_into(&mut self.said);
            info!("balance: {reason}");
        } else {
            debug!("balance: {reason}");
        }
        self.balancer.carry_out();
        self.publish_status(self.balancer.report().map(|report| report.status()));
    }

    fn publish_status(&self, status: Option<BalanceStatus>) {
        self.status.store(status.map(Arc::new));
    }

    fn warn(&mut self, sentence: &str) {
        if self.warned.is_none_or(|then| then.elapsed() >= SAME_WARNING) {
            warn!("nothing is balanced: {sentence}");
            self.warned = Some(Instant::now());
        }
    }

    /// Answers a request. A peer that has hung up loses the answer.
    fn answer(&mut self, ask: BalanceRequest, reply: Sender<ControlReply>) {
        let answer = match ask {
            BalanceRequest::Report => {
                let is_known = self.config.enabled && self.balancer.report().is_some();
                let failure = if is_known { None } else { self.balancer.decide(PATIENCE).err() };
                match (failure, self.balancer.report()) {
                    (Some(why), _) => ControlReply::error(why),
                    (None, Some(report)) => ControlReply::Balance(Box::new(report)),
                    (None, None) => ControlReply::error("nothing was seen yet"),
                }
            }
            BalanceRequest::Hold(HoldRequest { guest, release, dry_run }) => {
                let outcome = match dry_run {
                    true => self.balancer.plan_hold(&guest, !release),
                    false => self.balancer.hold(&guest, !release),
                };
                outcome.map_or_else(refusal, |message| ControlReply::Done { message })
            }
            BalanceRequest::Resize(ResizeRequest { guest, give, bytes, dry_run }) => {
                if !self.config.enabled {
                    self.balancer.poll_guests(PATIENCE);
                }
                let planned = match dry_run {
                    true => self.balancer.plan_order(&guest, give, bytes),
                    false => self.balancer.order(&guest, give, bytes),
                };
                match planned {
                    Ok(planned) if dry_run => ControlReply::Resized(resized(planned, None)),
                    Ok(ordered) => return self.orders_under_way.push((ordered, reply)),
                    Err(why) => refusal(why),
                }
            }
        };
        let _ = reply.try_send(answer);
    }

    fn settle_orders(&mut self) {
        let balancer = &self.balancer;
        self.orders_under_way.retain(|(ordered, reply)| {
            let Some(outcome) = balancer.order_outcome(&ordered.key, ordered.from_bytes) else { return true };
            let _ = reply.try_send(match outcome {
                Ok(given_bytes) => ControlReply::Resized(resized(ordered.clone(), Some(given_bytes))),
                Err(why) => ControlReply::error(format!("{}: {why}", ordered.name)),
            });
            false
        });
    }

    fn give_back(&mut self) {
        for note in self.balancer.give_back(LAST_PATIENCE) {
            warn!("{note}");
        }
    }

    fn end(&mut self) {
        self.shared.set(0.0, false);
        if self.ledger.entries().is_empty() {
            return;
        }
        if self.config.give_back_on_exit {
            info!("ending; guests get their memory back");
            self.give_back();
        } else {
            info!("guests keep what they have (give_back_on_exit = false); `ksmith restore` gives it back");
        }
    }
}
