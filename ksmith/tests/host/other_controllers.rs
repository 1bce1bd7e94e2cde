//! Other controllers of KSM, the real programs where they can run here, as `ksmith doctor` names them.
//!
//! tuned and ksmtuned are the distribution's own. virt-handler needs a cluster: here a process of its name stands in for it.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::ksmtuned::KsmtunedProcess;
use crate::support::own::on_own_host;
use crate::support::{copy_program, skipped, wait_until};

const RUN: &str = "/sys/kernel/mm/ksm/run";

/// Returns the report of `ksmith doctor` on this host.
fn doctor() -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_ksmith")).args(["doctor", "--json"]).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The controller of this name that `ksmith doctor` names.
fn controller(name: &str) -> Option<Value> {
    doctor()["controllers"].as_array().unwrap().iter().find(|found| found["name"] == name).cloned()
}

fn codes() -> Vec<String> {
    let doctor = doctor();
    let findings = doctor["findings"].as_array().unwrap().iter();
    findings.map(|finding| finding["code"].as_str().unwrap().to_owned()).collect()
}

fn shell(command: &str) {
    assert!(Command::new("/bin/sh").args(["-ec", command]).status().unwrap().success(), "{command}");
}

#[test]
fn the_real_ksmtuned_is_named_with_both_ways_and_the_advisor_is_told_from_it() {
    on_own_host(|| {
        assert!(controller("ksmtuned").is_none());
        let ksmtuned = KsmtunedProcess::start();
        let found = controller("ksmtuned").expect("it is named");
        assert_eq!(found["pids"], serde_json::json!([ksmtuned.pid]));
        assert_eq!((&found["runs"], &found["starts_at_boot"]), (&Value::Bool(true), &Value::Bool(false)));
        assert_eq!(found["hand_over"][0], "systemctl disable --now ksmtuned");
        assert_eq!(found["hand_back"][0], "systemctl enable --now ksmtuned");
        assert!(codes().contains(&"controller".to_owned()));
        let advisor = Path::new("/sys/kernel/mm/ksm/advisor_mode");
        if advisor.exists() {
            assert!(!codes().contains(&"advisor".to_owned()));
            fs::write(advisor, "none [scan-time]\n").unwrap();
            assert!(codes().contains(&"advisor".to_owned()));
        }
        drop(ksmtuned);
        wait_until("it is gone", || controller("ksmtuned").is_none());
    });
}

