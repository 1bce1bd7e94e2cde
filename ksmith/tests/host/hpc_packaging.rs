//! The packaging for compute nodes: `packaging/slurm` starts the service with the first job on a node and stops it with
//! the last; `packaging/hpc.toml` is a configuration.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::support::copy_program;
use ksmith_service::config::{Config, KsmdCpus};

/// Runs each of these scripts for a job, and returns the calls of systemctl, each with a line if it is made without the
/// lock of prologs and epilogs.
fn asked(tree: &Path, scripts: &[(&str, &str)], fails: bool) -> Vec<String> {
    let log = tree.join("log");
    fs::write(&log, "").unwrap();
    for (name, text) in [
        (
            "systemctl",
            format!(
                "#!/bin/sh\necho \"$@\" >> {log}\nflock -n {lock} true && echo without the lock >> {log}\nexit {}\n",
                i32::from(fails),
                log = log.display(),
                lock = tree.join("jobs.lock").display(),
            ),
        ),
        ("logger", format!("#!/bin/sh\necho \"$@\" >> {}\n", tree.join("said").display())),
        // The file system of a job's reports: its options, and what was in it is gone.
        ("mountpoint", "#!/bin/sh\n[ -e \"$2.mounted\" ]\n".to_owned()),
        ("mount", "#!/bin/sh\neval reports=\\${$#}\necho \"$@\" > \"$reports.mounted\"\n".to_owned()),
        ("umount", "#!/bin/sh\nrm -r \"$2.mounted\" \"$2\"/*\n".to_owned()),
        ("ksmith", "#!/bin/sh\ncat \"$4/0.json\"\n".to_owned()),
    ] {
        let source = tree.join(format!("{name}.text"));
        fs::write(&source, text).unwrap();
        fs::set_permissions(&source, fs::Permissions::from_mode(0o755)).unwrap();
        copy_program(&source, &tree.join(name));
    }
    let path = format!("{}:{}", tree.display(), std::env::var("PATH").unwrap());
    for (script, job) in scripts {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/slurm").join(script);
        let mut command = Command::new("sh");
        command.arg(script).env("PATH", &path).env("SLURM_JOB_ID", job).env("SLURM_JOB_UID", "65534");
        command.env("KSMITH_JOBS", tree.join("jobs"));
        assert!(command.status().unwrap().success(), "a script that fails drains the node");
    }
    fs::read_to_string(log).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn the_last_job_on_a_node_stops_the_service() {
    let tree = tempfile::tempdir().unwrap();
    let start = "start ksmith.service";
    assert_eq!(asked(tree.path(), &[("prolog", "7"), ("prolog", "8"), ("epilog", "7")], false), [start, start]);
    assert_eq!(asked(tree.path(), &[("epilog", "8")], false), ["stop ksmith.service"]);
}

#[test]
fn no_other_user_may_hold_the_lock_of_prologs_and_epilogs() {
    for script in ["prolog", "epilog"] {
        let tree = tempfile::tempdir().unwrap();
        asked(tree.path(), &[(script, "7")], false);
        let mode = fs::metadata(tree.path().join("jobs.lock")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{script}");
    }
}

#[test]
fn the_epilog_logs_what_ksm_did_and_removes_the_reports() {
    let tree = tempfile::tempdir().unwrap();
    let reports = tree.path().join("jobs.reports");
    asked(tree.path(), &[("prolog", "7"), ("prolog", "8")], false);
    let mode = fs::metadata(reports.join("7")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700, "only the job's user reports");
    let mounted = fs::read_to_string(reports.join("7.mounted")).unwrap();
    for bound in ["tmpfs", "size=", "nr_inodes=", "mode=700", "uid=65534", "nodev"] {
        assert!(mounted.contains(bound), "no user fills up /run: {mounted}");
    }
    let mode = fs::metadata(&reports).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o711, "users reach their own");
    fs::write(reports.join("7/0.json"), "KSM saved much\nKSM saved 5 %\n".to_owned() + &"and so on\n".repeat(1000))
        .unwrap();
    asked(tree.path(), &[("epilog", "7"), ("epilog", "8")], false);
    let said = fs::read_to_string(tree.path().join("said")).unwrap();
    let each_step = "-t ksmith-epilog job 7: KSM saved much\n-t ksmith-epilog job 7: KSM saved 5 %\n";
    assert!(said.starts_with(each_step), "{said}");
    assert_eq!(said.lines().count(), 20, "a user fills no log");
    assert_eq!(fs::read_dir(&reports).unwrap().count(), 0);
}

#[test]
fn a_directory_that_takes_no_lock_drains_no_node() {
    let tree = tempfile::tempdir().unwrap();
    fs::create_dir(tree.path().join("jobs.lock")).unwrap();
    asked(tree.path(), &[("prolog", "7"), ("epilog", "7")], false);
}

#[test]
fn a_node_is_not_drained_because_ksmith_does_not_start() {
    let tree = tempfile::tempdir().unwrap();
    assert_eq!(asked(tree.path(), &[("prolog", "7"), ("epilog", "7")], true).len(), 2);
}

#[test]
fn the_configuration_for_compute_nodes_is_one() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/hpc.toml");
    let config = Config::load(Some(&file)).unwrap();
    assert_eq!(config.policy.kind.name(), "profit");
    let price = |config: &Config| config.policy.profit.price_mib_per_cpu_second;
    assert!(price(&config) > price(&Config::default()), "a job's CPU is dearer");
    let (profit, usual) = (&config.policy.profit, Config::default().policy.profit);
    assert!(profit.after_init && profit.look_first && profit.growth_mib > usual.growth_mib);
    assert!(profit.max_delay_percent <= 2.0 && profit.probe_cpu_percent < usual.probe_cpu_percent);
    assert_eq!(config.daemon.ksmd_cpus, Some(KsmdCpus::Spare));
    assert_eq!(config.daemon.merge_across_nodes, Some(false));
}
