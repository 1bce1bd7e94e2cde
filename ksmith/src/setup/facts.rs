//! The state of the host that the plan of a setup depends on.

use std::path::PathBuf;

use ksmith_core::guest::Guest;
use ksmith_core::other_controllers::{BootState, FoundController};
use ksmith_core::reading::Reading;
use ksmith_host::ksm_counts::ksm_as_counted;
use ksmith_host::other_controllers::survey;
use ksmith_host::owner::OwnershipSnapshot;
use ksmith_host::root::Root;
use ksmith_host::systemd;
use ksmith_host::users::group_id;
use ksmith_service::config::Config;
use ksmith_service::folder::FoldMode;

use super::domain_nodes::NodeFacts;
use super::drop_ins::{ABSTRACT_SOCKETS, CGROUPS, DIRECTORY, DropIn, FOLD, GUESTS_OF_USERS, KSMD_CPUS};

/// The groups that the units need.
const GROUPS: [&str; 2] = ["ksmith", "ksmith-view"];

/// The state of the host before a setup.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SetupFacts {
    /// True if the kernel has KSM.
    pub has_ksm: bool,
    /// The error in the text of `/sys/kernel/mm/ksm/run`, if that is no number.
    pub senseless_ksm: Option<String>,
    /// True if systemd is the service manager.
    pub has_systemd: bool,
    /// Installed units of ksmith, each with two flags: enabled, and active.
    pub units: Vec<(String, bool, bool)>,
    /// True if there is a configuration.
    pub has_config: bool,
    /// Groups that are missing.
    pub missing_groups: Vec<String>,
    /// Other controllers of KSM.
    pub controllers: Vec<FoundController>,
    /// For each service of a controller the links that enable it, each with its target.
    pub links: Vec<(String, Vec<(PathBuf, PathBuf)>)>,
    /// Drop-ins that this host needs and does not have, each with the reason.
    pub(super) drop_ins: Vec<(DropIn, String)>,
    /// The host's NUMA nodes, where domains are planned.
    pub nodes: NodeFacts,
    /// A guest that the daemon can't ask without such a drop-in, and that nobody but its own user vouches for.
    pub(super) unvouched: Option<String>,
}

impl SetupFacts {
    /// Reads the state of a host with these guests and this configuration.
    pub fn read_host(root: &Root, config: &Config, guests: &[Guest]) -> Self {
        let is_there = |path: &str| root.path(path.trim_start_matches('/')).symlink_metadata().is_ok();
        let unit = |unit: &str| {
            let is_enabled = systemd::at_boot(root, unit) == BootState::Enabled;
            systemd::exists(root, unit).then(|| (unit.to_owned(), is_enabled, systemd::is_active(root, unit)))
        };
        let run = ksm_as_counted(root).run;
        let controllers = survey(root);
        let services = controllers.iter().flat_map(|found| &found.states).map(|state| state.service);
        let links = services.map(|service| (service.to_owned(), links(root, service))).collect();
        let mut unvouched = None;
        let drop_ins = needed(root, config, guests, &mut unvouched)
            .into_iter()
            .filter(|(drop_in, _)| !is_there(&format!("{DIRECTORY}/{}", drop_in.name)))
            .collect();
        Self {
            has_ksm: run != Reading::Absent,
            senseless_ksm: match run {
                Reading::Malformed(why) => Some(why.to_string()),
                Reading::Value(_) | Reading::Absent | Reading::Denied => None,
            },
            has_systemd: systemd::is_running(root),
            units: ["ksmith.service", "ksmith-serve.socket"].into_iter().filter_map(unit).collect(),
            has_config: is_there("etc/ksmith.toml"),
            missing_groups: GROUPS.iter().filter(|name| !has_group(root, name)).map(ToString::to_string).collect(),
            controllers,
            links,
            drop_ins,
            nodes: NodeFacts::default(),
            unvouched,
        }
    }

