//! Files that are read at boot, or at a later event, and write to KSM: those of systemd-tmpfiles and sysfsutils, scripts,
//! cron's tables, udev's rules, modprobe's commands, cloud-init's, and units.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use ksmith_core::knobs::Knob;
use ksmith_core::other_controllers::{BootState, OTHER_CONTROLLERS, OtherController, name};
use wildmatch::WildMatch;

use crate::root::Root;
use crate::systemd;

/// Directories of systemd-tmpfiles, in its order of precedence: of files with one name the first counts (tmpfiles.d(5)).
const TMPFILES: [&str; 4] = ["etc/tmpfiles.d", "run/tmpfiles.d", "usr/local/lib/tmpfiles.d", "usr/lib/tmpfiles.d"];

/// Directories of units that an administrator or a package wrote.
const UNITS: [&str; 4] =
    ["etc/systemd/system", "usr/local/lib/systemd/system", "usr/lib/systemd/system", "lib/systemd/system"];

/// Scripts that are run at boot. The last one is Unraid's.
const SCRIPTS: [&str; 7] = [
    "etc/rc.local",
    "etc/rc.d/rc.local",
    "etc/rc.d/boot.local",
    "etc/init.d/boot.local",
    "etc/init.d/ksm",
    "etc/conf.d/local.start",
    "boot/config/go",
];

/// Files with commands for events: cron's tables, interfaces that come up, and guests that libvirt starts. They may
/// well read KSM's files alone.
const COMMANDS: [&str; 6] = [
    "etc/crontab",
    "var/spool/cron/crontabs/root",
    "var/spool/cron/root",
    "etc/network/interfaces",
    "etc/libvirt/hooks/qemu",
    "etc/libvirt/hooks/daemon",
];

/// Directories of such files.
const COMMAND_DIRECTORIES: [&str; 5] =
    ["etc/cron.d", "etc/cron.hourly", "etc/cron.daily", "etc/network/interfaces.d", "etc/libvirt/hooks/qemu.d"];

/// Directories of udev's rules, in its order of precedence.
const UDEV: [&str; 5] = [
    "etc/udev/rules.d",
    "run/udev/rules.d",
    "usr/local/lib/udev/rules.d",
    "usr/lib/udev/rules.d",
    "lib/udev/rules.d",
];

/// Directories of modprobe, whose `install` lines are commands, in its order of precedence.
const MODPROBE: [&str; 5] =
    ["etc/modprobe.d", "run/modprobe.d", "usr/local/lib/modprobe.d", "usr/lib/modprobe.d", "lib/modprobe.d"];

/// Files of cloud-init: the host's own, and those of its instance. `bootcmd` runs at each boot, `runcmd` at an
/// instance's first, `write_files` then too.
const CLOUD: [&str; 1] = ["etc/cloud/cloud.cfg"];
const CLOUD_INSTANCE: [&str; 3] = ["user-data.txt", "vendor-data.txt", "cloud-config.txt"];
const CLOUD_SCRIPTS: [&str; 3] =
    ["var/lib/cloud/scripts/per-boot", "var/lib/cloud/scripts/per-instance", "var/lib/cloud/scripts/per-once"];

/// KSM's directory, as these files name it, and with the beginning of a file's name.
const DIRECTORY: &str = "kernel/mm/ksm";
const KSM: &str = "kernel/mm/ksm/";

/// The longest script that a unit starts and that is read, in bytes.
const LONGEST_SCRIPT: u64 = 256 << 10;

/// Returns the files of a controller that write to KSM at boot, as absolute paths. Most controllers have none.
pub(super) fn of(root: &Root, controller: &OtherController) -> Vec<String> {
    let found = match controller.name {
        name::TMPFILES => {
            by_name(root, &TMPFILES, ".conf").filter(|file| has(root, file, is_tmpfiles_write)).collect()
        }
        name::SYSFS => {
            let files = by_name(root, &["etc/sysfs.d"], ".conf");
            let single = std::iter::once(PathBuf::from("etc/sysfs.conf"));
            single.chain(files).filter(|file| has(root, file, is_sysfs_write)).collect()
        }
        name::BOOT_SCRIPTS => {
            let started = by_name(root, &["etc/local.d"], ".start");
            let files = SCRIPTS.iter().map(PathBuf::from).chain(started);
            let scripts = files.filter(|file| has(root, file, |line| line.contains(DIRECTORY)));
            // Its defaults stand alone where a service has no unit.
            let is_default = |line: &str| line.contains('=');
            let defaults = PathBuf::from("etc/default/ksm");
            let has_default = !systemd::exists(root, "ksm.service") && has(root, &defaults, is_default);
            let in_directories = COMMAND_DIRECTORIES.iter().flat_map(|at| by_name(root, &[*at], ""));
            let commands = COMMANDS.iter().map(PathBuf::from).chain(in_directories);
            let commands = commands.filter(|file| writes(root, file));
            let rules = by_name(root, &UDEV, ".rules");
            let rules = rules.filter(|file| writes(root, file) || has(root, file, is_udev_write));
            let commands = commands.chain(rules).chain(modprobe_files(root)).chain(cloud_files(root));
            let found = scripts.chain(has_default.then_some(defaults)).chain(commands).chain(drop_ins(root));
            one_of_each(root, found)
        }
        name::OTHER_UNITS => {
            let units = by_name(root, &UNITS, ".service").filter(|file| is_other_unit(root, file));
            one_of_each(root, units)
        }
        _ => Vec::new(),
    };
    let found: Vec<PathBuf> = found;
    found.iter().map(|file| format!("/{}", file.display())).collect()
}

