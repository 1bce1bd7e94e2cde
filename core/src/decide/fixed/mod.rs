//! `fixed`: settings that a person chose, held as they are.
//!
//! The presets are settings that articles on KSM recommend:
//! * `kernel-default`: `mm/ksm.c` of Linux 6.18, with ksmd switched on.
//! * `morfik`: Morfik, "Zastosowanie KSM w maszynach wirtualnych QEMU/KVM" (2020): a little more saved for
//!   two Ubuntu VMs this way for three times the CPU.
//! * `still`: Michael Still, "The KSM and I": gave one of 48 cores to ksmd and got 300 GB in 90 minutes.
//!
//! The last two name exactly what their authors set. Their kernels had no `smart_scan`: on Linux 6.7 and later,
//! add `smart_scan = 0` to have ksmd behave as they saw it.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;

use crate::knobs::{Knob, KnobSettings};
use crate::units::CountedNoun;

use super::{DecisionReason, Made, Policy, PolicyDecision, PolicySettings, PolicyView, ReadFile, ground, settings};

/// The interval between two checks of the settings when nothing happens.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// Settings by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum FixedPreset {
    /// The settings that the kernel boots with, and `run` = 1.
    KernelDefault,
    /// 1000 pages every 10 ms.
    Morfik,
    /// A thousand million pages every 20 ms: one CPU for ksmd.
    Still,
}

impl FixedPreset {
    /// All presets.
    pub const ALL: [Self; 3] = [Self::KernelDefault, Self::Morfik, Self::Still];

    /// The name in the configuration: `preset = "…"`.
    pub fn name(self) -> &'static str {
        match self {
            Self::KernelDefault => "kernel-default",
            Self::Morfik => "morfik",
            Self::Still => "still",
        }
    }

    /// The settings of the preset.
    pub fn knobs(self) -> KnobSettings {
        let knobs = KnobSettings::none().with(Knob::SleepMillisecs, 20).with(Knob::Run, 1);
        match self {
            Self::KernelDefault => knobs
                .with(Knob::PagesToScan, 100)
                .with(Knob::SmartScan, 1)
                .with(Knob::UseZeroPages, 0)
                .with(Knob::AdvisorMode, 0)
                .with(Knob::StableNodeChainsPruneMillisecs, 2000),
            Self::Morfik => knobs.with(Knob::PagesToScan, 1000).with(Knob::SleepMillisecs, 10),
            Self::Still => knobs.with(Knob::PagesToScan, 1_000_000_000),
        }
    }
}

impl fmt::Display for FixedPreset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that is no preset.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no preset {0:?}; there are: {names}", names = FixedPreset::ALL.map(FixedPreset::name).join(", "))]
pub struct UnknownPreset(pub String);

impl FromStr for FixedPreset {
    type Err = UnknownPreset;

    fn from_str(name: &str) -> Result<Self, UnknownPreset> {
        Self::ALL
            .into_iter()
            .find(|preset| preset.name() == name)
            .ok_or_else(|| UnknownPreset(name.chars().take(60).collect()))
    }
}

impl TryFrom<String> for FixedPreset {
    type Error = UnknownPreset;

    fn try_from(name: String) -> Result<Self, UnknownPreset> {
        name.parse()
    }
}

/// The table `[policy.fixed]`. With neither key nothing is ever changed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FixedConfig {
    /// `kernel-default`, `morfik` or `still`.
    pub preset: Option<FixedPreset>,
    /// Settings by their kernel names, over those of the preset: `{ pages_to_scan = 1000, smart_scan = 0 }`.
    #[serde(deserialize_with = "settings::knobs")]
    pub settings: KnobSettings,
}

impl PolicySettings for FixedConfig {
    const HELP: &'static str = "Hold settings that were chosen by hand";
    const COMPETITORS: &'static [(&'static str, &'static str)] = &[
        ("fixed:kernel-default", "preset = \"kernel-default\""),
        ("fixed:morfik", "preset = \"morfik\""),
        ("fixed:still", "preset = \"still\""),
    ];

    fn policy(&self, _: ReadFile<'_>) -> Made {
        Ok(Box::new(FixedPolicy::from(self.clone())))
    }
}