    /// Returns the two flags of a unit, enabled and active, if it is installed.
    pub(super) fn unit(&self, name: &str) -> Option<(bool, bool)> {
        self.units.iter().find(|(unit, ..)| unit == name).map(|&(_, enabled, active)| (enabled, active))
    }
}

fn links(root: &Root, service: &str) -> Vec<(PathBuf, PathBuf)> {
    let links = systemd::enabling_links(root, service).into_iter();
    let pair = |link: PathBuf| {
        let target = std::fs::read_link(&link).ok()?;
        let inside = link.strip_prefix(root.path("")).ok()?.to_owned();
        Some((PathBuf::from("/").join(inside), target))
    };
    links.filter_map(pair).collect()
}

fn has_group(root: &Root, name: &str) -> bool {
    if root.is_host() {
        return group_id(name).is_some();
    }
    let groups = root.text("etc/group");
    groups.value().is_some_and(|text| text.lines().any(|line| line.split(':').next() == Some(name)))
}

/// Returns true if `[balance] users` names the guest's user in full. A pattern may fit users whom nobody had in mind.
fn has_named_user(config: &Config, guest: &Guest) -> bool {
    let is_full = |name: &str| !name.contains(['*', '?']);
    guest.only_user().is_some_and(|user| config.balance.users.iter().any(|name| is_full(name) && name == user))
}

/// Returns two flags: the guest answers at an abstract socket by its own words; and root of this host has started its
/// program, and so has written them. A container or libvirt vouches for a guest, and not for its command line.
fn abstract_socket(root: &Root, guest: &Guest) -> (bool, bool) {
    let Some(id) = guest.processes.first() else { return (false, false) };
    let before = OwnershipSnapshot::at(root, id.pid);
    let line = root.text(format!("proc/{}/cmdline", id.pid));
    let is_abstract = line.value().is_some_and(|text| text.contains("abstract=on"));
    let is_roots = before.is_roots_program() && before == OwnershipSnapshot::at(root, id.pid);
    (guest.kind.word() == "uml" || is_abstract, is_roots)
}

