//! The forms of containers' cgroup paths, one row for each.

use super::super::escape::unescape;
use super::pods::{is_pod, slice_of};

/// Digits of a container ID; people use the first 12 of 64.
const ID: usize = 64;
const SHORT_ID: usize = 12;

/// Digits of the ID of a task of Amazon ECS.
const ECS_ID: usize = 32;

/// Lengths of the parts of a UUID.
const UUID: [usize; 5] = [8, 4, 4, 4, 12];

/// A row: a part of a path that is a container.
#[derive(Debug, Clone, Copy)]
struct ContainerPathForm {
    parent: ParentForm,
    prefix: &'static str,
    id: ContainerIdForm,
}

/// A condition on the parts above.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ParentForm {
    /// No condition.
    Any,
    /// The part right above is this one.
    Part(&'static str),
    /// The parts right above are those of Cloud Foundry's Garden: `garden/good`.
    Garden,
    /// The part right above is the cgroup of a pod.
    Pod,
}

/// A condition on the text behind a row's prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ContainerIdForm {
    /// 32 hexadecimal digits, a dash and a number.
    EcsTask,
    /// The UUID of an allocation, a dot and the name of its task.
    NomadTask,
    /// A UUID with dashes.
    Uuid,
    /// Any name.
    Name,
}

/// Each form but that of [`container_id`], without the suffix `.scope` of systemd's driver.
const FORMS: &[ContainerPathForm] = {
    use ContainerIdForm::{EcsTask, Name, NomadTask, Uuid};
    use ParentForm::{Any, Garden, Part, Pod};
    const fn row(parent: ParentForm, prefix: &'static str, id: ContainerIdForm) -> ContainerPathForm {
        ContainerPathForm { parent, prefix, id }
    }
    &[
        row(Any, "", EcsTask),
        row(Any, "", NomadTask),
        row(Any, "lxc.payload.", Name),
        row(Part("lxc.payload"), "", Name),
        row(Part("lxc"), "", Name),
        row(Part("mesos"), "", Name),
        row(Part("nomad"), "", Uuid),
        row(Part("buildkit"), "", Name),
        row(Garden, "", Name),
        // A form that no other row knows: the kubelet puts nothing but containers there.
        row(Pod, "", Name),
    ]
};

/// Prefixes of cgroups in a pod's, before an ID, that hold programs of the host: a container's monitor, and the virtual
/// machine of a Kata sandbox.
const HOSTS: [&str; 2] = ["crio-conmon-", "kata_"];

/// End of the prefix before the ID of a container whose monitor is in the cgroup: `libpod-conmon-ID.scope`.
const MONITOR: &str = "conmon";

/// Parts below a machine that is a container: its processes, and the program that runs it.
const CONTAINER_PARTS: [&str; 2] = ["payload", "supervisor"];

/// The cgroup above those of Kata's virtual machines and their helpers.
const KATA_OVERHEAD: &str = "/kata_overhead";

/// Services that make containers below their own cgroups. Source: the units of the projects and distributions.
const MANAGERS: [&str; 17] = [
    "buildkit",
    "containerd",
    "cri-docker",
    "crio",
    "docker",
    "garden",
    "k0scontroller",
    "k0sworker",
    "k3s",
    "k3s-agent",
    "kubelet",
    "mesos-agent",
    "mesos-slave",
    "rke2-agent",
    "rke2-server",
    "snap.docker.dockerd",
    "snap.microk8s.daemon-containerd",
];

/// Drivers of libvirt that run virtual machines, and the one that runs containers.
const MACHINE_DRIVERS: [&str; 2] = ["qemu", "ch"];
const CONTAINER_DRIVER: &str = "lxc";

impl ContainerPathForm {
    /// Returns the ID or name in a part, if that is of this form.
    fn id_in<'a>(&self, part: &'a str, parents: &str) -> Option<&'a str> {
        let id = part.strip_prefix(self.prefix).filter(|id| self.id.fits(id))?;
        let (above, parent) = parents.rsplit_once('/').unwrap_or_default();
        let is_below = match self.parent {
            ParentForm::Any => true,
            ParentForm::Part(name) => parent == name,
            ParentForm::Garden => is_garden(parent, above) && !is_garden(part, parents),
            ParentForm::Pod => is_pod(parent) && !is_hosts(part),
        };
        is_below.then_some(id)
    }
}

