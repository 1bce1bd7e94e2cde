//! The causes for which memory is not merged, each with a name, a sentence and a remedy.

use schemars::JsonSchema;
use serde::Serialize;

use super::examination::ProcessExamination;
use crate::kernel::IneligibleReason;

/// The state of a part of a process's memory, and its cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The memory is merged already.
    Merged,
    /// Maps the kernel's zero page.
    ZeroPage,
    /// A shared mapping.
    Shared,
    /// Pages of hugetlbfs.
    Hugetlb,
    /// Pages of a file in the page cache.
    File,
    /// Memory of a device.
    Device,
    /// Locked in place for a device that the process drives.
    Vfio,
    /// Private anonymous memory that was not marked mergeable.
    NotMarked,
    /// The process should have opted in as a whole, and has not.
    OptInLost,
    /// In swap: ksmd does not bring pages back.
    Swapped,
    /// There is an equal page, and ksmd does not scan.
    Stopped,
    /// There is an equal page, and ksmd has not visited both twice.
    NotVisitedTwice,
    /// There is an equal page, and `smart_scan` keeps the two apart.
    SmartScan,
    /// Written to more often than ksmd visits it.
    Changing,
    /// No page of any other mergeable memory is equal.
    Unique,
    /// No equal page was found in the part of the memory that was searched.
    NoEqualSeen,
    /// Its content has more copies than one frame may serve.
    ChainLimit,
    /// There is an equal page, ksmd visited both, and the huge page could not be split.
    HugePage,
    /// There is an equal page, ksmd visited both, and the kernel refused: something holds the page.
    Held,
    /// Unknown, because this user can't read enough, or the kernel does not show it.
    Unseen,
}

impl Cause {
    /// All causes in their order.
    pub const ALL: [Self; 20] = [
        Self::Merged,
        Self::ZeroPage,
        Self::Shared,
        Self::Hugetlb,
        Self::File,
        Self::Device,
        Self::Vfio,
        Self::NotMarked,
        Self::OptInLost,
        Self::Swapped,
        Self::Stopped,
        Self::NotVisitedTwice,
        Self::SmartScan,
        Self::Changing,
        Self::Unique,
        Self::NoEqualSeen,
        Self::ChainLimit,
        Self::HugePage,
        Self::Held,
        Self::Unseen,
    ];

    /// Returns true if memory is certainly lost: an equal page exists, or the opt-in was lost.
    pub fn is_loss(self) -> bool {
        matches!(
            self,
            Self::Stopped
                | Self::NotVisitedTwice
                | Self::SmartScan
                | Self::ChainLimit
                | Self::HugePage
                | Self::Held
                | Self::OptInLost
        )
    }

