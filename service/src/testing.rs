//! A simulated host for tests of the daemon: ksmd is [`ksmith_core::sim`]'s, time passes only when the daemon waits.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::fs;
use std::io::{self, BufRead, BufReader, IoSlice, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use ksmith_core::controller::{ApplyOutcome, KsmHost};
use ksmith_core::huge_worth::SplitLosses;
use ksmith_core::knobs::{Knob, KnobChange, KnobSettings};
use ksmith_core::lease;
use ksmith_core::reading::Reading;
use ksmith_core::sample::{FoldedFigure, GivenUpList, ProcessId, Sample};
use ksmith_core::sim::{SimConfig, SimMachine};
use ksmith_host::act::{AffinityError, LostState, RestoreError};
use ksmith_host::observe::ProcessEvent;
use ksmith_host::other_controllers::ControllerProcess;
use ksmith_host::root::Root;
use ksmith_host::signals::Signal;
use rustix::cmsg_space;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use sd_notify::NotifyState;
use tempfile::TempDir;

use crate::control::{ControlReply, ControlRequest, PeerGuard, PendingRequest, watch_peer};
use crate::daemon::{ConfigSource, Daemon, DaemonEnvironment, DaemonHost, DaemonMessage};

/// Sends text to a socket, and returns the first line of the answer, which is empty if the connection was closed.
pub fn say(socket: &Path, text: &[u8]) -> String {
    let mut stream = UnixStream::connect(socket).unwrap();
    // A peer that is refused may be closed by now.
    let _ = stream.write_all(text);
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    line
}

/// Sends a byte with a descriptor over a socket.
pub fn pass_descriptor(socket: impl AsFd, file: impl AsFd) -> Result<usize, Errno> {
    let files = [file.as_fd()];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut passed = SendAncillaryBuffer::new(&mut space);
    assert!(passed.push(SendAncillaryMessage::ScmRights(&files)));
    sendmsg(socket, &[IoSlice::new(b"x")], &mut passed, SendFlags::NOSIGNAL)
}

/// Copies a program, in a process of its own: a test that forks while this one has the copy open for writing would keep
/// it from being started (`ETXTBSY`).
pub fn copy_program(from: &str, to: &Path) {
    assert!(Command::new("cp").arg("--").arg(from).arg(to).status().unwrap().success(), "{from} can be copied");
}

/// The simulated host, as the test and the daemon share it.
pub struct SimulatedWorld {
    pub machine: SimMachine,
    /// First values of what the daemon changed.
    originals: KnobSettings,
    /// Other programs that control KSM.
    pub holders: Vec<ControllerProcess>,
    /// Process events that reached the host.
    pub noticed: Vec<ProcessEvent>,
    /// True if process events are worth a turn at once.
    pub is_urgent: bool,
    /// The list of CPUs that ksmd was bound to.
    pub ksmd_cpus: Option<String>,
    /// Turns taken so far, each with its time.
    pub turns: Vec<Duration>,
    /// The samples taken outside of turns.
    pub other_samples: usize,
    /// The time that each sample takes.
    pub sample_takes: Duration,
    /// Messages to the service manager, one line each.
    pub told: Vec<String>,
    /// Added to every sample.
    pub hidden_processes: u64,
    /// True if a process shows that it offers memory before ksmd has visited it, as from Linux 6.14 on.
    pub shows_mergeable: bool,
    pub given_up: GivenUpList,
    /// A setting that can't be written.
    pub refuses: Option<Knob>,
    /// A setting that waits for ksmd.
    pub delays: Option<Knob>,
    /// True if no setting can be written.
    pub is_read_only: bool,
    /// True once the state directory was removed.
    pub is_state_lost: bool,
    /// The wall clock's difference from the time that has passed, in milliseconds: an administrator has set it.
    pub clock_set_by: i64,
    /// Time for which the host was suspended. The clock of the samples runs on meanwhile, and the daemon's does not.
    pub suspended: Duration,
    pub shortness: f64,
    /// The folded memory that the daemon reported.
    pub folded_bytes: Option<u64>,
    /// The losses by split huge pages that the daemon has set.
    pub split_losses: SplitLosses,
    /// Memory to cover the exposure, if it is not the machine's.
    pub headroom: Option<u64>,
    /// The zeros that splits have freed, if page tables are read.
    pub freed: Option<FreedZeros>,
    watchdog: Option<Duration>,
}

impl SimulatedWorld {
    /// Has the daemon stand still this long, as after SIGSTOP. Its lease ends, so ksmd sleeps meanwhile.
    pub fn stand_still(&mut self, time: Duration) {
        let sleep = self.knob(Knob::SleepMillisecs);
        self.machine.write(Knob::SleepMillisecs, lease::next_value(sleep)).unwrap();
        self.machine.advance(time);
        self.machine.write(Knob::SleepMillisecs, sleep).unwrap();
    }

    pub fn knob(&self, knob: Knob) -> u64 {
        KnobSettings::current(&self.machine.sample().ksm).get(knob).unwrap()
    }
}

/// Zeros that splits have freed, which only readings of page tables show.
#[derive(Debug, Clone, Copy, Default)]
pub struct FreedZeros {
    pub bytes: u64,
    /// The bytes at the last reading.
    pub read_bytes: u64,
    /// The time that a reading takes.
    pub takes: Duration,
    /// The time at which the reading that is under way is done.
    pub done_at: Option<Duration>,
}

impl FreedZeros {
    /// Returns the bytes that are known at a time.
    fn known_bytes(&mut self, now: Duration) -> u64 {
        if self.done_at.take_if(|done| *done <= now).is_some() {
            self.read_bytes = self.bytes;
        }
        self.read_bytes
    }
}

type Shared = Arc<Mutex<SimulatedWorld>>;

/// A host over a [`SimulatedWorld`]. Files are below a directory of the test's own.
pub struct FakeDaemonHost {
    root: Root,
    world: Shared,
}

impl fmt::Debug for FakeDaemonHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FakeHost")
    }
}

