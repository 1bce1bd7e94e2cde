use std::collections::BTreeSet;

use ksmith_core::decide::domains::{DomainMode, DomainsReport};
use ksmith_core::field::{FigureDescription, FigureType};
use ksmith_core::figures::{
    BALANCE, BALANCED_GUEST, CONTROLLER, DOMAIN, EFFICIENCY, GUEST, HISTORY, HOST, ModelFigure, POOL, SKETCH,
};
use ksmith_core::guest::{self, Guest, GuestKind};
use ksmith_core::kernel::{FIELDS, Meminfo};
use ksmith_core::model::{DaemonStatus, GuestsReport, StatusReport};
use ksmith_core::reading::Reading;
use ksmith_core::sample::{ProcessId, Sample};

use super::*;

fn guest(name: &str, pid: u32, saved_bytes: u64) -> Guest {
    Guest {
        uuid: Some("8c4f".to_owned()),
        is_verified: true,
        kind: GuestKind::new("qemu"),
        mergeable: Some(true),
        figures: guest::GuestMemoryFigures {
            saved_bytes,
            profit_bytes: -7,
            ..guest::GuestMemoryFigures::default()
        },
        ..Guest::plain(name, ProcessId { pid, start_ticks: 1 })
    }
}

fn report(guests: Vec<Guest>) -> GuestsReport {
    let report = GuestsReport::new(&Sample { page_size: 4096, ..Sample::default() }, guests, 0);
    GuestsReport { is_unknown: false, ..report }
}

fn status() -> StatusReport {
    let mut sample = Sample { page_size: 4096, ..Sample::default() };
    sample.ksm.run = Reading::Value(1);
    sample.ksm.pages_sharing = Reading::Value(512);
    sample.ksm.full_scans = Reading::Value(9);
    sample.ksm.sleep_millisecs = Reading::Value(20);
    sample.ksm.general_profit = Reading::Value(-4096);
    sample.ksm.smart_scan = Reading::Denied;
    sample.host.memory =
        Reading::Value(Meminfo { total: Some(1 << 30), available: Some(1 << 20), ..Meminfo::default() });
    let daemon = DaemonStatus {
        pid: 7,
        policy: "profit".to_owned(),
        state: "burst".to_owned(),
        reason: "a guest is new".to_owned(),
        reason_detail: None,
        cpu_seconds: 0.5,
        rss_bytes: 9,
        uptime_seconds: 60.0,
        max_cpu: Some(0.2),
        paused_until: Some(1_795_467_690.0),
    };
    StatusReport {
        sample,
        ksmd_cpu_percent: Some(70.0),
        daemon: Some(daemon),
        domains: None,
        balance: None,
        history: None,
        sketch: None,
        committed_bytes: Some(3 << 30),
    }
}

fn text_of(
    status: Option<&StatusReport>,
    guests: Option<&GuestsReport>,
    most_guests: usize,
    format: MetricsFormat,
) -> String {
    let is_up = status.is_some_and(|status| status.daemon.is_some());
    text(&MetricsSnapshot { is_up, status, guests, balance: None, most_guests }, format)
}

