//! `ksmtuned`: the arithmetic of ksmtuned (Dan Kenigsberg, Red Hat 2009; `/usr/sbin/ksmtuned` in Debian and RHEL),
//! number for number, for hosts where only the program is to change.
//!
//! It differs where the original is broken. QEMU is found however it was started; Debian's pattern misses libvirt's
//! command lines. Sums of 2 TiB and more count; mawk prints them as `2.24004e+09`, which the script can't compare. The
//! first look comes at once and not after a minute. `ksmith/tests/host/ksmtuned_oracle.rs` runs the original beside it.

mod conf;
mod file;

use std::num::NonZeroU32;
use std::time::Duration;

use serde::Deserialize;

use crate::kernel::Meminfo;
use crate::knobs::{Knob, KnobSettings};
use crate::reading::Reading;
use crate::sample::{ProcessId, Sample};
use crate::units::{Bytes, TimeSpan};

use super::{DecisionReason, Policy, PolicyDecision, PolicyView, ground};

pub use conf::{BadConf, ConfProblem};
pub use file::KsmtunedFile;

/// The settings of `ksmtuned`: the original's settings, without their `KSM_`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KsmtunedConfig {
    /// `KSM_MONITOR_INTERVAL`, in seconds: how often it looks. It also looks when a VM starts or ends.
    pub monitor_interval_seconds: NonZeroU32,
    /// `KSM_NPAGES_BOOST`, in pages: added to `pages_to_scan` at a look when memory is short.
    pub npages_boost: i32,
    /// `KSM_NPAGES_DECAY`, in pages: added (it is negative) at a look when memory is not short.
    pub npages_decay: i32,
    /// `KSM_NPAGES_MIN`: the least `pages_to_scan`.
    pub npages_min: u32,
    /// `KSM_NPAGES_MAX`: the most `pages_to_scan`.
    pub npages_max: u32,
    /// `KSM_SLEEP_MSEC`, in milliseconds: `sleep_millisecs` of a host with 16 GiB. Smaller hosts sleep longer,
    /// larger ones shorter, none less than 10 ms.
    pub sleep_msec: u32,
    /// `KSM_THRES_COEF`, in per cent of the host's memory: how much should be free.
    pub thres_coef: u32,
    /// `KSM_THRES_CONST`, in KiB: how much should be free at least.
    pub thres_const: u32,
}

impl Default for KsmtunedConfig {
    fn default() -> Self {
        Self {
            monitor_interval_seconds: const { NonZeroU32::new(60).unwrap() },
            npages_boost: 300,
            npages_decay: -50,
            npages_min: 64,
            npages_max: 1250,
            sleep_msec: 10,
            thres_coef: 20,
            thres_const: 2048,
        }
    }
}

impl KsmtunedConfig {
    /// Reads the text of `/etc/ksmtuned.conf`: assignments as a shell reads them, without executing anything.
    ///
    /// # Errors
    /// Names that ksmtuned does not know, values that it could not use, and everything a shell would have to
    /// execute.
    pub fn parse(text: &str) -> Result<Self, BadConf> {
        conf::parse(text)
    }
}

/// The figures that the original computes once, from the host's memory in KiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct HostScale {
    total: i64,
    sleep: i64,
    thres: i64,
}

impl HostScale {
    /// Computes the figures in 64-bit numbers that wrap, as the shell does.
    fn from_total(config: &KsmtunedConfig, total: i64) -> Self {
        let sleep = i64::from(config.sleep_msec).wrapping_mul(16 << 20).wrapping_div(total).max(10);
        let thres = total.wrapping_mul(config.thres_coef.into()).wrapping_div(100).max(config.thres_const.into());
        Self { total, sleep, thres }
    }
}

/// The host at one look, in KiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct MemoryFigures {
    total: i64,
    free: i64,
    committed: i64,
}

impl MemoryFigures {
    /// Derives the figures; `None` if `/proc/meminfo` lacks the total or the free memory.
    fn from_sample(sample: &Sample) -> Option<Self> {
        let memory: &Meminfo = sample.host.memory.value()?;
        let kib = |bytes: u64| i64::try_from(bytes / 1024).unwrap_or(i64::MAX);
        let total = kib(memory.total?);
        let caches = kib(memory.buffers.unwrap_or(0)).saturating_add(kib(memory.cached.unwrap_or(0)));
        let rss =
            sample.processes.iter().filter(|process| process.is_vm).map(|process| kib(process.known_rss_bytes()));
        let committed = rss.fold(0_i64, i64::saturating_add);
        (total > 0).then_some(Self { total, free: kib(memory.free?).saturating_add(caches), committed })
    }
}