    /// Returns the sentence of the cause, after an amount: "1.5 GiB …".
    pub fn words(self) -> &'static str {
        match self {
            Self::Merged => "is merged",
            Self::ZeroPage => "maps the kernel's zero page and takes no memory",
            Self::Shared => "is in shared mappings, which KSM never merges",
            Self::Hugetlb => "is in pages of hugetlbfs, which KSM never merges",
            Self::File => "is pages of files, which the page cache shares already",
            Self::Device => "is memory of devices or of the kernel itself",
            Self::Vfio => {
                "is locked in place for a VFIO device: it can't merge, and ksmd's visits to it are wasted"
            }
            Self::NotMarked => "is not marked mergeable",
            Self::OptInLost => "is not marked mergeable, although the process was meant to opt in",
            Self::Swapped => "is in swap: ksmd does not bring pages back to merge them",
            Self::Stopped => "has an equal page, but ksmd does not scan",
            Self::NotVisitedTwice => "has an equal page, but ksmd has not visited it twice yet",
            Self::SmartScan => "has an equal page, but smart_scan visits the two in different passes",
            Self::Changing => "changes between two readings: a page must stay the same from one pass to the next",
            Self::Unique => "has no equal in any mergeable memory",
            Self::NoEqualSeen => "had no equal in the part of the mergeable memory that was searched",
            Self::ChainLimit => "is kept more than once: its content has more copies than max_page_sharing",
            Self::HugePage => "has an equal page, but lies in huge pages that can't be split: something holds them",
            Self::Held => "has an equal page, but the kernel refuses to merge it: something holds it",
            Self::Unseen => "has a cause that can't be determined from what is visible here",
        }
    }

    /// Returns the remedy for a process, if something is wrong.
    pub fn remedy(self, seen: &ProcessExamination) -> Option<&'static str> {
        Some(match self {
            Self::Stopped | Self::SmartScan if seen.daemon_runs => {
                "`ksmith scan` for one scan now; the running daemon scans when that pays"
            }
            Self::NotMarked if seen.is_qemu && seen.kept_out.is_none() => {
                return match seen.has_large_marked() {
                    // Its own heap, libraries and stacks: the guest's memory is marked.
                    true => None,
                    false => Some(
                        "`ksmith merge on GUEST`: it was switched off while it ran, as ksmith, libvirt and QEMU's \
                         monitor can",
                    ),
                };
            }
            Self::Merged | Self::ZeroPage | Self::File | Self::Device => return None,
            Self::Shared => {
                "let the guest have private memory: no share=on, no memfd, no vhost-user or virtiofs (for user-mode \
                 Linux there is none: its RAM is always shared; give it back with ballooning instead)"
            }
            Self::Hugetlb => "use ordinary or transparent huge pages instead of hugetlbfs",
            Self::Vfio => {
                "none while the device is assigned; `merge off` for this guest spares ksmd the visits and the \
                 metadata (QEMU: mem-merge=off)"
            }
            Self::NotMarked => {
                "mark it: QEMU -machine mem-merge=on, systemd MemoryKSM=yes, `ksmith run`, or madvise(MADV_MERGEABLE) \
                 by the program itself; no other process can do it"
            }
            Self::OptInLost => {
                "restart the process: before Linux 6.18 ksmd clears the flag of one in which it finds nothing mergeable, \
                 as happens around exec; before 6.7 exec itself does; and a program may take it back"
            }
            Self::Swapped => "none: it merges when the guest has read it again and ksmd has visited it twice",
            Self::Stopped => "`ksmith daemon`, or `ksmith scan` for one scan",
            Self::NotVisitedTwice => "wait for two passes, or run `ksmith scan`",
            Self::SmartScan => "`ksmith scan` (passes with smart_scan=0); `ksmith daemon` makes them when they pay",
            Self::Changing => "none: it is in use; memory that settles later will merge then",
            Self::Unique => {
                "none; if there is much of it, `merge off` for this guest spares KSM's metadata (1.6 % of it)"
            }
            Self::NoEqualSeen => "search more: `ksmith doctor --seconds 60`",
            Self::ChainLimit => {
                "little: use_zero_pages=1 for zeros; a larger max_page_sharing saves the rest, at the price of slower \
                 reclaim, and can only be set while nothing is merged"
            }
            Self::HugePage => {
                "find what holds it: I/O in flight, io_uring buffers, vmsplice, RDMA; or madvise(MADV_NOHUGEPAGE), \
                 with which one held page keeps back 4 KiB and not 2 MiB"
            }
            Self::Held => {
                "find what holds it: I/O in flight, io_uring buffers, vmsplice, RDMA, a device; or another NUMA \
                           node with merge_across_nodes=0"
            }
            Self::Unseen => "run as root, unless the kernel itself does not show it",
        })
    }
}

impl From<IneligibleReason> for Cause {
    fn from(reason: IneligibleReason) -> Self {
        match reason {
            IneligibleReason::Shared => Self::Shared,
            // Forked processes map one frame, which has no equal.
            IneligibleReason::Forked => Self::Unique,
            IneligibleReason::Hugetlb => Self::Hugetlb,
            IneligibleReason::File => Self::File,
            IneligibleReason::Device => Self::Device,
            IneligibleReason::Vfio => Self::Vfio,
            IneligibleReason::NotMergeable => Self::NotMarked,
        }
    }
}
