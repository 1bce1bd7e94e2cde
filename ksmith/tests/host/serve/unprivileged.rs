//! A server without privilege beside a real daemon: what its user can read and change.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::support::own::on_own_host;
use crate::support::program::{PROGRAM, RunningProgram};
use crate::support::serve::RunningServer;
use crate::support::{copy_program, skipped, wait_until};

/// The user and the group that packaging would make; numbers that no account has.
const USER: u32 = 65_111;
const GROUP: u32 = 65_222;

/// A command line that runs what follows it as ksmith-serve.service does.
fn as_the_unit_does() -> Vec<String> {
    let user = format!("--reuid={USER}");
    let own_group = format!("--regid={USER}");
    let groups = format!("--groups={GROUP}");
    let all = ["setpriv", &user, &own_group, &groups, "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"];
    all.map(str::to_owned).to_vec()
}

/// Returns true if a shell of the server's user can run the script.
fn can_run(script: &str) -> bool {
    let line = as_the_unit_does();
    Command::new(&line[0]).args(&line[1..]).args(["sh", "-c", script]).output().unwrap().status.success()
}

/// A program of Python that asks at a socket.
fn asks(socket: &str, line: &str) -> String {
    format!(
        "python3 -c 'import socket; s = socket.socket(socket.AF_UNIX); s.connect(\"{socket}\"); s.sendall(b\"{line}\\n\"); \
         assert b\"error\" not in s.makefile(\"rb\").readline()[:20]'"
    )
}

#[test]
fn a_server_that_was_taken_over_can_read_figures_and_nothing_else() {
    on_own_host(|| {
        if !rustix::process::geteuid().is_root() || !Path::new("/sys/kernel/mm/ksm/run").exists() {
            return skipped("this needs root, and files of KSM");
        }
        // As packaging/tmpfiles.d makes it.
        let store = Path::new("/run/ksmith/history");
        fs::create_dir(store).unwrap();
        std::os::unix::fs::chown(store, Some(0), Some(GROUP)).unwrap();
        fs::set_permissions(store, fs::Permissions::from_mode(0o2750)).unwrap();
        let history = store.join("history.db").display().to_string();
        let config =
            format!("[policy]\nkind = \"fixed\"\n[view]\ngroup = \"{GROUP}\"\n[history]\npath = \"{history}\"\n");
        let daemon = RunningProgram::daemon(&config, &[]);
        let program = std::env::temp_dir().join("ksmith");
        copy_program(Path::new(PROGRAM), &program);
        let program = program.display().to_string();
        let mut line = as_the_unit_does();
        line.extend([&program, "serve", "--listen", "127.0.0.1:0", "--file", &history].map(str::to_owned));
        let line: Vec<&str> = line.iter().map(String::as_str).collect();
        let running = RunningProgram::start_line(&line, |_| ());
        let server = RunningServer::from_running(running);
        let status = server.get("/api/v1/status");
        assert_eq!(status.json()["daemon"]["pid"], daemon.pid(), "{status:?}");
        assert!(server.get("/metrics").body.contains("ksmith_up 1\n"));
        assert_eq!(server.get("/api/v1/guests").status, 200);
        assert_eq!(server.get("/api/v1/balance").status, 200);
        wait_until("the history has rows", || {
            let answer = server.get("/api/v1/history?since=1h");
            assert!(answer.status == 200 || answer.body.contains("no history to read"), "{answer:?}");
            answer.status == 200 && answer.json()["rows"].as_array().is_some_and(|rows| !rows.is_empty())
        });
        assert_eq!(server.get("/api/v1/history?guest=none").status, 404);
        for bad in ["since=1m&until=1h", "since=x", "until=-5", "since=-5m"] {
            assert_eq!(server.get(&format!("/api/v1/history?{bad}")).status, 400, "{bad}");
        }

        // Figures can be had, so that what follows fails for want of rights and not of tools.
        assert!(can_run(&asks("/run/ksmith/view", "{\\\"request\\\":\\\"status\\\"}")));
        assert!(can_run("cat /sys/kernel/mm/ksm/pages_sharing"));
        assert!(can_run(&format!("head -c 1 {history}")));
        let pid = daemon.pid();
        for script in [
            asks("/run/ksmith/view", "{\\\"request\\\":\\\"scan\\\",\\\"passes\\\":1}"),
            asks("/run/ksmith/control", "{\\\"request\\\":\\\"status\\\"}"),
            asks("/run/ksmith/user", "hello 1"),
            "echo 1 > /sys/kernel/mm/ksm/run".to_owned(),
            "echo 7 > /sys/kernel/mm/ksm/pages_to_scan".to_owned(),
            "cat /run/ksmith/undo.json".to_owned(),
            format!("echo >> {history}"),
            format!("rm {history}"),
            format!("touch {history}-own"),
            "ls /run/ksmith/undo.json && echo > /run/ksmith/undo.json".to_owned(),
            "rm /run/ksmith/view".to_owned(),
            "touch /run/ksmith/mine".to_owned(),
            "cat /etc/shadow".to_owned(),
            "echo >> /etc/passwd".to_owned(),
            "cat /proc/1/environ".to_owned(),
            format!("cat /proc/{pid}/environ"),
            format!("cat /proc/{pid}/mem"),
            format!("cat /proc/{pid}/maps"),
            format!("kill -TERM {pid}"),
            format!("{program} set run=1"),
            format!("{program} scan"),
            format!("{program} restore"),
            "mount -t tmpfs none /mnt".to_owned(),
            "chown root /tmp".to_owned(),
        ] {
            assert!(!can_run(&script), "{script}");
        }
        assert_eq!(server.get("/api/v1/status").json()["daemon"]["pid"], pid, "the daemon goes on");
        server.running.end();
        daemon.end();
    });
}
