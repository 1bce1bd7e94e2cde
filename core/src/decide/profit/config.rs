//! What an operator may set of the `profit` policy. The defaults are meant for everybody.

use serde::Deserialize;

/// The `[policy.profit]` table.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProfitConfig {
    /// MiB that one second of ksmd's CPU must newly save while memory is plentiful. A pass expected to bring
    /// less is not made.
    pub price_mib_per_cpu_second: f64,
    /// The same when the host is short of memory; between the two the price falls with the pressure.
    pub pressed_price_mib_per_cpu_second: f64,
    /// Per cent of one CPU that ksmd may use in a burst even when every CPU is busy.
    pub busy_cpu_percent: f64,
    /// MiB by which mergeable memory must have grown to be worth a burst.
    pub growth_mib: f64,
    /// Seconds from parking to the first probe.
    pub first_probe_seconds: f64,
    /// The longest time between two probes, in seconds.
    pub longest_probe_seconds: f64,
    /// Per cent of one CPU that probes may cost on average.
    pub probe_cpu_percent: f64,
    /// Whether empty pages are merged with the kernel's own zero page: cheaper for ksmd than one shared copy.
    pub zero_pages: bool,
}

impl Default for ProfitConfig {
    fn default() -> Self {
        Self {
            price_mib_per_cpu_second: 8.0,
            pressed_price_mib_per_cpu_second: 0.5,
            busy_cpu_percent: 20.0,
            growth_mib: 4.0,
            first_probe_seconds: 15.0,
            longest_probe_seconds: 7200.0,
            probe_cpu_percent: 1.0,
            zero_pages: true,
        }
    }
}

impl ProfitConfig {
    /// Checks each value against its sense.
    ///
    /// # Errors
    /// The first key whose value has none, with what would have.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        let positive = [
            ("price_mib_per_cpu_second", self.price_mib_per_cpu_second),
            ("pressed_price_mib_per_cpu_second", self.pressed_price_mib_per_cpu_second),
            ("growth_mib", self.growth_mib),
            ("first_probe_seconds", self.first_probe_seconds),
            ("longest_probe_seconds", self.longest_probe_seconds),
        ];
        for (key, value) in positive {
            if !(value > 0.0 && value <= 1e9) {
                return Err((key, format!("must be over 0 and at most 1e9, not {value}")));
            }
        }
        for (key, value) in
            [("busy_cpu_percent", self.busy_cpu_percent), ("probe_cpu_percent", self.probe_cpu_percent)]
        {
            if !(value > 0.0 && value <= 100.0) {
                return Err((key, format!("must be over 0 and at most 100, not {value}")));
            }
        }
        if self.longest_probe_seconds < self.first_probe_seconds {
            return Err(("longest_probe_seconds", "must not be less than first_probe_seconds".to_owned()));
        }
        Ok(())
    }
}
