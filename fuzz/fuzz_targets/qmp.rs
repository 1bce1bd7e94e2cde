//! Output of a guest's QEMU monitor: the banner, events, and replies.
#![no_main]

mod peer;

use std::sync::LazyLock;

use ksmith_host::hypervisor::{MonitorSocket, qmp};
use ksmith_host::root::Root;
use libfuzzer_sys::fuzz_target;
use peer::FakePeer;

static PEER: LazyLock<FakePeer> = LazyLock::new(FakePeer::start);

fuzz_target!(|bytes: &[u8]| {
    PEER.answer(bytes);
    // The socket is this process's own, as a guest's must be the guest's.
    let places = [MonitorSocket::Path(PEER.path().display().to_string())];
    if let Err(error) = qmp::connect(&Root::host(), std::process::id(), &places).and_then(|mut monitor| qmp::query_monitor(&mut *monitor)) {
        assert!(!error.to_string().is_empty());
    }
});
