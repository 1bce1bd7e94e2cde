//! `/sys/kernel/mm/ksm`, and the files of khugepaged that decide whether merged pages stay so: one table of these files,
//! from which the struct, its parser, JSON and help are made.
//!
//! Source: `mm/ksm.c`, `mm/khugepaged.c` and `Documentation/admin-guide/mm/ksm.rst` of Linux 2.6.32 to 6.18.

use std::fmt;

use serde::{Deserialize, Serialize, Serializer};

use super::KernelFileSource;
use crate::field::{FigureDescription, FigureKind, FigureType, FigureUnit, KernelVersion};
use crate::reading::{Malformed, Reading};

/// Bytes of kernel memory that KSM spends on each page it has looked at: `sizeof(struct ksm_rmap_item)` on
/// 64-bit, the figure from which the kernel computes its own profits.
pub const RMAP_ITEM_BYTES: u64 = 64;

/// The value of one KSM file, for code that walks all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KsmValue {
    /// A count, a number of pages or a switch.
    Unsigned(u64),
    /// `general_profit`, in bytes: negative when KSM costs more memory than it saves.
    Signed(i64),
    /// The mode in `advisor_mode`.
    Advisor(AdvisorMode),
}

impl fmt::Display for KsmValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsigned(value) => value.fmt(f),
            Self::Signed(value) => value.fmt(f),
            Self::Advisor(value) => value.fmt(f),
        }
    }
}

impl Serialize for KsmValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Unsigned(value) => serializer.serialize_u64(*value),
            Self::Signed(value) => serializer.serialize_i64(*value),
            Self::Advisor(value) => serializer.collect_str(value),
        }
    }
}

/// The state of `run`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RunState {
    /// 0: ksmd sleeps, what is merged stays merged.
    Stopped,
    /// 1: ksmd scans.
    Running,
    /// 2: everything was unmerged and ksmd sleeps.
    Unmerged,
}

/// The kernel's own controller of `pages_to_scan` (6.8 and later).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AdvisorMode {
    /// `pages_to_scan` is ours to write.
    None,
    /// The kernel writes `pages_to_scan` after each pass.
    ScanTime,
}

impl AdvisorMode {
    /// Returns the word that the kernel accepts and shows.
    pub fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::ScanTime => "scan-time",
        }
    }
}

impl fmt::Display for AdvisorMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// Types that one KSM file can hold.
trait KsmFileType: Sized + Copy {
    const HOLDS: FigureType;
    fn parse(text: &str) -> Result<Self, Malformed>;
    fn value(self) -> KsmValue;
}

impl KsmFileType for u64 {
    const HOLDS: FigureType = FigureType::Unsigned;

    fn parse(text: &str) -> Result<Self, Malformed> {
        super::number(text)
    }
    fn value(self) -> KsmValue {
        KsmValue::Unsigned(self)
    }
}

impl KsmFileType for i64 {
    const HOLDS: FigureType = FigureType::Signed;

    fn parse(text: &str) -> Result<Self, Malformed> {
        super::signed(text.trim()).ok_or_else(|| Malformed::new(1, "a signed number", text))
    }
    fn value(self) -> KsmValue {
        KsmValue::Signed(self)
    }
}

impl KsmFileType for AdvisorMode {
    const HOLDS: FigureType = FigureType::Text;

    /// The kernel lists all modes and puts the chosen one in brackets: `[none] scan-time`.
    fn parse(text: &str) -> Result<Self, Malformed> {
        let chosen = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
        match chosen {
            Some(("none", _)) => Ok(Self::None),
            Some(("scan-time", _)) => Ok(Self::ScanTime),
            _ => Err(Malformed::new(1, "[none] or [scan-time]", text)),
        }
    }
    fn value(self) -> KsmValue {
        KsmValue::Advisor(self)
    }
}

/// The path of a row's file: in KSM's directory, unless the row names another one below `/sys/kernel/mm`.
macro_rules! file_source {
    ($name:ident) => {
        file_source!($name "ksm")
    };
    ($name:ident $directory:literal) => {
        concat!("/sys/kernel/mm/", $directory, "/", stringify!($name))
    };
}

