//! The description of a figure, from which parsers, JSON, schemas, help and documents are made.

use std::fmt;

/// A kernel version as far as features depend on it: major and minor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct KernelVersion {
    /// 6 in 6.18.
    pub major: u32,
    /// 18 in 6.18.
    pub minor: u32,
}

impl KernelVersion {
    /// The version `major.minor`.
    pub const fn new(major: u32, minor: u32) -> Self {
        Self { major, minor }
    }

    /// Parses a release such as `6.1.0-13-cloud-amd64` in `/proc/sys/kernel/osrelease`.
    /// `None` if it does not begin with two numbers.
    pub fn parse(release: &str) -> Option<Self> {
        let mut numbers = release.trim().splitn(3, '.');
        let major = numbers.next()?.parse().ok()?;
        let minor = numbers.next()?;
        let end = minor.find(|c: char| !c.is_ascii_digit()).unwrap_or(minor.len());
        Some(Self { major, minor: minor[..end].parse().ok()? })
    }
}

impl fmt::Display for KernelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The unit of a figure, or the meaning of its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FigureUnit {
    /// Pages of the host's base page size.
    Pages,
    /// A number of bytes.
    Bytes,
    /// Bytes per second.
    BytesPerSecond,
    /// Time in milliseconds.
    Milliseconds,
    /// Time in seconds.
    Seconds,
    /// Per cent of one CPU, or of time.
    Percent,
    /// Events or things, without a unit.
    Count,
    /// Events per second.
    PerSecond,
    /// One number divided by another of the same unit.
    Ratio,
    /// A switch or a mode.
    Mode,
    /// A name by which things can be grouped.
    Label,
    /// Text for people.
    Text,
}

impl FigureUnit {
    /// Returns its word in schemas and documents.
    pub fn word(self) -> &'static str {
        match self {
            Self::Pages => "pages",
            Self::Bytes => "bytes",
            Self::BytesPerSecond => "bytes per second",
            Self::Milliseconds => "milliseconds",
            Self::Seconds => "seconds",
            Self::Percent => "per cent",
            Self::Count => "count",
            Self::PerSecond => "per second",
            Self::Ratio => "ratio",
            Self::Mode => "mode",
            Self::Label => "label",
            Self::Text => "text",
        }
    }
}

/// The kind of a figure: its course over time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FigureKind {
    /// Goes up and down.
    Gauge,
    /// Grows until the machine, or what it belongs to, restarts.
    Counter,
    /// Holds until it is changed: a setting, a name, a mode.
    State,
}

impl FigureKind {
    /// Returns its word in schemas and documents.
    pub fn word(self) -> &'static str {
        match self {
            Self::Gauge => "gauge",
            Self::Counter => "counter",
            Self::State => "state",
        }
    }
}

/// The type of a figure's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FigureType {
    /// A whole number from 0.
    Unsigned,
    /// A whole number.
    Signed,
    /// A number that need not be whole.
    Real,
    /// Yes or no.
    Flag,
    /// Text of any length.
    Text,
}

/// The description of a figure: key, unit, kind, help, source and first kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FigureDescription {
    /// Its JSON key; for a file of KSM also the kernel's name. A dot stands for a step into an object.
    pub name: &'static str,
    /// The unit of its value.
    pub unit: FigureUnit,
    /// The course of its value over time.
    pub kind: FigureKind,
    /// The type of its value.
    pub holds: FigureType,
    /// One sentence of help.
    pub help: &'static str,
    /// The kernel file it is read from, or the formula.
    pub source: &'static str,
    /// The first kernel that has it.
    pub since: KernelVersion,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_of_distributions_parse() {
        assert_eq!(KernelVersion::parse("6.1.0-13-cloud-amd64\n"), Some(KernelVersion::new(6, 1)));
        assert_eq!(KernelVersion::parse("6.18.44-fc"), Some(KernelVersion::new(6, 18)));
        assert_eq!(KernelVersion::parse("2.6.32-431.el6"), Some(KernelVersion::new(2, 6)));
        assert_eq!(KernelVersion::parse("6.9-rc1"), Some(KernelVersion::new(6, 9)));
        assert_eq!(KernelVersion::parse("linux"), None);
        assert_eq!(KernelVersion::parse("99999999999.1"), None);
    }
}
