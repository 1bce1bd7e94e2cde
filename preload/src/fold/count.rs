//! What was folded, and what was left alone and why.

use crate::sys::Errno;

/// Layout of `struct ksmith_folded` of `ksmith.h`. All but the last three are in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Folded {
    /// Memory that was given back.
    pub folded: u64,
    /// Resident private memory that was looked at.
    pub looked: u64,
    /// Zero pages that other page tables have too: merged by KSM, or shared since a fork.
    pub shared: u64,
    /// Zero pages that are pinned for I/O.
    pub pinned: u64,
    /// Zero pages that mlock(2) holds.
    pub locked: u64,
    /// Zero parts of huge pages that are in use for the most part.
    pub huge: u64,
    /// Memory of another kind: shared, of a file, hugetlb, or without the right to write.
    pub other: u64,
    /// Memory that another userfaultfd has.
    pub taken: u64,
    /// Memory of mappings that were changed meanwhile.
    pub changed: u64,
    /// Stack and data of the folding thread itself.
    pub own: u64,
    /// Time that the call took.
    pub nanoseconds: u64,
    /// How writers were kept out, one of `Method`.
    pub method: u32,
    /// Threads that folded.
    pub threads: u32,
}

impl Folded {
    /// Adds another thread's counts.
    pub fn add(&mut self, other: &Self) {
        for (sum, part) in [
            (&mut self.folded, other.folded),
            (&mut self.looked, other.looked),
            (&mut self.shared, other.shared),
            (&mut self.pinned, other.pinned),
            (&mut self.locked, other.locked),
            (&mut self.huge, other.huge),
            (&mut self.other, other.other),
            (&mut self.taken, other.taken),
            (&mut self.changed, other.changed),
            (&mut self.own, other.own),
        ] {
            *sum = sum.saturating_add(part);
        }
    }
}

/// How writers are kept out of a page between the look at it and its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Method {
    /// A full userfaultfd: a thread, or a system call, that writes waits for some microseconds.
    Full = 1,
    /// A userfaultfd for user mode: a system call that writes there fails with EFAULT, so the caller has promised that none does.
    User = 2,
    /// Nothing: the caller has promised that no thread and no device writes there.
    Still = 3,
}

/// Why a window was left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Its mapping was changed, or unmapped.
    Changed,
    /// Another userfaultfd has it.
    Taken,
    /// The kernel refuses for good.
    Failed(Errno),
}
