//! A planner's facts about a host: its memory, its CPUs, and KSM's settings and figures.

use ksmith_core::account::HostTotals;
use ksmith_core::kernel::{MOST_BYTES, Meminfo, nodes};
use ksmith_core::sample::Sample;
use ksmith_host::root::Root;
use schemars::JsonSchema;
use serde::Serialize;

/// The facts about one host. `None` if the kernel does not show a value.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HostFacts {
    /// The host's name, unique in the fleet.
    pub host: String,
    /// The boot id of its kernel.
    pub boot: String,
    /// The kernel's release.
    pub kernel: Option<String>,
    /// Time of the reading, in milliseconds since 1970.
    pub time_ms: i64,
    /// All usable memory.
    pub memory_bytes: Option<u64>,
    /// Memory that can be obtained without swapping.
    pub available_bytes: Option<u64>,
    /// Shared memory and tmpfs. The kernel counts it as page cache, but can't drop it.
    pub shmem_bytes: Option<u64>,
    /// Free swap space.
    pub swap_free_bytes: Option<u64>,
    /// Memory that the operator reserves on this host.
    pub reserved_bytes: Option<u64>,
    /// Memory that the host would need if every merged page were written to.
    pub exposure_bytes: u64,
    /// Memory available for that: obtainable memory and free swap.
    pub headroom_bytes: Option<u64>,
    /// Number of online CPUs.
    pub cpus: Option<u64>,
    /// The NUMA nodes of the host.
    pub numa: Vec<NodeFacts>,
    /// KSM's settings and figures.
    pub ksm: KsmFacts,
    /// The guests that are not in the file, with the reasons.
    pub skipped: Vec<SkippedGuest>,
}

/// One NUMA node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodeFacts {
    /// The node's number.
    pub node: u32,
    /// The memory of the node.
    pub memory_bytes: Option<u64>,
    /// The part of it that is free.
    pub free_bytes: Option<u64>,
    /// Its CPUs, as the kernel lists them.
    pub cpus: String,
}

/// The KSM settings that determine savings, and the current savings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "the fields are the kernel's, of the same names")]
pub struct KsmFacts {
    pub run: Option<u64>,
    pub merge_across_nodes: Option<u64>,
    pub use_zero_pages: Option<u64>,
    pub max_page_sharing: Option<u64>,
    pub pages_shared: Option<u64>,
    pub pages_sharing: Option<u64>,
    pub ksm_zero_pages: u64,
    /// Total savings, in bytes.
    pub saved_bytes: u64,
    /// The part of `saved_bytes` that only KSM's counters say, since page tables were not read.
    pub unverified_bytes: u64,
    /// The most that splits can have freed before page tables were first read, which `saved_bytes` lacks.
    pub earlier_zero_bytes: Option<u64>,
}

/// A guest that was left out, with the reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SkippedGuest {
    /// The guest's name, with its first PID.
    pub guest: String,
    /// The reason, in a sentence.
    pub why: String,
}

impl HostFacts {
    /// Reads the facts about this host. `host` is its name in the fleet; `None` for the kernel's node name.
    pub fn read(
        root: &Root,
        sample: &Sample,
        host: Option<&str>,
        reserved_bytes: Option<u64>,
        time_ms: i64,
    ) -> Self {
        let line =
            |path: &str| root.text(path).value().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
        let memory = sample.host.memory.value().copied().unwrap_or(Meminfo::default());
        let totals = HostTotals::from_sample(sample);
        let ksm = &sample.ksm;
        Self {
            host: host.map(str::to_owned).or_else(|| line("proc/sys/kernel/hostname")).unwrap_or_default(),
            boot: line("proc/sys/kernel/random/boot_id").unwrap_or_default(),
            kernel: line("proc/sys/kernel/osrelease"),
            time_ms,
            memory_bytes: memory.total,
            available_bytes: memory.obtainable(),
            shmem_bytes: memory.shmem,
            swap_free_bytes: memory.swap_free,
            reserved_bytes,
            exposure_bytes: totals.exposure_bytes,
            headroom_bytes: totals.headroom_bytes,
            cpus: line("sys/devices/system/cpu/online").and_then(|list| Some(nodes(&list)?.len() as u64)),
            numa: numa(root),
            ksm: KsmFacts {
                run: ksm.run.get(),
                merge_across_nodes: ksm.merge_across_nodes.get(),
                use_zero_pages: ksm.use_zero_pages.get(),
                max_page_sharing: ksm.max_page_sharing.get(),
                pages_shared: ksm.pages_shared.get(),
                pages_sharing: ksm.pages_sharing.get(),
                ksm_zero_pages: ksm.zero_pages(),
                saved_bytes: totals.saved_bytes,
                unverified_bytes: totals.unverified_bytes,
                earlier_zero_bytes: totals.earlier_zero_bytes,
            },
            skipped: Vec::new(),
        }
    }
}

