//! The judgement: each byte that is in memory gets exactly one cause.
//!
//! Figures of smaps and the page tables are counted. Causes that depend on contents come from a sample of pages, scaled
//! to all pages that were not merged.

use super::cause::Cause;
use super::diagnosis::{CausePart, CauseTotal, MappingDiagnosis, ProcessDiagnosis, totals};
use super::examination::{
    EqualPages, LaterState, MappingExamination, PASSES_FOR_TWO_VISITS, ProcessExamination, WatchedPage,
};
use crate::account::apportion;
use crate::kernel::{IneligibleReason, ProcessMapping, SmapsFigures};

/// The least part of the memory that the main cause must have if it is a loss.
const NOTABLE: f64 = 0.05;

/// Judges a process.
pub fn judge(seen: &ProcessExamination) -> ProcessDiagnosis {
    let diagnoses: Vec<_> = seen.mappings.iter().filter_map(|mapping| of_mapping(seen, mapping)).collect();
    let sums = totals(&diagnoses);
    let causes = sums.iter().map(|&(cause, bytes)| CauseTotal {
        cause,
        bytes,
        what: cause.words(),
        evidence: super::evidence::evidence(cause, seen),
        remedy: cause.remedy(seen),
    });
    ProcessDiagnosis {
        main: main(&sums),
        causes: causes.collect(),
        mappings: diagnoses,
        huge_bytes: seen.huge_bytes(),
    }
}

/// Chooses the cause to name first: the largest loss if it is notable, else the cause of most memory.
///
/// Pages of files and devices do not count, since they are not expected to merge.
fn main(sums: &[(Cause, u64)]) -> Option<Cause> {
    let expected = |cause: Cause| !matches!(cause, Cause::File | Cause::Device);
    let all: u64 = sums.iter().filter(|(cause, _)| expected(*cause)).map(|(_, bytes)| bytes).sum();
    let loss = sums.iter().find(|&&(cause, bytes)| cause.is_loss() && bytes as f64 >= NOTABLE * all as f64);
    let most = sums.iter().find(|(cause, _)| expected(*cause)).or(sums.first());
    loss.or(most).map(|&(cause, _)| cause)
}

/// Judges a mapping. `None`: no memory is in it.
fn of_mapping(seen: &ProcessExamination, examined: &MappingExamination) -> Option<MappingDiagnosis> {
    let mapping = &examined.mapping;
    let figures = mapping.figures.as_ref()?;
    let is_marked = is_marked(seen, mapping);
    let mut parts = match mapping.ineligible() {
        Some(reason) => {
            let bytes = if reason == IneligibleReason::Hugetlb { figures.hugetlb } else { figures.rss };
            vec![CausePart { cause: reason.into(), bytes }]
        }
        None => private(seen, examined, figures, is_marked),
    };
    parts.retain(|part| part.bytes > 0);
    parts.sort_by_key(|part| (std::cmp::Reverse(part.bytes), part.cause));
    (!parts.is_empty()).then(|| MappingDiagnosis {
        start: format!("{:x}", mapping.start),
        end: format!("{:x}", mapping.end),
        path: mapping.path.clone(),
        is_marked,
        parts,
    })
}

/// Judges a private mapping: pages of a file that were not written to, and anonymous pages.
fn private(
    seen: &ProcessExamination,
    examined: &MappingExamination,
    figures: &SmapsFigures,
    is_marked: Option<bool>,
) -> Vec<CausePart> {
    let page = seen.page_size.max(1);
    let zero = examined.pages.map_or(0, |pages| pages.zero) * page;
    // The kernel's zero page does not count as resident.
    let of_file = figures.rss.saturating_sub(figures.anonymous);
    let mut parts =
        vec![CausePart { cause: Cause::File, bytes: of_file }, CausePart { cause: Cause::ZeroPage, bytes: zero }];
    let (merged, rest) = match examined.pages {
        Some(pages) => (pages.merged * page, pages.unmerged * page),
        None => {
            let merged = figures.merged.unwrap_or(0).min(figures.anonymous);
            (merged, figures.anonymous - merged)
        }
    };
    parts.extend(merged_parts(seen, examined, merged));
    if is_marked != Some(true) {
        let cause = match is_marked {
            None => Cause::Unseen,
            Some(_) if is_lost(seen) => Cause::OptInLost,
            Some(_) => Cause::NotMarked,
        };
        parts.push(CausePart { cause, bytes: rest + figures.swap });
        return parts;
    }
    parts.push(CausePart { cause: Cause::Swapped, bytes: figures.swap });
    if seen.drives_device == Some(true) {
        parts.push(CausePart { cause: Cause::Vfio, bytes: rest });
        return parts;
    }
    parts.extend(sampled(seen, &examined.looks, rest));
    parts
}

/// Returns true if a mapping is marked mergeable; `None` if its flags are not there. Then the kernel's word that nothing
/// of the process is mergeable decides.
fn is_marked(seen: &ProcessExamination, mapping: &ProcessMapping) -> Option<bool> {
    mapping.is_mergeable().or(seen.ksm.mergeable.filter(|mergeable| !mergeable))
}

