//! The hypervisor cloud-hypervisor. Its guests have no names: the stem of `--api-socket [path=]FILE` serves.

use ksmith_core::guest::GuestKind;
use ksmith_core::kernel::CommandLine;

use super::options::{field, size, uuid_text};
use super::{ClaimedIdentity, Hypervisor, ProgramName};

/// The entry of the registry.
pub(super) const HYPERVISOR: CloudHypervisor = CloudHypervisor;

/// cloud-hypervisor.
#[derive(Debug)]
pub(super) struct CloudHypervisor;

impl Hypervisor for CloudHypervisor {
    fn kind(&self) -> GuestKind {
        GuestKind::new("cloud-hypervisor")
    }

    fn is_program(&self, program: ProgramName<'_>) -> bool {
        program.is("cloud-hypervisor")
    }

    fn recognise(&self, line: &CommandLine) -> Option<ClaimedIdentity> {
        let memory = line.option("--memory").and_then(|options| field(options, "size"));
        Some(ClaimedIdentity {
            name: line.option("--api-socket").and_then(stem),
            uuid: line.option("--platform").and_then(|options| field(options, "uuid")).and_then(uuid_text),
            memory_bytes: memory.and_then(|text| size(text, 1)),
            ..ClaimedIdentity::default()
        })
    }

    fn no_switch(&self, on: bool, _name: &str) -> Option<String> {
        let word = if on { "on" } else { "off" };
        Some(format!("cloud-hypervisor decides at start: restart it with --memory …,mergeable={word}"))
    }
}

fn stem(socket: &str) -> Option<String> {
    let path = socket.strip_prefix("path=").unwrap_or(socket);
    let file = path.rsplit('/').next()?;
    Some(file.rsplit_once('.').map_or(file, |(stem, _)| stem).to_owned())
}
