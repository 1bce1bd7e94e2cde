//! The daemon: one thread owns everything and waits on one channel with a deadline.
//!
//! At each deadline, which the policy sets, it takes a turn: observe, decide, act. Between two turns it answers
//! requests and takes in process events. Threads that wait for signals, the control socket and the kernel's
//! events only send. Whatever ends it, the settings are restored: [`crate::act::Control`] does so when dropped.

mod scans;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use ksmith_core::balance::KsmStep;
use ksmith_core::decide::Share;
use ksmith_core::decide::domains::{DomainsReport, OnExit};
use ksmith_core::knobs::{Knob, Knobs};
use sd_notify::NotifyState;
use tracing::{debug, error, info, warn};

use self::scans::{ForWhom, Scan};
use crate::act::{self, RestoreError, StateDir};
use crate::balance_service::{Ask, BalanceService};
use crate::config::{Config, ConfigError, PolicyKind};
use crate::control::{self, Answer, Asked, Request, StatusAnswer};
use crate::controller::{Controller, Tick};
use crate::domains::{Warden, give_back};
use crate::guest_service::GuestService;
use crate::guests::{OffList, SharedGuests, Uri};
use crate::live::LiveHost;
use crate::observe::{ProcessEvent, ProcessEvents};
use crate::own_use::OwnUse;
use crate::root::Root;
use crate::show::{DaemonStatus, Status};
use crate::signals::{Caught, Signal};
use crate::user_socket::{self, Budget, UserScan, UserScans};

/// What reaches the daemon between two turns.
#[derive(Debug)]
pub enum Message {
    /// Balance wants merging changed.
    Merging(KsmStep),
    /// From outside.
    Signal(Signal),
    /// From the control socket.
    Asked(Asked),
    /// From the user socket.
    UserScan(UserScan),
    /// From the kernel.
    Processes(Vec<ProcessEvent>),
}

impl From<Vec<ProcessEvent>> for Message {
    fn from(events: Vec<ProcessEvent>) -> Self {
        Self::Processes(events)
    }
}

/// Messages that may wait. Process events that do not fit become a scan; other senders wait.
const INBOX: usize = 256;

/// A turn is taken at least this often, so that the figures shown are not old and the watchdog is content.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// New processes are looked at no more often than this, however many start.
const GLANCE_PAUSE: Duration = Duration::from_millis(50);

/// How often the same setting's change by somebody else is worth a line.
const SAME_WARNING: Duration = Duration::from_secs(60);

/// How often the service manager is told what happens.
const SAME_STATUS: Duration = Duration::from_secs(10);

/// How old an answer about the status may be.
const FRESH: Duration = Duration::from_millis(100);

/// The daemon, in charge of the live host.
#[derive(Debug)]
pub struct Daemon {
    controller: Controller<LiveHost>,
    tenants: SharedGuests,
    off: Option<OffList>,
    warden: Warden,
    config: Config,
    source: ConfigSource,
    started: Instant,
    last: Option<Tick>,
    scan: Option<Scan>,
    budget: Budget,
    user_scans: UserScans,
    guests: Option<GuestService>,
    balance: Option<BalanceService>,
    watchdog: Option<Duration>,
    /// The newest answer about the status, and since when it is so.
    answered: Option<(Instant, Answer)>,
    warned: BTreeMap<String, Instant>,
    told: Option<(Instant, String)>,
}

/// What a daemon leaves to be put back at its end.
#[derive(Debug)]
pub struct Ended {
    host: LiveHost,
    off: Option<OffList>,
    on_exit: OnExit,
    libvirt: Uri,
}

impl Ended {
    /// Puts back the settings, and then the guests: whoever is switched on before might merge with those inside.
    /// Says what was done.
    ///
    /// # Errors
    /// A setting could not be put back. The guests stay as they are then.
    pub fn restore(self) -> Result<Vec<String>, RestoreError> {
        let restored = self.host.control.restore()?;
        let mut notes: Vec<String> = restored.changes.iter().map(|change| format!("restored {change}")).collect();
        notes.extend(restored.notes);
        if let Some(off) = &self.off {
            notes.extend(give_back(&Root::host(), off, self.on_exit, &self.libvirt, false));
        }
        Ok(notes)
    }
}

