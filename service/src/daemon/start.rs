//! The daemon's start, its loop, and its end.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::Arc;

use crossbeam_channel::{Sender, bounded};
use ksmith_core::alarm::AlarmTracker;
use ksmith_core::controller::PolicyController;
use ksmith_core::knobs::{Knob, KnobSettings};
use ksmith_core::sample::Sample;
use ksmith_host::guests::OffList;
use ksmith_host::observe::ProcessEvents;
use sd_notify::NotifyState;
use tracing::{error, info, warn};

use super::cpus::KsmdBinding;
use super::inbox::INBOX;
use super::{ConfigSource, Daemon, DaemonEnvironment, DaemonHost, DaemonMessage, EndedDaemon};
use crate::balance_service::BalanceService;
use crate::config::{Config, ConfigError, KsmdCpus};
use crate::control::{self, FigureAnswers};
use crate::decision_rate::DecisionRate;
use crate::domains::DomainGuard;
use crate::folder::{FoldMode, FoldedFigures, Folder};
use crate::notifier::Notifier;
use crate::recorder::Recorder;
use crate::registry::GuestRegistry;
use crate::sketcher::Sketcher;
use crate::user_socket::{self, UserBudgets, UserScans};
use crate::view_socket;

impl<H: DaemonHost> Daemon<H> {
    /// Creates a daemon for `host` with this configuration.
    ///
    /// # Errors
    /// A file that the policy needs is refused, or this kernel can't keep domains apart as the configuration wants.
    pub fn new(
        mut host: H,
        environment: impl DaemonEnvironment + 'static,
        config: Config,
        source: ConfigSource,
    ) -> Result<Self, ConfigError> {
        let root = host.root().clone();
        let is_host = root.is_host();
        config.check_kernel(&root)?;
        let off = OffList::open(&host.state_dir());
        let off = off.inspect_err(|error| warn!("{error}; no guest will be pruned, or switched on again")).ok();
        host.set_split_losses(config.huge_pages.split_loss_cpus);
        let mut controller = PolicyController::new(host, config.policy()?, config.limits.clone());
        controller.set_keep_terms(config.huge_pages.keep_terms(&root));
        let budget = UserBudgets::new(config.optin.cpu_seconds_per_hour, config.optin.passes_per_hour);
        let alarms = AlarmTracker::new(config.notify.profit_after());
        Ok(Self {
            controller,
            guard: DomainGuard::new(root, config.domains.clone(), off.clone()),
            off,
            config,
            source,
            started: environment.now(),
            event_turn_from: environment.now(),
            environment: Box::new(environment),
            last: None,
            scan: None,
            scan_readings: None,
            pause: None,
            starts_ksmd: false,
            unrestored: None,
            user_scans: UserScans::new(budget.clone()),
            budget,
            folded: FoldedFigures::default(),
            guests: None,
            balance: None,
            recorder: None,
            sketcher: None,
            folder: None,
            fold_command: is_host.then(Folder::own_command),
            alarms,
            notifier: None,
            breach: (None, None),
            sampled: None,
            warned: BTreeMap::new(),
            binding: KsmdBinding::default(),
            given_up: (None, BTreeSet::new()),
            waiting: None,
            told: None,
            logged: DecisionRate::default(),
        })
    }

    /// Runs until a signal ends the daemon, and returns the parts to restore. `signals` starts to send signals into the
    /// inbox.
    ///
    /// # Errors
    /// The control socket or the thread for signals could not be created.
    pub fn run(
        mut self,
        signals: impl FnOnce(Sender<DaemonMessage>) -> io::Result<()>,
    ) -> anyhow::Result<EndedDaemon<H>> {
        let (sender, inbox) = bounded(INBOX);
        signals(sender.clone())?;
        let path = &self.config.daemon.control_socket;
        let figures = FigureAnswers::new(sender.clone(), DaemonMessage::Asked);
        let _socket = control::serve(path, sender.clone(), DaemonMessage::Asked, Arc::clone(&figures))
            .map_err(|why| no_socket(path, why))?;
        let budget = self.budget.clone();
        let users = user_socket::serve(&self.config.optin, budget, sender.clone(), DaemonMessage::UserScans);
        let _users = users
            .inspect_err(|why| warn!("users can't send requests to {}: {why}", self.config.optin.socket.display()))
            .ok();
        let view = view_socket::serve(&self.config.view, figures);
        let _view = view
            .inspect_err(|why| warn!("no figures are served at {}: {why}", self.config.view.socket.display()))
            .ok();
        self.guests = self.start_guests();
        self.balance = self.start_balance(&sender);
        self.recorder = self.start_recorder();
        self.sketcher = self.start_sketcher();
        self.start_folder();
        let notifier = Notifier::start(self.config.notify.clone());
        self.notifier = notifier.inspect_err(|why| warn!("alarms are only logged: {why}")).ok();
        let is_host = self.controller.host().root().is_host();
        let ends = sender.clone();
        // Where the inbox is full, a turn is due anyway.
        self.controller.host_mut().on_rest(Box::new(move || {
            let _ = ends.try_send(DaemonMessage::Rest);
        }));
        let events = is_host.then(|| ProcessEvents::listen(sender));
        let _events = events.and_then(|events| events.inspect_err(|why| info!("{why}")).ok());
        self.prepare_ksmd();
        if let (Some(guests), Some(balance)) = (&self.guests, &self.balance) {
            let shared = balance.shared();
            guests.follow(balance.waker(), move || !shared.refuses_switches());
        }
        info!("policy {} is in charge", self.controller.policy_name());
        let mut is_ready = false;
        let mut lost;
        loop {
            let wait = self.turn();
            lost = self.controller.host().find_lost_state();
            if let Some(lost) = &lost {
                error!("{lost}");
                self.write_guests_anew();
                break;
            }
            if !is_ready {
                self.environment.notify(&[NotifyState::Ready]);
                is_ready = true;
            }
            let deadline = self.environment.now() + wait;
            if self.serve_until(deadline, &inbox) {
                break;
            }
        }
        self.environment.notify(&[NotifyState::Stopping]);
        info!("ending; restoring the settings");
        Ok(EndedDaemon {
            day_clock: self.environment.day_clock(),
            host: self.controller.into_host(),
            balance: self.balance,
            guests: self.guests,
            off: self.off,
            recorder: self.recorder,
            sketcher: self.sketcher,
            folder: self.folder,
            notifier: self.notifier,
            lost,
        })
    }

