//! Who a process is, from what does not change while it runs its program.

use super::cgroup::{Cgroup, Owner};
use super::{Kind, command, qemu};
use crate::guest_name::{GuestName, kind_of, printable};
use crate::kernel::CommandLine;

/// One process, classified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The guest's name as far as this process tells.
    pub name: String,
    /// What it belongs to.
    pub kind: Kind,
    /// The program's name.
    pub program: String,
    /// From the command line.
    pub uuid: Option<String>,
    /// From the command line.
    pub memory_bytes: Option<u64>,
    /// The whole path.
    pub cgroup: Option<String>,
    /// The path of the service or container: processes of one path are one guest.
    pub unit: Option<String>,
    /// Whom it belongs to.
    pub user: Option<String>,
    /// Its parent's PID: user-mode Linux runs its guest's programs as children.
    pub parent: u32,
    /// Whether its memory is its parent's (`CLONE_VM`), and so counted there already.
    pub is_twin: bool,
    /// Why its memory can't merge.
    pub obstacle: Option<&'static str>,
    /// Where to ask its hypervisor.
    pub monitors: Vec<qemu::Monitor>,
}

impl Identity {
    /// Classifies a process. Its hypervisor decides; else its container or service; else it is by itself.
    pub fn of(comm: &str, line: &CommandLine, cgroup: Option<&Cgroup>, parent: u32, user: Option<String>) -> Self {
        let own = GuestName::of(comm, line).name;
        let hypervisor = kind_of(comm, line);
        let (name, kind, unit) = match (hypervisor, cgroup.and_then(Cgroup::owner)) {
            (Some(kind), _) => (own, kind, None),
            (None, Some((Owner::Service(name), path))) => (printable(&name), Kind::Service, Some(path.to_owned())),
            (None, Some((Owner::Container(name), path))) => {
                (printable(&name), Kind::Container, Some(path.to_owned()))
            }
            (None, None) => (own, Kind::Process, None),
        };
        let program = if line.program().is_empty() { comm } else { line.program() };
        let is_qemu = kind == Kind::Qemu;
        Self {
            name,
            kind,
            program: printable(program),
            uuid: command::uuid(kind, line),
            memory_bytes: command::memory_bytes(kind, line),
            cgroup: cgroup.map(|cgroup| shown(&cgroup.0)),
            unit,
            user,
            parent,
            is_twin: false,
            obstacle: match kind {
                Kind::Qemu => qemu::obstacle(line),
                // Its RAM is a shared file mapping.
                Kind::Uml => Some("shared"),
                _ => None,
            },
            monitors: if is_qemu { qemu::monitors(line) } else { Vec::new() },
        }
    }
}

/// A path fit for a terminal. Whoever may make cgroups may give them any name.
fn shown(path: &str) -> String {
    path.split('/').map(printable).collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(comm: &str, arguments: &str, cgroup: Option<&str>) -> Identity {
        let line = CommandLine::parse(arguments.replace(' ', "\0").as_bytes());
        Identity::of(comm, &line, cgroup.map(|path| Cgroup(path.to_owned())).as_ref(), 1, Some("root".to_owned()))
    }

    #[test]
    fn a_hypervisor_in_a_service_is_a_virtual_machine() {
        let vm = identity(
            "qemu-system-x86",
            "/usr/bin/qemu-system-x86_64 -name web -m 1G",
            Some("/system.slice/a.service"),
        );
        assert_eq!((vm.name.as_str(), vm.kind, vm.memory_bytes), ("web", Kind::Qemu, Some(1 << 30)));
        assert_eq!((vm.unit, vm.program.as_str()), (None, "qemu-system-x86_64"));
        let uml = identity("linux.uml", "linux.uml mem=64M umid=u1", None);
        assert_eq!((uml.name.as_str(), uml.kind, uml.obstacle), ("u1", Kind::Uml, Some("shared")));
    }

    #[test]
    fn names_of_cgroups_can_not_move_the_cursor() {
        let odd = identity("p", "p", Some("/a\x1b[2J/x\\x1b[2J.service"));
        assert_eq!((odd.name.as_str(), odd.cgroup.as_deref()), ("x[2J", Some("/a[2J/x\\x1b[2J.service")));
    }

    #[test]
    fn a_service_a_container_and_a_plain_process_are_told_apart() {
        let redis = identity("redis-server", "redis-server *:6379", Some("/system.slice/cache.service"));
        assert_eq!((redis.name.as_str(), redis.kind), ("cache", Kind::Service));
        assert_eq!(redis.unit.as_deref(), Some("/system.slice/cache.service"));
        let box_ = identity("sh", "sh", Some("/lxc.payload.box/init.scope"));
        assert_eq!((box_.name.as_str(), box_.kind), ("box", Kind::Container));
        let plain = identity("sh", "", Some("/user.slice/user-0.slice/session-1.scope"));
        assert_eq!((plain.name.as_str(), plain.kind, plain.program.as_str()), ("sh", Kind::Process, "sh"));
    }
}
