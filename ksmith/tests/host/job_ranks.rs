//! The ranks of a job that a launcher starts with `ksmith run`: one asks for scans, all write one report, and
//! their memory gets into huge pages if it is folded. It is not offered to KSM.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::support::program::PROGRAM;
use crate::support::{skipped, wait_until};
use ksmith_host::fold::{fold_hindrance, may_split};
use ksmith_host::root::Root;
use serde_json::{Value, json};

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

/// A program as a rank with these variables and options.
fn rank_command(variables: &[(&str, &str)], options: &[&str], program: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    for name in LAUNCHER {
        command.env_remove(name);
    }
    command.args(["run", "--ranges", "none", "--fold=on-demand"]).args(options).arg("--").args(program);
    command.envs(variables.iter().copied());
    command
}

/// Runs a program as a rank to its end.
fn run_rank(variables: &[(&str, &str)], options: &[&str], program: &[&str]) -> Output {
    let output = rank_command(variables, options, program).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{variables:?} {options:?}: {said}");
    assert!(!said.contains("no process was folded"), "none was to be: {said}");
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

#[test]
fn memory_that_nobody_folds_stays_out_of_huge_pages() {
    if let Some(why) = fold_hindrance(&Root::host()) {
        return skipped(&why.to_string());
    }
    let huge_pages = |before: &[&str], fold: &str| {
        let run =
            [PROGRAM, "run", "--ranges", "none", "--scan", "never", "-q", fold, "--", "printenv", "GLIBC_TUNABLES"];
        let line = [before, &run].concat();
        let output = Command::new(line[0]).args(&line[1..]).env_remove("GLIBC_TUNABLES").output().unwrap();
        String::from_utf8(output.stdout).unwrap().contains("hugetlb=1")
    };
    let mut denied: &[&str] = &[];
    if may_split() {
        assert!(huge_pages(&[], "--fold"));
        denied = &["setpriv", "--bounding-set", "-sys_nice", "--inh-caps", "-sys_nice", "--"];
    }
    assert!(!huge_pages(denied, "--fold"));
    assert!(huge_pages(denied, "--fold=on-demand"), "others fold it");
}

/// Shows the report of a job.
fn job_report(job: &Path, options: &[&str]) -> String {
    let output = Command::new(PROGRAM).args(["job", "report"]).args(options).arg(job).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The variables of a rank that Open MPI starts.
fn rank_of_3(rank: &str) -> [(&str, &str); 4] {
    [
        ("OMPI_COMM_WORLD_RANK", rank),
        ("OMPI_COMM_WORLD_SIZE", "3"),
        ("OMPI_COMM_WORLD_LOCAL_RANK", rank),
        ("PMIX_NAMESPACE", "run.1"),
    ]
}

#[test]
fn without_a_file_for_all_ranks_one_prints_its_report() {
    let run = |rank| {
        let output = run_rank(&rank_of_3(rank), &["--scan", "never"], &["sleep", "0.1"]);
        String::from_utf8(output.stderr).unwrap()
    };
    let said = run("0");
    assert!(said.contains("rank 0 of 3") && said.contains("KSM saved"), "{said}");
    assert!(!run("1").contains("KSM saved"));
}

#[test]
fn all_ranks_write_one_report() {
    let tree = tempfile::tempdir().unwrap();
    let file = tree.path().join("job.json");
    fs::write(&file, "of an earlier run").unwrap();
    let parts = tree.path().join("job.json.d");
    let options = ["--scan", "never", "--report", file.to_str().unwrap()];
    let run = |rank: &str| String::from_utf8(run_rank(&rank_of_3(rank), &options, &["true"]).stderr).unwrap();
    // Rank 1 still runs: a rank that ends before it says nothing.
    let mut still_running = rank_command(&rank_of_3("1"), &options, &["cat"])
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_until("rank 1 is present", || parts.join("1.running").exists());
    assert!(!file.exists(), "it would be taken for the report of this run");
    assert!(!run("0").contains("ranks"));
    assert!(job_report(&file, &["--line"]).contains("1 of 3 ranks"));
    still_running.kill().unwrap();
    still_running.wait().unwrap();
    let said = run("2");
    assert!(said.contains("2 of 3 ranks have reported, and no other runs here"), "{said}");
    let said = run("1");
    assert!(said.contains("3 of 3 ranks"), "{said}");
    let left: Vec<_> = fs::read_dir(&parts).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 3, "{left:?}");
    let report: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    let ranks: Vec<u64> =
        report["rows"].as_array().unwrap().iter().filter_map(|row| row["rank"].as_u64()).collect();
    assert_eq!((report["job"].as_str(), ranks), (Some("run.1"), vec![0, 1, 2]));
    assert_eq!(serde_json::from_str::<Value>(&job_report(&file, &["--json"])).unwrap(), json!([report]));
    let page = job_report(&file, &[]);
    assert_eq!(page.lines().next().unwrap(), job_report(&file, &["--line"]).trim_end());
    assert_eq!(page.lines().count(), 4, "{page}");
}

#[test]
fn each_step_of_a_slurm_job_has_its_report() {
    let tree = tempfile::tempdir().unwrap();
    let (jobs, reports) = (tree.path().join("jobs"), tree.path().join("jobs.reports/12"));
    fs::create_dir_all(&reports).unwrap();
    let of_job = [("KSMITH_JOBS", jobs.to_str().unwrap()), ("SLURM_JOB_ID", "12")];
    let run = |variables: &[(&str, &str)]| {
        let output = run_rank(&[&of_job, variables].concat(), &["--scan", "never"], &["true"]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!said.contains("no report"), "{said}");
    };
    // Two steps at once, and two programs of the job's script.
    for (rank, step) in [("0", "0"), ("0", "1"), ("1", "1"), ("1", "0")] {
        run(&[("SLURM_STEP_ID", step), ("SLURM_PROCID", rank), ("SLURM_STEP_NUM_TASKS", "2")]);
    }
    (0..2).for_each(|_| run(&[("SLURM_PROCID", "0")]));
    let lines = job_report(&reports, &["--line"]);
    let ranks: Vec<&str> =
        lines.lines().filter_map(|line| line.split(", ").find(|part| part.ends_with(" ranks"))).collect();
    assert_eq!(ranks, ["2 of 2 ranks", "2 of 2 ranks", "1 of 1 ranks", "1 of 1 ranks"], "{lines}");
    let runs: Value = serde_json::from_str(&job_report(&reports, &["--json"])).unwrap();
    assert_eq!(runs.as_array().unwrap().len(), 4, "one document: {runs}");
}
