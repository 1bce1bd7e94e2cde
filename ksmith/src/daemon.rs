//! The daemon: one thread owns everything and waits on one channel with a deadline.
//!
//! At each deadline, which the policy sets, it takes a turn: observe, decide, act. Between two turns it answers
//! requests and takes in process events. Threads that wait for signals, the control socket and the kernel's
//! events only send. Whatever ends it, the settings are restored: [`crate::act::Control`] does so when dropped.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use ksmith_core::decide::{Limits, OnDemand, Policy};
use ksmith_core::knobs::Knobs;
use sd_notify::NotifyState;
use tracing::{debug, error, info, warn};

use crate::config::{Config, ConfigError, PolicyKind};
use crate::control::{self, Answer, Asked, Figures, Request, ScanAnswer, StatusAnswer};
use crate::controller::{Controller, Tick};
use crate::live::LiveHost;
use crate::observe::{ProcessEvent, ProcessEvents};
use crate::own_use::OwnUse;
use crate::show::{DaemonStatus, Status};
use crate::signals::{Caught, Signal};

/// What reaches the daemon between two turns.
#[derive(Debug)]
pub enum Message {
    /// From outside.
    Signal(Signal),
    /// From the control socket.
    Asked(Asked),
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

/// The daemon, in charge of the live host.
#[derive(Debug)]
pub struct Daemon {
    controller: Controller<LiveHost>,
    config: Config,
    source: ConfigSource,
    started: Instant,
    last: Option<Tick>,
    scan: Option<Scan>,
    watchdog: Option<Duration>,
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

/// A scan on demand in progress, and the policy that waits for its end.
#[derive(Debug)]
struct Scan {
    waiting: Box<dyn Policy>,
    before: Option<Figures>,
    reply: crossbeam_channel::Sender<Answer>,
}

impl Daemon {
    /// A daemon over `host` as the configuration says.
    ///
    /// # Errors
    /// A file that the policy needs is refused.
    pub fn new(host: LiveHost, config: Config, source: ConfigSource) -> Result<Self, ConfigError> {
        let controller = Controller::new(host, config.policy()?, config.limits.clone());
        Ok(Self {
            controller,
            config,
            source,
            started: Instant::now(),
            last: None,
            scan: None,
            watchdog: sd_notify::watchdog_enabled(),
        })
    }

    /// Works until a signal ends it, and gives the host back.
    ///
    /// # Errors
    /// The control socket or the thread for signals could not be had.
    pub fn run(mut self, signals: Caught) -> anyhow::Result<LiveHost> {
        let (sender, inbox) = bounded(INBOX);
        signals.forward(sender.clone(), Message::Signal)?;
        let _socket = control::serve(&self.config.daemon.control_socket, sender.clone(), Message::Asked).map_err(
            |error| {
                let path = self.config.daemon.control_socket.display();
                anyhow::anyhow!("can't listen on the control socket {path}: {error}")
            },
        )?;
        let _events = ProcessEvents::listen(sender).inspect_err(|why| info!("{why}")).ok();
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
        Ok(self.controller.into_host())
    }

    /// Observes, decides and acts once. Returns how long to wait for the next turn.
    fn turn(&mut self) -> Duration {
        let tick = self.controller.tick();
        self.log(&tick);
        if self.watchdog.is_some() {
            notify(&[NotifyState::Watchdog]);
        }
        self.finish_scan(&tick);
        let wait = self.watchdog.map_or(LONGEST_WAIT, |period| (period / 3).min(LONGEST_WAIT));
        let wait = tick.decision.check_after.min(wait);
        self.last = Some(tick);
        wait
    }

    fn log(&self, tick: &Tick) {
        let before = self.last.as_ref();
        let reason = &tick.decision.reason;
        for foreign in &tick.foreign {
            warn!("another program changed a setting: {foreign}; setting it back");
        }
        for change in &tick.applied.changes {
            debug!("{change} ({reason})");
        }
        // An error that persists is said once, not at every turn.
        let known = before.map_or(&[][..], |before| &before.applied.errors);
        for error in tick.applied.errors.iter().filter(|error| !known.contains(error)) {
            error!("{error}");
        }
        if before.is_none_or(|before| before.decision.reason.state != reason.state) {
            info!("{reason}");
            notify(&[NotifyState::Status(&reason.to_string())]);
        }
    }

    /// Takes in messages until the deadline. Returns whether it is time to end.
    fn serve_until(&mut self, deadline: Instant, inbox: &Receiver<Message>) -> bool {
        loop {
            match inbox.recv_deadline(deadline) {
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
                Ok(Message::Processes(events)) => {
                    self.controller.host_mut().observer.notice_all(events);
                    // The channel gives what it has even when the deadline has passed.
                    if Instant::now() >= deadline {
                        return false;
                    }
                }
                Err(RecvTimeoutError::Timeout) => return false,
                // The signal thread holds a sender for ever.
                Err(RecvTimeoutError::Disconnected) => return true,
            }
        }
    }

    /// Reads the configuration again. One that is refused changes nothing.
    fn reload(&mut self) {
        notify(&[NotifyState::Reloading]);
        let loaded = self.source.load().and_then(|config| config.policy().map(|policy| (config, policy)));
        match loaded {
            Ok((config, policy)) => {
                if config.daemon != self.config.daemon {
                    warn!("[daemon] has changed; that takes effect when the daemon is restarted");
                }
                let limits = config.limits.clone();
                self.config = config;
                match &mut self.scan {
                    // The scan in progress goes on under its own limits; the new policy takes over after it.
                    Some(scan) => scan.waiting = policy,
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
    fn answer(&mut self, Asked { request, reply }: Asked) -> bool {
        // That the peer has gone meanwhile is its own affair, here and below.
        match request {
            Request::Status => {
                let status = self.status();
                let _ = reply.send(status);
                false
            }
            Request::Scan { .. } if self.scan.is_some() => {
                let message = "a scan is in progress already".to_owned();
                let _ = reply.send(Answer::Error { message });
                false
            }
            Request::Scan { passes } => {
                info!("scanning on demand: {passes} passes");
                let policy = Box::new(OnDemand::new(passes.clamp(1, 1000)));
                let limits = Limits { max_cpu: self.config.limits.max_cpu, ..Limits::default() };
                let waiting = self.controller.replace(policy, limits);
                self.scan = Some(Scan { waiting, before: None, reply });
                true
            }
        }
    }

    fn finish_scan(&mut self, tick: &Tick) {
        let Some(scan) = &mut self.scan else { return };
        let before = *scan.before.get_or_insert_with(|| Figures::of(&tick.sample));
        let nothing = tick.sample.processes.is_empty() && tick.sample.ksm.tracked_pages() == 0;
        if tick.decision.reason.state != OnDemand::DONE && !nothing {
            return;
        }
        if let Some(scan) = self.scan.take() {
            let after = Figures::of(&tick.sample);
            let _ = scan.reply.send(Answer::Scan(ScanAnswer { before, after }));
            self.controller.replace(scan.waiting, self.config.limits.clone());
        }
    }

    fn status(&mut self) -> Answer {
        let Some(tick) = &self.last else {
            return Answer::Error { message: "the daemon has not looked yet".to_owned() };
        };
        let own = OwnUse::now();
        let status = Status {
            // Looked at anew: the last turn's sample is from before its own changes.
            sample: self.controller.host_mut().observer.sample(),
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
