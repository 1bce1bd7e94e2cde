//! The JSON Schema of what each command prints with `--json`.

use ksmith_core::figures::schema::{document, list, map, object, optional, plain, plains, texts};
use ksmith_host::estimate::EstimateReport;
use ksmith_host::job::RankedReport;
use ksmith_lab::demo::DemoReport;
use ksmith_lab::results::LabResults;
use ksmith_lab::tune::TuneResult;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use serde_json::{Value, json};

use super::orders::{HoldReply, MergeReply, PauseReply, PlannedScan};
use super::{balance, controllers, fold, guests, history, lab, overview, settings as configuration, status};

/// A schema by its command.
pub type Schema = (&'static str, fn() -> Value);

/// Every command that prints JSON, with its schema.
pub const SCHEMAS: &[Schema] = &[
    ("overview", overview::schema),
    ("status", status::schema),
    ("guests", guests::schema),
    ("balance", balance::schema),
    ("history", history::schema),
    ("report", report),
    ("doctor", doctor),
    ("estimate", || typed::<EstimateReport>("ksmith estimate --json")),
    ("fold", fold::schema),
    ("sketch", sketch),
    ("demo", || typed::<DemoReport>("ksmith demo --json")),
    ("daemon", daemon),
    ("job report", job_report),
    ("scan", scan),
    ("pause", || typed::<PauseReply>("ksmith pause --json")),
    ("resume", || typed::<PauseReply>("ksmith resume --json")),
    ("enable", || settings("enable")),
    ("disable", || settings("disable")),
    ("set", || settings("set")),
    ("setup", setup),
    ("merge", || typed::<MergeReply>("ksmith merge --json")),
    ("hold", || typed::<HoldReply>("ksmith hold --json")),
    ("give", || resize("give")),
    ("take", || resize("take")),
    ("unmerge", unmerge),
    ("optin", optin),
    ("restore", restore),
    ("config check", config_check),
    ("config show", configuration::schema),
    ("lab list", lab::list_schema),
    ("lab run", || typed::<LabResults>("ksmith lab run --json")),
    ("sim", || typed::<LabResults>("ksmith sim --json")),
    ("sim calibrate", lab::calibrate_schema),
    ("sim tune", || typed::<TuneResult>("ksmith sim tune --json")),
];

/// Returns the schema of a command.
pub fn command_schema(command: &str) -> Option<Value> {
    SCHEMAS.iter().find(|(name, _)| *name == command).map(|(_, schema)| schema())
}

/// Returns the schema of a type, with its doc comments as descriptions.
fn typed<T: JsonSchema>(title: &str) -> Value {
    document(title, schema_of::<T>())
}

fn schema_of<T: JsonSchema>() -> Value {
    let settings =
        SchemaSettings::draft2020_12().for_serialize().with_transform(RecursiveTransform(put_on_one_line));
    let settings = settings.with(|settings| settings.inline_subschemas = true);
    settings.into_generator().into_root_schema_for::<T>().to_value()
}

/// Replaces the line breaks of a doc comment in the description of a schema.
fn put_on_one_line(schema: &mut schemars::Schema) {
    if let Some(Value::String(text)) = schema.get_mut("description") {
        *text = text.replace('\n', " ");
    }
}

const DRY_RUN: (&str, &str, &str) = ("dry_run", "boolean", "Whether nothing was done.");

fn doctor() -> Value {
    let finding = plains(
        &[
            ("code", "string", "Stable word for the finding."),
            ("severity", "string", "Weight of the finding: problem, warning or note."),
            ("what", "string", "The finding, with the figures that show it."),
            ("remedy", "string", "What to do."),
        ],
        [],
    );
    let part = [("cause", "string", "Stable word for the cause."), ("bytes", "integer", "Memory with this cause.")];
    let cause = plains(
        &[
            part[0],
            part[1],
            ("what", "string", "The cause in a sentence."),
            ("evidence", "string?", "The figures that show it."),
            ("remedy", "string?", "What to do."),
        ],
        [],
    );
    let mapping = plains(
        &[
            ("start", "string", "First address, as in smaps."),
            ("end", "string", "Address behind the last."),
            ("path", "string", "The file or area that is mapped."),
            ("is_marked", "boolean?", "Whether it is marked mergeable."),
        ],
        [("parts", list("Memory of the mapping by cause, most first.", plains(&part, [])))],
    );
    let splits = plains(
        &[
            ("split_bytes", "integer", "Huge pages that merging all would split, from some that were read."),
            ("saved_bytes", "integer", "Memory in them that it would save."),
        ],
        [],
    );
    let process = plains(
        &[
            ("pid", "integer", "PID of the process."),
            ("name", "string", "Name of the guest or the program."),
            ("main", "string?", "Cause that matters most."),
            ("huge_bytes", "integer", "Memory in huge pages that are not merged."),
            ("watched_seconds", "number", "Time between the first and the last reading of pages."),
            ("searched_bytes", "integer", "Memory of all mergeable processes that was searched for equal pages."),
            ("searchable_bytes", "integer", "Memory that could be searched."),
        ],
        [
            ("causes", list("Causes over all mappings, most memory first.", cause)),
            ("mappings", list("Mappings with memory in them.", mapping)),
            ("unseen", texts("What could not be seen.")),
            ("splits", json!({ "anyOf": [splits, { "type": "null" }] })),
        ],
    );
    let findings = list("Findings of the host, the worst first.", finding);
    let host = object([], [("findings", findings), ("controllers", controllers::schema())]);
    let processes = object([], [("processes", list("The processes named.", process))]);
    document("ksmith doctor --json", json!({ "anyOf": [host, processes] }))
}

fn scan() -> Value {
    let keys = [
        ("passes", "integer", "Passes that were asked for."),
        ("saved_bytes_before", "integer", "Memory saved before the first pass."),
        ("saved_bytes", "integer", "Memory saved after the last pass."),
        ("profit_bytes", "integer", "Memory saved less KSM's metadata, after the last pass."),
        ("ksmd_cpu_seconds", "number", "CPU time of ksmd for the passes."),
        ("seconds", "number", "Time that they took."),
    ];
    let planned = schema_of::<PlannedScan>();
    document("ksmith scan --json", json!({ "anyOf": [plains(&keys, []), planned] }))
}

fn job_report() -> Value {
    let runs = list("The reports of a job's runs, in the order of their ends.", schema_of::<RankedReport>());
    document("ksmith job report --json", runs)
}

/// Returns the schema of the first tick that the daemon would make.
fn daemon() -> Value {
    let settings = map("Settings that would be written, by name.", json!({ "type": "string" }));
    let keys = [
        DRY_RUN,
        ("reason", "string", "What the policy would do, and why."),
        ("reason_detail", "string?", "Arithmetic behind the reason, if there is any."),
    ];
    document("ksmith daemon --json", plains(&keys, [("settings", settings)]))
}

fn settings(command: &str) -> Value {
    let change = plains(
        &[
            ("setting", "string", "Name of the setting."),
            ("old", "string", "Value before."),
            ("new", "string", "Value after."),
        ],
        [],
    );
    let whole = plains(&[DRY_RUN], [("changes", list("Settings that changed.", change))]);
    document(&format!("ksmith {command} --json"), whole)
}

fn resize(command: &str) -> Value {
    let keys = [
        ("guest", "string", "Name of the guest."),
        ("from_bytes", "integer", "Memory that it had."),
        ("wanted_bytes", "integer", "Memory that it was to have."),
        ("given_bytes", "integer", "Memory that it has."),
    ];
    document(&format!("ksmith {command} --json"), plains(&keys, []))
}

fn unmerge() -> Value {
    let keys = [
        DRY_RUN,
        ("run_before", "integer?", "Value of run before."),
        ("returned_bytes", "integer", "Memory that went back to the processes."),
    ];
    document("ksmith unmerge --json", plains(&keys, []))
}

/// Returns the schema of the plan of a setup, or of the outcome of its undo.
fn setup() -> Value {
    let step = map("A step, by its kind in the key step: file, group, hand-over or unit.", json!({}));
    let lists = [
        ("steps", list("Steps, in their order.", step)),
        ("obstacles", texts("What keeps ksmith from being set up, with what to do by hand.")),
        ("notes", texts("What to know or to do besides.")),
    ];
    let keys = [
        ("plan", object([], lists)),
        ("done", plain("boolean", "Whether it was done.")),
        ("undone", texts("With --undo: what was undone.")),
        ("kept", texts("With --undo: what stays, with the reason.")),
        ("failed", texts("With --undo: what could not be undone.")),
    ];
    let whole = ["plan", "undone", "kept", "failed"].into_iter().fold(object([], keys), optional);
    document("ksmith setup --json", whole)
}

fn report() -> Value {
    let keys = [
        ("file", "string", "Path of the report."),
        ("since", "number", "Beginning, in seconds since 1970."),
        ("until", "number", "End, in seconds since 1970."),
    ];
    document("ksmith report --json", plains(&keys, []))
}

fn sketch() -> Value {
    let skipped = plains(
        &[
            ("guest", "string", "Name of the guest, with its first PID."),
            ("why", "string", "The reason, in a sentence."),
        ],
        [],
    );
    let keys = [
        ("rate", "string", "Part of all contents that is kept, such as 1/64."),
        ("guests", "integer", "Guests in the file."),
        ("pages", "integer", "Pages read that KSM could merge."),
        ("zero_pages", "integer", "Of these, pages of zeros."),
        ("contents", "integer", "Sampled contents, each counted in each guest that has it."),
        ("bytes", "integer", "Size of the file."),
        ("unverified_bytes", "integer", "Savings in the file that only KSM's counters say."),
    ];
    document("ksmith sketch --json", plains(&keys, [("skipped", list("Guests that are left out.", skipped))]))
}

fn optin() -> Value {
    let keys = [
        ("unit", "string", "The systemd unit."),
        ("drop_in", "string", "Path of the drop-in."),
        ("memory_ksm", "boolean", "Whether the unit is to have MemoryKSM=yes."),
        ("changed", "boolean", "Whether the drop-in changed."),
        DRY_RUN,
    ];
    document("ksmith optin --json", plains(&keys, []))
}

fn restore() -> Value {
    let lacking = plains(
        &[
            ("name", "string", "Name of the guest."),
            ("pid", "integer?", "PID of its first process; null for a cgroup."),
            ("given_bytes", "integer", "Memory that it has at least."),
            ("whole_bytes", "integer", "Memory that it was started with."),
            ("why", "string", "Why it has not got the rest, and what to do."),
        ],
        [],
    );
    let restored = object(
        [],
        [
            ("changes", texts("Settings that were restored.")),
            ("notes", texts("What else was done, one sentence each.")),
            ("left", texts("Settings that have to wait, since they need everything unmerged.")),
            ("failed", texts("What else could not be restored, and why.")),
            ("lacking", list("Guests that still have less memory than at their start.", lacking)),
        ],
    );
    let aside = plain("string?", "The file that keeps what was discarded; null if there was nothing.");
    let discarded = object([], [("discarded", aside)]);
    document("ksmith restore --json", json!({ "anyOf": [restored, discarded] }))
}

fn config_check() -> Value {
    let fault = plains(
        &[
            ("line", "integer", "Line of the fault, from 1."),
            ("column", "integer", "Column of the fault in characters, from 1."),
            ("message", "string", "The fault in a sentence."),
        ],
        [],
    );
    let keys = [
        ("path", "string", "Path of the configuration."),
        ("is_there", "boolean", "Whether it is there. Without it the defaults hold."),
        ("policy", "string?", "Policy that it chooses, unless there are faults."),
    ];
    let faults = list("Faults in the order of the file. With one or more the exit code is 2.", fault);
    document("ksmith config check --json", plains(&keys, [("faults", faults)]))
}
