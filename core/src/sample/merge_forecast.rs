//! The forecast of merging in huge pages: see [`crate::merge_forecast`].

/// The expected effect of merging all memory that is mergeable. Pages that map the kernel's zero page take none, and are in
/// no figure.
#[derive(Debug, Clone, Copy, PartialEq)]
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

/// The state of the forecast at a sample.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
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
}