impl ContainerIdForm {
    fn fits(self, id: &str) -> bool {
        match self {
            Self::EcsTask => id.split_once('-').is_some_and(|(task, number)| {
                is_hex(task, ECS_ID) && !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
            }),
            Self::NomadTask => {
                id.split_once('.').is_some_and(|(allocation, task)| Self::Uuid.fits(allocation) && !task.is_empty())
            }
            Self::Uuid => id.split('-').map(str::len).eq(UUID),
            Self::Name => !id.is_empty(),
        }
    }
}

fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Returns true if this part of a path below a pod's holds programs of the host.
fn is_hosts(part: &str) -> bool {
    HOSTS.iter().any(|prefix| part.strip_prefix(prefix).is_some_and(|id| is_hex(id, ID)))
}

/// Returns true if containers of Garden lie right below this part: in `garden` or `garden-TAG`, and in its halves.
fn is_garden(part: &str, parents: &str) -> bool {
    let is_root = |part: &str| part == "garden" || (part.starts_with("garden-") && !part.contains('.'));
    let parent = parents.rsplit('/').next().unwrap_or_default();
    is_root(part) || (["good", "bad"].contains(&part) && is_root(parent))
}

/// Returns the name of the container that this part of a path is; `next` is the part right below, if any.
pub(super) fn container_name(part: &str, parents: &str, next: &str) -> Option<String> {
    let is_of_kata = parents == KATA_OVERHEAD || parents.starts_with("/kata_overhead/");
    // Podman's pods are those without a prefix, when it manages cgroups itself.
    let is_podmans_pod = parents.ends_with("/libpod_parent") && is_hex(part, ID);
    if is_of_kata || is_podmans_pod {
        return None;
    }
    if let Some(machine) = part.strip_suffix(".scope").and_then(|scope| scope.strip_prefix("machine-")) {
        let machine = unescape(machine);
        return machine_name(part, next)
            .is_none()
            .then(|| libvirt_name(&machine, CONTAINER_DRIVER).unwrap_or(&machine).to_owned());
    }
    let nspawn = || part.strip_suffix(".service")?.strip_prefix("systemd-nspawn@").map(unescape);
    let libvirt = || part.strip_suffix(".libvirt-lxc").map(str::to_owned);
    let colon_form = || slice_of(part).and_then(|_| part.rsplit(':').next()).map(short);
    container_id(part).map(short).or_else(colon_form).or_else(nspawn).or_else(libvirt).or_else(|| {
        let part = part.strip_suffix(".scope").unwrap_or(part);
        FORMS.iter().find_map(|row| row.id_in(part, parents)).map(str::to_owned)
    })
}

/// Returns the name of the virtual machine of libvirt that has this scope: `web` for `machine-ch\x2d1\x2dweb.scope`.
/// A container of systemd-machined may have such a name, too: the part below, `next`, shows it.
pub(in crate::hypervisor) fn machine_name(part: &str, next: &str) -> Option<String> {
    if CONTAINER_PARTS.contains(&next) {
        return None;
    }
    let machine = unescape(part.strip_suffix(".scope")?.strip_prefix("machine-")?);
    MACHINE_DRIVERS.iter().find_map(|driver| libvirt_name(&machine, driver)).map(str::to_owned)
}

/// Parses the name that libvirt registers with systemd-machined: `DRIVER-NUMBER-NAME`, or `qemu-NAME` before 1.3.
fn libvirt_name<'a>(machine: &'a str, driver: &str) -> Option<&'a str> {
    let rest = machine.strip_prefix(driver)?.strip_prefix('-')?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let named = rest.split_once('-').filter(|(number, _)| is_number(number)).map(|(_, name)| name);
    named.or_else(|| (driver == "qemu").then_some(rest))
}

