//! The rate at which writes break merged pages.

use std::time::Duration;

use ksmith_core::sample::Sample;

/// The rate of copies on write between the last two samples.
#[derive(Debug, Default)]
pub(super) struct ChurnRate {
    before: Option<(Duration, u64)>,
    last: Option<(Duration, u64)>,
}

impl ChurnRate {
    pub(super) fn see(&mut self, sample: &Sample) {
        let cow = sample.host.vmstat.value().and_then(|vm| vm.cow_ksm);
        if let Some(cow) = cow {
            self.before = self.last.replace((sample.at, cow));
        }
    }

    /// Returns the rate in pages per second.
    pub(super) fn rate(&self) -> Option<f64> {
        let ((before, old), (now, new)) = (self.before?, self.last?);
        let seconds = now.checked_sub(before)?.as_secs_f64();
        (seconds > 0.0).then(|| new.saturating_sub(old) as f64 / seconds)
    }
}

#[cfg(test)]
mod tests {
    use ksmith_core::kernel::{HostReadings, Vmstat};
    use ksmith_core::reading::Reading;

    use super::*;

    #[test]
    fn churn_is_the_difference_over_time() {
        let mut churn = ChurnRate::default();
        for (second, cow) in [(10, 100), (12, 150)] {
            assert_eq!(churn.rate(), None);
            let vmstat = Reading::Value(Vmstat { cow_ksm: Some(cow), ..Vmstat::default() });
            let host = HostReadings { vmstat, ..HostReadings::default() };
            churn.see(&Sample { at: Duration::from_secs(second), host, ..Sample::default() });
        }
        assert_eq!(churn.rate(), Some(25.0));
    }
}
