//! `/proc/PID/maps` and `/proc/PID/smaps`: the mappings of a process, and whether KSM could merge their pages.
//!
//! The two files share their headings; `smaps` adds figures and flags, for which the kernel walks the process's
//! page tables (about 3 ms for each GiB of 4 KiB pages).

use super::keyed;
use crate::reading::Malformed;

/// One mapping of a process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProcessMapping {
    /// Address of the first byte.
    pub start: u64,
    /// Address behind the last.
    pub end: u64,
    /// True for a shared mapping: others that map it see writes (`s` in the permissions).
    pub is_shared: bool,
    /// True if the process may read or write there. Address space may be reserved without either, in terabytes.
    pub is_accessible: bool,
    /// True if the process may write there.
    pub is_writable: bool,
    /// True if the process may execute what lies there.
    pub is_executable: bool,
    /// The mapped file's path, a name in brackets, or nothing.
    pub path: String,
    /// Figures of `smaps`, if that file was read and each of them is possible.
    pub figures: Option<SmapsFigures>,
    /// Two-letter flags of `smaps` (3.8). Empty if that file was not read, or the kernel shows none: each mapping has some.
    pub flags: Vec<[u8; 2]>,
}

/// The figures that `smaps` adds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SmapsFigures {
    /// Number of resident bytes, without huge pages of hugetlbfs.
    pub rss: u64,
    /// Bytes resident that are anonymous: merged pages included, the kernel's zero page not.
    pub anonymous: u64,
    /// Bytes in pages of hugetlbfs.
    pub hugetlb: u64,
    /// Bytes in anonymous huge pages.
    pub huge: u64,
    /// Bytes that KSM has merged, its zero pages included (6.7). `None` where this kernel does not say.
    pub merged: Option<u64>,
    /// Bytes in swap.
    pub swap: u64,
}

/// The reason why KSM does not merge a mapping's pages, or those of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IneligibleReason {
    /// A shared mapping: memfd, virtiofs, vhost-user, the RAM of user-mode Linux.
    Shared,
    /// Huge pages of hugetlbfs.
    Hugetlb,
    /// Pages of a file in the page cache.
    File,
    /// Memory of a device, and what the kernel itself maps into the process.
    Device,
    /// Locked in place for a device that the process drives (VFIO).
    Vfio,
    /// Not marked mergeable, in a process that has marked other memory.
    NotMergeable,
    /// One frame with another process since a fork: nothing to save, and ksmd leaves such pairs alone.
    Forked,
}

impl IneligibleReason {
    /// Each reason.
    pub const ALL: [Self; 7] =
        [Self::Shared, Self::Hugetlb, Self::File, Self::Device, Self::Vfio, Self::NotMergeable, Self::Forked];

    /// Returns the key of the reason in JSON.
    pub fn key(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Hugetlb => "hugetlb",
            Self::File => "file",
            Self::Device => "device",
            Self::Vfio => "vfio",
            Self::NotMergeable => "not_mergeable",
            Self::Forked => "forked",
        }
    }

    /// Returns the reason in words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Shared => "in shared mappings",
            Self::Hugetlb => "in pages of hugetlbfs",
            Self::File => "pages of files",
            Self::Device => "device memory",
            Self::Vfio => "locked for a VFIO device",
            Self::NotMergeable => "not marked mergeable",
            Self::Forked => "shared since a fork",
        }
    }
}

impl ProcessMapping {
    /// Parses either file. An impossible figure makes the figures of its mapping unknown, and no others.
    ///
    /// # Errors
    /// A line that is neither a mapping nor below one.
    pub fn parse_all(text: &str) -> Result<Vec<Self>, Malformed> {
        let mut mappings: Vec<Self> = Vec::new();
        let mut is_possible = true;
        for (index, line) in text.lines().enumerate() {
            if line.starts_with(|c: char| c.is_ascii_uppercase()) {
                let malformed = || Malformed::new(index + 1, "a mapping before its figures", line);
                let mapping = mappings.last_mut().ok_or_else(malformed)?;
                if let Some(flags) = line.strip_prefix("VmFlags:") {
                    let flags = flags.split_ascii_whitespace();
                    mapping.flags = flags.filter_map(|flag| <[u8; 2]>::try_from(flag.as_bytes()).ok()).collect();
                }
                let figures = mapping.figures.get_or_insert_default();
                is_possible = is_possible && figures.read(line).is_ok();
                if !is_possible {
                    mapping.figures = None;
                }
            } else if !line.is_empty() {
                mappings.push(Self::parse_heading(index, line)?);
                is_possible = true;
            }
        }
        Ok(mappings)
    }

