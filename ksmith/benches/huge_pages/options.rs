//! The command line.

use std::fmt;
use std::time::Duration;

use crate::chase::ChasingGuest;
use crate::guest::BenchGuest;
use crate::mixture::MemoryMixture;
use crate::redis::RedisGuest;

/// The choice of mixtures and of the program, and the lengths of a run.
pub struct HugeBenchOptions {
    pub rounds: usize,
    /// Length of the burst and of the steady state.
    pub phases: [Duration; 2],
    /// Memory of a guest.
    pub mib: usize,
    pub program: String,
    /// True if guests and ksmd have CPUs of their own.
    pub is_apart: bool,
    /// The only competitor that is measured, by its name without quotation marks.
    only: Option<String>,
    /// Pairs of runs with the same guests, where these are measured.
    pub pairs: Option<usize>,
    /// The time for which khugepaged is hurried, where that is measured.
    pub khugepaged: Option<Duration>,
    words: Vec<String>,
}

impl HugeBenchOptions {
    pub fn parse(mut words: impl Iterator<Item = String>) -> Self {
        let seconds = Duration::from_secs;
        let mut options = Self {
            rounds: 5,
            phases: [seconds(30), seconds(60)],
            mib: 512,
            program: "chase".to_owned(),
            is_apart: false,
            only: None,
            pairs: None,
            khugepaged: None,
            words: Vec::new(),
        };
        while let Some(word) = words.next() {
            let mut number = || words.next().and_then(|value| value.parse::<u32>().ok()).expect("a number");
            match word.as_str() {
                "--bench" => {}
                "--rounds" => options.rounds = number() as usize,
                "--burst" => options.phases[0] = seconds(number().into()),
                "--steady" => options.phases[1] = seconds(number().into()),
                "--pairs" => options.pairs = Some(number() as usize),
                "--khugepaged" => options.khugepaged = Some(seconds(number().into())),
                "--mib" => options.mib = number() as usize,
                "--program" => options.program = words.next().expect("chase or redis"),
                "--only" => options.only = Some(words.next().expect("a competitor")),
                "--apart" => options.is_apart = true,
                other if other.starts_with('-') => panic!("there is no option {other}"),
                _ => options.words.push(word),
            }
        }
        assert!(["chase", "redis"].contains(&options.program.as_str()), "--program takes chase or redis");
        options
    }

    /// Returns true if a mixture is to be measured.
    pub fn wants(&self, mixture: &str) -> bool {
        self.words.is_empty() || self.words.iter().any(|word| mixture.starts_with(word.as_str()))
    }

    /// Returns true if a competitor is to be measured.
    pub fn has_competitor(&self, name: &str) -> bool {
        self.only.as_deref().is_none_or(|only| name.trim_matches('`') == only)
    }

    /// Starts a guest, filled on return.
    pub fn start(&self, mixture: MemoryMixture) -> Box<dyn BenchGuest> {
        match self.program.as_str() {
            "redis" => Box::new(RedisGuest::start(mixture, self.mib)),
            _ => Box::new(ChasingGuest::start(mixture, self.mib)),
        }
    }
}

impl fmt::Display for HugeBenchOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [burst, steady] = self.phases.map(|time| time.as_secs());
        let apart = if self.is_apart { "; guests on the first CPU, ksmd on the others" } else { "" };
        let Self { program, mib, rounds, .. } = self;
        write!(
            f,
            "{program}: two guests of {mib} MiB; a burst of {burst} s and a steady state of {steady} s; {rounds} rounds{apart}"
        )
    }
}
