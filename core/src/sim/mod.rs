//! ksmd as a discrete machine: the same [`Sample`](crate::sample::Sample) out and
//! [`Knobs`](crate::knobs::Knobs) in as the live kernel, over guests whose contents are known.
//!
//! Pure and deterministic: the same calls give the same samples to the last bit. It serves to develop and test
//! policies over hours of simulated time, and to show ksmith where there is no KSM or no root.
//!
//! What is modelled is what a policy can see (source: `mm/ksm.c` of Linux 6.18, with the differences of older
//! kernels where they change what is merged):
//!
//! * The walk: guest after guest, page after page, in batches of `pages_to_scan` visits that a pass's end cuts
//!   short; `sleep_millisecs` between batches; a new guest goes just behind the cursor, one that ended just
//!   ahead of it.
//! * The visit: a page merges after two visits with the same checksum, with the stable tree, the zero page
//!   or a page seen earlier in the same pass; `smart_scan` ages pages and skips old ones.
//! * The lag: what a guest writes to or takes with it when it ends leaves memory at once, and the counters
//!   when ksmd comes by.
//! * The cost: each step takes ksmd's CPU time ([`Costs`]), and time passes meanwhile.
//!
//! How far that holds is tested against the live kernel (`ksmith/tests/sim_vs_kernel.rs`): over arbitrary stories
//! every counter is the same after every pass.
//!
//! Not modelled: other load on ksmd's CPU, NUMA nodes, huge pages, swapping in, jiffies. A page is a number
//! that stands for its content.

mod advisor;
mod config;
mod content;
mod guest;
mod ksmd;
mod machine;
mod memory;
mod plan;
mod settings;
mod show;
mod stable;
#[cfg(test)]
mod tests;
mod witness;

pub use config::{Config, Costs};
pub use content::{UNIQUE, ZERO};
pub use guest::GuestId;
pub use machine::Machine;
pub use plan::{Plan, clones, mergeable_pages};
pub use settings::Refused;
pub use witness::Place;

/// Bytes in a page of the simulated host.
pub const PAGE_SIZE: u64 = 4096;