/// Where the configuration comes from, to be read again on SIGHUP.
#[derive(Debug, Clone, Default)]
pub struct ConfigSource {
    /// The file named on the command line.
    pub path: Option<PathBuf>,
    /// The policy named on the command line, which goes before the file's.
    pub policy: Option<PolicyKind>,
}

impl ConfigSource {
    /// Reads the configuration.
    ///
    /// # Errors
    /// It can't be read or is refused.
    pub fn load(&self) -> Result<Config, ConfigError> {
        let mut config = Config::load(self.path.as_deref())?;
        if let Some(policy) = self.policy {
            config.policy.kind = policy;
        }
        Ok(config)
    }
}

impl Daemon {
    /// A daemon over `host` as the configuration says.
    ///
    /// # Errors
    /// A file that the policy needs is refused.
    pub fn new(host: LiveHost, config: Config, source: ConfigSource) -> Result<Self, ConfigError> {
        let controller = Controller::new(host, config.policy()?, config.limits.clone());
        let budget = Budget::new(config.optin.cpu_seconds_per_hour);
        let root = Root::host();
        let off = OffList::open(&StateDir::of(&root));
        let off = off.inspect_err(|error| warn!("{error}; no guest will be pruned, or switched on again")).ok();
        Ok(Self {
            controller,
            tenants: SharedGuests::new(root.clone(), config.guests.libvirt_uri.clone()),
            warden: Warden::new(root, config.domains.clone(), off.clone()),
            off,
            config,
            source,
            started: Instant::now(),
            last: None,
            scan: None,
            user_scans: UserScans::new(budget.clone()),
            budget,
            guests: None,
            balance: None,
            watchdog: sd_notify::watchdog_enabled(),
            answered: None,
            warned: BTreeMap::new(),
            told: None,
        })
    }

    /// Works until a signal ends it, and gives the host back.
    ///
    /// # Errors
    /// The control socket or the thread for signals could not be had.
    pub fn run(mut self, signals: Caught) -> anyhow::Result<Ended> {
        let (sender, inbox) = bounded(INBOX);
        signals.forward(sender.clone(), Message::Signal)?;
        let _socket = control::serve(&self.config.daemon.control_socket, sender.clone(), Message::Asked).map_err(
            |error| {
                let path = &self.config.daemon.control_socket;
                match error.kind() {
                    io::ErrorKind::AlreadyExists => ConfigError::Occupied { path: path.clone() }.into(),
                    _ => anyhow::anyhow!("can't listen on the control socket {}: {error}", path.display()),
                }
            },
        )?;
        let users = user_socket::serve(&self.config.optin, self.budget.clone(), sender.clone(), Message::UserScan);
        let _users =
            users.inspect_err(|why| warn!("users can't ask at {}: {why}", self.config.optin.socket.display())).ok();
        self.balance = self.start_balance(&sender);
        let _events = ProcessEvents::listen(sender).inspect_err(|why| info!("{why}")).ok();
        let guests = GuestService::start(
            &Root::host(),
            self.tenants.clone(),
            self.off.clone(),
            self.config.guests.clone(),
            self.config.domains.is_enforced(),
        );
        self.guests = guests.inspect_err(|why| warn!("guests are not watched: {why}")).ok();
        self.prepare_ksmd();
        if let (Some(guests), Some(balance)) = (&self.guests, &self.balance) {
            guests.heed(balance.shared());
        }
        info!("policy {} is in charge", self.controller.policy_name());
        let mut is_ready = false;
        loop {
            let wait = self.turn();
            if !is_ready {
                notify(&[NotifyState::Ready]);
                is_ready = true;
            }
            if self.serve_until(Instant::now() + wait, &inbox) {
                break;
            }
        }
        notify(&[NotifyState::Stopping]);
        info!("ending; restoring the settings");
        self.balance = None;
        self.guests = None;
        Ok(Ended {
            off: self.off,
            on_exit: self.config.domains.on_exit,
            libvirt: self.config.guests.libvirt_uri,
            host: self.controller.into_host(),
        })
    }

