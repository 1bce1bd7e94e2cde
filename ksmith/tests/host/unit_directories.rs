//! The uses of the unit's directories, under its umask, their modes and a file system that is read-only but for them.

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::{Command, Stdio};

use crate::support::own::on_own_host;
use crate::support::program::{PROGRAM, RunningProgram, config_file};
use crate::support::{skipped, wait_until};
use ksmith_host::users::group_id;

/// The group of the unit (`Group=`) and that of the history, with a user in each, and a user in none.
const OWN_GROUP: u32 = 65_533;
const HISTORY_GROUP: u32 = 65_532;
const MEMBER: (u32, u32) = (65_531, OWN_GROUP);
const READER: (u32, u32) = (65_530, HISTORY_GROUP);
const STRANGER: (u32, u32) = (65_529, 65_529);

/// Becomes a user with one group, and tries what the directories are for. One line for each attempt: its name, and `yes` or the error.
const ATTEMPTS: &str = "import os, socket, sys\n\
    os.setgroups([])\n\
    os.setgid(int(sys.argv[2]))\n\
    os.setuid(int(sys.argv[1]))\n\
    def attempt(name, act):\n\
    \x20   try:\n\
    \x20       act()\n\
    \x20       print(name, 'yes')\n\
    \x20   except OSError as why:\n\
    \x20       print(name, why.__class__.__name__)\n\
    for name in ['control', 'view', 'user']:\n\
    \x20   attempt(name, lambda: socket.socket(socket.AF_UNIX).connect('/run/ksmith/' + name))\n\
    for place in ['/run/ksmith', '/var/lib/ksmith']:\n\
    \x20   attempt('list ' + place, lambda: os.listdir(place))\n\
    \x20   attempt('write ' + place, lambda: open(place + '/new', 'w'))\n\
    for path in sys.argv[3:]:\n\
    \x20   attempt('read ' + path, lambda: open(path, 'rb'))\n";

/// Returns the outcome of each attempt of a user with this group.
fn attempts(user: u32, group: u32, files: &[&str]) -> BTreeMap<String, String> {
    let output = Command::new("python3")
        .args(["-c", ATTEMPTS, &user.to_string(), &group.to_string()])
        .args(files)
        .current_dir("/")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let pair = |line: &str| line.rsplit_once(' ').map(|(name, outcome)| (name.to_owned(), outcome.to_owned()));
    text.lines().filter_map(pair).collect()
}

#[test]
fn under_the_units_umask_each_group_reaches_what_is_for_it_and_nothing_else() {
    on_own_host(|| {
        let Some(askers) = group_id("nogroup") else { return skipped("there is no group nogroup") };
        if fs::metadata("/sys/kernel/mm/ksm/run").is_err() {
            return skipped("this kernel has no KSM");
        }
        fs::set_permissions("/run/ksmith", Permissions::from_mode(0o711)).unwrap();
        // As packaging/tmpfiles.d/ksmith.conf has it made.
        let place = "/var/lib/ksmith/history";
        fs::create_dir(place).unwrap();
        chown(place, None, Some(HISTORY_GROUP)).unwrap();
        fs::set_permissions(place, Permissions::from_mode(0o2750)).unwrap();
        let (_file, path) = config_file(
            "[history]\nenabled = true\n[optin]\ngroup = \"nogroup\"\n[view]\ngroup = \"nogroup\"\n\
             [policy]\nkind = \"fixed\"\n[policy.fixed]\nsettings = { pages_to_scan = 321, run = 0 }\n",
        );
        let group = format!("--regid={OWN_GROUP}");
        let line = ["setpriv", &group, "--clear-groups", "sh", "-c", "umask 0077; exec \"$@\"", "sh"];
        let mut daemon =
            RunningProgram::start_line(&[&line[..], &[PROGRAM, "daemon", "--config", &path]].concat(), |_| ());
        daemon.wait_ready();
        let history = "/var/lib/ksmith/history/history.db";
        let files = [history, "/run/ksmith/undo.json", "/run/ksmith/lock", "/run/ksmith/undo.lock"];
        wait_until("each file is there", || files.iter().all(|file| fs::metadata(file).is_ok()));
        let asker = (65_528, askers);
        let reads = "read /var/lib/ksmith/history/history.db";
        for (who, may) in
            [(asker, vec!["user", "view"]), (READER, vec![reads]), (MEMBER, vec![]), (STRANGER, vec![])]
        {
            let found = attempts(who.0, who.1, &files);
            assert_eq!(found.len(), 3 + 4 + files.len(), "{found:?}");
            let allowed: Vec<&str> =
                found.iter().filter(|(_, outcome)| *outcome == "yes").map(|(name, _)| name.as_str()).collect();
            assert_eq!(allowed, may, "{who:?}: {found:?}");
        }
        daemon.end();
    });
}

#[test]
fn a_unit_whose_run_is_read_only_restores_and_ends_when_its_directory_is_gone() {
    on_own_host(|| {
        let knob = "/sys/kernel/mm/ksm/pages_to_scan";
        let read = || fs::read_to_string(knob).map(|text| text.trim().to_owned());
        if read().is_err() {
            return skipped("this kernel has no KSM");
        }
        // Beside the directory that goes.
        let place = tempfile::tempdir_in("/dev/shm").unwrap();
        let (config, log) = (place.path().join("ksmith.toml"), place.path().join("log"));
        let lines = "[policy]\nkind = \"fixed\"\n[policy.fixed]\nsettings = { pages_to_scan = 321, run = 0 }\n\
                     [history]\nenabled = false\n";
        fs::write(&config, lines).unwrap();
        let mut daemon = Command::new(PROGRAM)
            .arg("daemon")
            .arg("--config")
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        wait_until("it sets what is configured", || read().unwrap() == "321");
        // As the unit's file system is for it (ProtectSystem=strict), when root removes the directory outside.
        let gone = "mount -o remount,bind,ro \"$(findmnt -n -o TARGET -T /run)\" && umount -l /run/ksmith";
        if !Command::new("sh").args(["-c", gone]).status().unwrap().success() {
            daemon.kill().unwrap();
            daemon.wait().unwrap();
            return skipped("/run can't be made read-only here");
        }
        wait_until("it ends", || daemon.try_wait().unwrap().is_some());
        let said = fs::read_to_string(&log).unwrap();
        assert_eq!(daemon.wait().unwrap().code(), Some(1), "{said}");
        assert!(said.contains("the lock in the state directory was removed or replaced"), "{said}");
        assert_eq!(read().unwrap(), "100", "{said}");
    });
}
