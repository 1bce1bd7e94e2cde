//! User-mode Linux: a kernel as a process. The guest's programs are its children.

#[cfg(fuzzing)]
pub mod fuzzing;
mod mconsole;

use ksmith_core::guest::GuestKind;
use ksmith_core::kernel::CommandLine;

pub use self::mconsole::{Mconsole, MconsoleError};
use super::options::size;
use super::{ClaimedIdentity, GuestTarget, Hypervisor, HypervisorReply, ProgramName, ResizeMethod};
use crate::root::Root;

/// User-mode Linux.
#[derive(Debug)]
pub(super) struct Uml;

/// Arguments that only such a kernel takes: another program may be called `linux` as well.
const ARGUMENTS: [&str; 4] = ["umid=", "ubd", "con0=", "initrd="];

impl Hypervisor for Uml {
    fn kind(&self) -> GuestKind {
        GuestKind::new("uml")
    }

    fn is_program(&self, program: ProgramName<'_>) -> bool {
        program.is("linux") || program.is("linux.uml") || program.is("vmlinux")
    }

    fn recognise(&self, line: &CommandLine) -> Option<ClaimedIdentity> {
        let is_its = |argument: &String| ARGUMENTS.iter().any(|known| argument.starts_with(known));
        line.arguments().iter().skip(1).any(is_its).then(|| ClaimedIdentity {
            name: line.option("umid").map(str::to_owned),
            number: None,
            uuid: None,
            vcpus: None,
            memory_bytes: line.option("mem").and_then(|text| size(text, 1)),
            // Its RAM is a shared mapping of a file.
            obstacle: Some("shared"),
            includes_children: true,
        })
    }

    fn can_be_asked(&self, _target: &GuestTarget) -> bool {
        true
    }

    fn query_guest(&self, root: &Root, target: &GuestTarget) -> HypervisorReply {
        let Some(console) = Mconsole::find_by_pid(root, target.id.pid()) else { return HypervisorReply::default() };
        let name = console.name().map(str::to_owned);
        match console.memory_bytes() {
            Ok(memory_bytes) => HypervisorReply { memory_bytes, name, ..HypervisorReply::default() },
            Err(error) => HypervisorReply { name, error: Some(error.to_string()), ..HypervisorReply::default() },
        }
    }

    fn no_switch(&self, _on: bool, _name: &str) -> Option<String> {
        let why =
            "user-mode Linux keeps its RAM in a shared file, which KSM passes over; there is nothing to switch";
        Some(why.to_owned())
    }

    fn resize(&self) -> ResizeMethod {
        ResizeMethod::Console
    }
}
