//! Each document fits its schema, and has no key that the schema does not describe.

use ksmith_core::decide::DecisionReason;
use ksmith_core::figures::{self, GUEST};
use ksmith_core::knobs::{Knob, KnobSettings};
use ksmith_core::model::{GuestsReport, StatusReport};
use ksmith_core::reading::Reading;
use ksmith_core::sketch::MergeAdvice;
use ksmith_core::trial::BalancingRecord;
use ksmith_host::estimate::{
    EstimateReport, GuestReport, HugePagesReport, JobAdvice, MatrixReport, RunningReport, SkippedReport,
};
use ksmith_host::job::{RankFigures, RankReport, RankedReport};
use ksmith_lab::GuestPages;
use ksmith_lab::measure::{AttainableStep, RunCounts, RunMeasures, RunSeries, SeriesPoint, Spread};
use ksmith_lab::results::{CompetitorResults, LabResults, MeasuredHost, RunResults, ScenarioResults};
use ksmith_service::config::parse_table;
use ksmith_service::control::ResizeReply;
use serde_json::{Value, json};

use super::models;
use crate::show::guests::GuestOrder;
use crate::show::orders::{HoldReply, MergeReply, PauseReply, PlannedScan, planned_turn};
use crate::show::schemas::{SCHEMAS, command_schema};
use crate::show::settings::EffectiveConfig;
use crate::show::{balance, estimate, guests, status};

/// Returns the same schema, refusing keys that it does not describe.
fn strict(mut schema: Value) -> Value {
    match &mut schema {
        Value::Object(object) => {
            let is_object = object.get("type") == Some(&json!("object"));
            if is_object && object.contains_key("properties") {
                object.insert("additionalProperties".to_owned(), json!(false));
            }
            object.values_mut().for_each(|value| *value = strict(value.take()));
        }
        Value::Array(items) => items.iter_mut().for_each(|value| *value = strict(value.take())),
        _ => {}
    }
    schema
}

fn faults(command: &str, document: &Value) -> Vec<String> {
    let schema = strict(command_schema(command).expect(command));
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    validator.iter_errors(document).map(|fault| format!("{}: {fault}", fault.instance_path())).collect()
}

fn assert_fits(command: &str, document: &Value) {
    assert_eq!(faults(command, document), Vec::<String>::new(), "{command}: {document:#}");
}

#[test]
fn every_schema_is_one() {
    for (command, schema) in SCHEMAS {
        let schema = schema();
        assert!(jsonschema::meta::is_valid(&schema), "{command}");
        assert_eq!(schema["title"], format!("ksmith {command} --json"));
    }
}

#[test]
fn the_status_fits_its_schema() {
    assert_fits("status", &status::json(&models::status()));
    assert_fits("status", &status::json(&StatusReport::default()));
    let mut odd = models::status();
    odd.sample.ksm.pages_sharing = Reading::Value(u64::MAX);
    odd.sample.ksm.ksm_zero_pages = Reading::Value(i64::MIN);
    assert_fits("status", &status::json(&odd));
}

#[test]
fn guests_fit_their_schema_in_every_order() {
    let empty = GuestsReport { guests: Vec::new(), ..models::guests() };
    let mut shared = models::guests();
    shared.sharing = Some(ksmith_core::decide::domains::CrossDomainSharing::default());
    for report in [models::guests(), empty, shared] {
        for sort in GUEST {
            for by in figures::labels().map(Some).chain([None]) {
                assert_fits("guests", &guests::json(&report, &GuestOrder::new(by, sort)));
            }
        }
    }
}

#[test]
fn balance_fits_its_schema() {
    assert_fits("balance", &balance::json(&models::balance()));
}

#[test]
fn the_history_fits_its_schema() {
    let mut report = models::history();
    assert_fits("history", &json!(report));
    report.guest = report.guests.pop();
    report.decisions.clear();
    assert_fits("history", &json!(report));
}