/// Parses the text of a file. A number that the kernel can't have there is malformed: a counter that fell below zero, more
/// pages than any host has, a setting beyond its type.
fn parse_possible<T: KsmFileType + Copy>(text: &str, unit: FigureUnit, kind: FigureKind) -> Result<T, Malformed> {
    let value = T::parse(text)?;
    let size = match value.value() {
        KsmValue::Unsigned(number) => number,
        KsmValue::Signed(number) => number.unsigned_abs(),
        KsmValue::Advisor(_) => 0,
    };
    let (most, expected) = match (kind, unit) {
        (FigureKind::Counter, _) => (super::MOST_EVENTS, "a number of events"),
        (FigureKind::Gauge, FigureUnit::Bytes) => (super::MOST_BYTES, "a number of bytes"),
        (FigureKind::Gauge, _) => (super::MOST_PAGES, "a number of pages"),
        (FigureKind::State, FigureUnit::Percent) => (100, "a percentage"),
        (FigureKind::State, _) => (u64::from(u32::MAX), "a setting of 32 bits"),
    };
    if size > most { Err(Malformed::new(1, expected, text)) } else { Ok(value) }
}

macro_rules! ksm_files {
    ($($name:ident: $type:ty, $unit:ident, $kind:ident, ($major:literal $minor:literal), $help:literal
        $(, in $directory:literal)?;)*) => {
        /// The files of `/sys/kernel/mm/ksm` and two of khugepaged's, as read at one moment. Names are the kernel's.
        #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct Ksm {
            $(#[doc = $help] pub $name: Reading<$type>,)*
        }

        /// One row per file, in the order of [`Ksm`]'s fields.
        pub const FIELDS: &[FigureDescription] = &[$(FigureDescription {
            name: stringify!($name),
            unit: FigureUnit::$unit,
            kind: FigureKind::$kind,
            holds: <$type as KsmFileType>::HOLDS,
            help: $help,
            source: file_source!($name $($directory)?),
            since: KernelVersion::new($major, $minor),
        },)*];

        impl Ksm {
            /// Reads and parses every file.
            pub fn read(files: &mut impl KernelFileSource) -> Self {
                Self {
                    $($name: files.text(file_source!($name $($directory)?)).and_then(|text| {
                        parse_possible::<$type>(text, FigureUnit::$unit, FigureKind::$kind)
                    }),)*
                }
            }

            /// Returns all readings, each with its row of [`FIELDS`].
            pub fn entries(&self) -> impl Iterator<Item = (&'static FigureDescription, Reading<KsmValue>)> {
                FIELDS.iter().zip([$(self.$name.as_ref().map(|value| KsmFileType::value(*value)),)*])
            }
        }
    };
}

ksm_files! {
    run: u64, Mode, State, (2 6), "0 stops ksmd and keeps what is merged, 1 lets it scan, 2 unmerges everything.";
    pages_to_scan: u64, Pages, State, (2 6), "Pages that ksmd visits before it sleeps.";
    sleep_millisecs: u64, Milliseconds, State, (2 6), "Time that ksmd sleeps between two batches.";
    smart_scan: u64, Mode, State, (6 7), "1 lets ksmd skip pages that did not merge before.";
    use_zero_pages: u64, Mode, State, (4 12), "1 merges empty pages with the kernel's own zero page.";
    merge_across_nodes: u64, Mode, State, (3 9), "1 merges pages of different NUMA nodes.";
    max_page_sharing: u64, Pages, State, (4 4), "Mappings that one merged page may have, at most.";
    stable_node_chains_prune_millisecs: u64, Milliseconds, State, (4 4), "Time between two prunings of duplicate chains.";
    advisor_mode: AdvisorMode, Mode, State, (6 8), "Mode of the kernel's advisor: none, or scan-time, which writes pages_to_scan.";
    advisor_max_cpu: u64, Percent, State, (6 8), "The most of one CPU that the kernel's advisor lets ksmd use.";
    advisor_min_pages_to_scan: u64, Pages, State, (6 8), "The pages_to_scan that the kernel's advisor begins with.";
    advisor_max_pages_to_scan: u64, Pages, State, (6 8), "The most pages_to_scan the kernel's advisor writes.";
    advisor_target_scan_time: u64, Seconds, State, (6 8), "Time that a pass should take under the kernel's advisor.";
    max_ptes_shared: u64, Pages, State, (5 8), "Shared pages up to which khugepaged makes a range a huge page again. 0 keeps what is merged.",
        in "transparent_hugepage/khugepaged";
    max_ptes_none: u64, Pages, State, (2 6), "Empty and zero pages up to which khugepaged does so. 0 keeps zeros that were freed.",
        in "transparent_hugepage/khugepaged";
    full_scans: u64, Count, Counter, (2 6), "Completed passes over all mergeable memory.";
    pages_scanned: u64, Pages, Counter, (6 6), "Pages visited, skipped ones not counted.";
    pages_skipped: u64, Pages, Counter, (6 7), "Pages that smart_scan skipped.";
    pages_shared: u64, Pages, Gauge, (2 6), "Merged pages: frames in use for what is shared.";
    pages_sharing: u64, Pages, Gauge, (2 6), "Further mappings of merged pages: frames saved.";
    pages_unshared: u64, Pages, Gauge, (2 6), "Pages looked up in each pass and found unique.";
    pages_volatile: u64, Pages, Gauge, (2 6), "Pages that change too fast, are new or were skipped.";
    ksm_zero_pages: i64, Pages, Gauge, (6 6), "Empty pages mapped to the kernel's zero page, not counted in pages_sharing.";
    stable_node_chains: u64, Count, Gauge, (4 4), "Contents with more mappings than max_page_sharing.";
    stable_node_dups: u64, Count, Gauge, (4 4), "Frames that hold such contents.";
    general_profit: i64, Bytes, Gauge, (6 4), "Bytes saved less KSM's own metadata; negative when KSM costs memory.";
}