    /// Writes the entries about guests anew into a state directory that was removed, for the case of a kill.
    fn write_guests_anew(&self) {
        let off = self.off.as_ref().map(OffList::write_anew);
        let balance = self.balance.as_ref().map(BalanceService::write_anew);
        for why in [off, balance].into_iter().flatten().filter_map(Result::err) {
            error!("after a kill nothing can be given back to guests: {why}");
        }
    }

    fn start_guests(&self) -> Option<GuestRegistry> {
        let started = GuestRegistry::start(
            self.controller.host().root(),
            self.off.clone(),
            self.config.guests.clone(),
            self.config.domains.is_enforced(),
        );
        started.inspect_err(|why| warn!("guests are not watched: {why}")).ok()
    }

    fn start_balance(&self, sender: &Sender<DaemonMessage>) -> Option<BalanceService> {
        let host = self.controller.host();
        let config = self.config.balance.clone();
        let sender = sender.clone();
        // Never waits: a step that does not fit is wanted again.
        let merging = move |step| drop(sender.try_send(DaemonMessage::Merging(step)));
        let published = self.guests.as_ref().map(GuestRegistry::published).unwrap_or_default();
        let started =
            BalanceService::start(host.root(), &host.state_dir(), config, published, self.folded.clone(), merging);
        started.inspect_err(|why| warn!("guests are not balanced: {why}")).ok()
    }

    fn start_recorder(&self) -> Option<Recorder> {
        if !self.config.history.enabled {
            return None;
        }
        let published = self.guests.as_ref().map(GuestRegistry::published).unwrap_or_default();
        let guests = move |sample: &Sample| published.newest().name(sample).guests;
        let (root, clock) = (self.controller.host().root(), self.environment.day_clock());
        let started = Recorder::start(root, &self.config.history, self.config.guest_rules(), guests, clock);
        started.inspect_err(|why| warn!("no history is recorded: {why}")).ok()
    }

    fn start_sketcher(&self) -> Option<Sketcher> {
        if !self.config.sketch.enabled {
            return None;
        }
        let published = self.guests.as_ref().map(GuestRegistry::published).unwrap_or_default();
        let guests = move |sample: &Sample| published.newest().name(sample).guests;
        let terms = (self.config.domains.clone(), self.config.balance.clone());
        let started = Sketcher::start(self.controller.host().root(), &self.config.sketch, terms, guests);
        started.inspect_err(|why| warn!("no sketch file is kept: {why}")).ok()
    }

    /// Starts the folder, if the configuration wants one: for folding, or to put together the huge pages of pruned guests. Once
    /// started it stays, and watches folded memory.
    pub(super) fn start_folder(&mut self) {
        let is_wanted = self.config.fold.mode != FoldMode::Off || self.config.guests.prunes_for_splits();
        if self.folder.is_some() || !is_wanted {
            return;
        }
        let Some(command) = self.fold_command.clone() else { return };
        let published = self.guests.as_ref().map(GuestRegistry::published).unwrap_or_default();
        let off = self.off.clone();
        let guests = move |sample: &Sample| {
            let mut guests = published.newest().name(sample).guests;
            if let Some(off) = &off {
                off.mark(&mut guests);
            }
            guests
        };
        let started = Folder::start(command, self.config.fold.clone(), self.folded.clone(), guests);
        self.folder = started.inspect_err(|why| warn!("nothing is folded: {why}")).ok();
    }

    /// Applies the settings that are written once, before anything is scanned: ksmd's CPUs, and merging across NUMA
    /// nodes.
    fn prepare_ksmd(&mut self) {
        if let Some(KsmdCpus::Listed(cpus)) = self.config.daemon.ksmd_cpus.clone() {
            self.bind_ksmd(&cpus);
        }
        let host = self.controller.host_mut();
        let Some(across) = self.config.daemon.merge_across_nodes else { return };
        let applied = host.apply(&KnobSettings::none().with(Knob::MergeAcrossNodes, u64::from(across)));
        applied.changes.iter().for_each(|change| info!("{change} (configured)"));
        applied.errors.iter().for_each(|why| warn!("{why}"));
    }
}

fn no_socket(path: &Path, error: io::Error) -> anyhow::Error {
    match error.kind() {
        io::ErrorKind::AlreadyExists => ConfigError::Occupied { path: path.to_owned() }.into(),
        _ => anyhow::anyhow!("can't listen on the control socket {}: {error}", path.display()),
    }
}
