//! The daemon's view of guests, in a thread of its own: the daemon only hands samples over, so that neither naming a
//! thousand guests, nor a hypervisor that hangs, nor a switch that takes seconds delays a turn.
//!
//! With `[guests] prune` it also switches off guests that are not worth merging, one at a time, each noted on disk
//! before. When it ends they are switched on again. Who was switched off for the sake of trust domains is left to them
//! as long as they are kept apart ([`crate::domains`]).

use std::io;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded, select, unbounded};
use ksmith_core::decide::{Prunable, Prune, PruneOrder};
use ksmith_core::guest::Guest;
use ksmith_core::sample::{ProcessId, Sample};
use tracing::{info, warn};

use crate::act::Headroom;
use crate::balance::key_of;
use crate::balance_service::Shared;
use crate::config::GuestsConfig;
use crate::control::Answer;
use crate::guests::{List, OffList, SharedGuests, SwitchError, Switched, Target, Why};
use crate::root::Root;
use crate::show::GuestsReport;

/// How often a sample is looked at without being asked: where pruning wants it, and where nobody has come or gone.
const BETWEEN_LOOKS: Duration = Duration::from_secs(2);
const BETWEEN_IDLE_LOOKS: Duration = Duration::from_secs(10);

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
    prunes: bool,
    last_look: Option<Instant>,
    /// Who was there at the last look.
    seen: Vec<ProcessId>,
}

#[derive(Debug)]
enum Order {
    Look(Box<Sample>),
    Report(Box<Sample>, Sender<Answer>),
    SwitchOff(String),
    Heed(Shared),
    Configure(GuestsConfig, bool),
    Switched(u32, bool),
    End,
}

impl GuestService {
    /// Starts the thread, which shares `guests` and the list of those that were switched off with others.
    /// `keeps_apart`: trust domains are, and who is off for their sake stays off.
    ///
    /// # Errors
    /// The host has none for us.
    pub fn start(
        root: &Root,
        guests: SharedGuests,
        off: Option<OffList>,
        config: GuestsConfig,
        keeps_apart: bool,
    ) -> io::Result<Self> {
        let (orders, inbox) = bounded(INBOX);
        let prunes = config.prune;
        let root = root.clone();
        let work = move || Worker::new(root, guests, off, config, keeps_apart).work(&inbox);
        let thread = std::thread::Builder::new().name("guests".to_owned()).spawn(work)?;
        Ok(Self { orders, thread: Some(thread), prunes, last_look: None, seen: Vec::new() })
    }

