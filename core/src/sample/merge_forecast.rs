//! The forecast of merging in huge pages: see [`crate::merge_forecast`].

/// The expected effect of merging all memory that is mergeable. Pages that map the kernel's zero page take none, and are in
/// no figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MergeForecast {
    /// Mergeable bytes at the time.
    pub bytes: u64,
    /// Bytes of them in huge pages.
    pub huge_bytes: u64,
    /// Bytes that merging would save, in small pages too and with what is merged already, as estimated.
    pub saved_bytes: u64,
    /// Bytes in huge pages that merging would save, as estimated.
    pub saved_in_huge_bytes: u64,
    /// Bytes of huge pages that it would split for them, as estimated.
    pub split_bytes: u64,
}

/// The part of one process in a forecast.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessForecast {
    /// The process's PID.
    pub pid: u32,
    /// Its figures. What it saves depends on the other processes.
    pub forecast: MergeForecast,
    /// The part of its `saved_bytes` that was not saved at the time.
    pub new_bytes: u64,
}

/// A forecast for all processes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HostForecast {
    /// The figures of all.
    pub total: MergeForecast,
    /// The parts of those of which enough pages were drawn, by PID. They are estimated one by one, and add up to about the
    /// total.
    pub processes: Vec<ProcessForecast>,
}

/// The state of the forecast at a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ForecastState {
    /// There is none: nothing is read here, or there are hardly any huge pages.
    #[default]
    Unavailable,
    /// Pages are being read for the first one.
    Pending,
    /// The newest forecast.
    Known(MergeForecast),
}

impl MergeForecast {
    /// Returns the part of the split huge pages that merging would save, 0 to 1; 1 where none would be split.
    pub fn saved_part(&self) -> f64 {
        if self.split_bytes == 0 {
            return 1.0;
        }
        (self.saved_in_huge_bytes as f64 / self.split_bytes as f64).min(1.0)
    }

    /// Returns the sum of two forecasts.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        self.joined(other, u64::saturating_add)
    }

    /// Returns the forecast without a part of it.
    #[must_use]
    pub fn without(&self, part: &Self) -> Self {
        self.joined(part, u64::saturating_sub)
    }

    fn joined(&self, other: &Self, join: fn(u64, u64) -> u64) -> Self {
        Self {
            bytes: join(self.bytes, other.bytes),
            huge_bytes: join(self.huge_bytes, other.huge_bytes),
            saved_bytes: join(self.saved_bytes, other.saved_bytes),
            saved_in_huge_bytes: join(self.saved_in_huge_bytes, other.saved_in_huge_bytes),
            split_bytes: join(self.split_bytes, other.split_bytes),
        }
    }
}

impl HostForecast {
    /// Returns the part of a process; `None` if too few of its pages were drawn.
    pub fn of_process(&self, pid: u32) -> Option<&MergeForecast> {
        self.processes.iter().find(|part| part.pid == pid).map(|part| &part.forecast)
    }
}

impl From<MergeForecast> for HostForecast {
    /// A forecast that tells no processes apart.
    fn from(total: MergeForecast) -> Self {
        Self { total, processes: Vec::new() }
    }
}
