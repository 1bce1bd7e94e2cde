//! The examination of a process: the input of [`super::judge`].

use crate::kernel::{IneligibleReason, KsmStat, ProcessMapping};

/// The number of passes that must end between two looks for two certain visits of each page: the first may have been
/// half done at the first look.
pub(super) const PASSES_FOR_TWO_VISITS: u64 = 3;

/// The examination of a process.
#[derive(Debug, Clone, Default)]
pub struct ProcessExamination {
    /// Bytes in a page.
    pub page_size: u64,
    /// KSM's figures of the process, when the examination began.
    pub ksm: KsmStat,
    /// True if it holds VFIO files; `None` if its descriptors may not be seen.
    pub drives_device: Option<bool>,
    /// The evidence that it should have opted in as a whole: `its service has MemoryKSM=yes`.
    pub meant_to_opt_in: Option<String>,
    /// The reason why its memory is not offered, by its command line: `QEMU was started with mem-merge=off`.
    pub kept_out: Option<String>,
    /// True if it is a QEMU, whose memory a monitor can offer and withdraw.
    pub is_qemu: bool,
    /// True if a ksmith daemon controls KSM.
    pub daemon_runs: bool,
    /// The mappings of the process.
    pub mappings: Vec<MappingExamination>,
    /// KSM's settings and state.
    pub host: HostState,
    /// The work of ksmd between the first and the last look.
    pub watch: ScanWatch,
    /// The number of mergeable pages, of all processes, that were searched for equals of the sampled ones.
    pub searched_pages: u64,
    /// The number of all mergeable pages.
    pub searchable_pages: u64,
    /// Seconds since the process was started.
    pub age_seconds: Option<f64>,
}

impl ProcessExamination {
    /// Returns true if most of its private memory is marked.
    pub(super) fn has_large_marked(&self) -> bool {
        let bytes = |is_marked: bool| {
            let those = self.mappings.iter().filter(|examined| {
                (examined.mapping.is_mergeable() == Some(true)) == is_marked
                    && examined.mapping.ineligible().is_none_or(|reason| reason == IneligibleReason::NotMergeable)
            });
            those.filter_map(|examined| Some(examined.mapping.figures.as_ref()?.anonymous)).sum::<u64>()
        };
        bytes(true) > bytes(false)
    }

    /// Bytes of huge pages in its marked mappings.
    pub fn huge_bytes(&self) -> u64 {
        let marked = self.mappings.iter().filter(|examined| examined.mapping.is_mergeable() == Some(true));
        marked.filter_map(|examined| Some(examined.mapping.figures.as_ref()?.huge)).sum()
    }

    /// The number of anonymous pages in memory, in marked mappings.
    pub(super) fn present_pages(&self) -> u64 {
        let marked = self.mappings.iter().filter(|examined| {
            examined.mapping.is_mergeable() == Some(true) && examined.mapping.ineligible().is_none()
        });
        let pages = |examined: &MappingExamination| match (examined.pages, &examined.mapping.figures) {
            (Some(pages), _) => pages.merged + pages.unmerged,
            (None, Some(figures)) => figures.anonymous / self.page_size.max(1),
            (None, None) => 0,
        };
        marked.map(pages).sum()
    }
}

/// KSM's settings and state that decide what merges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HostState {
    /// True if ksmd scans: `run` is 1 and `pages_to_scan` is not 0.
    pub is_scanning: bool,
    /// `smart_scan`; off where the kernel has none.
    pub smart_scan: bool,
    /// True if `use_zero_pages` is on.
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

/// The work of ksmd while the process was watched.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ScanWatch {
    /// The duration in seconds.
    pub seconds: f64,
    /// Passes that ended.
    pub passes: u64,
    /// Pages that `smart_scan` passed over.
    pub skipped: u64,
    /// True if the process lost its opt-in meanwhile.
    pub lost_opt_in: bool,
}

/// The examination of one mapping.
#[derive(Debug, Clone, Default)]
pub struct MappingExamination {
    /// Its lines in `smaps`.
    pub mapping: ProcessMapping,
    /// Its page tables. `None`: unreadable, or not read because nothing there can merge.
    pub pages: Option<AnonymousPages>,
    /// Some of its pages that are not merged.
    pub looks: Vec<WatchedPage>,
    /// Some of its merged pages.
    pub merged_looks: Vec<EqualPages>,
}

/// The anonymous pages of a mapping that are in memory, by kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AnonymousPages {
    /// Merged by KSM.
    pub merged: u64,
    /// On the kernel's zero page.
    pub zero: u64,
    /// All other anonymous pages.
    pub unmerged: u64,
}

/// A sampled page that was not merged at the first look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WatchedPage {
    /// Its state at the last look.
    pub then: LaterState,
    /// True if it is in a huge page at the last look.
    pub is_huge: bool,
    /// True if it holds only zeros.
    pub is_zero: bool,
    /// Its equals, if they were searched for.
    pub equals: Option<EqualPages>,
}

/// The state of a page at the last look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LaterState {
    /// Still there, with the same content.
    Same,
    /// The page was written to.
    Changed,
    /// The page was merged meanwhile.
    Merged,
    /// Not in memory any more.
    Gone,
}

/// Other pages of the same content in mergeable memory, this process's own included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EqualPages {
    /// The number of such pages.
    pub copies: u64,
    /// The number of merged ones.
    pub merged: u64,
    /// The number of frames that the merged ones use.
    pub frames: u64,
}
