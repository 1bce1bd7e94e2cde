//! A process's files: `stat`, `cmdline`, `ksm_stat`, `ksm_merging_pages`, `smaps_rollup`, `schedstat` and `statm`.
#![no_main]

use ksmith_core::kernel::{self, CommandLine, KsmStat, PidStat, SmapsRollup};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let line = CommandLine::parse(bytes);
    let _ = line.option("-name");
    assert!(!line.program().contains('/'));

    let text = String::from_utf8_lossy(bytes);
    let _ = PidStat::parse(&text);
    let _ = KsmStat::parse(&text).map(|stat| stat.is_involved());
    let _ = kernel::merging_pages(&text);
    let _ = SmapsRollup::parse(&text);
    let _ = kernel::cpu_ns(&text);
    let _ = kernel::Statm::parse(&text);
});
