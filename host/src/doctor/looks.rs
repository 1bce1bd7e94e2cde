//! Sampled pages, read twice: their state at the first look, and the change up to the last.

use ksmith_core::diagnose::process::{EqualPages, LaterState, WatchedPage};
use ksmith_core::sketch::ZERO;

use super::equals::EqualPageSearch;
use super::pages::page_now;
use crate::memory::scan::{ScanBuffers, ScanContext};
use crate::memory::target::ReadTarget;

/// A sampled page with its state at the first look.
#[derive(Debug, Clone, Copy)]
pub struct DrawnPage {
    /// Index of its mapping.
    pub mapping: usize,
    /// Virtual address of the page.
    pub address: u64,
    /// Fingerprint of its content.
    pub fingerprint: u64,
    /// True if it was merged.
    pub was_merged: bool,
}

/// Reads the pages at these addresses for the first time. Pages that can't be read are left out.
pub fn first_look(
    context: &ScanContext,
    target: &ReadTarget,
    scratch: &mut ScanBuffers,
    places: impl Iterator<Item = (usize, u64, bool)>,
) -> Vec<DrawnPage> {
    let look = |(mapping, address, was_merged)| {
        let fingerprint = scratch.read_page(context, &target.memory, address).ok()?.0?;
        Some(DrawnPage { mapping, address, fingerprint, was_merged })
    };
    places.filter_map(look).collect()
}

/// Reads a page again and compares it with the first look.
pub fn last_look(
    context: &ScanContext,
    target: &ReadTarget,
    scratch: &mut ScanBuffers,
    drawn: &DrawnPage,
    equals: Option<EqualPages>,
) -> WatchedPage {
    let now = page_now(&target.memory.pagemap, &context.frames, drawn.address, context.page_size);
    let then = match now {
        None => LaterState::Gone,
        Some((_, flags)) if flags.is_merged() || flags.is_zero_page() => LaterState::Merged,
        Some(_) => match scratch.read_page(context, &target.memory, drawn.address) {
            Ok((Some(fingerprint), _)) if fingerprint == drawn.fingerprint => LaterState::Same,
            Ok((Some(_), _)) => LaterState::Changed,
            Ok((None, _)) | Err(_) => LaterState::Gone,
        },
    };
    let is_huge = now.is_some_and(|(_, flags)| flags.is_huge());
    WatchedPage { then, is_huge, is_zero: drawn.fingerprint == ZERO, equals }
}

/// Returns true if a merge is still to be expected: an unmerged page has a page of equal content.
pub fn is_anything_pending(
    context: &ScanContext,
    targets: &[ReadTarget],
    own: usize,
    drawn: &[DrawnPage],
    search: &EqualPageSearch,
) -> bool {
    let Some(target) = targets.get(own) else { return false };
    drawn.iter().filter(|page| !page.was_merged).any(|page| {
        let equals = search.equals(context, targets, page.fingerprint, (own, page.address));
        let now = page_now(&target.memory.pagemap, &context.frames, page.address, context.page_size);
        equals.copies > 0 && now.is_some_and(|(_, flags)| !flags.is_merged())
    })
}
