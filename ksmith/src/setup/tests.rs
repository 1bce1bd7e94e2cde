//! Setups and undos on a host in memory, with a kill at any moment.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use ksmith_core::other_controllers::{BootState, FoundController, LineEdit, ServiceState, TunedProfile, row};
use proptest::prelude::*;

use super::drop_ins::{CGROUPS, DIRECTORY, GUESTS_OF_USERS};
use super::*;

const UNITS: [&str; 5] =
    ["ksmtuned.service", "ksm.service", "ksmith.service", "ksmith-serve.socket", "mom-vdsm.service"];

/// The active profile of tuned, and whether tuned chose it.
const ACTIVE_PROFILE: &str = "/etc/tuned/active_profile";
const PROFILE_MODE: &str = "/etc/tuned/profile_mode";

/// A host: files, the links that enable units, active units, groups with their members.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct FakeSystem {
    files: BTreeMap<PathBuf, String>,
    links: BTreeMap<PathBuf, PathBuf>,
    active: BTreeSet<String>,
    groups: BTreeSet<String>,
    /// True if systemd has not read a drop-in that was written or removed.
    is_stale: bool,
}

/// The host with a kill before or after an operation.
#[derive(Debug, Default)]
struct KillableHost {
    world: FakeSystem,
    done: usize,
    kill: Option<(usize, bool)>,
    commands: Vec<String>,
}

fn unit_file(unit: &str) -> PathBuf {
    Path::new("/lib/systemd/system").join(unit)
}

/// Returns the link that the unit's own `[Install]` section requests.
fn own_link(unit: &str) -> PathBuf {
    Path::new("/etc/systemd/system/multi-user.target.wants").join(unit)
}

/// Returns the link that masks a unit.
fn mask(unit: &str) -> PathBuf {
    Path::new("/etc/systemd/system").join(unit)
}

fn extra_link(unit: &str) -> PathBuf {
    Path::new("/etc/systemd/system/custom.target.wants").join(unit)
}

fn killed() -> SetupError {
    SetupError::File { path: "killed".into(), source: io::ErrorKind::Interrupted.into() }
}

impl FakeSystem {
    fn is_enabled(&self, unit: &str) -> bool {
        self.links.contains_key(&own_link(unit)) || self.links.contains_key(&extra_link(unit))
    }

    fn systemctl(&mut self, arguments: &[&str]) {
        let (verbs, units): (Vec<&str>, Vec<&str>) = arguments.iter().partition(|a| !a.contains('.'));
        let is_now = verbs.contains(&"--now");
        for unit in units {
            match verbs[0] {
                "enable" => drop(self.links.insert(own_link(unit), unit_file(unit))),
                "mask" => drop(self.links.insert(mask(unit), "/dev/null".into())),
                "unmask" => drop(self.links.remove(&mask(unit))),
                "disable" => self.links.retain(|link, _| link.file_name().unwrap() != unit),
                _ => {}
            }
            match verbs[0] {
                "start" => self.start(unit),
                "enable" if is_now => self.start(unit),
                "stop" => self.stop(unit),
                "disable" | "mask" if is_now => self.stop(unit),
                _ => {}
            }
        }
    }

    fn tuned_adm(&mut self, arguments: &[&str]) {
        let (profile, mode) = match arguments {
            ["auto_profile"] => ("rt", "auto"),
            ["profile", name] => (*name, "manual"),
            _ => panic!("tuned-adm {arguments:?}"),
        };
        let has_made_one = self.files.contains_key(Path::new("/etc/tuned/rt-ksmith/tuned.conf"));
        assert!(profile == "rt" || has_made_one, "there is no profile {profile}");
        self.files.insert(ACTIVE_PROFILE.into(), profile.to_owned());
        self.files.insert(PROFILE_MODE.into(), mode.to_owned());
    }

    /// Returns tuned with the profile that sets KSM, if that is the active one.
    fn tuned(&self) -> Option<FoundController> {
        let file = |path: &str| self.files.get(Path::new(path)).map(String::as_str);
        let profile = TunedProfile {
            active: vec!["rt".into()],
            options: vec![("sysfs".into(), "/sys/kernel/mm/ksm/run".into())],
            is_automatic: file(PROFILE_MODE) == Some("auto"),
            is_post_loaded: false,
            directory: "/etc/tuned".into(),
        };
        (file(ACTIVE_PROFILE) == Some("rt")).then(|| FoundController {
            controller: row("tuned").unwrap(),
            pids: vec![40],
            profile: Some(profile),
            states: Vec::new(),
            files: Vec::new(),
            is_on: false,
        })
    }

