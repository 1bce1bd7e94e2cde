//! What was seen of a process: the evidence that [`super::judge`] goes by.

use crate::kernel::{KsmStat, Mapping};

/// A process examined.
#[derive(Debug, Clone, Default)]
pub struct Examination {
    /// Bytes in a page.
    pub page_size: u64,
    /// What KSM does for it, when the examination began.
    pub ksm: KsmStat,
    /// Whether it holds VFIO files. `None` where its descriptors may not be seen.
    pub drives_device: Option<bool>,
    /// What shows that it was meant to opt in as a whole: `its service has MemoryKSM=yes`.
    pub meant_to_opt_in: Option<String>,
    /// Its mappings.
    pub mappings: Vec<Examined>,
    /// KSM itself.
    pub host: HostState,
    /// What ksmd did between the first and the last look.
    pub watch: Watch,
    /// Pages of mergeable memory, of all processes, that were looked through for equals of the sampled ones.
    pub searched_pages: u64,
    /// Pages there were to look through.
    pub searchable_pages: u64,
    /// Seconds since the process was started.
    pub age_seconds: Option<f64>,
}

/// KSM's settings and state that decide what merges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HostState {
    /// Whether ksmd scans: `run` is 1 and `pages_to_scan` is not 0.
    pub is_scanning: bool,
    /// `smart_scan`; off where the kernel has none.
    pub smart_scan: bool,
    /// `use_zero_pages`.
    pub use_zero_pages: bool,
    /// `max_page_sharing`, 256 if unknown.
    pub max_page_sharing: u64,
    /// Passes since KSM was last reset.
    pub full_scans: u64,
    /// Pages that `smart_scan` has passed over since boot.
    pub pages_skipped: u64,
    /// The shortest a pass can take at these settings, in milliseconds.
    pub pass_milliseconds: u64,
}

/// What ksmd did while the process was watched.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Watch {
    /// How long.
    pub seconds: f64,
    /// Passes that ended.
    pub passes: u64,
    /// Pages that `smart_scan` passed over.
    pub skipped: u64,
    /// Whether the process lost its opt-in meanwhile.
    pub lost_opt_in: bool,
}

/// One mapping.
#[derive(Debug, Clone, Default)]
pub struct Examined {
    /// As `smaps` shows it.
    pub mapping: Mapping,
    /// What its page tables show. `None` where they may not be read, or were not because nothing there can merge.
    pub pages: Option<Pages>,
    /// Some of its pages that are not merged.
    pub looks: Vec<Look>,
    /// Some of its merged pages.
    pub merged_looks: Vec<Equals>,
}

/// The anonymous pages of a mapping that are in memory, by kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pages {
    /// Merged by KSM.
    pub merged: u64,
    /// On the kernel's zero page.
    pub zero: u64,
    /// All others.
    pub unmerged: u64,
}

/// A page that was not merged when it was first looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// What it was like at the end.
    pub then: Then,
    /// Whether it lies in a huge page at the end.
    pub is_huge: bool,
    /// Whether it holds zeros alone.
    pub is_zero: bool,
    /// Its equals, if they were searched for.
    pub equals: Option<Equals>,
}

/// What had become of a page at the last look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// Still there, with the same content.
    Same,
    /// Written to.
    Changed,
    /// Merged meanwhile.
    Merged,
    /// Not in memory any more.
    Gone,
}

/// Other pages of the same content in mergeable memory, this process's own included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Equals {
    /// How many.
    pub copies: u64,
    /// How many of them are merged.
    pub merged: u64,
    /// Of the merged ones, how many frames they use.
    pub frames: u64,
}
