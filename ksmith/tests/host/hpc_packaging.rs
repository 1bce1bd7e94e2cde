//! The packaging for compute nodes: `packaging/slurm` starts the service with the first job on a node and stops it with
//! the last; `packaging/hpc.toml` is a configuration.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::support::copy_program;
use ksmith_service::config::Config;

/// Runs each of these scripts for a job, and returns the calls of systemctl.
fn asked(tree: &Path, scripts: &[(&str, &str)], fails: bool) -> Vec<String> {
    let log = tree.join("log");
    fs::write(&log, "").unwrap();
    for (name, text) in [
        ("systemctl", format!("#!/bin/sh\necho \"$@\" >> {}\nexit {}\n", log.display(), i32::from(fails))),
        ("logger", "#!/bin/sh\n".to_owned()),
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
        command.arg(script).env("PATH", &path).env("SLURM_JOB_ID", job).env("KSMITH_JOBS", tree.join("jobs"));
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
}
