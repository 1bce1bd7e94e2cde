//! The account of ksmd's CPU time that brought less than its price.
//!
//! A scan may be made for its gain at best while little is known. Its cost beyond its gain is charged here, and paid
//! off with the part of a CPU that an operator grants. Until then a scan has to be expected to pay.

use std::time::Duration;

use crate::scan::ScanOutcome;

/// The account and what it owes.
#[derive(Debug, Clone, Copy, Default)]
pub struct ExplorationAccount {
    /// CPU-seconds that are not paid off.
    unpaid: f64,
    /// The time of the last payment.
    at: Duration,
}

impl ExplorationAccount {
    /// Pays off what `part` of a CPU has come to since.
    pub fn follow(&mut self, at: Duration, part: f64) {
        let seconds = at.saturating_sub(std::mem::replace(&mut self.at, at)).as_secs_f64();
        self.unpaid = (self.unpaid - seconds * part).max(0.0);
    }

    /// Charges the cost of a scan beyond its gain: `cpu_seconds - saved_bytes / price`.
    pub fn charge_scan(&mut self, outcome: &ScanOutcome, price: f64) {
        let brought = outcome.saved_bytes.max(0) as f64 / price.max(f64::MIN_POSITIVE);
        self.unpaid += (outcome.cpu_seconds - brought).max(0.0);
    }

    /// Returns true if everything is paid off.
    pub fn is_settled(&self) -> bool {
        self.unpaid <= 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wasted_scan_is_paid_off_with_the_granted_part_of_a_cpu() {
        let mut account = ExplorationAccount::default();
        let second = Duration::from_secs;
        account.follow(second(100), 0.01);
        account.charge_scan(&ScanOutcome { saved_bytes: 100, cpu_seconds: 1.0 }, 100.0);
        assert!(account.is_settled(), "it has paid");
        account.charge_scan(&ScanOutcome { saved_bytes: 50, cpu_seconds: 1.0 }, 100.0);
        account.follow(second(149), 0.01);
        assert!(!account.is_settled());
        account.follow(second(151), 0.01);
        assert!(account.is_settled());
    }
}