/// Each table with the prefix of its metrics.
fn tables() -> Vec<(&'static str, &'static [&'static str], Vec<FigureDescription>)> {
    fn fields<M>(table: &'static [ModelFigure<M>]) -> Vec<FigureDescription> {
        table.iter().map(|figure| figure.field).collect()
    }
    vec![
        ("", &[], FIELDS.to_vec()),
        ("", &[], fields(HOST)),
        ("", &[], fields(EFFICIENCY)),
        ("guest_", &[], fields(GUEST)),
        ("domain_", &[], fields(DOMAIN)),
        ("controller_", &["limit"], fields(CONTROLLER)),
        ("balance_", &["pool"], fields(POOL)),
        ("balance_", &[], fields(BALANCE)),
        ("history_", &[], fields(HISTORY)),
        ("sketch_", &[], fields(SKETCH)),
        ("balanced_guest_", &[], fields(BALANCED_GUEST)),
    ]
}

#[test]
fn each_number_in_the_table_of_figures_has_one_metric_of_its_own() {
    let mut names = BTreeSet::new();
    for (prefix, own, fields) in tables() {
        for field in fields {
            let naming = name::derive_metric(prefix, own, &field);
            assert_eq!(naming.is_some(), field.holds != FigureType::Text, "{}", field.name);
            let Some(naming) = naming else { continue };
            let unit = naming.unit.map(|unit| format!("_{unit}")).unwrap_or_default();
            let name = format!("{}{unit}", naming.stem);
            let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            assert!(name.chars().all(is_plain) && !name.contains("__"), "{name}");
            for old in ["_percent", "_millisecs", "_bytes_bytes", "_seconds_seconds", "_total"] {
                assert!(!name.ends_with(old), "{name}");
            }
            assert!(names.insert(name.clone()), "{name} is there twice");
        }
    }
    for name in ["ksmith_pool_size_bytes", "ksmith_limit_cpu_ratio", "ksmith_balanced_guest_inside_available_bytes"]
    {
        assert!(names.contains(name), "{name}");
    }
}

/// Names stay within a major version (docs/reference/stability.md). Only new ones are added to the file.
#[test]
fn stable_metrics_are_there() {
    let domains = DomainsReport {
        mode: DomainMode::Report,
        domains: Vec::new(),
        may_share_across: false,
        meaning: String::new(),
    };
    let status = StatusReport { domains: Some(domains), ..status() };
    let mut labelled = guest("db", 1, 5);
    labelled.labels = [("role".into(), "store".into())].into();
    let text = text_of(Some(&status), Some(&report(vec![labelled])), 10, MetricsFormat::Prometheus);
    let shown = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let mut names: BTreeSet<String> = shown.map(str::to_owned).collect();
    for (prefix, own, fields) in tables() {
        names.extend(fields.iter().filter_map(|field| {
            let naming = name::derive_metric(prefix, own, field)?;
            let unit = naming.unit.map(|unit| format!("_{unit}")).unwrap_or_default();
            let end = if naming.is_counter { "_total" } else { "" };
            Some(format!("{}{unit}{end}", naming.stem))
        }));
    }
    let promised = include_str!("../../../ksmith/tests/stable/metrics.txt");
    let promised: BTreeSet<String> = promised.lines().map(str::to_owned).collect();
    let gone: Vec<&String> = promised.difference(&names).collect();
    assert!(gone.is_empty(), "these are promised, and gone: {gone:#?}");
    let new: Vec<&String> = names.difference(&promised).collect();
    assert!(new.is_empty(), "add these to ksmith/tests/stable/metrics.txt: {new:#?}");
}

#[test]
fn figures_are_in_base_units_with_the_names_of_the_contract() {
    let text = text_of(Some(&status()), Some(&report(vec![guest("web", 1, 5)])), 10, MetricsFormat::OpenMetrics);
    for line in [
        "# TYPE ksmith_saved_bytes gauge",
        "# UNIT ksmith_saved_bytes bytes",
        "ksmith_saved_bytes 2097152",
        "ksmith_pages_sharing 512",
        "# TYPE ksmith_full_scans counter",
        "ksmith_full_scans_total 9",
        "ksmith_sleep_seconds 0.02",
        "# UNIT ksmith_sleep_seconds seconds",
        "ksmith_general_profit_bytes -4096",
        "ksmith_ksmd_cpu_ratio 0.7",
        "# UNIT ksmith_ksmd_cpu_ratio ratio",
        "ksmith_limit_cpu_ratio 0.2",
        "ksmith_headroom_bytes 1048576",
        "ksmith_controller_cpu_seconds_total 0.5",
        "ksmith_policy_info{policy=\"profit\",state=\"burst\"} 1",
        "ksmith_source_healthy{source=\"/sys/kernel/mm/ksm\"} 0",
        "ksmith_source_healthy{source=\"/proc/meminfo\"} 1",
        "ksmith_source_healthy{source=\"guests\"} 1",
        "ksmith_source_healthy{source=\"balance\"} 0",
        "ksmith_up 1",
        "ksmith_guests 1",
        "ksmith_guest_saved_bytes{guest=\"web\",uuid=\"8c4f\",kind=\"qemu\",domain=\"\",pid=\"1\"} 5",
        "ksmith_guest_profit_bytes{guest=\"web\",uuid=\"8c4f\",kind=\"qemu\",domain=\"\",pid=\"1\"} -7",
        "ksmith_guest_mergeable{guest=\"web\",uuid=\"8c4f\",kind=\"qemu\",domain=\"\",pid=\"1\"} 1",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
    assert!(!text.contains("ksmith_smart_scan"), "what is unknown is absent, and not 0");
    assert!(text.ends_with("# EOF\n"));
}

#[test]
fn prometheus_text_has_neither_units_nor_an_end() {
    let text = text_of(Some(&status()), None, 10, MetricsFormat::Prometheus);
    for line in [
        "# TYPE ksmith_full_scans_total counter",
        "ksmith_full_scans_total 9",
        "# TYPE ksmith_policy_info gauge",
        "# HELP ksmith_saved_bytes Memory that is not needed because pages are merged, or zeros of split huge pages freed.",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
    assert!(!text.contains("# UNIT") && !text.contains("# EOF") && !text.contains(" info\n"));
}

#[test]
fn of_many_guests_those_that_save_most_are_shown_and_the_others_counted() {
    let guests = (0..5000).map(|at| guest(&format!("g{at}"), at + 1, u64::from(at))).collect();
    let text = text_of(None, Some(&report(guests)), 1000, MetricsFormat::OpenMetrics);
    let shown = text.lines().filter(|line| line.starts_with("ksmith_guest_saved_bytes{")).count();
    assert_eq!(shown, 1000);
    assert!(
        text.contains("guest=\"g4999\"") && text.contains("guest=\"g4000\"") && !text.contains("guest=\"g3999\"")
    );
    assert!(text.contains("ksmith_guests 5000\n") && text.contains("ksmith_guests_not_shown 4000\n"));
}

#[test]
fn a_namesake_that_starts_changes_no_labels() {
    let text = text_of(
        None,
        Some(&report(vec![guest("web", 1, 5), guest("web", 2, 6), guest("db", 3, 7)])),
        9,
        MetricsFormat::OpenMetrics,
    );
    let samples: Vec<&str> = text.lines().filter(|line| line.starts_with("ksmith_guest_saved_bytes{")).collect();
    assert_eq!(samples.iter().collect::<BTreeSet<_>>().len(), 3);
    let of =
        |name: &str| samples.iter().filter(|line| line.contains(&format!("guest=\"{name}\""))).collect::<Vec<_>>();
    assert!(samples.iter().all(|line| line.contains("pid=\"")), "{samples:?}");
    let alone = text_of(None, Some(&report(vec![guest("web", 1, 5)])), 9, MetricsFormat::OpenMetrics);
    assert!(of("web").iter().any(|line| alone.contains(**line)), "{alone}");
}

#[test]
fn a_guests_name_makes_no_line_and_no_label_of_its_own() {
    let hostile = format!("a\"}} 1\nksmith_up 0\\\u{1b}[2J{}", "x".repeat(10_000));
    let text = text_of(None, Some(&report(vec![guest(&hostile, 1, 5)])), 9, MetricsFormat::Prometheus);
    assert_eq!(text.lines().filter(|line| line.starts_with("ksmith_up ")).count(), 1, "{text}");
    let longest = text.lines().map(str::len).max().unwrap();
    assert!(longest < 600 && !text.contains('\u{1b}'), "{longest}");
    let sample = text.lines().find(|line| line.starts_with("ksmith_guest_saved_bytes")).unwrap();
    assert!(sample.contains("guest=\"a\\\"} 1\\\\n") && sample.ends_with(" 5"), "{sample}");
}

#[test]
fn each_label_of_a_guest_is_an_info_metric_with_the_guests_own_labels() {
    let mut labelled = guest("db-1", 7, 5);
    labelled.labels = [("role", "store"), ("tier", "gold")].map(|(name, value)| (name.into(), value.into())).into();
    let text = text_of(None, Some(&report(vec![labelled, guest("web", 8, 1)])), 9, MetricsFormat::OpenMetrics);
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("ksmith_guest_label_info{")).collect();
    let identity = "guest=\"db-1\",uuid=\"8c4f\",kind=\"qemu\",domain=\"\",pid=\"7\"";
    let expected = [("role", "store"), ("tier", "gold")]
        .map(|(name, value)| format!("ksmith_guest_label_info{{{identity},label=\"{name}\",value=\"{value}\"}} 1"));
    assert_eq!(lines, expected);
}
