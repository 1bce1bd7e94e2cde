//! The time for a forecast, and the number of pages that it reads.

use std::sync::Arc;
use std::time::Duration;

use crate::kernel::RunState;
use crate::page_sample::MergeablePopulation;
use crate::sample::{ForecastState, HostForecast, MergeForecast, ProcessForecast, Sample};

/// The least mergeable memory that is read for a forecast, in bytes.
const LEAST_BYTES: u64 = 64 << 20;

/// The inverse of the part of the mergeable memory that the host must have in huge pages for a forecast.
const LEAST_HUGE: u64 = 4;

/// Pages to read: `sqrt(DRAWN * pages)` finds so many equal pairs if each page has one other.
const DRAWN: f64 = 2000.0;

/// The most pages to draw, about a fifth of a second's reading.
const MOST_DRAWN: f64 = 65_536.0;

/// Least time between two forecasts, and from one to the next for processes that started or ended alone.
const PAUSE: Duration = Duration::from_secs(5);
const LONG_PAUSE: Duration = Duration::from_secs(15);

/// The longest time for which samples wait for the first forecast. A reading that fails is recorded sooner.
const PATIENCE: Duration = Duration::from_secs(20);

/// The age at which a forecast is made anew: at first, and once memory stays as it was.
const FIRST_AGE: Duration = Duration::from_secs(60);
const LAST_AGE: Duration = Duration::from_secs(600);

/// Decides when memory is read for a forecast, and keeps the newest.
#[derive(Debug, Clone, Default)]
pub struct ForecastPlanner {
    forecast: Option<MergeForecast>,
    /// The parts of processes in it.
    processes: Arc<[ProcessForecast]>,
    /// The processes at the newest reading, and its time. `None`: there is nothing to forecast.
    read: Option<(MergeablePopulation, Duration)>,
    age: Duration,
    is_under_way: bool,
    /// True if a forecast is requested, of memory in small pages too.
    is_requested: bool,
    /// True if the newest reading was requested.
    was_requested: bool,
}

/// A request to read memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ForecastRequest {
    /// The chance with which each page is to be drawn, 0 to 1.
    pub rate: f64,
    /// Mergeable bytes of all processes.
    pub bytes: u64,
    /// True if the forecast is worth nothing where pages in huge pages can't be told from others.
    pub needs_huge_pages: bool,
}

impl ForecastRequest {
    /// Chooses how many pages of so many mergeable bytes are read, for a forecast of splits.
    pub fn of_memory(bytes: u64, page_size: u64) -> Self {
        let pages = (bytes / page_size.max(1)).max(1) as f64;
        let drawn = (DRAWN * pages).sqrt().min(MOST_DRAWN);
        Self { rate: (drawn / pages).min(1.0), bytes, needs_huge_pages: true }
    }
}

impl ForecastPlanner {
    /// Requests a forecast at the next sample, however few huge pages there are.
    pub fn request(&mut self) {
        self.is_requested = true;
    }

    /// Returns the request that is due at this sample. Its result is to be recorded before the next is made.
    pub fn next_request(&mut self, sample: &Sample) -> Option<ForecastRequest> {
        if self.is_under_way {
            return None;
        }
        let population = MergeablePopulation::from_sample(sample);
        let huge = sample.host.memory.value().and_then(|memory| memory.anonymous_huge).unwrap_or(0);
        let is_requested = std::mem::take(&mut self.is_requested);
        let has_huge = huge >= population.bytes / LEAST_HUGE;
        if population.bytes < LEAST_BYTES || !has_huge && !is_requested {
            let is_kept = self.was_requested && population.bytes >= LEAST_BYTES;
            if !is_kept || self.read.is_none_or(|(read, _)| has_changed(read, population)) {
                // What was forecast is gone.
                (self.forecast, self.read) = (None, None);
            }
            return None;
        }
        let is_running = sample.ksm.run_state() == Some(RunState::Running);
        if is_running || !is_requested && !self.is_due(population, sample.at) {
            return None;
        }
        self.was_requested = is_requested;
        if is_requested {
            self.forecast = None;
        }
        self.age = match self.read {
            Some((read, _)) if !has_changed(read, population) => (self.age * 2).clamp(FIRST_AGE, LAST_AGE),
            _ => FIRST_AGE,
        };
        (self.read, self.is_under_way) = (Some((population, sample.at)), true);
        let request = ForecastRequest::of_memory(population.bytes, sample.page_size);
        Some(ForecastRequest { needs_huge_pages: !is_requested, ..request })
    }