impl FakeDaemonHost {
    fn world(&self) -> MutexGuard<'_, SimulatedWorld> {
        self.world.lock().unwrap()
    }

    fn take_sample(&self) -> Sample {
        let mut world = self.world();
        let (began, takes) = (world.machine.now(), world.sample_takes);
        world.machine.advance(takes);
        let mut sample = world.machine.sample();
        (sample.at, sample.took) = (began + world.suspended, takes);
        sample.hidden_processes = world.hidden_processes;
        sample.is_ksm_read_only = world.is_read_only;
        sample.shows_mergeable = world.shows_mergeable;
        if !sample.shows_mergeable && sample.ksm.tracked_pages() == 0 {
            sample.processes.clear();
        }
        sample.given_up = world.given_up.clone();
        sample.pool_shortness = world.shortness;
        sample.folded_bytes = world.folded_bytes;
        let now = world.machine.now();
        if let Some(freed) = &mut world.freed {
            sample.folded_bytes = Some(freed.known_bytes(now));
        }
        if let (Some(bytes), Reading::Value(memory)) = (world.headroom, &mut sample.host.memory) {
            (memory.available, memory.swap_free) = (Some(bytes), Some(0));
        }
        sample
    }
}

impl KsmHost for FakeDaemonHost {
    fn sample(&mut self) -> Sample {
        let mut world = self.world();
        let now = world.machine.now();
        world.turns.push(now);
        drop(world);
        self.take_sample()
    }

