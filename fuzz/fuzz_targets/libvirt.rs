//! libvirt's output and files: replies of its remote protocol, the record of a running domain, and definitions.
#![no_main]

mod peer;

use std::sync::LazyLock;

use ksmith_host::hypervisor::LibvirtUri;
use ksmith_host::hypervisor::libvirt::fuzzing;
use libfuzzer_sys::fuzz_target;
use peer::FakePeer;

static PEER: LazyLock<FakePeer> = LazyLock::new(FakePeer::start);

fuzz_target!(|bytes: &[u8]| {
    PEER.answer(bytes);
    let uri = LibvirtUri::try_from(format!("qemu:///system?socket={}", PEER.path().display())).expect("a URI");
    let _ = fuzzing::converse(&uri);
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = LibvirtUri::try_from(text.to_owned());
        fuzzing::read_record(text);
        fuzzing::switch_sharing(text);
    }
});
