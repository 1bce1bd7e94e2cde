//! The intent behind a process: to opt in as a whole, which still shows when the kernel has forgotten it, or to stay
//! out.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use ksmith_core::kernel::CommandLine;

use super::patient::ExaminedProcess;
use crate::hypervisor;
use crate::root::Root;
use crate::systemd::UNIT_DIRECTORIES;

/// Libraries that opt a program in from inside.
const PRELOADS: [&str; 2] = ["libksmith", "ksm_preload"];

/// Returns the evidence that the process was to opt in, in words; `None` if there is none or it can't be read.
pub fn meant_to_opt_in(root: &Root, patient: &ExaminedProcess) -> Option<String> {
    by_preload(patient).or_else(|| by_unit(root, patient))
}

/// Returns the evidence on the command line, or in a file that it names, that the process keeps its memory from KSM.
pub fn kept_out(root: &Root, patient: &ExaminedProcess) -> Option<String> {
    let (comm, line) = (patient.text("comm"), patient.text("cmdline"));
    let line = CommandLine::parse(line.value()?.as_bytes());
    let line = hypervisor::qemu::with_config_files(root, &line).unwrap_or(line);
    hypervisor::kept_out(comm.value()?.trim_end(), &line)
}

/// Returns true if the process is a QEMU, by its name and its command line.
pub fn is_qemu(patient: &ExaminedProcess) -> bool {
    let (comm, line) = (patient.text("comm"), patient.text("cmdline"));
    let line = CommandLine::parse(line.value().map_or("", String::as_str).as_bytes());
    hypervisor::is_qemu(comm.value().map_or("", |comm| comm.trim_end()), &line)
}

fn by_preload(patient: &ExaminedProcess) -> Option<String> {
    let environment = patient.text("environ");
    let preload = environment.value()?.split('\0').find_map(|entry| entry.strip_prefix("LD_PRELOAD="))?;
    let library = PRELOADS.into_iter().find(|name| preload.contains(name))?;
    Some(format!("it was started with LD_PRELOAD={library}"))
}

fn by_unit(root: &Root, patient: &ExaminedProcess) -> Option<String> {
    let groups = patient.text("cgroup");
    let unit = groups.value()?.lines().find_map(|line| unit_of(line.strip_prefix("0::")?))?;
    let template = unit.split_once('@').and_then(|(name, rest)| {
        let (_, kind) = rest.rsplit_once('.')?;
        Some(format!("{name}@.{kind}"))
    });
    let names: Vec<&str> = [unit].into_iter().chain(template.as_deref()).collect();
    wants(root, &names).then(|| format!("its unit {unit} has MemoryKSM=yes"))
}

/// Returns true if a unit of these names, an instance before its template, is to have `MemoryKSM=`. As in
/// systemd.unit(5), the first of the unit's files counts. Its drop-ins follow in the order of their names; of several
/// with one name the first counts.
fn wants(root: &Root, names: &[&str]) -> bool {
    let files = |end: &str| -> Vec<PathBuf> {
        let in_each =
            |name: &&str| UNIT_DIRECTORIES.map(|directory| root.path(directory).join(format!("{name}{end}")));
        names.iter().flat_map(in_each).collect()
    };
    let of = |file: &Path| memory_ksm(&fs::read_to_string(file).ok()?);
    let unit = files("").into_iter().find(|file| file.exists()).and_then(|file| of(&file));
    let mut drop_ins = BTreeMap::new();
    for directory in files(".d") {
        for file in fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()) {
            if let Some(name) = file.file_name().filter(|_| file.extension().is_some_and(|end| end == "conf")) {
                drop_ins.entry(name.to_owned()).or_insert_with(|| file.clone());
            }
        }
    }
    drop_ins.values().filter_map(|file| of(file)).next_back().or(unit).unwrap_or(false)
}

/// Returns the unit in a path such as `/system.slice/web.service/worker`: the innermost service or scope.
fn unit_of(group: &str) -> Option<&str> {
    group.rsplit('/').find(|part| part.ends_with(".service") || part.ends_with(".scope"))
}