/// A look at the host, and the decision after it.
#[derive(Debug, Clone)]
struct HostLook {
    at: Duration,
    vms: Vec<ProcessId>,
    decision: PolicyDecision,
}

/// Scans harder while memory is short, less hard when it is not, and not at all when guests leave enough free.
#[derive(Debug, Clone)]
pub struct KsmtunedPolicy {
    config: KsmtunedConfig,
    scale: Option<HostScale>,
    npages: i64,
    last: Option<HostLook>,
}

impl KsmtunedPolicy {
    /// Creates the policy with the original's settings.
    pub fn new(config: KsmtunedConfig) -> Self {
        Self { config, scale: None, npages: 0, last: None }
    }

    fn interval(&self) -> Duration {
        Duration::from_secs(u64::from(self.config.monitor_interval_seconds.get()))
    }

    /// Performs one iteration of the original's loop.
    fn adjust(&mut self, figures: MemoryFigures) -> (KnobSettings, DecisionReason) {
        let MemoryFigures { free, committed, .. } = figures;
        let scale = *self.scale.get_or_insert_with(|| HostScale::from_total(&self.config, figures.total));
        let HostScale { total, sleep, thres } = scale;
        let (guests, host, spare, keep) = (kib(committed), kib(total), kib(free), kib(thres));
        if committed.wrapping_add(thres) < total && free > thres {
            let reason = DecisionReason::new("stop", "enough memory is free: no need to scan")
                .with_detail(format!("guests hold {guests} of {host}, and {spare} is free, more than {keep}"));
            return (KnobSettings::none().with(Knob::Run, 0), reason);
        }
        let before = self.npages;
        let reason = if free < thres {
            self.npages = self.stepped(self.config.npages_boost);
            DecisionReason::new("boost", "memory is short: ksmd scans harder")
                .with_detail(format!("{spare} is free, less than {keep}"))
        } else {
            self.npages = self.stepped(self.config.npages_decay);
            DecisionReason::new("decay", "enough memory is free, but guests hold much: ksmd scans less")
                .with_detail(format!("{spare} is free, {keep} is enough, and guests hold {guests} of {host}"))
        };
        let pages = u64::try_from(self.npages).unwrap_or(0);
        let sleep = u64::try_from(sleep).unwrap_or(0).min(u64::from(u32::MAX));
        let knobs = KnobSettings::none()
            .with(Knob::PagesToScan, pages)
            .with(Knob::SleepMillisecs, sleep)
            .with(Knob::Run, 1);
        (knobs, reason.with_detail(format!("{pages} pages (before: {before}) every {sleep} ms")))
    }

    /// `npages` moved by `delta`: the lower bound is looked at first, as in the original.
    fn stepped(&self, delta: i32) -> i64 {
        let npages = self.npages.saturating_add(delta.into());
        let (min, max) = (i64::from(self.config.npages_min), i64::from(self.config.npages_max));
        if npages < min {
            min
        } else if npages > max {
            max
        } else {
            npages
        }
    }
}

impl Policy for KsmtunedPolicy {
    fn name(&self) -> &'static str {
        "ksmtuned"
    }

    fn decide(&mut self, view: &PolicyView<'_>) -> PolicyDecision {
        let interval = self.interval();
        let nothing = |reason| PolicyDecision::new(KnobSettings::none(), reason, interval);
        let Some(figures) = MemoryFigures::from_sample(view.now) else { return nothing(blind(view.now)) };
        let at = view.now.at;
        let vms: Vec<ProcessId> = view.now.processes.iter().filter(|p| p.is_vm).map(|p| p.id).collect();
        if let Some(last) = &self.last {
            let passed = at.saturating_sub(last.at);
            if passed < interval && last.vms == vms {
                return PolicyDecision { check_after: interval - passed, ..last.decision.clone() };
            }
        }
        let (knobs, reason) = self.adjust(figures);
        let reason = reason.with_detail(format!("looks every {}", TimeSpan(interval)));
        let knobs = ground::take_over(knobs, &view.now.ksm);
        let decision = PolicyDecision::new(knobs, reason, interval);
        self.last = Some(HostLook { at, vms, decision: decision.clone() });
        decision
    }
}

fn blind(sample: &Sample) -> DecisionReason {
    let why = match &sample.host.memory {
        Reading::Value(_) => "it lacks MemTotal or MemFree".to_owned(),
        Reading::Absent => "there is none".to_owned(),
        Reading::Denied => "it may not be read".to_owned(),
        Reading::Malformed(why) => why.to_string(),
    };
    DecisionReason::new("blind", format!("needs /proc/meminfo: {why}; nothing is changed"))
}

fn kib(kib: i64) -> Bytes {
    Bytes(i128::from(kib) * 1024)
}

#[cfg(test)]
mod tests;
