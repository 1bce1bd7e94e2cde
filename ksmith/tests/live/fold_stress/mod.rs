//! Folding from outside loses no byte: programs that know what their memory must hold change it in every way that the kernel has,
//! while `ksmith fold` splits its huge pages in a loop. `make stress` does it for long.

mod attacks;
mod everything;
mod faults;
mod kernel_log;
mod program;
pub mod restorer;

/// Returns the duration of a long run, in seconds.
fn long_seconds() -> u64 {
    std::env::var("STRESS_SECONDS").map_or(3600, |seconds| seconds.parse().unwrap())
}

/// Prints the outcome of a run, also where the harness swallows what a test that passes prints.
#[allow(clippy::disallowed_methods, reason = "a test's own words")]
pub fn print_outcome(text: &str) {
    let _ = std::io::Write::write_all(&mut std::io::stderr(), format!("fold stress: {text}\n").as_bytes());
}
