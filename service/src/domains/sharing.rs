//! Merged frames that the guests of this host share now. Counting them costs a walk over the page tables of guests with
//! merged memory, some 10 ms for each resident GiB, so it is done on request.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;

use ksmith_core::decide::domains::{CrossDomainSharing, DomainsConfig, FrameMapping};
use ksmith_core::guest::Guest;
use ksmith_core::sample::ProcessId;

use ksmith_host::guests::is_alive;
use ksmith_host::mappings;
use ksmith_host::memory::entries;
use ksmith_host::memory::frames::{FrameTable, SharedFrames};
use ksmith_host::root::Root;

/// An error of [`sharing`].
#[derive(Debug, thiserror::Error)]
pub enum SharingError {
    /// Only the live host has page tables.
    #[error("a captured tree does not hold which pages are shared")]
    NotHost,
    /// The kernel hides the numbers of frames.
    #[error("which domains share pages now is shown to root only (CAP_SYS_ADMIN)")]
    Denied,
}

/// Counts the pages that the domains share now. A guest that ends meanwhile counts with the part that was read.
///
/// # Errors
/// See [`SharingError`].
pub fn sharing(root: &Root, config: &DomainsConfig, guests: &[Guest]) -> Result<CrossDomainSharing, SharingError> {
    if !root.is_host() {
        return Err(SharingError::NotHost);
    }
    let frames = FrameTable::open();
    if !frames.are_visible() {
        return Err(SharingError::Denied);
    }
    let mut held = Vec::new();
    for (number, guest) in (0..).zip(guests) {
        if guest.figures.merged_bytes == 0 {
            continue;
        }
        let mut pages: BTreeMap<u64, u32> = BTreeMap::new();
        for id in &guest.processes {
            match merged_frames(root, &frames, *id, |frame| *pages.entry(frame).or_default() += 1) {
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Err(SharingError::Denied),
                _ => {}
            }
        }
        held.extend(pages.into_iter().map(|(frame, pages)| FrameMapping { frame, guest: number, pages }));
    }
    let domains: Vec<Option<&str>> = guests.iter().map(|guest| config.domain_of(guest)).collect();
    Ok(CrossDomainSharing::from_mappings(&domains, held, rustix::param::page_size() as u64))
}

/// Calls `take` with the frame of each page of a process that is merged with another.
fn merged_frames(root: &Root, frames: &FrameTable, id: ProcessId, mut take: impl FnMut(u64)) -> io::Result<()> {
    let mut places = Vec::new();
    let smaps = mappings::read(root, id.pid, "smaps", |mapping| {
        let merged = mapping.figures.as_ref().and_then(|figures| figures.merged);
        if mapping.is_mergeable() != Some(false) && merged != Some(0) {
            places.push((mapping.start, mapping.end));
        }
    });
    if smaps.value().is_none() {
        return Ok(());
    }
    // Last: to open it waits for a process that holds its readers up, and that one has not answered above.
    let pagemap = File::open(root.path(format!("proc/{}/pagemap", id.pid)))?;
    // What was read and opened belongs to this process only if it is still there.
    if !is_alive(root, id) {
        return Ok(());
    }
    let size = rustix::param::page_size() as u64;
    for (start, end) in places {
        entries::each(&pagemap, id.pid, [start, end, size], |_, entries| {
            let shared = SharedFrames::look_up(frames, entries);
            for entry in entries.iter().filter(|entry| entry.is_anonymous() && !entry.is_exclusive()) {
                if entry.frame() == 0 {
                    return Err(io::ErrorKind::PermissionDenied.into());
                }
                let flags = shared.flags(*entry);
                if flags.is_merged() && !flags.is_zero_page() {
                    take(entry.frame());
                }
            }
            Ok(())
        })?;
    }
    Ok(())
}
