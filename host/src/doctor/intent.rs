//! What a process was meant to do: to opt in as a whole, which still shows when the kernel has forgotten it, or to stay out.

use std::path::Path;

use ksmith_core::kernel::CommandLine;

use super::patient::Patient;
use crate::hypervisor;
use crate::root::Root;

/// Libraries that opt a program in from inside.
const PRELOADS: [&str; 2] = ["libksmith", "ksm_preload"];

/// Where systemd has units, what counts most last.
const UNITS: [&str; 5] = [
    "lib/systemd/system",
    "usr/lib/systemd/system",
    "run/systemd/system",
    "etc/systemd/system",
    "run/systemd/transient",
];

/// The evidence in words. `None` if nothing speaks for it, or it may not be seen.
pub fn meant_to_opt_in(root: &Root, patient: &Patient) -> Option<String> {
    by_preload(patient).or_else(|| by_unit(root, patient))
}

/// The evidence on its command line that its memory is not to be offered.
pub fn kept_out(patient: &Patient) -> Option<String> {
    let (comm, line) = (patient.text("comm"), patient.text("cmdline"));
    hypervisor::kept_out(comm.value()?.trim_end(), &CommandLine::parse(line.value()?.as_bytes()))
}

fn by_preload(patient: &Patient) -> Option<String> {
    let environment = patient.text("environ");
    let preload = environment.value()?.split('\0').find_map(|entry| entry.strip_prefix("LD_PRELOAD="))?;
    let library = PRELOADS.into_iter().find(|name| preload.contains(name))?;
    Some(format!("it was started with LD_PRELOAD={library}"))
}

fn by_unit(root: &Root, patient: &Patient) -> Option<String> {
    let groups = patient.text("cgroup");
    let unit = groups.value()?.lines().find_map(|line| unit_of(line.strip_prefix("0::")?))?;
    let template = unit.split_once('@').and_then(|(name, rest)| {
        let (_, kind) = rest.rsplit_once('.')?;
        Some(format!("{name}@.{kind}"))
    });
    let names: Vec<&str> = template.as_deref().into_iter().chain([unit]).collect();
    let of = |file: &Path| memory_ksm(&std::fs::read_to_string(file).ok()?);
    let mut is_wanted = None;
    for name in &names {
        let files = UNITS.map(|directory| root.path(directory).join(name));
        is_wanted = files.iter().filter_map(|file| of(file)).next_back().or(is_wanted);
    }
    // Additions to the unit count more than any unit file.
    for name in &names {
        for directory in UNITS {
            let entries = std::fs::read_dir(root.path(directory).join(format!("{name}.d"))).into_iter().flatten();
            let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
            files.retain(|file| file.extension().is_some_and(|extension| extension == "conf"));
            files.sort();
            is_wanted = files.iter().filter_map(|file| of(file)).next_back().or(is_wanted);
        }
    }
    (is_wanted == Some(true)).then(|| format!("its unit {unit} has MemoryKSM=yes"))
}

/// The unit in a path such as `/system.slice/web.service/worker`: the innermost service or scope.
fn unit_of(group: &str) -> Option<&str> {
    group.rsplit('/').find(|part| part.ends_with(".service") || part.ends_with(".scope"))
}

/// The last `MemoryKSM=` in a unit file.
fn memory_ksm(text: &str) -> Option<bool> {
    let mut values = text.lines().filter_map(|line| line.trim().strip_prefix("MemoryKSM=")).map(str::trim);
    values.next_back().map(|value| ["yes", "true", "on", "1"].contains(&value.to_ascii_lowercase().as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_of_a_unit_counts() {
        assert_eq!(memory_ksm("[Service]\nExecStart=/bin/x\n"), None);
        assert_eq!(memory_ksm("[Service]\nMemoryKSM=yes\n MemoryKSM = no\nMemoryKSM=off\n"), Some(false));
        assert_eq!(memory_ksm("MemoryKSM=True"), Some(true));
        assert_eq!(unit_of("/system.slice/web@1.service/worker"), Some("web@1.service"));
        assert_eq!(unit_of("/user.slice"), None);
    }
}
