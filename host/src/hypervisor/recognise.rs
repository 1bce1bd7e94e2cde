//! Recognition of a process: from its own data to its kind of guest.

use ksmith_core::guest::ProcessIdentity;
use ksmith_core::kernel::CommandLine;

use super::cgroup::CgroupUnit;
use super::name::{self, printable, printable_name};
use super::{CgroupPath, ClaimedIdentity, Hypervisor, MonitorSocket, process};

/// A process of a known kind of guest.
#[derive(Debug, Clone)]
pub struct RecognisedProcess {
    /// Identity of the guest.
    pub identity: ProcessIdentity,
    /// Kind of the guest.
    pub hypervisor: &'static dyn Hypervisor,
    /// Its cgroup at the time of recognition.
    pub cgroup: Option<CgroupPath>,
    /// Path of the service or container whose name it has, if any.
    pub named_by: Option<String>,
    /// The monitors of the guest.
    pub monitors: Vec<MonitorSocket>,
    /// Effective user at the time of recognition. A process that has another one since must be recognised anew.
    pub effective_uid: Option<u32>,
    /// True if its name comes from its own data, and not from its cgroup's path.
    pub has_own_word: bool,
}

/// Recognises a process: by its hypervisor, else by its container or service; else it is a plain process.
pub fn recognise(
    comm: &str,
    line: &CommandLine,
    cgroup: Option<&CgroupPath>,
    parent: u32,
    user: Option<String>,
) -> RecognisedProcess {
    let program = if line.program().is_empty() { comm } else { line.program() };
    let own = |looks: &ClaimedIdentity| printable_name(looks.name.as_deref(), comm, line);
    let found = name::hypervisor(comm, line);
    let (mut is_verified, mut named_by) = (false, None);
    let unit = cgroup.and_then(CgroupPath::unit);
    let container = unit.clone().filter(|unit| unit.hypervisor.is_container());
    let (name, hypervisor, looks, unit) = match (found, unit) {
        (Some((hypervisor, mut looks)), _) => {
            // libvirt gives a machine's name to some hypervisors by their API alone, and to its scope.
            looks.name = looks.name.or_else(|| cgroup.and_then(CgroupPath::machine_name));
            let container = container.filter(|_| looks.name.is_none());
            looks.name = looks.name.or_else(|| container.as_ref().map(|unit| unit.name.clone()));
            named_by = container.map(|unit| unit.path.to_owned());
            (own(&looks), hypervisor, looks, None)
        }
        (None, Some(CgroupUnit { hypervisor, name, path, is_of_system })) => {
            is_verified = is_of_system;
            (printable(&name), hypervisor, ClaimedIdentity::default(), Some(path.to_owned()))
        }
        (None, None) => {
            (own(&ClaimedIdentity::default()), &process::PlainProcess as _, ClaimedIdentity::default(), None)
        }
    };
    let has_own_word = unit.is_none();
    let named_by = unit.clone().or(named_by);
    let identity = ProcessIdentity {
        name,
        kind: hypervisor.kind(),
        manager: hypervisor.manager(),
        number: looks.number,
        program: printable(program),
        uuid: looks.uuid,
        is_verified,
        memory_bytes: looks.memory_bytes,
        cgroup: cgroup.map(|cgroup| cgroup.path().to_owned()),
        unit,
        user,
        uid: None,
        parent,
        includes_children: looks.includes_children,
        is_twin: false,
        obstacle: looks.obstacle,
    };
    RecognisedProcess {
        identity,
        hypervisor,
        cgroup: cgroup.cloned(),
        named_by,
        monitors: hypervisor.monitors(line),
        effective_uid: None,
        has_own_word,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(comm: &str, arguments: &str, cgroup: Option<&str>) -> ProcessIdentity {
        let line = CommandLine::parse(arguments.replace(' ', "\0").as_bytes());
        let cgroup = cgroup.map(CgroupPath::new);
        recognise(comm, &line, cgroup.as_ref(), 1, Some("root".to_owned())).identity
    }

    #[test]
    fn a_hypervisor_in_a_service_is_a_virtual_machine() {
        let vm = identity(
            "qemu-system-x86",
            "/usr/bin/qemu-system-x86_64 -name web -m 1G",
            Some("/system.slice/a.service"),
        );
        assert_eq!((vm.name.as_str(), vm.kind.word(), vm.memory_bytes), ("web", "qemu", Some(1 << 30)));
        assert_eq!((vm.unit, vm.program.as_str()), (None, "qemu-system-x86_64"));
        let uml = identity("linux.uml", "linux.uml mem=64M umid=u1", None);
        assert_eq!((uml.name.as_str(), uml.kind.word(), uml.obstacle), ("u1", "uml", Some("shared")));
        assert!(uml.includes_children);
    }

    #[test]
    fn each_hypervisor_writes_memory_its_own_way() {
        let mib = |n: u64| Some(n << 20);
        for (line, expected) in [
            ("kvm -m 512", mib(512)),
            ("kvm -m 2G,slots=2,maxmem=8G", mib(2048)),
            ("kvm -m size=262144k,slots=16", mib(256)),
            ("kvm", mib(128)),
            ("kvm -m many", None),
            ("kvm -m 64 -m 96", mib(96)),
            ("kvm -m 64 -m slots=2,maxmem=8G", mib(64)),
            ("kvm -m 2G -m 4G", mib(4096)),
            ("kvm -m 2G -numa node,mem=1G -numa node,mem=1G", mib(2048)),
            ("kvm -machine q35,memory.size=2G", mib(2048)),
            ("kvm -machine {\"type\":\"q35\",\"memory\":{\"size\":\"2G\"}}", mib(2048)),
            ("kvm -M memory.size=2G -M pc,memory.size=3G,memory.max-size=8G", mib(3072)),
            ("kvm -m 1G -machine memory.size=2G", mib(1024)),
            ("kvm -m size=0,maxmem=4G -machine memory.size=1073741824", mib(1024)),
            ("kvm -m 0", mib(128)),
            ("kvm -readconfig /run/vm/qemu.conf", None),
            ("kvm -readconfig /run/vm/qemu.conf -m 64", mib(64)),
            ("qemu-system-x86_64 -avd Pixel_3a", None),
            ("qemu-system-x86_64 @Pixel_3a", None),
            ("qemu-system-x86_64 -machine q35", mib(128)),
            ("qemu-system-x86_64 -S -machine none,accel=kvm:tcg", None),
            ("kvm -m 0x200", mib(512)),
            ("qemu-system-riscv64 -machine virt", None),
            ("kvm -machine memory-backend=m -object memory-backend-ram,id=m,size=1G", mib(1024)),
            ("kvm -machine memory-backend=m", None),
            ("linux mem=256M umid=u", mib(256)),
            ("linux umid=u", None),
            ("cloud-hypervisor --memory size=1G,mergeable=on", mib(1024)),
            ("crosvm run --mem 300", mib(300)),
            ("crosvm run --mem size=300", mib(300)),
            ("lkvm run -m 300", mib(300)),
            ("firecracker --id a", None),
        ] {
            assert_eq!(identity("x", line, None).memory_bytes, expected, "{line}");
        }
    }

    #[test]
    fn uuids_are_those_of_the_command_line() {
        let uuid = "0e8de4a1-1111-2222-3333-444455556666";
        for (line, expected) in [
            (format!("kvm -uuid {uuid}"), Some(uuid)),
            (format!("kvm -uuid {} -uuid {uuid}", uuid.replace('0', "1")), Some(uuid)),
            (format!("kvm -smbios type=0,vendor=v -smbios type=1,uuid={uuid}"), Some(uuid)),
            (format!("cloud-hypervisor --platform uuid={uuid}"), Some(uuid)),
            (format!("linux umid=u -uuid {uuid}"), None),
        ] {
            assert_eq!(identity("x", &line, None).uuid.as_deref(), expected, "{line}");
        }
    }

    #[test]
    fn qemu_with_an_inherited_monitor_is_that_of_libvirt() {
        let own = CommandLine::parse(b"kvm\0-qmp\0unix:/q,server=on");
        let inherited = CommandLine::parse(
            b"kvm\0-chardev\0socket,id=c,fd=33\0-mon\0chardev=c,mode=control\0-qmp\0unix:/q,server",
        );
        for (line, expected, monitors) in [(own, "Qemu", 1), (inherited, "Libvirt", 2)] {
            let found = recognise("kvm", &line, None, 1, None);
            assert_eq!((format!("{:?}", found.hypervisor), found.monitors.len()), (expected.to_owned(), monitors));
            assert_eq!(found.identity.kind.word(), "qemu");
        }
    }

    #[test]
    fn names_of_cgroups_can_not_move_the_cursor() {
        let odd = identity("p", "p", Some("/a\x1b[2J/x\\x1b[2J.service"));
        assert_eq!(odd.name, "x[2J");
    }

    #[test]
    fn rules_see_the_whole_path_of_a_cgroup() {
        let path =
            format!("/kubepods.slice/kubepods-pod1.slice/cri-containerd-{}.scope", "0123456789abcdef".repeat(4));
        assert_eq!(identity("p", "p", Some(&path)).cgroup, Some(path));
    }

    #[test]
    fn a_service_a_container_and_a_plain_process_are_told_apart() {
        let redis = identity("redis-server", "redis-server *:6379", Some("/system.slice/cache.service"));
        assert_eq!((redis.name.as_str(), redis.kind.word()), ("cache", "service"));
        assert_eq!(redis.unit.as_deref(), Some("/system.slice/cache.service"));
        let box_ = identity("sh", "sh", Some("/lxc.payload.box/init.scope"));
        assert_eq!((box_.name.as_str(), box_.kind.word()), ("box", "container"));
        let plain = identity("sh", "", Some("/user.slice/user-0.slice/session-1.scope"));
        assert_eq!((plain.name.as_str(), plain.kind.word(), plain.program.as_str()), ("sh", "process", "sh"));
    }
}
