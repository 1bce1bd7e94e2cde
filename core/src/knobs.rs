//! The settings of KSM and khugepaged as values: their names, their spelling, and the order in which they may be written.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use crate::kernel::{AdvisorMode, FIELDS, Ksm};

/// The value of a knob in a sample's [`Ksm`], and its writing there. A knob with a path of its own is in no sample.
macro_rules! sampled {
    (read $ksm:ident $name:ident) => {
        $ksm.$name.get().map(IntoKnob::into_knob)
    };
    (read $ksm:ident $name:ident $path:literal) => {
        None
    };
    (write $value:ident $ksm:ident $name:ident) => {
        $ksm.$name = $ksm.$name.as_ref().map(|_| IntoKnob::of_knob($value))
    };
    (write $value:ident $ksm:ident $name:ident $path:literal) => {
        ()
    };
}

macro_rules! knobs {
    ($(#[$doc:meta])* $($variant:ident = $name:ident, $range:expr $(, at $path:literal)?;)*) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Knob {
            $(#[doc = concat!("`", stringify!($name), "`.")] $variant,)*
        }

        impl Knob {
            /// All knobs, in the order of writing.
            pub const ALL: [Self; [$(Self::$variant),*].len()] = [$(Self::$variant),*];

            /// Returns the kernel's name of the file, with khugepaged's before it where KSM has a file of that name.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => stringify!($name),)*
                }
            }

            /// Returns the path of a file that samples leave out, since no decision depends on it.
            fn unsampled_path(self) -> Option<&'static str> {
                match self {
                    $(Self::$variant => None$(.or(Some($path)))?,)*
                }
            }

            /// Returns the knob's current value; `None` if this kernel lacks it, it can't be read, or samples leave it out.
            pub fn current(self, ksm: &Ksm) -> Option<u64> {
                match self {
                    $(Self::$variant => sampled!(read ksm $name $($path)?),)*
                }
            }

            /// Sets the knob to this value in `ksm`, as a write to the kernel would. A file that is absent there stays so.
            pub fn set(self, ksm: &mut Ksm, value: u64) {
                match self {
                    $(Self::$variant => sampled!(write value ksm $name $($path)?),)*
                }
            }

            /// Returns the values that the kernel accepts, from the store functions in `mm/ksm.c` and `mm/khugepaged.c`.
            pub fn range(self) -> std::ops::RangeInclusive<u64> {
                match self {
                    $(Self::$variant => $range,)*
                }
            }
        }
    };
}

/// The largest value of a file that holds an `unsigned int`.
const UINT: u64 = u32::MAX as u64;

/// The largest value of khugepaged's counts on any machine: with pages of 64 KiB a huge page has 8,192. Others refuse
/// what is beyond their own.
const PTES: u64 = 8191;

knobs! {
    /// A file of KSM or khugepaged that can be written, with the values that it takes.
    ///
    /// The order is the order of writing. khugepaged's come first, so that nothing merges before they hold, and of these
    /// `scan_sleep_millisecs` last, since writing it wakes khugepaged. The advisor
    /// comes before what it owns: `pages_to_scan` can't be written while the advisor is on, and changing `advisor_mode`
    /// rewrites `pages_to_scan`. The advisor's parameters come before its mode,
    /// since switching it on starts it from the least pages that it may scan. `pages_to_scan` comes before
    /// `sleep_millisecs`, since writing that wakes ksmd. `run` is last, so that ksmd starts with everything in place.
    MaxPtesShared = max_ptes_shared, 0..=PTES;
    MaxPtesNone = max_ptes_none, 0..=PTES;
    KhugepagedPagesToScan = khugepaged_pages_to_scan, 1..=UINT,
        at "/sys/kernel/mm/transparent_hugepage/khugepaged/pages_to_scan";
    KhugepagedScanSleepMillisecs = khugepaged_scan_sleep_millisecs, 0..=UINT,
        at "/sys/kernel/mm/transparent_hugepage/khugepaged/scan_sleep_millisecs";
    AdvisorMaxCpu = advisor_max_cpu, 0..=100;
    AdvisorMinPagesToScan = advisor_min_pages_to_scan, 0..=UINT;
    AdvisorMaxPagesToScan = advisor_max_pages_to_scan, 0..=UINT;
    AdvisorTargetScanTime = advisor_target_scan_time, 1..=UINT;
    AdvisorMode = advisor_mode, 0..=1;
    SmartScan = smart_scan, 0..=1;
    UseZeroPages = use_zero_pages, 0..=1;
    MergeAcrossNodes = merge_across_nodes, 0..=1;
    MaxPageSharing = max_page_sharing, 2..=i32::MAX as u64;
    StableNodeChainsPruneMillisecs = stable_node_chains_prune_millisecs, 0..=UINT;
    PagesToScan = pages_to_scan, 0..=UINT;
    SleepMillisecs = sleep_millisecs, 0..=UINT;
    Run = run, 0..=2;
}

