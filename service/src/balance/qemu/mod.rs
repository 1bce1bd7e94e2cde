//! Guests of QEMU, by QMP: virtio-mem where the guest has it, else the virtio balloon ([`ResizeDevice`]).
//!
//! A command sets a target and returns at once. The guest's driver then moves the memory that the guest has, by QEMU's
//! count. So each resize waits for that, and a target that is not reached in time is reset to it: a driver that wakes up
//! later must take nothing.
//!
//! Statistics are the guest's own figures. Its driver sends them every `guest-stats-polling-interval` seconds; the
//! default of 0 means never.
//!
//! They are seconds old when they are read. So two amounts are subtracted: memory that was taken since, and memory that
//! a growing guest will have used before its next statistics.
//!
//! Source: QEMU `qapi/machine.json`, `docs/interop/virtio-balloon-stats.rst`.

mod device;
mod filling;

use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ksmith_core::balance::ReportedFigures;
use ksmith_core::kernel::SmapsRollup;
use ksmith_core::sample::ProcessId;
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

use self::device::{ResizeDevice, find_device};
use self::filling::FillRate;
use super::account::LedgerAccount;
use super::ledger::MemoryLedger;
use super::rates::{CounterRates, PagingCounters};
use super::{ActuatorAbilities, ActuatorError, ActuatorFigures, MemoryActuator};
use ksmith_host::guests::{GuestTarget, MonitorError, QmpMonitor, has_ended};
use ksmith_host::root::Root;

/// The time that QEMU's monitor has for an answer.
const PATIENCE: Duration = Duration::from_millis(1000);

/// The longest resize.
const LONGEST: Duration = Duration::from_secs(8);
/// The time without progress after which a resize ends.
const STANDSTILL: Duration = Duration::from_secs(2);

/// The interval between two queries of the balloon.
const PAUSE: Duration = Duration::from_millis(50);

/// The interval of the driver's statistics, in seconds.
const POLLING: u64 = 2;

/// The longest wait for the first statistics; QEMU asks the driver for them at once.
const FIRST_STATISTICS: Duration = Duration::from_millis(500);

/// The age from which statistics do not count: the driver has stopped.
const STALE_SECONDS: u64 = 15;

/// One QEMU with a device that resizes its guest.
#[derive(Debug)]
pub(super) struct QemuActuator {
    root: Root,
    target: GuestTarget,
    device: ResizeDevice,
    /// The path of the balloon, which has the guest's statistics, in QEMU's object tree.
    balloon: Option<String>,
    account: LedgerAccount,
    rates: CounterRates<3>,
    takes: RecentTakes,
    filling: FillRate,
    /// True if the driver deflates the balloon before the guest's OOM killer runs (`deflate-on-oom`).
    gives_way: bool,
    /// True after the attempt to enable the driver's statistics.
    is_prepared: bool,
    /// The wall clock, which dates QEMU's statistics and which an administrator may set.
    clock: fn() -> Duration,
}

/// Recent takes, each with its end by the monotonic clock: the guest's statistics may be older.
#[derive(Debug, Default)]
struct RecentTakes {
    ended: Vec<(Duration, u64)>,
    /// A take that may go on: a monitor that falls silent does not report how far the balloon has come.
    under_way: Option<PendingTake>,
}

/// A take that has begun.
#[derive(Debug, Clone, Copy)]
struct PendingTake {
    begun: Duration,
    /// Bytes that the guest had, and those that it is to have.
    before: u64,
    to: u64,
    /// True if the take counts only as far as it is seen: QEMU may never have received it. It may still go on, so the
    /// next resize sets another target.
    is_old: bool,
}

impl RecentTakes {
    /// Records bytes taken up to `at`.
    fn record_take(&mut self, at: Duration, bytes: u64) {
        self.ended.retain(|(then, _)| at.saturating_sub(*then).as_secs() <= STALE_SECONDS);
        self.ended.push((at, bytes));
    }

    /// Ends the take under way, if any: the guest has `now` bytes and loses no more.
    fn end(&mut self, at: Duration, now: u64) {
        if let Some(take) = self.under_way.take() {
            self.record_take(at, take.before.saturating_sub(now));
        }
    }

    /// Updates the take under way: the guest has `now` bytes. At its target the take ends.
    fn see(&mut self, at: Duration, now: u64) {
        let Some(take) = &mut self.under_way else { return };
        if now <= take.to {
            return self.end(at, now);
        }
        take.is_old |= at.saturating_sub(take.begun).as_secs() > STALE_SECONDS;
        if take.is_old && now < take.before {
            let taken = std::mem::replace(&mut take.before, now) - now;
            self.record_take(at, taken);
        }
    }

