//! How a figure is described: one row of the tables from which parsers, JSON, help and documents are made.

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

    /// Reads the release in `/proc/sys/kernel/osrelease`, such as `6.1.0-13-cloud-amd64`.
    /// `None` where that does not begin with two numbers.
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

/// What a figure counts in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Pages of the host's base page size.
    Pages,
    /// Bytes.
    Bytes,
    /// Milliseconds.
    Milliseconds,
    /// Seconds.
    Seconds,
    /// Per cent of one CPU.
    Percent,
    /// Events or things, without a unit.
    Count,
    /// A switch or a mode.
    Mode,
}

/// Whether ksmith may write a figure, and how it moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A setting that can be written.
    Knob,
    /// Grows until the machine restarts (or `run` is set to 2).
    Counter,
    /// Goes up and down.
    Gauge,
}

/// One figure: its kernel name, what it means and since when there is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// The kernel's name for it, which is also its JSON key.
    pub name: &'static str,
    /// What it counts in.
    pub unit: Unit,
    /// Whether it is a setting, a counter or a gauge.
    pub kind: Kind,
    /// One sentence for people.
    pub help: &'static str,
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