/// Returns the value of the last `MemoryKSM=` in a unit file.
fn memory_ksm(text: &str) -> Option<bool> {
    let values = text.lines().filter_map(|line| line.split_once('=')).filter(|(key, _)| key.trim() == "MemoryKSM");
    let value = values.map(|(_, value)| value.trim().to_ascii_lowercase()).next_back()?;
    Some(["yes", "y", "true", "t", "on", "1"].contains(&value.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_of_a_unit_counts() {
        assert_eq!(memory_ksm("[Service]\nExecStart=/bin/x\n"), None);
        assert_eq!(memory_ksm("[Service]\nMemoryKSM=yes\n MemoryKSM = no\n"), Some(false));
        assert_eq!(memory_ksm("MemoryKSM=True"), Some(true));
        assert_eq!(unit_of("/system.slice/web@1.service/worker"), Some("web@1.service"));
        assert_eq!(unit_of("/user.slice"), None);
    }

    #[test]
    fn a_qemu_is_one_by_any_of_its_names() {
        let tree = tempfile::tempdir().unwrap();
        let mut pid = 10;
        let mut is_one = |comm: &str, line: &str| {
            pid += 1;
            let process = tree.path().join(format!("proc/{pid}"));
            fs::create_dir_all(&process).unwrap();
            let zeros = "0 ".repeat(49);
            fs::write(process.join("stat"), format!("{pid} ({comm}) S {zeros}")).unwrap();
            fs::write(process.join("comm"), format!("{comm}\n")).unwrap();
            fs::write(process.join("cmdline"), line.replace(' ', "\0")).unwrap();
            let found = super::super::find(&Root::at(tree.path()), &pid.to_string()).unwrap();
            is_qemu(&found[0])
        };
        for (comm, line) in [
            ("qemu-system-x86", "/usr/bin/qemu-system-x86_64 -name guest=web,debug-threads=on -m 64"),
            ("kvm", "/usr/bin/kvm -id 104 -name web,debug-threads=on"),
            ("qemu-kvm", "/usr/libexec/qemu-kvm -name guest=web"),
            ("qemu-kvm-one", "/usr/bin/qemu-kvm-one -name guest=one-7"),
            ("kvm-spice", "/usr/bin/kvm-spice -m 64"),
            ("qemu-system-x86", "web -m 64"),
        ] {
            assert!(is_one(comm, line), "{comm}: {line}");
        }
        for (comm, line) in
            [("qemu-img", "qemu-img convert a b"), ("firecracker", "firecracker --id a"), ("bash", "bash")]
        {
            assert!(!is_one(comm, line), "{comm}: {line}");
        }
    }

    #[test]
    fn the_first_file_and_the_last_drop_in_of_a_unit_count() {
        let tree = tempfile::tempdir().unwrap();
        let put = |path: &str, value: &str| {
            let path = tree.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("[Service]\n{value}\n")).unwrap();
        };
        let root = Root::at(tree.path());
        let is_wanted = || wants(&root, &["web@1.service", "web@.service"]);
        assert!(!is_wanted());
        put("usr/lib/systemd/system/web@.service", "MemoryKSM=yes");
        assert!(is_wanted());
        put("etc/systemd/system/web@.service", "ExecStart=/bin/web");
        assert!(!is_wanted(), "the administrator's file stands for the package's");
        put("usr/lib/systemd/system/web@.service.d/50-ksm.conf", "MemoryKSM=yes");
        assert!(is_wanted());
        put("etc/systemd/system/web@1.service.d/50-ksm.conf", "MemoryKSM=no");
        assert!(!is_wanted(), "an instance's file stands for its template's of the same name");
        put("run/systemd/system/web@.service.d/60-more.conf", "MemoryKSM=on");
        assert!(is_wanted());
        put("run/systemd/system/web@.service.d/70-more.txt", "MemoryKSM=no");
        assert!(is_wanted());
    }
}