#[test]
fn what_is_done_to_guests_fits_its_schema() {
    let merged = MergeReply {
        guest: "web",
        pid: 7,
        merge: "off",
        backends: vec!["pc.ram"],
        unmerged_bytes: 4096,
        left_bytes: 0,
        permanent_changed: None,
        dry_run: false,
    };
    assert_fits("merge", &json!(merged));
    assert_fits("merge", &json!(MergeReply { permanent_changed: Some(true), ..merged }));
    let message = "web is left alone from now on";
    assert_fits("hold", &json!(HoldReply { guest: "web", held: true, message, dry_run: false }));
    for (seconds, paused) in [(Some(90.0), true), (None, true), (None, false)] {
        let command = if paused { "pause" } else { "resume" };
        assert_fits(command, &json!(PauseReply { paused, seconds, message }));
    }
    let resized = ResizeReply { guest: "web".to_owned(), from_bytes: 4, wanted_bytes: 2, given_bytes: 3 };
    assert_fits("give", &json!(resized));
    assert_fits("take", &json!(resized));
}

#[test]
fn what_is_planned_fits_its_schema() {
    let changes = vec!["run=1".to_owned()];
    assert_fits("scan", &json!(PlannedScan { dry_run: true, passes: 2, by: "the daemon", changes }));
    let knobs = KnobSettings::none().with(Knob::PagesToScan, 100).with(Knob::AdvisorMode, 1);
    assert_fits(
        "daemon",
        &planned_turn(&DecisionReason::new("parks", "there is nothing").with_detail("0 pages"), &knobs),
    );
    assert_fits("daemon", &planned_turn(&DecisionReason::new("parks", "it waits"), &KnobSettings::none()));
    assert_fits("restore", &json!({ "discarded": null }));
}

#[test]
fn the_configuration_in_force_fits_its_schema() {
    for text in ["", "[[balance.rule]]\nname = \"a\"\nfloor_mib = \"1G\"\n[balance.classes]\na = 1"] {
        let settings = EffectiveConfig::new(&parse_table(text).unwrap()).unwrap().json();
        assert_fits("config show", &json!({ "path": "here", "is_there": true, "settings": settings }));
    }
}

/// An estimate with all figures.
fn estimate_report() -> EstimateReport {
    let guest = GuestReport {
        name: "web".to_owned(),
        pid: Some(7),
        pids: vec![7],
        present_bytes: 4096,
        zero_bytes: 4096,
        foldable_bytes: 4096,
        equal_within_bytes: 0,
        equal_across_bytes: 0,
        merged_bytes: 0,
        changing_bytes: None,
        ineligible: [("huge", 1)].into(),
        is_mergeable: true,
        expected_saved_bytes: 4096,
        low_bytes: 0,
        high_bytes: 8192,
        metadata_bytes: 64,
        net_profit_bytes: -64,
        ksmd_cpu_seconds: 0.5,
        huge_pages: None,
    };
    let huge_pages = HugePagesReport { huge_bytes: 3, split_bytes: 2, saved_bytes: 1, split_for_saved: Some(2.0) };
    EstimateReport {
        mode: "sketch",
        rate: None,
        huge_pages: Some(huge_pages),
        running: Some(RunningReport {
            processes: 4,
            cpus: 2,
            spare_cpus: 0,
            delay_seconds: 0.5,
            advice: JobAdvice::FoldAndMerge,
        }),
        within_nodes_saved_bytes: Some(1024),
        guests: vec![guest.clone()],
        total: GuestReport { pid: None, changing_bytes: Some(1), huge_pages: Some(huge_pages), ..guest },
        read_bytes: 4096,
        seconds: 1.0,
        cpu_seconds: 0.5,
        sketch_bytes: Some(1),
        advice: MergeAdvice::Yes,
        ksmd_cpu_seconds_per_day: 1.0,
        verdict: "it pays".to_owned(),
        matrix: Some(MatrixReport { guests: vec!["web".to_owned()], shared_bytes: vec![vec![0]] }),
        skipped: vec![SkippedReport { pid: 8, reason: "it has ended".to_owned() }],
    }
}

#[test]
fn an_estimate_fits_its_schema() {
    let whole = estimate_report();
    assert_fits("estimate", &json!(whole));
    assert_fits(
        "estimate",
        &json!(EstimateReport {
            rate: Some(0.01),
            sketch_bytes: None,
            huge_pages: None,
            running: None,
            within_nodes_saved_bytes: None,
            matrix: None,
            ..whole
        }),
    );
}

