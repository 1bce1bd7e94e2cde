//! The text form of a made-up fleet: a scenario file with a table `[fleet]`.

use std::time::Duration;

use ksmith_core::amount;
use ksmith_core::sim::SimFleet;
use serde::Deserialize;

use super::wishes::StoryOverrides;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FleetFile {
    about: String,
    fleet: FleetTable,
}

/// The table `[fleet]`. A key that is missing has the value of the hour ([`SimFleet::default`]).
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FleetTable {
    host: Option<String>,
    images: Option<u16>,
    smallest: Option<String>,
    largest: Option<String>,
    step: Option<String>,
    common: Option<f64>,
    image: Option<f64>,
    zero: Option<f64>,
    rewritten: Option<f64>,
    rewritten_every: Option<String>,
    working: Option<f64>,
    working_every: Option<String>,
    booting: Option<f64>,
    boot: Option<String>,
    growing: Option<f64>,
    growing_over: Option<String>,
    hot: Option<f64>,
    hot_every: Option<String>,
    cold: Option<f64>,
    bursting: Option<f64>,
    burst_every: Option<String>,
    burst_for: Option<String>,
    burst_within: Option<String>,
    strangers: Option<f64>,
    night: Option<f64>,
    start_every: Option<String>,
    full: Option<f64>,
    exchange_from: Option<String>,
    exchange_every: Option<String>,
    duration: Option<String>,
    seed: Option<u64>,
}

/// The greatest ratio of the guests' memory to that of the host.
const MOST_FULL: f64 = 4.0;

/// Returns true if the text is a fleet's, and not that of a scenario of the lab.
pub(super) fn is_fleet(text: &str) -> bool {
    text.lines().any(|line| line.trim() == "[fleet]")
}

/// Reads the text: the description and the fleet.
pub(super) fn parse(text: &str, wishes: StoryOverrides) -> Result<(String, SimFleet), String> {
    let FleetFile { about, fleet: table } = toml::from_str(text).map_err(|error| error.to_string())?;
    let usual = SimFleet::default();
    let size = |key: &str, text: &Option<String>, usual: u64| match text {
        None => Ok(usual),
        Some(text) => {
            let bytes = amount::size(text).filter(|bytes| *bytes > 0);
            bytes.ok_or_else(|| format!("{key}: {text:?} is not a size such as \"4 GiB\""))
        }
    };
    let time = |key: &str, text: &Option<String>, usual: Duration| match text {
        None => Ok(usual),
        Some(text) => amount::time(text).ok_or_else(|| format!("{key}: {text:?} is not a time such as \"5s\"")),
    };
    let part = |key: &str, value: Option<f64>, usual: f64| match value.unwrap_or(usual) {
        value if (0.0..=1.0).contains(&value) => Ok(value),
        value => Err(format!("{key}: {value} is not a part from 0 to 1")),
    };
    let step = size("step", &table.step, usual.size_step)?;
    let in_steps = |key: &str, text: &Option<String>, usual: u32| {
        let bytes = size(key, text, u64::from(usual) * step)?;
        let count = u32::try_from(bytes / step).ok().filter(|count| *count > 0 && bytes % step == 0);
        count.ok_or_else(|| format!("{key} is no multiple of step"))
    };
    let (smallest, largest) = (
        in_steps("smallest", &table.smallest, *usual.sizes.start())?,
        in_steps("largest", &table.largest, *usual.sizes.end())?,
    );
    if smallest > largest {
        return Err("smallest is more than largest".to_owned());
    }
    let fleet = SimFleet {
        host_bytes: wishes.host_bytes.map_or_else(|| size("host", &table.host, usual.host_bytes), Ok)?,
        images: table.images.unwrap_or(usual.images),
        sizes: smallest..=largest,
        size_step: step,
        common: part("common", table.common, usual.common)?,
        image: part("image", table.image, usual.image)?,
        zero: part("zero", table.zero, usual.zero)?,
        rewritten: part("rewritten", table.rewritten, usual.rewritten)?,
        rewritten_every: time("rewritten_every", &table.rewritten_every, usual.rewritten_every)?,
        working: part("working", table.working, usual.working)?,
        working_every: time("working_every", &table.working_every, usual.working_every)?,
        booting: part("booting", table.booting, usual.booting)?,
        boot: time("boot", &table.boot, usual.boot)?,
        growing: part("growing", table.growing, usual.growing)?,
        growing_over: time("growing_over", &table.growing_over, usual.growing_over)?,
        hot: part("hot", table.hot, usual.hot)?,
        hot_every: time("hot_every", &table.hot_every, usual.hot_every)?,
        cold: part("cold", table.cold, usual.cold)?,
        bursting: part("bursting", table.bursting, usual.bursting)?,
        burst_every: time("burst_every", &table.burst_every, usual.burst_every)?,
        burst_for: time("burst_for", &table.burst_for, usual.burst_for)?,
        burst_within: time("burst_within", &table.burst_within, usual.burst_within)?,
        strangers: part("strangers", table.strangers, usual.strangers)?,
        night_permille: (part("night", table.night, 1.0)? * 1000.0).round() as u32,
        start_every: time("start_every", &table.start_every, usual.start_every)?,
        full: match table.full.unwrap_or(usual.full) {
            full if full > 0.0 && full <= MOST_FULL => full,
            full => return Err(format!("full: {full} is not a part of the host's memory up to {MOST_FULL}")),
        },
        exchange_from: time("exchange_from", &table.exchange_from, usual.exchange_from)?,
        exchange_every: time("exchange_every", &table.exchange_every, usual.exchange_every)?,
        duration: wishes.duration.map_or_else(|| time("duration", &table.duration, usual.duration), Ok)?,
        seed: wishes.seed.or(table.seed).unwrap_or(usual.seed),
    };
    let parts = [
        [fleet.common, fleet.image, fleet.zero, fleet.rewritten, fleet.working].as_slice(),
        &[fleet.booting, fleet.growing, fleet.hot, fleet.cold, fleet.bursting],
    ]
    .concat();
    match parts.iter().sum::<f64>() {
        sum if sum > 1.000_001 => Err(format!("the parts of a guest are {sum} of it, more than the whole")),
        _ if fleet.images == 0 || fleet.images > 20_000 => Err("images go from 1 to 20000".to_owned()),
        _ if fleet.duration.is_zero() => Err("duration is 0".to_owned()),
        _ => Ok((about, fleet)),
    }
}
