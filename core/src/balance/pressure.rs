//! A guest's memory pressure, from the figures that it reports.

use super::config::BalanceConfig;
use super::{GuestView, ReportedFigures};
use crate::units::Bytes;

/// The rate, in bytes per second to and from its own swap, at which a guest is under pressure.
const SWAPPING: f64 = 256.0 * 1024.0;

/// A guest's memory pressure: its worst symptom as a multiple of that symptom's limit.
#[derive(Debug, Clone, PartialEq)]
pub struct MemoryPressure {
    /// `symptom / limit`: 0 is none, 1 and more is high.
    pub level: f64,
    /// The worst symptom in words.
    pub what: String,
}

impl MemoryPressure {
    /// Computes a guest's memory pressure.
    ///
    /// ```text
    /// level = max(psi_some / pressure_psi_percent, major_faults / pressure_faults_per_second,
    ///             (swap_in + swap_out) / 256 KiB/s, reserve / 2 / available if that is at least 1)
    /// ```
    pub fn for_guest(guest: &GuestView, config: &BalanceConfig) -> Self {
        let ReportedFigures {
            available_bytes,
            major_faults_per_second,
            swap_in_bytes_per_second,
            swap_out_bytes_per_second,
            psi_some_percent,
            ..
        } = guest.inside;
        let symptom = |value: Option<f64>, limit: f64, what: &dyn Fn(f64) -> String| {
            let value = value.filter(|value| value.is_finite() && *value > 0.0)?;
            Some(Self { level: value / limit, what: what(value) })
        };
        let swapping = match (swap_in_bytes_per_second, swap_out_bytes_per_second) {
            (None, None) => None,
            (a, b) => Some(a.unwrap_or(0.0) + b.unwrap_or(0.0)),
        };
        // Half the reserve, since taking stops before that: at the reserve itself.
        let scarcity =
            available_bytes.map(|available| config.reserve_bytes(guest) as f64 / 2.0 / available.max(1) as f64);
        let symptoms = [
            symptom(psi_some_percent, config.pressure_psi_percent, &|percent| {
                format!("its tasks wait for memory {percent:.1} % of the time")
            }),
            symptom(major_faults_per_second, config.pressure_faults_per_second, &|rate| {
                format!("it reads {rate:.0} pages/s back from disk")
            }),
            symptom(swapping, SWAPPING, &|rate| format!("it swaps {}/s", Bytes(rate as i128))),
            symptom(scarcity.filter(|level| *level >= 1.0), 1.0, &|_| {
                format!("it has {} left", Bytes::from(available_bytes.unwrap_or(0)))
            }),
        ];
        let none = Self { level: 0.0, what: "it is under no memory pressure".to_owned() };
        symptoms.into_iter().flatten().fold(none, |worst, it| if it.level > worst.level { it } else { worst })
    }

    /// Returns true if the guest needs memory.
    pub fn is_high(&self) -> bool {
        self.level >= 1.0
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::guest;
    use super::*;

    fn pressure(change: impl FnOnce(&mut ReportedFigures)) -> MemoryPressure {
        let mut it = guest("a", 256, 200);
        change(&mut it.inside);
        MemoryPressure::for_guest(&it, &BalanceConfig::default())
    }

    #[test]
    fn each_symptom_counts_and_the_worst_is_named() {
        assert!(!pressure(|_| ()).is_high());
        assert!(pressure(|it| it.psi_some_percent = Some(1.0)).is_high());
        assert!(pressure(|it| it.major_faults_per_second = Some(60.0)).what.contains("60 pages/s"));
        assert!(pressure(|it| it.swap_out_bytes_per_second = Some(1e6)).what.contains("swaps"));
        assert!(pressure(|it| it.available_bytes = Some(4 << 20)).what.contains("4.00 MiB left"));
        let both = pressure(|it| (it.psi_some_percent, it.major_faults_per_second) = (Some(9.0), Some(60.0)));
        assert!(both.what.contains("9.0 %") && both.level == 9.0);
    }

    #[test]
    fn figures_that_cannot_be_are_not_pressure() {
        assert_eq!(pressure(|it| it.psi_some_percent = Some(f64::NAN)).level, 0.0);
        assert_eq!(pressure(|it| it.major_faults_per_second = Some(f64::INFINITY)).level, 0.0);
        assert_eq!(pressure(|it| it.swap_in_bytes_per_second = Some(-5.0)).level, 0.0);
    }
}
