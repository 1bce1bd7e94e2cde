//! A reply of a user-mode Linux guest's management console.
#![no_main]

use ksmith_host::hypervisor::uml::fuzzing;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    fuzzing::read_reply(bytes);
});
