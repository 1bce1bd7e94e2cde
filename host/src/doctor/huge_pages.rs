//! The state of transparent huge pages on a host, and of what else makes or splits them.

use std::fs;
use std::path::{Path, PathBuf};

use ksmith_core::diagnose::HugePageCircumstances;

use crate::other_controllers::file_with_khugepaged;
use crate::root::Root;

/// The folder of the settings of transparent huge pages.
const HUGE_PAGES: &str = "sys/kernel/mm/transparent_hugepage";

/// The folder of DAMON's threads, each with its contexts and schemes (Documentation/admin-guide/mm/damon/usage.rst).
const DAMON: &str = "sys/kernel/mm/damon/admin/kdamonds";

/// Reads the state of transparent huge pages. `keep` is that of `[huge_pages]`.
pub fn huge_page_circumstances(root: &Root, keep: bool) -> HugePageCircumstances {
    let text = |name: &str| root.text(format!("{HUGE_PAGES}/{name}")).value().cloned().unwrap_or_default();
    let enabled = text("enabled");
    HugePageCircumstances {
        khugepaged: enabled.contains("[always]") || enabled.contains("[madvise]"),
        keep,
        shrink_underused: text("shrink_underused").trim() == "1",
        tuned_file: file_with_khugepaged(root).map(|file| file.display().to_string()),
        damon_action: damon_action(&root.path(DAMON)),
    }
}

/// Returns the action of a scheme of a running thread that makes huge pages. `collapse`, which asks no setting of
/// khugepaged, goes before `hugepage`.
fn damon_action(threads: &Path) -> Option<String> {
    let word = |path: PathBuf| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let running = children(threads).into_iter().filter(|thread| word(thread.join("state")) == "on");
    running
        .flat_map(|thread| children(&thread.join("contexts")))
        .flat_map(|context| children(&context.join("schemes")))
        .map(|scheme| word(scheme.join("action")))
        .filter(|action| matches!(action.as_str(), "hugepage" | "collapse"))
        .min()
}

/// The numbered folders in a folder of sysfs, which has a file `nr_…` beside them.
fn children(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::put_file as put;

    #[test]
    fn a_kernel_without_huge_pages_has_nothing_to_tell() {
        let tree = tempfile::tempdir().unwrap();
        let found = huge_page_circumstances(&Root::at(tree.path()), true);
        assert_eq!(found, HugePageCircumstances { keep: true, ..HugePageCircumstances::default() });
    }

    #[test]
    fn what_makes_huge_pages_is_found() {
        let tree = tempfile::tempdir().unwrap();
        let scheme = "sys/kernel/mm/damon/admin/kdamonds/0/contexts/0/schemes";
        for (path, text) in [
            ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"),
            ("sys/kernel/mm/transparent_hugepage/shrink_underused", "1\n"),
            ("etc/tuned/active_profile", "mine\n"),
            ("etc/tuned/mine/tuned.conf", "[main]\ninclude=mine rt\n"),
            (
                "usr/lib/tuned/rt/tuned.conf",
                "[sysfs]\n/sys/kernel/mm/transparent_hugepage/khugepaged/max_ptes_none=64\n",
            ),
            ("sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds", "1\n"),
            ("sys/kernel/mm/damon/admin/kdamonds/0/state", "off\n"),
            (&format!("{scheme}/0/action"), "pageout\n"),
            (&format!("{scheme}/1/action"), "hugepage\n"),
        ] {
            put(tree.path(), path, text);
        }
        let about = || huge_page_circumstances(&Root::at(tree.path()), false);
        let found = about();
        assert!(found.khugepaged && found.shrink_underused && !found.keep);
        assert_eq!(found.tuned_file.as_deref(), Some("/usr/lib/tuned/rt/tuned.conf"));
        assert_eq!(found.damon_action, None, "it does not run");
        put(tree.path(), "sys/kernel/mm/damon/admin/kdamonds/0/state", "on\n");
        assert_eq!(about().damon_action.as_deref(), Some("hugepage"));
        put(tree.path(), &format!("{scheme}/2/action"), "collapse\n");
        assert_eq!(about().damon_action.as_deref(), Some("collapse"));
        // What only sets the mode of huge pages leaves khugepaged's settings alone.
        put(tree.path(), "usr/lib/tuned/rt/tuned.conf", "[vm]\ntransparent_hugepages=never\n");
        put(tree.path(), "sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
        assert!(about().tuned_file.is_none() && !about().khugepaged);
    }
}