    /// Starts a unit. ksmtuned has Requires=ksm.service.
    fn start(&mut self, unit: &str) {
        self.active.insert(unit.to_owned());
        if unit == "ksmtuned.service" {
            self.active.insert("ksm.service".to_owned());
        }
    }

    fn stop(&mut self, unit: &str) {
        self.active.remove(unit);
        if unit == "ksm.service" {
            self.active.remove("ksmtuned.service");
        }
    }

    fn facts(&self, has_systemd: bool, needs: u8) -> SetupFacts {
        let state = |service: &'static str| ServiceState {
            service,
            is_active: self.active.contains(service),
            at_boot: match self.is_enabled(service) {
                _ if self.links.contains_key(&mask(service)) => BootState::Masked,
                true => BootState::Enabled,
                false => BootState::Disabled,
            },
        };
        let controller = |name: &str| {
            let row = row(name).unwrap();
            let states = row.services.iter().map(|service| state(service)).collect();
            FoundController {
                controller: row,
                pids: Vec::new(),
                profile: None,
                states,
                files: Vec::new(),
                is_on: false,
            }
        };
        let links_of = |unit: &&str| {
            let links = self.links.iter().filter(|(link, _)| link.file_name().unwrap() == *unit);
            ((*unit).to_owned(), links.map(|(link, target)| (link.clone(), target.clone())).collect())
        };
        let drop_ins = [GUESTS_OF_USERS, CGROUPS].into_iter().enumerate();
        SetupFacts {
            has_ksm: true,
            senseless_ksm: None,
            has_systemd,
            units: UNITS[2..4]
                .iter()
                .map(|unit| ((*unit).to_owned(), self.is_enabled(unit), self.active.contains(*unit)))
                .collect(),
            has_config: self.files.contains_key(Path::new("/etc/ksmith.toml")),
            missing_groups: ["ksmith", "ksmith-view"]
                .into_iter()
                .filter(|group| !self.groups.contains(*group))
                .map(str::to_owned)
                .collect(),
            controllers: ["ksmtuned", "ksm.service", "momd"]
                .map(controller)
                .into_iter()
                .chain(self.tuned())
                .collect(),
            links: UNITS.iter().map(links_of).collect(),
            drop_ins: drop_ins
                .filter(|(bit, drop_in)| {
                    needs >> bit & 1 == 1 && !self.files.contains_key(&Path::new(DIRECTORY).join(drop_in.name))
                })
                .map(|(_, drop_in)| (drop_in, "a reason".to_owned()))
                .collect(),
            nodes: NodeFacts::default(),
            unvouched: None,
        }
    }
}

impl KillableHost {
    fn new(world: FakeSystem) -> Self {
        Self { world, ..Self::default() }
    }

    fn operate(&mut self, act: impl FnOnce(&mut FakeSystem)) -> Result<(), SetupError> {
        let number = self.done;
        self.done += 1;
        match self.kill {
            Some((at, _)) if number > at => return Err(killed()),
            Some((at, false)) if number == at => return Err(killed()),
            _ => {}
        }
        act(&mut self.world);
        match self.kill {
            Some((at, _)) if number == at => Err(killed()),
            _ => Ok(()),
        }
    }

    fn setup(&mut self, needs: u8, choices: SetupChoices) -> Result<(), SetupError> {
        let plan = SetupPlan::new(&self.world.facts(true, needs), choices);
        assert_eq!(plan.obstacles, [""; 0]);
        carry_out(self, &plan.steps, |_| ())
    }

    /// Runs `work` with a kill at an operation from now on.
    fn with_kill<T>(&mut self, kill: Option<(usize, bool)>, work: impl FnOnce(&mut Self) -> T) -> T {
        (self.done, self.kill) = (0, kill);
        let outcome = work(self);
        self.kill = None;
        outcome
    }
}

impl SetupEffects for KillableHost {
    fn text(&self, path: &Path) -> Result<Option<String>, SetupError> {
        if path == Path::new("/etc/group") {
            return Ok(Some(self.world.groups.iter().map(|group| format!("{group}:x:9:\n")).collect()));
        }
        Ok(self.world.files.get(path).cloned())
    }

    fn exists(&self, path: &Path) -> bool {
        self.world.files.contains_key(path)
            || self.world.links.contains_key(path)
            || UNITS.iter().any(|unit| unit_file(unit) == path)
    }

