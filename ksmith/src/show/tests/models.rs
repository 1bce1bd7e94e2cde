//! Models with every part filled in.

use ksmith_core::balance::{GuestClass, GuestView, KsmStep, PoolView, ReportedFigures};
use ksmith_core::decide::domains::{DomainFigures, DomainMode, DomainsReport};
use ksmith_core::guest::{Guest, GuestKind, GuestMemoryFigures};
use ksmith_core::kernel::{KsmStat, Meminfo, Vmstat};
use ksmith_core::model::{
    BalanceReport, DaemonStatus, GuestRow, GuestsReport, HistoryStatus, ResizeRecord, SketchStatus, StatusReport,
};
use ksmith_core::reading::Reading;
use ksmith_core::sample::{ProcessId, ProcessSample, Sample};
use ksmith_record::HistoryReport;
use serde_json::json;

pub const MIB: u64 = 1 << 20;

fn guest(name: &str, pid: u32, user: &str, saved_mib: u64, profit_mib: i64) -> Guest {
    Guest {
        is_verified: true,
        kind: GuestKind::new("qemu"),
        program: "qemu".to_owned(),
        memory_bytes: Some(1 << 30),
        user: Some(user.to_owned()),
        uid: Some(1000),
        mergeable: Some(true),
        figures: GuestMemoryFigures {
            rss_bytes: Some(MIB),
            saved_bytes: saved_mib << 20,
            profit_bytes: profit_mib << 20,
            ..GuestMemoryFigures::default()
        },
        errors: vec!["it hangs".to_owned()],
        ..Guest::plain(name, ProcessId { pid, start_ticks: 1 })
    }
}

pub fn guests() -> GuestsReport {
    let mut report = GuestsReport::new(
        &Sample { page_size: 4096, ..Sample::default() },
        vec![guest("b", 1, "x", 1, 1), guest("a", 2, "x", 3, -2), guest("c", 3, "y", 2, 5)],
        0,
    );
    report.efficiency.sharing_per_shared = Some(2.5);
    report.is_unknown = false;
    report
}

pub fn balance() -> BalanceReport {
    let class = || GuestClass { name: "gold".to_owned(), weight: 100 };
    let guest = |name: &str, to: Option<u64>| GuestRow {
        guest: GuestView {
            name: name.to_owned(),
            given_bytes: 200 * MIB,
            resident_bytes: 190 * MIB,
            inside: ReportedFigures { available_bytes: Some(90 * MIB), ..ReportedFigures::default() },
            held: to == Some(0),
            giving_for: to.map(|_| std::time::Duration::from_millis(1500)),
            trouble: to.is_none().then(|| "it does not answer".to_owned()),
            ..GuestView::whole(&format!("uml:{name}:7"), class(), 256 * MIB)
        },
        way: Some("mconsole".to_owned()),
        why_not: None,
        least_bytes: 126 * MIB,
        to_bytes: to,
        reason: to.map(|_| "90 MiB to spare".to_owned()),
    };
    BalanceReport {
        is_enabled: false,
        policy: "no-swap".to_owned(),
        state: "short".to_owned(),
        reason: "60 MiB of 1.00 GiB available".to_owned(),
        pool_name: "host".to_owned(),
        pool: PoolView { size_bytes: 1024 * MIB, available_bytes: 60 * MIB, ..PoolView::default() },
        low_bytes: 102 * MIB,
        high_bytes: 204 * MIB,
        exposed: Some("they would need more".to_owned()),
        guests: vec![guest("a", Some(188 * MIB)), guest("b", None), guest("c", Some(0))],
        merging: vec![
            (KsmStep::RefuseSwitches, "exposed".to_owned()),
            (KsmStep::Unmerge { key: "uml:a:7".to_owned() }, "exposed".to_owned()),
        ],
        recent: vec![ResizeRecord {
            key: "uml:a:7".to_owned(),
            name: "a".to_owned(),
            seconds_ago: 3.2,
            from_bytes: 256 * MIB,
            to_bytes: 200 * MIB,
            got_bytes: Some(204 * MIB),
            error: None,
            reason: "short".to_owned(),
        }],
    }
}

