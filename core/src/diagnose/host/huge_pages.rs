//! The fight of khugepaged against merging: it puts huge pages together again that ksmd has split.

use super::{DaemonPresence, Finding, HostCircumstances, Severity, finding};
use crate::sample::Sample;
use crate::units::Bytes;

/// The state of transparent huge pages and of what makes them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HugePageCircumstances {
    /// True if khugepaged runs: `transparent_hugepage/enabled` is `always` or `madvise`.
    pub khugepaged: bool,
    /// False if `[huge_pages] keep` is: then ksmith never touches khugepaged's settings.
    pub keep: bool,
    /// True if the kernel splits underused huge pages when memory is short (`shrink_underused`, 6.12).
    pub shrink_underused: bool,
    /// The file of tuned's active profile that names khugepaged's settings.
    pub tuned_file: Option<String>,
    /// The action of a running DAMON scheme that makes huge pages: `hugepage` or `collapse`.
    pub damon_action: Option<String>,
}

/// khugepaged undoes merging, and nothing holds it.
pub(super) fn undone(sample: &Sample, circumstances: &HostCircumstances) -> Option<Finding> {
    let huge = &circumstances.huge_pages;
    let shared = sample.ksm.max_ptes_shared.get()?;
    let none = sample.ksm.max_ptes_none.get()?;
    let saved = sample.ksm.saved_pages().saturating_mul(sample.page_size);
    let has_daemon = circumstances.daemon != DaemonPresence::Absent;
    // A daemon holds nothing before anything merges.
    let is_kept = huge.keep && has_daemon && (shared == 0 || saved == 0);
    if !huge.khugepaged || (shared, none) == (0, 0) || is_kept {
        return None;
    }
    if saved == 0 && huge.keep {
        return None;
    }
    let at_stake = match saved {
        0 => "what merges in such memory is lost again".to_owned(),
        saved => {
            format!("what of the {} saved lies in such memory is lost, and no counter shows it", Bytes::from(saved))
        }
    };
    let what = format!(
        "khugepaged undoes merges in memory with huge pages: it collapses ranges with up to {shared} shared and \
        {none} empty pages (max_ptes_shared, max_ptes_none); {at_stake}"
    );
    // The host's `defrag` is for page faults, and khugepaged's own only lets it make room first (`alloc_charge_folio`).
    let mut remedy = match huge.keep {
        true if has_daemon => {
            "ksmith could not set them to 0, or another program sets them back: `journalctl -u ksmith` names the fault; its unit \
             needs the folder of khugepaged's settings in ReadWritePaths="
        }
        true => "`ksmith daemon` holds both at 0 while it is in control; for good: `ksmith set max_ptes_shared=0 max_ptes_none=0`",
        false => "keep = true in [huge_pages] of /etc/ksmith.toml holds both at 0 while ksmith is in control",
    }
    .to_owned();
    // Where all pages but one may be zeros (`thp_underused` in `mm/huge_memory.c`).
    let none_is_underused = none.saturating_add(1) >= sample.huge_page_bytes() / sample.page_size.max(1);
    if huge.shrink_underused && none_is_underused {
        remedy
            .push_str("; max_ptes_none=0 also lets shrink_underused free zeros in huge pages when memory is short");
    }
    remedy.push_str("; neither defrag nor khugepaged/defrag stops it");
    Some(finding("huge-pages", if saved > 0 { Severity::Warning } else { Severity::Note }, what, remedy))
}

/// The price of keeping merged pages for memory that does not merge: `thp_underused` in `mm/huge_memory.c` counts a huge page
/// as underused if more than `max_ptes_none` of its pages are zeros.
pub(super) fn price(sample: &Sample, circumstances: &HostCircumstances) -> Option<Finding> {
    let huge = &circumstances.huge_pages;
    let is_held = sample.ksm.max_ptes_none.get() == Some(0);
    (is_held && huge.shrink_underused && huge.khugepaged).then(|| {
        finding(
            "huge-pages-price",
            Severity::Note,
            "max_ptes_none=0 keeps freed zeros free, and has a price for all processes: khugepaged makes no huge page of a range with an \
             empty page, and when memory is short shrink_underused splits each huge page with a page of zeros",
            "where programs outside KSM lose by that: `echo 0 > /sys/kernel/mm/transparent_hugepage/shrink_underused` ends the splits; \
             keep = false in [huge_pages] gives khugepaged its limits back, and has it undo merges",
        )
    })
}

/// A profile of tuned writes the settings that the daemon holds.
pub(super) fn other_writer(circumstances: &HostCircumstances) -> Option<Finding> {
    let HugePageCircumstances { tuned_file: Some(file), keep: true, .. } = &circumstances.huge_pages else {
        return None;
    };
    Some(finding(
        "huge-pages-writer",
        Severity::Note,
        format!(
            "tuned writes khugepaged's settings when it applies its profile, at boot and when it stops ({file})"
        ),
        "the daemon sets max_ptes_shared and max_ptes_none back at its next turn; leave them out of the profile, or set \
         keep = false in [huge_pages] to have tuned win",
    ))
}

/// DAMON makes huge pages where pages are merged.
pub(super) fn damon(sample: &Sample, circumstances: &HostCircumstances) -> Option<Finding> {
    let action = circumstances.huge_pages.damon_action.as_deref()?;
    let is_merged = sample.ksm.saved_pages() > 0;
    let (what, remedy) = match action {
        "collapse" => (
            "a DAMON scheme with the action collapse makes huge pages of hot memory whatever max_ptes_shared says, and \
             undoes merges there",
            "leave memory with merged pages out of the scheme (its filters and target regions), or stop it",
        ),
        _ => (
            "a DAMON scheme with the action hugepage offers hot memory to khugepaged, which undoes merges there unless \
             max_ptes_shared is 0",
            "keep = true in [huge_pages] holds it at 0 while ksmith is in control; nothing else is to be done",
        ),
    };
    is_merged.then(|| finding("damon-huge-pages", Severity::Note, what, remedy))
}