/// A value of a file as the number that a [`Knob`] holds.
trait IntoKnob {
    fn into_knob(self) -> u64;
    fn of_knob(value: u64) -> Self;
}

impl IntoKnob for u64 {
    fn into_knob(self) -> u64 {
        self
    }
    fn of_knob(value: u64) -> Self {
        value
    }
}

impl IntoKnob for AdvisorMode {
    /// 0 is `none`, 1 is `scan-time`.
    fn into_knob(self) -> u64 {
        u64::from(self == Self::ScanTime)
    }
    fn of_knob(value: u64) -> Self {
        if value == 0 { Self::None } else { Self::ScanTime }
    }
}

/// A change of one knob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnobChange {
    /// The knob that was changed.
    pub knob: Knob,
    /// The value before.
    pub old: u64,
    /// The value after.
    pub new: u64,
}

/// `pages_to_scan 100 -> 1000`
impl fmt::Display for KnobChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} -> {}", self.knob, self.knob.text(self.old), self.knob.text(self.new))
    }
}

impl Knob {
    /// Returns true for settings of the pace, which policies change many times a minute.
    pub fn is_pace(self) -> bool {
        matches!(self, Self::PagesToScan | Self::SleepMillisecs)
    }

    /// Returns the text to write for `value`.
    pub fn text(self, value: u64) -> String {
        match self {
            Self::AdvisorMode if value == 1 => AdvisorMode::ScanTime.word().to_owned(),
            Self::AdvisorMode => AdvisorMode::None.word().to_owned(),
            _ => value.to_string(),
        }
    }

    /// Parses a person's value for this knob.
    ///
    /// # Errors
    /// Text that is no number (or mode), or a number that the kernel does not accept.
    pub fn parse_value(self, text: &str) -> Result<u64, BadKnobValue> {
        let bad = || BadKnobValue { knob: self, found: text.chars().take(40).collect() };
        let value = match (self, text) {
            (Self::AdvisorMode, "none") => 0,
            (Self::AdvisorMode, "scan-time") => 1,
            (Self::AdvisorMode, _) => return Err(bad()),
            _ => text.parse().map_err(|_| bad())?,
        };
        if self.range().contains(&value) { Ok(value) } else { Err(bad()) }
    }

    /// Returns the file's path: `/sys/kernel/mm/ksm/run`.
    pub fn path(self) -> &'static str {
        let sampled = || FIELDS.iter().find(|field| field.name == self.name()).map(|field| field.source);
        self.unsampled_path().or_else(sampled).unwrap_or(self.name())
    }

    /// Returns true if the knob is khugepaged's. No policy sets it: the configuration's table `[huge_pages]` has its limits
    /// held, and the lab sets its pace.
    pub fn is_of_khugepaged(self) -> bool {
        matches!(
            self,
            Self::MaxPtesShared
                | Self::MaxPtesNone
                | Self::KhugepagedPagesToScan
                | Self::KhugepagedScanSleepMillisecs
        )
    }

    /// Returns true if the kernel refuses to change this knob while anything is merged.
    pub fn needs_nothing_merged(self) -> bool {
        matches!(self, Self::MergeAcrossNodes | Self::MaxPageSharing)
    }
}