/// Returns the files of these directories with this ending, by name. The first directory with a name counts.
fn by_name(root: &Root, directories: &[&str], ending: &str) -> impl Iterator<Item = PathBuf> + use<> {
    let mut files = BTreeMap::new();
    for directory in directories {
        for entry in fs::read_dir(root.path(directory)).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.ends_with(ending) {
                files.entry(name.clone()).or_insert_with(|| PathBuf::from(directory).join(name));
            }
        }
    }
    files.into_values()
}

/// Returns true if a line that is no comment is meant.
fn has(root: &Root, file: &Path, is_meant: impl Fn(&str) -> bool) -> bool {
    // The paths of a link are those of the host that has it, not of a tree.
    let is_link_elsewhere = fs::read_link(root.path(file)).is_ok_and(|target| target.is_absolute());
    if is_link_elsewhere && !root.is_host() {
        return false;
    }
    let text = root.text(file);
    // Shells and systemd go on in the next line behind a backslash.
    let text = text.value().map(|text| text.replace("\\\n", " ")).unwrap_or_default();
    let mut lines = text.lines().map(str::trim);
    lines.any(|line| !line.starts_with(['#', ';']) && is_meant(line))
}

/// Returns the files of modprobe with a command that writes to KSM.
fn modprobe_files(root: &Root) -> impl Iterator<Item = PathBuf> + '_ {
    by_name(root, &MODPROBE, ".conf").filter(|file| {
        let command = |line: &str| {
            let mut words = line.split_ascii_whitespace();
            ["install", "remove"].contains(&words.next()?).then(|| words.skip(1).collect::<Vec<_>>().join(" "))
        };
        has(root, file, |line| {
            command(line).is_some_and(|command| {
                is_shell_write(&command)
                    || command.contains(DIRECTORY) && is_relative_write(&command)
                    || starts_writing_script(root, &command)
            })
        })
    })
}

/// Returns the files of cloud-init with a command that writes to KSM, or a file of KSM among those that it writes.
fn cloud_files(root: &Root) -> impl Iterator<Item = PathBuf> + '_ {
    let instance = Path::new("var/lib/cloud/instance");
    // The link is absolute: its target lies in the same tree.
    let target = fs::read_link(root.path(instance)).ok();
    let target = target.as_deref().and_then(|target| target.strip_prefix("/").ok()).unwrap_or(instance).to_owned();
    let of_instance = CLOUD_INSTANCE.map(|name| target.join(name));
    let scripts = CLOUD_SCRIPTS.iter().flat_map(|at| by_name(root, &[*at], ""));
    let files = CLOUD.iter().map(PathBuf::from).chain(by_name(root, &["etc/cloud/cloud.cfg.d"], ".cfg"));
    files.chain(of_instance).chain(scripts).filter(|file| writes(root, file) || has(root, file, is_cloud_write))
}

/// Returns true for an entry of `write_files` that is a file of KSM: `- path: /sys/kernel/mm/ksm/run`.
fn is_cloud_write(line: &str) -> bool {
    let path = line.trim_start_matches(['-', ' ', '{']).strip_prefix("path:");
    path.is_some_and(|path| path.trim_start_matches([' ', '"', '\'']).starts_with("/sys/kernel/mm/ksm/"))
}

/// Returns true for a line such as `w /sys/kernel/mm/ksm/run - - - - 1`. A path may be a pattern (tmpfiles.d(5)).
fn is_tmpfiles_write(line: &str) -> bool {
    let mut words = line.split_ascii_whitespace();
    let is_write = words.next().is_some_and(|word| word.starts_with(['w', 'f', 'F']));
    let path = words.next().map(|path| path.trim_matches('"'));
    is_write && path.is_some_and(|path| path.starts_with("/sys/kernel/mm/ksm") || is_pattern_of_ksm(path))
}

