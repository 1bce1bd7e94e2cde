//! The daemon on a simulated host, in simulated time.

mod faults;
mod interrupted;
mod messages;
mod pause;
mod reload;
mod restore;
mod scans;
mod socket;
mod turns;

/// A setting held for as long as the daemon runs, whatever the guests do.
const HELD: &str = "[policy]\nkind = \"fixed\"\n[policy.fixed]\nsettings = { pages_to_scan = 321, run = 0 }\n";
