//! Switching guests on again when the domains are no longer kept apart.
//!
//! Called when the settings are restored: a guest that is switched on earlier might merge with other domains.

use ksmith_core::decide::domains::OnExit;
use ksmith_core::kernel::number;

use ksmith_host::act;
use ksmith_host::guests::{OffList, Uri, Why};
use ksmith_host::root::Root;

/// Switches guests on again, or says why they stay off.
pub fn switch_on_again(root: &Root, off: &OffList, on_exit: OnExit, libvirt: &Uri, dry_run: bool) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    if !dry_run {
        notes.extend(off.forget_the_gone(root).err().map(|error| error.to_string()));
    }
    let guests = off.listed(Why::Domain);
    if guests.is_empty() {
        return notes;
    }
    match reason_to_keep(root, on_exit) {
        None => notes.extend(off.restore(root, libvirt, Why::Domain, dry_run)),
        Some(why) => {
            let names: Vec<String> =
                guests.iter().map(|guest| format!("{} (pid {})", guest.name, guest.process.pid)).collect();
            notes.push(format!(
                "merging of {} stays off: {why}; `ksmith merge on GUEST` switches it on",
                names.join(", ")
            ));
        }
    }
    notes
}

/// The reason why guests may not be switched on.
fn reason_to_keep(root: &Root, on_exit: OnExit) -> Option<String> {
    if on_exit == OnExit::Keep {
        return Some("domains.on_exit is \"keep\"".to_owned());
    }
    let run = root.text("sys/kernel/mm/ksm/run").and_then(|text| number(&text));
    if run.get().is_none_or(|run| run == 1) {
        return Some("KSM scans now (run=1), and the domains are not kept apart".to_owned());
    }
    act::find(root).first().map(|holder| format!("{holder} controls KSM, and does not keep the domains apart"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guests_are_switched_on_only_where_ksmd_stands_still() {
        let tree = tempfile::tempdir().unwrap();
        let root = Root::at(tree.path());
        let ksm = tree.path().join("sys/kernel/mm/ksm");
        std::fs::create_dir_all(&ksm).unwrap();
        assert!(reason_to_keep(&root, OnExit::Restore).is_some(), "what is not known may scan");
        for (run, keeps) in [("0\n", false), ("1\n", true), ("2\n", false)] {
            std::fs::write(ksm.join("run"), run).unwrap();
            assert_eq!(reason_to_keep(&root, OnExit::Restore).is_some(), keeps, "run={run}");
            assert!(reason_to_keep(&root, OnExit::Keep).unwrap().contains("on_exit"));
        }
    }
}
