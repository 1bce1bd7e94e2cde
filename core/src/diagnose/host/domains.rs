//! Guests that share pages, or must not.

use super::{Finding, HostCircumstances, Severity, finding};
use crate::units::Bytes;

pub(super) fn side_channel(circumstances: &HostCircumstances) -> Option<Finding> {
    let meaning = circumstances.side_channel.as_ref()?;
    let remedy = "if their owners do not trust each other: [domains] with mode = \"one\" or \"node\" in \
                  /etc/ksmith.toml (/usr/share/doc/ksmith/docs/how-to/domains.md)";
    Some(finding("side-channel", Severity::Note, meaning, remedy))
}

pub(super) fn shared_across(circumstances: &HostCircumstances) -> Option<Finding> {
    let bytes = Some(circumstances.shared_across_bytes).filter(|bytes| *bytes > 0)?;
    Some(finding(
        "shared-across-domains",
        Severity::Warning,
        format!("{} are shared across domains that are to be kept apart: merged before", Bytes::from(bytes)),
        "`ksmith unmerge`; what merges from then on stays apart as long as the daemon runs. `ksmith guests --by domain` \
         shows which domains share",
    ))
}

pub(super) fn remaining_mergeable(circumstances: &HostCircumstances) -> Option<Finding> {
    let guests = &circumstances.remaining_mergeable;
    (!guests.is_empty()).then(|| {
        finding(
            "firmware-mergeable",
            Severity::Note,
            format!(
                "the RAM of {} is not offered to merging; QEMU's firmware and devices still are, and may be shared across \
                 domains",
                guests.join(", ")
            ),
            "start them with -machine mem-merge=off (libvirt: nosharepages): then nothing is offered (/usr/share/doc/ksmith/docs/how-to/domains.md)",
        )
    })
}

pub(super) fn guarded(circumstances: &HostCircumstances) -> Option<Finding> {
    let why = circumstances.guarded.as_ref()?;
    Some(finding(
        "guarded",
        Severity::Warning,
        format!("nothing merges, since the domains can't be kept apart otherwise: {why}"),
        "see /usr/share/doc/ksmith/docs/how-to/domains.md: what each kind of guest needs so that it can be switched off",
    ))
}

pub(super) fn refused(circumstances: &HostCircumstances) -> Option<Finding> {
    let why = circumstances.domains_refused.as_ref()?;
    Some(finding(
        "domains-refused",
        Severity::Problem,
        format!("the daemon does not start with this configuration: {why}"),
        "switch the guests of all domains but one off for good: `ksmith merge off --permanent GUEST`",
    ))
}
