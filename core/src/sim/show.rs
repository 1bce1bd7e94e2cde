//! The machine's sample, of the same form as that of the live kernel.

use std::time::Duration;

use super::PAGE_SIZE;
use super::guest::MachineGuest;
use super::ksmd::KsmdActivity;
use super::machine::SimMachine;
use super::settings::has;
use crate::field::KernelVersion;
use crate::kernel::{AdvisorMode, CpuTimes, HostReadings, Ksm, KsmStat, Meminfo, RMAP_ITEM_BYTES, Vmstat};
use crate::reading::Reading;
use crate::sample::{ProcessId, ProcessSample, Sample};

/// Length of a clock tick: the kernel shows CPU times in hundredths of a second.
const TICK_NS: u64 = 10_000_000;

/// The PID of the first guest.
pub(super) const FIRST_PID: u32 = 1000;

/// Creates a [`Ksm`] with values for the files that `$kernel` has. Others, and those that are not simulated, are
/// absent.
macro_rules! files_of {
    ($kernel:expr; $($name:ident: $value:expr,)*) => {{
        let mut ksm = Ksm::default();
        $(if has($kernel, stringify!($name)) {
            ksm.$name = Reading::Value($value);
        })*
        ksm
    }};
}

/// Figures of the machine that take no sample of its guests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MachineFigures {
    /// The CPU time of ksmd.
    pub ksmd_cpu: Duration,
    /// Complete passes of ksmd.
    pub passes: u64,
    /// Merged pages that were written to.
    pub breaks: u64,
    /// Pages that KSM's gauges count as saved.
    pub saved_pages: u64,
    /// Pages that KSM really saves, with those that splits of huge pages have freed.
    pub truly_saved_pages: u64,
    /// Huge pages that back guests' memory.
    pub huge_pages: u64,
    /// Huge pages that merges have split.
    pub splits: u64,
    /// Huge pages that khugepaged has put together.
    pub collapses: u64,
    /// The CPU time of khugepaged.
    pub khugepaged_cpu: Duration,
    /// Visits of ksmd, and pages that `smart_scan` skipped.
    pub visits: u64,
}

impl SimMachine {
    /// Figures that do not take looking at each guest.
    pub fn figures(&self) -> MachineFigures {
        let totals = self.totals();
        let living = self.memory.living.ids.iter();
        MachineFigures {
            ksmd_cpu: Duration::from_nanos(self.ksmd.cpu_ns_at(self.now_ns)),
            passes: self.ksmd.full_scans,
            breaks: self.memory.cow_ksm * u64::from(self.config.run_pages),
            saved_pages: (totals.sharing + totals.zero_pages).cast_unsigned(),
            truly_saved_pages: self.truly_saved_pages(),
            huge_pages: living.map(|id| self.memory.guests[*id as usize].huge.huge_pages()).sum(),
            splits: self.memory.huge_work.splits,
            collapses: self.memory.huge_work.collapses,
            khugepaged_cpu: Duration::from_nanos(self.khugepaged_ns()),
            visits: self.ksmd.scanned + self.ksmd.skipped,
        }
    }

    /// Takes a sample of the machine. Pressure is absent, as where PSI is off.
    pub fn sample(&self) -> Sample {
        let since = |major, minor| self.config.kernel >= KernelVersion::new(major, minor);
        let pages = u64::from(self.config.run_pages);
        let guests = self.memory.living.ids.iter().map(|&id| (id, &self.memory.guests[id as usize]));
        Sample {
            at: self.now(),
            page_size: PAGE_SIZE,
            shown_huge_page_bytes: None,
            ksm: self.ksm(),
            rest: self.rest,
            ksmd_cpu_ns: Reading::Value(self.ksmd.cpu_ns_at(self.now_ns)),
            is_ksmd_in_batch: matches!(self.ksmd.activity, KsmdActivity::Scanning { .. }),
            host: HostReadings {
                memory: Reading::Value(self.meminfo()),
                vmstat: Reading::Value(Vmstat {
                    cow_ksm: since(5, 19).then_some(self.memory.cow_ksm * pages),
                    pswpout: Some(0),
                    pswpin: Some(0),
                    oom_kill: Some(0),
                    thp_split_page: Some(self.memory.huge_work.splits),
                    ..Vmstat::default()
                }),
                cpu: Reading::Value(self.cpu_times()),
                ..HostReadings::default()
            },
            processes: guests.map(|(id, guest)| self.process(id, guest)).collect(),
            shows_mergeable: since(6, 14),
            ..Sample::default()
        }
    }

