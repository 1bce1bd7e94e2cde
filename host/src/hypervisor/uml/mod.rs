//! User-mode Linux: a kernel as a process. The guest's programs are its children.

#[cfg(fuzzing)]
pub mod fuzzing;
mod mconsole;

use ksmith_core::guest::Kind;
use ksmith_core::kernel::CommandLine;

pub use self::mconsole::{Mconsole, MconsoleError};
use super::options::size;
use super::{Answer, Hypervisor, Looks, Program, Resize, Target};
use crate::root::Root;

/// The entry of the registry.
pub(super) const HYPERVISOR: Uml = Uml;

/// User-mode Linux.
#[derive(Debug)]
pub(super) struct Uml;

/// Arguments that only such a kernel takes: another program may be called `linux` as well.
const ARGUMENTS: [&str; 4] = ["umid=", "ubd", "con0=", "initrd="];

impl Hypervisor for Uml {
    fn kind(&self) -> Kind {
        Kind::new("uml")
    }

    fn is_program(&self, program: Program<'_>) -> bool {
        program.is("linux") || program.is("linux.uml") || program.is("vmlinux")
    }

    fn recognise(&self, line: &CommandLine) -> Option<Looks> {
        let is_its = |argument: &String| ARGUMENTS.iter().any(|known| argument.starts_with(known));
        line.arguments().iter().skip(1).any(is_its).then(|| Looks {
            name: line.option("umid").map(str::to_owned),
            number: None,
            uuid: None,
            memory_bytes: line.option("mem").and_then(|text| size(text, 1)),
            // Its RAM is a shared mapping of a file.
            obstacle: Some("shared"),
            includes_children: true,
        })
    }

    fn can_be_asked(&self, _target: &Target) -> bool {
        true
    }

    fn ask(&self, root: &Root, target: &Target) -> Answer {
        let Some(console) = Mconsole::of(root, target.id.pid()) else { return Answer::default() };
        let name = console.name().map(str::to_owned);
        match console.memory_bytes() {
            Ok(memory_bytes) => Answer { memory_bytes, name, ..Answer::default() },
            Err(error) => Answer { name, error: Some(error.to_string()), ..Answer::default() },
        }
    }

    fn no_switch(&self, _on: bool, _name: &str) -> Option<String> {
        let why =
            "user-mode Linux keeps its RAM in a shared file, which KSM passes over; there is nothing to switch";
        Some(why.to_owned())
    }

    fn resize(&self) -> Resize {
        Resize::Console
    }
}
