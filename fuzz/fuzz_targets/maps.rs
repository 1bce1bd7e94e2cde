//! A process's mappings: `maps`, `smaps` and `numa_maps`, its cgroup, and its user.
#![no_main]

use ksmith_core::kernel::{self, ProcessMapping};
use ksmith_host::hypervisor::CgroupPath;
use ksmith_host::owner::ProcessOwner;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    for mapping in ProcessMapping::parse_all(text).unwrap_or_default() {
        assert!(mapping.start <= mapping.end);
    }
    let _ = kernel::says_mergeable(text);
    let _ = kernel::nodes(text);
    let _ = kernel::parse_numa_maps(text).count();
    if let Some(cgroup) = CgroupPath::parse(text) {
        let _ = (cgroup.is_in_container(), cgroup.unit().map(|unit| unit.name));
    }
    let _ = ProcessOwner::parse(text).map(ProcessOwner::only);
});