/// A shell of root that waits under another name. Its PID namespace keeps it from other tests.
struct FakeController(Child, #[allow(dead_code, reason = "it is removed on drop")] TempDir);

impl FakeController {
    fn start(name: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join(name);
        copy_program(Path::new("/bin/sh"), &program);
        let mut command = Command::new(program);
        let child = command.arg0(name).args(["-c", "read line"]).stdin(Stdio::piped()).spawn().unwrap();
        Self(child, directory)
    }
}

impl Drop for FakeController {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_process_called_virt_handler_may_control_ksm_and_one_called_uksmd_does() {
    on_own_host(|| {
        let handler = FakeController::start("virt-handler");
        let found = controller("virt-handler").expect("it is named");
        assert_eq!(found["pids"], serde_json::json!([handler.0.id()]));
        assert!(found["hand_over"][1].as_str().unwrap().contains("ksmConfiguration"), "{found}");
        let found = codes();
        assert!(found.contains(&"controller-perhaps".to_owned()) && !found.contains(&"controller".to_owned()));
        drop(handler);
        assert!(!codes().contains(&"controller-perhaps".to_owned()));
        let _uksmd = FakeController::start("uksmd");
        assert!(codes().contains(&"controller".to_owned()));
    });
}

/// Returns the tree in which `make target/tuned` unpacks tuned with its Python modules, if it is there.
fn tuned_tree() -> Option<PathBuf> {
    let usual = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/tuned");
    let tree = std::env::var_os("TUNED").map_or(usual, PathBuf::from);
    tree.join("usr/sbin/tuned").exists().then_some(tree)
}

/// tuned with a profile, until dropped. It undoes what its profile set when it ends.
struct TunedProcess(Child);

impl TunedProcess {
    fn start(tree: &Path, profile: &str) -> Self {
        let log = std::env::temp_dir().join(format!("tuned-{profile}.log"));
        let _ = fs::remove_file(&log);
        // Without D-Bus there is no tuned-adm: the profile is named when it starts.
        let tuned = Command::new("/usr/bin/python3")
            .arg("-s")
            .arg(tree.join("usr/sbin/tuned"))
            .args(["--no-dbus", "--no-socket", "-p", profile])
            .arg(format!("-l{}", log.display()))
            .arg(format!("-P{}", std::env::temp_dir().join("tuned.pid").display()))
            .env("PYTHONPATH", tree.join("usr/lib/python3/dist-packages"))
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        wait_until("tuned has applied its profile", || {
            fs::read_to_string(&log)
                .unwrap_or_default()
                .contains(&format!("static tuning from profile '{profile}' applied"))
        });
        Self(tuned)
    }

    fn end(mut self) {
        shell(&format!("kill {}", self.0.id()));
        self.0.wait().unwrap();
    }
}

impl Drop for TunedProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_real_tuned_hands_over_and_back_by_the_commands_that_the_doctor_names() {
    on_own_host(|| {
        let Some(tree) = tuned_tree() else {
            return skipped("there is no tuned here: make target/tuned unpacks it");
        };
        // An /etc of its own, with tuned's configuration in it.
        let etc = std::env::temp_dir().join("etc");
        shell(&format!(
            "cp -a /etc {0}; rm -rf {0}/tuned; cp -a {1}/etc/tuned {0}/tuned; mount --bind {0} /etc",
            etc.display(),
            tree.display()
        ));
        fs::create_dir("/etc/tuned/mine").unwrap();
        fs::write(
            "/etc/tuned/mine/tuned.conf",
            "[sysfs]\n/sys/kernel/mm/ksm/run=1\n/sys/kernel/mm/ksm/sleep_millisecs=33\n",
        )
        .unwrap();
        let run = || fs::read_to_string(RUN).unwrap().trim().to_owned();
        let sleep = || fs::read_to_string("/sys/kernel/mm/ksm/sleep_millisecs").unwrap().trim().to_owned();
        assert_eq!(run(), "0");
        let tuned = TunedProcess::start(&tree, "mine");
        assert_eq!((run().as_str(), sleep().as_str()), ("1", "33"), "it writes to KSM");
        let found = controller("tuned").expect("it is named");
        assert_eq!((&found["pids"][0], &found["profile"]), (&Value::from(tuned.0.id()), &Value::from("mine")));
        let (over, back) = (found["hand_over"].as_array().unwrap(), found["hand_back"].as_array().unwrap());
        let command = |commands: &[Value], index: usize| commands[index].as_str().unwrap().to_owned();

        // The last command would be asked over D-Bus. Here tuned is started anew with that profile.
        assert_eq!(command(over, over.len() - 1), "tuned-adm profile mine-ksmith");
        (0..over.len() - 1).for_each(|index| shell(&command(over, index)));
        tuned.end();
        assert_eq!(run(), "0", "it undoes what it set");
        let tuned = TunedProcess::start(&tree, "mine-ksmith");
        assert_eq!((run().as_str(), sleep().as_str()), ("0", "20"), "it leaves KSM alone");
        assert!(controller("tuned").is_none(), "and is no controller of KSM");
        tuned.end();

        assert_eq!(command(back, 0), "tuned-adm profile mine");
        shell(&command(back, 1));
        let _tuned = TunedProcess::start(&tree, "mine");
        assert_eq!(run(), "1");
        assert!(controller("tuned").is_some() && !Path::new("/etc/tuned/mine-ksmith").exists());
    });
}