    /// What is set once, before anything is scanned: where ksmd runs, and whether it merges across NUMA nodes.
    fn prepare_ksmd(&mut self) {
        let control = &mut self.controller.host_mut().control;
        if let Some(cpus) = &self.config.daemon.ksmd_cpus {
            match control.bind_ksmd(cpus) {
                Ok(Some(before)) => info!("ksmd runs on CPUs {cpus} only (before: {before})"),
                Ok(None) => {}
                Err(why) => warn!("{why}"),
            }
        }
        let Some(across) = self.config.daemon.merge_across_nodes else { return };
        match control.writer().set(Knob::MergeAcrossNodes, u64::from(across)) {
            Ok(Some(change)) => info!("{change} (configured)"),
            Ok(None) => {}
            Err(why) => warn!("{why}"),
        }
    }

    fn start_balance(&self, sender: &Sender<Message>) -> Option<BalanceService> {
        let host = Root::host();
        let configs = (self.config.balance.clone(), self.config.guests.libvirt_uri.clone());
        let sender = sender.clone();
        // Never waits: what does not fit is wanted again.
        let merging = move |step| drop(sender.try_send(Message::Merging(step)));
        let started = BalanceService::start(&host, &StateDir::of(&host), configs, merging);
        started.inspect_err(|why| warn!("guests are not balanced: {why}")).ok()
    }

    /// Observes, decides and acts once. Returns how long to wait for the next turn.
    fn turn(&mut self) -> Duration {
        let Self { controller, tenants, warden, .. } = self;
        for pid in warden.take_unknown() {
            controller.host_mut().observer.notice(ProcessEvent::Exec(pid));
        }
        if let Some(balance) = &self.balance {
            controller.host_mut().observer.pool_shortness = balance.shared().shortness();
        }
        let tick = controller.tick_guarded(|sample, decision| warden.guard(sample, tenants, decision));
        self.log(&tick);
        if self.watchdog.is_some() {
            notify(&[NotifyState::Watchdog]);
        }
        self.finish_scan(&tick);
        self.answered = None;
        if let Some(guests) = &mut self.guests {
            guests.look(&tick.sample);
        }
        if let Some(balance) = &mut self.balance {
            balance.meet(&tick.sample);
        }
        let wait = self.watchdog.map_or(LONGEST_WAIT, |period| (period / 3).min(LONGEST_WAIT));
        let wait = tick.decision.check_after.min(wait).min(self.warden.longest_wait());
        self.last = Some(tick);
        wait
    }

    fn log(&mut self, tick: &Tick) {
        let reason = &tick.decision.reason;
        self.warn_of_others(&tick.foreign);
        for change in &tick.applied.changes {
            // These two move with the load, many times a minute.
            if change.starts_with("pages_to_scan ") || change.starts_with("sleep_millisecs ") {
                debug!("{change} ({reason})");
            } else {
                info!("{change} ({reason})");
            }
        }
        let before = self.last.as_ref();
        // An error that persists is said once, not at every turn.
        let known = before.map_or(&[][..], |before| &before.applied.errors);
        for error in tick.applied.errors.iter().filter(|error| !known.contains(error)) {
            error!("{error}");
        }
        match before.map(|before| &before.decision.reason) {
            Some(before) if before == reason => {}
            Some(before) if before.state == reason.state => debug!("{reason}"),
            _ => info!("{reason}"),
        }
        self.tell_service_manager(reason.to_string());
    }

    /// Says that somebody else writes, and who it may be: once a minute for each setting.
    fn warn_of_others(&mut self, foreign: &[String]) {
        let now = Instant::now();
        let warned = &mut self.warned;
        let is_due = |sentence: &&String| {
            let knob = sentence.split(' ').next().unwrap_or_default();
            let is_due = warned.get(knob).is_none_or(|then| now.duration_since(*then) >= SAME_WARNING);
            if is_due {
                warned.insert(knob.to_owned(), now);
            }
            is_due
        };
        let due: Vec<&String> = foreign.iter().filter(is_due).collect();
        if due.is_empty() {
            return;
        }
        let holders = act::find(self.controller.host_mut().control.writer().root());
        let suspects: Vec<String> =
            holders.iter().map(|holder| format!("it may be {holder}: {}", holder.remedy())).collect();
        let suspects = if suspects.is_empty() {
            "no program that is known to control KSM runs here".to_owned()
        } else {
            suspects.join("; ")
        };
        for sentence in due {
            warn!("another program changed a setting: {sentence}; setting it back; {suspects}");
        }
    }

