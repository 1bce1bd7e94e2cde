//! Progress of the reading, shown by a meter of another module.

use std::fmt::Debug;

/// A progress meter.
pub trait ProgressMeter: Debug + Send + Sync {
    /// Begins a reading of `bytes`; `what` names its purpose.
    fn begin(&self, bytes: u64, what: &'static str);
    /// Adds `bytes` to those read.
    fn add(&self, bytes: u64);
    /// Ends the reading.
    fn end(&self);
}

/// A reading in progress, reported to a meter if there is one. Dropping it reports the end.
#[derive(Debug)]
pub struct ReadProgress<'a>(Option<&'a dyn ProgressMeter>);

impl<'a> ReadProgress<'a> {
    /// Reports the start of a reading.
    pub fn new(meter: Option<&'a dyn ProgressMeter>, bytes: u64, what: &'static str) -> Self {
        if let Some(meter) = meter {
            meter.begin(bytes, what);
        }
        Self(meter)
    }

    /// Adds `bytes` to those read.
    pub fn add(&self, bytes: u64) {
        if let Some(meter) = self.0 {
            meter.add(bytes);
        }
    }
}

impl Drop for ReadProgress<'_> {
    fn drop(&mut self) {
        if let Some(meter) = self.0 {
            meter.end();
        }
    }
}
