//! The simulated ksmd, a discrete machine: the same [`Sample`](crate::sample::Sample) out and
//! [`KnobSettings`](crate::knobs::KnobSettings) in as the live kernel, over guests with known contents.
//!
//! It is pure and deterministic: the same calls give the same samples to the last bit. Policies are developed and
//! tested on it over hours of simulated time, and it shows ksmith where there is no KSM or no root.
//!
//! The model has everything that a policy can see. Its source is `mm/ksm.c` of Linux 6.18, with the differences of
//! older kernels that change which pages merge.
//!
//! * The walk: guest after guest, page after page, in batches of `pages_to_scan` visits; the end of a pass ends the
//!   batch; `sleep_millisecs` between batches; a new guest goes just behind the cursor, an ended guest just ahead of
//!   it.
//! * The visit: a page merges after two visits with the same checksum, with the stable tree, the zero page
//!   or a page seen earlier in the same pass; `smart_scan` ages pages and skips old ones.
//! * The lag: a page that is written to, or of a guest that ends, leaves memory at once and the counters at ksmd's next
//!   visit.
//! * Huge pages: a merge splits one, and from 6.12 on a split frees its empty pages, which no counter shows; khugepaged
//!   puts pages together again, merged ones too, and the counters follow at ksmd's next visit.
//! * The cost: each step takes ksmd's CPU time ([`SimCosts`]), and time passes meanwhile.
//!
//! A test compares it with the live kernel (`sim_vs_kernel.rs`): in arbitrary sequences of events every counter is the
//! same after every pass.
//!
//! [`SimConfig::run_pages`] has the machine keep runs of pages with the same fate as one, for hosts of a terabyte.
//! Counters and costs stay those of the pages: ksmd's batch may end inside a run.
//!
//! Not modelled: other load on ksmd's CPU, NUMA nodes, swapping in, jiffies. A page is a number
//! that stands for its content.

mod advisor;
mod config;
mod content;
mod counters;
mod demand;
mod fleet;
mod forecast;
mod guest;
mod huge;
mod ksmd;
mod living;
mod machine;
mod memory;
mod page_sample;
mod page_tables;
mod plan;
mod search;
mod settings;
mod show;
mod split;
mod stable;
#[cfg(test)]
mod tests;

pub use config::{SimConfig, SimCosts};
pub use content::{UNIQUE, ZERO};
pub use demand::GuestDemand;
pub use fleet::SimFleet;
pub use guest::SimGuestId;
pub use machine::{KhugepagedPace, SimMachine, mergeable_pages};
pub use page_sample::PagePlace;
pub use page_tables::PageTableReading;
pub use plan::{GuestPlan, MixedKind, clones, equal_content, mixed_kind};
pub use settings::KnobRefusal;
pub use show::MachineFigures;

/// Bytes in a page of the simulated host.
pub const PAGE_SIZE: u64 = 4096;

/// Bytes in a huge page of the simulated host.
pub const HUGE_PAGE_BYTES: u64 = huge::HUGE_PAGES as u64 * PAGE_SIZE;