/// Returns a host with readings of every outcome.
pub fn status() -> StatusReport {
    let mut sample = Sample { page_size: 4096, hidden_processes: 1, ..Sample::default() };
    sample.ksm.run = Reading::Value(1);
    sample.ksm.pages_shared = Reading::Value(10);
    sample.ksm.pages_sharing = Reading::Value(512);
    sample.ksm.general_profit = Reading::Value(-4096);
    sample.ksm.smart_scan = Reading::Denied;
    sample.ksm.full_scans = Reading::from(ksmith_core::kernel::number("many"));
    sample.host.memory =
        Reading::Value(Meminfo { total: Some(1 << 30), available: Some(MIB), ..Meminfo::default() });
    sample.host.vmstat = Reading::Value(Vmstat { cow_ksm: Some(7), ..Vmstat::default() });
    sample.processes = vec![ProcessSample {
        rss_bytes: Some(8 * MIB),
        ksm: KsmStat { merging_pages: Some(522), rmap_items: Some(522), ..KsmStat::default() },
        ..ProcessSample::new(ProcessId { pid: 42, start_ticks: 1 }, "web".into(), true)
    }];
    let domain = DomainFigures {
        domain: Some("one".to_owned()),
        guests: 1,
        mergeable_guests: 1,
        merged_bytes: 522 * 4096,
        saved_bytes: 512 * 4096,
    };
    StatusReport {
        sample: Sample { folded_bytes: Some(64 * MIB), ..sample },
        ksmd_cpu_percent: Some(2.5),
        daemon: Some(DaemonStatus {
            pid: 7,
            policy: "profit".to_owned(),
            state: "quiet".to_owned(),
            reason: "no guest is new".to_owned(),
            reason_detail: Some("2 processes were looked at".to_owned()),
            cpu_seconds: 0.5,
            rss_bytes: 9 * MIB,
            uptime_seconds: 60.0,
            max_cpu: Some(0.2),
            paused_until: Some(1_795_467_690.0),
        }),
        committed_bytes: Some(6 << 30),
        domains: Some(DomainsReport {
            mode: DomainMode::One,
            domains: vec![domain],
            may_share_across: false,
            meaning: "one domain alone may merge".to_owned(),
        }),
        balance: Some(balance().status()),
        history: Some(HistoryStatus {
            path: "/var/lib/ksmith/history/history.db".to_owned(),
            bytes: MIB,
            recorded: 60,
            lost: 2,
            problem: Some("/var/lib/ksmith/history/history.db: database or disk is full".to_owned()),
        }),
        sketch: Some(SketchStatus {
            path: "/var/lib/ksmith/sketch/one.parquet".to_owned(),
            bytes: 48 << 10,
            guests: 3,
            missing: 1,
            written: 7,
            cpu_seconds: 1.5,
            memory_bytes: 192 << 10,
            problem: Some("can't write the sketch file: no space left on device".to_owned()),
        }),
    }
}

pub fn history() -> HistoryReport {
    let report = json!({
        "since": 1_795_467_600.0, "until": 1_795_474_800.0, "resolution_seconds": 60.0,
        "guest": null,
        "columns": ["time", "saved_bytes", "profit_bytes", "ksmd_cpu_percent"],
        "rows": [[1_795_467_600.0, 8 * MIB, -4096, 2.5], [1_795_467_660.5, null, null, null]],
        "decisions": [{"time": 1_795_467_601.0, "policy": "profit", "state": "burst", "reason": "a new guest",
            "reason_detail": "every page, up to 20 % of a CPU", "settings": "run 0 -> 1"}],
        "events": [{"time": 1_795_467_600.0, "kind": "daemon_started", "text": "the daemon started"}],
        "guests": [{"id": "42:1", "name": "web", "uuid": null, "kind": "qemu", "domain": "one", "user": "alice",
            "first": 1_795_467_600.0, "last": null}],
    });
    serde_json::from_value(report).unwrap()
}
