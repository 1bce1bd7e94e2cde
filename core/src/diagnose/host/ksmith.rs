//! State that an earlier ksmith left behind.

use super::{DaemonPresence, Finding, HostCircumstances, Severity, finding};

pub(super) fn unrestored(circumstances: &HostCircumstances) -> Option<Finding> {
    circumstances.unrestored.then(|| {
        finding(
            "unrestored",
            Severity::Warning,
            "an earlier ksmith was killed and its settings are still in force",
            "`ksmith restore` (the next `ksmith daemon` does so too)",
        )
    })
}

pub(super) fn unreturned(circumstances: &HostCircumstances) -> Option<Finding> {
    let guests = circumstances.unreturned_guests;
    (guests > 0 && circumstances.daemon != DaemonPresence::Present).then(|| {
        finding(
            "unreturned",
            Severity::Warning,
            format!("memory was taken from {guests} guests, and no daemon watches whether they need it again"),
            "`ksmith restore` gives it back; `ksmith daemon` continues to balance",
        )
    })
}

pub(super) fn damaged_journal(circumstances: &HostCircumstances) -> Option<Finding> {
    let why = circumstances.damaged_journal.as_ref()?;
    Some(finding(
        "damaged-journal",
        Severity::Problem,
        format!("the journal of an earlier ksmith is damaged ({why}): its settings may still be in force"),
        "compare /run/ksmith/undo.json with /sys/kernel/mm/ksm and correct what differs, then `ksmith restore \
        --discard`: until then no ksmith changes anything",
    ))
}