    fn apply(&mut self, knobs: &KnobSettings) -> ApplyOutcome {
        let mut world = self.world();
        let before = KnobSettings::current(&world.machine.sample().ksm);
        let mut applied = ApplyOutcome::default();
        // As on the live host: what waits for ksmd to sleep holds up all that is written after it.
        let waits = |(knob, value): &(Knob, u64)| world.delays == Some(*knob) && before.get(*knob) != Some(*value);
        if let Some((knob, _)) = knobs.iter().find(waits) {
            applied.waiting.push(format!("{knob} is not written yet"));
            return applied;
        }
        for (knob, value) in knobs.iter() {
            let Some(old) = before.get(knob).filter(|old| *old != value) else { continue };
            if world.originals.get(knob).is_none() {
                world.originals.set(knob, old);
            }
            if world.refuses == Some(knob) || world.is_read_only {
                applied.errors.push(format!("{knob} is refused"));
                continue;
            }
            match world.machine.write(knob, value) {
                Ok(()) => applied.changes.push(KnobChange { knob, old, new: value }),
                Err(error) => applied.errors.push(error.to_string()),
            }
        }
        applied
    }
}

impl DaemonHost for FakeDaemonHost {
    fn root(&self) -> &Root {
        &self.root
    }

    fn sample_now(&mut self, _closely: bool) -> Sample {
        self.world().other_samples += 1;
        self.take_sample()
    }

    fn notice(&mut self, events: Vec<ProcessEvent>) -> bool {
        let mut world = self.world();
        world.noticed.extend(events);
        world.is_urgent
    }

    fn look_at_all(&mut self) {}

    fn renew_readings(&mut self) {
        let mut world = self.world();
        let now = world.machine.now();
        if let Some(freed) = &mut world.freed {
            freed.done_at = Some(now + freed.takes);
        }
    }

    fn cancel_readings(&mut self) {
        if let Some(freed) = &mut self.world().freed {
            freed.done_at = None;
        }
    }

    fn is_renewing_readings(&self) -> bool {
        self.world().freed.is_some_and(|freed| freed.done_at.is_some())
    }

    fn set_pool_shortness(&mut self, shortness: f64) {
        self.world().shortness = shortness;
    }

    fn set_split_losses(&mut self, losses: SplitLosses) {
        self.world().split_losses = losses;
    }

    fn set_folded(&mut self, folded: BTreeMap<ProcessId, FoldedFigure>) {
        self.world().folded_bytes = folded.into_values().map(|figure| figure.bytes).reduce(u64::saturating_add);
    }

    fn bind_ksmd(&mut self, cpus: &str) -> Result<Option<String>, AffinityError> {
        Ok(self.world().ksmd_cpus.replace(cpus.to_owned()))
    }

    fn find_lost_state(&self) -> Option<LostState> {
        self.world().is_state_lost.then(LostState::default)
    }

    fn holders(&self) -> Vec<ControllerProcess> {
        self.world().holders.clone()
    }

    fn restore(mut self) -> Result<Vec<String>, RestoreError> {
        let originals = self.world().originals.clone();
        Ok(self.apply(&originals).changes.iter().map(|change| format!("restored {change}")).collect())
    }
}

type Act = Box<dyn FnOnce(&mut SimulatedWorld) -> Option<DaemonMessage> + Send>;

/// A clock that stands still unless the daemon waits, and a script of events with their times.
struct FakeEnvironment {
    base: Instant,
    world: Shared,
    script: VecDeque<(Duration, Act)>,
}

impl fmt::Debug for FakeEnvironment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FakeEnvironment")
    }
}

impl DaemonEnvironment for FakeEnvironment {
    fn now(&self) -> Instant {
        self.base + self.world.lock().unwrap().machine.now()
    }

    fn day_clock(&self) -> i64 {
        let world = self.world.lock().unwrap();
        BEGIN + i64::try_from(world.machine.now().as_millis()).unwrap() + world.clock_set_by
    }

    fn receive(
        &mut self,
        inbox: &Receiver<DaemonMessage>,
        deadline: Instant,
    ) -> Result<DaemonMessage, RecvTimeoutError> {
        loop {
            if let Ok(message) = inbox.try_recv() {
                return Ok(message);
            }
            let mut world = self.world.lock().unwrap();
            let until = deadline.duration_since(self.base);
            let Some((at, _)) = self.script.front() else { return Ok(DaemonMessage::Signal(Signal::End)) };
            let next = (*at).min(until);
            let now = world.machine.now();
            world.machine.advance(next.saturating_sub(now));
            if *at > until {
                return Err(RecvTimeoutError::Timeout);
            }
            let act = self.script.pop_front().map(|(_, act)| act).unwrap();
            if let Some(message) = act(&mut world) {
                return Ok(message);
            }
        }
    }