/// Holds the same settings for ever.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FixedPolicy {
    wanted: KnobSettings,
}

impl FixedPolicy {
    /// Holds the settings `wanted`. If they name `pages_to_scan`, the kernel's advisor is switched off.
    pub fn new(wanted: KnobSettings) -> Self {
        Self { wanted }
    }

    /// Holds the settings of the preset called `name`.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn preset(name: &str) -> Result<Self, UnknownPreset> {
        name.parse().map(|preset: FixedPreset| Self::new(preset.knobs()))
    }
}

impl From<FixedConfig> for FixedPolicy {
    fn from(config: FixedConfig) -> Self {
        let preset = config.preset.map(FixedPreset::knobs).unwrap_or_default();
        // Later settings replace earlier ones.
        Self::new(preset.iter().chain(config.settings.iter()).collect())
    }
}

impl Policy for FixedPolicy {
    fn name(&self) -> &'static str {
        "fixed"
    }

    fn decide(&mut self, view: &PolicyView<'_>) -> PolicyDecision {
        let knobs = ground::take_over(self.wanted.clone(), &view.now.ksm);
        let reason = self.reason(&knobs, view);
        PolicyDecision::new(knobs, reason, LOOK_EVERY)
    }
}

impl FixedPolicy {
    fn reason(&self, knobs: &KnobSettings, view: &PolicyView<'_>) -> DecisionReason {
        if knobs.is_empty() {
            return DecisionReason::new("watching", "nothing to set").with_detail(ground::last_pass(view.history));
        }
        let ksm = &view.now.ksm;
        let change = knobs.differing_from(ksm);
        let reason = if change.is_empty() {
            let mut parts = vec![knobs.to_string(), ground::last_pass(view.history)];
            parts.extend(ground::ksmd_share(view.history));
            DecisionReason::new("holding", "the configured settings are in place").with_detail(parts.join("; "))
        } else {
            let before: KnobSettings =
                change.iter().filter_map(|(knob, _)| Some((knob, knob.current(ksm)?))).collect();
            let settings = CountedNoun::new(change.iter().count(), "setting");
            let text = format!("{} as configured", settings.with_verb("is set", "are set"));
            DecisionReason::new("setting", text).with_detail(format!("{change}, now {before}"))
        };
        let unknown: Vec<_> =
            knobs.iter().filter(|(knob, _)| knob.current(ksm).is_none()).map(|(knob, _)| knob.name()).collect();
        if unknown.is_empty() {
            return reason;
        }
        reason.with_detail(format!("not visible on this kernel: {}", unknown.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::decide::testing::{PolicyTestHost, any_samples, holds_for_any};
    use crate::kernel::{AdvisorMode, Ksm};
    use crate::reading::Reading;

    #[test]
    fn a_preset_is_set_and_then_held() {
        let mut host = PolicyTestHost::linux_6_18();
        let mut fixed = FixedPolicy::preset("morfik").unwrap();
        let first = host.decide(&mut fixed);
        assert_eq!(
            format!("{:#}", first.reason),
            "setting: 3 settings are set as configured \
             (pages_to_scan=1000 sleep_millisecs=10 run=1, now pages_to_scan=100 sleep_millisecs=20 run=0)"
        );
        let second = host.pass(4, 256).decide(&mut fixed);
        assert_eq!(second.knobs, first.knobs);
        assert_eq!(
            format!("{:#}", second.reason),
            "holding: the configured settings are in place (pages_to_scan=1000 sleep_millisecs=10 run=1; \
             last pass took 4 s, 1.00 MiB saved; ksmd at 0 % of a CPU)"
        );
    }

    #[test]
    fn what_another_program_changed_is_put_back() {
        let mut host = PolicyTestHost::linux_6_18();
        let mut fixed = FixedPolicy::preset("still").unwrap();
        host.decide(&mut fixed);
        host.apply(&KnobSettings::none().with(Knob::PagesToScan, 64));
        let decision = host.after(1).decide(&mut fixed);
        assert_eq!(decision.reason.text, "1 setting is set as configured");
        assert_eq!(decision.reason.detail.unwrap(), "pages_to_scan=1000000000, now pages_to_scan=64");
        assert_eq!(host.sample.ksm.pages_to_scan, Reading::Value(1_000_000_000));
    }

    #[test]
    fn the_kernel_default_is_what_a_kernel_boots_with() {
        let ksm = PolicyTestHost::linux_6_18().sample.ksm;
        let change = FixedPreset::KernelDefault.knobs().differing_from(&ksm);
        assert_eq!(change, KnobSettings::none().with(Knob::Run, 1));
    }

    #[test]
    fn the_advisor_is_switched_off_for_pages_to_scan() {
        let mut host = PolicyTestHost::linux_6_18();
        host.sample.ksm.advisor_mode = Reading::Value(AdvisorMode::ScanTime);
        let decision = host.decide(&mut FixedPolicy::preset("morfik").unwrap());
        assert_eq!(decision.knobs.get(Knob::AdvisorMode), Some(0));
        assert_eq!(host.sample.ksm.pages_to_scan, Reading::Value(1000));
    }

    #[test]
    fn what_a_kernel_lacks_is_named_and_the_rest_is_set() {
        let mut host = PolicyTestHost::linux_6_1();
        let decision = host.decide(&mut FixedPolicy::preset("kernel-default").unwrap());
        assert_eq!(
            decision.reason.detail.unwrap(),
            "run=1, now run=0; not visible on this kernel: advisor_mode, smart_scan"
        );
        assert_eq!(host.sample.ksm.run, Reading::Value(1));
    }

    #[test]
    fn without_ksm_nothing_is_set() {
        let mut host = PolicyTestHost::linux_6_18();
        host.sample.ksm = Ksm::default();
        let decision = host.decide(&mut FixedPolicy::preset("still").unwrap());
        assert_eq!((decision.knobs, decision.reason.state), (KnobSettings::none(), "no-ksm"));
    }

    #[test]
    fn an_unknown_preset_is_answered_with_the_list() {
        let error = FixedPolicy::preset("fast").unwrap_err();
        assert_eq!(error.to_string(), "there is no preset \"fast\"; there are: kernel-default, morfik, still");
        assert!(FixedPreset::ALL.iter().all(|preset| preset.name().parse() == Ok(*preset)));
    }

    #[test]
    fn settings_of_the_configuration_replace_those_of_the_preset() {
        let config: FixedConfig =
            toml::from_str("preset = \"morfik\"\nsettings = { sleep_millisecs = 5, smart_scan = 0 }").unwrap();
        assert_eq!(
            FixedPolicy::from(config).wanted.to_string(),
            "smart_scan=0 pages_to_scan=1000 sleep_millisecs=5 run=1"
        );
        let error = toml::from_str::<FixedConfig>("preset = \"fast\"").unwrap_err().to_string();
        assert!(error.contains("line 1, column 10") && error.contains("kernel-default, morfik, still"), "{error}");
        assert!(toml::from_str::<FixedConfig>("presets = \"morfik\"").is_err());
    }

    #[test]
    fn with_nothing_configured_nothing_is_changed() {
        let decision = PolicyTestHost::linux_6_18().decide(&mut FixedPolicy::from(FixedConfig::default()));
        assert_eq!(decision.knobs, KnobSettings::none());
        assert_eq!(format!("{:#}", decision.reason), "watching: nothing to set (no pass has ended yet)");
    }

    proptest! {
        #[test]
        fn any_host_gets_the_same_settings(samples in any_samples(), preset in 0_usize..3) {
            let preset = FixedPreset::ALL[preset];
            for decision in holds_for_any(|| Box::new(FixedPolicy::new(preset.knobs())), &samples)? {
                let wanted = decision.knobs.get(Knob::PagesToScan);
                prop_assert!(decision.knobs.is_empty() || wanted == preset.knobs().get(Knob::PagesToScan));
            }
        }
    }
}