/// Returns true for a pattern that matches a setting of KSM in a directory `mm`: `/sys/kernel/mm/*/run`. A set in brackets
/// counts as any character.
fn is_pattern_of_ksm(pattern: &str) -> bool {
    let Some(pattern) =
        pattern.strip_prefix('/').filter(|pattern| pattern.contains(['*', '?', '[']) && pattern.contains("/mm/"))
    else {
        return false;
    };
    let mut text = String::new();
    let mut rest = pattern;
    while let Some((before, (_, after))) = rest.split_once('[').and_then(|(a, b)| Some((a, b.split_once(']')?))) {
        text.push_str(before);
        text.push('?');
        rest = after;
    }
    text.push_str(rest);
    let parts: Vec<WildMatch> = text.split('/').map(WildMatch::new).collect();
    let matches = |path: &str| {
        path.split('/').count() == parts.len() && path.split('/').zip(&parts).all(|(name, part)| part.matches(name))
    };
    let mut knobs = Knob::ALL.iter().filter(|knob| !knob.is_of_khugepaged());
    knobs.any(|knob| matches(knob.path().trim_start_matches('/')))
}

/// Returns true for a line such as `kernel/mm/ksm/run = 1`. Lines with a mode or an owner set no value.
fn is_sysfs_write(line: &str) -> bool {
    let attribute = line.split('=').next().unwrap_or_default().trim();
    attribute.trim_start_matches('/').trim_start_matches("sys/").starts_with(KSM) && line.contains('=')
}

/// Returns true for a command that writes to a file of KSM: `echo 1 > /sys/kernel/mm/ksm/run`, or with `tee`.
fn is_shell_write(line: &str) -> bool {
    line.match_indices(KSM).any(|(at, _)| {
        let before = line.get(..at).unwrap_or_default();
        let before = before.trim_end_matches(|c: char| !c.is_ascii_whitespace() && c != '>').trim_end();
        let is_option = |word: &&str| !word.starts_with('-');
        before.ends_with('>') || before.split_ascii_whitespace().rfind(is_option).is_some_and(|word| word == "tee")
    })
}

/// Returns true for a rule of udev that assigns to a file of KSM: `ATTR{/sys/kernel/mm/ksm/run}="1"`.
fn is_udev_write(line: &str) -> bool {
    let mut parts = line.split("ATTR{").skip(1).filter_map(|part| part.split_once('}'));
    parts.any(|(file, rest)| {
        file.contains(KSM) && rest.trim_start().starts_with('=') && !rest.trim_start().starts_with("==")
    })
}

/// Returns true for a file with a command that writes to a file of KSM. Its directory may stand in another line:
/// `cd /sys/kernel/mm/ksm`, then `echo 1 > run`; or `KSM=/sys/kernel/mm/ksm`, then `echo 1 > $KSM/run`.
fn writes(root: &Root, file: &Path) -> bool {
    has(root, file, is_shell_write)
        || has(root, file, |line| line.contains(DIRECTORY)) && has(root, file, is_relative_write)
}

/// Returns true for a command that writes to a file with the name of a setting of KSM.
fn is_relative_write(line: &str) -> bool {
    let spaced = line.replace('>', " > ");
    let words: Vec<&str> = spaced.split([' ', '\t', ';', '&', '|']).filter(|word| !word.is_empty()).collect();
    words.windows(2).any(|pair| {
        let name = pair[1].trim_matches(['"', '\'']).rsplit('/').next().unwrap_or_default();
        [">", "tee"].contains(&pair[0])
            && Knob::ALL.iter().any(|knob| !knob.is_of_khugepaged() && knob.name() == name)
    })
}

/// Returns true for a unit that starts at boot, or has started, with a command that writes to KSM. Units of the table
/// and ksmith's own are no others.
fn is_other_unit(root: &Root, file: &Path) -> bool {
    let Some(unit) = file.file_name().and_then(|name| name.to_str()) else { return false };
    let is_known = unit.starts_with("ksmith") || OTHER_CONTROLLERS.iter().any(|row| row.services.contains(&unit));
    !is_known && starts(root, unit) && has(root, file, |line| is_writing_command(root, line))
}

/// Returns true for a unit that starts at boot, by itself, as an instance, or by a timer, a path or a socket, or has
/// started.
fn starts(root: &Root, unit: &str) -> bool {
    let is_at_boot = |unit: &str| systemd::at_boot(root, unit) == BootState::Enabled;
    let is_meant = |unit: &str| is_at_boot(unit) || systemd::is_active(root, unit);
    is_meant(unit)
        || systemd::instances(root, unit).iter().any(|unit| is_meant(unit))
        || systemd::triggers(root, unit).iter().any(|unit| is_meant(unit))
}

