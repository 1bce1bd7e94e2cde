//! The daemon's view of guests, in a thread of its own: the daemon only hands samples over, so that neither naming a
//! thousand guests, nor a hypervisor that hangs, nor a switch that takes seconds delays a turn.
//!
//! With `[guests] prune` it also switches off guests that are not worth merging, one at a time, each noted on disk
//! before. When it ends they are switched on again.

use std::io;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded, select, unbounded};
use ksmith_core::decide::{Prunable, Prune, PruneOrder};
use ksmith_core::guest::Guest;
use ksmith_core::sample::{ProcessId, Sample};
use tracing::{info, warn};

use crate::act::{Headroom, StateDir};
use crate::balance::key_of;
use crate::balance_service::Shared;
use crate::config::GuestsConfig;
use crate::control::Answer;
use crate::guests::{Guests, List, OffList, SwitchError, Switched, Target};
use crate::root::Root;
use crate::show::GuestsReport;

/// How often a sample is looked at without being asked: finds new guests and feeds pruning.
const BETWEEN_LOOKS: Duration = Duration::from_secs(2);

/// Orders that may wait; askers are told when there is no room.
const INBOX: usize = 16;

/// Why a guest is not switched on.
const REFUSED: &str = "merged pages could need more memory than there is, so no more is offered (docs/balance.md)";

/// How long the end waits for a switch that is under way.
const LAST_PATIENCE: Duration = Duration::from_secs(5);

/// The daemon's end. Dropping it switches on again whoever was switched off, and waits for that.
#[derive(Debug)]
pub struct GuestService {
    orders: Sender<Order>,
    thread: Option<JoinHandle<()>>,
    next_look: Instant,
}

#[derive(Debug)]
enum Order {
    Look(Box<Sample>),
    Report(Box<Sample>, Sender<Answer>),
    Configure(GuestsConfig),
    SwitchOff(String),
    Heed(Shared),
    End,
}

impl GuestService {
    /// Starts the thread.
    ///
    /// # Errors
    /// The host has none for us.
    pub fn start(root: &Root, directory: &StateDir, config: GuestsConfig) -> io::Result<Self> {
        let (orders, inbox) = bounded(INBOX);
        let (root, directory) = (root.clone(), directory.clone());
        let work = move || Worker::new(root, &directory, &config).work(&inbox);
        let thread = std::thread::Builder::new().name("guests".to_owned()).spawn(work)?;
        Ok(Self { orders, thread: Some(thread), next_look: Instant::now() })
    }

    /// Hands over a sample, now and then.
    pub fn look(&mut self, sample: &Sample) {
        let now = Instant::now();
        if now >= self.next_look {
            self.next_look = now + BETWEEN_LOOKS;
            // A thread that is busy looks next time.
            let _ = self.orders.try_send(Order::Look(Box::new(sample.clone())));
        }
    }

    /// Has a question answered from this sample.
    pub fn report(&self, sample: Sample, reply: Sender<Answer>) {
        let full = match self.orders.try_send(Order::Report(Box::new(sample), reply)) {
            Ok(()) => return,
            Err(TrySendError::Full(order) | TrySendError::Disconnected(order)) => order,
        };
        if let Order::Report(_, reply) = full {
            // That the peer has gone meanwhile is its own affair.
            let _ = reply.try_send(Answer::Error { message: "too many ask at once; try again".to_owned() });
        }
    }

    /// Has a guest's merging switched off, because its pages diverge. Which one is said by its key in balance.
    pub fn switch_off(&self, key: String) {
        let _ = self.orders.try_send(Order::SwitchOff(key));
    }

    /// Offers no more memory to merging while balance refuses that.
    pub fn heed(&self, shared: Shared) {
        let _ = self.orders.send(Order::Heed(shared));
    }

    /// Goes by another configuration from now on.
    pub fn configure(&self, config: GuestsConfig) {
        let _ = self.orders.send(Order::Configure(config));
    }
}