    /// Returns the bytes taken since statistics of this time.
    fn since(&self, statistics: Duration) -> u64 {
        let under_way = self.under_way.filter(|take| !take.is_old);
        let under_way = under_way.map_or(0, |take| take.before.saturating_sub(take.to));
        let ended = self.ended.iter().filter(|(at, _)| *at >= statistics);
        ended.fold(under_way, |sum, (_, bytes)| sum.saturating_add(*bytes))
    }
}

/// Returns the earliest monotonic time of statistics that QEMU dates `told_at`, a second of the wall clock.
///
/// They may be younger by a second, so a take in that second may count twice. A take after them always counts: the
/// fractions of a second of the two clocks are unrelated.
fn earliest(steady: Duration, now: Duration, told_at: u64) -> Duration {
    steady.saturating_sub(now.saturating_sub(Duration::from_secs(told_at)))
}

/// Returns the time of the monotonic clock.
fn steady() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec.max(0).cast_unsigned(), u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// Returns the wall clock, by which QEMU dates the guest's statistics.
#[allow(clippy::disallowed_methods, reason = "it is compared with QEMU's reading of the same clock")]
fn clock() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Enables the driver's statistics where they are off. Returns true if it did.
fn switch_statistics_on(monitor: &mut dyn QmpMonitor, path: &str) -> bool {
    let property = json!({ "path": path, "property": "guest-stats-polling-interval" });
    if !execute_command(monitor, "qom-get", property).is_ok_and(|seconds| seconds.as_u64() == Some(0)) {
        return false;
    }
    let wanted = json!({ "path": path, "property": "guest-stats-polling-interval", "value": POLLING });
    // It has a balloon even without statistics.
    execute_command(monitor, "qom-set", wanted).is_ok()
}

/// Returns true if this device deflates before the guest's OOM killer runs.
fn gives_way(monitor: &mut dyn QmpMonitor, path: &str) -> bool {
    let property = json!({ "path": path, "property": "deflate-on-oom" });
    execute_command(monitor, "qom-get", property).is_ok_and(|is_on| is_on.as_bool() == Some(true))
}

impl QemuActuator {
    /// Creates the actuator of this guest. Queries its QEMU.
    pub(super) fn open(
        root: &Root,
        target: &GuestTarget,
        key: &str,
        ledger: &MemoryLedger,
    ) -> Result<Self, ActuatorError> {
        let mut monitor = connect(root, target)?;
        let monitor = monitor.as_mut();
        let entry = ledger.entry(key, target.id.process());
        let device = ResizeDevice::find(monitor, entry.and_then(|entry| entry.device).as_ref())?;
        // The operator may have given it less than its RAM. That is not ksmith's to give back.
        let mut account = LedgerAccount::of_guest(ledger, key, target, device.whole_bytes(monitor)?);
        account.set_device(device.to_ledger());
        let balloon = find_device(monitor, "virtio-balloon")?;
        let gives_way = balloon.as_deref().is_some_and(|path| gives_way(monitor, path));
        // Another ksmith may have taken that a moment ago, and the statistics may be older.
        let mut takes = RecentTakes::default();
        takes.record_take(steady(), account.whole() - account.given());
        let (root, target, rates, filling) =
            (root.clone(), target.clone(), CounterRates::default(), FillRate::default());
        Ok(Self {
            root,
            target,
            device,
            balloon,
            account,
            rates,
            takes,
            filling,
            gives_way,
            is_prepared: false,
            clock,
        })
    }

    fn process(&self) -> ProcessId {
        self.target.id.process()
    }

    /// Connects to its monitor for one request: QEMU's socket serves one peer at a time, and others need it too.
    fn monitor(&self) -> Result<Box<dyn QmpMonitor>, ActuatorError> {
        if has_ended(&self.root, self.process()) {
            return Err(ActuatorError::Gone);
        }
        connect(&self.root, &self.target)
    }

    /// Replaces a failure by the end of the guest, if that explains it.
    fn explain<T>(&self, result: Result<T, ActuatorError>) -> Result<T, ActuatorError> {
        match result {
            Err(_) if has_ended(&self.root, self.process()) => Err(ActuatorError::Gone),
            other => other,
        }
    }

