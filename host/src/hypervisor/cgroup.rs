//! The service or container that a process belongs to, from its cgroup path.

use super::container::forms::{is_manager, machine_name};
use super::escape::unescape;
use super::{Hypervisor, REGISTRY};

/// The cgroup of a process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CgroupPath {
    /// The path in `/proc/PID/cgroup`, without the mount point.
    path: String,
    /// True if another hierarchy has the process in another service or container, or in an unknown one.
    is_disputed: bool,
}

/// A service or container on a cgroup's path.
#[derive(Debug, Clone)]
pub struct CgroupUnit<'a> {
    /// Kind of the unit: a service or a container.
    pub hypervisor: &'static dyn Hypervisor,
    /// Name of the unit on the path.
    pub name: String,
    /// The path up to the unit, which is included.
    pub path: &'a str,
    /// True if the system's own manager has made it. A user makes units of any name below a session, and so does a
    /// service or container below its own cgroup.
    pub is_of_system: bool,
}

impl CgroupPath {
    /// Creates a path that all hierarchies agree on.
    pub fn new(path: impl Into<String>) -> Self {
        Self { path: path.into(), is_disputed: false }
    }

    /// Parses the paths in all hierarchies, and takes one: that of a container, else of a service, else any but the
    /// root. The unified hierarchy comes first, then systemd's own. A host may have several: a container manager then
    /// makes cgroups in those of version 1 alone, and the unified one still shows the manager's service.
    pub fn parse(text: &str) -> Option<Self> {
        let mut paths: Vec<(u8, &str)> = text.lines().filter_map(parse_line).collect();
        paths.sort_by_key(|(rank, _)| *rank);
        let is_unit = |path: &str, is_container: bool| {
            innermost(path).is_some_and(|unit| unit.hypervisor.is_container() == is_container)
        };
        let all = || paths.iter().map(|(_, path)| *path);
        let first = |is: &dyn Fn(&str) -> bool| all().find(|path| is(path));
        let path = first(&|path| is_unit(path, true))
            .or_else(|| first(&|path| is_unit(path, false)))
            .or_else(|| first(&|path| !is_root(path)))
            .or_else(|| all().next())?;
        // Tools move processes about in a hierarchy of one controller: `cset` for processors, a VPN for packets.
        let counts = |rank, other| rank < OTHER_RANK || is_unit(other, true);
        let is_disputed = paths.iter().any(|&(rank, other)| counts(rank, other) && disputes(other, path));
        Some(Self { path: path.to_owned(), is_disputed })
    }

    /// Returns the whole path. It is no text for a terminal: a cgroup may have any name.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the name of the virtual machine of libvirt whose scope this is.
    pub(super) fn machine_name(&self) -> Option<String> {
        let next = self.path.split('/').skip(1).chain([""]);
        self.path.split('/').zip(next).find_map(|(part, next)| machine_name(part, next))
    }

    /// Returns true if the process is in a container, or may be: then its root is not that of the host.
    pub fn is_in_container(&self) -> bool {
        if self.is_disputed {
            return true;
        }
        let mut path = self.path.as_str();
        while let Some(unit) = innermost(path) {
            if unit.hypervisor.is_container() {
                return true;
            }
            path = &unit.path[..unit.path.rfind('/').unwrap_or(0)];
        }
        false
    }

    /// Returns the path of the container that the process is in, if no other unit has made it: leading `..` lie between
    /// this process and the root that it sees, and so above this process.
    pub(crate) fn container(&self) -> Option<&str> {
        let unit = innermost(self.path.trim_start_matches("/..")).filter(|unit| unit.hypervisor.is_container())?;
        (!self.is_disputed && is_made_by_system(&unit)).then_some(unit.path)
    }

    /// Returns the innermost service or container on the path. A container that a service started is the container; an
    /// application that a user's manager started is a service of its own.
    ///
    /// A cgroup that a service made below its own is a unit by itself, and none of the system's: the service may be a
    /// manager of an unknown kind, with guests of several owners there.
    pub fn unit(&self) -> Option<CgroupUnit<'_>> {
        let unit = innermost(&self.path)?;
        if unit.hypervisor.is_container() {
            let is_of_system = !self.is_disputed && is_made_by_system(&unit);
            return Some(CgroupUnit { is_of_system, ..unit });
        }
        let below = self.path.get(unit.path.len()..).unwrap_or_default();
        let name = format!("{}{}", unit.name, unescape(below));
        let is_of_system = below.is_empty() && is_made_by_system(&unit);
        // With a second opinion each process is a guest by itself.
        (!self.is_disputed).then_some(CgroupUnit { name, path: &self.path, is_of_system, ..unit })
    }
}

