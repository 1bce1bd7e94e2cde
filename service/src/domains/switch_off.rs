//! Switching guests on again at the end of the separation of domains.
//!
//! Called when the settings are restored: a guest that is switched on earlier might merge with other domains.

use ksmith_core::decide::domains::OnExit;
use ksmith_core::guest::SwitchOffReason;
use ksmith_host::guests::OffList;
use ksmith_host::ksm_counts::ksm_as_counted;
use ksmith_host::other_controllers::find;
use ksmith_host::root::Root;

/// Switches guests on again, or says why they stay off. The list has all that is needed: no configuration is read.
pub fn switch_on_again(root: &Root, off: &OffList, dry_run: bool) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    if !dry_run {
        notes.extend(off.forget_the_gone(root).err().map(|error| error.to_string()));
    }
    let guests = off.listed(SwitchOffReason::Domain);
    let (wanted, kept): (Vec<_>, Vec<_>) =
        guests.into_iter().partition(|guest| guest.on_exit == Some(OnExit::Restore));
    let reason = if wanted.is_empty() { None } else { reason_to_keep(root) };
    for (guests, why) in [(&kept, Some("domains.on_exit is \"keep\", or not known".to_owned())), (&wanted, reason)]
    {
        let names: Vec<String> =
            guests.iter().map(|guest| format!("{} (pid {})", guest.name, guest.process.pid)).collect();
        match why {
            _ if names.is_empty() => {}
            None => notes.extend(off.restore(root, |guest| wanted.contains(guest), dry_run)),
            Some(why) => notes.push(format!(
                "merging of {} stays off: {why}; `ksmith merge on GUEST` switches it on",
                names.join(", ")
            )),
        }
    }
    notes
}

/// Returns the reason why no guest may be switched on.
fn reason_to_keep(root: &Root) -> Option<String> {
    if ksm_as_counted(root).run.get().is_none_or(|run| run == 1) {
        return Some("KSM scans now (run=1), and the domains are not kept apart".to_owned());
    }
    find(root).first().map(|holder| format!("{holder} may switch KSM on, and does not keep the domains apart"))
}

#[cfg(test)]
mod tests {
    use ksmith_host::undo::StateDir;

    use super::*;

    #[test]
    fn guests_are_switched_on_only_where_ksmd_stands_still() {
        let tree = tempfile::tempdir().unwrap();
        let root = Root::at(tree.path());
        let ksm = tree.path().join("sys/kernel/mm/ksm");
        std::fs::create_dir_all(&ksm).unwrap();
        assert!(reason_to_keep(&root).is_some(), "what is not known may scan");
        for (run, keeps) in [("0\n", false), ("1\n", true), ("2\n", false)] {
            std::fs::write(ksm.join("run"), run).unwrap();
            assert_eq!(reason_to_keep(&root).is_some(), keeps, "run={run}");
        }
    }

    #[test]
    fn what_becomes_of_a_guest_is_read_from_the_list_alone() {
        let tree = tempfile::tempdir().unwrap();
        let root = Root::at(tree.path());
        let ksm = tree.path().join("sys/kernel/mm/ksm");
        std::fs::create_dir_all(&ksm).unwrap();
        std::fs::write(ksm.join("run"), "0\n").unwrap();
        let directory = StateDir::from_root(&root);
        directory.make().unwrap();
        let mut entries = Vec::new();
        for (pid, on_exit) in [(10, r#", "on_exit": "restore""#), (11, r#", "on_exit": "keep""#), (12, "")] {
            let process = tree.path().join(format!("proc/{pid}"));
            std::fs::create_dir_all(&process).unwrap();
            let stat = format!("{pid} (uml) S 1 0 0 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 7 0 10 0\n");
            std::fs::write(process.join("stat"), stat).unwrap();
            std::fs::write(process.join("cmdline"), "linux\0ubd0=root\0").unwrap();
            let id = format!(r#"{{ "pid": {pid}, "start_ticks": 7 }}"#);
            entries.push(format!(
                r#"{{ "entry": "switched_off", "process": {id}, "name": "g{pid}", "why": "domain",
                    "libvirt": "qemu:///system"{on_exit} }}"#
            ));
        }
        let entries = entries.join(", ");
        let store = format!(
            r#"{{ "version": 1, "owner": {{ "pid": 1, "start_ticks": 1 }}, "boot_id": null, "entries": [{entries}] }}"#
        );
        std::fs::write(directory.undo(), store).unwrap();
        let notes = switch_on_again(&root, &OffList::open(&directory).unwrap(), false);
        assert!(
            notes[0].starts_with("merging of g11 (pid 11), g12 (pid 12) stays off: domains.on_exit"),
            "{notes:?}"
        );
        assert!(notes.len() == 2 && notes[1].contains("stays switched off; later"), "g10 is tried: {notes:?}");
    }
}