    fn write(&mut self, path: &Path, text: &str, mode: u32) -> Result<(), SetupError> {
        assert_eq!(mode == 0o600, path == Path::new(NOTES), "only root reads the notes");
        self.operate(|world| {
            world.is_stale |= path.starts_with(DIRECTORY);
            world.files.insert(path.to_owned(), text.to_owned());
        })
    }

    fn remove(&mut self, path: &Path) -> Result<(), SetupError> {
        self.operate(|world| {
            world.is_stale |= path.starts_with(DIRECTORY);
            world.files.remove(path);
        })
    }

    fn link(&mut self, path: &Path, target: &Path) -> Result<(), SetupError> {
        self.operate(|world| drop(world.links.insert(path.to_owned(), target.to_owned())))
    }

    fn run(&mut self, program: &str, arguments: &[&str]) -> Result<(), SetupError> {
        self.commands.push([&[program], arguments].concat().join(" "));
        if arguments.first() == Some(&"enable") && arguments.contains(&"ksmith.service") {
            assert!(!self.world.is_stale, "the service starts with its drop-ins: {:?}", self.commands);
        }
        let last = arguments.last().unwrap().to_string();
        self.operate(|world| match program {
            "groupadd" => drop(world.groups.insert(last)),
            "groupdel" => drop(world.groups.remove(&last)),
            "tuned-adm" => world.tuned_adm(arguments),
            _ if arguments == ["daemon-reload"] => world.is_stale = false,
            _ => world.systemctl(arguments),
        })
    }
}

fn host() -> FakeSystem {
    let mut world = FakeSystem::default();
    for unit in &UNITS[..2] {
        world.systemctl(&["enable", "--now", unit]);
    }
    world
}

#[test]
fn a_setup_hands_over_and_its_undo_hands_back_in_the_right_order() {
    let mut machine = KillableHost::new(host());
    machine.setup(1, SetupChoices { serve: true, ..SetupChoices::default() }).unwrap();
    assert_eq!(
        machine.commands,
        [
            "groupadd --force --system ksmith",
            "groupadd --force --system ksmith-view",
            "systemctl disable --now ksmtuned.service",
            "systemctl disable --now ksm.service",
            "systemctl daemon-reload",
            "systemctl try-restart ksmith.service",
            "systemctl enable --now ksmith.service",
            "systemctl enable --now ksmith-serve.socket",
        ]
    );
    assert_eq!(Vec::from_iter(&machine.world.active), ["ksmith-serve.socket", "ksmith.service"]);
    machine.commands.clear();
    let undone = undo(&mut machine, false, true).unwrap();
    assert!(undone.failed.is_empty() && undone.kept.is_empty(), "{undone:?}");
    assert_eq!(
        machine.commands,
        [
            "systemctl disable ksmith-serve.socket",
            "systemctl stop ksmith-serve.socket",
            "systemctl disable ksmith.service",
            "systemctl stop ksmith.service",
            "systemctl daemon-reload",
            "systemctl try-restart ksmith.service",
            "systemctl enable ksm.service",
            "systemctl start ksm.service",
            "systemctl enable ksmtuned.service",
            "systemctl start ksmtuned.service",
            "groupdel ksmith-view",
            "groupdel ksmith",
        ]
    );
    assert_eq!(machine.world, host());
}

#[test]
fn a_second_setup_has_nothing_to_do() {
    let mut machine = KillableHost::new(host());
    machine.setup(3, SetupChoices::default()).unwrap();
    let plan = SetupPlan::new(&machine.world.facts(true, 3), SetupChoices::default());
    assert_eq!(plan.steps, []);
    assert!(!needs_restart(&machine).unwrap());
}

#[test]
fn what_was_edited_since_stays() {
    let mut machine = KillableHost::new(host());
    machine.setup(0, SetupChoices::default()).unwrap();
    machine.world.files.insert("/etc/ksmith.toml".into(), "[limits]\nmax_cpu = \"20%\"\n".into());
    let undone = undo(&mut machine, false, true).unwrap();
    assert_eq!(undone.kept, ["/etc/ksmith.toml stays: it was edited since"]);
    assert!(!machine.exists(Path::new(NOTES)), "and it is not tried again");
}