    fn receive_waiting(&mut self, inbox: &Receiver<DaemonMessage>) -> Option<DaemonMessage> {
        let mut world = self.world.lock().unwrap();
        let now = world.machine.now();
        while self.script.front().is_some_and(|(at, _)| *at <= now) {
            let act = self.script.pop_front().map(|(_, act)| act).unwrap();
            if let Some(message) = act(&mut world) {
                return Some(message);
            }
        }
        inbox.try_recv().ok()
    }

    fn notify(&mut self, states: &[NotifyState<'_>]) {
        self.world.lock().unwrap().told.extend(states.iter().map(ToString::to_string));
    }

    fn watchdog(&self) -> Option<Duration> {
        self.world.lock().unwrap().watchdog
    }
}

/// The wall clock at the beginning, in milliseconds since 1970.
pub const BEGIN: i64 = 1_795_467_600_000;

/// A daemon to be run over a [`SimulatedWorld`], and the events of the run.
pub struct DaemonScene {
    directory: TempDir,
    world: Shared,
    script: Vec<(Duration, Act)>,
    pub source: ConfigSource,
}

/// Sets the kernel release of the host below `root`.
fn write_release(root: &Path, release: &str) {
    let directory = root.join("proc/sys/kernel");
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join("osrelease"), format!("{release}\n")).unwrap();
}

/// The outcome of a [`DaemonScene`].
#[derive(Debug)]
pub struct SceneOutcome {
    /// The daemon's log, at the level DEBUG.
    pub log: String,
    /// Messages about restored settings.
    pub restored: Vec<String>,
    /// The fault for which the daemon ended before the end of the script.
    pub lost: Option<LostState>,
}

impl SceneOutcome {
    /// Returns the number of times that the log has this sentence.
    pub fn count(&self, sentence: &str) -> usize {
        self.log.matches(sentence).count()
    }
}

impl DaemonScene {
    /// Creates a host as after boot, and a daemon with this configuration.
    pub fn new(config: &str) -> Self {
        let world = SimulatedWorld {
            machine: SimMachine::new(SimConfig::default()),
            originals: KnobSettings::none(),
            holders: Vec::new(),
            noticed: Vec::new(),
            is_urgent: false,
            ksmd_cpus: None,
            turns: Vec::new(),
            other_samples: 0,
            sample_takes: Duration::ZERO,
            told: Vec::new(),
            hidden_processes: 0,
            shows_mergeable: true,
            given_up: GivenUpList::default(),
            refuses: None,
            is_read_only: false,
            is_state_lost: false,
            delays: None,
            clock_set_by: 0,
            suspended: Duration::ZERO,
            shortness: 0.0,
            folded_bytes: None,
            split_losses: SplitLosses::default(),
            headroom: None,
            freed: None,
            watchdog: None,
        };
        let directory = tempfile::tempdir().unwrap();
        write_release(directory.path(), "6.18.0");
        let file = directory.path().join("ksmith.toml");
        let source = ConfigSource { path: Some(file), policy: None };
        let scene = Self { directory, world: Arc::new(Mutex::new(world)), script: Vec::new(), source };
        scene.configure(config);
        scene
    }

