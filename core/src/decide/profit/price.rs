//! The price: what a second of ksmd's CPU must save, which falls as the host runs short of memory.

use super::config::ProfitConfig;
use crate::sample::Sample;

/// Available memory, as a part of all, above which the host is not short of it.
const PLENTY: f64 = 0.5;
/// Available memory, as a part of all, below which the host is as short as can be.
const SHORT: f64 = 0.1;
/// Share of the last ten seconds in which work waited for memory that counts as full pressure, in per cent.
const FULL_STALL: f64 = 10.0;

/// How short of memory the host is, from 0 (not at all) to 1: by what is available, by what is being waited for or by
/// the pool that its guests share, whichever is worst. 0 where none can be read.
pub fn pressure(sample: &Sample) -> f64 {
    let scarcity = sample.memory.value().and_then(|memory| {
        let available = memory.obtainable()? as f64 / memory.total.filter(|&total| total > 0)? as f64;
        Some(((PLENTY - available) / (PLENTY - SHORT)).clamp(0.0, 1.0))
    });
    let stalls = sample.memory_pressure.value().map(|psi| (f64::from(psi.some.avg10) / FULL_STALL).clamp(0.0, 1.0));
    scarcity.unwrap_or(0.0).max(stalls.unwrap_or(0.0)).max(sample.pool_shortness.clamp(0.0, 1.0))
}

/// The price now, in bytes newly saved per second of ksmd's CPU.
pub fn price(config: &ProfitConfig, sample: &Sample) -> f64 {
    let pressure = pressure(sample);
    let mib = config.price_mib_per_cpu_second
        + pressure * (config.pressed_price_mib_per_cpu_second - config.price_mib_per_cpu_second);
    mib * f64::from(1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{Meminfo, Psi, Stall};
    use crate::reading::Reading;

    fn sample(available: u64) -> Sample {
        let memory = Meminfo { total: Some(100), available: Some(available), ..Meminfo::default() };
        Sample { memory: Reading::Value(memory), ..Sample::default() }
    }

    #[test]
    fn the_price_falls_as_memory_runs_short() {
        let config = ProfitConfig::default();
        let mib = |sample: &Sample| price(&config, sample) / f64::from(1 << 20);
        assert_eq!(mib(&sample(80)), 8.0);
        assert_eq!(mib(&sample(30)), 4.25);
        assert_eq!(mib(&sample(5)), 0.5);
        assert_eq!(mib(&Sample::default()), 8.0);
    }

    #[test]
    fn a_short_pool_presses_on_a_host_with_plenty() {
        let config = ProfitConfig::default();
        let short = Sample { pool_shortness: 1.0, ..sample(80) };
        assert_eq!(price(&config, &short) / f64::from(1 << 20), 0.5);
    }

    #[test]
    fn stalls_press_even_while_memory_seems_available() {
        let mut sample = sample(80);
        let some = Stall { avg10: 5.0, ..Stall::default() };
        sample.memory_pressure = Reading::Value(Psi { some });
        assert_eq!(pressure(&sample), 0.5);
    }
}
