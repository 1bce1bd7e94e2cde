//! Reading other processes' memory without disturbing them: pagemap, frames, contents.
//!
//! [`target`] chooses processes, [`process`] sorts their memory into what KSM could merge and what not, and
//! [`scan`] reads it in the chunks that [`work`] shares out among threads.

pub mod entries;
pub mod error;
pub mod frames;
pub mod nodes;
pub mod pace;
pub mod page_ranges;
pub mod pinned;
pub mod process;
pub mod progress;
pub mod rights;
pub mod salt;
pub mod scan;
pub mod target;
#[cfg(test)]
pub(crate) mod test_memory;
pub mod under_way;
pub mod vfio;
pub mod work;