    pub fn world(&self) -> MutexGuard<'_, SimulatedWorld> {
        self.world.lock().unwrap()
    }

    pub fn watchdog(&mut self, period: Duration) {
        self.world().watchdog = Some(period);
    }

    /// Returns the root of the host's files.
    pub fn root(&self) -> &Path {
        self.directory.path()
    }

    /// Returns the read-only socket of the daemon.
    pub fn view_socket(&self) -> PathBuf {
        self.root().join("view")
    }

    pub fn control_socket(&self) -> PathBuf {
        self.root().join("control")
    }

    pub fn config_file(&self) -> PathBuf {
        self.root().join("ksmith.toml")
    }

    /// Completes a configuration with sockets of the scene's own.
    pub fn complete(&self, config: &str) -> String {
        let optin = self.root().join("users");
        let view = self.view_socket();
        format!(
            "{config}\n[daemon]\ncontrol_socket = {:?}\n[view]\nsocket = {view:?}\n[optin]\nsocket = {optin:?}\n",
            self.control_socket()
        )
    }

    /// Sets the kernel release of the host.
    pub fn set_release(&self, release: &str) {
        write_release(self.root(), release);
    }

    /// Writes the configuration's file.
    pub fn configure(&self, config: &str) {
        fs::write(self.config_file(), self.complete(config)).unwrap();
    }

    /// Adds to the table `[optin]` of the configuration's file.
    pub fn configure_optin(&self, config: &str) {
        let text = fs::read_to_string(self.config_file()).unwrap();
        fs::write(self.config_file(), text + config).unwrap();
    }

    /// Schedules an event at a time in seconds.
    pub fn at(&mut self, seconds: u64, act: impl FnOnce(&mut SimulatedWorld) + Send + 'static) {
        self.act(seconds, |world| {
            act(world);
            None
        });
    }

    /// Schedules a new configuration and a reload.
    pub fn reload_at(&mut self, seconds: u64, config: &str) {
        let (file, text) = (self.config_file(), self.complete(config));
        self.act(seconds, move |_| {
            fs::write(file, text).unwrap();
            Some(DaemonMessage::Signal(Signal::Reload))
        });
    }

    /// Schedules a message to the daemon.
    pub fn send_at(&mut self, seconds: u64, message: DaemonMessage) {
        self.act(seconds, |_| Some(message));
    }

    /// Schedules a request to the daemon. The peer waits as long as the last part is held.
    pub fn ask_at(&mut self, seconds: u64, request: ControlRequest) -> (Receiver<ControlReply>, PeerGuard) {
        let (reply, answers) = bounded(1);
        let (waiting, peer) = watch_peer();
        self.send_at(seconds, DaemonMessage::Asked(PendingRequest::new(request, reply, peer)));
        (answers, waiting)
    }

    fn act(
        &mut self,
        seconds: u64,
        act: impl FnOnce(&mut SimulatedWorld) -> Option<DaemonMessage> + Send + 'static,
    ) {
        self.script.push((Duration::from_secs(seconds), Box::new(act)));
    }

    /// Returns the host of a daemon that runs in real time.
    pub fn host(&self) -> FakeDaemonHost {
        FakeDaemonHost { root: Root::at(self.root()), world: Arc::clone(&self.world) }
    }

    /// Runs the daemon to the end of the script.
    pub fn run(&mut self) -> anyhow::Result<SceneOutcome> {
        self.script.sort_by_key(|(at, _)| *at);
        let script = std::mem::take(&mut self.script).into();
        let environment = FakeEnvironment { base: Instant::now(), world: Arc::clone(&self.world), script };
        let config = self.source.load()?;
        let (host, source) = (self.host(), self.source.clone());
        let log = ThreadLog::default();
        let (restored, lost) = log.gather(|| {
            let daemon = Daemon::new(host, environment, config, source)?;
            let mut ended = daemon.run(|_| Ok(()))?;
            let lost = ended.lost.take();
            anyhow::Ok((ended.restore()?, lost))
        })?;
        Ok(SceneOutcome { restored, lost, log: log.text() })
    }
}

/// Log lines of one thread.
#[derive(Debug, Clone, Default)]
pub struct ThreadLog(Arc<Mutex<Vec<u8>>>);

impl ThreadLog {
    /// Gathers the log lines of `work`.
    pub fn gather<T>(&self, work: impl FnOnce() -> T) -> T {
        let writer = self.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::DEBUG)
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, work)
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

impl Write for ThreadLog {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
