//! Reading the pool: the host's memory, or that of a cgroup with a limit.

use std::time::Duration;

use ksmith_core::balance::{PoolScope, PoolView};
use ksmith_core::kernel::{Meminfo, Psi, Vmstat, byte_count};
use ksmith_core::reading::Reading;

use super::rates::CounterRates;
use crate::folder::FoldedFigures;
use ksmith_host::ksm_counts::KsmCounts;
use ksmith_host::root::Root;

/// An error of reading a pool.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// The host does not say what memory it has.
    #[error("/proc/meminfo does not say what memory there is")]
    Memory,
    /// There is no such cgroup.
    #[error("the pool {0} can't be read: [balance] pool names a cgroup (v2) by its path below /sys/fs/cgroup")]
    NoCgroup(String),
    /// The cgroup has no limit.
    #[error("the pool {0} has no limit: set its memory.max, or use pool = \"host\"")]
    NoLimit(String),
}

/// Returns true if a process is in a pool, by its `/proc/PID/cgroup`.
///
/// A cgroup of version 1 is named with its hierarchy: `memory/guests`.
pub(super) fn is_inside(root: &Root, pool: &PoolScope, pid: u32) -> bool {
    let PoolScope::Cgroup(pool) = pool else { return true };
    let text = root.text(format!("proc/{pid}/cgroup"));
    text.value().is_some_and(|text| text.lines().any(|line| is_line_in(line, pool)))
}

/// Returns true if a line of that file is in a pool: `7:memory:/guests/a` is in `memory/guests`, and `0::/guests/a` in
/// `guests`.
fn is_line_in(line: &str, pool: &str) -> bool {
    let Some((hierarchy, path)) = line.split_once(':').and_then(|(_, rest)| rest.split_once(':')) else {
        return false;
    };
    let within = match hierarchy {
        "" => Some(pool),
        "memory" => pool.strip_prefix("memory/"),
        _ => None,
    };
    let rest = within.and_then(|pool| path.trim_start_matches('/').strip_prefix(pool));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Reads one pool repeatedly. Rates are averages since one of the last readings.
#[derive(Debug)]
pub struct PoolReader {
    root: Root,
    pool: PoolScope,
    page_size: u64,
    counts: KsmCounts,
    /// Memory that is folded, which KSM's counts don't have.
    folded: FoldedFigures,
    /// The rates of bytes swapped out, and of merged bytes copied on write.
    rates: CounterRates<2>,
}

impl PoolReader {
    /// Creates a reader, which reads nothing yet.
    pub fn new(root: Root, pool: PoolScope, folded: FoldedFigures) -> Self {
        let counts = KsmCounts::new(&root);
        let page_size = root.page_size().unwrap_or_default();
        Self { root, pool, page_size, counts, folded, rates: CounterRates::default() }
    }

    /// Reads the pool.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub fn read(&mut self, now: Duration) -> Result<PoolView, PoolError> {
        let memory = self.root.text("proc/meminfo").and_then(|text| Meminfo::parse(&text));
        let memory = memory.value().copied().ok_or(PoolError::Memory)?;
        let vm = self.root.text("proc/vmstat").and_then(|text| Vmstat::parse(&text));
        let vm = vm.value().copied().unwrap_or_default();
        let pages = |count: Option<u64>| count.map(|count| count.saturating_mul(self.page_size));
        let saved_bytes = self.counts.read_merged().saved_pages().saturating_mul(self.page_size);
        let saved_bytes = saved_bytes.saturating_sub(self.folded.unmerged_bytes());
        let exposure_bytes = saved_bytes.saturating_add(self.folded.total_bytes().unwrap_or(0));
        let available = memory.obtainable().ok_or(PoolError::Memory)?;
        let swap_free = memory.swap_free.unwrap_or(0);
        let (view, swapped_out) = match &self.pool {
            PoolScope::Host => {
                let view = PoolView {
                    size_bytes: memory.total.ok_or(PoolError::Memory)?,
                    available_bytes: available,
                    psi_some_percent: psi(&self.root.text("proc/pressure/memory")),
                    exposure_bytes,
                    headroom_bytes: memory.headroom().unwrap_or(available),
                    ..PoolView::default()
                };
                (view, pages(vm.pswpout))
            }
            PoolScope::Cgroup(path) => self.cgroup(path, available, swap_free, exposure_bytes)?,
        };
        let broken = pages(vm.cow_ksm);
        let [swap_out_bytes_per_second, cow_bytes_per_second] = self.rates.since(now, [swapped_out, broken]);
        Ok(PoolView { swap_out_bytes_per_second, cow_bytes_per_second, ..view })
    }

    /// Reads a cgroup. The second value is the number of bytes it has swapped out, or holds in swap on kernels that do
    /// not count that.
    fn cgroup(
        &self,
        path: &str,
        host_available: u64,
        host_swap_free: u64,
        exposure_bytes: u64,
    ) -> Result<(PoolView, Option<u64>), PoolError> {
        let text = |file: &str| self.root.text(format!("sys/fs/cgroup/{path}/{file}"));
        let no_cgroup = || PoolError::NoCgroup(path.to_owned());
        // Version 1 has the same figures under other names.
        let is_old = text("memory.max") == Reading::Absent && text("memory.limit_in_bytes").value().is_some();
        let name = |new: &'static str, old: &'static str| if is_old { old } else { new };
        let limit = text(name("memory.max", "memory.limit_in_bytes")).value().cloned().ok_or_else(no_cgroup)?;
        // Version 1 has a number near 2^63 for none, and a limit beyond any host is none in either.
        let limit = byte_count(&limit).map_err(|_| PoolError::NoLimit(path.to_owned()))?;
        let current = number(&text(name("memory.current", "memory.usage_in_bytes"))).ok_or_else(no_cgroup)?;
        let stat = text("memory.stat");
        let of_stat = |key| field(stat.value().map(String::as_str).unwrap_or_default(), key);
        // The kernel reclaims page cache of files before it swaps. That of tmpfs is not in these figures.
        let inactive = of_stat(name("inactive_file", "total_inactive_file")).unwrap_or(0);
        let files = inactive.saturating_add(of_stat(name("active_file", "total_active_file")).unwrap_or(0));
        let own = limit.saturating_sub(current).saturating_add(files.min(current));
        let available_bytes = own.min(host_available);
        let swap_now = if is_old { of_stat("total_swap") } else { number(&text("memory.swap.current")) };
        let swap_left = match number(&text("memory.swap.max")) {
            Some(most) => most.saturating_sub(swap_now.unwrap_or(0)).min(host_swap_free),
            None => host_swap_free,
        };
        let swapped_out = of_stat("pswpout").map(|pages| pages.saturating_mul(self.page_size)).or(swap_now);
        let view = PoolView {
            size_bytes: limit,
            available_bytes,
            psi_some_percent: psi(&text("memory.pressure")),
            exposure_bytes,
            headroom_bytes: available_bytes.saturating_add(swap_left),
            ..PoolView::default()
        };
        Ok((view, swapped_out))
    }
}

