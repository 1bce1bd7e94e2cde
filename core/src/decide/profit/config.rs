//! The settings of `profit`. The defaults suit all hosts.

use serde::Deserialize;

use super::ProfitPolicy;
use crate::contradiction::Contradiction;
use crate::decide::bounds::{percent, positive};
use crate::decide::{Made, PolicySettings, ReadFile};

/// The available per cent of memory below which it is short, unless configured otherwise.
pub const SHORT_PERCENT: f64 = 20.0;

/// The time at which ksmd merges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MergeTime {
    /// Whenever a scan pays.
    #[default]
    Pays,
    /// Only while memory is short, and then whenever a scan pays. Huge pages stay whole for as long as there is room.
    Short,
}

/// The `[policy.profit]` table.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProfitConfig {
    /// The time at which ksmd merges: `pays` or `short`.
    pub when: MergeTime,
    /// Per cent of the host's memory: with `when = "short"` memory is short once less is available.
    #[serde(deserialize_with = "percent")]
    pub short_percent: f64,
    /// Per cent of memory in huge pages that merging must save while memory is plentiful. Where a forecast finds that it
    /// saves less, of all memory and of what it splits, ksmd waits. Under pressure less is enough.
    #[serde(deserialize_with = "percent")]
    pub split_saves_percent: f64,
    /// MiB that one second of ksmd's CPU must newly save while memory is plentiful. A pass expected to bring
    /// less is not made.
    #[serde(deserialize_with = "positive")]
    pub price_mib_per_cpu_second: f64,
    /// The same when the host is short of memory; between the two the price falls with the pressure.
    #[serde(deserialize_with = "positive")]
    pub pressed_price_mib_per_cpu_second: f64,
    /// Per cent of one CPU that ksmd may use in a burst even when every CPU is busy.
    #[serde(deserialize_with = "percent")]
    pub busy_cpu_percent: f64,
    /// MiB by which mergeable memory must have grown to be worth a burst.
    #[serde(deserialize_with = "positive")]
    pub growth_mib: f64,
    /// True if ksmd waits until new guests have filled their memory: until the most that they held is as old as a quarter
    /// of their age. A program that computes in step is disturbed by each pass, and one for memory that grows is repeated.
    pub after_init: bool,
    /// True if pages are read before each burst and probe, and none is made where they tell that it saves less than the
    /// price.
    pub look_first: bool,
    /// Per cent of the time that ksmd's CPU time may come to, but for a second in advance. Ranks that spin while they
    /// wait for each other are delayed by as much. 100: not limited.
    #[serde(deserialize_with = "percent")]
    pub max_delay_percent: f64,
    /// Seconds from parking to the first probe.
    #[serde(deserialize_with = "positive")]
    pub first_probe_seconds: f64,
    /// The longest time between two probes, in seconds. Less than `first_probe_seconds` means that.
    #[serde(deserialize_with = "positive")]
    pub longest_probe_seconds: f64,
    /// Per cent of one CPU that probes may cost on average.
    #[serde(deserialize_with = "percent")]
    pub probe_cpu_percent: f64,
    /// True if empty pages are merged with the kernel's own zero page: cheaper for ksmd than one shared copy.
    pub zero_pages: bool,
}

impl PolicySettings for ProfitConfig {
    const HELP: &'static str = "Spend ksmd's CPU where it pays";
    const COMPETITORS: &'static [(&'static str, &'static str)] = &[("profit", "")];

    fn policy(&self, _: ReadFile<'_>) -> Made {
        Ok(Box::new(ProfitPolicy::new(self.clone())))
    }
}

impl ProfitConfig {
    /// Returns the contradiction in the settings, if there is one.
    pub fn contradiction(&self) -> Option<Contradiction> {
        let (price, pressed) = (self.price_mib_per_cpu_second, self.pressed_price_mib_per_cpu_second);
        let message = format!(
            "pressed_price_mib_per_cpu_second ({pressed}) must not be more than price_mib_per_cpu_second \
             ({price}): memory is worth more while it is short, so less must be saved per second of CPU"
        );
        let key = |name| ["policy", "profit", name];
        let keys: [&[&str]; 2] = [&key("pressed_price_mib_per_cpu_second"), &key("price_mib_per_cpu_second")];
        (pressed > price).then(|| Contradiction::new(&keys, message))
    }
}

impl Default for ProfitConfig {
    fn default() -> Self {
        Self {
            when: MergeTime::Pays,
            short_percent: SHORT_PERCENT,
            split_saves_percent: 5.0,
            price_mib_per_cpu_second: 8.0,
            pressed_price_mib_per_cpu_second: 0.5,
            busy_cpu_percent: 20.0,
            growth_mib: 4.0,
            after_init: false,
            look_first: false,
            max_delay_percent: 100.0,
            first_probe_seconds: 15.0,
            longest_probe_seconds: 7200.0,
            probe_cpu_percent: 1.0,
            zero_pages: true,
        }
    }
}
