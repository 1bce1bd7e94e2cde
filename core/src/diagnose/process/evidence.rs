//! The evidence of a cause, in one sentence with figures.

use std::time::Duration;

use super::cause::Cause;
use super::examination::{EqualPages, LaterState, PASSES_FOR_TWO_VISITS, ProcessExamination, WatchedPage};
use crate::units::TimeSpan;

/// Returns the evidence of a cause, if it says more than the cause itself.
pub(super) fn evidence(cause: Cause, seen: &ProcessExamination) -> Option<String> {
    let host = &seen.host;
    let watch = &seen.watch;
    let watched = TimeSpan(Duration::try_from_secs_f64(watch.seconds.max(0.0)).unwrap_or_default());
    Some(match cause {
        Cause::OptInLost if watch.lost_opt_in => "ksm_merge_any went from yes to no while ksmith looked".to_owned(),
        Cause::OptInLost => {
            format!("{}, and its ksm_merge_any is no", seen.meant_to_opt_in.as_deref().unwrap_or("it was opted in"))
        }
        Cause::NotMarked => match seen.ksm.merge_any {
            Some(false) | None if seen.kept_out.is_some() => seen.kept_out.clone()?,
            Some(true) => "the process opted in as a whole; these mappings were taken out, or are of a kind that \
                           can't be marked"
                .to_owned(),
            Some(false) => "their VmFlags lack mg, and ksm_merge_any is no".to_owned(),
            None => "their VmFlags lack mg".to_owned(),
        },
        Cause::Unseen if seen.mappings.iter().any(|examined| examined.mapping.is_mergeable().is_none()) => {
            let word = match seen.ksm.mergeable {
                Some(true) => "; ksm_mergeable of the process is yes",
                _ => "",
            };
            format!("this kernel shows no VmFlags of its mappings{word}")
        }
        Cause::Vfio => "the process holds VFIO files".to_owned(),
        Cause::Stopped => "run is not 1, or pages_to_scan is 0".to_owned(),
        Cause::NotVisitedTwice => {
            let tracked = seen.ksm.rmap_items.unwrap_or(0);
            format!(
                "ksmd tracks {tracked} of {} pages; {} passes ended in the {watched} that ksmith watched, {} in all; a \
                 pass takes at least {}",
                seen.present_pages(),
                watch.passes,
                host.full_scans,
                TimeSpan(Duration::from_millis(host.pass_milliseconds)),
            )
        }
        Cause::SmartScan if watch.passes >= PASSES_FOR_TWO_VISITS => format!(
            "{} passes ended while ksmith watched, with smart_scan passing over {} pages, and these and their equals \
             stayed the same and apart",
            watch.passes, watch.skipped
        ),
        Cause::SmartScan => format!(
            "most likely: smart_scan has passed over {} pages, the process is older than several passes, and all its \
             pages are tracked; `ksmith doctor --seconds` longer than three passes makes it certain",
            host.pages_skipped
        ),
        Cause::HugePage | Cause::Held => format!(
            "{} passes ended in the {watched} that ksmith watched, none passing over these pages, and they stayed the \
             same and apart",
            watch.passes
        ),
        Cause::Changing => {
            let changed = looks(seen).filter(|look| look.then == LaterState::Changed).count();
            format!("{changed} of {} sampled pages had other content {watched} later", looks(seen).count())
        }
        Cause::Unique => format!(
            "compared with all {} pages of mergeable memory on this host, its own included",
            seen.searched_pages
        ),
        Cause::NoEqualSeen => {
            let percent = seen.searched_pages as f64 * 100.0 / seen.searchable_pages.max(1) as f64;
            format!("{percent:.0} % of the mergeable memory on this host was searched")
        }
        Cause::ChainLimit => {
            let merged = seen.mappings.iter().flat_map(|examined| &examined.merged_looks);
            let apart = looks(seen).filter_map(|look| look.equals.as_ref());
            let most = merged.chain(apart).map(|equals: &EqualPages| equals.copies + 1).max().unwrap_or(0);
            format!("one content has {most} copies, and max_page_sharing is {}", host.max_page_sharing)
        }
        _ => return None,
    })
}

fn looks(seen: &ProcessExamination) -> impl Iterator<Item = &WatchedPage> {
    seen.mappings.iter().flat_map(|examined| &examined.looks)
}
