//! The host's files: `/proc/meminfo`, `vmstat`, `stat` and `pressure/*`.
#![no_main]

use ksmith_core::kernel::{CpuTimes, Meminfo, Psi, Vmstat};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(memory) = Meminfo::parse(text) {
        assert!(memory.obtainable() <= memory.total);
        assert!(memory.headroom() >= memory.obtainable());
    }
    let _ = Vmstat::parse(text);
    if let Ok(cpu) = CpuTimes::parse(text) {
        assert_eq!(cpu.idle_cpus_since(&cpu), None);
    }
    if let Ok(psi) = Psi::parse(text) {
        assert!(psi.some.avg10.is_none_or(|percent| (0.0..=100.0).contains(&percent)));
    }
});
