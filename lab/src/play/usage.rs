//! CPU and memory of a controller.

use std::time::Duration;

use ksmith_core::kernel;

use ksmith_host::root::Root;

/// The processes that make up a controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ControllerProcesses {
    /// No controller.
    Nothing,
    /// One process without children.
    Process(u32),
    /// A process group, with the CPU time of its reaped children.
    Group(u32),
}

/// CPU time since the start, and resident memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct ControllerUsage {
    pub(super) cpu: Duration,
    pub(super) rss_bytes: u64,
}

impl ControllerUsage {
    pub(super) fn now(root: &Root, measured: ControllerProcesses) -> Self {
        match measured {
            ControllerProcesses::Nothing => Self::default(),
            ControllerProcesses::Process(pid) => {
                let rss_bytes = StatFields::read(root, pid).map_or(0, |stat| stat.rss_bytes);
                Self { cpu: threads(root, pid), rss_bytes }
            }
            ControllerProcesses::Group(group) => {
                let all = pids(root, "proc").into_iter().filter_map(|pid| StatFields::read(root, pid));
                all.filter(|stat| stat.group == group).fold(Self::default(), |sum, stat| Self {
                    cpu: sum.cpu + stat.cpu,
                    rss_bytes: sum.rss_bytes + stat.rss_bytes,
                })
            }
        }
    }
}

fn pids(root: &Root, directory: &str) -> Vec<u32> {
    let entries = std::fs::read_dir(root.path(directory)).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// CPU time of all threads, to the nanosecond. `stat` counts in ticks of 10 ms, which is more than a parked
/// policy uses in a second.
fn threads(root: &Root, pid: u32) -> Duration {
    let threads = pids(root, &format!("proc/{pid}/task"));
    let ns = |tid: &u32| {
        root.text(format!("proc/{pid}/task/{tid}/schedstat"))
            .value()
            .and_then(|t| kernel::cpu_ns(t).ok())
            .unwrap_or(0)
    };
    Duration::from_nanos(threads.iter().map(ns).sum())
}

/// The fields of `/proc/PID/stat` that are needed here.
#[derive(Debug, PartialEq)]
struct StatFields {
    group: u32,
    cpu: Duration,
    rss_bytes: u64,
}

impl StatFields {
    fn read(root: &Root, pid: u32) -> Option<Self> {
        Self::parse(root.text(format!("proc/{pid}/stat")).value()?)
    }

    /// Parses the fields by their numbers in proc(5): the state, the first field after the name, is 3.
    fn parse(text: &str) -> Option<Self> {
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        let ticks = field(14)? + field(15)? + field(16)? + field(17)?;
        let per_second = rustix::param::clock_ticks_per_second().max(1);
        Some(Self {
            group: u32::try_from(field(5)?).ok()?,
            cpu: Duration::from_millis(ticks.saturating_mul(1000) / per_second),
            rss_bytes: field(24)?.saturating_mul(rustix::param::page_size() as u64),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_counted_with_the_children_it_waited_for() {
        let tree = tempfile::tempdir().unwrap();
        for (pid, group, name) in [(7, 7, "ksmtuned"), (8, 7, "a ) b"), (9, 9, "other")] {
            let directory = tree.path().join(format!("proc/{pid}"));
            std::fs::create_dir_all(&directory).unwrap();
            let stat = format!("{pid} ({name}) S 1 {group} 1 0 -1 0 0 0 0 0 10 20 30 40 20 0 1 0 900 1000 3 0");
            std::fs::write(directory.join("stat"), stat).unwrap();
        }
        let root = Root::at(tree.path());
        let usage = ControllerUsage::now(&root, ControllerProcesses::Group(7));
        let tick = 1000 / rustix::param::clock_ticks_per_second();
        assert_eq!(usage.cpu, Duration::from_millis(200 * tick));
        assert_eq!(usage.rss_bytes, 6 * rustix::param::page_size() as u64);
        assert_eq!(ControllerUsage::now(&root, ControllerProcesses::Group(5)), ControllerUsage::default());
        assert_eq!(StatFields::parse("7 (x) S 1"), None);
    }

    #[test]
    fn this_process_has_used_something() {
        let usage = ControllerUsage::now(&Root::host(), ControllerProcesses::Process(std::process::id()));
        assert!(usage.cpu > Duration::ZERO && usage.rss_bytes > 100_000, "{usage:?}");
    }
}
