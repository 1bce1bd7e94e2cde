//! The contents of a memory guest, and their form on a command line.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A part of a guest's memory with one kind of content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryPart {
    /// `equal:SEED:PAGES`: pages that differ from each other and equal those of the same seed in other guests.
    Equal {
        /// Seed of the content. Guests with the same seed hold the same pages.
        seed: u64,
        /// Number of pages.
        pages: usize,
    },
    /// `same:SEED:PAGES`: pages that all hold the same content, which depends on the seed only.
    Same {
        /// Seed of the content. Guests with the same seed hold the same page.
        seed: u64,
        /// Number of pages.
        pages: usize,
    },
    /// `huge:SEED:PAGES`: as `equal`, in transparent huge pages where the kernel gives them.
    Huge {
        /// Seed of the content. Guests with the same seed hold the same pages.
        seed: u64,
        /// Number of pages.
        pages: usize,
    },
    /// `shared:PAGES`: unique pages of a shared mapping, which KSM does not merge.
    Shared {
        /// Number of pages.
        pages: usize,
    },
    /// `unmarked:PAGES`: unique private pages that are not offered to KSM.
    Unmarked {
        /// Number of pages.
        pages: usize,
    },
    /// `hugetlb:PAGES`: unique pages of hugetlbfs, in whole huge pages. The host must have set them aside.
    Hugetlb {
        /// Number of pages.
        pages: usize,
    },
    /// `zero:PAGES`: pages that were written and hold only zeros.
    Zero {
        /// Number of pages.
        pages: usize,
    },
    /// `mixed:SEED:PAGES`: of each 256 pages 64 as `equal`, 64 as `zero` and 128 as `unique`, so that no huge page is of one kind.
    Mixed {
        /// Seed of the equal pages. No `equal` part has the same pages.
        seed: u64,
        /// Number of pages.
        pages: usize,
    },
    /// `unique:PAGES`: pages that no other guest has.
    Unique {
        /// Number of pages.
        pages: usize,
    },
    /// `churn:PAGES:MILLISECONDS`: unique pages, all rewritten with new content once every MILLISECONDS.
    Churn {
        /// Number of pages.
        pages: usize,
        /// Time between two rewrites of the whole part.
        every: Duration,
    },
    /// `work:PAGES:PERCENT`: unique pages that a thread rewrites and reads during PERCENT of the time.
    Work {
        /// Number of pages.
        pages: usize,
        /// Initial load of the thread, from 0 to 100.
        percent: u8,
    },
}

impl MemoryPart {
    /// Number of pages in this part.
    pub fn pages(self) -> usize {
        match self {
            Self::Equal { pages, .. }
            | Self::Same { pages, .. }
            | Self::Huge { pages, .. }
            | Self::Mixed { pages, .. }
            | Self::Shared { pages }
            | Self::Unmarked { pages }
            | Self::Hugetlb { pages }
            | Self::Zero { pages }
            | Self::Unique { pages }
            | Self::Churn { pages, .. }
            | Self::Work { pages, .. } => pages,
        }
    }
}

impl fmt::Display for MemoryPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Equal { seed, pages } => write!(f, "equal:{seed}:{pages}"),
            Self::Same { seed, pages } => write!(f, "same:{seed}:{pages}"),
            Self::Huge { seed, pages } => write!(f, "huge:{seed}:{pages}"),
            Self::Mixed { seed, pages } => write!(f, "mixed:{seed}:{pages}"),
            Self::Shared { pages } => write!(f, "shared:{pages}"),
            Self::Unmarked { pages } => write!(f, "unmarked:{pages}"),
            Self::Hugetlb { pages } => write!(f, "hugetlb:{pages}"),
            Self::Zero { pages } => write!(f, "zero:{pages}"),
            Self::Unique { pages } => write!(f, "unique:{pages}"),
            Self::Churn { pages, every } => write!(f, "churn:{pages}:{}", every.as_millis()),
            Self::Work { pages, percent } => write!(f, "work:{pages}:{percent}"),
        }
    }
}

/// Error for a text that describes no part.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not equal:SEED:PAGES, same:SEED:PAGES, huge:SEED:PAGES, mixed:SEED:PAGES, zero:PAGES, unique:PAGES, shared:PAGES, \
     unmarked:PAGES, hugetlb:PAGES, churn:PAGES:MILLISECONDS or work:PAGES:PERCENT"
)]
pub struct BadPart(String);

impl FromStr for MemoryPart {
    type Err = BadPart;

    fn from_str(text: &str) -> Result<Self, BadPart> {
        let words: Vec<&str> = text.split(':').collect();
        let number = |word: &str| word.parse::<u64>().map_err(|_| BadPart(text.to_owned()));
        let pages = |word: &str| word.parse::<usize>().map_err(|_| BadPart(text.to_owned()));
        match words[..] {
            ["equal", seed, count] => Ok(Self::Equal { seed: number(seed)?, pages: pages(count)? }),
            ["same", seed, count] => Ok(Self::Same { seed: number(seed)?, pages: pages(count)? }),
            ["huge", seed, count] => Ok(Self::Huge { seed: number(seed)?, pages: pages(count)? }),
            ["mixed", seed, count] => Ok(Self::Mixed { seed: number(seed)?, pages: pages(count)? }),
            ["shared", count] => Ok(Self::Shared { pages: pages(count)? }),
            ["unmarked", count] => Ok(Self::Unmarked { pages: pages(count)? }),
            ["hugetlb", count] => Ok(Self::Hugetlb { pages: pages(count)? }),
            ["zero", count] => Ok(Self::Zero { pages: pages(count)? }),
            ["unique", count] => Ok(Self::Unique { pages: pages(count)? }),
            ["churn", count, every] => {
                Ok(Self::Churn { pages: pages(count)?, every: Duration::from_millis(number(every)?) })
            }
            ["work", count, percent] => {
                let percent = percent.parse().ok().filter(|percent| *percent <= 100);
                Ok(Self::Work { pages: pages(count)?, percent: percent.ok_or_else(|| BadPart(text.to_owned()))? })
            }
            _ => Err(BadPart(text.to_owned())),
        }
    }
}

/// All parts of one guest's memory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GuestContents(pub Vec<MemoryPart>);

impl GuestContents {
    /// Number of pages in all parts.
    pub fn pages(&self) -> usize {
        self.0.iter().map(|part| part.pages()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_read_back_as_they_print() {
        let texts = "equal:7:1024 same:1:2 huge:3:512 mixed:4:256 shared:1 unmarked:2 hugetlb:512 zero:3 unique:0 churn:16:250 work:9:30";
        for text in texts.split(' ') {
            assert_eq!(text.parse::<MemoryPart>().unwrap().to_string(), text);
        }
        for text in ["", "equal:7", "zero:-1", "churn:1:x", "other:1", "work:1:101"] {
            assert!(text.parse::<MemoryPart>().is_err(), "{text}");
        }
    }
}
