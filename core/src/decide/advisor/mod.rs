//! `advisor`: leaves `pages_to_scan` to the kernel's own advisor (`scan-time`, Linux 6.8) and says what it does.
//!
//! The advisor wants each pass to take `target_scan_time`, and corrects `pages_to_scan` at the end of a pass only
//! (`scan_time_advisor` in `mm/ksm.c`). It starts from `min_pages_to_scan`, which it looks at nowhere else, keeps
//! ksmd between 10 % and `max_cpu` of a CPU by its own reckoning, and never stops.
//!
//! The limits hold for it as far as it has parameters for them: its `max_cpu` and its pages are lowered to what
//! the limits allow. Linux before 6.8 has no advisor: there it is the kernel's default settings.

use std::time::Duration;

use serde::{Deserialize, Deserializer};

use super::{
    DecisionReason, FixedPreset, Made, Policy, PolicyDecision, PolicySettings, PolicyView, ReadFile, ground,
    settings,
};
use crate::kernel::AdvisorMode;
use crate::knobs::{Knob, KnobSettings};
use crate::reading::Reading;
use crate::units::TimeSpan;

/// The interval between two checks of the advisor. It acts once per pass, which takes minutes.
const WATCH_EVERY: Duration = Duration::from_secs(10);

/// The sleep that is assumed where it can't be read: the kernel's default.
const DEFAULT_SLEEP_MS: u64 = 20;

/// The advisor's floor in per cent of a CPU: `KSM_ADVISOR_MIN_CPU` in `mm/ksm.c`.
const FLOOR_PERCENT: u64 = 10;

/// The table `[policy.advisor]`. What is not given stays as the kernel has it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AdvisorConfig {
    /// `advisor_max_cpu`, in per cent of one CPU. The kernel's default is 70.
    #[serde(deserialize_with = "max_cpu")]
    pub max_cpu_percent: Option<u64>,
    /// `advisor_min_pages_to_scan`, where it starts. The kernel's default is 500.
    #[serde(deserialize_with = "min_pages")]
    pub min_pages_to_scan: Option<u64>,
    /// `advisor_max_pages_to_scan`, in pages. The kernel's default is 30000.
    #[serde(deserialize_with = "max_pages")]
    pub max_pages_to_scan: Option<u64>,
    /// `advisor_target_scan_time`, in seconds: how long a pass should take. The kernel's default is 200.
    #[serde(deserialize_with = "target")]
    pub target_scan_time_seconds: Option<u64>,
}

impl PolicySettings for AdvisorConfig {
    const HELP: &'static str = "Leave it to the kernel's own advisor, and watch";
    const COMPETITORS: &'static [(&'static str, &'static str)] = &[("advisor", "")];

    fn policy(&self, _: ReadFile<'_>) -> Made {
        Ok(Box::new(AdvisorPolicy::new(self.clone())))
    }
}

fn max_cpu<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    settings::value(Knob::AdvisorMaxCpu, deserializer)
}

fn min_pages<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    settings::value(Knob::AdvisorMinPagesToScan, deserializer)
}

fn max_pages<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    settings::value(Knob::AdvisorMaxPagesToScan, deserializer)
}

fn target<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    settings::value(Knob::AdvisorTargetScanTime, deserializer)
}

