//! Completion: the scripts that shells read, and the candidates that the program gives them.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};

use ksmith_core::guest::Guest;
use ksmith_core::model::GuestsReport;
use ksmith_core::sample::{ProcessId, Sample};
use ksmith_service::control::ControlReply;

use super::{PROGRAM, code, err, ksmith, out};

/// Returns the candidates for the last of these words, as fish asks for them.
fn candidates(words: &[&str]) -> Vec<String> {
    let mut command = Command::new(PROGRAM);
    let output = command.args(["--", "ksmith"]).args(words).env("KSMITH_COMPLETE", "fish").stdin(Stdio::null());
    let output = output.output().unwrap();
    assert_eq!((code(&output), err(&output).as_str()), (0, ""), "{words:?}");
    out(&output).lines().map(|line| line.split('\t').next().unwrap().to_owned()).collect()
}

/// Writes a configuration with a control socket beside it. Returns its path, and the listener.
fn configured_socket(directory: &Path) -> (String, UnixListener) {
    let (file, socket) = (directory.join("ksmith.toml"), directory.join("control"));
    let view = directory.join("view");
    let text = format!("[daemon]\ncontrol_socket = {socket:?}\n[view]\nsocket = {view:?}\n");
    fs::write(&file, text).unwrap();
    (file.display().to_string(), UnixListener::bind(&socket).unwrap())
}

#[test]
fn every_shell_has_a_script_that_asks_the_program() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let output = ksmith(&["completions", shell]);
        assert_eq!(code(&output), 0);
        assert!(out(&output).contains("KSMITH_COMPLETE"), "{shell}: {}", out(&output));
    }
    assert!(out(&ksmith(&["completions", "zsh"])).starts_with("#compdef ksmith\n"));
}

#[test]
fn commands_options_figures_settings_and_times_are_candidates() {
    for (words, expected) in [
        (&["est"][..], "estimate"),
        (&["daemon", "--ta"], "--take-over"),
        (&["guests", "--sort", "prof"], "profit_bytes"),
        (&["history", "--figures", "saved_bytes,full"], "saved_bytes,full_scans"),
        (&["set", "pages_to"], "pages_to_scan="),
        (&["pause", "1"], "1h"),
        (&["merge", "of"], "off"),
    ] {
        let found = candidates(words);
        assert!(found.contains(&expected.to_owned()), "{words:?}: {found:?}");
    }
    assert!(!candidates(&["m"]).contains(&"manual".to_owned()), "a hidden command is none beside others");
}

#[test]
fn guests_are_those_of_the_running_daemon() {
    let directory = tempfile::tempdir().unwrap();
    let (config, listener) = configured_socket(directory.path());
    let guests = ["web-1", "web-2", "db", "web;reboot"].into_iter().zip(1..);
    let guests = guests.map(|(name, pid)| Guest::plain(name, ProcessId { pid, start_ticks: 1 })).collect();
    let report = GuestsReport::new(&Sample::default(), guests, 0);
    let answer = serde_json::to_string(&ControlReply::Guests(Box::new(report))).unwrap() + "\n";
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut stream = BufReader::new(stream);
            let mut request = String::new();
            // One that has lost its patience is gone.
            if stream.read_line(&mut request).is_ok_and(|bytes| bytes > 0) {
                assert!(request.contains("guests"), "{request}");
                let _ = stream.get_mut().write_all(answer.as_bytes());
            }
        }
    });
    // A daemon that is late costs the guests, so ask again.
    let ask = |words: &[&str]| (0..100).map(|_| candidates(words)).find(|found| !found.is_empty()).unwrap();
    let named = format!("--config={config}");
    assert_eq!(ask(&["--config", &config, "guests", "w"]), ["web-1", "web-2"]);
    assert_eq!(ask(&[&named, "merge", "off", "d"]), ["db"]);
    // A captured tree has no daemon.
    assert_eq!(candidates(&["--root", ".", "--config", &config, "merge", "off", "d"]), [""; 0]);
}

#[test]
fn a_daemon_that_is_silent_or_absent_costs_only_the_guests() {
    let directory = tempfile::tempdir().unwrap();
    let (config, listener) = configured_socket(directory.path());
    assert!(candidates(&["--config", &config, "guests", "--"]).contains(&"--sort".to_owned()));
    assert_eq!(candidates(&["--config", &config, "merge", "off", "w"]), [""; 0]);
    drop(listener);
    assert_eq!(candidates(&["--config", &config, "merge", "off", "w"]), [""; 0]);
    fs::write(&config, "polcy = 1").unwrap();
    assert_eq!(candidates(&["--config", &config, "merge", "off", "w"]), [""; 0]);
}

#[test]
fn a_variable_that_was_left_behind_changes_no_command() {
    for value in ["1", "bash"] {
        let output = Command::new(PROGRAM).arg("--version").env("KSMITH_COMPLETE", value).output().unwrap();
        assert!(out(&output).starts_with("ksmith "), "{value}: {output:?}");
    }
}

#[test]
fn bash_completes_a_word() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ksmith.bash");
    fs::write(&file, &ksmith(&["completions", "bash"]).stdout).unwrap();
    let press = ". \"$0\"; COMP_WORDS=(ksmith est); COMP_CWORD=1; _clap_complete_ksmith ksmith est ksmith; \
        printf '%s\\n' \"${COMPREPLY[@]}\"; complete -p ksmith";
    let path = format!("{}:{}", Path::new(PROGRAM).parent().unwrap().display(), std::env::var("PATH").unwrap());
    let output = Command::new("bash").args(["-c", press]).arg(&file).env("PATH", path).output().unwrap();
    let said = out(&output);
    assert!(said.starts_with("estimate\ncomplete ") && said.contains("_clap_complete_ksmith"), "{output:?}");
}
