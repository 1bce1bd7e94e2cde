//! A guest's memory as the kernel maps it. A command line may leave open what its paths and devices are.

use ksmith_core::kernel::{IneligibleReason, ProcessMapping};

use crate::mappings::visit_mappings;
use crate::root::Root;

/// Size from which a mapping is the guest's memory, unless its size is known: video memory is smaller.
const LARGE: u64 = 256 << 20;

/// Part of the guest's memory from which a mapping counts, and the least size. Of a guest of unknown size a private
/// mapping counts from that size: it can merge, whatever shared memory lies beside it.
const PART: u64 = 8;
const LEAST: u64 = 64 << 20;

/// Size from which mappings that can merge count together.
const PIECE: u64 = 2 << 20;

/// Words of obstacles that the command line tells from a path or a mapping.
const DECIDABLE: [Option<&str>; 3] = [None, Some("shared"), Some("hugepages")];

/// Returns the obstacle to merging that the mappings of a virtual machine show, or else the one that its command line
/// `claims`. A device that pins the memory does not show there.
pub(super) fn obstacle(
    root: &Root,
    pid: u32,
    memory_bytes: Option<u64>,
    claims: Option<&'static str>,
) -> Option<&'static str> {
    if !DECIDABLE.contains(&claims) {
        return claims;
    }
    let mounts = root.text("proc/mounts");
    let mounts: Vec<&str> =
        mounts.value().into_iter().flat_map(|text| text.lines()).filter_map(huge_mount).collect();
    let mut seen = MappedMemory::new(memory_bytes);
    match visit_mappings(root, pid, "maps", |mapping| seen.count(&mapping, &mounts)) {
        Ok(()) => seen.obstacle(claims),
        Err(_) => claims,
    }
}

/// Returns the mount point, if a line of `/proc/mounts` is one of hugetlbfs.
fn huge_mount(line: &str) -> Option<&str> {
    let mut fields = line.split(' ').skip(1);
    let point = fields.next()?;
    (fields.next() == Some("hugetlbfs")).then_some(point)
}

/// Sums over the mappings of one process.
#[derive(Debug, Default)]
struct MappedMemory {
    /// Least size of a mapping that is the guest's memory.
    large: u64,
    /// Least size of a private mapping that is.
    large_private: u64,
    /// True if a large private mapping can merge.
    has_mergeable: bool,
    /// True if a large mapping may be one of huge pages or not.
    is_open: bool,
    /// Bytes in pieces that can merge.
    pieces: u64,
    /// The largest mapping that can't merge, with the reason.
    largest: Option<(u64, &'static str)>,
}

impl MappedMemory {
    fn new(memory_bytes: Option<u64>) -> Self {
        // A little more than video memory of that size, and never more than the guest has.
        let known = memory_bytes.map(|bytes| (bytes / PART).max(LEAST + 1).min(bytes));
        Self { large: known.unwrap_or(LARGE), large_private: known.unwrap_or(LEAST + 1), ..Self::default() }
    }

    fn count(&mut self, mapping: &ProcessMapping, huge_mounts: &[&str]) {
        let size = mapping.end - mapping.start;
        // QEMU without KVM keeps translated code in a mapping as large as a guest.
        if !mapping.is_accessible || mapping.is_executable || size < PIECE {
            return;
        }
        // Firmware, or the image of Kata's guests: pages of the file.
        if !mapping.is_shared && !mapping.is_writable && !mapping.path.is_empty() {
            return;
        }
        let is_below = |mount: &&str| mapping.path.strip_prefix(*mount).is_some_and(|rest| rest.starts_with('/'));
        let reason = match mapping.ineligible() {
            _ if huge_mounts.iter().any(is_below) => Some("hugepages"),
            Some(IneligibleReason::Hugetlb) => Some("hugepages"),
            Some(IneligibleReason::Shared) => Some("shared"),
            Some(_) => Some("device"),
            None => None,
        };
        match reason {
            Some(reason) if size >= self.large && self.largest.is_none_or(|(most, _)| size > most) => {
                self.largest = Some((size, reason));
            }
            Some(_) => {}
            // A memfd of huge pages looks like one of small pages.
            None if mapping.path.starts_with("/memfd:") => self.is_open |= size >= self.large,
            None => {
                self.has_mergeable |= size >= self.large_private;
                self.pieces = self.pieces.saturating_add(size);
            }
        }
    }