impl Ksm {
    /// Returns the state of `run`; `None` if it is unreadable or not 0, 1 or 2.
    pub fn run_state(&self) -> Option<RunState> {
        match self.run.get()? {
            0 => Some(RunState::Stopped),
            1 => Some(RunState::Running),
            2 => Some(RunState::Unmerged),
            _ => None,
        }
    }

    /// Returns true if this kernel has KSM.
    pub fn is_present(&self) -> bool {
        self.run != Reading::Absent
    }

    /// Returns the pages that merging saves: `pages_sharing` + `ksm_zero_pages`. 0 where KSM is absent.
    pub fn saved_pages(&self) -> u64 {
        self.pages_sharing.get().unwrap_or(0).saturating_add(self.zero_pages())
    }

    /// Returns the empty pages that map the kernel's zero page.
    ///
    /// The kernel counts one when it is merged and subtracts one when it is unmapped (`ksm_might_unmap_zero_page`,
    /// `include/linux/ksm.h`). On some kernels `ksm_fork` does not count those that a child gets when it is forked, and
    /// they are subtracted all the same: on 6.16.3, not on 6.12.107 and 6.18.15 (`examples/kernel/zero_pages.c`). So
    /// the count can fall below zero, which is read as zero.
    pub fn zero_pages(&self) -> u64 {
        self.ksm_zero_pages.get().map_or(0, |pages| u64::try_from(pages).unwrap_or(0))
    }

    /// Returns true if the kernel counts pages that it merges with the zero page. From Linux 4.12 to 6.5 it merges them, and
    /// does not.
    pub fn counts_zero_pages(&self) -> bool {
        self.ksm_zero_pages != Reading::Absent
    }

    /// Returns true if the counters of merged pages were read. Without KSM, and where a counter is no number, savings
    /// are unknown and not zero. A kernel that counts no zero pages saves none by them.
    pub fn shows_savings(&self) -> bool {
        self.pages_sharing.get().is_some() && matches!(self.ksm_zero_pages, Reading::Value(_) | Reading::Absent)
    }

    /// Returns true if the counters of tracked pages were read: there are some, and none is denied or malformed.
    pub fn shows_tracked(&self) -> bool {
        let tracked = self.tracked();
        let is_fine = |pages: &Reading<u64>| matches!(pages, Reading::Value(_) | Reading::Absent);
        tracked.iter().any(|pages| pages.get().is_some()) && tracked.into_iter().all(is_fine)
    }

    fn tracked(&self) -> [&Reading<u64>; 4] {
        [&self.pages_shared, &self.pages_sharing, &self.pages_unshared, &self.pages_volatile]
    }

