//! The command line as users meet it: help, exit codes, messages, and what happens to output that can't be written.
//!
//! Nothing here changes the host: what acts is refused before it acts.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test ends by panicking")]

use std::fs::{self, OpenOptions, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

mod support;
use support::skipped;

const PROGRAM: &str = env!("CARGO_BIN_EXE_ksmith");

/// Commands that change something, with arguments that would do so.
const ACTING: [&[&str]; 9] = [
    &["daemon"],
    &["scan"],
    &["enable"],
    &["disable"],
    &["set", "run=1"],
    &["unmerge"],
    &["restore"],
    &["lab", "run", "burst"],
    &["set", "run=1", "--dry-run"],
];

fn tree(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata").join(name).display().to_string()
}

fn ksmith(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn code(output: &Output) -> i32 {
    output.status.code().expect("it was not ended by a signal")
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("UTF-8")
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|why| panic!("{why}: {}", out(output)))
}

#[test]
fn help_and_misuse_are_as_written_down() {
    trycmd::TestCases::new().env("COLUMNS", "100").case("tests/cmd/*.trycmd").run();
}

#[test]
fn every_command_has_its_help_written_down() {
    let help = out(&ksmith(&["--help"]));
    let commands = help.split_once("Commands:\n").unwrap().1.split_once("\n\n").unwrap().0;
    let names: Vec<&str> = commands
        .lines()
        .filter_map(|line| line.strip_prefix("  ").filter(|rest| !rest.starts_with(' '))?.split(' ').next())
        .filter(|name| *name != "help")
        .collect();
    assert!(names.len() >= 12, "{names:?}");
    for name in names {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/cmd/help-{name}.trycmd"));
        assert!(file.exists(), "no {}", file.display());
    }
}

#[test]
fn what_acts_refuses_a_captured_tree() {
    let tree = tree("linux-6.18");
    for arguments in ACTING.into_iter().chain([&["demo"][..]]) {
        let output = ksmith(&[arguments, &["--root", &tree]].concat());
        assert_eq!(code(&output), 2, "{arguments:?}");
        assert!(err(&output).contains("this command acts on a live kernel"), "{arguments:?}: {}", err(&output));
    }
}

#[test]
fn ten_mistakes_in_a_configuration_are_refused_ten_times_with_line_and_column() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ksmith.toml");
    let path = file.display().to_string();
    for (text, place, why) in [
        ("polcy = 1\n", ":1:1: ", "there is no key \"polcy\" at the top of the file: did you mean \"policy\"?"),
        ("[policy]\nkind = \"best\"\n", ":2:8: ", "kind takes \"profit\", \"score\""),
        ("[policy.profit]\nprice = 1\n", ":2:1: ", "there is no key \"price\" in [policy.profit]"),
        (
            "[policy.profit]\ngrowth_mib = \"4\"\n",
            ":2:14: ",
            "growth_mib takes a number of MiB, or a text with its unit",
        ),
        ("[limits]\nmax_cpu = \"120%\"\n", ":2:11: ", "is not a percentage"),
        (
            "[limits]\nmax_pages_to_scan = -1\n",
            ":2:21: ",
            "max_pages_to_scan takes a whole number from 0 to 4294967295, not -1",
        ),
        ("[policy.fixed]\nsettings = { pages_shared = 1 }\n", ":2:12: ", "pages_shared"),
        ("[daemon]\ncontrol_socket = \"/a\"\ncontrol_socket = \"/b\"\n", ":3:1: ", "duplicate key"),
        ("[limits\nmax_cpu = \"20%\"\n", ":1:8: ", "unclosed table"),
        ("# fine\n\n[policy.fixed]\npreset = \"slow\"\n", ":4:10: ", "there is no preset \"slow\""),
    ] {
        fs::write(&file, text).unwrap();
        // Every command that goes by the configuration refuses it, not only the one that checks.
        for command in [&["config", "check"][..], &["status"], &["doctor"]] {
            let output = ksmith(&[command, &["--config", &path]].concat());
            assert_eq!(code(&output), 2, "{text:?}");
            assert_eq!(out(&output), "", "{text:?}");
            let message = err(&output);
            assert!(message.starts_with(&format!("ksmith: {path}:")), "{message}");
            assert!(message.contains(place) && message.contains(why), "{text:?} gave {message}");
        }
    }
    fs::write(&file, "[policy]\nkind = \"score\"\n[limits]\nmax_cpu = \"20%\"\n").unwrap();
    let output = ksmith(&["config", "check", "--config", &path]);
    assert_eq!(
        (code(&output), out(&output)),
        (0, format!("{path}: good; policy score, ksmd up to 20 % of a CPU\n"))
    );
}