impl fmt::Display for Knob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that no knob has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("KSM has no setting called {0:?}; there are: {names}", names = Knob::ALL.map(Knob::name).join(", "))]
pub struct UnknownKnob(pub String);

impl FromStr for Knob {
    type Err = UnknownKnob;

    fn from_str(name: &str) -> Result<Self, UnknownKnob> {
        Self::ALL
            .into_iter()
            .find(|knob| knob.name() == name)
            .ok_or_else(|| UnknownKnob(name.chars().take(60).collect()))
    }
}

/// The error of a value that a knob does not accept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{knob} takes {}, not {found:?}", takes(*.knob))]
pub struct BadKnobValue {
    /// The knob that refuses the value.
    pub knob: Knob,
    /// The beginning of the given value.
    pub found: String,
}

fn takes(knob: Knob) -> String {
    match knob {
        Knob::AdvisorMode => "none or scan-time".to_owned(),
        _ => {
            let range = knob.range();
            format!("a number from {} to {}", range.start(), range.end())
        }
    }
}

/// A set of knob values to write: knobs that are not named stay as they are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KnobSettings(BTreeMap<Knob, u64>);

impl KnobSettings {
    /// Creates an empty set, which leaves everything as it is.
    pub fn none() -> Self {
        Self::default()
    }

    /// Adds a setting.
    #[must_use]
    pub fn with(mut self, knob: Knob, value: u64) -> Self {
        self.set(knob, value);
        self
    }

    /// Adds or replaces a setting.
    pub fn set(&mut self, knob: Knob, value: u64) {
        self.0.insert(knob, value);
    }

    /// Removes the setting of a knob.
    pub fn remove(&mut self, knob: Knob) -> Option<u64> {
        self.0.remove(&knob)
    }

    /// Returns the value for `knob`, if any.
    pub fn get(&self, knob: Knob) -> Option<u64> {
        self.0.get(&knob).copied()
    }

    /// Iterates over the settings in the order in which they may be written.
    pub fn iter(&self) -> impl Iterator<Item = (Knob, u64)> {
        self.0.iter().map(|(knob, value)| (*knob, *value))
    }

    /// Iterates over the settings in the order of writing: that of [`KnobSettings::iter`], but ksmd is stopped first. A new
    /// `sleep_millisecs` would have it begin another batch, and the stop would wait for the end of that.
    pub fn writes(&self) -> impl Iterator<Item = (Knob, u64)> {
        let stop = self.0.get_key_value(&Knob::Run).filter(|(_, run)| **run != 1);
        let stop = stop.map(|(knob, value)| (*knob, *value));
        stop.into_iter().chain(self.iter().filter(move |setting| Some(*setting) != stop))
    }

    /// Returns true if there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the current settings, of those that this kernel has.
    pub fn current(ksm: &Ksm) -> Self {
        Self(Knob::ALL.into_iter().filter_map(|knob| Some((knob, knob.current(ksm)?))).collect())
    }

    /// Returns the settings that differ from those of `ksm`, without those that this kernel lacks.
    pub fn differing_from(&self, ksm: &Ksm) -> Self {
        Self(
            self.iter()
                .filter(|(knob, value)| knob.current(ksm).is_some_and(|current| current != *value))
                .collect(),
        )
    }
}

impl FromIterator<(Knob, u64)> for KnobSettings {
    fn from_iter<I: IntoIterator<Item = (Knob, u64)>>(settings: I) -> Self {
        Self(settings.into_iter().collect())
    }
}