/// Returns the drop-ins of units that start here, with a command that writes to KSM.
fn drop_ins(root: &Root) -> Vec<PathBuf> {
    let of_unit = |directory: PathBuf| {
        let unit = directory.file_name()?.to_str()?.strip_suffix(".d")?;
        starts(root, unit).then_some(by_name(root, &[directory.to_str()?], ".conf"))
    };
    let directories = UNITS.iter().flat_map(|at| by_name(root, &[*at], ".service.d"));
    let files = directories.filter_map(of_unit).flatten();
    files.filter(|file| has(root, file, |line| is_writing_command(root, line))).collect()
}

/// Returns true for a line `ExecStart=` or the like that names KSM's files, or starts a script that writes to them.
fn is_writing_command(root: &Root, line: &str) -> bool {
    let Some((key, command)) = line.split_once('=').filter(|(key, _)| key.starts_with("Exec")) else {
        return false;
    };
    !key.ends_with("Condition") && (command.contains(DIRECTORY) || starts_writing_script(root, command))
}

/// Returns true for a command whose program, or the first file that it is given, is a script that writes to KSM.
fn starts_writing_script(root: &Root, command: &str) -> bool {
    let words = command.split_ascii_whitespace().map(|word| word.trim_start_matches(['-', '@', ':', '+', '!']));
    let mut paths = words.filter_map(|word| word.trim_matches(['"', '\'', ';']).strip_prefix('/')).take(2);
    paths.any(|path| is_writing_script(root, path))
}

/// Returns true for a short script with a line that writes to KSM. Programs are not read beyond their first bytes.
fn is_writing_script(root: &Root, path: &str) -> bool {
    let file = root.path(path);
    // Opening a pipe would wait for its other end.
    let is_short = fs::metadata(&file).is_ok_and(|found| found.is_file() && found.len() <= LONGEST_SCRIPT);
    let begins = || {
        let mut begin = [0; 2];
        fs::File::open(&file).and_then(|mut file| file.read_exact(&mut begin)).is_ok_and(|()| begin == *b"#!")
    };
    is_short && begins() && writes(root, Path::new(path))
}

/// Returns the files without those that another path has named: `/lib` may be a link to `/usr/lib`.
fn one_of_each(root: &Root, files: impl Iterator<Item = PathBuf>) -> Vec<PathBuf> {
    let mut known = BTreeSet::new();
    files.filter(|file| fs::canonicalize(root.path(file)).map_or(true, |real| known.insert(real))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_of_udev_may_assign_without_a_command() {
        for (line, expected) in [
            (r#"ACTION=="add", ATTR{/sys/kernel/mm/ksm/run}="1""#, true),
            (r#"ATTR{/sys/kernel/mm/ksm/run}=="1", RUN+="/usr/bin/logger on""#, false),
            (r#"ATTR{queue/scheduler}="none""#, false),
        ] {
            assert_eq!(is_udev_write(line), expected, "{line}");
        }
    }

    #[test]
    fn a_pattern_of_tmpfiles_may_match_a_setting_of_ksm() {
        for (line, expected) in [
            ("w /sys/kernel/mm/*/run - - - - 1", true),
            ("w- /sys/*/mm/ks[lm]/pages_to_scan - - - - 1000", true),
            ("w /sys/kernel/mm/ks?/* - - - - 1", true),
            ("w /sys/kernel/mm/*/enabled - - - - never", false),
            ("w /sys/*/run - - - - 1", false),
            // No edit of setup's comments it out.
            ("w /sys/kernel/m?/ksm/run - - - - 1", false),
            ("w /sys/kernel/mm/[/run - - - - 1", false),
            ("z /sys/kernel/mm/*/run 0600 root root", false),
        ] {
            assert_eq!(is_tmpfiles_write(line), expected, "{line}");
        }
    }

    #[test]
    fn a_script_writes_to_ksm_by_a_variable_or_in_its_directory_too() {
        let tree = tempfile::tempdir().unwrap();
        let root = Root::at(tree.path());
        for (text, expected) in [
            ("echo 1 > /sys/kernel/mm/ksm/run", true),
            ("KSM=/sys/kernel/mm/ksm\necho 1 >$KSM/run", true),
            ("KSM=/sys/kernel/mm/ksm\necho 1 >> \"${KSM}/sleep_millisecs\"", true),
            ("cd /sys/kernel/mm/ksm && echo 1 >run", true),
            ("cd /sys/kernel/mm/ksm; echo 1 | tee run", true),
            ("echo 1 \\\n  > /sys/kernel/mm/ksm/run", true),
            ("KSM=/sys/kernel/mm/ksm\ncat $KSM/run > /tmp/run.txt", false),
            ("KSM=/sys/kernel/mm/ksm\n# echo 1 > $KSM/run", false),
            ("echo 1 > $KHUGEPAGED/run", false),
        ] {
            fs::write(tree.path().join("k.sh"), text).unwrap();
            assert_eq!(writes(&root, Path::new("k.sh")), expected, "{text}");
        }
    }
}