impl AdvisorConfig {
    /// The parameters wanted, those held back by the limits included.
    fn knobs(&self, view: &PolicyView<'_>) -> KnobSettings {
        let ksm = &view.now.ksm;
        let held = |knob: Knob, wanted: Option<u64>, most: Option<u64>| {
            let now = knob.current(ksm);
            // A parameter without a limit and a configured value is left alone.
            most.map(|most| wanted.or(now).unwrap_or(most).min(most)).or(wanted).map(|value| (knob, value))
        };
        let percent = most_percent(view);
        let pages = most_pages(view);
        [
            held(Knob::AdvisorMaxCpu, self.max_cpu_percent, percent),
            held(Knob::AdvisorMinPagesToScan, self.min_pages_to_scan, pages),
            held(Knob::AdvisorMaxPagesToScan, self.max_pages_to_scan, pages),
            held(Knob::AdvisorTargetScanTime, self.target_scan_time_seconds, None),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// The limit on `advisor_max_cpu`. `None` where there is none.
fn most_percent(view: &PolicyView<'_>) -> Option<u64> {
    let part = view.limits.max_cpu.part();
    // 0.29 * 100.0 is a little under 29.
    (part < 1.0).then_some((part * 100.0 + 1e-9) as u64)
}

/// The limit on the advisor's pages. The limit on CPU matters here only below the advisor's own floor. It is rounded
/// down to a power of two, so that it does not move with every new measurement.
fn most_pages(view: &PolicyView<'_>) -> Option<u64> {
    let most = u64::from(view.limits.max_pages_to_scan);
    if most_percent(view).is_some_and(|percent| percent < FLOOR_PERCENT) {
        let sleep = view.now.ksm.sleep_millisecs.get().unwrap_or(DEFAULT_SLEEP_MS).min(u64::from(u32::MAX));
        let batch = view.limits.max_batch(view.history, Duration::from_millis(sleep));
        return Some(batch.checked_ilog2().map_or(0, |log| 1 << log).min(most));
    }
    (most < u64::from(u32::MAX)).then_some(most)
}

/// The policy that hands over to the kernel's advisor and watches it.
#[derive(Debug, Clone, Default)]
pub struct AdvisorPolicy {
    config: AdvisorConfig,
    /// `pages_to_scan` as last seen, and as it was before its last correction.
    pages: Option<(u64, u64)>,
}

impl AdvisorPolicy {
    /// Creates the policy with these parameters.
    pub fn new(config: AdvisorConfig) -> Self {
        Self { config, pages: None }
    }

    fn hand_over(&mut self, view: &PolicyView<'_>) -> PolicyDecision {
        self.pages = None;
        let knobs = self.config.knobs(view).with(Knob::AdvisorMode, 1).with(Knob::Run, 1);
        let start = knobs.get(Knob::AdvisorMinPagesToScan).or(Knob::AdvisorMinPagesToScan.current(&view.now.ksm));
        let from = start.map_or(String::new(), |pages| format!("from {pages} pages a batch, "));
        let detail = format!("{from}for passes of {}", target_text(&knobs, view));
        let reason = DecisionReason::new("handing-over", "the kernel's advisor takes over").with_detail(detail);
        PolicyDecision::new(knobs, reason, WATCH_EVERY)
    }

    fn watch(&mut self, view: &PolicyView<'_>) -> PolicyDecision {
        let knobs = self.config.knobs(view).with(Knob::AdvisorMode, 1).with(Knob::Run, 1);
        let mut parts = Vec::new();
        let mut text = "the kernel's advisor scans".to_owned();
        if let Some(now) = view.now.ksm.pages_to_scan.get() {
            let (last, before) = self.pages.unwrap_or((now, now));
            let before = if now == last { before } else { last };
            self.pages = Some((now, before));
            parts.extend((before != now).then(|| format!("before: {before} pages")));
            text.push_str(&format!(" {now} pages a batch"));
        }
        let target = target_text(&knobs, view);
        parts.push(match view.history.last_pass() {
            Some(_) => format!("{}, to take {target}", ground::last_pass(view.history)),
            None => format!("its first correction comes when a pass has ended, to take {target}"),
        });
        parts.extend(ground::ksmd_share(view.history));
        PolicyDecision::new(knobs, DecisionReason::new("watching", text).with_detail(parts.join("; ")), WATCH_EVERY)
    }
}

/// `200 s`, or what else a pass should take.
fn target_text(knobs: &KnobSettings, view: &PolicyView<'_>) -> String {
    let seconds = knobs.get(Knob::AdvisorTargetScanTime).or(view.now.ksm.advisor_target_scan_time.get());
    seconds.map_or("an unknown time".to_owned(), |seconds| TimeSpan(Duration::from_secs(seconds)).to_string())
}

impl Policy for AdvisorPolicy {
    fn name(&self) -> &'static str {
        "advisor"
    }

    fn decide(&mut self, view: &PolicyView<'_>) -> PolicyDecision {
        let ksm = &view.now.ksm;
        match &ksm.advisor_mode {
            Reading::Value(AdvisorMode::None) => self.hand_over(view),
            Reading::Value(AdvisorMode::ScanTime) => self.watch(view),
            Reading::Absent => fall_back(view),
            fault => {
                let reason = DecisionReason::new(
                    "blind",
                    format!("advisor_mode can't be read: {fault}; nothing is changed"),
                );
                PolicyDecision::new(KnobSettings::none(), reason, WATCH_EVERY)
            }
        }
    }
}

fn fall_back(view: &PolicyView<'_>) -> PolicyDecision {
    let mut knobs = FixedPreset::KernelDefault.knobs();
    knobs.remove(Knob::AdvisorMode);
    let reason = DecisionReason::new("fallback", "this kernel has no advisor: its default settings are used")
        .with_detail(format!("Linux 6.8 and later have one; {}", ground::last_pass(view.history)));
    PolicyDecision::new(knobs, reason, WATCH_EVERY)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::decide::testing::{PolicyTestHost, any_samples, holds_for_any, run};
    use crate::decide::{CpuShare, PolicyLimits};
    use crate::kernel::Ksm;

    fn policy() -> AdvisorPolicy {
        AdvisorPolicy::new(AdvisorConfig::default())
    }

    #[test]
    fn the_kernel_takes_over_and_is_watched() {
        let mut policy = policy();
        let mut host = PolicyTestHost::linux_6_18();
        let first = host.decide(&mut policy);
        assert_eq!(first.knobs.to_string(), "advisor_mode=scan-time run=1");
        assert_eq!(
            format!("{:#}", first.reason),
            "handing-over: the kernel's advisor takes over (from 500 pages a batch, for passes of 3 min 20 s)"
        );
        assert_eq!(
            format!("{:#}", host.after(10).decide(&mut policy).reason),
            "watching: the kernel's advisor scans 500 pages a batch \
             (its first correction comes when a pass has ended, to take 3 min 20 s; ksmd at 0 % of a CPU)"
        );
        host.pass(90, 25_600).ksmd_cpu_ms(10_000);
        host.sample.ksm.pages_to_scan = Reading::Value(225);
        let corrected = "watching: the kernel's advisor scans 225 pages a batch (before: 500 pages; last pass took \
                         1 min 40 s, 100 MiB saved at 10.0 MiB per CPU-second, to take 3 min 20 s; \
                         ksmd at 11 % of a CPU)";
        assert_eq!(format!("{:#}", host.decide(&mut policy).reason), corrected);
        let later = format!("{:#}", host.after(1).decide(&mut policy).reason);
        assert!(later.contains("225 pages a batch (before: 500 pages;"), "{later}");
    }

    #[test]
    fn parameters_are_there_before_it_is_switched_on() {
        let config = AdvisorConfig { min_pages_to_scan: Some(4000), ..AdvisorConfig::default() };
        let mut host = PolicyTestHost::linux_6_18();
        host.decide(&mut AdvisorPolicy::new(config));
        assert_eq!(host.sample.ksm.pages_to_scan, Reading::Value(4000));
    }

    #[test]
    fn an_advisor_that_another_program_switches_off_is_switched_on_again() {
        let mut policy = policy();
        let mut host = PolicyTestHost::linux_6_18();
        host.decide(&mut policy);
        host.apply(&KnobSettings::none().with(Knob::AdvisorMode, 0));
        assert_eq!(host.after(1).decide(&mut policy).reason.state, "handing-over");
        assert_eq!(host.after(1).decide(&mut policy).reason.state, "watching");
    }

    #[test]
    fn a_kernel_without_advisor_gets_its_default_settings_and_is_told() {
        let mut host = PolicyTestHost::linux_6_1();
        host.sample.ksm.pages_to_scan = Reading::Value(5000);
        let decision = host.decide(&mut policy());
        assert_eq!(host.sample.ksm.pages_to_scan, Reading::Value(100));
        assert_eq!(host.sample.ksm.run, Reading::Value(1));
        assert_eq!(
            format!("{:#}", decision.reason),
            "fallback: this kernel has no advisor: its default settings are used \
             (Linux 6.8 and later have one; no pass has ended yet)"
        );
    }

    #[test]
    fn what_cannot_be_read_is_not_changed() {
        let mut host = PolicyTestHost::linux_6_18();
        host.sample.ksm.advisor_mode = Reading::Denied;
        let decision = host.decide(&mut policy());
        assert_eq!(decision.reason.to_string(), "blind: advisor_mode can't be read: denied; nothing is changed");
        assert_eq!(decision.knobs, KnobSettings::none());
        host.sample.ksm = Ksm::default();
        assert_eq!(host.decide(&mut policy()).reason.state, "no-ksm");
    }

    #[test]
    fn the_limits_hold_for_the_kernel_too() {
        let mut host = PolicyTestHost::linux_6_18();
        host.limits = PolicyLimits {
            max_cpu: CpuShare::new(0.25).unwrap(),
            max_pages_to_scan: 2000,
            ..PolicyLimits::default()
        };
        let config = AdvisorConfig { max_cpu_percent: Some(60), ..AdvisorConfig::default() };
        let decision = host.decide(&mut AdvisorPolicy::new(config));
        assert_eq!(
            decision.knobs.to_string(),
            "advisor_max_cpu=25 advisor_min_pages_to_scan=500 advisor_max_pages_to_scan=2000 \
             advisor_mode=scan-time run=1"
        );
        // Under its floor of 10 % only the pages bound it: 5 % of 20 ms at 4 us a page are 263.
        host.limits.max_cpu = CpuShare::new(0.05).unwrap();
        let decision = host.decide(&mut policy());
        assert_eq!(decision.knobs.get(Knob::AdvisorMaxCpu), Some(5));
        assert_eq!(decision.knobs.get(Knob::AdvisorMinPagesToScan), Some(256));
        assert_eq!(decision.knobs.get(Knob::AdvisorMaxPagesToScan), Some(256));
    }

    #[test]
    fn parameters_are_held_to_what_the_kernel_takes() {
        let config: AdvisorConfig = toml::from_str("max_cpu_percent = 30\ntarget_scan_time_seconds = 60").unwrap();
        assert_eq!((config.max_cpu_percent, config.target_scan_time_seconds), (Some(30), Some(60)));
        for (bad, why) in [
            ("max_cpu_percent = 101", "a number from 0 to 100"),
            ("target_scan_time_seconds = 0", "a number from 1 to"),
            ("min_pages_to_scan = -1", "a number from 0 to"),
            ("max_cpu = 30", "max_cpu_percent"),
        ] {
            let error = toml::from_str::<AdvisorConfig>(bad).unwrap_err().to_string();
            assert!(error.contains(why) && error.contains("line 1, column"), "{bad}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_host_is_left_to_its_kernel(samples in any_samples()) {
            for decision in holds_for_any(|| Box::<AdvisorPolicy>::default(), &samples)? {
                let fallback = decision.reason.state == "fallback";
                prop_assert_eq!(decision.knobs.get(Knob::PagesToScan).is_some(), fallback);
            }
        }

        #[test]
        fn the_kernel_is_never_given_more_than_the_limits(
            samples in any_samples(),
            percent in 1_u32..100,
            max_pages_to_scan: u32,
            wanted in (prop::option::of(0_u64..=100), prop::option::of(0_u64..1 << 32), prop::option::of(0_u64..1 << 32)),
        ) {
            let max_cpu = CpuShare::new(f64::from(percent) / 100.0).unwrap();
            let limits = PolicyLimits { max_cpu, max_pages_to_scan, ..PolicyLimits::default() };
            let config = AdvisorConfig {
                max_cpu_percent: wanted.0,
                min_pages_to_scan: wanted.1,
                max_pages_to_scan: wanted.2,
                target_scan_time_seconds: None,
            };
            for decision in run(&mut AdvisorPolicy::new(config), &samples, &limits) {
                if decision.knobs.get(Knob::AdvisorMode) == Some(1) {
                    let cpu = decision.knobs.get(Knob::AdvisorMaxCpu);
                    prop_assert!(cpu.is_some_and(|cpu| cpu <= u64::from(percent)));
                    for knob in [Knob::AdvisorMinPagesToScan, Knob::AdvisorMaxPagesToScan] {
                        let pages = decision.knobs.get(knob);
                        prop_assert!(pages.is_none_or(|pages| pages <= u64::from(max_pages_to_scan)));
                    }
                }
            }
        }
    }
}
