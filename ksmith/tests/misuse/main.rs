//! The table of bad inputs: for each the exit code and the words that say what to do. Nothing here changes the host.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test ends by panicking")]

#[path = "../support/mod.rs"]
mod support;
mod walk;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use ksmith::exit;

const PROGRAM: &str = env!("CARGO_BIN_EXE_ksmith");

fn tree(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata").join(name).display().to_string()
}

/// Copies a captured tree, to change it.
fn copy_tree(to: &Path) {
    assert!(Command::new("cp").args(["-r", &tree("linux-6.18")]).arg(to).status().unwrap().success());
}

/// The PIDs of the machines in a tree.
fn machines(root: &str) -> Vec<String> {
    let listed = ksmith(&["guests", "--json", "--root", root]);
    let report: Value = serde_json::from_slice(&listed.stdout).unwrap();
    let machines = report["guests"].as_array().unwrap().iter().filter(|guest| guest["kind"] == "qemu");
    let machines: Vec<String> = machines.map(|guest| guest["pids"][0].to_string()).collect();
    assert_eq!(machines.len(), 2, "{report}");
    machines
}

fn ksmith(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The outcome of bad arguments: code and words. TREE stands for a captured tree.
#[rustfmt::skip]
const ARGUMENTS: [(&[&str], u8, &str); 60] = [
    (&["help", "stauts"], 2, "unrecognized subcommand 'stauts'"),
    (&["stauts"], 2, "unrecognized subcommand 'stauts'"),
    (&["status", "--jsn"], 2, "unexpected argument '--jsn'"),
    (&["status", "--root", "/nonexistent"], 2, "--root /nonexistent: there is no such directory"),
    (&["doctor", "--root", "/nonexistent"], 2, "there is no such directory"),
    (&["guests", "--root", "/dev/null"], 2, "it is not a directory"),
    (&["status", "--root", "/dev"], 2, "it has neither proc nor sys in it"),
    (&["status", "--config", "/nonexistent.toml"], 2, "can't read the configuration /nonexistent.toml"),
    (&["config", "check", "/nonexistent.toml"], 2, "can't read the configuration /nonexistent.toml"),
    (&["config", "check", "/dev"], 2, "can't read the configuration /dev"),
    (&["config", "check", "/dev/zero"], 2, "can't read the configuration /dev/zero: it is longer than 1 MiB"),
    (&["status", "--config", "/dev/zero"], 2, "can't read the configuration /dev/zero: it is longer than 1 MiB"),
    (&["status", "--every", "0"], 2, "\"0\" is not a time from 100 ms to 1 d"),
    (&["guests", "--sort", "nonsense"], 2, "invalid value 'nonsense'"),
    (&["guests", "--by", "nonsense"], 2, "--by nonsense: there is no such property; there are: guest, kind"),
    (&["guests", "--limit", "0"], 2, "invalid value '0'"),
    (&["guests", "--root", "TREE", "--filter", "savd>1M"], 2, "there is no figure `savd`"),
    (&["doctor", "--seconds", "-1", "1"], 2, "unexpected argument '-1'"),
    (&["doctor", "--seconds=nan", "1"], 2, "\"nan\" is not a time from 0 ms to 1 d"),
    (&["doctor", "--root", "TREE", "no-guest-is-called-so"], 4, "there is no guest and no process \"no-guest-is-called-so\""),
    (&["guests", "--root", "TREE", "no-guest-is-called-so"], 4, "there is no guest \"no-guest-is-called-so\": `ksmith guests`"),
    (&["guests", "--root", "TREE", "alpha", "alhpa"], 4, "there is no guest \"alhpa\" (did you mean \"alpha\"?)"),
    (&["doctor", "--root", "TREE", "uml:alpha"], 4, "name one by name, UUID, PID, kind:name or VMID"),
    (&["doctor", "4194305"], 4, "there is no guest and no process \"4194305\""),
    (&["estimate", "no-guest-is-called-so"], 4, "there is no guest and no process"),
    (&["estimate", "default/no-guest"], 4, "there is no guest and no process"),
    (&["estimate", "--sample", "0", "1"], 2, "\"0\" is not a percentage over 0 and up to 100"),
    (&["estimate", "--max-rate", "0.1", "1"], 2, "is not an amount of memory: write it as 256M, 1.5G"),
    (&["estimate", "--root", "TREE"], 2, "leave out --root"),
    (&["estimate", "/etc/passwd"], 2, "/etc/passwd is not an image of memory"),
    (&["estimate", "/dev/zero"], 2, "/dev/zero is neither a file nor a block device"),
    (&["estimate", "./there-is-none"], 2, "can't read ./there-is-none"),
    (&["estimate", "/etc/passwd", "web"], 2, "files are compared with each other only"),
    (&["estimate", "/etc/passwd", "--again", "1"], 2, "files are read whole and once"),
    (&["demo", "--size", "1k"], 2, "is not an amount from 4 MiB to 64 GiB"),
    (&["estimate", "--again", "soon", "1"], 2, "\"soon\" is not a time"),
    (&["unmerge", "--patience=2d"], 2, "\"2d\" is not a time from 0 ms to 1 d"),
    (&["config", "show", "/nonexistent.toml"], 2, "can't read the configuration /nonexistent.toml"),
    (&["pause", "0"], 2, "\"0\" is not a time from 1 s to 365 d"),
    (&["merge", "maybe", "web"], 2, "invalid value 'maybe'"),
    (&["give", "web", "much"], 2, "is not an amount of memory: write it as 256M, 1.5G"),
    (&["take", "web", "1.5"], 2, "is not an amount of memory: write it as 256M, 1.5G"),
    (&["set", "pages_to_scan"], 2, "a setting is NAME=VALUE"),
    (&["set", "pages_shared=1"], 2, "pages_shared"),
    (&["scan", "--max-cpu", "50", "--root", "TREE"], 2, "such as \"20%\""),
    (&["scan", "--root", "TREE"], 2, "this command acts on a live kernel"),
    (&["history", "--since", "yesterday"], 2, "yesterday"),
    (&["history", "--since", "2999-01-01", "--root", "TREE"], 2, "the beginning (2999-01-01 00:00:00) is not before the end ("),
    (&["report", "-o", "x.md", "--since", "1m", "--until", "1h", "--root", "TREE"], 2, "name an earlier beginning"),
    (&["sketch", "--out", "x", "--root", "TREE"], 2, "leave out --root"),
    (&["metrics", "--json"], 2, "`ksmith status --json`"),
    (&["sim", "/etc/passwd"], 2, "/etc/passwd: "),
    (&["sim", "./there-is-none"], 2, "can't read the scenario ./there-is-none"),
    (&["sim", "/dev/zero"], 2, "can't read the scenario /dev/zero: it is longer than 1 MiB"),
    (&["sim", "../scenarios/idle.toml", "--costs", "/nonexistent.toml"], 2, "can't read the file of costs /nonexistent.toml"),
    (&["sim", "../scenarios/idle.toml", "--ksmd-cpu", "long"], 2, "\"long\" is not a time from 0 ms to 1 d"),
    (&["sim", "calibrate", "burst"], 2, "unexpected argument 'burst'"),
    (&["sim", "calibrate", "--root", "TREE"], 2, "--root names a captured tree, and this command acts on a live kernel"),
    (&["sim", "../scenarios/idle.toml", "--host", "64M"], 2, "and the simulated host has 64.0 MiB: give a larger --host"),
    (&["report", "-o", "report.pdf"], 2, "ends with neither .html, .md nor .svg"),
];

/// Bad configurations: the words that say where and why. The exit code of each is 2.
#[rustfmt::skip]
const CONFIGURATIONS: [(&str, &str); 14] = [
    ("polcy = 1", ":1:1: there is no key \"polcy\""),
    ("[policy]\nkind = \"best\"", ":2:8: kind takes"),
    ("[limits]\nmax_cpu = \"120%\"", ":2:11: max_cpu: \"120%\" is not a percentage"),
    ("[limits]\nmax_cpu = 50", ":2:11: max_cpu: a percentage is a text with its sign, not 50: write \"50%\""),
    ("[limits\n", "unclosed table"),
    ("[policy.profit]\nprice_mib_per_cpu_second = 1\npressed_price_mib_per_cpu_second = 2", ":3:36: pressed_price_mib_per_cpu_second (2) must not be more than price_mib_per_cpu_second (1)"),
    ("[[balance.rule]]\nname = \"db\"\nfloor_mib = 512\nceiling_mib = 256", ":3:13: floor_mib (512) must not be more than ceiling_mib (256) (see line 4)"),
    ("[[balance.rule]]\nname = \"db\"\nclass = \"platinum\"", ":3:9: the class \"platinum\" has no weight"),
    ("[balance]\nlow_percent = 30", ":2:15: low_percent (30) must be less than high_percent (20)"),
    ("[daemon]\nksmd_cpus = \"all\"", "is not a list of CPUs"),
    ("[daemon]\nksmd_cpus = \"0-1023\"", "1023 here: CPUs are 0"),
    ("[domains]\nmode = \"node\"\nnodes = { a = 99 }", "there is no NUMA node 99 here"),
    ("[optin]\ncpu_seconds_per_hour = 4000", "an hour has 0 to 3600 seconds"),
    ("[guests]\nlibvirt_uri = \"qemu+ssh://other/system\"", "not a libvirt URI"),
];

#[test]
fn each_bad_argument_has_its_code_and_its_words() {
    assert!(ARGUMENTS.len() + CONFIGURATIONS.len() >= 40);
    let tree = tree("linux-6.18");
    for (arguments, code, words) in ARGUMENTS {
        let arguments: Vec<&str> =
            arguments.iter().map(|word| if *word == "TREE" { tree.as_str() } else { word }).collect();
        let output = ksmith(&arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(i32::from(code)), "{arguments:?}: {said}");
        assert!(said.contains(words), "{arguments:?}: {said}");
        assert_eq!(text(&output.stdout), "", "{arguments:?}");
    }
}

#[test]
fn each_bad_configuration_is_refused_with_its_file_and_place() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ksmith.toml");
    let path = file.display().to_string();
    for (content, words) in CONFIGURATIONS {
        fs::write(&file, content).unwrap();
        let output = ksmith(&["config", "check", &path]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{content}: {said}");
        assert!(said.starts_with(&format!("ksmith: {path}:")) && said.contains(words), "{content}: {said}");
    }
}

#[test]
fn an_error_under_json_is_one_object_on_standard_error() {
    let tree = tree("linux-6.18");
    for (arguments, code) in [
        (&["doctor", "no-guest-is-called-so", "--json", "--root", &tree][..], exit::UNKNOWN_GUEST),
        (&["status", "--json", "--root", "/nonexistent"], exit::USAGE),
        (&["status", "--json", "--nonsense"], exit::USAGE),
    ] {
        let output = ksmith(arguments);
        assert_eq!(output.status.code(), Some(i32::from(code.number)), "{arguments:?}");
        assert_eq!(text(&output.stdout), "");
        let said: Value = serde_json::from_slice(&output.stderr).expect("one object");
        assert_eq!((&said["error"]["code"], &said["error"]["kind"]), (&code.number.into(), &code.name.into()));
        assert!(!said["error"]["message"].as_str().unwrap().is_empty());
    }
}

#[test]
fn a_missing_configuration_is_not_called_good() {
    if Path::new("/etc/ksmith.toml").exists() {
        return;
    }
    let output = ksmith(&["config", "check"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(
        text(&output.stdout)
            .starts_with("/etc/ksmith.toml: there is no such file, so the defaults hold; policy profit")
    );
}

/// A tree with two more processes named as the guest alpha: one is a guest of that name too.
#[test]
fn a_name_of_two_guests_is_asked_back_with_kind_and_pid() {
    let copy = tempfile::tempdir().unwrap();
    let to = copy.path().join("tree");
    copy_tree(&to);
    let named = |name: &str| {
        let line = format!("qemu-system-x86_64\0-name\0{name}\0");
        move |pid: &str, to: &Path| fs::write(to.join("proc").join(pid).join("cmdline"), &line).unwrap()
    };
    let root = to.display().to_string();
    let machines = machines(&root);
    for pid in &machines {
        named("twin")(pid, &to);
    }
    for wanted in ["twin", "qemu:twin"] {
        let output = ksmith(&["doctor", wanted, "--root", &root]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(4), "{said}");
        for pid in &machines {
            assert!(said.contains(&format!("qemu:twin pid {pid}")), "{said}");
        }
    }
    let output = ksmith(&["doctor", &machines[0], "--root", &root]);
    assert!(!text(&output.stderr).contains("has ended"), "{}", text(&output.stderr));
}

#[test]
fn a_tree_that_shows_no_page_size_is_refused_with_the_missing_file() {
    let copy = tempfile::tempdir().unwrap();
    let to = copy.path().join("tree");
    copy_tree(&to);
    for path in fs::read_dir(to.join("proc")).unwrap().map(|entry| entry.unwrap().path()) {
        for file in ["auxv", "smaps", "status", "statm"] {
            let _ = fs::remove_file(path.join(file));
        }
    }
    let _ = fs::remove_file(to.join("proc/cpuinfo"));
    let status = || ksmith(&["status", "--root", &to.display().to_string()]);
    assert_eq!(status().status.code(), Some(0));
    fs::remove_file(to.join("proc/vmstat")).unwrap();
    let refused = status();
    assert!(text(&refused.stderr).contains("proc/vmstat is missing"), "{}", text(&refused.stderr));
    assert_eq!(refused.status.code(), Some(2));
    fs::write(to.join("proc/cpuinfo"), "vendor_id\t: AuthenticAMD\n").unwrap();
    assert_eq!(status().status.code(), Some(0));
}

#[test]
fn a_process_without_its_files_in_a_tree_has_not_ended() {
    let copy = tempfile::tempdir().unwrap();
    let process = copy.path().join("proc/4242");
    fs::create_dir_all(&process).unwrap();
    fs::write(process.join("stat"), format!("4242 (gpu) S {}", "1 ".repeat(49))).unwrap();
    fs::write(copy.path().join("proc/cpuinfo"), "vendor_id\t: AuthenticAMD\n").unwrap();
    let output = ksmith(&["doctor", "4242", "--root", &copy.path().display().to_string()]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("the captured tree has no proc/4242/smaps"), "{said}");
}

#[test]
fn a_check_is_one_line_with_the_code_of_a_plugin() {
    let check = |name: &str| {
        let output = ksmith(&["doctor", "--check", "--root", &tree(name)]);
        assert_eq!(text(&output.stdout).lines().count(), 1, "{}", text(&output.stdout));
        (output.status.code().unwrap(), text(&output.stdout))
    };
    let (code, said) = check("no-ksm");
    assert!(code == 2 && said.starts_with("KSM CRITICAL - ") && said.contains("[no-ksm]"), "{said}");
    assert!(said.contains(" | problems=1 warnings="), "{said}");
    let (code, said) = check("linux-6.18");
    assert!(code == 1 && said.starts_with("KSM WARNING - "), "{said}");
    let output = ksmith(&["doctor", "--check", "--config", "/nonexistent.toml"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stdout).starts_with("KSM UNKNOWN - can't read the configuration"));
}

#[test]
fn the_help_has_the_table_of_exit_codes() {
    let help = text(&ksmith(&["--help"]).stdout);
    for line in exit::lines() {
        assert!(help.contains(&line), "{line} is not in\n{help}");
    }
}

/// A copy of a captured tree in which both of its machines run under a libvirt of another driver, with its records.
fn tree_of_another_libvirt(to: &Path) {
    copy_tree(to);
    let pids = machines(&to.display().to_string());
    let records = to.join("run/libvirt/other");
    fs::create_dir_all(&records).unwrap();
    for (number, pid) in pids.iter().enumerate() {
        let name = format!("web-{number}");
        let line = format!(
            "qemu-system-x86_64 -name guest={name},debug-threads=on -chardev socket,id=charmonitor,fd=22,server=on,wait=off \
             -mon chardev=charmonitor,id=monitor,mode=control "
        );
        let process = to.join("proc").join(pid);
        fs::write(process.join("cmdline"), line.replace(' ', "\0")).unwrap();
        let scope = format!("0::/machine.slice/machine-other\\x2d{number}\\x2d{name}.scope\n");
        fs::write(process.join("cgroup"), scope).unwrap();
        let record = format!(
            "<domstatus pid='{pid}'><domain type='qemu' id='{number}'><name>{name}</name>\
             <uuid>00000000-1111-2222-3333-44444444444{number}</uuid></domain></domstatus>"
        );
        fs::write(records.join(format!("{name}.xml")), record).unwrap();
        fs::set_permissions(records.join(format!("{name}.xml")), Permissions::from_mode(0o600)).unwrap();
    }
    fs::set_permissions(records, Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn status_and_doctor_ask_the_libvirt_of_the_configuration() {
    let directory = tempfile::tempdir().unwrap();
    let (to, file) = (directory.path().join("tree"), directory.path().join("ksmith.toml"));
    tree_of_another_libvirt(&to);
    let (root, path) = (to.display().to_string(), file.display().to_string());
    // A rule by name fits a guest only if libvirt's record verifies the name.
    let domains = "[[domains.rule]]\ndomain = \"of-web\"\nname = \"web-*\"\n";
    for (uri, is_theirs) in [("other:///system", true), ("qemu:///system", false)] {
        fs::write(&file, format!("[guests]\nlibvirt_uri = \"{uri}\"\n{domains}")).unwrap();
        let json = |command: &str| -> Value {
            let output = ksmith(&[command, "--json", "--root", &root, "--config", &path]);
            serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{command}: {output:?}"))
        };
        let of_status = json("status");
        let domains = of_status["domains"]["domains"].as_array().unwrap().iter();
        let of_web = domains.filter(|domain| domain["domain"] == "of-web").map(|domain| &domain["guests"]);
        assert_eq!(of_web.collect::<Vec<_>>(), vec![2; usize::from(is_theirs)], "status, {uri}: {of_status}");
        let of_doctor = json("doctor").to_string();
        assert_eq!(of_doctor.contains("of-web"), is_theirs, "doctor, {uri}: {of_doctor}");
    }
}

#[test]
fn a_vmid_of_proxmox_names_its_guest_and_no_process_of_the_kernel() {
    let directory = tempfile::tempdir().unwrap();
    let to = directory.path().join("tree");
    copy_tree(&to);
    let root = to.display().to_string();
    let pid = &machines(&root)[0];
    let line = |vmid: u32| {
        format!(
            "/usr/bin/kvm -id {vmid} -name web -chardev socket,id=qmp,path=/var/run/qemu-server/{vmid}.qmp,server=on,wait=off \
             -mon chardev=qmp,mode=control -daemonize "
        )
        .replace(' ', "\0")
    };
    let said = |wanted: &str| {
        let output = ksmith(&["doctor", wanted, "--seconds", "0", "--root", &root]);
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    };
    // 104 is no process, and 2 is one of the kernel.
    let of_kernel = 2;
    for vmid in [104, of_kernel] {
        fs::write(to.join("proc").join(pid).join("cmdline"), line(vmid)).unwrap();
        for wanted in [vmid.to_string(), format!("proxmox:{vmid}")] {
            let (code, said) = said(&wanted);
            assert!(said.contains(&format!("proc/{pid}/smaps")), "{wanted}: {code:?} {said}");
        }
    }
}

#[test]
fn a_captured_tree_is_read_with_its_own_configuration() {
    let directory = tempfile::tempdir().unwrap();
    let to = directory.path().join("tree");
    copy_tree(&to);
    let root = to.display().to_string();
    let checked = ksmith(&["config", "check", "--root", &root]);
    let said = text(&checked.stdout);
    assert!(said.starts_with(&format!("{root}/etc/ksmith.toml: there is no such file")), "{said}");
    fs::create_dir(to.join("etc")).unwrap();
    fs::write(to.join("etc/ksmith.toml"), "[domains]\ndefalt = \"a\"\n").unwrap();
    // What only reads goes on with a warning.
    for (command, code) in [
        (&["status"][..], 0),
        (&["guests"], 0),
        (&["metrics"], 0),
        (&["doctor"], 0),
        (&["config", "check"], 2),
        (&["config", "show"], 2),
    ] {
        let output = ksmith(&[command, &["--root", &root]].concat());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{command:?}: {said}");
        assert!(said.contains("etc/ksmith.toml:2:1: there is no key \"defalt\""), "{command:?}: {said}");
    }
    fs::write(to.join("etc/ksmith.toml"), "[history]\nmax_mib = \"1.5G\"\n").unwrap();
    let shown: Value =
        serde_json::from_slice(&ksmith(&["config", "show", "--json", "--root", &root]).stdout).unwrap();
    assert_eq!(shown["settings"]["history.max_mib"], serde_json::json!({ "value": 1536, "is_default": false }));
}

#[test]
fn faults_of_a_configuration_that_is_only_warned_of_stand_in_one_line() {
    let directory = tempfile::tempdir().unwrap();
    let to = directory.path().join("tree");
    copy_tree(&to);
    fs::create_dir(to.join("etc")).unwrap();
    fs::write(to.join("etc/ksmith.toml"), "x = 1\n[limits]\nmax_cpu = 50\n").unwrap();
    let output = ksmith(&["--root", &to.display().to_string()]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let fits = |line: &str| {
        line.contains("ksmith.toml:1:1: ") && line.contains("; ") && line.contains("ksmith.toml:3:11: ")
    };
    assert!(said.lines().any(fits) && !said.contains("\\n"), "{said}");
}

#[test]
fn a_tree_without_ksm_is_told_so() {
    let said = text(&ksmith(&["guests", "--root", &tree("no-ksm")]).stdout);
    assert!(
        said.contains("this kernel has no KSM or its counters can't be read: `ksmith doctor` says why"),
        "{said}"
    );
    let output = ksmith(&["setup", "--dry-run", "--json", "--root", &tree("no-ksm")]);
    assert_eq!(output.status.code(), Some(3), "a dry run ends as the run would");
    let plan: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(plan["plan"]["obstacles"][0].as_str().unwrap().contains("this kernel has no KSM"), "{plan}");
}

#[test]
fn a_setup_of_a_tree_names_the_tree_and_refuses_a_switch_that_makes_no_sense() {
    let root = tree("linux-6.18");
    let said = text(&ksmith(&["setup", "--dry-run", "--root", &root]).stdout);
    assert!(said.starts_with(&format!("ksmith setup changes this in {root}:\n")), "{said}");
    let said = text(&ksmith(&["setup", "--undo", "--dry-run", "--root", &root]).stdout);
    assert_eq!(said, format!("nothing to undo: ksmith setup has changed nothing in {root}\n"));
    let output = ksmith(&["setup", "--dry-run", "--root", &tree("hostile")]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("/sys/kernel/mm/ksm/run makes no sense (line 1: expected"), "{said}");
}

/// A file of faults, one in each line.
#[test]
fn a_configuration_of_faults_alone_is_refused_with_the_first_hundred() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("bad.toml");
    fs::write(&file, "a b c d\n".repeat(50_000)).unwrap();
    let output = ksmith(&["config", "check", &file.display().to_string()]);
    assert_eq!((output.status.code(), text(&output.stderr).lines().count()), (Some(2), 100));
}

/// Root in a container lacks rights that root of the host has.
#[test]
fn root_without_a_right_is_not_told_to_be_root() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let mut other = Command::new("sleep").arg("600").spawn().unwrap();
    let pid = other.id().to_string();
    for command in ["doctor", "estimate"] {
        let limits = ["--inh-caps=-all", "--bounding-set=-all", PROGRAM];
        let output =
            Command::new("setpriv").args(limits).args([command, &pid]).stdin(Stdio::null()).output().unwrap();
        let said = text(&output.stderr) + &text(&output.stdout);
        assert!(said.contains("this root lacks the right too"), "{command}: {said}");
        assert!(!said.contains("run ksmith as root"), "{command}: {said}");
    }
    other.kill().unwrap();
    other.wait().unwrap();
}