#[test]
fn all_faults_of_a_configuration_are_told_at_once_as_text_and_as_json() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ksmith.toml");
    let path = file.display().to_string();
    fs::write(&file, "[limits]\nmax_cpu = 50\n[balance]\nlow_percent = 30\n").unwrap();
    let output = ksmith(&["config", "check", &path]);
    assert_eq!(code(&output), 2);
    let lines: Vec<String> = err(&output).lines().map(|line| line.trim_start().to_owned()).collect();
    assert_eq!(
        lines,
        [
            format!("ksmith: {path}:2:11: max_cpu: a percentage is a text with its sign, not 50: write \"50%\""),
            format!("{path}:4:15: low_percent (30) must be less than high_percent (20)"),
        ]
    );
    let output = ksmith(&["config", "check", &path, "--json"]);
    assert_eq!(code(&output), 2);
    let document = json(&output);
    assert!(schema("config check").is_valid(&document), "{document}");
    assert_eq!(document["faults"][1]["line"], 4);
}

#[test]
fn a_file_that_the_policy_needs_is_checked_too() {
    let directory = tempfile::tempdir().unwrap();
    let (file, theirs) = (directory.path().join("ksmith.toml"), directory.path().join("ksmtuned.conf"));
    let text = format!("[policy]\nkind = \"ksmtuned\"\n[policy.ksmtuned]\nfile = {:?}\n", theirs.display());
    fs::write(&file, text).unwrap();
    let check = || ksmith(&["config", "check", "--config", &file.display().to_string()]);
    assert_eq!(code(&check()), 0, "that it is not there means the script's defaults");
    fs::write(&theirs, "KSM_SLEEP_MSEC=10\nKSM_NPAGES_MAX=many\n").unwrap();
    let output = check();
    assert_eq!(code(&output), 2);
    assert!(err(&output).contains(&format!("{}: line 2: KSM_NPAGES_MAX", theirs.display())), "{}", err(&output));
}

/// The program where any user may run it, and a user that is not root.
struct Unprivileged {
    _directory: tempfile::TempDir,
    program: PathBuf,
}

impl Unprivileged {
    fn new() -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
        let program = directory.path().join("ksmith");
        support::copy_program(Path::new(PROGRAM), &program);
        fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
        let user = Self { _directory: directory, program };
        if !user.run(&["--version"]).status.success() {
            skipped("no program can be run as another user here (setpriv)");
            return None;
        }
        Some(user)
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = if rustix::process::geteuid().is_root() {
            let mut command = Command::new("setpriv");
            command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--"]).arg(&self.program);
            command
        } else {
            Command::new(&self.program)
        };
        command.args(arguments).current_dir("/").stdin(Stdio::null()).output().unwrap()
    }
}

