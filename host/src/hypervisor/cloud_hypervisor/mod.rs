//! The hypervisor cloud-hypervisor. Its guests have no names: the path of `--api-socket [path=]FILE` serves. Source: its
//! `docs/memory.md`, and `src/main.rs` for the options.

use ksmith_core::guest::GuestKind;
use ksmith_core::kernel::CommandLine;

use super::options::{field, first, is_huge_path, size, uuid_text, values};
use super::socket_name::name_from_path;
use super::{ClaimedIdentity, Hypervisor, ProgramName};

/// cloud-hypervisor.
#[derive(Debug)]
pub(super) struct CloudHypervisor;

impl Hypervisor for CloudHypervisor {
    fn kind(&self) -> GuestKind {
        GuestKind::new("cloud-hypervisor")
    }

    fn is_program(&self, program: ProgramName<'_>) -> bool {
        program.is_release_of("cloud-hypervisor")
    }

    fn recognise(&self, line: &CommandLine) -> Option<ClaimedIdentity> {
        let sizes: Vec<u64> =
            memories(line).map(|memory| size(field(memory, "size")?, 1)).collect::<Option<_>>()?;
        Some(ClaimedIdentity {
            name: line.option("--api-socket").and_then(socket).and_then(name_from_path),
            uuid: line.option("--platform").and_then(|options| field(options, "uuid")).and_then(uuid_text),
            memory_bytes: (!sizes.is_empty()).then(|| sizes.iter().sum()),
            obstacle: obstacle(line),
            ..ClaimedIdentity::default()
        })
    }

    fn no_switch(&self, on: bool, _name: &str) -> Option<String> {
        let word = if on { "on" } else { "off" };
        Some(format!("cloud-hypervisor decides at start: restart it with --memory …,mergeable={word}"))
    }
}

/// Returns the path of the API's socket; `None` for one that it was started with, `fd=N`.
fn socket(option: &str) -> Option<&str> {
    let path = first(option.strip_prefix("path=").unwrap_or(option));
    (!path.starts_with("fd=")).then_some(path)
}

/// Returns the options of the memory and of its zones.
fn memories(line: &CommandLine) -> impl Iterator<Item = &str> {
    values(line, "--memory").chain(values(line, "--memory-zone"))
}

/// Returns the reason why no page of the guest can merge: a device of the host pins its memory, the host may not read
/// it, or it lies in memory that KSM skips.
fn obstacle(line: &CommandLine) -> Option<&'static str> {
    let is_on = |options: &str, key: &str| matches!(field(options, key), Some("on" | "true"));
    let of_memory = |options: &str| {
        if is_on(options, "hugepages") || field(options, "file").is_some_and(is_huge_path) {
            Some("hugepages")
        } else {
            is_on(options, "shared").then_some("shared")
        }
    };
    if values(line, "--device").next().is_some() {
        return Some("vfio");
    }
    if values(line, "--vdpa").next().is_some() {
        return Some("vdpa");
    }
    let platform = line.option("--platform").unwrap_or_default();
    if let Some((_, word)) =
        [("sev_snp", "sev-snp"), ("tdx", "tdx")].into_iter().find(|(key, _)| is_on(platform, key))
    {
        return Some(word);
    }
    // One part that can merge is enough. With zones the memory itself may have no size.
    let parts = memories(line).filter(|options| field(options, "size").and_then(|text| size(text, 1)) != Some(0));
    let mut obstacles = parts.map(of_memory);
    let first = obstacles.next().flatten()?;
    obstacles.all(|obstacle| obstacle.is_some()).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hypervisor::{CgroupPath, recognise};

    fn identity(arguments: &str, cgroup: &str) -> ksmith_core::guest::ProcessIdentity {
        let line = format!("/opt/cloud-hypervisor-static {arguments}").replace(' ', "\0");
        let cgroup = CgroupPath::new(cgroup);
        recognise("cloud-hyperviso", &CommandLine::parse(line.as_bytes()), Some(&cgroup), 1, None).identity
    }

    #[test]
    fn a_guest_is_named_by_its_socket_or_its_scope() {
        for (arguments, cgroup, expected) in [
            ("--api-socket path=/run/ch/web.sock", "/", "web"),
            ("--api-socket /run/vc/vm/1b8a5c10/clh-api.sock", "/kata_overhead/1b8a5c10", "1b8a5c10"),
            ("--api-socket fd=22", r"/machine.slice/machine-ch\x2d1\x2dmy\x2dweb.scope", "my-web"),
            ("--api-socket fd=22", "/", "cloud-hyperviso"),
        ] {
            let found = identity(arguments, cgroup);
            assert_eq!((found.name.as_str(), found.kind.word()), (expected, "cloud-hypervisor"), "{arguments}");
        }
    }

    #[test]
    fn memory_is_the_sum_of_its_zones() {
        let bytes = |arguments: &str| identity(arguments, "/").memory_bytes;
        assert_eq!(bytes("--memory mergeable=on,size=1024M"), Some(1 << 30));
        assert_eq!(bytes("--memory size=0 --memory-zone id=a,size=1G id=b,size=1G --cpus boot=1"), Some(2 << 30));
        assert_eq!(bytes("--memory mergeable=on"), None);
        assert_eq!(bytes("--api-socket a.sock"), None);
    }

    #[test]
    fn memory_that_can_not_merge_is_told_by_its_cause() {
        for (arguments, expected) in [
            ("--memory size=1G,mergeable=on", None),
            ("--memory mergeable=on,shared=on,size=1G", Some("shared")),
            ("--memory size=1G,hugepages=on,hugepage_size=2M", Some("hugepages")),
            ("--memory size=0 --memory-zone id=a,size=1G,shared=on id=b,size=1G,shared=off", None),
            (
                "--memory size=0 --memory-zone id=a,size=1G,shared=on --memory-zone id=b,size=1G,hugepages=on",
                Some("shared"),
            ),
            ("--memory size=0 --memory-zone id=a,size=1G,file=/mnt/huge", Some("hugepages")),
            ("--memory size=1G --device path=/sys/bus/pci/devices/0000:01:00.0", Some("vfio")),
            ("--memory size=1G --vdpa path=/dev/vhost-vdpa-0,num_queues=2", Some("vdpa")),
            ("--memory size=1G --platform sev_snp=on", Some("sev-snp")),
            ("--api-socket a.sock", None),
        ] {
            assert_eq!(identity(arguments, "/").obstacle, expected, "{arguments}");
        }
    }
}