/// Returns the drop-ins that this host needs, each with the reason. A guest that is not verified needs none, unless the
/// configuration names its user: any process may look like a guest, and the drop-ins widen what the daemon may do.
fn needed(root: &Root, config: &Config, guests: &[Guest], unvouched: &mut Option<String>) -> Vec<(DropIn, String)> {
    let mut needed = Vec::new();
    let is_of_user =
        |guest: &&Guest| guest.memory_bytes.is_some() && !guest.is_verified && guest.uid.is_none_or(|uid| uid != 0);
    let mut first_vouched = |needs: &dyn Fn(&&Guest) -> bool, has_voucher: &dyn Fn(&Guest) -> bool| {
        let (vouched, others): (Vec<&Guest>, Vec<&Guest>) =
            guests.iter().filter(needs).partition(|guest| has_voucher(guest) || has_named_user(config, guest));
        if let (None, Some(other)) = (&unvouched, others.first()) {
            *unvouched = Some(other.title());
        }
        vouched.first().copied()
    };
    if let Some(guest) = first_vouched(&is_of_user, &|guest| guest.is_verified) {
        needed.push((GUESTS_OF_USERS, format!("the monitor of {} belongs to a user", guest.title())));
    }
    let needs_abstract = |guest: &&Guest| abstract_socket(root, guest).0;
    let is_roots = |guest: &Guest| guest.is_verified && abstract_socket(root, guest).1;
    if let Some(guest) = first_vouched(&needs_abstract, &is_roots) {
        needed.push((ABSTRACT_SOCKETS, format!("{} answers at an abstract socket", guest.title())));
    }
    if !config.balance.cgroups.is_empty() {
        needed.push((CGROUPS, "[balance] cgroups is configured".to_owned()));
    }
    if config.daemon.ksmd_cpus.is_some() {
        needed.push((KSMD_CPUS, "[daemon] ksmd_cpus is configured".to_owned()));
    }
    if config.fold.mode != FoldMode::Off {
        needed.push((FOLD, "[fold] mode is configured".to_owned()));
    } else if config.guests.prunes_for_splits() {
        needed.push((FOLD, "[guests] prune is configured, for guests on huge pages".to_owned()));
    }
    needed
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use ksmith_core::guest::GuestKind;
    use ksmith_core::sample::ProcessId;

    use super::*;

    fn put(tree: &Path, path: &str, text: &str) {
        fs::create_dir_all(tree.join(path).parent().unwrap()).unwrap();
        fs::write(tree.join(path), text).unwrap();
    }

    fn guest(kind: &'static str, uid: u32, pid: u32) -> Guest {
        let json = serde_json::json!({
            "name": "web", "uuid": null, "kind": kind, "processes": [{ "pid": pid, "start_ticks": 1 }], "program": "x",
            "memory_bytes": 1 << 30, "cgroup": null, "user": "alice", "uid": uid, "metadata": null, "domain": null,
            "mergeable": true, "offered": null, "obstacle": null, "figures": ksmith_core::guest::GuestMemoryFigures::default(), "errors": [],
        });
        let guest: Guest = serde_json::from_value(json).unwrap();
        assert_eq!((guest.kind, guest.processes[0]), (GuestKind::new(kind), ProcessId { pid, start_ticks: 1 }));
        guest
    }

    fn names(facts: &SetupFacts) -> Vec<&str> {
        facts.drop_ins.iter().map(|(drop_in, _)| drop_in.name).collect()
    }

    #[test]
    fn a_host_needs_a_drop_in_for_what_it_has_and_only_once() {
        let tree = tempfile::tempdir().unwrap();
        let root = Root::at(tree.path());
        let plain = Config::default();
        let of = |config: &Config, guests: &[Guest]| SetupFacts::read_host(&root, config, guests);
        assert!(names(&of(&plain, &[guest("qemu", 0, 7)])).is_empty(), "root's guests need none");
        let verified = |kind, uid| Guest { is_verified: true, ..guest(kind, uid, 7) };
        put(tree.path(), "proc/7/status", "Uid:\t0\t0\t0\t0\nNSpid:\t7\n");
        assert_eq!(names(&of(&plain, &[verified("uml", 0)])), ["abstract-sockets.conf"]);
        put(tree.path(), "proc/7/cmdline", "qemu\0-qmp\0unix:path=x,abstract=on\0");
        assert_eq!(names(&of(&plain, &[verified("qemu", 0)])), ["abstract-sockets.conf"]);
        let mut config = Config::default();
        config.daemon.ksmd_cpus = Some("0".to_owned().into());
        config.balance.cgroups = vec!["a.slice".into()];
        config.guests.prune = true;
        assert_eq!(names(&of(&config, &[])), ["cgroups.conf", "ksmd-cpus.conf", "fold.conf"]);
        (config.guests.prune, config.fold.mode) = (false, FoldMode::Guests);
        assert_eq!(names(&of(&config, &[])), ["cgroups.conf", "ksmd-cpus.conf", "fold.conf"]);
        put(tree.path(), "etc/systemd/system/ksmith.service.d/cgroups.conf", "");
        assert_eq!(names(&of(&config, &[])), ["ksmd-cpus.conf", "fold.conf"]);
    }

    #[test]
    fn processes_that_look_like_guests_widen_no_rights_unless_the_configuration_names_their_user() {
        let tree = tempfile::tempdir().unwrap();
        let root = Root::at(tree.path());
        put(tree.path(), "proc/7/cmdline", "qemu\0-qmp\0unix:path=x,abstract=on\0");
        let spoofs = [guest("qemu", 1000, 7), guest("uml", 1000, 8)];
        let facts = SetupFacts::read_host(&root, &Config::default(), &spoofs);
        assert!(facts.drop_ins.is_empty(), "{:?}", facts.drop_ins);
        assert!(facts.unvouched.is_some_and(|name| name.starts_with("web")));
        let mut config = Config::default();
        config.balance.users = vec!["bob".into()];
        assert!(SetupFacts::read_host(&root, &config, &spoofs).drop_ins.is_empty());
        for pattern in ["*", "ali*", "alic?"] {
            config.balance.users = vec![pattern.into()];
            assert!(SetupFacts::read_host(&root, &config, &spoofs).drop_ins.is_empty(), "{pattern}");
        }
        let rule = "[[domains.rule]]\ndomain = \"a\"\nuser = \"alice\"";
        let ruled = Config::parse(Path::new("ksmith.toml"), rule).unwrap();
        assert!(SetupFacts::read_host(&root, &ruled, &spoofs).drop_ins.is_empty(), "a rule keeps apart");
        config.balance.users = vec!["alice".into()];
        let facts = SetupFacts::read_host(&root, &config, &spoofs);
        assert_eq!(names(&facts), ["guests-of-users.conf", "abstract-sockets.conf"]);
        assert_eq!(facts.unvouched, None);
    }

    #[test]
    fn the_command_line_of_a_guest_in_a_container_or_of_libvirts_user_opens_no_abstract_sockets() {
        let tree = tempfile::tempdir().unwrap();
        let root = Root::at(tree.path());
        put(tree.path(), "proc/7/cmdline", "qemu\0-qmp\0unix:path=x,abstract=on\0");
        let verified = Guest { is_verified: true, ..guest("qemu", 0, 7) };
        let of = || SetupFacts::read_host(&root, &Config::default(), std::slice::from_ref(&verified));
        for status in ["Uid:\t0\t0\t0\t0\nNSpid:\t7\t1\n", "Uid:\t64055\t64055\t64055\t64055\nNSpid:\t7\n"] {
            put(tree.path(), "proc/7/status", status);
            assert!(of().drop_ins.is_empty() && of().unvouched.is_some(), "{status}");
        }
        put(tree.path(), "proc/7/status", "Uid:\t0\t0\t0\t0\nNSpid:\t7\n");
        assert_eq!(names(&of()), ["abstract-sockets.conf"]);
    }

    #[test]
    fn a_host_is_told_by_its_files() {
        let tree = tempfile::tempdir().unwrap();
        let root = Root::at(tree.path());
        let nothing = SetupFacts::read_host(&root, &Config::default(), &[]);
        assert_eq!(nothing.missing_groups, GROUPS);
        assert!(!nothing.has_ksm && !nothing.has_systemd && !nothing.has_config && nothing.units.is_empty());
        put(tree.path(), "sys/kernel/mm/ksm/run", "0\n");
        put(tree.path(), "etc/group", "root:x:0:\nksmith:x:990:\nksmith-view2:x:991:\n");
        put(tree.path(), "etc/ksmith.toml", "");
        put(tree.path(), "lib/systemd/system/ksmith.service", "");
        put(tree.path(), "lib/systemd/system/ksmtuned.service", "");
        fs::create_dir_all(root.path("run/systemd/system")).unwrap();
        let wants = root.path("etc/systemd/system/multi-user.target.wants");
        fs::create_dir_all(&wants).unwrap();
        symlink("/lib/systemd/system/ksmtuned.service", wants.join("ksmtuned.service")).unwrap();
        let facts = SetupFacts::read_host(&root, &Config::default(), &[]);
        assert_eq!(facts.missing_groups, ["ksmith-view"]);
        assert!(facts.has_ksm && facts.has_systemd && facts.has_config);
        assert_eq!(facts.units, [("ksmith.service".to_owned(), false, false)]);
        let link = PathBuf::from("/etc/systemd/system/multi-user.target.wants/ksmtuned.service");
        let target = PathBuf::from("/lib/systemd/system/ksmtuned.service");
        assert_eq!(facts.links, [("ksmtuned.service".to_owned(), vec![(link, target)])]);
    }
}
