//! Wishes of the command line, which come before what a file says.

use std::time::Duration;

use crate::GuestPages;

/// Overrides of a story by the command line.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct StoryOverrides {
    /// Memory of the host, in bytes.
    pub host_bytes: Option<u64>,
    /// Duration of a fleet's story.
    pub duration: Option<Duration>,
    /// The seed of a fleet.
    pub seed: Option<u64>,
    /// Pages of the guests of a scenario.
    pub pages: Option<GuestPages>,
}