fn number(text: &Reading<String>) -> Option<u64> {
    byte_count(text.value()?).ok()
}

fn field(text: &str, wanted: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.split_once(' ').filter(|(key, _)| *key == wanted));
    byte_count(line?.1).ok()
}

fn psi(text: &Reading<String>) -> Option<f64> {
    Psi::parse(text.value()?).ok()?.some.avg10.map(f64::from)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    fn write(tree: &Path, file: &str, text: &str) {
        let path = tree.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn host() -> tempfile::TempDir {
        let tree = tempfile::tempdir().unwrap();
        write(tree.path(), "proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: 400 kB\nSwapFree: 50 kB\n");
        write(tree.path(), "proc/cpuinfo", "vendor_id\t: AuthenticAMD\n");
        write(tree.path(), "proc/vmstat", "pswpout 10\ncow_ksm 0\n");
        write(tree.path(), "proc/pressure/memory", "some avg10=2.50 avg60=0.00 avg300=0.00 total=1\n");
        write(tree.path(), "sys/kernel/mm/ksm/pages_sharing", "5\n");
        // No process has them: the kernel has lost count.
        write(tree.path(), "sys/kernel/mm/ksm/ksm_zero_pages", "691\n");
        tree
    }

    #[test]
    fn the_host_is_a_pool_with_rates_since_the_last_reading() {
        let tree = host();
        let mut reader = PoolReader::new(Root::at(tree.path()), PoolScope::Host, FoldedFigures::default());
        let page = 4096;
        let first = reader.read(Duration::from_secs(10)).unwrap();
        assert_eq!(
            (first.size_bytes, first.available_bytes, first.headroom_bytes),
            (1000 << 10, 400 << 10, 450 << 10)
        );
        assert_eq!((first.exposure_bytes, first.psi_some_percent), (5 * page, Some(2.5)));
        assert_eq!(first.swap_out_bytes_per_second, None);
        write(tree.path(), "proc/vmstat", "pswpout 30\ncow_ksm 4\n");
        let second = reader.read(Duration::from_secs(12)).unwrap();
        assert_eq!(second.swap_out_bytes_per_second, Some(10.0 * page as f64));
        assert_eq!(second.cow_bytes_per_second, Some(2.0 * page as f64));
        // One page a millisecond later is neither a wave nor its end.
        write(tree.path(), "proc/vmstat", "pswpout 30\ncow_ksm 5\n");
        let third = reader.read(Duration::from_millis(12_001)).unwrap();
        assert_eq!(third.cow_bytes_per_second, Some(2.0 * page as f64));
        assert_eq!(reader.read(Duration::from_secs(13)).unwrap().cow_bytes_per_second, Some(page as f64));
    }

    #[test]
    fn a_cgroup_with_a_limit_is_a_pool_and_never_more_than_the_host_has() {
        let tree = host();
        let file = |name: &str, text: &str| write(tree.path(), &format!("sys/fs/cgroup/vms/{name}"), text);
        file("memory.max", "500000\n");
        file("memory.current", "450000\n");
        file("memory.stat", "anon 300000\nfile 140000\nshmem 100000\ninactive_file 30000\nactive_file 10000\n");
        file("memory.swap.current", "1000\n");
        file("memory.swap.max", "5000\n");
        let mut reader =
            PoolReader::new(Root::at(tree.path()), PoolScope::Cgroup("vms".to_owned()), FoldedFigures::default());
        let view = reader.read(Duration::from_secs(1)).unwrap();
        assert_eq!((view.size_bytes, view.available_bytes, view.headroom_bytes), (500_000, 90_000, 94_000));
        file("memory.swap.current", "3000\n");
        assert_eq!(reader.read(Duration::from_secs(2)).unwrap().swap_out_bytes_per_second, Some(2000.0));
        write(tree.path(), "proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: 40 kB\n");
        assert_eq!(reader.read(Duration::from_secs(3)).unwrap().available_bytes, 40 << 10);
    }

    #[test]
    fn a_cgroup_of_version_1_is_a_pool_too() {
        let tree = host();
        let file = |name: &str, text: &str| write(tree.path(), &format!("sys/fs/cgroup/memory/vms/{name}"), text);
        file("memory.limit_in_bytes", "500000\n");
        file("memory.usage_in_bytes", "450000\n");
        file("memory.stat", "inactive_file 1\ntotal_swap 7\ntotal_inactive_file 30000\ntotal_active_file 10000\n");
        let mut reader = PoolReader::new(
            Root::at(tree.path()),
            PoolScope::Cgroup("memory/vms".to_owned()),
            FoldedFigures::default(),
        );
        let view = reader.read(Duration::from_secs(1)).unwrap();
        assert_eq!((view.size_bytes, view.available_bytes), (500_000, 90_000));
        file("memory.limit_in_bytes", "9223372036854771712\n");
        assert!(matches!(reader.read(Duration::from_secs(2)), Err(PoolError::NoLimit(_))));
    }

    #[test]
    fn an_impossible_number_of_a_cgroup_is_unknown_by_itself() {
        let tree = host();
        let file = |name: &str, text: &str| write(tree.path(), &format!("sys/fs/cgroup/vms/{name}"), text);
        let mut reader =
            PoolReader::new(Root::at(tree.path()), PoolScope::Cgroup("vms".to_owned()), FoldedFigures::default());
        for bad in ["18446744073709551615", "9223372036854775808", "-1", "1e30", ""] {
            file("memory.max", "500000\n");
            file("memory.current", "450000\n");
            file("memory.stat", &format!("inactive_file {bad}\nactive_file 10000\npswpout {bad}\n"));
            file("memory.swap.current", bad);
            file("memory.swap.max", bad);
            let view = reader.read(Duration::from_secs(1)).unwrap();
            assert_eq!((view.available_bytes, view.swap_out_bytes_per_second), (60_000, None), "{bad}");
            file("memory.current", bad);
            assert!(matches!(reader.read(Duration::from_secs(2)), Err(PoolError::NoCgroup(_))), "{bad}");
            file("memory.max", bad);
            assert!(matches!(reader.read(Duration::from_secs(3)), Err(PoolError::NoLimit(_))), "{bad}");
        }
    }

    #[test]
    fn membership_of_a_pool_is_read_in_its_own_hierarchy() {
        for (line, pool, expected) in [
            ("0::/vms/a", "vms", true),
            ("0::/vms", "vms", true),
            ("0::/vms2", "vms", false),
            ("7:memory:/vms/a", "memory/vms", true),
            ("7:memory:/vms/a", "vms", false),
            ("0::/memory/vms", "memory/vms", true),
            ("2:cpu:/vms", "vms", false),
            ("nonsense", "vms", false),
        ] {
            assert_eq!(is_line_in(line, pool), expected, "{line} in {pool}");
        }
    }

    #[test]
    fn a_cgroup_that_is_no_pool_is_named_in_the_error() {
        let tree = host();
        let read = |path: &str| {
            PoolReader::new(Root::at(tree.path()), PoolScope::Cgroup(path.to_owned()), FoldedFigures::default())
                .read(Duration::ZERO)
        };
        assert_eq!(read("none"), Err(PoolError::NoCgroup("none".to_owned())));
        write(tree.path(), "sys/fs/cgroup/free/memory.max", "max\n");
        assert!(read("free").unwrap_err().to_string().contains("memory.max"));
        assert_eq!(
            PoolReader::new(Root::at("/nonexistent"), PoolScope::Host, FoldedFigures::default())
                .read(Duration::ZERO),
            Err(PoolError::Memory)
        );
    }
}