    /// Tells the service manager the newest sentence, and spares it those that come thick and fast.
    fn tell_service_manager(&mut self, sentence: String) {
        let is_due =
            self.told.as_ref().is_none_or(|(then, told)| then.elapsed() >= SAME_STATUS && *told != sentence);
        if is_due {
            notify(&[NotifyState::Status(&sentence)]);
            self.told = Some((Instant::now(), sentence));
        }
    }

    /// Takes in messages until the deadline. Returns whether it is time to end.
    fn serve_until(&mut self, deadline: Instant, inbox: &Receiver<Message>) -> bool {
        let mut next_glance = Instant::now();
        loop {
            let glance = self.controller.host_mut().observer.next_glance();
            let glance = glance.map(|wait| (Instant::now() + wait).max(next_glance)).filter(|at| *at < deadline);
            match inbox.recv_deadline(glance.unwrap_or(deadline)) {
                Err(RecvTimeoutError::Timeout) if glance.is_some() => {
                    if self.controller.host_mut().observer.glance() {
                        return false;
                    }
                    next_glance = Instant::now() + GLANCE_PAUSE;
                }
                Ok(Message::Signal(Signal::End)) => return true,
                Ok(Message::Signal(Signal::Reload)) => {
                    self.reload();
                    return false;
                }
                Ok(Message::Asked(asked)) => {
                    if self.answer(asked) {
                        return false;
                    }
                }
                Ok(Message::UserScan(scan)) => {
                    self.user_scans.add(scan);
                    if self.serve_users() {
                        return false;
                    }
                }
                Ok(Message::Merging(step)) => {
                    if self.change_merging(&step) {
                        return false;
                    }
                }
                // A guest that has started or ended does not wait for the deadline.
                Ok(Message::Processes(events)) => {
                    if self.controller.host_mut().observer.notice_all(events) {
                        return false;
                    }
                }
                Err(RecvTimeoutError::Timeout) => return false,
                // The signal thread holds a sender for ever.
                Err(RecvTimeoutError::Disconnected) => return true,
            }
            // The channel gives what it has even when the deadline has passed.
            if Instant::now() >= deadline {
                return false;
            }
        }
    }

    /// Reads the configuration again. One that is refused changes nothing.
    fn reload(&mut self) {
        notify(&[NotifyState::Reloading]);
        let loaded = self.source.load().and_then(|config| config.policy().map(|policy| (config, policy)));
        match loaded {
            Ok((config, policy)) => {
                self.budget.configure(config.optin.cpu_seconds_per_hour);
                if config.optin.socket != self.config.optin.socket
                    || config.optin.group != self.config.optin.group
                    || config.optin.worth_permille != self.config.optin.worth_permille
                {
                    warn!(
                        "[optin] has changed; its socket, group and worth take effect when the daemon is restarted"
                    );
                }
                if config.daemon != self.config.daemon {
                    warn!("[daemon] has changed; that takes effect when the daemon is restarted");
                }
                if let Some(guests) = &mut self.guests {
                    guests.configure(config.guests.clone(), config.domains.is_enforced());
                }
                if let Some(balance) = &self.balance {
                    balance.configure(config.balance.clone(), config.guests.libvirt_uri.clone());
                }
                let limits = config.limits.clone();
                // A policy that is the same goes on with what it knows. ksmtuned's has a file of its own besides.
                let is_same = config.policy == self.config.policy && config.policy.kind != PolicyKind::Ksmtuned;
                self.warden.configure(config.domains.clone());
                self.config = config;
                match &mut self.scan {
                    // The scan in progress goes on under its own limits; the new policy takes over after it.
                    Some(_) if is_same => {}
                    Some(scan) => scan.waiting = policy,
                    None if is_same => self.controller.limit(limits),
                    None => {
                        self.controller.replace(policy, limits);
                    }
                }
                info!("configuration read again; policy {}", self.config.policy.kind.name());
            }
            Err(error) => error!("the new configuration is refused, the old one stays in force: {error}"),
        }
        notify(&[NotifyState::Ready]);
    }