/// Returns the ID of 64 digits in a part: `ID`, or `PREFIX-ID` with the name of any runtime, such as `docker-` or
/// `libpod-payload-`. A runtime without systemd's driver takes `SLICE:PREFIX:ID`, which is meant for that driver, as the
/// name of a cgroup.
pub(super) fn container_id(part: &str) -> Option<&str> {
    let part = part.strip_suffix(".scope").unwrap_or(part);
    let part = slice_of(part).and_then(|_| part.rsplit(':').next()).unwrap_or(part);
    let (prefix, id) = part.rsplit_once('-').unwrap_or(("", part));
    (is_hex(id, ID) && !prefix.ends_with(MONITOR)).then_some(id)
}

/// Returns the name for people of a container with this ID.
pub(super) fn short(id: &str) -> String {
    id.chars().take(SHORT_ID).collect()
}

/// Returns true if the service with this path makes containers, and is the system's own: in slices alone, none of them
/// users'.
pub(in crate::hypervisor) fn is_manager(path: &str) -> bool {
    let (parents, service) = path.rsplit_once('/').unwrap_or_default();
    let mut slices = parents.split('/').skip(1).peekable();
    slices.peek().is_some()
        && slices.all(|slice| slice.ends_with(".slice") && slice != "user.slice")
        && service.strip_suffix(".service").is_some_and(|service| MANAGERS.contains(&service))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hypervisor::CgroupPath;

    const CONTAINER: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    const UID: &str = "0d8f3d1e-3c4b-4c1e-9a52-6a1d0e5b7f10";

    fn filled(path: &str) -> String {
        path.replace("ID", CONTAINER).replace("POD", &UID.replace('-', "_")).replace("UU", UID)
    }

    /// The name and the path of the container on a path.
    fn found(path: &str) -> Option<(String, String)> {
        let cgroup = CgroupPath::new(filled(path));
        let unit = cgroup.unit().filter(|unit| unit.hypervisor.is_container())?;
        Some((unit.name, unit.path.to_owned()))
    }

    /// Paths as the projects make them, with their ends that are no part of the container's.
    #[test]
    fn the_paths_of_every_container_manager_are_known() {
        let short = &CONTAINER[..12];
        for (path, rest, name) in [
            ("/docker/ID", "", short),
            ("/docker-ce/docker/ID", "", short),
            ("/actions_job/ID", "", short),
            ("/system.slice/docker-ID.scope", "/init", short),
            ("/machine.slice/libpod-ID.scope", "/container", short),
            ("/machine.slice/machine-libpod_pod_ID.slice/libpod-ID.scope", "/container", short),
            ("/libpod_parent/libpod-ID", "", short),
            ("/libpod_parent/ID/libpod-ID", "", short),
            ("/system.slice/balena-ID.scope", "", short),
            ("/isulad/ID", "", short),
            ("/x.slice/x-y.slice/youki-ID.scope", "", short),
            ("/system.slice/web.service/libpod-payload-ID", "", short),
            ("/user.slice/user-1.slice/user@1.service/user.slice/libpod-ID.scope", "/container", short),
            (
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podPOD.slice/cri-containerd-ID.scope",
                "",
                short,
            ),
            ("/kubepods.slice/kubepods-podPOD.slice/crio-ID.scope", "/container", short),
            ("/kubepods/besteffort/podUU/ID", "", short),
            ("/kubepods/besteffort/podUU/crio-ID", "", short),
            ("/kubepods/podUU/web", "/x", "web"),
            (
                "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-podPOD.slice/cri-containerd-ID.scope",
                "",
                short,
            ),
            ("/system.slice/containerd.service/kubepods-burstable-podPOD.slice:cri-containerd:ID", "", short),
            ("/kubepods-besteffort-podPOD.slice:cri-containerd:ID", "", short),
            ("/system.slice/crio.service/kubepods-podPOD.slice:crio:ID", "", short),
            ("/system.slice/docker.service/system.slice:docker:ID", "", short),
            ("/system.slice/docker.service/system.slice:buildkit:r4j0gy6e1", "", "r4j0gy6e1"),
            ("/docker/buildkit/r4j0gy6e1qz1", "", "r4j0gy6e1qz1"),
            ("/default/ID", "", short),
            ("/ecs/0123456789abcdef0123456789abcdef/ID", "", short),
            (
                "/ecs/x/0123456789abcdef0123456789abcdef-2531612879",
                "",
                "0123456789abcdef0123456789abcdef-2531612879",
            ),
            ("/nomad.slice/UU.web.scope", "", "UU.web"),
            ("/nomad.slice/share.slice/UU.web.scope", "", "UU.web"),
            ("/nomad.slice/docker-ID.scope", "", short),
            ("/nomad/UU", "", "UU"),
            ("/nomad/share/UU.web", "", "UU.web"),
            ("/garden/1b8a5c10-2f3d", "", "1b8a5c10-2f3d"),
            ("/system.slice/garden.service/garden/good/1b8a5c10", "", "1b8a5c10"),
            ("/garden-2/bad/1b8a5c10", "", "1b8a5c10"),
            ("/mesos/UU", "", "UU"),
            ("/mesos/UU/mesos/inner", "", "inner"),
            ("/lxc/web", "/ns/init.scope", "web"),
            ("/lxc.payload/web", "", "web"),
            ("/lxc.payload.user-1000_web", "/init.scope", "user-1000_web"),
            (r"/machine.slice/machine-my\x2dbox.scope", "/payload/init.scope", "my-box"),
            (r"/machine.slice/machine-lxc\x2d4711\x2dweb.scope", "", "web"),
            ("/machine.slice/lxc-4711-web.libvirt-lxc", "", "lxc-4711-web"),
            (r"/machine.slice/systemd-nspawn@my\x2dbox.service", "/payload/init.scope", "my-box"),
            (r"/system.slice/system-systemd\x2dnspawn.slice/systemd-nspawn@web.service", "/supervisor", "web"),
        ] {
            let expected = Some((name.replace("UU", UID), filled(path)));
            assert_eq!(found(&format!("{path}{rest}")), expected, "{path}");
        }
    }

    #[test]
    fn only_a_service_of_the_system_manages_containers() {
        for path in [
            "/system.slice/docker.service",
            "/runtime.slice/containerd.service",
            "/podruntime.slice/podruntime-cri.slice/containerd.service",
            "/system.slice/k3s.service",
        ] {
            assert!(is_manager(path), "{path}");
        }
        for path in [
            "/system.slice/redis.service",
            "/user.slice/docker.service",
            "/user.slice/user-1.slice/user@1.service/docker.service",
            "/system.slice/x.service/docker.service",
            "/docker.service",
            "/lxc/docker.service",
        ] {
            assert!(!is_manager(path), "{path}");
        }
    }

    #[test]
    fn programs_of_the_host_beside_containers_are_in_none() {
        for path in [
            "/kubepods/burstable/podUU/crio-conmon-ID",
            "/kubepods.slice/kubepods-podPOD.slice/crio-conmon-ID.scope",
            "/machine.slice/libpod-conmon-ID.scope",
            "/libpod_parent/ID/conmon",
            "/kubepods/burstable/podUU/kata_ID",
            "/kata_overhead/ID",
            "/kata_overhead/kubepods/burstable/podUU/ID",
            "/lxc.monitor.web",
            "/lxc.monitor/web",
            "/kubepods/burstable/podUU",
            "/nomad.slice/share.slice",
            "/nomad/share",
            "/garden/good",
            "/docker/buildkit",
            r"/machine.slice/machine-qemu\x2d1\x2dweb.scope/libvirt/emulator",
            r"/machine.slice/machine-ch\x2d1\x2dweb.scope",
        ] {
            let cgroup = CgroupPath::new(filled(path));
            assert!(cgroup.unit().is_none() && !cgroup.is_in_container(), "{path}");
        }
    }

    #[test]
    fn the_scope_of_a_machine_of_libvirt_has_its_name() {
        for (part, expected) in [
            (r"machine-qemu\x2d12\x2dmy\x2dweb.scope", Some("my-web")),
            (r"machine-qemu\x2dweb.scope", Some("web")),
            (r"machine-ch\x2d1\x2dweb.scope", Some("web")),
            (r"machine-ch\x2dweb.scope", None),
            (r"machine-lxc\x2d1\x2dweb.scope", None),
            ("machine-web.scope", None),
            ("web.scope", None),
        ] {
            assert_eq!(machine_name(part, "").as_deref(), expected, "{part}");
            assert_eq!(machine_name(part, "payload"), None, "{part}");
        }
    }
}
