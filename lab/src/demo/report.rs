//! The model of the result of `ksmith demo`.

use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use super::stage::DemoMode;
use crate::GuestPages;

/// The result of a demo.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct DemoReport {
    /// The source of the figures: `live` (measured) or `simulated`.
    #[serde(serialize_with = "word")]
    #[schemars(with = "String")]
    pub mode: DemoMode,
    /// The pages that guests' memory is on: `huge`, where savings are read from page tables, or `small`.
    #[schemars(with = "String")]
    pub pages: GuestPages,
    /// Attainable savings, known from the guests' contents.
    pub mergeable_bytes: u64,
    /// Bytes saved at the end.
    pub saved_bytes: u64,
    /// Seconds from the start until 90 % of `mergeable_bytes` were saved. `null` if that was not reached.
    pub seconds_to_90: Option<f64>,
    /// Seconds from the late guest's start until 90 % of its own savings were reached.
    pub late_seconds_to_90: Option<f64>,
    /// Duration of the demo in seconds.
    pub seconds: f64,
    /// The unsaved memory and the reason. `null` if at least 95 % of the attainable savings were saved.
    pub missed: Option<String>,
    /// CPU time of ksmd under the policy, without the passes that aged the pages.
    pub ksmd_cpu_seconds: f64,
    /// CPU time of ksmith, with this view.
    pub ksmith_cpu_seconds: f64,
    /// Resident memory of ksmith.
    pub ksmith_rss_bytes: u64,
    /// Pages of guests with wrong content. More than 0 means that merging has damaged memory.
    pub wrong_pages: usize,
    /// True if every setting has its value from before the demo.
    pub restored: bool,
}

fn word<S: Serializer>(mode: &DemoMode, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(mode.word())
}
