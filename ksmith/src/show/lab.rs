//! The JSON Schemas of `ksmith lab`.

use ksmith_core::figures::schema::{document, list, map, object, plains, texts};
use serde_json::{Value, json};

/// Returns the schema of `ksmith lab list --json`.
pub fn list_schema() -> Value {
    let scenario = plains(
        &[
            ("name", "string", "Name of the scenario."),
            ("about", "string", "What the scenario is about."),
            ("path", "string", "Path of its file."),
            ("short_seconds", "number", "Time of a run in the short form."),
            ("long_seconds", "number", "Time of a run in the long form."),
            ("short_peak_bytes", "integer", "Most memory of the guests in the short form."),
            ("long_peak_bytes", "integer", "Most memory of the guests in the long form."),
        ],
        [],
    );
    let parts = [
        ("scenarios", list("Scenarios that were found.", scenario)),
        ("competitors", texts("Competitors that can run here.")),
    ];
    document("ksmith lab list --json", object([], parts))
}

/// Returns the schema of `ksmith sim calibrate --json`.
pub fn calibrate_schema() -> Value {
    let host = plains(&[("kernel", "string", "Release of the kernel."), ("cpus", "integer", "CPUs online.")], []);
    let spread = [
        ("median", "number", "Median over the rounds, in nanoseconds."),
        ("min", "number", "Least of the rounds."),
        ("max", "number", "Greatest of the rounds."),
    ];
    let spread = plains(&spread, []);
    let ns = json!({ "anyOf": [&spread, { "type": "null" }] });
    let losses = json!({ "type": ["array", "null"], "items": { "type": "number" }, "description": "The key of [huge_pages] for this host." });
    let access = plains(
        &[
            ("working_set_bytes", "integer", "Memory that the program uses."),
            (
                "lost_cpus",
                "number",
                "CPU-seconds a second that a program which does nothing else loses in small pages.",
            ),
        ],
        [("huge_ns", spread.clone()), ("small_ns", spread)],
    );
    let cost = plains(
        &[
            ("key", "string", "Kind of work, as in the file of costs."),
            ("about", "string", "Kind of work in words."),
        ],
        [("ns", ns)],
    );
    let costs =
        map("Costs in nanoseconds by kind of work, as the file of costs has them.", json!({ "type": "integer" }));
    let whole = plains(
        &[
            ("rounds", "integer", "Rounds of the measurement."),
            ("pages", "integer", "Pages of each guest that was measured."),
        ],
        [
            ("host", host),
            ("costs", costs),
            ("measured", list("What was measured.", cost)),
            ("accesses", list("Accesses at random, in huge pages and in small ones.", access)),
            ("split_loss_cpus", losses),
        ],
    );
    document("ksmith sim calibrate --json", whole)
}