/// Returns true if the process should have opted in as a whole, and has not.
fn is_lost(seen: &ProcessExamination) -> bool {
    let was_meant = seen.meant_to_opt_in.is_some() || seen.watch.lost_opt_in;
    was_meant && seen.ksm.merge_any.is_none_or(|merge_any| !merge_any || seen.watch.lost_opt_in)
}

/// Divides merged memory into what is saved and surplus frames.
fn merged_parts(seen: &ProcessExamination, examined: &MappingExamination, merged: u64) -> [CausePart; 2] {
    let looks = &examined.merged_looks;
    let surplus: f64 = looks.iter().map(|equals| surplus_share(seen, equals)).sum();
    let share = surplus / looks.len().max(1) as f64;
    let surplus = (merged as f64 * share).round() as u64;
    let cause = Cause::ChainLimit;
    [CausePart { cause: Cause::Merged, bytes: merged - surplus }, CausePart { cause, bytes: surplus }]
}

/// Returns the part of a merged page that is lost because its content has more than one frame.
fn surplus_share(seen: &ProcessExamination, equals: &EqualPages) -> f64 {
    let pages = equals.merged + 1;
    if equals.frames < 2 || pages <= seen.host.max_page_sharing {
        return 0.0;
    }
    (pages.div_ceil(seen.host.max_page_sharing.max(2)) - 1) as f64 / pages as f64
}

/// Splits `bytes` that are not merged in proportion to the causes of the sampled pages.
fn sampled(seen: &ProcessExamination, looks: &[WatchedPage], bytes: u64) -> Vec<CausePart> {
    let causes = looks.iter().filter_map(|look| cause_of(seen, look));
    let mut counts = [0_u64; Cause::ALL.len()];
    for cause in causes {
        for (count, _) in counts.iter_mut().zip(Cause::ALL).filter(|(_, it)| *it == cause) {
            *count += 1;
        }
    }
    let pages = bytes / seen.page_size.max(1);
    let (shares, rest) = apportion(pages, &counts, 0);
    let part = |(cause, pages): (Cause, u64)| CausePart { cause, bytes: pages * seen.page_size };
    let mut parts: Vec<CausePart> = Cause::ALL.into_iter().zip(shares).map(part).collect();
    parts.push(part((Cause::Unseen, rest)));
    parts
}

/// Returns the cause of a sampled page; `None` if it is not in memory any more.
fn cause_of(seen: &ProcessExamination, look: &WatchedPage) -> Option<Cause> {
    match look.then {
        LaterState::Gone => return None,
        LaterState::Merged => return Some(Cause::Merged),
        LaterState::Changed => return Some(Cause::Changing),
        LaterState::Same => {}
    }
    let Some(equals) = look.equals else { return Some(Cause::Unseen) };
    let merges_alone = look.is_zero && seen.host.use_zero_pages;
    Some(match () {
        () if equals.copies > 0 || merges_alone => why_apart(seen, look, &equals),
        () if seen.searched_pages < seen.searchable_pages => Cause::NoEqualSeen,
        () => Cause::Unique,
    })
}

/// Returns the cause of a page that stays the same and has an equal.
fn why_apart(seen: &ProcessExamination, look: &WatchedPage, equals: &EqualPages) -> Cause {
    let host = &seen.host;
    // All its equals are merged and their frames are full, so that this page has no free partner.
    let is_odd_one = equals.merged >= host.max_page_sharing && equals.merged == equals.copies;
    match () {
        () if !host.is_scanning => Cause::Stopped,
        () if seen.watch.passes >= PASSES_FOR_TWO_VISITS => match () {
            () if host.smart_scan && seen.watch.skipped > 0 && !is_odd_one => Cause::SmartScan,
            () if is_odd_one => Cause::ChainLimit,
            () if look.is_huge => Cause::HugePage,
            () => Cause::Held,
        },
        () if has_unvisited(seen) || host.full_scans < 2 => Cause::NotVisitedTwice,
        () if is_odd_one => Cause::ChainLimit,
        () if host.smart_scan && host.pages_skipped > 0 && has_seen_passes(seen) => Cause::SmartScan,
        () => Cause::NotVisitedTwice,
    }
}

/// Returns true if ksmd tracks fewer pages of the process than are present, less 2 % for pages that come and go.
fn has_unvisited(seen: &ProcessExamination) -> bool {
    let Some(tracked) = seen.ksm.rmap_items else { return false };
    let present = seen.present_pages();
    tracked.saturating_add(present / 50) < present
}

/// Returns true if the process is older than several passes at the present settings.
fn has_seen_passes(seen: &ProcessExamination) -> bool {
    let several = seen.host.pass_milliseconds as f64 / 1000.0 * PASSES_FOR_TWO_VISITS as f64;
    seen.age_seconds.is_some_and(|age| age > several)
}
