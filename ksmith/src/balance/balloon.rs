//! QEMU's virtio balloon, by QMP: the guest's driver inflates it, and QEMU drops the pages.
//!
//! `balloon` sets a target and returns at once; what the guest has is `actual` of `query-balloon`, which its driver
//! moves. So each resize waits for that, and a target that is not reached in time is taken back to where the guest
//! stands: a driver that wakes up later must not take what nobody expects any more.
//!
//! Statistics come from the guest's driver each `guest-stats-polling-interval` seconds, which is 0 (never) until
//! somebody sets it. They are the guest's own words; `actual` is QEMU's count of pages.
//!
//! Source: QEMU `qapi/machine.json`, `docs/interop/virtio-balloon-stats.rst`.

use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ksmith_core::balance::Inside;
use ksmith_core::kernel::SmapsRollup;
use ksmith_core::sample::ProcessId;
use serde_json::{Value, json};

use super::account::Account;
use super::ledger::Ledger;
use super::rates::{Counts, Rates};
use super::{Abilities, Actuator, ActuatorError, Look};
use crate::guests::{Monitor, MonitorError, Target, has_ended};
use crate::root::Root;

/// For resizes: the driver moves pages of 4 KiB, a mebibyte is what people and hypervisors count in.
const STEP: u64 = 1 << 20;

/// How long QEMU's monitor may take to answer.
const PATIENCE: Duration = Duration::from_millis(1000);

/// How long a resize may go on, and how long the balloon may stand still before it is given up.
const LONGEST: Duration = Duration::from_secs(8);
const STANDSTILL: Duration = Duration::from_secs(2);

/// Between two looks at the balloon.
const PAUSE: Duration = Duration::from_millis(50);

/// How often the guest's driver is to tell, in seconds.
const POLLING: u64 = 2;

/// Statistics older than this tell nothing: the driver has stopped.
const STALE_SECONDS: u64 = 15;

/// One QEMU with a balloon.
#[derive(Debug)]
pub(super) struct Balloon {
    root: Root,
    target: Target,
    /// Where the device is in QEMU's tree, if found.
    device: Option<String>,
    account: Account,
    rates: Rates<3>,
    takes: Takes,
}

/// What was taken lately, and when: statistics may be older than that.
#[derive(Debug, Default)]
struct Takes(Vec<(u64, u64)>);

impl Takes {
    /// Notes what was taken by the second `at`.
    fn note(&mut self, at: u64, bytes: u64) {
        self.0.retain(|(then, _)| at.saturating_sub(*then) <= STALE_SECONDS);
        self.0.push((at, bytes));
    }

    /// What was taken after statistics of that second, or perhaps just before: then it counts twice, which is safe.
    fn since(&self, second: u64) -> u64 {
        self.0.iter().filter(|(at, _)| *at >= second).fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes))
    }
}

fn clock() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

impl Balloon {
    /// The actuator of this guest. Asks its QEMU.
    pub(super) fn of(root: &Root, target: &Target, key: &str, ledger: &Ledger) -> Result<Self, ActuatorError> {
        let mut monitor = connect(root, target)?;
        let monitor = monitor.as_mut();
        let actual = actual(monitor)?;
        // Whoever started it, or a person since, may have decided that it has less than its RAM: that is not ours.
        let account = Account::open(ledger, key, &target.name, target.identity.kind, target.id, actual);
        let device = find(monitor);
        if let Some(path) = &device {
            let property = json!({ "path": path, "property": "guest-stats-polling-interval" });
            if ask(monitor, "qom-get", property).is_ok_and(|seconds| seconds.as_u64() == Some(0)) {
                let wanted = json!({ "path": path, "property": "guest-stats-polling-interval", "value": POLLING });
                // Without statistics it still has a balloon.
                let _ = ask(monitor, "qom-set", wanted);
            }
        }
        // Another ksmith may have taken that a moment ago, which the statistics do not know yet.
        let mut takes = Takes::default();
        takes.note(clock(), account.whole() - account.given());
        Ok(Self { root: root.clone(), target: target.clone(), device, account, rates: Rates::default(), takes })
    }