    /// Reads the guest's figures and counters, and the second of its statistics.
    fn statistics(&mut self, monitor: &mut dyn QmpMonitor) -> Option<(ReportedFigures, PagingCounters, u64)> {
        let path = self.balloon.as_ref()?;
        let told = execute_command(monitor, "qom-get", json!({ "path": path, "property": "guest-stats" })).ok()?;
        // In this order: a pause between the two makes the statistics older and not younger.
        let steady = steady();
        let now = (self.clock)();
        let (mut inside, counts, told_at) = read_statistics(&told, now.as_secs())?;
        if let Some(used) = used_bytes(&told).filter(|_| !self.gives_way) {
            self.filling.record_usage(told_at, used);
        }
        // Statistics from before the last takes do not include them: taking by old figures would exhaust the guest.
        // Their age is compared, since the clock may have been set since a take.
        let taken = self.takes.since(earliest(steady, now, told_at));
        let unseen_seconds = now.as_secs().saturating_sub(told_at) + POLLING;
        let filled = self.filling.bytes_per_second().saturating_mul(unseen_seconds);
        let since = taken.saturating_add(filled);
        // What counts twice, or does not come, must not look like memory pressure, so a minimum stays.
        let least = (8 << 20) + self.account.whole() / 40;
        for figure in [&mut inside.available_bytes, &mut inside.free_bytes] {
            *figure = figure.map(|bytes| bytes.saturating_sub(since).max(bytes.min(least)));
        }
        Some((inside, counts, told_at))
    }

    /// Reads the guest's figures with rates, which are between two of its own statistics and not between two looks.
    fn inside(&mut self, monitor: &mut dyn QmpMonitor) -> ReportedFigures {
        let Some((mut inside, counts, told_at)) = self.statistics(monitor) else {
            return ReportedFigures::default();
        };
        self.rates.fill(Duration::from_secs(told_at), counts, &mut inside);
        inside
    }

    fn do_resize(&mut self, monitor: &mut dyn QmpMonitor, to: u64) -> Result<u64, ActuatorError> {
        let mut now = self.device.given_bytes(monitor)?;
        let mut to = self.device.rounded(monitor, to, self.account.whole())?;
        self.takes.see(steady(), now);
        if let Some((ReportedFigures { available_bytes: Some(available), .. }, ..)) = self.statistics(monitor) {
            let spare = available.saturating_sub(reserve(self.account.whole()));
            if to < now {
                let least = self.device.rounded_up(now.saturating_sub(spare), now);
                to = to.max(least);
            }
        }
        // A take that may go on has another target, which is set anew.
        if to == now && self.takes.under_way.is_none() {
            self.account.record_given(now)?;
            return Ok(now);
        }
        // The target before a take, the present amount before a give.
        self.account.record_given(to.min(now))?;
        let before = now;
        let begun = steady();
        self.takes.end(begun, now);
        if to < before {
            self.takes.under_way = Some(PendingTake { begun, before, to, is_old: false });
        }
        self.device.set_target(monitor, to)?;
        let deadline = Instant::now() + LONGEST;
        let mut moved = Instant::now();
        while now != to && Instant::now() < deadline && moved.elapsed() < STANDSTILL {
            sleep(PAUSE);
            let next = self.device.given_bytes(monitor)?;
            if next != now {
                (now, moved) = (next, Instant::now());
            }
        }
        if now > to {
            // The driver has stopped short of the target. It must not go on later, unobserved.
            self.device.set_target(monitor, now)?;
            now = self.device.given_bytes(monitor)?;
        }
        self.takes.end(steady(), now);
        self.account.record_given(now)?;
        Ok(now)
    }
}

impl MemoryActuator for QemuActuator {
    fn prepare(&mut self) {
        let Some(path) = self.balloon.clone().filter(|_| !self.is_prepared) else { return };
        // A monitor that fails is what the look or the resize behind this tells.
        let Ok(mut monitor) = self.monitor() else { return };
        self.is_prepared = true;
        if !switch_statistics_on(monitor.as_mut(), &path) {
            return;
        }
        let deadline = Instant::now() + FIRST_STATISTICS;
        while self.statistics(monitor.as_mut()).is_none() && Instant::now() < deadline {
            sleep(PAUSE);
        }
    }