    /// Parses a heading: `7f3c00000000-7f3c40000000 rw-p 00000000 00:00 0    /path with spaces`.
    fn parse_heading(index: usize, line: &str) -> Result<Self, Malformed> {
        let malformed = || Malformed::new(index + 1, "start-end permissions offset device inode path", line);
        let mut words = line.splitn(6, ' ');
        let (start, end) = words.next().and_then(|range| range.split_once('-')).ok_or_else(malformed)?;
        let address = |hex: &str| u64::from_str_radix(hex, 16).map_err(|_| malformed());
        let (start, end) = (address(start)?, address(end)?);
        let permissions = words.next().filter(|word| word.len() == 4).ok_or_else(malformed)?;
        let path = words.nth(3).unwrap_or("").trim_start().to_owned();
        if end < start {
            return Err(malformed());
        }
        let is_accessible = permissions.contains(['r', 'w']);
        let is_writable = permissions.contains('w');
        let is_executable = permissions.contains('x');
        let is_shared = permissions.ends_with('s');
        Ok(Self { start, end, is_shared, is_accessible, is_writable, is_executable, path, ..Self::default() })
    }

    /// Returns the reason why none of its pages can be merged, whatever the process requests. Private mappings of files
    /// have none: pages that the process has written to are anonymous.
    ///
    /// Source: `vma_ksm_compatible` in `mm/ksm.c`. Direct access (DAX) has no flag: its usual paths stand for it.
    pub fn ineligible(&self) -> Option<IneligibleReason> {
        let has = |flag: &[u8; 2]| self.flags.contains(flag);
        let is_named = |name: &str| self.path.starts_with(name);
        if has(b"ht") || is_named("/anon_hugepage") {
            Some(IneligibleReason::Hugetlb)
        } else if [b"io", b"pf", b"mm", b"de", b"dp"].into_iter().any(has)
            || ["[vvar", "[vdso", "[vsyscall", "/dev/dax", "/dev/vfio", "anon_inode:"].into_iter().any(is_named)
        {
            Some(IneligibleReason::Device)
        } else if self.is_shared {
            Some(IneligibleReason::Shared)
        } else {
            None
        }
    }

    /// Returns true if it is marked mergeable; `None` if that is unknown, also where the kernel shows no flags.
    pub fn is_mergeable(&self) -> Option<bool> {
        (!self.flags.is_empty()).then(|| self.flags.contains(b"mg"))
    }
}