    /// Returns the obstacle, with the command line's word where the mappings decide nothing.
    fn obstacle(&self, claims: Option<&'static str>) -> Option<&'static str> {
        match self.largest {
            _ if self.has_mergeable => None,
            Some((_, reason)) if !self.is_open && self.pieces < self.large => match (reason, claims) {
                // The mapping of a shared memfd does not show its huge pages.
                ("shared", Some(claimed)) => Some(claimed),
                _ => Some(reason),
            },
            _ => claims,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The obstacle of a guest of 1 GiB with these mappings: permissions, size in MiB and path.
    fn seen(claims: Option<&'static str>, mappings: &[(&str, u64, &str)]) -> Option<&'static str> {
        seen_of(Some(1024), claims, mappings)
    }

    /// Returns the obstacle of a guest of so many MiB.
    fn seen_of(
        mib: Option<u64>,
        claims: Option<&'static str>,
        mappings: &[(&str, u64, &str)],
    ) -> Option<&'static str> {
        let tree = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(tree.path().join("proc/7")).unwrap();
        std::fs::write(
            tree.path().join("proc/mounts"),
            "none /srv/pages hugetlbfs rw 0 0\nnone /srv tmpfs rw 0 0\n",
        )
        .unwrap();
        let mut maps = String::new();
        for (index, (permissions, size, path)) in mappings.iter().enumerate() {
            let start = (index as u64 + 1) << 40;
            maps += &format!("{start:x}-{:x} {permissions} 00000000 00:00 0 {path}\n", start + (size << 20));
        }
        std::fs::write(tree.path().join("proc/7/maps"), maps).unwrap();
        obstacle(&Root::at(tree.path()), 7, mib.map(|mib| mib << 20), claims)
    }

    #[test]
    fn large_mappings_decide_and_the_command_line_where_there_are_none() {
        let private = ("rw-p", 1024, "");
        let shared = ("rw-s", 1024, "/dev/shm/ram");
        let huge = ("rw-p", 1024, "/srv/pages/vm/ram");
        for (claims, mappings, expected) in [
            (Some("shared"), vec![private, ("rw-s", 32, "/dev/shm/looking-glass")], None),
            (Some("hugepages"), vec![huge, private], None),
            (None, vec![shared, ("rw-p", 16, "")], Some("shared")),
            (None, vec![huge], Some("hugepages")),
            (Some("shared"), vec![shared, ("rwxp", 1024, "")], Some("shared")),
            (Some("shared"), vec![shared, ("---p", 4096, "")], Some("shared")),
            (Some("hugepages"), vec![("rw-s", 1024, "/memfd:ram (deleted)")], Some("hugepages")),
            (Some("hugepages"), vec![("rw-p", 1024, "/memfd:ram (deleted)")], Some("hugepages")),
            (None, vec![("rw-p", 1024, "/memfd:ram (deleted)"), shared], None),
            (None, vec![shared, ("rw-p", 100, ""), ("rw-p", 100, "")], None),
            (Some("shared"), vec![("rw-p", 16, "")], Some("shared")),
            (Some("vfio"), vec![private], Some("vfio")),
            (Some("shared"), vec![shared, ("r--p", 512, "/opt/kata/image.img")], Some("shared")),
        ] {
            assert_eq!(seen(claims, &mappings), expected, "{claims:?} {mappings:?}");
        }
        let small = [("rw-p", 64, ""), ("rw-s", 128, "/dev/shm/looking-glass")];
        assert_eq!(seen_of(Some(64), Some("shared"), &small), None, "all of its RAM can merge");
        let ivshmem = ("rw-s", 1024, "/dev/shm/ivshmem");
        for claims in [None, Some("shared")] {
            assert_eq!(seen_of(None, claims, &[("rw-p", 128, ""), ivshmem]), None, "its size is in a file");
        }
        let with_video = [ivshmem, ("rw-p", 64, ""), ("rw-p", 64, "")];
        assert_eq!(seen_of(None, None, &with_video), Some("shared"), "video memory is private too");
        assert_eq!(obstacle(&Root::at("/nonexistent"), 7, None, Some("shared")), Some("shared"));
    }
}