    /// Returns the pages that ksmd keeps a reverse mapping for: all that it has visited and still tracks.
    pub fn tracked_pages(&self) -> u64 {
        self.tracked().into_iter().filter_map(Reading::get).fold(0, u64::saturating_add)
    }

    /// Returns true if ksmd is known to track no more than so many pages: each counter that this kernel has is readable.
    pub fn tracks_at_most(&self, pages: u64) -> bool {
        let is_known = |reading: &Reading<u64>| matches!(reading, Reading::Value(_) | Reading::Absent);
        self.tracked().into_iter().all(is_known) && self.tracked_pages() <= pages
    }

    /// Returns the pages that ksmd has passed since boot: visited, or skipped by `smart_scan`. `None` before Linux 6.6,
    /// which counts no visits.
    pub fn passed_pages(&self) -> Option<u64> {
        Some(self.pages_scanned.get()?.saturating_add(self.pages_skipped.get().unwrap_or(0)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    pub(crate) struct FileTable(pub HashMap<&'static str, &'static str>);

    impl KernelFileSource for FileTable {
        fn text(&mut self, path: &'static str) -> Reading<&str> {
            let name = path.rsplit('/').next().unwrap();
            self.0.get(name).map_or(Reading::Absent, |text| Reading::Value(*text))
        }
    }

    fn table<const N: usize>(rows: [(&'static str, &'static str); N]) -> FileTable {
        FileTable(HashMap::from(rows))
    }

    #[test]
    fn an_old_kernels_missing_files_are_absent_and_not_zero() {
        let ksm = Ksm::read(&mut table([("run", "1\n"), ("pages_sharing", "7\n")]));
        assert_eq!(ksm.run_state(), Some(RunState::Running));
        assert_eq!(ksm.smart_scan, Reading::Absent);
        assert_eq!(ksm.saved_pages(), 7);
    }

    #[test]
    fn profit_is_signed() {
        let ksm = Ksm::read(&mut table([("general_profit", "-4096\n")]));
        assert_eq!(ksm.general_profit, Reading::Value(-4096));
    }

    #[test]
    fn the_chosen_advisor_stands_in_brackets() {
        let mode = |text| Ksm::read(&mut table([("advisor_mode", text)])).advisor_mode;
        assert_eq!(mode("[none] scan-time\n"), Reading::Value(AdvisorMode::None));
        assert_eq!(mode("none [scan-time]\n"), Reading::Value(AdvisorMode::ScanTime));
        assert!(matches!(mode("none scan-time\n"), Reading::Malformed(_)));
        assert!(matches!(mode("][\n"), Reading::Malformed(_)));
    }

    #[test]
    fn entries_pair_each_reading_with_its_own_row() {
        let ksm = Ksm::read(&mut table([("stable_node_dups", "3"), ("run", "2")]));
        let found: Vec<_> =
            ksm.entries().filter_map(|(field, reading)| Some((field.name, *reading.value()?))).collect();
        assert_eq!(found, [("run", KsmValue::Unsigned(2)), ("stable_node_dups", KsmValue::Unsigned(3))]);
    }

    #[test]
    fn tracked_pages_never_overflow() {
        let most = || Reading::Value(u64::MAX);
        let ksm = Ksm { pages_shared: most(), pages_sharing: most(), ..Ksm::default() };
        assert_eq!(ksm.tracked_pages(), u64::MAX);
    }

    #[test]
    fn a_counter_that_can_not_be_read_is_no_proof_of_few_tracked_pages() {
        let ksm = Ksm { pages_shared: Reading::Value(5), pages_sharing: Reading::Value(2), ..Ksm::default() };
        assert!(ksm.tracks_at_most(7) && !ksm.tracks_at_most(6));
        let denied = Ksm { pages_unshared: Reading::Denied, ..ksm };
        assert!(!denied.tracks_at_most(u64::MAX));
    }

    #[test]
    fn pages_that_no_host_has_are_malformed_and_leave_savings_unknown() {
        let ksm = Ksm::read(&mut table([("pages_sharing", "18446744073709551608"), ("pages_shared", "3")]));
        assert!(matches!(ksm.pages_sharing, Reading::Malformed(_)) && !ksm.shows_savings());
        assert_eq!(ksm.pages_shared, Reading::Value(3));
    }
}
