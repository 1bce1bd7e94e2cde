//! Reasons why no zero page comes free on this host, known before any process is read.

use std::fmt;

use ksmith_core::field::KernelVersion;
use rustix::thread::CapabilitySet;

use crate::root::Root;

/// The first kernel that frees the zero subpages of a huge page that it splits.
const FREES_ZEROS: KernelVersion = KernelVersion::new(6, 12);

/// The folder of the settings of transparent huge pages.
const HUGE_PAGES: &str = "sys/kernel/mm/transparent_hugepage";

/// A reason why folding frees nothing on this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FoldHindrance {
    /// The kernel keeps the zero subpages of a huge page that it splits. Holds its release.
    OldKernel(String),
    /// The kernel is built without transparent huge pages.
    NoHugePages,
    /// Transparent huge pages are off: only memory from before that may be in any.
    HugePagesOff,
}

impl fmt::Display for FoldHindrance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OldKernel(release) => write!(
                f,
                "Linux {release} keeps the zeros of huge pages that it splits (6.12 frees them): use KSM with use_zero_pages"
            ),
            Self::NoHugePages => {
                f.write_str("this kernel has no transparent huge pages: use KSM with use_zero_pages")
            }
            Self::HugePagesOff => write!(
                f,
                "transparent huge pages are off: write madvise or always to /{HUGE_PAGES}/enabled, and start the program again"
            ),
        }
    }
}

fn release(root: &Root) -> String {
    root.text("proc/sys/kernel/osrelease").value().map(|text| text.trim().to_owned()).unwrap_or_default()
}

/// Returns true if the kernel of this host frees the zero subpages of a huge page that it splits. An unknown one may.
pub fn frees_zeros(root: &Root) -> bool {
    KernelVersion::parse(&release(root)).is_none_or(|version| version >= FREES_ZEROS)
}

/// Returns the reason why folding frees nothing on this host; `None` if it may.
pub fn fold_hindrance(root: &Root) -> Option<FoldHindrance> {
    if !frees_zeros(root) {
        return Some(FoldHindrance::OldKernel(release(root)));
    }
    let enabled = root.text(format!("{HUGE_PAGES}/enabled"));
    match enabled.value() {
        None => Some(FoldHindrance::NoHugePages),
        Some(enabled) if enabled.contains("[never]") => Some(FoldHindrance::HugePagesOff),
        Some(_) => None,
    }
}

/// Returns true if the kernel lets this process split huge pages of others (`CAP_SYS_NICE`, mm/madvise.c).
pub fn may_split() -> bool {
    rustix::thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_NICE))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn kernel_and_settings_decide_whether_anything_can_come_free() {
        let tree = tempfile::tempdir().unwrap();
        let root = Root::at(tree.path());
        let write = |file: &str, text: &str| {
            let path = tree.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        for (release, enabled, hindrance) in [
            (
                "6.1.0-50-amd64\n",
                Some("always [madvise] never\n"),
                Some(FoldHindrance::OldKernel("6.1.0-50-amd64".into())),
            ),
            ("6.12.0\n", None, Some(FoldHindrance::NoHugePages)),
            ("6.12.0\n", Some("always madvise [never]\n"), Some(FoldHindrance::HugePagesOff)),
            ("6.12.0\n", Some("always [madvise] never\n"), None),
            ("7.0\n", Some("[always] madvise never\n"), None),
        ] {
            write("proc/sys/kernel/osrelease", release);
            match enabled {
                Some(enabled) => write(&format!("{HUGE_PAGES}/enabled"), enabled),
                None => drop(fs::remove_file(tree.path().join(HUGE_PAGES).join("enabled"))),
            }
            assert_eq!(fold_hindrance(&root), hindrance, "{release}");
        }
    }
}