    fn is_due(&self, population: MergeablePopulation, at: Duration) -> bool {
        let Some((read, read_at)) = self.read else { return true };
        let since = at.saturating_sub(read_at);
        // Where memory can't be read there is no need to try at each change.
        let has_news = self.forecast.is_some() && has_changed(read, population);
        let has_others = self.forecast.is_some() && population.ids != read.ids;
        since >= self.age || has_news && since >= PAUSE || has_others && since >= LONG_PAUSE
    }

    /// Records the forecast that was requested; `None` if too little could be read.
    pub fn record(&mut self, forecast: Option<HostForecast>) {
        let (total, processes) = forecast.map(|forecast| (forecast.total, forecast.processes)).unzip();
        (self.forecast, self.is_under_way) = (total, false);
        self.processes = processes.unwrap_or_default().into();
    }

    /// Fills the state into a sample, and the parts of processes of a forecast that is known.
    pub fn fill(&self, sample: &mut Sample) {
        sample.merge_forecast = self.state(sample.at);
        sample.process_forecasts = match sample.merge_forecast {
            ForecastState::Known(_) => Arc::clone(&self.processes),
            ForecastState::Pending | ForecastState::Unavailable => Arc::default(),
        };
    }

    /// Returns the state for a sample at this time. A forecast holds until there is a newer one.
    pub fn state(&self, at: Duration) -> ForecastState {
        match (self.forecast, self.read) {
            _ if self.is_requested => ForecastState::Pending,
            (Some(forecast), _) => ForecastState::Known(forecast),
            (None, Some((_, since))) if self.is_under_way && at.saturating_sub(since) < PATIENCE => {
                ForecastState::Pending
            }
            _ => ForecastState::Unavailable,
        }
    }
}

