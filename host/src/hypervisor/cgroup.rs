//! The service or container that a process belongs to, from its cgroup path.

use super::{Hypervisor, REGISTRY};

/// The cgroup of a process: its path in `/proc/PID/cgroup`, without the mount point.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CgroupPath(pub String);

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
    /// Parses the path in the unified hierarchy (line `0::`), else that of systemd's own.
    pub fn parse(text: &str) -> Option<Self> {
        let find = |prefix: &str| {
            text.lines().find_map(|line| {
                let (number, rest) = line.split_once(':')?;
                let (controllers, path) = rest.split_once(':')?;
                (controllers == prefix && (number == "0" || !prefix.is_empty())).then(|| path.to_owned())
            })
        };
        let unified = find("").filter(|path| path != "/");
        unified.or_else(|| find("name=systemd")).or_else(|| find("memory")).or_else(|| find("")).map(Self)
    }

    /// Returns true if the process is in a container: then its root is not that of the host.
    pub fn is_in_container(&self) -> bool {
        let mut path = self.0.as_str();
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
        let unit = innermost(self.0.trim_start_matches("/..")).filter(|unit| unit.hypervisor.is_container())?;
        let parents = &unit.path[..unit.path.rfind('/')?];
        (innermost(parents).is_none() && !parents.split('/').any(is_users)).then_some(unit.path)
    }

    /// Returns the innermost service or container on the path. A container that a service started is the container; an
    /// application that a user's manager started is a service of its own.
    pub fn unit(&self) -> Option<CgroupUnit<'_>> {
        let unit = innermost(&self.0)?;
        let parents = &unit.path[..unit.path.rfind('/')?];
        let is_of_system = !parents.split('/').any(is_users) && innermost(parents).is_none();
        Some(CgroupUnit { is_of_system, ..unit })
    }
}

/// Returns true if a user makes, or may make, cgroups below this part of a path. That holds for all above the root that
/// this process sees.
fn is_users(part: &str) -> bool {
    part == ".." || part == "user.slice" || part.starts_with("user@")
}

/// Returns the innermost service or container on a path, without a check of its maker.
fn innermost(path: &str) -> Option<CgroupUnit<'_>> {
    let mut end = path.len();
    loop {
        let path = &path[..end];
        let start = path.rfind('/')?;
        let of = |hypervisor: &&'static dyn Hypervisor| {
            let name = hypervisor.unit(&path[start + 1..], &path[..start])?;
            Some(CgroupUnit { hypervisor: *hypervisor, name, path, is_of_system: false })
        };
        if let Some(unit) = REGISTRY.iter().find_map(of) {
            return Some(unit);
        }
        end = start;
    }
}

/// Decodes systemd's escapes: bytes that a unit's name can't have are written as `\xNN`.
pub(super) fn unescape(name: &str) -> String {
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some(first) = rest.chars().next() {
        let code = rest.strip_prefix("\\x").and_then(|rest| rest.get(..2));
        if let Some(byte) = code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            bytes.push(byte);
            rest = &rest[4..];
        } else {
            bytes.extend_from_slice(&rest.as_bytes()[..first.len_utf8()]);
            rest = &rest[first.len_utf8()..];
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    type Found = Option<(String, String, String)>;

    fn unit_of(path: &str) -> Found {
        let cgroup = CgroupPath(path.replace("ID", ID));
        cgroup.unit().map(|unit| (unit.hypervisor.kind().to_string(), unit.name, unit.path.replace(ID, "ID")))
    }

    fn container(name: &str, at: &str) -> Found {
        Some(("container".to_owned(), name.to_owned(), at.to_owned()))
    }

    fn service(name: &str, at: &str) -> Found {
        Some(("service".to_owned(), name.to_owned(), at.to_owned()))
    }

    #[test]
    fn services_are_units() {
        assert_eq!(unit_of("/system.slice/redis.service"), service("redis", "/system.slice/redis.service"));
        assert_eq!(unit_of("/system.slice/a.service/child"), service("a", "/system.slice/a.service"));
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
    fn the_paths_of_every_container_manager_are_known() {
        let short = &ID[..12];
        for path in [
            "/docker/ID",
            "/system.slice/docker-ID.scope",
            "/machine.slice/libpod-ID.scope",
            "/libpod_parent/libpod-ID",
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice/cri-containerd-ID.scope",
            "/kubepods/besteffort/pod12-34/ID",
            "/kubepods.slice/crio-ID.scope",
        ] {
            assert_eq!(unit_of(path), container(short, path), "{path}");
        }
        assert_eq!(
            unit_of("/machine.slice/libpod-ID.scope/container"),
            container(short, "/machine.slice/libpod-ID.scope")
        );
        assert_eq!(unit_of("/lxc/web"), container("web", "/lxc/web"));
        assert_eq!(unit_of("/lxc.payload.web/init.scope"), container("web", "/lxc.payload.web"));
        assert_eq!(
            unit_of("/lxc.payload.web/system.slice/a.service"),
            service("a", "/lxc.payload.web/system.slice/a.service")
        );
        let nspawn = r"/machine.slice/machine-my\x2dbox.scope";
        assert_eq!(unit_of(nspawn), container("my-box", nspawn));
        assert_eq!(unit_of(r"/machine.slice/machine-qemu\x2d1\x2dweb.scope"), None);
    }

    #[test]
    fn a_unit_that_a_user_or_another_unit_has_made_is_not_the_systems() {
        for (path, expected) in [
            ("/system.slice/pg.service", true),
            ("/system.slice/pg.service/child", true),
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
        ] {
            let cgroup = CgroupPath(path.replace("ID", ID));
            assert_eq!(cgroup.unit().unwrap().is_of_system, expected, "{path}");
        }
    }

    #[test]
    fn a_process_is_in_a_container_at_any_depth() {
        let is_in = |path: &str| CgroupPath(path.replace("ID", ID)).is_in_container();
        assert!(is_in("/docker/ID") && is_in("/docker/ID/system.slice/a.service/x") && is_in("/lxc/web/a.service"));
        assert!(
            !is_in("/system.slice/a.service")
                && !is_in("/")
                && !is_in("/machine.slice/machine-qemu\\x2d1\\x2da.scope")
        );
    }

    #[test]
    fn the_unified_path_is_taken_and_systemds_where_there_is_none() {
        let parse = |text| CgroupPath::parse(text).map(|cgroup| cgroup.0);
        assert_eq!(parse("0::/system.slice/a.service\n").as_deref(), Some("/system.slice/a.service"));
        let hybrid = "12:memory:/m\n1:name=systemd:/system.slice/b.service\n0::/\n";
        assert_eq!(parse(hybrid).as_deref(), Some("/system.slice/b.service"));
        assert_eq!(parse("12:cpu,cpuacct:/c\n9:memory:/m\n").as_deref(), Some("/m"));
        assert_eq!(parse("0::/\n").as_deref(), Some("/"));
        assert_eq!(parse("nonsense"), None);
    }

    proptest! {
        #[test]
        fn no_path_panics_and_the_unit_lies_on_it(path in "(/[a-zéx\\\\@.0-9]{0,12}){0,5}(.service|.scope)?") {
            if let Some(unit) = CgroupPath(path.clone()).unit() {
                prop_assert!(path.starts_with(unit.path));
            }
        }
    }
}
