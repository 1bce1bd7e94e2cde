//! The locking of memory and the reading of page frames under the rights that the daemon's unit leaves it.

use std::fs;

use ksmith_host::memory::frames;
use ksmith_host::own_use::lock_program;
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use crate::support::own::in_own_process;
use crate::support::skipped;

/// The flags of the mapping of this process that holds an address, and its resident KiB.
fn mapping(address: usize) -> (String, u64) {
    let text = fs::read_to_string("/proc/self/smaps").unwrap();
    let holds = |line: &&str| {
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        let bounds = range.and_then(|(low, high)| {
            Some((usize::from_str_radix(low, 16).ok()?, usize::from_str_radix(high, 16).ok()?))
        });
        bounds.is_some_and(|(low, high)| (low..high).contains(&address))
    };
    let mut lines = text.lines().skip_while(|line| !holds(line));
    let resident = lines.find_map(|line| line.strip_prefix("Rss:")).unwrap();
    let flags = lines.find_map(|line| line.strip_prefix("VmFlags:")).unwrap();
    (flags.to_owned(), resident.trim().trim_end_matches(" kB").parse().unwrap())
}

fn is_locked(flags: &str) -> bool {
    flags.split_whitespace().any(|flag| flag == "lo")
}

#[test]
fn the_program_is_locked_in_ram_and_what_it_allocates_later_is_not() {
    in_own_process(|| {
        let code = is_locked as fn(&str) -> bool as usize;
        assert!(!is_locked(&mapping(code).0));
        if let Err(why) = lock_program() {
            return skipped(&format!("this process may not lock memory: {why}"));
        }
        assert!(is_locked(&mapping(code).0));
        let later = vec![1_u8; 64 << 20];
        assert!(!is_locked(&mapping(later.as_ptr() as usize).0));
    });
}

#[test]
fn frames_have_no_numbers_without_cap_sys_admin() {
    in_own_process(|| {
        let mut rights = capabilities(None).unwrap();
        if !rights.effective.contains(CapabilitySet::SYS_ADMIN) {
            return skipped("this process has no CAP_SYS_ADMIN to give up");
        }
        assert!(frames::are_numbered());
        rights.effective.remove(CapabilitySet::SYS_ADMIN);
        set_capabilities(None, rights).unwrap();
        assert!(!frames::are_numbered());
    });
}