#[test]
fn an_estimate_tells_what_merging_within_nodes_would_save_where_there_are_several() {
    let mut report = estimate_report();
    let line = "Merging within NUMA nodes alone (merge_across_nodes=0) would save 1.00 KiB of the 4.00 KiB.\n";
    let text = estimate::text(&report, None).text().to_owned();
    assert!(text.contains(line), "{text}");
    report.within_nodes_saved_bytes = None;
    assert!(!estimate::text(&report, None).text().contains("NUMA"));
}

#[test]
fn results_of_the_lab_fit_their_schema() {
    let point = |at, saved_bytes| SeriesPoint { at, saved_bytes, ..SeriesPoint::default() };
    let attainable = vec![AttainableStep { at: 0.0, bytes: 4096 }];
    let series = RunSeries::new(vec![point(0.0, 0), point(1.0, 4096)], attainable);
    let run = |balance| {
        let measures = RunMeasures::from_series(&series, &RunCounts { balance, ..RunCounts::default() });
        RunResults { measures, series: series.clone() }
    };
    let competitor = CompetitorResults {
        name: "profit".to_owned(),
        summary: [("gib_seconds", Spread { median: Some(1.0), min: None, max: None })].into(),
        share_of_reference: None,
        cpu_of_reference: Some(0.5),
        seconds_to_90_of_reference: None,
        work_ratio: None,
        rewrite_ratio: None,
        runs: vec![run(None), run(Some(BalancingRecord::default()))],
    };
    let scenario = ScenarioResults {
        name: "burst".to_owned(),
        about: "a burst".to_owned(),
        pages: Some(GuestPages::Huge),
        seconds: 1.0,
        is_attainable_known: true,
        attainable_bytes: 4096,
        competitors: vec![competitor],
    };
    let host = MeasuredHost { kernel: "6.18".to_owned(), cpus: 2 };
    let results = LabResults { ksmith: "0.1.0", host, form: "short", repeat: 1, scenarios: vec![scenario] };
    assert_fits("lab run", &json!(results));
}

#[test]
fn the_report_of_a_jobs_ranks_fits_its_schema() {
    let row = RankReport {
        job: "12.0".to_owned(),
        rank: 0,
        ranks: 2,
        host: "node1".to_owned(),
        figures: RankFigures {
            exit_code: 0,
            wall_seconds: 1.5,
            peak_pss_bytes: 4096,
            mean_pss_bytes: 4096,
            peak_saved_bytes: 0,
            mean_saved_bytes: 0,
            folded_bytes: 0,
            ksmd_cpu_seconds: None,
            copy_seconds: 0.0,
        },
    };
    let mut other = RankReport { rank: 1, ..row.clone() };
    other.figures.ksmd_cpu_seconds = Some(0.5);
    assert_fits("job report", &json!([RankedReport::from_rows(vec![row, other]).unwrap()]));
}

#[test]
fn a_document_with_another_key_or_type_does_not_fit() {
    let whole = status::json(&models::status());
    let mut more = whole.clone();
    more["surprise"] = json!(1);
    let mut other = whole.clone();
    other["pages_shared"] = json!("many");
    let mut less = whole;
    less.as_object_mut().unwrap().remove("run");
    for document in [more, other, less] {
        assert_eq!(faults("status", &document).len(), 1, "{document:#}");
    }
}

#[test]
fn the_reference_page_is_that_of_the_table() {
    let page = include_str!("../../../../docs/reference/figures.md");
    let renewal = "cargo run -p ksmith -- schema --figures > docs/reference/figures.md";
    assert!(page == figures::reference(), "docs/reference/figures.md is out of date: {renewal}");
}

#[test]
fn the_page_of_the_historys_tables_is_that_of_the_file() {
    let page = include_str!("../../../../docs/reference/history.md");
    let renewal = "cargo run -p ksmith -- schema --history > docs/reference/history.md";
    assert!(page == ksmith_record::reference(), "docs/reference/history.md is out of date: {renewal}");
}
