//! How loudly a guest says that it has too little memory.

use super::config::BalanceConfig;
use super::{GuestView, Inside};
use crate::units::Bytes;

/// Moving so many bytes to or from its own swap in a second is a squeal.
const SWAPPING: f64 = 256.0 * 1024.0;

/// What a guest suffers, as a multiple of what counts as a squeal, and of what kind it is.
#[derive(Debug, Clone, PartialEq)]
pub struct Squeal {
    /// 0: nothing is felt. 1 and more: it squeals.
    pub level: f64,
    /// The worst of it in words.
    pub what: String,
}

impl Squeal {
    /// Listens to a guest.
    pub fn of(guest: &GuestView, config: &BalanceConfig) -> Self {
        let Inside {
            available_bytes,
            major_faults_per_second,
            swap_in_bytes_per_second,
            swap_out_bytes_per_second,
            psi_some_percent,
            ..
        } = guest.inside;
        let silent = Self { level: 0.0, what: "it is content".to_owned() };
        let one = |value: Option<f64>, limit: f64, what: &dyn Fn(f64) -> String| {
            let value = value.filter(|value| value.is_finite() && *value > 0.0)?;
            Some(Self { level: value / limit, what: what(value) })
        };
        let swapping = match (swap_in_bytes_per_second, swap_out_bytes_per_second) {
            (None, None) => None,
            (a, b) => Some(a.unwrap_or(0.0) + b.unwrap_or(0.0)),
        };
        let scarcity = available_bytes.map(|available| {
            // At half its reserve it squeals: taking stops before, at the reserve itself.
            config.reserve_bytes(guest) as f64 / 2.0 / available.max(1) as f64
        });
        let heard = [
            one(psi_some_percent, config.squeal_psi_percent, &|it| {
                format!("its work waits for memory {it:.1} % of the time")
            }),
            one(major_faults_per_second, config.squeal_faults_per_second, &|it| {
                format!("it reads {it:.0} pages/s back from disk")
            }),
            one(swapping, SWAPPING, &|it| format!("it swaps {}/s", Bytes(it as i128))),
            one(scarcity.filter(|level| *level >= 1.0), 1.0, &|_| {
                format!("it has {} left", Bytes::from(available_bytes.unwrap_or(0)))
            }),
        ];
        heard.into_iter().flatten().fold(silent, |worst, it| if it.level > worst.level { it } else { worst })
    }

    /// Whether it is more than can be asked of a guest.
    pub fn is_loud(&self) -> bool {
        self.level >= 1.0
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::guest;
    use super::*;

    fn heard(change: impl FnOnce(&mut Inside)) -> Squeal {
        let mut it = guest("a", 256, 200);
        change(&mut it.inside);
        Squeal::of(&it, &BalanceConfig::default())
    }

    #[test]
    fn each_suffering_is_heard_and_the_worst_is_named() {
        assert!(!heard(|_| ()).is_loud());
        assert!(heard(|it| it.psi_some_percent = Some(1.0)).is_loud());
        assert!(heard(|it| it.major_faults_per_second = Some(60.0)).what.contains("60 pages/s"));
        assert!(heard(|it| it.swap_out_bytes_per_second = Some(1e6)).what.contains("swaps"));
        assert!(heard(|it| it.available_bytes = Some(4 << 20)).what.contains("4.00 MiB left"));
        let both = heard(|it| (it.psi_some_percent, it.major_faults_per_second) = (Some(9.0), Some(60.0)));
        assert!(both.what.contains("9.0 %") && both.level == 9.0);
    }

    #[test]
    fn figures_that_cannot_be_are_not_heard() {
        assert_eq!(heard(|it| it.psi_some_percent = Some(f64::NAN)).level, 0.0);
        assert_eq!(heard(|it| it.major_faults_per_second = Some(f64::INFINITY)).level, 0.0);
        assert_eq!(heard(|it| it.swap_in_bytes_per_second = Some(-5.0)).level, 0.0);
    }
}