    /// Hands over a sample, now and then: whoever is new is asked for its name before anybody wants to know it.
    pub fn look(&mut self, sample: &Sample) {
        let since = self.last_look.map_or(Duration::MAX, |last| last.elapsed());
        let ids = sample.processes.iter().map(|process| process.id);
        let is_due = since >= BETWEEN_IDLE_LOOKS
            || since >= BETWEEN_LOOKS && (self.prunes || !ids.clone().eq(self.seen.iter().copied()));
        if is_due {
            self.last_look = Some(Instant::now());
            self.seen.clear();
            self.seen.extend(ids);
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
    pub fn configure(&mut self, config: GuestsConfig, keeps_apart: bool) {
        self.prunes = config.prune;
        let _ = self.orders.send(Order::Configure(config, keeps_apart));
    }

    /// Takes in that somebody has switched the guest whose first process has this PID.
    pub fn was_switched(&self, pid: u32, on: bool) {
        let _ = self.orders.send(Order::Switched(pid, on));
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
    guests: SharedGuests,
    keeps_apart: bool,
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
    fn new(
        root: Root,
        guests: SharedGuests,
        off: Option<OffList>,
        config: GuestsConfig,
        keeps_apart: bool,
    ) -> Self {
        let (jobs, thrown) = switcher(&root);
        Self {
            guests,
            root,
            keeps_apart,
            churn: Churn::default(),
            prune: config.prune_limits().map(Prune::new),
            config,
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
                        let list = self.guests.lock().list(&sample);
                        self.churn.see(&sample);
                        self.prune(&sample, &list);
                        self.last = list.guests;
                    }
                    Ok(Order::Report(sample, reply)) => {
                        let List { guests, unattributed_bytes } = self.guests.lock().list(&sample);
                        let mut report = GuestsReport::new(&sample, guests, unattributed_bytes);
                        report.cow_ksm_per_second = self.churn.rate();
                        let _ = reply.try_send(Answer::Guests(Box::new(report)));
                    }
                    Ok(Order::SwitchOff(key)) => self.switch_off(&key),
                    Ok(Order::Heed(shared)) => self.balance = shared,
                    Ok(Order::Configure(config, keeps_apart)) => self.configure(config, keeps_apart),
                    Ok(Order::Switched(pid, on)) => self.was_switched(pid, on),
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

    fn configure(&mut self, config: GuestsConfig, keeps_apart: bool) {
        let was_apart = std::mem::replace(&mut self.keeps_apart, keeps_apart);
        if config.libvirt_uri != self.config.libvirt_uri {
            self.guests.ask_libvirt_at(config.libvirt_uri.clone());
        }
        let prunes_otherwise = config.prune_limits() != self.config.prune_limits();
        self.config = config;
        if prunes_otherwise {
            self.prune = self.config.prune_limits().map(Prune::new);
        }
        if prunes_otherwise || was_apart && !keeps_apart {
            self.switch_on_again();
        }
    }

    fn was_switched(&mut self, pid: u32, on: bool) {
        let id = self.guests.lock().was_switched(pid, on);
        if let (Some(id), Some(off), true) = (id, &self.off, on)
            && let Err(error) = off.strike(id)
        {
            warn!("{error}");
        }
    }

    fn switch_on_again(&mut self) {
        let Some(off) = &self.off else { return };
        let whys = [Some(Why::Prune), (!self.keeps_apart).then_some(Why::Domain)];
        for why in whys.into_iter().flatten() {
            for note in off.restore(&self.root, &self.config.libvirt_uri, why, false) {
                info!("{note}");
            }
        }
    }

    fn prune(&mut self, sample: &Sample, list: &List) {
        self.now = sample.at;
        let (Some(prune), Some(off)) = (&mut self.prune, &self.off) else { return };
        let full_scans = sample.ksm.full_scans.get().unwrap_or(0);
        // Who is off for the sake of a trust domain stays so, whatever it would bring.
        let outside: Vec<ProcessId> = off.listed(Why::Domain).iter().map(|guest| guest.process).collect();
        let guests = self.guests.lock();
        let targets: Vec<(&Guest, Target)> = list
            .guests
            .iter()
            .filter(|guest| !outside.contains(&guest.id()))
            .filter_map(|guest| Some((guest, guests.target(guest)?)))
            .filter(|(_, target)| target.check(false).is_ok())
            .collect();
        drop(guests);
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
        let target = found.and_then(|guest| Some((guest, self.guests.lock().target(guest)?)));
        let (Some((guest, target)), Some(off)) = (target, &self.off) else { return };
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
        self.guests.lock().ask_again(target.id);
        let has_obstacle = self.obstacles.contains(&target.id);
        if let Some(prune) = &mut self.prune {
            prune.done(target.id, self.now, outcome.is_ok(), has_obstacle);
        }
        // A switch-off that failed half way stays on the list: some of its memory may be off.
        if on
            && outcome.is_ok()
            && let Some(off) = &self.off
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
fn may_be_unmerged(root: &Root, guest: &Guest, target: &Target, off: &OffList) -> Result<(), String> {
    let headroom = Headroom { exposure_bytes: guest.figures.merged_bytes, ..Headroom::now(root) };
    headroom.check().map_err(|why| why.to_string())?;
    off.note(target, Why::Prune).map_err(|error| error.to_string())
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
        let root = Root::at(tree.path());
        let guests = SharedGuests::new(root.clone(), crate::guests::Uri::default());
        let service = GuestService::start(&root, guests, None, GuestsConfig::default(), false).unwrap();
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