impl Drop for GuestService {
    fn drop(&mut self) {
        let _ = self.orders.send(Order::End);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A switch that was thrown, and what came of it.
type Thrown = (Target, bool, Result<Vec<Switched>, SwitchError>);

struct Worker {
    root: Root,
    config: GuestsConfig,
    guests: Guests,
    churn: Churn,
    prune: Option<Prune>,
    off: Option<OffList>,
    jobs: Sender<(Target, bool)>,
    thrown: Receiver<Thrown>,
    under_way: usize,
    now: Duration,
    /// Whose memory can't merge.
    obstacles: Vec<ProcessId>,
    /// As of the last look.
    last: Vec<Guest>,
    /// Whether more memory may be offered to merging.
    balance: Shared,
}

impl Worker {
    fn new(root: Root, directory: &StateDir, config: &GuestsConfig) -> Self {
        let (jobs, thrown) = switcher(&root);
        let off = OffList::open(directory).inspect_err(|error| warn!("{error}; no guest will be pruned")).ok();
        Self {
            guests: Guests::new(root.clone(), config.libvirt_uri.clone()),
            root,
            config: config.clone(),
            churn: Churn::default(),
            prune: config.prune_limits().map(Prune::new),
            off,
            jobs,
            thrown,
            under_way: 0,
            now: Duration::ZERO,
            obstacles: Vec::new(),
            last: Vec::new(),
            balance: Shared::default(),
        }
    }

    fn work(mut self, inbox: &Receiver<Order>) {
        // What a killed daemon left.
        self.switch_on_again();
        let thrown = self.thrown.clone();
        loop {
            select! {
                recv(inbox) -> order => match order {
                    Ok(Order::Look(sample)) => {
                        let list = self.guests.list(&sample);
                        self.churn.see(&sample);
                        self.prune(&sample, &list);
                        self.last = list.guests;
                    }
                    Ok(Order::Report(sample, reply)) => {
                        let List { guests, unattributed_bytes } = self.guests.list(&sample);
                        let mut report = GuestsReport::new(&sample, guests, unattributed_bytes);
                        report.cow_ksm_per_second = self.churn.rate();
                        let _ = reply.try_send(Answer::Guests(Box::new(report)));
                    }
                    Ok(Order::Configure(config)) => self.configure(config),
                    Ok(Order::SwitchOff(key)) => self.switch_off(&key),
                    Ok(Order::Heed(shared)) => self.balance = shared,
                    Ok(Order::End) | Err(_) => break,
                },
                recv(thrown) -> outcome => match outcome {
                    Ok(outcome) => self.settle(outcome),
                    Err(_) => break,
                },
            }
        }
        let deadline = Instant::now() + LAST_PATIENCE;
        while self.under_way > 0
            && let Ok(outcome) = self.thrown.recv_deadline(deadline)
        {
            self.settle(outcome);
        }
        self.switch_on_again();
    }

    fn configure(&mut self, config: GuestsConfig) {
        if config == self.config {
            return;
        }
        if config.libvirt_uri != self.config.libvirt_uri {
            self.guests = Guests::new(self.root.clone(), config.libvirt_uri.clone());
        }
        if config.prune_limits() != self.config.prune_limits() {
            self.prune = config.prune_limits().map(Prune::new);
            self.switch_on_again();
        }
        self.config = config;
    }

    fn switch_on_again(&mut self) {
        let Some(off) = &mut self.off else { return };
        for note in off.restore(&self.root, &self.config.libvirt_uri, false) {
            info!("{note}");
        }
    }

    fn prune(&mut self, sample: &Sample, list: &List) {
        self.now = sample.at;
        let (Some(prune), Some(off)) = (&mut self.prune, &mut self.off) else { return };
        let full_scans = sample.ksm.full_scans.get().unwrap_or(0);
        let targets: Vec<(&Guest, Target)> = list
            .guests
            .iter()
            .filter_map(|guest| Some((guest, self.guests.target(guest)?)))
            .filter(|(_, target)| target.check(false).is_ok())
            .collect();
        let candidates: Vec<Prunable> = targets.iter().map(|(guest, _)| prunable(guest)).collect();
        self.obstacles = candidates.iter().filter(|it| it.obstacle.is_some()).map(|it| it.id).collect();
        for PruneOrder { id, on, reason } in prune.decide(sample.at, full_scans, &candidates) {
            let Some((guest, target)) = targets.iter().find(|(_, target)| target.id == id) else { continue };
            let word = if on { "on" } else { "off" };
            let ready = match on {
                true if self.balance.refuses_switches() => Err(REFUSED.to_owned()),
                true => Ok(()),
                false => may_be_unmerged(&self.root, guest, target, off),
            };
            match ready.and_then(|()| self.jobs.send((target.clone(), on)).map_err(|error| error.to_string())) {
                Ok(()) => {
                    info!("{} (pid {}): merging {word}: {reason}", target.name, id.pid);
                    self.under_way += 1;
                }
                Err(why) => {
                    warn!("{} (pid {}): merging stays as it is: {why}", target.name, id.pid);
                    prune.done(id, sample.at, false, false);
                }
            }
        }
    }

    /// Switches off one guest for balance. It is switched on again when the daemon ends.
    fn switch_off(&mut self, key: &str) {
        let found = self.last.iter().find(|guest| key_of(guest) == key);
        let Some((guest, target)) = found.and_then(|guest| Some((guest, self.guests.target(guest)?))) else {
            return;
        };
        let Some(off) = &mut self.off else { return };
        let ready = target.check(false).map_err(|why| why.to_string());
        let ready = ready.and_then(|()| may_be_unmerged(&self.root, guest, &target, off));
        match ready.and_then(|()| self.jobs.send((target.clone(), false)).map_err(|error| error.to_string())) {
            Ok(()) => {
                info!("{} (pid {}): merging off: its pages diverge", target.name, target.id.pid);
                self.under_way += 1;
            }
            Err(why) => warn!("{}: merging stays on: {why}", target.name),
        }
    }

    fn settle(&mut self, (target, on, outcome): Thrown) {
        self.under_way = self.under_way.saturating_sub(1);
        if let Err(error) = &outcome {
            warn!("{error}");
        }
        self.guests.ask_again(target.id);
        let has_obstacle = self.obstacles.contains(&target.id);
        if let Some(prune) = &mut self.prune {
            prune.done(target.id, self.now, outcome.is_ok(), has_obstacle);
        }
        // A switch-off that failed half way stays on the list: some of its memory may be off.
        if on
            && outcome.is_ok()
            && let Some(off) = &mut self.off
            && let Err(error) = off.strike(target.id)
        {
            warn!("{error}");
        }
    }
}

fn prunable(guest: &Guest) -> Prunable {
    Prunable {
        id: guest.id(),
        profit_bytes: guest.figures.profit_bytes,
        // A kernel that says no is right; one that says yes may mean the firmware.
        offered: guest.offered.or(guest.mergeable.filter(|mergeable| !mergeable)),
        obstacle: guest.obstacle.clone(),
    }
}

/// Whether the host can hold what comes back, and a later ksmith will know of it.
fn may_be_unmerged(root: &Root, guest: &Guest, target: &Target, off: &mut OffList) -> Result<(), String> {
    let headroom = Headroom { exposure_bytes: guest.figures.merged_bytes, ..Headroom::now(root) };
    headroom.check().map_err(|why| why.to_string())?;
    off.note(target).map_err(|error| error.to_string())
}

/// The thread that throws switches, one after the other.
fn switcher(root: &Root) -> (Sender<(Target, bool)>, Receiver<Thrown>) {
    let (jobs, waiting) = unbounded::<(Target, bool)>();
    let (sender, thrown) = unbounded();
    let root = root.clone();
    let work = move || {
        for (target, on) in waiting {
            let outcome = target.switch(&root, on, false);
            if sender.send((target, on, outcome)).is_err() {
                return;
            }
        }
    };
    if let Err(error) = std::thread::Builder::new().name("guest-switch".to_owned()).spawn(work) {
        warn!("guests can't be switched: {error}");
    }
    (jobs, thrown)
}

/// How fast merged pages are broken by writes.
#[derive(Debug, Default)]
struct Churn {
    before: Option<(Duration, u64)>,
    last: Option<(Duration, u64)>,
}

impl Churn {
    fn see(&mut self, sample: &Sample) {
        let cow = sample.vmstat.value().and_then(|vm| vm.cow_ksm);
        if let Some(cow) = cow {
            self.before = self.last.replace((sample.at, cow));
        }
    }

    fn rate(&self) -> Option<f64> {
        let ((before, old), (now, new)) = (self.before?, self.last?);
        let seconds = now.checked_sub(before)?.as_secs_f64();
        (seconds > 0.0).then(|| new.saturating_sub(old) as f64 / seconds)
    }
}

#[cfg(test)]
mod tests {
    use ksmith_core::kernel::Vmstat;
    use ksmith_core::reading::Reading;

    use super::*;

    #[test]
    fn churn_is_the_difference_over_time() {
        let mut churn = Churn::default();
        for (second, cow) in [(10, 100), (12, 150)] {
            assert_eq!(churn.rate(), None);
            churn.see(&Sample {
                at: Duration::from_secs(second),
                vmstat: Reading::Value(Vmstat { cow_ksm: Some(cow), ..Vmstat::default() }),
                ..Sample::default()
            });
        }
        assert_eq!(churn.rate(), Some(25.0));
    }

    #[test]
    fn a_question_is_answered_and_a_flood_refused() {
        let tree = tempfile::tempdir().unwrap();
        let service =
            GuestService::start(&Root::at(tree.path()), &StateDir::at(tree.path()), GuestsConfig::default())
                .unwrap();
        let (reply, answers) = bounded(1);
        service.report(Sample { page_size: 4096, ..Sample::default() }, reply);
        let Answer::Guests(report) = answers.recv().unwrap() else { panic!("another answer") };
        assert!(report.guests.is_empty());
        let waiting: Vec<_> = (0..10 * INBOX)
            .map(|_| {
                let (reply, answers) = bounded(1);
                service.report(Sample::default(), reply);
                answers
            })
            .collect();
        drop(service);
        // Each was answered or, at the end, let go.
        assert!(waiting.into_iter().all(|answers| answers.recv_timeout(Duration::from_secs(20)).is_ok()));
    }
}