    /// Answers a request. Returns whether a turn is to be taken at once.
    fn answer(&mut self, asked: Asked) -> bool {
        let (request, reply, peer) = asked.into_parts();
        // That the peer has gone meanwhile is its own affair, here and below.
        match request {
            Request::Status => {
                let status = self.status();
                let _ = reply.send(status);
                false
            }
            Request::Guests => {
                match &self.guests {
                    Some(guests) => {
                        let observer = &mut self.controller.host_mut().observer;
                        observer.look_closely();
                        guests.report(observer.sample(), reply);
                    }
                    None => {
                        let message = "guests are not watched".to_owned();
                        let _ = reply.send(Answer::Error { message });
                    }
                }
                false
            }
            Request::Balance => self.ask_balance(Ask::Report, reply),
            Request::Hold { guest, release } => self.ask_balance(Ask::Hold { guest, release }, reply),
            Request::Resize { guest, give, bytes } => self.ask_balance(Ask::Resize { guest, give, bytes }, reply),
            Request::Switched { pid, on } => {
                if let Some(guests) = &self.guests {
                    guests.was_switched(pid, on);
                }
                let _ = reply.send(Answer::Noted);
                false
            }
            Request::Scan { .. } if self.scan.is_some() => {
                let message = "a scan is in progress already".to_owned();
                let _ = reply.send(Answer::Error { message });
                false
            }
            Request::Scan { passes, max_cpu } => {
                let Some(max_cpu) = max_cpu.map_or(Some(Share::WHOLE), Share::new) else {
                    let message = "max_cpu must be over 0 and at most 1".to_owned();
                    let _ = reply.send(Answer::Error { message });
                    return false;
                };
                let limits = control::scan_limits(&self.config.limits, max_cpu);
                info!("scanning on demand: {passes} passes with at most {} of a CPU", limits.max_cpu);
                self.begin_scan(passes.clamp(1, 1000), limits, ForWhom::Control { reply, peer });
                true
            }
        }
    }

    fn ask_balance(&self, ask: Ask, reply: Sender<Answer>) -> bool {
        match &self.balance {
            Some(balance) => balance.ask(ask, reply),
            None => {
                let message = "guests are not balanced: the daemon's log says why".to_owned();
                let _ = reply.send(Answer::Error { message });
            }
        }
        false
    }

    /// The status, never older than [`FRESH`]: whoever asks without pause does not make us look without pause.
    fn status(&mut self) -> Answer {
        if let Some((_, answer)) = self.answered.as_ref().filter(|(then, _)| then.elapsed() < FRESH) {
            return answer.clone();
        }
        let answer = self.status_now();
        self.answered = Some((Instant::now(), answer.clone()));
        answer
    }

    fn status_now(&mut self) -> Answer {
        let Some(tick) = &self.last else {
            return Answer::Error { message: "the daemon has not looked yet".to_owned() };
        };
        let own = OwnUse::now();
        // Looked at anew: the last turn's sample is from before its own changes.
        let observer = &mut self.controller.host_mut().observer;
        observer.look_closely();
        let sample = observer.sample();
        let guests = self.tenants.lock().list(&sample).guests;
        let domains = DomainsReport::of(&self.config.domains, &guests, self.warden.admitted());
        let status = Status {
            sample,
            domains: Some(domains),
            balance: self.balance.as_ref().and_then(BalanceService::status),
            ksmd_cpu_percent: self.controller.history().ksmd_share().map(|share| share * 100.0),
            daemon: Some(DaemonStatus {
                pid: std::process::id(),
                policy: self.controller.policy_name().to_owned(),
                state: tick.decision.reason.state.to_owned(),
                reason: tick.decision.reason.text.clone(),
                cpu_seconds: own.cpu.as_secs_f64(),
                rss_bytes: own.rss_bytes,
                uptime_seconds: self.started.elapsed().as_secs_f64(),
            }),
        };
        Answer::Status(StatusAnswer { json: status.to_json(), text: status.to_string() })
    }
}

/// Tells the service manager. That there is none, or that it does not listen, is no concern of ours.
fn notify(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        debug!("the service manager can't be told: {error}");
    }
}

/// What a dry run shows: the decision on what is there now.
pub fn plan(tick: &Tick) -> (String, Knobs) {
    (tick.decision.reason.to_string(), tick.decision.knobs.differing_from(&tick.sample.ksm))
}
