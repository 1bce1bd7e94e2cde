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

/// Plain figures of a run.
const RUN: [(&str, &str, &str); 17] = [
    ("attainable_bytes", "integer", "Most memory that could be saved at any time."),
    ("saved_bytes", "integer", "Memory saved at the end, as far as it was attainable."),
    ("seconds_to_50", "number?", "Time to half of the slowest rise; null where that was not reached."),
    ("seconds_to_90", "number?", "Time to 90 % of the slowest rise."),
    ("seconds_to_99", "number?", "Time to 99 % of the slowest rise."),
    ("gib_seconds", "number", "Memory saved, integrated over time."),
    ("attainable_gib_seconds", "number", "Attainable memory, integrated over time."),
    ("ksmd_cpu_seconds", "number", "CPU time of ksmd."),
    ("ksmd_peak_percent", "number", "Most of a CPU that ksmd used over 5 seconds."),
    ("late_percent", "number", "CPU use of ksmd and controller in the last third of the run."),
    ("controller_cpu_seconds", "number", "CPU time of the controller."),
    ("controller_rss_bytes", "integer", "Most resident memory of the controller."),
    ("breaks", "integer", "Merged pages that were copied on a write."),
    ("passes", "integer", "Full passes of ksmd."),
    ("work_pages", "integer", "Pages that the guests' workers went through."),
    ("rewrite_seconds", "number", "Time that guests took to rewrite and refill parts."),
    ("wrong_pages", "integer", "Pages of guests that did not hold what they should."),
];

/// Returns the schema of `ksmith lab run --json` and of `results.json`.
pub fn run_schema() -> Value {
    results_schema("ksmith lab run --json")
}

/// Returns the schema of `ksmith sim --json` and of its `results.json`.
pub fn sim_schema() -> Value {
    results_schema("ksmith sim --json")
}

/// Returns the schema of `ksmith sim calibrate --json`.
pub fn calibrate_schema() -> Value {
    let host = plains(&[("kernel", "string", "Release of the kernel."), ("cpus", "integer", "CPUs online.")], []);
    let spread = [
        ("median", "number", "Median over the rounds, in nanoseconds."),
        ("min", "number", "Least of the rounds."),
        ("max", "number", "Greatest of the rounds."),
    ];
    let ns = json!({ "anyOf": [plains(&spread, []), { "type": "null" }] });
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
        [("host", host), ("costs", costs), ("measured", list("What was measured.", cost))],
    );
    document("ksmith sim calibrate --json", whole)
}

/// Returns the schema of `ksmith sim tune --json` and of its `results.json`.
pub fn tune_schema() -> Value {
    let figures = plains(
        &[
            ("gib_seconds", "number", "Memory saved, integrated over time."),
            ("attainable_gib_seconds", "number", "Attainable memory, integrated over time."),
            ("ksmd_cpu_seconds", "number", "CPU time of ksmd."),
        ],
        [],
    );
    let values = list("Values, in the order of the keys.", json!({ "type": "number" }));
    let point = plains(
        &[
            ("share", "number", "Saved of what could be, 0 to 1: the mean of the stories."),
            ("cpu", "number", "CPU time of ksmd divided by that under the defaults: the mean of the stories."),
        ],
        [("values", values), ("stories", list("What came of each story.", figures))],
    );
    let or_none = |about: &str| json!({ "anyOf": [point.clone(), { "type": "null" }], "description": about });
    let place = plains(
        &[
            ("is_on_front", "boolean", "Whether nothing that was tried dominates the defaults."),
            ("dominated_by", "integer", "Points that save no less for no more CPU, and are better in one of both."),
            ("better_everywhere", "integer", "Of these, points that are no worse in any story."),
        ],
        [
            ("cheapest", or_none("The point of least CPU that saves no less.")),
            ("fullest", or_none("The point that saves most for no more CPU.")),
            ("cheapest_everywhere", or_none("Of the points that are no worse in any story, the one of least CPU.")),
        ],
    );
    let key = plains(
        &[
            ("name", "string", "Name of the key."),
            ("low", "number", "Least value that was tried."),
            ("high", "number", "Greatest value that was tried."),
            ("default", "number", "The default."),
            ("is_whole", "boolean", "Whether only whole numbers are taken."),
            (
                "is_constant",
                "boolean",
                "Whether it is a constant of the policy's code, which no configuration has.",
            ),
        ],
        [],
    );
    let story =
        plains(&[("name", "string", "Name of the story."), ("seconds", "number", "Its simulated time.")], []);
    let whole = plains(
        &[
            ("ksmith", "string", "Version of ksmith."),
            ("policy", "string", "The policy."),
            ("kernel", "string", "The simulated kernel."),
            ("seed", "integer", "Seed of the search."),
            ("is_stopped", "boolean", "Whether the search was ended early."),
            ("refused", "integer", "Points that were refused as contradictory, and not played."),
        ],
        [
            ("keys", list("The keys that were searched.", key)),
            ("stories", list("The stories.", story)),
            ("defaults", point.clone()),
            ("place", place),
            ("front", list("The Pareto front, by CPU.", point.clone())),
            ("points", list("All points that were played.", point)),
        ],
    );
    document("ksmith sim tune --json", whole)
}

