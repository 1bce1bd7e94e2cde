//! Benchmark of the simulator: page visits a second on one core, and the wall time of a day at 1 TiB under `profit`.
//!
//! `cargo bench -p ksmith-lab --bench speed`

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::disallowed_macros,
    reason = "a bench takes time and prints"
)]

use std::path::Path;
use std::time::{Duration, Instant};

use ksmith_core::knobs::Knob;
use ksmith_core::sim::{GuestPlan, SimConfig, SimMachine, clones};
use ksmith_lab::competitor::Competitor;
use ksmith_lab::measure::Spread;
use ksmith_lab::scenario::ScenarioForm;
use ksmith_lab::simulate::{SimulatedHost, Simulation, SimulationStory, StoryOverrides};

/// Page visits a second that are aimed at.
const AIM_VISITS: f64 = 50e6;
/// The wall time of the day that is aimed at.
const AIM_DAY: Duration = Duration::from_secs(120);

/// Pages of four guests: half of them equal, a tenth empty, the rest their own.
const PAGES: u32 = 65_536;

/// Times that the visits are measured. The median counts.
const ROUNDS: usize = 9;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let visits = [("clean passes", 0), ("smart_scan", 1)];
    for (name, smart_scan) in visits {
        println!(
            "page visits a second, page-exact, settled, {name}: {:.0} million (aim {:.0} million)",
            visits_per_second(smart_scan) / 1e6,
            AIM_VISITS / 1e6
        );
    }
    let took = day()?;
    println!(
        "a day at 1 TiB under profit (scenarios/fleet/day.toml): {:.1} s (aim {} s)",
        took.as_secs_f64(),
        AIM_DAY.as_secs()
    );
    Ok(())
}

fn visits_per_second(smart_scan: u64) -> f64 {
    let mut machine = SimMachine::new(SimConfig::default());
    let plan = |plan: GuestPlan| plan.equal(0, PAGES / 2).zero(PAGES / 10).unique(PAGES * 4 / 10);
    clones(4, "guest", plan).into_iter().for_each(|plan| machine.start(plan));
    for (knob, value) in [(Knob::SmartScan, smart_scan), (Knob::PagesToScan, 1000), (Knob::Run, 1)] {
        // All of them are within the files' ranges.
        let _ = machine.write(knob, value);
    }
    machine.advance(Duration::from_secs(300));
    let rates = (0..ROUNDS).map(|_| {
        let (before, began) = (machine.figures().visits, Instant::now());
        machine.advance(Duration::from_secs(600));
        Some((machine.figures().visits - before) as f64 / began.elapsed().as_secs_f64())
    });
    Spread::from_values(rates).median.unwrap_or(0.0)
}

fn day() -> Result<Duration, Box<dyn std::error::Error>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios/fleet/day.toml");
    let wishes = StoryOverrides {
        host_bytes: Some(1 << 40),
        duration: Some(Duration::from_secs(86_400)),
        ..StoryOverrides::default()
    };
    let simulation = Simulation {
        stories: vec![SimulationStory::load(&path, ScenarioForm::Short, wishes)?],
        form: ScenarioForm::Short,
        competitors: vec![Competitor::parse("profit")?],
        balances: Vec::new(),
        host: SimulatedHost::default(),
    };
    let began = Instant::now();
    simulation.play()?;
    Ok(began.elapsed())
}