#[test]
fn without_systemd_only_files_and_groups_are_made() {
    let plan = SetupPlan::new(&host().facts(false, 3), SetupChoices { serve: true, ..SetupChoices::default() });
    let commands: Vec<String> = plan.steps.iter().map(SetupStep::command).collect();
    assert_eq!(commands, ["write /etc/ksmith.toml", "groupadd --system ksmith", "groupadd --system ksmith-view"]);
    assert!(plan.notes[0].contains("systemd does not run here"), "{:?}", plan.notes);
}

#[test]
fn tuned_and_momd_hand_over_and_get_back_what_they_had() {
    for mode in ["manual", "auto"] {
        let mut world = FakeSystem::default();
        world.systemctl(&["enable", "--now", "mom-vdsm.service"]);
        world.files.insert(ACTIVE_PROFILE.into(), "rt".into());
        world.files.insert(PROFILE_MODE.into(), mode.into());
        let mut machine = KillableHost::new(world.clone());
        let plan = SetupPlan::new(&machine.world.facts(true, 0), SetupChoices::default());
        assert!(plan.notes.iter().any(|note| note.starts_with("momd: ") && note.contains("balloons")), "{plan:?}");
        machine.setup(0, SetupChoices::default()).unwrap();
        assert_eq!(
            machine.commands[2..],
            [
                "systemctl mask --now mom-vdsm.service",
                "tuned-adm profile rt-ksmith",
                "systemctl enable --now ksmith.service"
            ]
        );
        let made = &machine.world.files[Path::new("/etc/tuned/rt-ksmith/tuned.conf")];
        assert_eq!(made, "[main]\ninclude=rt\n[sysfs]\ndrop=/sys/kernel/mm/ksm/run\n");
        assert_eq!(SetupPlan::new(&machine.world.facts(true, 0), SetupChoices::default()).steps, []);
        machine.commands.clear();
        let undone = undo(&mut machine, false, true).unwrap();
        assert!(undone.failed.is_empty() && undone.kept.is_empty(), "{undone:?}");
        let back = if mode == "auto" { "tuned-adm auto_profile" } else { "tuned-adm profile rt" };
        assert_eq!(
            machine.commands[2..5],
            [back, "systemctl unmask mom-vdsm.service", "systemctl start mom-vdsm.service"]
        );
        assert_eq!(machine.world, world);
    }
}

#[test]
fn another_profile_that_was_chosen_since_stays() {
    let mut world = FakeSystem::default();
    world.files.insert(ACTIVE_PROFILE.into(), "rt".into());
    let mut machine = KillableHost::new(world);
    machine.setup(0, SetupChoices::default()).unwrap();
    machine.world.files.insert(ACTIVE_PROFILE.into(), "powersave".into());
    machine.commands.clear();
    let undone = undo(&mut machine, false, true).unwrap();
    assert!(undone.done.contains(&"remove /etc/tuned/rt-ksmith/tuned.conf".to_owned()), "{undone:?}");
    assert!(!machine.commands.iter().any(|command| command.starts_with("tuned-adm")), "{:?}", machine.commands);
    assert_eq!(machine.world.files[Path::new(ACTIVE_PROFILE)], "powersave");
}

#[test]
fn a_controller_that_a_person_must_stop_is_an_obstacle() {
    let mut facts = host().facts(true, 0);
    let found = |name: &str, pids| FoundController {
        controller: row(name).unwrap(),
        pids,
        profile: Some(TunedProfile {
            active: vec!["rt".into()],
            options: vec![("script".into(), "script".into())],
            is_automatic: false,
            is_post_loaded: false,
            directory: "/etc/tuned".into(),
        }),
        states: Vec::new(),
        files: Vec::new(),
        is_on: false,
    };
    facts.controllers = vec![found("tuned", vec![40]), found("virt-handler", vec![50])];
    let plan = SetupPlan::new(&facts, SetupChoices::default());
    assert_eq!(plan.obstacles.len(), 1);
    assert!(plan.obstacles[0].contains("`tuned-adm profile OTHER`"), "{:?}", plan.obstacles);
    assert!(plan.obstacles[0].contains("choose another profile"), "{:?}", plan.obstacles);
    assert!(plan.notes[0].contains("kubectl"), "{:?}", plan.notes);
    facts.controllers = vec![found("ksmtuned", vec![812])];
    let plan = SetupPlan::new(&facts, SetupChoices::default());
    assert!(plan.obstacles[0].contains("kill 812"), "{:?}", plan.obstacles);
}