fn results_schema(title: &str) -> Value {
    let rise = plains(
        &[
            ("at", "number", "Time at which all of it could be saved."),
            ("missing_bytes", "integer", "Attainable memory that was not yet saved."),
            RUN[2],
            RUN[3],
            RUN[4],
        ],
        [],
    );
    let point = plains(
        &[
            ("at", "number", "Time since the start."),
            ("saved_bytes", "integer", "Memory saved."),
            ("ksmd_cpu_seconds", "number", "CPU time of ksmd."),
            ("controller_cpu_seconds", "number", "CPU time of the controller."),
            ("breaks", "integer", "Merged pages that were copied on a write."),
        ],
        [],
    );
    let at = ("at", "number", "Time since the start.");
    let step = plains(&[at, ("bytes", "integer", "Memory that can be saved from then on.")], []);
    let series = object(
        [],
        [("points", list("Samples.", point)), ("attainable", list("Changes of attainable memory.", step))],
    );
    let run = plains(&RUN, [("rises", list("Each rise of what could be saved.", rise)), ("series", series)]);
    let spread = plains(
        &[
            ("median", "number?", "Median over the runs."),
            ("min", "number?", "Least of the runs."),
            ("max", "number?", "Greatest of the runs."),
        ],
        [],
    );
    let competitor = plains(
        &[
            ("name", "string", "Name of the competitor."),
            ("share_of_reference", "number?", "Median GiB-seconds divided by those of the reference."),
            ("cpu_of_reference", "number?", "Median CPU time of ksmd divided by the reference's."),
            ("work_ratio", "number?", "Work of the guests divided by their work without KSM."),
            ("rewrite_ratio", "number?", "Time for rewriting divided by that without KSM."),
        ],
        [("summary", map("Each figure over all runs.", spread)), ("runs", list("Runs.", run))],
    );
    let scenario = plains(
        &[
            ("name", "string", "Name of the scenario."),
            ("about", "string", "What the scenario is about."),
            ("seconds", "number", "Time of a run."),
            ("is_attainable_known", "boolean", "Whether attainable memory is known from the guests' contents."),
            ("attainable_bytes", "integer", "Most memory that can be saved at any time."),
        ],
        [("competitors", list("Competitors, in the order of the command line.", competitor))],
    );
    let host = plains(&[("kernel", "string", "Release of the kernel."), ("cpus", "integer", "CPUs online.")], []);
    let whole = plains(
        &[
            ("ksmith", "string", "Version of ksmith."),
            ("form", "string", "Form of the scenarios: short or long."),
            ("repeat", "integer", "Runs of each scenario under each competitor."),
        ],
        [("host", host), ("scenarios", list("Scenarios, in the order of the runs.", scenario))],
    );
    document(title, whole)
}