/// `pages_to_scan=1000 run=1`
impl fmt::Display for KnobSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (knob, value)) in self.iter().enumerate() {
            let space = if index > 0 { " " } else { "" };
            write!(f, "{space}{knob}={}", knob.text(value))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::FigureKind;
    use crate::kernel::FIELDS;
    use crate::reading::Reading;

    #[test]
    fn the_knobs_are_exactly_the_tables_knobs() {
        let mut table: Vec<_> = FIELDS.iter().filter(|f| f.kind == FigureKind::State).map(|f| f.name).collect();
        let sampled = Knob::ALL.into_iter().filter(|knob| knob.unsampled_path().is_none());
        let mut knobs: Vec<_> = sampled.map(Knob::name).collect();
        table.sort_unstable();
        knobs.sort_unstable();
        assert_eq!(knobs, table);
    }

    #[test]
    fn each_knob_has_its_own_file() {
        for knob in Knob::ALL {
            let directory = if knob.is_of_khugepaged() { "transparent_hugepage/khugepaged" } else { "ksm" };
            let file = knob.name().trim_start_matches("khugepaged_");
            assert_eq!(knob.path(), format!("/sys/kernel/mm/{directory}/{file}"));
        }
    }

    #[test]
    fn writing_starts_with_the_advisor_and_ends_with_run() {
        let knobs = KnobSettings::none()
            .with(Knob::Run, 1)
            .with(Knob::SleepMillisecs, 20)
            .with(Knob::PagesToScan, 100)
            .with(Knob::AdvisorMode, 0)
            .with(Knob::AdvisorMinPagesToScan, 800);
        let order: Vec<_> = knobs.iter().map(|(knob, _)| knob).collect();
        let advisor = [Knob::AdvisorMinPagesToScan, Knob::AdvisorMode];
        assert_eq!(order[..2], advisor);
        assert_eq!(order[2..], [Knob::PagesToScan, Knob::SleepMillisecs, Knob::Run]);
        assert_eq!(
            knobs.to_string(),
            "advisor_min_pages_to_scan=800 advisor_mode=none pages_to_scan=100 sleep_millisecs=20 run=1"
        );
    }

    #[test]
    fn ksmd_is_stopped_before_anything_else_and_started_after_it() {
        let settings = KnobSettings::none().with(Knob::PagesToScan, 9).with(Knob::SleepMillisecs, 500);
        let order = |run| settings.clone().with(Knob::Run, run).writes().map(|(knob, _)| knob).collect::<Vec<_>>();
        assert_eq!(order(0), [Knob::Run, Knob::PagesToScan, Knob::SleepMillisecs]);
        assert_eq!(order(1), [Knob::PagesToScan, Knob::SleepMillisecs, Knob::Run]);
        assert_eq!(settings.writes().count(), 2);
    }

    #[test]
    fn what_a_kernel_lacks_and_what_is_so_already_is_not_written() {
        let ksm = Ksm { run: Reading::Value(1), pages_to_scan: Reading::Value(100), ..Ksm::default() };
        let wanted = KnobSettings::none().with(Knob::Run, 1).with(Knob::PagesToScan, 500).with(Knob::SmartScan, 0);
        assert_eq!(wanted.differing_from(&ksm), KnobSettings::none().with(Knob::PagesToScan, 500));
    }

    #[test]
    fn values_are_checked_against_what_the_kernel_takes() {
        assert_eq!(Knob::AdvisorMode.parse_value("scan-time"), Ok(1));
        assert_eq!(Knob::PagesToScan.parse_value("1000000000"), Ok(1_000_000_000));
        let error = Knob::MaxPageSharing.parse_value("1").unwrap_err();
        assert_eq!(error.to_string(), "max_page_sharing takes a number from 2 to 2147483647, not \"1\"");
        assert!(Knob::Run.parse_value("3").is_err());
        assert!("pages_shared".parse::<Knob>().is_err());
    }
}
