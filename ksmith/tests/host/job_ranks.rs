//! The ranks of a job that a launcher starts with `ksmith run`: one asks for scans, and all write one report. Their memory is not
//! offered to KSM.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::net::UnixListener;
use std::process::{Command, Output};

use crate::support::program::PROGRAM;

/// Variables of launchers under which the tests themselves may run.
const LAUNCHER: [&str; 9] = [
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "PMI_RANK",
    "MPI_LOCALRANKID",
    "SLURM_PROCID",
    "SLURM_LOCALID",
    "SLURM_STEP_NUM_TASKS",
    "SLURM_JOB_ID",
    "PMIX_NAMESPACE",
];

/// Runs a program as a rank with these variables and options.
fn run_rank(variables: &[(&str, &str)], options: &[&str], program: &[&str]) -> Output {
    let mut command = Command::new(PROGRAM);
    LAUNCHER.iter().for_each(|name| drop(command.env_remove(name)));
    command.args(["run", "--ranges", "none", "--fold=on-demand"]).args(options).arg("--").args(program);
    let output = command.envs(variables.iter().copied()).output().unwrap();
    assert!(output.status.success(), "{variables:?} {options:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

#[test]
fn the_first_rank_of_a_node_asks_for_scans() {
    let tree = tempfile::tempdir().unwrap();
    let socket = tree.path().join("socket");
    let listener = UnixListener::bind(&socket).unwrap();
    listener.set_nonblocking(true).unwrap();
    let config = tree.path().join("config");
    fs::write(&config, format!("[optin]\nsocket = \"{}\"\n", socket.display())).unwrap();
    let asks = |variables: &[(&str, &str)]| {
        run_rank(variables, &["--config", config.to_str().unwrap()], &["true"]);
        match listener.accept() {
            Ok(_) => true,
            Err(error) if error.kind() == ErrorKind::WouldBlock => false,
            Err(error) => panic!("{error}"),
        }
    };
    assert!(asks(&[]), "no rank");
    assert!(asks(&[("OMPI_COMM_WORLD_RANK", "8"), ("OMPI_COMM_WORLD_LOCAL_RANK", "0")]));
    assert!(!asks(&[("OMPI_COMM_WORLD_RANK", "9"), ("OMPI_COMM_WORLD_LOCAL_RANK", "1")]));
    assert!(!asks(&[("SLURM_PROCID", "1"), ("SLURM_LOCALID", "1")]));
}
