//! Entry points of the fuzz target `libvirt`.

use std::time::Duration;

use super::rpc::LibvirtConnection;
use super::{LibvirtError, LibvirtUri, domain, sharing};

const UUID: &str = "00000000-1111-2222-3333-444444444444";

/// Makes each call that a switch needs.
///
/// # Errors
/// The reply is not a valid one of libvirt.
pub fn converse(uri: &LibvirtUri) -> Result<(), LibvirtError> {
    let mut libvirt = LibvirtConnection::connect(uri)?;
    let domain = libvirt.domain(UUID)?;
    libvirt.monitor_command(&domain, "{}", Duration::from_secs(1))?;
    let definition = libvirt.definition(&domain)?;
    libvirt.define(&definition)
}

/// Reads the record of a running domain.
pub fn read_record(text: &str) {
    let _ = domain::parse(text, "web", 812);
}

/// Switches merging off and on in a definition: what was switched needs no second time.
pub fn switch_sharing(text: &str) {
    for on in [false, true] {
        if let Ok(Some(switched)) = sharing::with_sharing(text, on) {
            assert!(matches!(sharing::with_sharing(&switched, on), Ok(None)), "{switched}");
        }
    }
}
