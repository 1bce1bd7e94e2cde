//! The size of the pages that guests' memory is on.

use ksmith_host::root::Root;
use serde::{Deserialize, Serialize};

use crate::filled::page_size;
use crate::region::HUGE_PAGE_BYTES;

/// The pages that the known memory of guests is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum GuestPages {
    /// Base pages, on most hosts of 4 KiB.
    Small,
    /// Transparent huge pages, as the memory of virtual machines.
    #[default]
    Huge,
}

impl GuestPages {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Huge => "huge",
        }
    }

    /// The pages in words: `huge pages` or `4 KiB pages`.
    pub fn in_words(self) -> String {
        match self {
            Self::Small => format!("{} KiB pages", page_size() >> 10),
            Self::Huge => "huge pages".to_owned(),
        }
    }

    /// Returns true if a process of this host that asks for such pages gets them, and they fit into a guest's memory.
    pub fn are_given(self, root: &Root) -> bool {
        let enabled = root.text("sys/kernel/mm/transparent_hugepage/enabled");
        let are_enabled = enabled.value().is_some_and(|text| !text.contains("[never]"));
        let do_fit = root.shown_huge_page_bytes().is_none_or(|bytes| bytes <= HUGE_PAGE_BYTES as u64);
        self == Self::Small || are_enabled && do_fit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn huge_pages_are_given_unless_the_kernel_has_none_or_never_gives_them() {
        let tree = tempfile::tempdir().unwrap();
        let given = || [GuestPages::Small, GuestPages::Huge].map(|pages| pages.are_given(&Root::at(tree.path())));
        assert_eq!(given(), [true, false]);
        let directory = tree.path().join("sys/kernel/mm/transparent_hugepage");
        std::fs::create_dir_all(&directory).unwrap();
        for (text, are_given) in [("always [madvise] never\n", true), ("always madvise [never]\n", false)] {
            std::fs::write(directory.join("enabled"), text).unwrap();
            assert_eq!(given(), [true, are_given], "{text}");
        }
        std::fs::write(directory.join("enabled"), "[always] madvise never\n").unwrap();
        for (mib, are_given) in [(2, true), (32, false)] {
            std::fs::write(directory.join("hpage_pmd_size"), format!("{}\n", mib << 20)).unwrap();
            assert_eq!(given(), [true, are_given], "{mib} MiB");
        }
    }
}
