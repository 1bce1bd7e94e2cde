//! How far the reading is, told to a meter that another module shows.

use std::fmt::Debug;

/// Shows how far something is.
pub trait Meter: Debug + Send + Sync {
    /// So many bytes are to be read; `what` says why.
    fn begin(&self, bytes: u64, what: &'static str);
    /// So many bytes more are read.
    fn add(&self, bytes: u64);
    /// Nothing is left to read.
    fn end(&self);
}

/// The reading of so many bytes, told to a meter if there is one. Its end is told on drop.
#[derive(Debug)]
pub struct Progress<'a>(Option<&'a dyn Meter>);

impl<'a> Progress<'a> {
    /// Tells the meter that a reading begins.
    pub fn new(meter: Option<&'a dyn Meter>, bytes: u64, what: &'static str) -> Self {
        if let Some(meter) = meter {
            meter.begin(bytes, what);
        }
        Self(meter)
    }

    /// So many bytes more are read.
    pub fn add(&self, bytes: u64) {
        if let Some(meter) = self.0 {
            meter.add(bytes);
        }
    }
}

impl Drop for Progress<'_> {
    fn drop(&mut self) {
        if let Some(meter) = self.0 {
            meter.end();
        }
    }
}
