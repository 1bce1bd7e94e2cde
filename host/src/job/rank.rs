//! The place of a process among the ranks of a job, by the environment that launchers give to their ranks.

use std::env;

/// A process's place among the ranks of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobRank {
    /// The launcher's name of this run of the job, the same in all ranks. Empty where the launcher tells none.
    pub job: String,
    /// The number of this rank, from 0.
    pub rank: u32,
    /// The number of ranks, at least 1.
    pub ranks: u32,
}

/// The variables in which launchers number the ranks of a node, from 0: Open MPI, Hydra of MPICH and Intel MPI, MVAPICH, the
/// process manager of Cray, and `srun`. A launcher sets its own in a step of `srun`, which is why that comes last.
const LOCAL_RANKS: [&str; 5] = [
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",
    "MV2_COMM_WORLD_LOCAL_RANK",
    "PMI_LOCAL_RANK",
    "SLURM_LOCALID",
];

/// Returns true if this process acts for its node: it is the first rank there, or no rank at all.
pub fn is_first_of_node() -> bool {
    is_first_of(|name| env::var(name).ok())
}

fn is_first_of(variable: impl Fn(&str) -> Option<String>) -> bool {
    LOCAL_RANKS.iter().find_map(|name| variable(name)?.parse::<u32>().ok()).is_none_or(|rank| rank == 0)
}

/// The variables of a launcher.
struct LauncherVariables {
    rank: &'static str,
    ranks: &'static str,
    /// Variables that name the job together.
    job: &'static [&'static str],
}

/// Open MPI, the process manager of MPICH and others, and `srun`. Slurm sets `SLURM_PROCID` in batch scripts too, which are
/// no ranks, but `SLURM_STEP_NUM_TASKS` in steps alone.
const LAUNCHERS: &[LauncherVariables] = &[
    LauncherVariables {
        rank: "OMPI_COMM_WORLD_RANK",
        ranks: "OMPI_COMM_WORLD_SIZE",
        job: &["SLURM_JOB_ID", "PMIX_NAMESPACE"],
    },
    LauncherVariables { rank: "PMI_RANK", ranks: "PMI_SIZE", job: &["SLURM_JOB_ID", "SLURM_STEP_ID", "PMI_JOBID"] },
    LauncherVariables {
        rank: "SLURM_PROCID",
        ranks: "SLURM_STEP_NUM_TASKS",
        job: &["SLURM_JOB_ID", "SLURM_STEP_ID"],
    },
];

impl JobRank {
    /// Reads this process's environment. `None` if it is no rank, or the only one.
    pub fn from_env() -> Option<Self> {
        Self::from_variables(|name| env::var(name).ok())
    }

    fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let number = |name| variable(name)?.parse::<u32>().ok();
        LAUNCHERS.iter().find_map(|launcher| {
            let (rank, ranks) = number(launcher.rank).zip(number(launcher.ranks))?;
            let names: Vec<String> = launcher.job.iter().filter_map(|name| variable(name)).collect();
            (rank < ranks && ranks > 1).then(|| Self { job: names.join("."), rank, ranks })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(variables: &[(&str, &str)]) -> impl Fn(&str) -> Option<String> {
        |name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
    }

    fn read(variables: &[(&str, &str)]) -> Option<(String, u32, u32)> {
        JobRank::from_variables(environment(variables)).map(|place| (place.job, place.rank, place.ranks))
    }

    #[test]
    fn one_rank_acts_for_its_node() {
        let is_first = |variables: &[(&str, &str)]| is_first_of(environment(variables));
        assert!(is_first(&[]), "no rank");
        for name in LOCAL_RANKS {
            assert_eq!([is_first(&[(name, "0")]), is_first(&[(name, "1")])], [true, false], "{name}");
        }
        assert!(
            !is_first(&[("SLURM_LOCALID", "0"), ("OMPI_COMM_WORLD_LOCAL_RANK", "3")]),
            "mpirun in a step of srun"
        );
        assert!(
            is_first(&[("OMPI_COMM_WORLD_RANK", "8"), ("OMPI_COMM_WORLD_LOCAL_RANK", "0")]),
            "of the second node"
        );
    }

    #[test]
    fn each_launcher_numbers_its_ranks() {
        let open_mpi = [("OMPI_COMM_WORLD_RANK", "3"), ("OMPI_COMM_WORLD_SIZE", "4"), ("PMIX_NAMESPACE", "77")];
        assert_eq!(read(&open_mpi), Some(("77".to_owned(), 3, 4)));
        assert_eq!(read(&[("PMI_RANK", "0"), ("PMI_SIZE", "2")]), Some((String::new(), 0, 2)));
        let step =
            [("SLURM_JOB_ID", "12"), ("SLURM_STEP_ID", "0"), ("SLURM_PROCID", "1"), ("SLURM_STEP_NUM_TASKS", "2")];
        assert_eq!(read(&step), Some(("12.0".to_owned(), 1, 2)));
    }

    #[test]
    fn a_batch_script_and_a_single_process_are_no_ranks() {
        let script = [("SLURM_JOB_ID", "12"), ("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4")];
        assert_eq!(read(&script), None);
        assert_eq!(read(&[("PMI_RANK", "0"), ("PMI_SIZE", "1")]), None);
        assert_eq!(read(&[("PMI_RANK", "2"), ("PMI_SIZE", "2")]), None);
        assert_eq!(read(&[]), None);
    }
}