    fn read_figures(&mut self) -> Result<ActuatorFigures, ActuatorError> {
        let mut monitor = self.explain(self.monitor())?;
        let given_bytes = self.explain(self.device.given_bytes(monitor.as_mut()))?;
        self.takes.see(steady(), given_bytes);
        let inside = self.inside(monitor.as_mut());
        drop(monitor);
        let sums = self.root.text(format!("proc/{}/smaps_rollup", self.process().pid));
        let sums = sums.and_then(|text| SmapsRollup::parse(&text));
        let resident_bytes = sums.value().and_then(|sums| sums.pss.or(sums.rss)).unwrap_or(0);
        Ok(ActuatorFigures { given_bytes, whole_bytes: self.account.whole(), resident_bytes, inside })
    }

    fn resize(&mut self, to_bytes: u64) -> Result<u64, ActuatorError> {
        let mut monitor = self.explain(self.monitor())?;
        let outcome = self.do_resize(monitor.as_mut(), to_bytes);
        self.explain(outcome)
    }

    fn abilities(&self) -> ActuatorAbilities {
        let (way, step_bytes) = (self.device.way(), self.device.step_bytes());
        ActuatorAbilities { way, can_take: true, can_give: true, step_bytes, why_not: None }
    }
}

/// Returns the memory that a guest of this size keeps available in any case.
fn reserve(whole: u64) -> u64 {
    (8 << 20) + whole / 64
}

fn connect(root: &Root, target: &GuestTarget) -> Result<Box<dyn QmpMonitor>, ActuatorError> {
    target.monitor(root).map_err(translate)
}

fn execute_command(monitor: &mut dyn QmpMonitor, command: &str, arguments: Value) -> Result<Value, ActuatorError> {
    monitor.execute(command, arguments, PATIENCE).map_err(translate)
}

/// Reads the guest's figures and the second of its statistics. `None` without recent statistics.
fn read_statistics(told: &Value, now: u64) -> Option<(ReportedFigures, PagingCounters, u64)> {
    let last = told.get("last-update").and_then(Value::as_u64).filter(|last| *last > 0)?;
    // Statistics from the future are from before the clock was set back: their age is unknown.
    if now.abs_diff(last) > STALE_SECONDS {
        return None;
    }
    let number = |key: &str| number(told, key);
    let inside = ReportedFigures {
        available_bytes: number("stat-available-memory"),
        free_bytes: number("stat-free-memory"),
        cache_bytes: number("stat-disk-caches"),
        ..ReportedFigures::default()
    };
    let counts = PagingCounters {
        major_faults: number("stat-major-faults"),
        swap_in_bytes: number("stat-swap-in"),
        swap_out_bytes: number("stat-swap-out"),
    };
    Some((inside, counts, last))
}

/// Reads one of the guest's figures. The driver sends -1 for those that it does not have.
fn number(told: &Value, key: &str) -> Option<u64> {
    told.pointer(&format!("/stats/{key}"))?.as_u64().filter(|value| *value < u64::MAX >> 1)
}

/// Returns the memory that the guest uses and can't free. A balloon without `deflate-on-oom` is not part of a guest's
/// total.
fn used_bytes(told: &Value) -> Option<u64> {
    number(told, "stat-total-memory")?.checked_sub(number(told, "stat-available-memory")?)
}

fn translate(error: MonitorError) -> ActuatorError {
    match error {
        MonitorError::Refused { command, why } => ActuatorError::Refused { what: command, why },
        MonitorError::Socket { source, .. } if source.kind() == std::io::ErrorKind::TimedOut => {
            ActuatorError::Silent { patience: PATIENCE }
        }
        MonitorError::Socket { path, source } => {
            ActuatorError::Io { what: format!("the QMP socket {}", path.display()), source }
        }
        MonitorError::NoMonitor => ActuatorError::Unable(
            "its QEMU has no QMP socket: start it with -qmp unix:PATH,server=on,wait=off, or under libvirt"
                .to_owned(),
        ),
        MonitorError::Foreign { .. }
        | MonitorError::OfOther { .. }
        | MonitorError::OtherDomain { .. }
        | MonitorError::Garbage { .. } => ActuatorError::Nonsense(error.to_string()),
        MonitorError::NoRecord | MonitorError::Impossible(_) => ActuatorError::Unable(error.to_string()),
        MonitorError::Manager(source) => {
            ActuatorError::Io { what: "libvirt".to_owned(), source: std::io::Error::other(source) }
        }
    }
}

fn short(value: &Value) -> String {
    value.to_string().chars().take(100).collect()
}

#[cfg(test)]
mod tests;