/// Returns true if there is a quarter more or less memory.
fn has_changed(read: MergeablePopulation, now: MergeablePopulation) -> bool {
    now.bytes.abs_diff(read.bytes) > read.bytes / 4
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{HostReadings, KsmStat, Meminfo};
    use crate::reading::Reading;
    use crate::sample::{ProcessId, ProcessSample};

    fn sample(seconds: u64, mib: u64, huge_mib: u64) -> Sample {
        let ksm = KsmStat { mergeable: Some(true), ..KsmStat::default() };
        let id = ProcessId { pid: 1, start_ticks: 1 };
        let process =
            ProcessSample { rss_bytes: Some(mib << 20), ksm, ..ProcessSample::new(id, "guest".into(), true) };
        let memory = Meminfo { anonymous_huge: Some(huge_mib << 20), ..Meminfo::default() };
        Sample {
            at: Duration::from_secs(seconds),
            page_size: 4096,
            host: HostReadings { memory: Reading::Value(memory), ..HostReadings::default() },
            processes: vec![process],
            ..Sample::default()
        }
    }

    fn forecast(saved_bytes: u64) -> MergeForecast {
        MergeForecast {
            bytes: 1 << 30,
            huge_bytes: 1 << 30,
            saved_bytes,
            saved_in_huge_bytes: saved_bytes,
            split_bytes: 1 << 30,
        }
    }

    #[test]
    fn memory_in_huge_pages_is_read_before_it_is_scanned() {
        let mut planner = ForecastPlanner::default();
        assert_eq!(planner.next_request(&sample(9, 1024, 10)), None, "hardly any huge pages");
        assert_eq!(planner.state(Duration::from_secs(9)), ForecastState::Unavailable);
        let request = planner.next_request(&sample(10, 1024, 1024)).unwrap();
        assert!((request.rate * 262_144.0 - 22_897.0).abs() < 1.0, "{request:?}");
        assert_eq!(planner.next_request(&sample(11, 1024, 1024)), None, "it is under way");
        assert_eq!(planner.state(Duration::from_secs(11)), ForecastState::Pending);
        assert_eq!(planner.state(Duration::from_secs(30)), ForecastState::Unavailable, "it does not come");
        planner.record(Some(forecast(1).into()));
        assert_eq!(planner.state(Duration::from_secs(31)), ForecastState::Known(forecast(1)));
        let mut running = sample(900, 1024, 1024);
        running.ksm.run = Reading::Value(1);
        assert_eq!(planner.next_request(&running), None, "it is being scanned");
    }

    #[test]
    fn samples_have_the_parts_of_a_forecast_for_as_long_as_it_is_known() {
        let mut planner = ForecastPlanner::default();
        let mut now = sample(10, 1024, 1024);
        planner.next_request(&now).unwrap();
        let part = ProcessForecast { pid: 1, forecast: forecast(1), new_bytes: 1 };
        planner.record(Some(HostForecast { total: forecast(1), processes: vec![part] }));
        planner.fill(&mut now);
        assert_eq!((now.merge_forecast, &*now.process_forecasts), (ForecastState::Known(forecast(1)), &[part][..]));
        planner.request();
        planner.fill(&mut now);
        assert_eq!((now.merge_forecast, now.process_forecasts.len()), (ForecastState::Pending, 0));
    }

    #[test]
    fn where_memory_can_not_be_read_ksmd_waits_for_no_forecast() {
        let mut planner = ForecastPlanner::default();
        planner.next_request(&sample(10, 1024, 1024)).unwrap();
        planner.record(None);
        for seconds in 11..70 {
            let later = sample(seconds, 1024 + 64 * seconds, 1024);
            assert_eq!(planner.next_request(&later), None, "{seconds} s");
            assert_eq!(planner.state(later.at), ForecastState::Unavailable, "{seconds} s");
        }
        assert!(planner.next_request(&sample(70, 1024, 1024)).is_some());
    }

    #[test]
    fn a_forecast_holds_until_memory_has_changed_or_it_is_old() {
        let is_due = |later: &Sample| {
            let mut planner = ForecastPlanner::default();
            planner.next_request(&sample(10, 1024, 1024)).unwrap();
            planner.record(Some(forecast(1).into()));
            let is_due = planner.next_request(later).is_some();
            assert_eq!(planner.state(later.at), ForecastState::Known(forecast(1)), "until the next is there");
            is_due
        };
        assert!(!is_due(&sample(14, 1400, 1400)), "at once again");
        assert!(is_due(&sample(15, 1400, 1400)) && !is_due(&sample(15, 1200, 1200)));
        let mut another = sample(20, 1030, 1030);
        another.processes[0].id.pid = 2;
        assert!(!is_due(&another), "processes come and go");
        another.at = Duration::from_secs(25);
        assert!(is_due(&another));
        assert!(is_due(&sample(70, 1024, 1024)), "it is old");
    }

    #[test]
    fn a_forecast_that_was_requested_is_of_small_pages_too_and_holds_while_memory_does() {
        let mut planner = ForecastPlanner::default();
        let seconds = Duration::from_secs;
        planner.request();
        assert!(!planner.next_request(&sample(10, 1024, 0)).unwrap().needs_huge_pages);
        assert_eq!(planner.next_request(&sample(11, 1024, 0)), None);
        assert_eq!(planner.state(seconds(11)), ForecastState::Pending);
        planner.record(Some(forecast(1).into()));
        assert_eq!(planner.next_request(&sample(100, 1200, 0)), None, "no other was requested");
        assert_eq!(planner.state(seconds(100)), ForecastState::Known(forecast(1)));
        planner.request();
        assert!(planner.next_request(&sample(101, 1200, 0)).is_some());
        assert_eq!(planner.state(seconds(101)), ForecastState::Pending, "the one before is old");
        planner.record(Some(forecast(2).into()));
        planner.next_request(&sample(102, 1600, 0));
        assert_eq!(planner.state(seconds(102)), ForecastState::Unavailable, "memory has changed");
    }

    #[test]
    fn a_forecast_that_is_requested_while_another_is_under_way_comes_after_it() {
        let mut planner = ForecastPlanner::default();
        assert!(planner.next_request(&sample(10, 1024, 1024)).unwrap().needs_huge_pages);
        planner.request();
        assert_eq!(planner.next_request(&sample(11, 1024, 1024)), None);
        planner.record(Some(forecast(1).into()));
        assert_eq!(planner.state(Duration::from_secs(12)), ForecastState::Pending);
        assert!(planner.next_request(&sample(12, 1024, 1024)).is_some());
        planner.request();
        planner.record(None);
        assert_eq!(planner.next_request(&sample(13, 10, 0)), None);
        assert_eq!(
            planner.state(Duration::from_secs(13)),
            ForecastState::Unavailable,
            "there is next to no memory"
        );
    }

    #[test]
    fn a_forecast_of_memory_that_is_gone_is_dropped() {
        let mut planner = ForecastPlanner::default();
        planner.next_request(&sample(10, 1024, 1024)).unwrap();
        planner.record(Some(forecast(1).into()));
        for (seconds, small) in [(20, sample(20, 1024, 100)), (30, sample(30, 20, 20))] {
            assert_eq!(planner.next_request(&small), None);
            assert_eq!(planner.state(Duration::from_secs(seconds)), ForecastState::Unavailable);
        }
        assert!(planner.next_request(&sample(31, 1024, 1024)).is_some());
    }
}