#[test]
fn a_dry_undo_changes_nothing() {
    let mut machine = KillableHost::new(host());
    machine.setup(3, SetupChoices::default()).unwrap();
    let (before, operations) = (machine.world.clone(), machine.done);
    let undone = undo(&mut machine, true, true).unwrap();
    assert!(undone.done.contains(&"systemctl enable --now ksmtuned.service".to_owned()), "{undone:?}");
    assert_eq!((machine.world, machine.done), (before, operations));
}

fn any_world() -> impl Strategy<Value = FakeSystem> {
    let unit = (any::<bool>(), any::<bool>(), any::<bool>());
    let tuned = prop::option::of(prop::sample::select(vec!["auto", "manual"]));
    (prop::collection::vec(unit, UNITS.len()), any::<(bool, bool, bool)>(), tuned).prop_map(
        |(units, has, tuned)| {
            let mut world = FakeSystem::default();
            if let Some(mode) = tuned {
                world.files.insert(ACTIVE_PROFILE.into(), "rt".into());
                world.files.insert(PROFILE_MODE.into(), mode.into());
            }
            for (unit, (is_enabled, is_active, has_extra)) in UNITS.iter().zip(units) {
                if is_enabled {
                    world.links.insert(own_link(unit), unit_file(unit));
                    if has_extra {
                        world.links.insert(extra_link(unit), unit_file(unit));
                    }
                }
                if is_active {
                    world.start(unit);
                }
            }
            let (has_config, has_group, has_view_group) = has;
            if has_config {
                world.files.insert("/etc/ksmith.toml".into(), "mine".into());
            }
            let groups = [(has_group, "ksmith"), (has_view_group, "ksmith-view")];
            world.groups.extend(groups.iter().filter(|(has, _)| *has).map(|(_, group)| (*group).to_owned()));
            world
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]
    #[test]
    fn a_setup_killed_at_any_moment_is_undone_whole(
        world in any_world(),
        needs in 0_u8..4,
        serve in any::<bool>(),
        kills in prop::collection::vec((0_usize..60, any::<bool>()), 0..3),
        undo_kill in (0_usize..60, any::<bool>()),
    ) {
        let choices = SetupChoices { serve, ..SetupChoices::default() };
        let mut machine = KillableHost::new(world.clone());
        for kill in kills {
            let _ = machine.with_kill(Some(kill), |machine| machine.setup(needs, choices));
        }
        let _ = machine.with_kill(Some(undo_kill), |machine| undo(machine, false, true));
        let undone = undo(&mut machine, false, true).unwrap();
        prop_assert!(undone.failed.is_empty(), "{undone:?}");
        prop_assert_eq!(&machine.world, &world);
    }

    #[test]
    fn a_setup_killed_and_repeated_ends_as_one_that_was_not(
        world in any_world(),
        needs in 0_u8..4,
        kill in (0_usize..60, any::<bool>()),
    ) {
        let mut whole = KillableHost::new(world.clone());
        whole.setup(needs, SetupChoices::default()).unwrap();
        let mut machine = KillableHost::new(world);
        let _ = machine.with_kill(Some(kill), |machine| machine.setup(needs, SetupChoices::default()));
        machine.setup(needs, SetupChoices::default()).unwrap();
        whole.world.files.remove(Path::new(NOTES));
        machine.world.files.remove(Path::new(NOTES));
        prop_assert_eq!(&machine.world, &whole.world);
    }
}

#[test]
fn lines_that_write_to_ksm_become_comments_and_lines_again() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("it's KSM.conf");
    let text = "# w /sys/kernel/mm/ksm/run - - - - 0\nw /sys/kernel/mm/ksm/run - - - - 1\n\
                w /sys/kernel/mm/*/run - - - - 1\nw \"/sys/*/mm/ks?/pages_to_scan\" - - - - 1\nd /run/x 0755\n\
                W /sys/class/net/*/queues/rx-0/rps_cpus - - - - f\n";
    std::fs::write(&file, text).unwrap();
    let edit = |edit: LineEdit| {
        let status = std::process::Command::new("sh").args(["-c", &edit.command(&file.to_string_lossy())]).status();
        assert!(status.unwrap().success());
        std::fs::read_to_string(&file).unwrap()
    };
    let commented = text.replace("\nw ", "\n#ksmith# w ");
    assert_eq!([LineEdit::CommentOut, LineEdit::CommentOut].map(edit), [commented.clone(), commented]);
    assert_eq!([LineEdit::CommentBack, LineEdit::CommentBack].map(edit), [text, text]);
}