    fn process(&self) -> ProcessId {
        self.target.id
    }

    /// Its monitor, for one act: QEMU's socket serves one peer at a time, and others need it too.
    fn monitor(&self) -> Result<Box<dyn Monitor>, ActuatorError> {
        if has_ended(&self.root, self.process()) {
            return Err(ActuatorError::Gone);
        }
        connect(&self.root, &self.target)
    }

    /// A failure, or the end of the guest that explains it.
    fn explain<T>(&self, result: Result<T, ActuatorError>) -> Result<T, ActuatorError> {
        match result {
            Err(_) if has_ended(&self.root, self.process()) => Err(ActuatorError::Gone),
            other => other,
        }
    }

    /// What the guest says, and what it has counted by which second.
    fn statistics(&self, monitor: &mut dyn Monitor) -> Option<(Inside, Counts, u64)> {
        let path = self.device.as_ref()?;
        let told = ask(monitor, "qom-get", json!({ "path": path, "property": "guest-stats" })).ok()?;
        let (mut inside, counts, told_at) = read_statistics(&told, clock())?;
        // Told before the last steps, it knows nothing of them: a guest taken at its old word runs dry.
        let since = self.takes.since(told_at);
        // That it has run dry already is for the guest to say: what may count twice must not make it squeal.
        let least = (8 << 20) + self.account.whole() / 40;
        for figure in [&mut inside.available_bytes, &mut inside.free_bytes] {
            *figure = figure.map(|bytes| bytes.saturating_sub(since).max(bytes.min(least)));
        }
        Some((inside, counts, told_at))
    }

    /// The guest's words with rates. It counts between two of its own tellings, not between two of our looks.
    fn inside(&mut self, monitor: &mut dyn Monitor) -> Inside {
        let Some((mut inside, counts, told_at)) = self.statistics(monitor) else { return Inside::default() };
        self.rates.fill(Duration::from_secs(told_at), counts, &mut inside);
        inside
    }

    fn do_resize(&mut self, monitor: &mut dyn Monitor, to: u64) -> Result<u64, ActuatorError> {
        let mut to = to;
        let mut now = actual(monitor)?;
        if let Some((Inside { available_bytes: Some(available), .. }, ..)) = self.statistics(monitor) {
            let spare = available.saturating_sub(reserve(self.account.whole()));
            to = if to < now { to.max(now.saturating_sub(spare)) } else { to };
        }
        if to == now {
            self.account.note(now)?;
            return Ok(now);
        }
        // Before a take, what is aimed at; before a give, what there is.
        self.account.note(to.min(now))?;
        let before = now;
        ask(monitor, "balloon", json!({ "value": to }))?;
        let deadline = Instant::now() + LONGEST;
        let mut moved = Instant::now();
        while now != to && Instant::now() < deadline && moved.elapsed() < STANDSTILL {
            sleep(PAUSE);
            let next = actual(monitor)?;
            if next != now {
                (now, moved) = (next, Instant::now());
            }
        }
        if now > to {
            // It takes no more: nothing may happen to it when nobody looks.
            ask(monitor, "balloon", json!({ "value": now }))?;
            now = actual(monitor)?;
        }
        if now < before {
            self.takes.note(clock(), before - now);
        }
        self.account.note(now)?;
        Ok(now)
    }
}

impl Actuator for Balloon {
    fn look(&mut self) -> Result<Look, ActuatorError> {
        let mut monitor = self.explain(self.monitor())?;
        let given_bytes = self.explain(actual(monitor.as_mut()))?;
        let inside = self.inside(monitor.as_mut());
        drop(monitor);
        let sums = self.root.text(format!("proc/{}/smaps_rollup", self.process().pid));
        let sums = sums.and_then(|text| SmapsRollup::parse(&text));
        let resident_bytes = sums.value().and_then(|sums| sums.pss.or(sums.rss)).unwrap_or(0);
        Ok(Look { given_bytes, whole_bytes: self.account.whole(), resident_bytes, inside })
    }

