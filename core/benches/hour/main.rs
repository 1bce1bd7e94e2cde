//! An hour of a made-up fleet under policies, on the simulated machine.
//!
//! `cargo bench -p ksmith-core --bench hour -- GIB SECONDS [--run PAGES] [--hours H] [--images N] [--strangers PART] [POLICY…]`: a host of so many GiB, on which one guest leaves and one comes each so many
//! seconds. The policies are the lab's competitors; all where none is named. `foreseen:N` knows when guests come, and
//! makes two smart passes for each N of them ([`ForeseenPolicy`]). `of bound` is ksmd's part of a CPU in the second half, as
//! a multiple of the least ([`CpuBound`]). That is for one batch of passes for each arrival, and for as many batches as
//! were made.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::disallowed_macros,
    reason = "a bench takes time and prints"
)]

mod bound;
mod foreseen;
mod outcome;

use std::io;
use std::time::{Duration, Instant};

use ksmith_core::decide::{POLICIES, Policy, PolicyConfig, PolicyLimits};
use ksmith_core::sim::{SimCosts, SimFleet};
use ksmith_core::trial::{PolicyTrial, SimHost, TrialMoment};

use bound::CpuBound;
use foreseen::ForeseenPolicy;
use outcome::FleetOutcome;

fn main() {
    let mut numbers = Vec::new();
    let (mut run, mut hours, mut wanted) = (1, 1.0, Vec::new());
    let mut usual = SimFleet::default();
    let mut words = std::env::args().skip(1).filter(|word| word != "--bench");
    while let Some(word) = words.next() {
        let mut value = || words.next().and_then(|value| value.parse::<f64>().ok());
        match word.as_str() {
            "--run" => run = value().unwrap_or(1.0) as u32,
            "--images" => usual.images = value().unwrap_or(8.0) as u16,
            "--strangers" => usual.strangers = value().unwrap_or(0.0),
            "--hours" => hours = value().unwrap_or(1.0),
            _ => match word.parse::<u64>() {
                Ok(number) => numbers.push(number),
                Err(_) => wanted.push(word),
            },
        }
    }
    let (gib, seconds) = (numbers.first().copied().unwrap_or(2), numbers.get(1).copied().unwrap_or(60));
    let fleet = SimFleet {
        host_bytes: gib << 30,
        size_step: if gib < 16 { gib << 26 } else { 1 << 30 },
        exchange_every: Duration::from_secs(seconds),
        duration: Duration::from_secs_f64(3600.0 * hours),
        ..usual
    };
    println!("{gib} GiB, one in {seconds} s, {hours} h, runs of {run} pages");
    let bound = CpuBound::from_fleet(&fleet, &SimCosts::default(), fleet.duration / 2);
    let least = |batches: f64| bound.cpu_share(batches) * 100.0;
    println!(
        "{} arrivals in the second half; least for a batch of passes for each: {:.1} % of a CPU, for each two: {:.1} %, alone: {:.1} %",
        bound.arrivals,
        least(bound.arrivals as f64),
        least(bound.arrivals as f64 / 2.0),
        least(0.0)
    );
    println!(
        "policy                    saved    GiB-s  counted   ksmd  2nd half  passes    turns    took  of bound  own batches"
    );
    let default = [("profit", "kind = \"profit\"".to_owned())];
    let of_policies = POLICIES.iter().skip(1).flat_map(|entry| {
        let table = move |settings: &str| format!("kind = \"{0}\"\n[{0}]\n{settings}", entry.name);
        entry.competitors.iter().map(move |(name, settings)| (*name, table(settings)))
    });
    for (name, table) in default.into_iter().chain(of_policies) {
        if !wanted.is_empty() && !wanted.iter().any(|word| word == name) {
            continue;
        }
        let config: PolicyConfig = toml::from_str(&table).unwrap_or_default();
        let Ok(policy) = config.policy(&|_| Err(io::ErrorKind::NotFound.into())) else { continue };
        play(&fleet, &bound, run, name, policy);
    }
    for batch in wanted.iter().filter_map(|word| word.strip_prefix("foreseen:")?.parse().ok()) {
        let policy = Box::new(ForeseenPolicy::from_fleet(&fleet, batch));
        play(&fleet, &bound, run, &format!("foreseen:{batch}"), policy);
    }
}

fn play(fleet: &SimFleet, bound: &CpuBound, run: u32, name: &str, policy: Box<dyn Policy>) {
    let began = Instant::now();
    let host = SimHost::new(fleet.machine(run));
    let outcome =
        FleetOutcome::of_trial(fleet, PolicyTrial::with_host(host, policy, PolicyLimits::default()), |_| true);
    let half = fleet.duration / 2;
    let (used, batches) = (outcome.ksmd_share(half), outcome.passes_since(half) as f64 / 2.0);
    let of = |batches: f64| used / bound.cpu_share(batches).max(f64::MIN_POSITIVE);
    println!(
        "{name:22} {:7.1} % {:8.0} {:6.1} % {:4.0} %  {:6.1} % {:7} {:8} {:6.1} s {:9.2} {:12.2}",
        outcome.share() * 100.0,
        outcome.gib_seconds(),
        outcome.counted_share() * 100.0,
        outcome.ksmd_share(Duration::ZERO) * 100.0,
        used * 100.0,
        outcome.passes(),
        outcome.turns,
        began.elapsed().as_secs_f64(),
        of(bound.arrivals as f64),
        of(batches),
    );
}
