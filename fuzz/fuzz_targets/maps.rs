//! A process's mappings: `maps`, `smaps` and `numa_maps`, its cgroup, and its user.
#![no_main]

use ksmith_core::kernel::{self, Mapping};
use ksmith_host::hypervisor::Cgroup;
use ksmith_host::owner::Owner;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    for mapping in Mapping::parse_all(text).unwrap_or_default() {
        assert!(mapping.start <= mapping.end);
    }
    let _ = kernel::says_mergeable(text);
    let _ = kernel::nodes(text);
    let _ = kernel::bound_nodes(text);
    if let Some(cgroup) = Cgroup::parse(text) {
        let _ = (cgroup.is_in_container(), cgroup.unit().map(|unit| unit.name));
    }
    let _ = Owner::parse(text).map(Owner::only);
});
