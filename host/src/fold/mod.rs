//! Folding: zero pages in huge pages are freed, from outside and without ksmd.
//!
//! A huge page is resident as a whole, zeros included. When the kernel splits one, Linux 6.12 and later map its zero
//! subpages to the kernel's zero page and free them (`try_to_map_unused_to_zeropage`, mm/migrate.c). It does so under
//! migration entries: a writer waits, and a page that is pinned or shared is left. `process_madvise(MADV_COLD)` on a
//! part of a huge page splits it in any process (`madvise_cold_or_pageout_pte_range`, mm/madvise.c). So nothing here
//! moves or discards a page: the kernel compares and frees.
//!
//! `process_madvise(MADV_COLLAPSE)` puts them together again ([`CollapseTally`]).
//!
//! [`FoldTarget`] finds the huge pages of a process, [`look`] reads them as [`crate::memory`] reads, and [`split`] asks the kernel.

mod collapse;
mod error;
mod hindrance;
mod look;
mod pass;
mod sample;
mod split;
mod tally;
mod target;
#[cfg(test)]
mod tests;

pub use collapse::CollapseTally;
pub use error::FoldError;
pub use hindrance::{FoldHindrance, fold_hindrance, frees_zeros, may_split};
pub use pass::FoldSettings;
pub use sample::HugePageSample;
pub use tally::{FoldTally, LeftBytes};
pub use target::FoldTarget;