impl SmapsFigures {
    fn read(&mut self, line: &str) -> Result<(), Malformed> {
        let add = |sum: &mut u64, line: &keyed::KeyedLine<'_>| -> Result<(), Malformed> {
            *sum = sum.saturating_add(line.kib()?);
            Ok(())
        };
        for figure in keyed::lines(line) {
            match figure.key {
                "Rss" => add(&mut self.rss, &figure)?,
                "Anonymous" => add(&mut self.anonymous, &figure)?,
                "Private_Hugetlb" | "Shared_Hugetlb" => add(&mut self.hugetlb, &figure)?,
                "AnonHugePages" => add(&mut self.huge, &figure)?,
                "KSM" => add(self.merged.get_or_insert_default(), &figure)?,
                "Swap" => add(&mut self.swap, &figure)?,
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SMAPS: &str = "\
55d0c0000000-55d0c0001000 r--p 00000000 08:01 131 /usr/bin/a name with spaces
Size:                  4 kB
Rss:                   4 kB
Anonymous:             0 kB
VmFlags: rd mr mw me sd
7f0000000000-7f0040000000 rw-p 00000000 00:00 0 
Rss:              524288 kB
Anonymous:        524288 kB
KSM:                   0 kB
VmFlags: rd wr mr mw me ac sd mg
7f0080000000-7f00c0000000 rw-s 00000000 00:01 7 /memfd:ram (deleted)
Rss:                8192 kB
VmFlags: rd wr sh mr mw me ms sd
7f0100000000-7f0140000000 rw-p 00000000 00:0f 9 /anon_hugepage (deleted)
Rss:                   0 kB
Private_Hugetlb:    2048 kB
VmFlags: rd wr mr mw me de ht sd
7ffd00000000-7ffd00004000 r--p 00000000 00:00 0 [vvar]
VmFlags: rd mr pf io de dd sd
";

    #[test]
    fn each_mapping_has_its_reason() {
        let mappings = ProcessMapping::parse_all(SMAPS).unwrap();
        let reasons: Vec<_> = mappings.iter().map(ProcessMapping::ineligible).collect();
        let wanted = [
            None,
            None,
            Some(IneligibleReason::Shared),
            Some(IneligibleReason::Hugetlb),
            Some(IneligibleReason::Device),
        ];
        assert_eq!(reasons, wanted);
        assert_eq!(mappings[0].path, "/usr/bin/a name with spaces");
        assert_eq!(mappings[1].is_mergeable(), Some(true));
        assert_eq!(mappings[1].figures.as_ref().unwrap().anonymous, 512 << 20);
        assert_eq!(mappings[3].figures.as_ref().unwrap().hugetlb, 2 << 20);
        let merged = |at: usize| mappings[at].figures.as_ref().unwrap().merged;
        assert_eq!((merged(0), merged(1)), (None, Some(0)));
        assert_eq!(mappings[1].end - mappings[1].start, 1 << 30);
        assert!(mappings[1].is_accessible && !mappings[1].is_executable);
        assert!(ProcessMapping::parse_all("1000-2000 r-xp 0 0:0 0\n").unwrap()[0].is_executable);
        assert!(!ProcessMapping::parse_all("1000-2000 ---p 0 0:0 0\n").unwrap()[0].is_accessible);
    }

    #[test]
    fn maps_has_the_same_headings_and_no_figures() {
        let headings: String = SMAPS.lines().filter(|line| line.contains('-')).map(|l| format!("{l}\n")).collect();
        let mappings = ProcessMapping::parse_all(&headings).unwrap();
        assert_eq!(mappings.len(), 5);
        assert_eq!(mappings[1].is_mergeable(), None);
        assert_eq!(mappings[4].ineligible(), Some(IneligibleReason::Device));
    }

    #[test]
    fn a_mapping_without_flags_may_be_mergeable_or_not() {
        for flags in ["", "VmFlags:\n", "VmFlags: \n"] {
            let mappings =
                ProcessMapping::parse_all(&format!("1000-2000 rw-p 0 0:0 0\nRss: 4 kB\n{flags}")).unwrap();
            assert_eq!(mappings[0].is_mergeable(), None, "{flags:?}");
        }
        let unmarked = ProcessMapping::parse_all("1000-2000 rw-p 0 0:0 0\nVmFlags: rd\n").unwrap();
        assert_eq!(unmarked[0].is_mergeable(), Some(false));
    }

    #[test]
    fn nonsense_is_malformed_at_its_line() {
        assert_eq!(ProcessMapping::parse_all("Rss: 4 kB\n").unwrap_err().line, 1);
        assert_eq!(ProcessMapping::parse_all("2-1 rw-p 0 0:0 0\n").unwrap_err().line, 1);
        assert_eq!(ProcessMapping::parse_all("").unwrap(), []);
    }

    #[test]
    fn an_impossible_figure_makes_those_of_its_mapping_unknown_and_no_others() {
        for bad in ["Rss: x kB", "Swap: 18446744073709551608 kB", "KSM:", "Anonymous: -1 kB"] {
            let text = format!(
                "1000-2000 rw-p 0 0:0 0\n{bad}\nAnonymous: 4 kB\nVmFlags: rd mg\n3000-4000 rw-p 0 0:0 0\nRss: 4 kB\n"
            );
            let mappings = ProcessMapping::parse_all(&text).unwrap();
            assert_eq!((&mappings[0].figures, mappings[0].is_mergeable()), (&None, Some(true)), "{bad}");
            assert_eq!(mappings[1].figures.as_ref().map(|figures| figures.rss), Some(4096), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "([0-9a-f]{1,17}-[0-9a-f]{1,17} [rwxsp-]{4}|Rss:|VmFlags:|[A-Za-z_]{1,9}: ?[0-9]{0,20} ?kB|\\PC{0,9}|\n){0,20}") {
            let _ = ProcessMapping::parse_all(&text);
        }
    }
}
