//! Merged frames that the guests of this host share now. Counting them costs a walk over the page tables of guests with
//! merged memory, some 10 ms for each resident GiB, so it is done on request.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;

use ksmith_core::decide::domains::{CrossDomainSharing, DomainsConfig, FrameMapping};
use ksmith_core::guest::Guest;
use ksmith_core::reading::Reading;
use ksmith_core::sample::ProcessId;

use ksmith_host::guests::{has_ended, is_alive};
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
    /// A guest with merged memory can't be read, and may share any of it.
    #[error("which domains share pages now is not known, since {name} can't be read: {why}; ask again later")]
    Unread {
        /// The guest.
        name: String,
        /// The error.
        why: String,
    },
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
        let pages = frames_of_guest(root, &frames, guest)?;
        held.extend(pages.into_iter().map(|(frame, pages)| FrameMapping { frame, guest: number, pages }));
    }
    let domains: Vec<Option<&str>> = guests.iter().map(|guest| config.domain_of(guest)).collect();
    Ok(CrossDomainSharing::from_mappings(&domains, held, rustix::param::page_size() as u64))
}

/// Counts the pages of a guest in each merged frame.
fn frames_of_guest(root: &Root, frames: &FrameTable, guest: &Guest) -> Result<BTreeMap<u64, u32>, SharingError> {
    let mut pages: BTreeMap<u64, u32> = BTreeMap::new();
    for id in &guest.processes {
        match merged_frames(root, frames, *id, |frame| *pages.entry(frame).or_default() += 1) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Err(SharingError::Denied),
            Err(error) if !has_ended(root, *id) => {
                return Err(SharingError::Unread { name: guest.name.clone(), why: error.to_string() });
            }
            _ => {}
        }
    }
    Ok(pages)
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
    match smaps {
        Reading::Value(()) => {}
        Reading::Absent => return Ok(()),
        Reading::Denied => return Err(io::ErrorKind::PermissionDenied.into()),
        Reading::Malformed(why) => return Err(io::Error::other(why.to_string())),
    }
    // Last: to open it waits for a process that holds its readers up, and that one has not answered above.
    let pagemap = File::open(root.path(format!("proc/{}/pagemap", id.pid)))?;
    // What was read and opened belongs to this process only if it is still there.
    if !is_alive(root, id) {
        return Err(io::Error::other(format!("process {} does not show that it still runs", id.pid)));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_that_can_not_be_read_does_not_count_as_sharing_nothing() {
        let tree = tempfile::tempdir().unwrap();
        let process = tree.path().join("proc/7");
        let guest = Guest::plain("web", ProcessId { pid: 7, start_ticks: 70 });
        let read = || frames_of_guest(&Root::at(tree.path()), &FrameTable::open(), &guest);
        assert!(read().unwrap().is_empty(), "it has ended");
        std::fs::create_dir_all(process.join("smaps")).unwrap();
        let stat = |start: u64| format!("7 (qemu) S 1 0 0 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {start} 0 10 0\n");
        std::fs::write(process.join("stat"), stat(70)).unwrap();
        let SharingError::Unread { name, .. } = read().unwrap_err() else { panic!("it is there and unread") };
        assert_eq!(name, "web");
        std::fs::write(process.join("stat"), stat(71)).unwrap();
        assert!(read().unwrap().is_empty(), "another process has its PID");
        std::fs::remove_dir(process.join("smaps")).unwrap();
        std::fs::write(process.join("smaps"), "1000-2000 rw-p 0 0:0 0 \nRss: 4 kB\nVmFlags: rd mg\n").unwrap();
        std::fs::write(process.join("pagemap"), "").unwrap();
        std::fs::remove_file(process.join("stat")).unwrap();
        std::fs::create_dir(process.join("stat")).unwrap();
        assert!(matches!(read(), Err(SharingError::Unread { .. })), "it may be another process by now");
    }
}
