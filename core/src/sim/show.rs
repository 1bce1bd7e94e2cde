//! The machine's sample, of the same form as that of the live kernel.

use std::time::Duration;

use super::PAGE_SIZE;
use super::guest::Guest;
use super::machine::Machine;
use super::settings::has;
use crate::field::KernelVersion;
use crate::kernel::{AdvisorMode, CpuTimes, Ksm, KsmStat, Meminfo, RMAP_ITEM_BYTES, Vmstat};
use crate::reading::Reading;
use crate::sample::{Process, ProcessId, Sample};

/// Length of a clock tick: the kernel shows CPU times in hundredths of a second.
const TICK_NS: u64 = 10_000_000;

/// The PID of the first guest.
const FIRST_PID: u32 = 1000;

/// Creates a [`Ksm`] with values for the files that `$kernel` has. Others, and those that are not simulated, are absent.
macro_rules! files_of {
    ($kernel:expr; $($name:ident: $value:expr,)*) => {{
        let mut ksm = Ksm::default();
        $(if has($kernel, stringify!($name)) {
            ksm.$name = Reading::Value($value);
        })*
        ksm
    }};
}

impl Machine {
    /// Takes a sample of the machine. Pressure is absent, as where PSI is off.
    pub fn sample(&self) -> Sample {
        let since = |major, minor| self.config.kernel >= KernelVersion::new(major, minor);
        let guests = self.memory.guests.iter().enumerate().filter(|(_, guest)| !guest.ended);
        Sample {
            at: self.now(),
            took: Duration::ZERO,
            page_size: PAGE_SIZE,
            ksm: self.ksm(),
            ksmd_cpu_ns: Reading::Value(self.ksmd.cpu_ns_at(self.now_ns)),
            memory: Reading::Value(self.meminfo()),
            vmstat: Reading::Value(Vmstat {
                cow_ksm: since(5, 19).then_some(self.memory.cow_ksm),
                pswpout: Some(0),
                pswpin: Some(0),
                oom_kill: Some(0),
                ..Vmstat::default()
            }),
            cpu: Reading::Value(self.cpu_times()),
            memory_pressure: Reading::Absent,
            cpu_pressure: Reading::Absent,
            pool_shortness: 0.0,
            processes: guests.map(|(id, guest)| self.process(id, guest)).collect(),
            hidden_processes: 0,
            given_up: crate::sample::GivenUpList::default(),
            page_samples: Reading::Absent,
        }
    }

    fn ksm(&self) -> Ksm {
        let (settings, ksmd, memory) = (&self.settings, &self.ksmd, &self.memory);
        let (shared, sharing) = (memory.stable.shared, memory.stable.sharing);
        files_of! { self.config.kernel;
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
            pages_unshared: memory.unshared,
            pages_volatile: memory.rmap_items.saturating_sub(shared + sharing + memory.unshared),
            ksm_zero_pages: memory.zero_pages.cast_signed(),
            stable_node_chains: memory.stable.chains(),
            stable_node_dups: memory.stable.dups,
            general_profit: profit(sharing + self.counted(memory.zero_pages), memory.rmap_items),
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
            anonymous: Some((self.memory.private + self.memory.stable.frames) * PAGE_SIZE),
            shmem: Some(0),
            swap_total: Some(self.config.swap_bytes),
            swap_free: Some(self.config.swap_bytes.saturating_sub(swapped)),
            ..Meminfo::default()
        }
    }

    fn cpu_times(&self) -> CpuTimes {
        let guests = self.memory.guests.iter().filter(|guest| !guest.ended);
        let busy_ns = guests.map(|guest| guest.cpu_ns(self.now_ns)).sum::<u64>()
            + self.ended_cpu_ns
            + self.ksmd.cpu_ns_at(self.now_ns);
        let all_ns = self.now_ns.saturating_mul(u64::from(self.config.cpus));
        CpuTimes {
            busy_ticks: busy_ns / TICK_NS,
            nice_ticks: 0,
            idle_ticks: all_ns.saturating_sub(busy_ns) / TICK_NS,
            cpus: self.config.cpus,
        }
    }

    fn process(&self, id: usize, guest: &Guest) -> Process {
        let since = |major, minor| self.config.kernel >= KernelVersion::new(major, minor);
        let merged = guest.merging + self.counted(guest.zero);
        Process {
            id: ProcessId { pid: FIRST_PID.saturating_add(id as u32), start_ticks: guest.started_ns / TICK_NS },
            name: guest.name.clone(),
            is_vm: true,
            // The zero page does not count as resident.
            rss_bytes: (guest.pages.len() as u64 - guest.zero) * PAGE_SIZE,
            cpu_ticks: guest.cpu_ns(self.now_ns) / TICK_NS,
            minor_faults: guest.minor_faults,
            ksm: KsmStat {
                rmap_items: since(6, 1).then_some(guest.rmap_items),
                zero_pages: since(6, 6).then_some(guest.zero),
                merging_pages: since(5, 19).then_some(guest.merging),
                process_profit: since(6, 4).then(|| profit(merged, guest.rmap_items)),
                merge_any: since(6, 14).then_some(false),
                mergeable: since(6, 14).then_some(true),
            },
        }
    }
}

fn profit(saved_pages: u64, rmap_items: u64) -> i64 {
    (saved_pages * PAGE_SIZE) as i64 - (rmap_items * RMAP_ITEM_BYTES) as i64
}