/// Returns true if a fleet's planner accepts the host name, which it puts into URIs and commands.
pub fn is_host_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name.len() <= 253
        && name.chars().all(|each| each.is_ascii_alphanumeric() || matches!(each, '.' | '_' | '-'))
}

fn numa(root: &Root) -> Vec<NodeFacts> {
    let text = |path: &str| root.text(path).value().cloned();
    let online = text("sys/devices/system/node/online").and_then(|list| nodes(&list)).unwrap_or_default();
    let node = |node: u32| {
        let meminfo = text(&format!("sys/devices/system/node/node{node}/meminfo")).unwrap_or_default();
        NodeFacts {
            node,
            memory_bytes: kilobytes(&meminfo, "MemTotal:"),
            free_bytes: kilobytes(&meminfo, "MemFree:"),
            cpus: text(&format!("sys/devices/system/node/node{node}/cpulist"))
                .unwrap_or_default()
                .trim()
                .to_owned(),
        }
    };
    online.into_iter().map(node).collect()
}

/// Returns a figure of a node's `meminfo`, where a line is `Node 0 MemTotal: 24689308 kB` (`drivers/base/node.c`).
fn kilobytes(meminfo: &str, key: &str) -> Option<u64> {
    let line = meminfo.lines().find(|line| line.split_ascii_whitespace().nth(2) == Some(key))?;
    let bytes = line.split_ascii_whitespace().nth(3)?.parse::<u64>().ok()?.checked_mul(1024);
    bytes.filter(|bytes| *bytes <= MOST_BYTES)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use ksmith_core::kernel::KsmStat;
    use ksmith_core::reading::Reading;
    use ksmith_core::sample::{ProcessId, ProcessSample};

    use super::*;

    #[test]
    fn a_name_of_a_host_means_nothing_to_a_shell_or_in_a_uri() {
        for name in ["h1", "node-1.example.org", "H_2", "9"] {
            assert!(is_host_name(name), "{name}");
        }
        let long = "h".repeat(254);
        for name in
            ["", "-oProxyCommand=x", ".h", "h/system?command=x", "h;reboot", "h 1", "h\n", "hö", "a@b", &long]
        {
            assert!(!is_host_name(name), "{name}");
        }
    }

    #[test]
    fn a_host_says_what_of_its_savings_no_page_tables_confirm_and_what_may_be_missing() {
        let read = ProcessSample {
            ksm: KsmStat { merging_pages: Some(10), ..KsmStat::default() },
            earlier_zero_bytes: Some(8192),
            ..ProcessSample::new(ProcessId { pid: 1, start_ticks: 1 }, "guest".into(), true)
        };
        let mut sample = Sample { page_size: 4096, processes: vec![read], ..Sample::default() };
        sample.ksm.pages_sharing = Reading::Value(5);
        let facts = |sample: &Sample| HostFacts::read(&Root::at("/nowhere"), sample, Some("h1"), None, 0).ksm;
        let ksm = facts(&sample);
        assert_eq!((ksm.saved_bytes, ksm.unverified_bytes, ksm.earlier_zero_bytes), (20_480, 20_480, Some(8192)));
        sample.processes[0].earlier_zero_bytes = None;
        assert_eq!(facts(&sample).earlier_zero_bytes, None);
    }

    #[test]
    fn nodes_are_read_and_what_is_not_there_is_not_known() {
        let directory = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = directory.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("sys/devices/system/node/online", "0-1\n");
        write("sys/devices/system/node/node0/meminfo", "Node 0 MemTotal:  100 kB\nNode 0 MemFree:   40 kB\n");
        write("sys/devices/system/node/node0/cpulist", "0-3\n");
        write("sys/devices/system/cpu/online", "0-3,6\n");
        let root = Root::at(directory.path());
        let facts = HostFacts::read(&root, &Sample::default(), Some("h1"), Some(7), 5);
        assert_eq!((facts.host.as_str(), facts.cpus, facts.reserved_bytes), ("h1", Some(5), Some(7)));
        let first =
            NodeFacts { node: 0, memory_bytes: Some(102_400), free_bytes: Some(40_960), cpus: "0-3".to_owned() };
        let second = NodeFacts { node: 1, memory_bytes: None, free_bytes: None, cpus: String::new() };
        assert_eq!(facts.numa, [first, second]);
        assert_eq!((facts.memory_bytes, facts.headroom_bytes, facts.ksm.run), (None, None, None));
    }
}