#[test]
fn without_root_nothing_is_changed_and_everything_that_can_be_is_shown() {
    if !Path::new("/sys/kernel/mm/ksm/run").exists() {
        skipped("this kernel has no KSM");
        return;
    }
    let Some(user) = Unprivileged::new() else { return };
    for arguments in ACTING {
        let output = user.run(arguments);
        assert_eq!(code(&output), 5, "{arguments:?}: {}", err(&output));
        assert_eq!(err(&output), "ksmith: changing KSM's settings needs root: run it with sudo\n", "{arguments:?}");
    }

    let output = user.run(&["status"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let hint = "do not show their KSM figures to this user; run as root to see all";
    assert!(out(&output).contains(hint), "{}", out(&output));
    let status = json(&user.run(&["status", "--json"]));
    assert!(status["run"].is_u64() && status["hidden_processes"].as_u64().unwrap() > 0, "{status}");
    assert!(status["errors"].as_array().unwrap().iter().any(|error| error.as_str().unwrap().contains(hint)));

    let findings = json(&user.run(&["doctor", "--json"]));
    let codes: Vec<&str> =
        findings["findings"].as_array().unwrap().iter().map(|f| f["code"].as_str().unwrap()).collect();
    assert!(!codes.contains(&"nothing-mergeable"), "what can't be seen is not said to be absent: {codes:?}");

    let output = user.run(&["demo"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert!(out(&output).contains("needs root: sudo ksmith demo"), "{}", out(&output));
    assert_eq!(json(&user.run(&["demo", "--json", "--size", "4"]))["mode"], "simulated");
}

#[test]
fn a_kernel_without_ksm_is_said_so() {
    let tree = tree("no-ksm");
    let output = ksmith(&["--root", &tree, "status"]);
    assert_eq!((code(&output), out(&output)), (0, "KSM: this kernel has none\n".to_owned()));
    let status = json(&ksmith(&["--root", &tree, "status", "--json"]));
    assert_eq!(
        (&status["run"], &status["saved_bytes"], &status["errors"]),
        (&Value::Null, &Value::Null, &Value::Array(vec![]))
    );
    let output = ksmith(&["--root", &tree, "doctor"]);
    assert_eq!(code(&output), 6);
    assert!(out(&output).contains("CONFIG_KSM=y"), "{}", out(&output));
}

#[test]
fn what_can_not_be_read_is_unknown_and_not_zero() {
    for name in ["hostile", "no-ksm"] {
        let tree = tree(name);
        let status = json(&ksmith(&["--root", &tree, "status", "--json"]));
        for key in ["saved_bytes", "profit_bytes", "exposure_bytes", "overhead_bytes", "tracked_bytes"] {
            assert!(status.as_object().unwrap().contains_key(key) && status[key].is_null(), "{name}: {key}");
        }
        let guests = json(&ksmith(&["--root", &tree, "guests", "--json"]));
        assert!(guests["saved_bytes"].is_null() && guests["profit_bytes"].is_null(), "{name}: {guests}");
        for guest in guests["guests"].as_array().unwrap() {
            assert!(guest["saved_bytes"].is_null() && guest["rss_bytes"].is_u64(), "{name}: {guest}");
        }
        assert!(json(&ksmith(&["--root", &tree, "--json"]))["saved_bytes"].is_null(), "{name}");
        for command in ["status", "guests"] {
            let text = out(&ksmith(&["--root", &tree, command]));
            assert!(!text.contains("saved 0 B") && !text.contains("saved     0 B"), "{name}: {text}");
        }
    }
    let known = json(&ksmith(&["--root", &tree("linux-6.18"), "status", "--json"]));
    assert!(known["saved_bytes"].is_u64() && known["profit_bytes"].is_i64(), "{known}");
}

/// A copy of a captured tree in which one guest has another's name.
fn twins() -> (tempfile::TempDir, String) {
    let copy = tempfile::tempdir().unwrap();
    let to = copy.path().join("tree");
    assert!(Command::new("cp").args(["-r", &tree("linux-6.18")]).arg(&to).status().unwrap().success());
    for pid in ["13466", "13467"] {
        fs::write(to.join(format!("proc/{pid}/cmdline")), "qemu-system-x86_64\0-name\0web\0").unwrap();
    }
    let tree = to.display().to_string();
    (copy, tree)
}

#[test]
fn a_name_of_two_guests_lists_both_and_a_pid_chooses_one() {
    let (_copy, tree) = twins();
    for name in ["web", "qemu:web"] {
        let output = ksmith(&["doctor", name, "--root", &tree]);
        assert_eq!((code(&output), out(&output).as_str()), (4, ""), "{}", err(&output));
        for part in ["2 guests are called", "qemu:web pid 13466", "qemu:web pid 13467", "by its PID or UUID"] {
            assert!(err(&output).contains(part), "{part}: {}", err(&output));
        }
    }
    // What this tree lacks is said of the one that was chosen.
    let chosen = ksmith(&["doctor", "13467", "--root", &tree]);
    assert!(err(&chosen).contains("the captured tree has no proc/13467/smaps"), "{}", err(&chosen));
}

#[test]
fn a_file_that_a_captured_tree_lacks_is_named_and_no_process_is_said_to_have_ended() {
    let (_copy, tree) = twins();
    fs::remove_file(Path::new(&tree).join("proc/13466/maps")).unwrap();
    let output = ksmith(&["doctor", "13466", "--root", &tree]);
    assert_eq!(code(&output), 3, "{}", err(&output));
    assert!(err(&output).contains("the captured tree has no proc/13466/"), "{}", err(&output));
    assert!(!err(&output).contains("has ended"), "{}", err(&output));
}

#[test]
fn estimate_tells_root_not_to_become_root() {
    let output = ksmith(&["estimate", "1"]);
    if rustix::process::geteuid().is_root() {
        assert!(!err(&output).contains("run ksmith as root"), "{}", err(&output));
    } else {
        assert_eq!(code(&output), 5, "{}", err(&output));
    }
}

#[test]
fn a_check_is_one_line_with_the_codes_of_nagios() {
    let check = |name: &str| {
        let output = ksmith(&["doctor", "--check", "--root", &tree(name)]);
        assert_eq!(out(&output).lines().count(), 1, "{}", out(&output));
        (code(&output), out(&output))
    };
    let (code_of_none, line) = check("no-ksm");
    assert_eq!(code_of_none, 2);
    assert!(line.starts_with("KSM CRITICAL - this kernel has no KSM") && line.contains(" | problems=1 "), "{line}");
    let (code_of_warnings, line) = check("linux-6.18");
    assert_eq!(code_of_warnings, 1, "{line}");
    assert!(line.starts_with("KSM WARNING - ") && line.contains(" | problems=0 warnings="), "{line}");
    let (unknown, line) = check("there-is-none");
    assert_eq!(unknown, 3);
    assert!(line.starts_with("KSM UNKNOWN - --root "), "{line}");
    let bad = tempfile::NamedTempFile::new().unwrap();
    fs::write(bad.path(), "polcy = 1\n").unwrap();
    let output = ksmith(&["doctor", "--check", "--config", &bad.path().display().to_string()]);
    assert_eq!((code(&output), out(&output).lines().count()), (3, 1), "{}", out(&output));
}

#[test]
fn no_help_names_a_page_of_the_source_tree() {
    let help = out(&ksmith(&["--help"]));
    let commands = help.split_once("Commands:\n").unwrap().1.split_once("\n\n").unwrap().0;
    let names = commands.lines().filter_map(|line| line.trim().split(' ').next()).filter(|name| *name != "help");
    let pages: Vec<String> = names.map(|name| out(&ksmith(&[name, "--help"]))).chain([help.clone()]).collect();
    for page in pages {
        for (at, _) in page.match_indices("docs/") {
            assert!(page[..at].ends_with("/usr/share/doc/ksmith/"), "{page}");
        }
    }
}

#[test]
fn a_hostile_tree_is_shown_without_harm() {
    let tree = tree("hostile");
    for arguments in [&["status"][..], &["status", "--json"], &["doctor"], &["doctor", "--json"]] {
        let output = ksmith(&[arguments, &["--root", &tree]].concat());
        let text = out(&output);
        let control = text.chars().find(|c| c.is_control() && *c != '\n');
        assert_eq!(control, None, "{arguments:?}: {text:?}");
        assert_eq!(err(&output), "", "{arguments:?}");
        assert_eq!(code(&output), if arguments[0] == "doctor" { 6 } else { 0 }, "{arguments:?}");
    }
    let status = json(&ksmith(&["--root", &tree, "status", "--json"]));
    let errors: Vec<&str> = status["errors"].as_array().unwrap().iter().map(|e| e.as_str().unwrap()).collect();
    let files = ["run", "pages_to_scan", "merge_across_nodes", "advisor_mode", "general_profit"]
        .map(|name| format!("/sys/kernel/mm/ksm/{name}: "));
    for file in
        files.iter().map(String::as_str).chain(["/proc/meminfo: ", "/proc/vmstat: ", "/proc/pressure/memory: "])
    {
        assert!(errors.iter().any(|error| error.starts_with(file)), "{file} is not among {errors:?}");
    }
    assert_eq!(status["run"], Value::Null, "what makes no sense is no number");
}

#[test]
fn a_process_can_not_write_to_the_terminal_by_its_name() {
    let copy = tempfile::tempdir().unwrap();
    let (from, to) = (tree("linux-6.18"), copy.path().join("tree"));
    assert!(Command::new("cp").args(["-r", &from]).arg(&to).status().unwrap().success());
    let line = "qemu-system-x86_64\0-name\0\u{1b}]0;owned\u{7}\0";
    fs::write(to.join("proc/13466/cmdline"), line).unwrap();
    let output = ksmith(&["status", "--root", &to.display().to_string()]);
    let line = out(&output).lines().find(|line| line.contains("13466")).unwrap().to_owned();
    assert!(line.contains("owned") && !line.contains(char::is_control), "{line:?}");
}

#[test]
fn no_argument_and_no_path_writes_to_the_terminal() {
    let tree = tree("linux-6.18");
    let hostile = "web\u{1b}[2J\u{9b}2J\u{202e}\nksmith: all settings restored";
    for arguments in [
        &["config", "check", "--config", hostile][..],
        &["doctor", hostile, "--root", &tree],
        &["status", "--root", hostile, hostile],
        &[hostile],
    ] {
        let output = ksmith(arguments);
        let (said, lines) = (err(&output), err(&output));
        assert_ne!(code(&output), 0, "{said}");
        // The parser of arguments drops sequences that begin with an escape, of its own accord.
        assert!(said.contains("web") && said.contains("\\u{9b}2J\\u{202e}"), "{said}");
        for line in lines.lines() {
            assert!(!line.contains(|c: char| c.is_control() || c == '\u{202e}'), "{line:?}");
        }
        // Misuse is said in several lines, with the words of the command line as they are.
        if !said.starts_with("error: ") {
            assert_eq!(lines.lines().filter(|line| line.starts_with("ksmith: ")).count(), 1, "{said}");
        }
    }
}

#[test]
fn captured_kernels_have_the_status_written_down() {
    for name in ["linux-6.1", "linux-6.18"] {
        let output = ksmith(&["status", "--json", "--root", &tree(name)]);
        insta::assert_snapshot!(format!("status-{name}"), out(&output));
    }
}

/// What `ksmith schema` says of a command.
fn schema(command: &str) -> jsonschema::Validator {
    let arguments: Vec<&str> = ["schema"].into_iter().chain(command.split(' ')).collect();
    jsonschema::validator_for(&json(&ksmith(&arguments))).expect("a schema")
}

#[test]
fn what_commands_print_of_captured_trees_fits_their_schemas() {
    for name in ["linux-6.1", "linux-6.18", "no-ksm", "hostile"] {
        let tree = tree(name);
        for (command, arguments) in [
            ("status", &["status"][..]),
            ("guests", &["guests"]),
            ("guests", &["guests", "--by", "user"]),
            ("guests", &["guests", "--by", "domain", "--sort", "rss"]),
            ("doctor", &["doctor"]),
            ("overview", &[]),
            ("overview", &["overview"]),
            ("setup", &["setup", "--dry-run"]),
        ] {
            let document = json(&ksmith(&[arguments, &["--json", "--root", &tree]].concat()));
            let faults: Vec<_> = schema(command).iter_errors(&document).map(|fault| fault.to_string()).collect();
            assert!(faults.is_empty(), "{name}: {arguments:?}: {faults:?}");
        }
    }
    for (command, arguments) in [
        ("demo", &["demo", "--simulated", "--size", "4", "--json"][..]),
        ("config check", &["config", "check", "--json"]),
        ("lab list", &["lab", "list", "--json"]),
        ("sim", &["sim", "../scenarios/idle.toml", "--policies", "fixed:still,none", "--json"]),
    ] {
        let document = json(&ksmith(arguments));
        let faults: Vec<_> = schema(command).iter_errors(&document).map(|fault| fault.to_string()).collect();
        assert!(faults.is_empty(), "{arguments:?}: {faults:?}");
    }
}

#[test]
fn without_a_command_there_is_an_overview_with_the_next_command() {
    for (name, parts) in [
        ("no-ksm", &["this kernel has none", "next      `ksmith doctor`", "`ksmith --help` lists"][..]),
        ("linux-6.18", &["KSM       ", "control   ", "guests    ", "could     save at most", "next      `"]),
        ("hostile", &["KSM       ", "next      `"]),
    ] {
        let output = ksmith(&["--root", &tree(name)]);
        assert_eq!(code(&output), 0, "{name}: {}", err(&output));
        for part in parts {
            assert!(out(&output).contains(part), "{name}: {part} is not in\n{}", out(&output));
        }
    }
    let bad = tempfile::NamedTempFile::new().unwrap();
    fs::write(bad.path(), "polcy = 1\n").unwrap();
    let output = ksmith(&["--config", &bad.path().display().to_string(), "--root", &tree("linux-6.18")]);
    assert_eq!(code(&output), 0);
    assert!(err(&output).contains("ksmith config check"), "{}", err(&output));
}

#[test]
fn a_command_without_a_schema_is_refused_and_the_others_are_listed() {
    let output = ksmith(&["schema", "completions"]);
    assert_eq!(code(&output), 2);
    assert!(err(&output).contains("completions has no schema"), "{}", err(&output));
    let listed = out(&ksmith(&["schema"]));
    for command in ["status", "guests", "balance", "lab run"] {
        assert!(listed.lines().any(|line| line == command), "{command} is not in\n{listed}");
    }
}

#[test]
fn completions_know_the_commands_of_every_shell() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let output = ksmith(&["completions", shell]);
        assert_eq!(code(&output), 0);
        let script = out(&output);
        for word in ["doctor", "take-over", "max-cpu"] {
            assert!(script.contains(word), "{shell} does not know {word}");
        }
    }
    let bash = ksmith(&["completions", "bash"]);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ksmith.bash");
    fs::write(&file, &bash.stdout).unwrap();
    let checked = Command::new("bash").arg("-n").arg(&file).output().unwrap();
    assert!(checked.status.success(), "{}", err(&checked));
}

/// Commands that print and change nothing, on trees and not on this host, so that a daemon's test does not matter.
fn printing() -> Vec<Vec<String>> {
    let with_tree = |words: &[&str]| {
        words.iter().map(ToString::to_string).chain(["--root".to_owned(), tree("linux-6.18")]).collect()
    };
    let bare = |words: &[&str]| words.iter().map(ToString::to_string).collect();
    vec![
        with_tree(&["status"]),
        with_tree(&["status", "--json"]),
        with_tree(&["doctor"]),
        with_tree(&["doctor", "--json"]),
        bare(&["config", "check"]),
        bare(&["completions", "bash"]),
        bare(&["demo", "--simulated", "--size", "4"]),
        bare(&["demo", "--simulated", "--size", "4", "--json"]),
        bare(&["--help"]),
        bare(&["status", "--help"]),
        bare(&["--version"]),
    ]
}

#[test]
fn a_closed_pipe_is_no_error() {
    for arguments in printing() {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = Command::new(PROGRAM).args(&arguments).stdin(Stdio::null()).stdout(writer).output().unwrap();
        assert_eq!(code(&output), 0, "{arguments:?}: {}", err(&output));
        assert!(!err(&output).contains("panicked") && !err(&output).contains("Broken pipe"), "{}", err(&output));
    }
}

#[test]
fn a_result_that_can_not_be_written_is_a_failure() {
    for arguments in printing() {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = Command::new(PROGRAM).args(&arguments).stdin(Stdio::null()).stdout(full).output().unwrap();
        assert_eq!(code(&output), 1, "{arguments:?}: {}", err(&output));
        let said = match arguments.iter().any(|word| word == "--json") {
            true => {
                "{\"error\":{\"code\":1,\"kind\":\"failed\",\"message\":\"can't print the result: No space left on device"
            }
            false => "ksmith: can't print the result: No space left on device",
        };
        assert!(
            err(&output).lines().last().unwrap_or_default().starts_with(said),
            "{arguments:?}: {}",
            err(&output)
        );
    }
}

#[test]
fn guests_are_filtered_ordered_and_limited_in_text_and_json() {
    let tree = tree("linux-6.18");
    let run = |more: &[&str]| ksmith(&[&["guests", "--root", &tree], more].concat());
    let names = |output: &Output| {
        let guests = json(output)["guests"].as_array().unwrap().clone();
        guests.iter().map(|guest| guest["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let all = run(&["--json"]);
    assert_eq!(names(&all), ["alpha", "beta", "gamma"]);
    let few = run(&["--json", "--filter", "rss>1.1MiB or name~g*", "--sort", "name", "--reverse", "--limit", "2"]);
    assert_eq!(names(&few), ["gamma", "beta"]);
    assert_eq!(json(&few)["saved_bytes"], json(&all)["saved_bytes"]);
    let text = out(&run(&["--filter", "kind=qemu", "--limit", "1"]));
    assert!(text.contains("alpha") && !text.contains("beta"), "{text}");
    assert!(text.contains("… and 1 more\n2 of 3 guests fit the filter\n\nsaved 764 KiB on this host"), "{text}");
    let wrong = run(&["--filter", "kind=qemu and savd>1M"]);
    assert_eq!((code(&wrong), out(&wrong).as_str()), (2, ""));
    assert!(
        err(&wrong).starts_with("ksmith: the filter, at character 15: there is no figure `savd`; known are name,")
    );
}

#[test]
fn colours_are_for_terminals_unless_they_are_asked_for() {
    let tree = tree("linux-6.18");
    for command in ["status", "guests", "doctor"] {
        let run = |more: &[&str]| out(&ksmith(&[&[command, "--root", &tree], more].concat()));
        let (plain, painted) = (run(&[]), run(&["--color", "always"]));
        assert!(!plain.contains('\u{1b}'), "{plain}");
        assert_eq!(run(&["--color", "never"]), plain);
        let without: String = painted
            .split("\u{1b}[")
            .enumerate()
            .map(|(n, part)| match n {
                0 => part.to_owned(),
                _ => part.split_once('m').unwrap().1.to_owned(),
            })
            .collect();
        assert_eq!(without, plain, "a colour changes no text");
    }
    assert!(out(&ksmith(&["doctor", "--root", &tree, "--color", "always"])).contains("\u{1b}[33mwarning\u{1b}[0m"));
}
