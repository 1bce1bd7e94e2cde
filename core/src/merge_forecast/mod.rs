//! A forecast of merging in huge pages, before one is split.
//!
//! One merged page splits its huge page. A host is worth scanning where merging saves a good part of what it splits, and
//! that shows only in the contents. So some pages of all mergeable memory are read beforehand, drawn at random, and
//! then a few huge pages whole, to tell how full of equal pages the split ones would be. That costs a few hundredths of
//! the two passes that it may spare.
//!
//! The [`ForecastPlanner`] decides when to look, and the [`ForecastDraft`] computes. Reading memory is up to its owner.

mod draft;
mod planner;

pub use draft::{ForecastDraft, ForecastPage, HugeRange, WantedRanges};
pub use planner::{ForecastPlanner, ForecastRequest};