    fn resize(&mut self, to_bytes: u64) -> Result<u64, ActuatorError> {
        let mut monitor = self.explain(self.monitor())?;
        let outcome = self.do_resize(monitor.as_mut(), rounded(to_bytes, self.account.whole()));
        self.explain(outcome)
    }

    fn abilities(&self) -> Abilities {
        Abilities { way: "virtio-balloon", can_take: true, can_give: true, step_bytes: STEP, why_not: None }
    }
}

/// In whole steps, but for all of it: a guest whose whole is none gets the last bit back too.
fn rounded(to: u64, whole: u64) -> u64 {
    if to >= whole { whole } else { (to / STEP * STEP).max(STEP).min(whole) }
}

/// What a guest of this size keeps available whatever anybody wants.
fn reserve(whole: u64) -> u64 {
    (8 << 20) + whole / 64
}

fn connect(root: &Root, target: &Target) -> Result<Box<dyn Monitor>, ActuatorError> {
    target.monitor(root).map_err(translate)
}

fn ask(monitor: &mut dyn Monitor, command: &str, arguments: Value) -> Result<Value, ActuatorError> {
    monitor.execute(command, arguments, PATIENCE).map_err(translate)
}

/// What the guest has now, by QEMU's count.
fn actual(monitor: &mut dyn Monitor) -> Result<u64, ActuatorError> {
    let told = match ask(monitor, "query-balloon", json!({})) {
        Err(ActuatorError::Refused { why, .. }) => {
            return Err(ActuatorError::Unable(format!(
                "QEMU says {why:?}: start it with -device virtio-balloon-pci, and with the driver in the guest"
            )));
        }
        told => told?,
    };
    told.get("actual").and_then(Value::as_u64).ok_or_else(|| ActuatorError::Nonsense(short(&told)))
}

/// The path of the balloon device: it has an id, or is among those without one.
fn find(monitor: &mut dyn Monitor) -> Option<String> {
    ["/machine/peripheral", "/machine/peripheral-anon"].iter().find_map(|place| {
        let list = ask(monitor, "qom-list", json!({ "path": place })).ok()?;
        list.as_array()?.iter().find_map(|child| {
            let kind = child.get("type")?.as_str()?;
            let name = child.get("name")?.as_str()?;
            kind.contains("virtio-balloon").then(|| format!("{place}/{name}"))
        })
    })
}

/// The guest's words, and the second in which it said them. `None` if it has said nothing, or nothing lately.
fn read_statistics(told: &Value, now: u64) -> Option<(Inside, Counts, u64)> {
    let last = told.get("last-update").and_then(Value::as_u64).filter(|last| *last > 0)?;
    // Told later than now, it was told before the clock was set back: nobody knows how old it is.
    if now.abs_diff(last) > STALE_SECONDS {
        return None;
    }
    // What the driver does not tell is -1.
    let number =
        |key: &str| told.pointer(&format!("/stats/{key}"))?.as_u64().filter(|value| *value < u64::MAX >> 1);
    let inside = Inside {
        available_bytes: number("stat-available-memory"),
        free_bytes: number("stat-free-memory"),
        cache_bytes: number("stat-disk-caches"),
        ..Inside::default()
    };
    let counts = Counts {
        major_faults: number("stat-major-faults"),
        swap_in_bytes: number("stat-swap-in"),
        swap_out_bytes: number("stat-swap-out"),
    };
    Some((inside, counts, last))
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
        MonitorError::Foreign { .. } | MonitorError::Garbage { .. } => ActuatorError::Nonsense(error.to_string()),
        MonitorError::Libvirt(source) => {
            ActuatorError::Io { what: "libvirt".to_owned(), source: std::io::Error::other(source) }
        }
    }
}

fn short(value: &Value) -> String {
    value.to_string().chars().take(100).collect()
}

#[cfg(test)]
mod tests;
