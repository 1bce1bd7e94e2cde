//! The jobs that can be run.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use crate::contender::HpcContender;

/// A job.
pub(crate) struct HpcCase {
    /// The name on the command line.
    pub(crate) name: &'static str,
    /// A description in one line.
    pub(crate) about: &'static str,
    /// Programs it needs, and how to get them.
    needs: &'static [(&'static str, &'static str)],
    command: String,
    /// The command with the program's own layer instead of KSM.
    indirect: Option<String>,
    /// Files in the directory it runs in.
    files: Vec<(&'static str, String)>,
    /// Finds the result in what it prints.
    pub(crate) shows: fn(&str) -> Option<String>,
}

const MULTIMAT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/multimat/multimat");
const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples");
const MPI: (&str, &str) = ("mpirun", "Open MPI (Debian: openmpi-bin)");

pub(crate) fn all() -> Vec<HpcCase> {
    let multimat = |name, about, ranks: u32, more: &str| {
        let of = |program: &str| mpirun(ranks, &format!("{program} --cells 160 --iterations 60 {more}"));
        HpcCase {
            name,
            about,
            needs: &[MPI, (MULTIMAT, "make -C examples/multimat (Debian: libopenmpi-dev)")],
            command: of(MULTIMAT),
            indirect: Some(of(&format!("{MULTIMAT}-indirect"))),
            files: Vec::new(),
            shows: |said| quoted(said, "\"checksum\": \""),
        }
    };
    vec![
        multimat("multimat-4", "a multi-material simulation on 4 ranks (examples/multimat)", 4, ""),
        multimat("multimat-8", "the same on 8 ranks", 8, ""),
        lammps("lammps-4", "LAMMPS: its peptide in water, repeated 4x4x2 times, on 4 ranks", 50),
        lammps("lammps-4-long", "the same for 300 steps instead of 50", 300),
        espresso(
            "espresso-4",
            "Quantum ESPRESSO: graphene, 7 k-points in a pool for each of 4 ranks, which spin while they wait",
            mpirun(4, &format!("{SPIN} {ESPRESSO}")),
        ),
        HpcCase {
            files: vec![(
                "graphene.in",
                GRAPHENE.replace("maxstep = 8", "maxstep = 40").replace("1.0d-9", "1.0d-30"),
            )],
            ..espresso(
                "espresso-4-long",
                "the same for 40 iterations instead of 8",
                mpirun(4, &format!("{SPIN} {ESPRESSO}")),
            )
        },
        espresso(
            "espresso-4-yield",
            "the same, and ranks that wait yield their CPU (mpi_yield_when_idle)",
            mpirun(4, &format!("--mca mpi_yield_when_idle 1 {ESPRESSO}")),
        ),
        espresso(
            "espresso-4-spare",
            "the same on all CPUs but the first",
            format!("taskset -c 1-{} {}", cpus() - 1, mpirun(4, &format!("--bind-to none {SPIN} {ESPRESSO}"))),
        ),
        HpcCase {
            name: "python-6",
            about: "a Python service with 6 forked workers (examples/python-service)",
            needs: &[("python3", "Python 3")],
            command: format!("python3 {EXAMPLES}/python-service/service.py --workers 6 --seconds 12"),
            indirect: None,
            files: Vec::new(),
            shows: |said| said.contains("\"wrong\": 0,").then(|| "no wrong answer".to_owned()),
        },
        HpcCase {
            name: "node-4",
            about: "a Node service with 4 workers (examples/node-service)",
            needs: &[("node", "Node")],
            command: format!("node {EXAMPLES}/node-service/service.js 4 12"),
            indirect: None,
            files: Vec::new(),
            shows: |said| said.contains("\"wrong\":0,").then(|| "no wrong answer".to_owned()),
        },
        HpcCase {
            name: "node-4-fixed",
            about: "the same with the same addresses in all workers (setarch -R, V8's --random-seed)",
            needs: &[("node", "Node"), ("setarch", "util-linux")],
            command: format!("setarch -R node --random-seed=1 {EXAMPLES}/node-service/service.js 4 12"),
            indirect: None,
            files: Vec::new(),
            shows: |said| said.contains("\"wrong\":0,").then(|| "no wrong answer".to_owned()),
        },
    ]
}

/// Open MPI has ranks yield where there are more than CPUs, unless told.
const SPIN: &str = "--mca mpi_yield_when_idle 0";
const ESPRESSO: &str = "-x OMP_NUM_THREADS=1 pw.x -nk 4 -in graphene.in";

const GRAPHENE: &str = include_str!("graphene.in");

fn lammps(name: &'static str, about: &'static str, steps: u32) -> HpcCase {
    HpcCase {
        name,
        about,
        needs: &[MPI, ("lmp", "LAMMPS (Debian: lammps lammps-examples)")],
        command: mpirun(4, &format!("lmp -in in.peptide -log none -var steps {steps}")),
        indirect: None,
        files: vec![("in.peptide", include_str!("in.peptide").to_owned())],
        shows: last_thermo,
    }
}

fn espresso(name: &'static str, about: &'static str, command: String) -> HpcCase {
    HpcCase {
        name,
        about,
        needs: &[MPI, ("pw.x", "Quantum ESPRESSO (Debian: quantum-espresso quantum-espresso-data)")],
        command,
        indirect: None,
        files: vec![("graphene.in", GRAPHENE.to_owned())],
        shows: |said| said.lines().rfind(|line| line.contains("total energy  ")).map(str::to_owned),
    }
}

/// The number of CPUs, at least two.
fn cpus() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from).max(2)
}

impl HpcCase {
    /// The words of the command, if this contender can compete.
    pub(crate) fn command_for(&self, contender: HpcContender) -> Option<Vec<String>> {
        let line = if contender == HpcContender::Indirect { self.indirect.as_ref()? } else { &self.command };
        Some(line.split_whitespace().map(str::to_owned).collect())
    }

    /// Puts its files there.
    pub(crate) fn prepare(&self, place: &Path) {
        // Four pools of ESPRESSO create it at once, and one may fail.
        fs::create_dir(place.join("out")).unwrap();
        for (name, text) in &self.files {
            fs::write(place.join(name), text).unwrap();
        }
    }

    /// Returns the way to get a missing program, if one is missing.
    pub(crate) fn missing(&self) -> Option<&'static str> {
        let path = env::var_os("PATH").unwrap_or_default();
        let is_there = |program: &str| {
            PathBuf::from(program).is_absolute() && Path::new(program).is_file()
                || env::split_paths(&path).any(|place| place.join(program).is_file())
        };
        self.needs.iter().find(|(program, _)| !is_there(program)).map(|(_, how)| *how)
    }
}

fn mpirun(ranks: u32, command: &str) -> String {
    format!("mpirun --allow-run-as-root --oversubscribe -n {ranks} {command}")
}

/// The text after `key`, up to the next quotation mark.
fn quoted(said: &str, key: &str) -> Option<String> {
    Some(said.split_once(key)?.1.split_once('"')?.0.to_owned())
}

/// LAMMPS's total energy after the last step.
fn last_thermo(said: &str) -> Option<String> {
    let line = said.lines().rfind(|line| line.starts_with("TotEng"))?;
    Some(line.split_whitespace().collect::<Vec<_>>().join(" "))
}