    fn ksm(&self) -> Ksm {
        let (settings, ksmd, totals) = (&self.settings, &self.ksmd, self.totals());
        let (shared, sharing) = (totals.shared.cast_unsigned(), totals.sharing.cast_unsigned());
        let (unshared, rmap_items) = (totals.unshared.cast_unsigned(), totals.rmap_items.cast_unsigned());
        let zero_pages = totals.zero_pages.cast_unsigned();
        files_of! { self.config.kernel;
            max_ptes_shared: settings.max_ptes_shared,
            max_ptes_none: settings.max_ptes_none,
            run: settings.run,
            pages_to_scan: settings.pages_to_scan,
            sleep_millisecs: settings.sleep_millisecs,
            smart_scan: settings.smart_scan,
            use_zero_pages: settings.use_zero_pages,
            merge_across_nodes: settings.merge_across_nodes,
            max_page_sharing: settings.max_page_sharing,
            stable_node_chains_prune_millisecs: settings.stable_node_chains_prune_millisecs,
            advisor_mode: if settings.advisor_mode == 1 { AdvisorMode::ScanTime } else { AdvisorMode::None },
            advisor_max_cpu: settings.advisor_max_cpu,
            advisor_min_pages_to_scan: settings.advisor_min_pages_to_scan,
            advisor_max_pages_to_scan: settings.advisor_max_pages_to_scan,
            advisor_target_scan_time: settings.advisor_target_scan_time,
            full_scans: ksmd.full_scans,
            pages_scanned: ksmd.scanned,
            pages_skipped: ksmd.skipped,
            pages_shared: shared,
            pages_sharing: sharing,
            pages_unshared: unshared,
            pages_volatile: rmap_items.saturating_sub(shared + sharing + unshared),
            ksm_zero_pages: totals.zero_pages,
            stable_node_chains: totals.chains.cast_unsigned(),
            stable_node_dups: totals.dups.cast_unsigned(),
            general_profit: profit(sharing + self.counted(zero_pages), rmap_items),
        }
    }

    /// Zero pages as the kernel counts them in its profits: none before 6.6.
    fn counted(&self, zero_pages: u64) -> u64 {
        if has(self.config.kernel, "ksm_zero_pages") { zero_pages } else { 0 }
    }

    fn meminfo(&self) -> Meminfo {
        let used = self.used_bytes();
        let available = self.config.total_bytes.saturating_sub(used);
        let swapped = used.saturating_sub(self.config.total_bytes);
        Meminfo {
            total: Some(self.config.total_bytes),
            free: Some(available),
            available: Some(available),
            buffers: Some(0),
            cached: Some(0),
            anonymous: Some(self.frames() * PAGE_SIZE),
            anonymous_huge: Some(self.figures().huge_pages * u64::from(super::huge::HUGE_PAGES) * PAGE_SIZE),
            shmem: Some(0),
            swap_total: Some(self.config.swap_bytes),
            swap_free: Some(self.config.swap_bytes.saturating_sub(swapped)),
            ..Meminfo::default()
        }
    }

    fn cpu_times(&self) -> CpuTimes {
        let busy_ns = self.memory.living.cpu_ns(self.now_ns)
            + self.ended_cpu_ns
            + self.ksmd.cpu_ns_at(self.now_ns)
            + self.khugepaged_ns();
        let all_ns = self.now_ns.saturating_mul(u64::from(self.config.cpus));
        CpuTimes {
            busy_ticks: busy_ns / TICK_NS,
            nice_ticks: 0,
            idle_ticks: all_ns.saturating_sub(busy_ns) / TICK_NS,
            cpus: self.config.cpus,
        }
    }

    /// A guest's process, with the figures that no page tables have to be read for.
    pub(super) fn process(&self, id: u32, guest: &MachineGuest) -> ProcessSample {
        let own = self.own(id);
        let (zero, merging, rmap_items) =
            (own.zero.cast_unsigned(), own.merging.cast_unsigned(), own.rmap_items.cast_unsigned());
        let pages = u64::from(self.config.run_pages);
        let since = |major, minor| self.config.kernel >= KernelVersion::new(major, minor);
        let merged = merging + self.counted(zero);
        #[allow(clippy::needless_update, reason = "a key that the simulator lacks is added without it")]
        let ksm = KsmStat {
            rmap_items: since(6, 1).then_some(rmap_items),
            zero_pages: since(6, 6).then_some(zero),
            merging_pages: since(5, 19).then_some(merging),
            process_profit: since(6, 4).then(|| profit(merged, rmap_items)),
            merge_any: since(6, 14).then_some(false),
            mergeable: since(6, 14).then_some(true),
            ..KsmStat::default()
        };
        let id = ProcessId { pid: FIRST_PID.saturating_add(id), start_ticks: guest.started_ns / TICK_NS };
        ProcessSample {
            // The zero page does not count as resident.
            rss_bytes: Some(((guest.present() - guest.freed) * pages - zero) * PAGE_SIZE),
            cpu_ticks: guest.cpu_ns(self.now_ns) / TICK_NS,
            minor_faults: guest.minor_faults * pages,
            ksm,
            ..ProcessSample::new(id, guest.name.clone(), true)
        }
    }
}

fn profit(saved_pages: u64, rmap_items: u64) -> i64 {
    (saved_pages * PAGE_SIZE) as i64 - (rmap_items * RMAP_ITEM_BYTES) as i64
}
