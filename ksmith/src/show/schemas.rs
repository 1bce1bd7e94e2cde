//! The JSON Schema of what each command prints with `--json`.

use ksmith_core::diagnose::Finding;
use ksmith_core::figures::schema::{document, list, map, object, optional, plain, plains, texts};
use ksmith_host::doctor::DoctorReport;
use ksmith_host::estimate::EstimateReport;
use ksmith_host::job::RankedReport;
use ksmith_lab::calibrate::{AccessCost, WorkCost};
use ksmith_lab::demo::DemoReport;
use ksmith_lab::results::{LabResults, MeasuredHost};
use ksmith_record::HistoryReport;
use ksmith_service::balance::LackingGuest;
use ksmith_service::control::ResizeReply;
use ksmith_sketch::SketchSummary;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use serde_json::{Value, json};

use super::fold::FoldCommandReport;
use super::orders::{HoldReply, MergeReply, PauseReply, PlannedScan};
use super::overview::HostOverview;
use super::{balance, controllers, guests, settings as configuration, status};

/// A schema by its command.
pub type Schema = (&'static str, fn() -> Value);

/// Every command that prints JSON, with its schema.
pub const SCHEMAS: &[Schema] = &[
    ("overview", || typed::<HostOverview>("ksmith overview --json")),
    ("status", status::schema),
    ("guests", guests::schema),
    ("balance", balance::schema),
    ("history", || typed::<HistoryReport>("ksmith history --json")),
    ("report", report),
    ("doctor", doctor),
    ("estimate", || typed::<EstimateReport>("ksmith estimate --json")),
    ("fold", || typed::<FoldCommandReport>("ksmith fold --json")),
    ("sketch", || typed::<SketchSummary>("ksmith sketch --json")),
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
    ("give", || typed::<ResizeReply>("ksmith give --json")),
    ("take", || typed::<ResizeReply>("ksmith take --json")),
    ("unmerge", unmerge),
    ("optin", optin),
    ("restore", restore),
    ("config check", config_check),
    ("config show", configuration::schema),
    ("lab list", lab_list),
    ("lab run", || typed::<LabResults>("ksmith lab run --json")),
    ("sim", || typed::<LabResults>("ksmith sim --json")),
    ("sim calibrate", calibration),
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

const DRY_RUN: (&str, &str, &str) = ("dry_run", "boolean", "True if nothing was done.");

fn doctor() -> Value {
    let findings = list("Findings of the host, the worst first.", schema_of::<Finding>());
    let host = object([], [("findings", findings), ("controllers", controllers::schema())]);
    let processes = object([], [("processes", list("The processes named.", schema_of::<DoctorReport>()))]);
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
        ("done", plain("boolean", "True if it was done.")),
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

fn optin() -> Value {
    let keys = [
        ("unit", "string", "The systemd unit."),
        ("drop_in", "string", "Path of the drop-in."),
        ("memory_ksm", "boolean", "True if the unit is to have MemoryKSM=yes."),
        ("changed", "boolean", "True if the drop-in changed."),
        DRY_RUN,
    ];
    document("ksmith optin --json", plains(&keys, []))
}

fn restore() -> Value {
    let restored = object(
        [],
        [
            ("changes", texts("Settings that were restored.")),
            ("notes", texts("What else was done, one sentence each.")),
            ("left", texts("Settings that have to wait, since they need everything unmerged.")),
            ("failed", texts("What else could not be restored, and why.")),
            (
                "lacking",
                list("Guests that still have less memory than at their start.", schema_of::<LackingGuest>()),
            ),
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
        ("is_there", "boolean", "True if it is there. Without it the defaults hold."),
        ("policy", "string?", "Policy that it chooses, unless there are faults."),
    ];
    let faults = list("Faults in the order of the file. With one or more the exit code is 2.", fault);
    document("ksmith config check --json", plains(&keys, [("faults", faults)]))
}

fn lab_list() -> Value {
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

fn calibration() -> Value {
    let keys = [
        ("rounds", "integer", "Rounds of the measurement."),
        ("pages", "integer", "Pages of each guest that was measured."),
    ];
    let costs =
        map("Costs in nanoseconds by kind of work, as the file of costs has them.", json!({ "type": "integer" }));
    let parts = [
        ("host", schema_of::<MeasuredHost>()),
        ("costs", costs),
        ("measured", list("What was measured.", schema_of::<WorkCost>())),
        ("accesses", list("Accesses at random, in huge pages and in small ones.", schema_of::<AccessCost>())),
        (
            "split_loss_cpus",
            json!({ "type": ["array", "null"], "items": { "type": "number" }, "description": "The key of [huge_pages] for this host." }),
        ),
    ];
    document("ksmith sim calibrate --json", plains(&keys, parts))
}