/// Rank of a hierarchy of version 1 that has neither systemd's units nor the memory controller.
const OTHER_RANK: u8 = 3;

/// Parses a line `NUMBER:CONTROLLERS:PATH`. Returns the rank of the hierarchy, the unified one first.
fn parse_line(line: &str) -> Option<(u8, &str)> {
    let (number, rest) = line.split_once(':')?;
    let (controllers, path) = rest.split_once(':')?;
    // The kernel marks the cgroup of a process that outlives it.
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    let rank = match (number, controllers) {
        ("0", "") => 0,
        (_, "") => return None,
        (_, "name=systemd") => 1,
        (_, controllers) if controllers.split(',').any(|controller| controller == "memory") => 2,
        _ => OTHER_RANK,
    };
    path.starts_with('/').then_some((rank, path))
}

/// Returns true for the root, or one above that of this process.
fn is_root(path: &str) -> bool {
    path.trim_start_matches("/..").trim_matches('/').is_empty()
}

/// Returns true if a path in another hierarchy contradicts the one that was taken. A hierarchy without the controllers
/// of a unit shows a part of its path only.
fn disputes(other: &str, path: &str) -> bool {
    let is_below = |path: &str, above: &str| {
        path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let Some(unit) = innermost(path) else { return false };
    if is_root(other) || is_below(path, other) || is_below(other, unit.path) {
        return false;
    }
    let is_container = unit.hypervisor.is_container();
    match innermost(other) {
        None => !is_container || (is_users(other) && !is_users(path)),
        Some(found) => {
            let is_same = found.name == unit.name && found.hypervisor.kind() == unit.hypervisor.kind();
            !(is_same || is_container && is_manager(found.path))
        }
    }
}

/// Returns true if the system's own manager, or a container manager that is its service, has made the unit.
///
/// The system manager makes slices and services in slices alone. What else lies in a slice is delegated to a user, or is
/// a container of an unknown manager. A container manager may have a directory of its own at the top.
fn is_made_by_system(unit: &CgroupUnit<'_>) -> bool {
    let parents = unit.path.rfind('/').and_then(|end| unit.path.get(..end)).unwrap_or_default();
    let mut parts = parents.split('/').skip(1);
    if is_users(parents) {
        return false;
    }
    if parts.clone().all(is_slice) {
        return true;
    }
    let is_at_top = !parts.clone().next().is_some_and(is_slice);
    let is_managers = innermost(parents).map_or(is_at_top, |maker| is_manager(maker.path));
    unit.hypervisor.is_container() && is_managers && !parts.any(|part| part.ends_with(".scope"))
}

fn is_slice(part: &str) -> bool {
    part.ends_with(".slice")
}

/// Returns true if a user makes, or may make, cgroups below this path: in a session of systemd or of libpam-cgfs
/// (`/user/NAME/NUMBER`), and above the root that this process sees.
fn is_users(path: &str) -> bool {
    let mut parts = path.split('/').skip(1);
    parts.clone().next() == Some("user")
        || parts.any(|part| part == ".." || part == "user.slice" || part.starts_with("user@"))
}

/// Returns the innermost service or container on a path, without a check of its maker.
fn innermost(whole: &str) -> Option<CgroupUnit<'_>> {
    let mut end = whole.len();
    loop {
        let (path, below) = whole.split_at(end);
        let start = path.rfind('/')?;
        let next = below.split('/').nth(1).unwrap_or_default();
        let of = |hypervisor: &&'static dyn Hypervisor| {
            let name = hypervisor.unit(&path[start + 1..], &path[..start], next)?;
            Some(CgroupUnit { hypervisor: *hypervisor, name, path, is_of_system: false })
        };
        if let Some(unit) = REGISTRY.iter().find_map(of) {
            return Some(unit);
        }
        end = start;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    type Found = Option<(String, String, String)>;

    fn unit_of(path: &str) -> Found {
        let cgroup = CgroupPath::new(path.replace("ID", ID));
        cgroup.unit().map(|unit| (unit.hypervisor.kind().to_string(), unit.name, unit.path.replace(ID, "ID")))
    }

    fn service(name: &str, at: &str) -> Found {
        Some(("service".to_owned(), name.to_owned(), at.to_owned()))
    }

    #[test]
    fn services_are_units() {
        assert_eq!(unit_of("/system.slice/redis.service"), service("redis", "/system.slice/redis.service"));
        let instance = r"/system.slice/system-pg.slice/pg@1\x2dmain.service";
        assert_eq!(unit_of(instance), service("pg@1-main", instance));
    }

    #[test]
    fn a_users_session_is_no_service_but_an_application_in_it_is() {
        assert_eq!(unit_of("/user.slice/user-0.slice/session-3.scope"), None);
        assert_eq!(unit_of("/user.slice/user-0.slice/user@0.service/init.scope"), None);
        let app = "/user.slice/user-1.slice/user@1.service/app.slice/mail.service";
        assert_eq!(unit_of(app), service("mail", app));
        assert_eq!(unit_of("/"), None);
        assert_eq!(unit_of(""), None);
    }

    #[test]
    fn a_cgroup_below_a_services_own_is_a_unit_by_itself() {
        for (path, name) in [
            ("/system.slice/a.service/child", "a/child"),
            (r"/system.slice/newd.service/guests/one\x2dtwo", "newd/guests/one-two"),
            ("/system.slice/htcondor.service/htcondor/slot1@host", "htcondor/htcondor/slot1@host"),
        ] {
            assert_eq!(unit_of(path), service(name, path));
        }
    }

    #[test]
    fn a_service_in_a_container_is_a_service() {
        let path = "/lxc.payload.web/system.slice/a.service";
        assert_eq!(unit_of(path), service("a", path));
    }

    #[test]
    fn a_unit_that_a_user_or_another_unit_has_made_is_not_the_systems() {
        for (path, expected) in [
            ("/system.slice/pg.service", true),
            ("/system.slice/pg.service/child", false),
            ("/system.slice/containerd.service/kubepods-pod1.slice:cri-containerd:ID", true),
            ("/system.slice/k3s.service/kubepods-pod1.slice:cri-containerd:ID", true),
            ("/system.slice/garden.service/garden/good/web", true),
            ("/system.slice/pg.service/kubepods-pod1.slice:cri-containerd:ID", false),
            ("/user.slice/user-1.slice/user@1.service/docker.service/docker/ID", false),
            ("/docker/ID/system.slice/containerd.service/ID", false),
            ("/system.slice/docker-ID.scope", true),
            ("/docker/ID", true),
            ("/kubepods/besteffort/pod12-34/ID", true),
            ("/lxc.payload.web/init.scope", true),
            ("/user.slice/user-1.slice/user@1.service/app.slice/pg.service", false),
            ("/user.slice/user-1.slice/session-1.scope/pg.service", false),
            ("/user.slice/user-1.slice/user@1.service/ID", false),
            ("/system.slice/a.service/pg.service", false),
            ("/lxc.payload.web/system.slice/pg.service", false),
            ("/docker/ID/system.slice/pg.service", false),
            ("/../pg.service", false),
            ("/pg.service", true),
            ("/system.slice/run-r1.scope/pg.service", false),
            (r"/machine.slice/machine-qemu\x2dbuild.scope/payload/system.slice/pg.service", false),
            ("/lxc/kata_db/system.slice/pg.service", false),
            ("/machine.slice/101/system.slice/pg.service", false),
            ("/default/box/system.slice/pg.service", false),
            ("/user/alice/0/ID", false),
            ("/system.slice/run-r1.scope/kubepods-podUID/ID", false),
            ("/run-r1.scope/kubepods-podUID/ID", false),
            ("/machine.slice/101/kubepods-podUID/ID", false),
            (
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podUID.slice/cri-containerd-ID.scope",
                true,
            ),
        ] {
            let path = path.replace("UID", "0d8f3d1e_3c4b_4c1e_9a52_6a1d0e5b7f10");
            let cgroup = CgroupPath::new(path.replace("ID", ID));
            assert_eq!(cgroup.unit().unwrap().is_of_system, expected, "{path}");
        }
    }

    #[test]
    fn a_process_is_in_a_container_at_any_depth() {
        let is_in = |path: &str| CgroupPath::new(path.replace("ID", ID)).is_in_container();
        for path in [
            "/lxc/kata_db/system.slice/a.service",
            r"/machine.slice/machine-qemu\x2dbuild.scope/payload/system.slice/a.service",
            r"/machine.slice/machine-qemu\x2d1\x2dbuild.scope/payload",
        ] {
            assert!(is_in(path), "{path}");
        }
        assert!(is_in("/docker/ID") && is_in("/docker/ID/system.slice/a.service/x") && is_in("/lxc/web/a.service"));
        assert!(
            !is_in("/system.slice/a.service")
                && !is_in("/")
                && !is_in("/machine.slice/machine-qemu\\x2d1\\x2da.scope")
        );
    }

    #[test]
    fn the_unified_path_is_taken_and_systemds_where_there_is_none() {
        let parse = |text| CgroupPath::parse(text).map(|cgroup| cgroup.path);
        assert_eq!(parse("0::/system.slice/a.service\n").as_deref(), Some("/system.slice/a.service"));
        let hybrid = "12:memory:/m\n1:name=systemd:/system.slice/b.service\n0::/\n";
        assert_eq!(parse(hybrid).as_deref(), Some("/system.slice/b.service"));
        assert_eq!(parse("12:cpu,cpuacct:/c\n9:memory:/m\n").as_deref(), Some("/m"));
        assert_eq!(parse("0::/\n").as_deref(), Some("/"));
        assert_eq!(parse("0::/a (deleted)\n").as_deref(), Some("/a"));
        assert_eq!(parse("nonsense"), None);
    }

    /// The unit that a text of `/proc/PID/cgroup` names, and true if it is the system's.
    fn found_in(text: &str) -> Option<(String, bool)> {
        let cgroup = CgroupPath::parse(&text.replace("ID", ID))?;
        cgroup.unit().map(|unit| (unit.name, unit.is_of_system))
    }

    #[test]
    fn a_container_in_any_hierarchy_counts_more_than_its_managers_service() {
        let container = Some((ID[..12].to_owned(), true));
        for text in [
            "12:memory:/docker/ID\n1:name=systemd:/docker/ID\n0::/system.slice/containerd.service\n",
            "9:memory:/kubepods/burstable/pod1/ID\n1:name=systemd:/kubepods/burstable/pod1/ID\n0::/system.slice/k3s.service\n",
            "9:memory:/docker/ID\n4:cpuset:/\n1:name=systemd:/system.slice/docker-ID.scope\n0::/system.slice/docker-ID.scope\n",
            "5:pids:/docker/ID\n2:memory:/system.slice\n1:name=systemd:/docker/ID/init.scope\n0::/docker/ID/init.scope\n",
        ] {
            assert_eq!(found_in(text), container, "{text}");
        }
    }

    #[test]
    fn hierarchies_that_disagree_verify_nothing() {
        let service = |other: &str| found_in(&format!("4:{other}\n1:name=systemd:/system.slice/a.service\n0::/\n"));
        for other in [
            "memory:/system.slice",
            "memory:/system.slice/a.service",
            "cpuset:/",
            "pids:/system.slice/a.service/x",
            "cpuset:/system",
            "net_cls:/mullvad-exclusions",
        ] {
            assert_eq!(service(other), Some(("a".to_owned(), true)), "{other}");
        }
        for other in ["memory:/newd/other", "memory:/system.slice/b.service", "memory:/user.slice"] {
            assert_eq!(service(other), None, "{other}");
        }
        for text in ["4:memory:/docker/ID\n0::/user.slice\n", "4:memory:/docker/ID\n0::/system.slice/a.service\n"] {
            assert_eq!(found_in(text), Some((ID[..12].to_owned(), false)), "{text}");
            assert!(CgroupPath::parse(&text.replace("ID", ID)).unwrap().container().is_none());
        }
        let text = "4:memory:/newd/other\n0::/system.slice/a.service\n";
        assert!(CgroupPath::parse(text).unwrap().is_in_container(), "it may be");
    }

    proptest! {
        #[test]
        fn no_path_panics_and_the_unit_lies_on_it(path in "(/[a-zéx\\\\@.0-9]{0,12}){0,5}(.service|.scope)?") {
            if let Some(unit) = CgroupPath::new(path.clone()).unit() {
                prop_assert!(path.starts_with(unit.path));
            }
        }
    }
}
