//! The findings of healthy and faulty hosts.

use super::*;
use crate::kernel::Meminfo;
use crate::lease;
use crate::other_controllers::name::{ADVISOR, UKSM};
use crate::other_controllers::{BootState, ServiceState, row};
use crate::sample::{ProcessId, ProcessSample};

fn healthy() -> Sample {
    let mut sample = Sample { page_size: 4096, ..Sample::default() };
    sample.ksm.run = Reading::Value(1);
    sample.ksm.pages_to_scan = Reading::Value(1000);
    sample.ksm.sleep_millisecs = Reading::Value(20);
    sample.ksm.smart_scan = Reading::Value(0);
    sample.ksm.pages_sharing = Reading::Value(1000);
    sample.host.memory =
        Reading::Value(Meminfo { total: Some(4 << 30), available: Some(1 << 30), ..Meminfo::default() });
    sample.processes.push(ProcessSample {
        rss_bytes: Some(1 << 20),
        ..ProcessSample::new(ProcessId { pid: 1, start_ticks: 1 }, "guest".into(), true)
    });
    sample
}

fn codes(sample: &Sample, circumstances: &HostCircumstances) -> Vec<&'static str> {
    diagnose(sample, circumstances).into_iter().map(|finding| finding.code).collect()
}

/// Returns the codes of the findings after `change` is made to a healthy host.
fn found(change: impl FnOnce(&mut Sample, &mut HostCircumstances)) -> Vec<&'static str> {
    let (mut sample, mut circumstances) = (healthy(), HostCircumstances::default());
    change(&mut sample, &mut circumstances);
    codes(&sample, &circumstances)
}

/// A controller that runs, or one that only starts at boot.
fn controller(name: &str, runs: bool) -> FoundController {
    let states = vec![ServiceState { service: "x.service", is_active: runs, at_boot: BootState::Enabled }];
    FoundController {
        controller: row(name).unwrap(),
        pids: Vec::new(),
        profile: None,
        states,
        files: Vec::new(),
        is_on: runs,
    }
}

#[test]
fn another_controller_is_told_with_what_it_does_and_both_ways() {
    let others = vec![FoundController { pids: vec![812], ..controller("ksmtuned", true) }];
    let findings = diagnose(&healthy(), &HostCircumstances { others, ..HostCircumstances::default() });
    for part in ["ksmtuned (pid 812)", "pages_to_scan, sleep_millisecs", "it runs now, and starts at boot"] {
        assert!(findings[0].what.contains(part), "{part}: {}", findings[0].what);
    }
    for part in [
        "hand over: `systemctl disable --now x`",
        "hand back: `systemctl enable --now x`",
        "`ksmith setup --undo`",
        "--take-over",
    ] {
        assert!(findings[0].remedy.contains(part), "{part}: {}", findings[0].remedy);
    }
}

#[test]
fn an_impossible_line_of_meminfo_is_named() {
    let text = "MemTotal: 9 kB\nSwapTotal: 4 kB\nSwapFree: 18446744073708600176 kB\n";
    let impossible_lines = Meminfo::impossible_lines(text);
    let findings = diagnose(&healthy(), &HostCircumstances { impossible_lines, ..HostCircumstances::default() });
    assert_eq!((findings[0].code, findings.len()), ("meminfo", 1));
    assert!(findings[0].what.contains("line 3") && findings[0].what.contains("18446744073708600176"));
}

#[test]
fn uksm_is_named_where_there_is_no_ksm() {
    let sample = Sample::default();
    let circumstances = HostCircumstances { others: vec![controller(UKSM, true)], ..HostCircumstances::default() };
    assert_eq!(codes(&sample, &circumstances), ["no-ksm", "uksm"]);
}

#[test]
fn folding_is_named_where_most_of_what_is_saved_is_empty() {
    let with = |zero, sharing| {
        found(|sample, _| {
            sample.ksm.use_zero_pages = Reading::Value(1);
            sample.ksm.ksm_zero_pages = Reading::Value(zero);
            sample.ksm.pages_sharing = Reading::Value(sharing);
        })
    };
    assert_eq!(with(20_000, 1000), ["folding"]);
    assert!(with(20_000, 30_000).is_empty(), "most is not empty");
    assert!(with(10_000, 1000).is_empty(), "it is little");
}

#[test]
fn cpus_that_the_guests_leave_free_are_proposed_for_ksmd() {
    let of = |online: u32, of_ksmd: &[u32], of_guests: &[u32]| KsmdPlacement {
        online: (0..online).collect(),
        of_ksmd: of_ksmd.iter().copied().collect(),
        of_guests: of_guests.iter().copied().collect(),
        ..KsmdPlacement::default()
    };
    let with = |placement| found(|_, circumstances| circumstances.placement = Some(placement));
    assert_eq!(with(of(4, &[0, 1, 2, 3], &[1, 2, 3])), ["ksmd-cpus"]);
    for placement in [of(4, &[0], &[1, 2, 3]), of(4, &[0, 1], &[0, 1, 2, 3]), of(4, &[0, 1], &[])] {
        assert!(with(placement.clone()).is_empty(), "{placement:?}");
    }
    let placement = KsmdPlacement { guest_weight: Some(100), ..of(4, &[0, 1, 2, 3], &[1, 2]) };
    let circumstances = HostCircumstances { placement: Some(placement), ..HostCircumstances::default() };
    let finding = diagnose(&healthy(), &circumstances).remove(0);
    assert!(finding.what.contains("CPUs 1-2 only, and ksmd on 0-3") && finding.what.contains("cpu.weight 100"));
    assert!(finding.remedy.contains("\"auto\"") && finding.remedy.ends_with("now 0,3"), "{}", finding.remedy);
}

#[test]
fn a_count_of_zero_pages_that_no_process_has_is_named() {
    let with = |pages| found(|sample, _| sample.lost_zero_pages = pages);
    assert_eq!([with(20_000), with(-20_000)], [["zero-count"], ["zero-count"]]);
    assert!(with(100).is_empty());
}

#[test]
fn a_healthy_host_has_no_findings() {
    assert_eq!(found(|_, _| ()), [""; 0]);
}

#[test]
fn each_fault_is_named_and_nothing_else() {
    assert_eq!(found(|s, _| s.ksm = Default::default()), ["no-ksm"]);
    assert_eq!(found(|s, _| s.ksm.run = Reading::Denied), ["no-privilege"]);
    assert_eq!(found(|s, _| s.ksm.run = Reading::Value(0)), ["switched-off"]);
    assert_eq!(found(|s, _| s.ksm.run = Reading::Value(2)), ["unmerged"]);
    assert_eq!(found(|s, _| s.ksm.pages_to_scan = Reading::Value(0)), ["paused"]);
    assert_eq!(found(|s, _| s.processes[0].rss_bytes = Some(64 << 30)), ["slow"]);
    assert_eq!(found(|s, _| s.ksm.sleep_millisecs = Reading::Value(lease::next_value(20))), ["asleep"]);
    assert_eq!(found(|_, c| c.others = vec![controller(ADVISOR, true)]), ["advisor"]);
    assert_eq!(found(|s, _| s.ksm.pages_sharing = Reading::Value(1 << 20)), ["exposure"]);
    assert_eq!(found(|_, c| c.unrestored = true), ["unrestored"]);
    assert_eq!(found(|_, c| c.unreturned_guests = 2), ["unreturned"]);
    assert_eq!(found(|_, c| c.side_channel = Some("x".into())), ["side-channel"]);
    assert_eq!(found(|_, c| c.shared_across_bytes = 4096), ["shared-across-domains"]);
    assert_eq!(found(|_, c| c.remaining_mergeable = vec!["x".into()]), ["firmware-mergeable"]);
    assert_eq!(found(|_, c| c.guarded = Some("x".into())), ["guarded"]);
    assert_eq!(found(|_, c| c.domains_refused = Some("x".into())), ["domains-refused"]);
    assert_eq!(found(|_, c| c.damaged_journal = Some("EOF".into())), ["damaged-journal"]);
    for (name, codes) in [
        ("ksmtuned", ["controller", "controller-at-boot"]),
        ("uksmd", ["controller", "controller-at-boot"]),
        ("virt-handler", ["controller-perhaps", "controller-perhaps"]),
        ("ksm.service", ["controller-at-start", "controller-at-start"]),
        (UKSM, ["uksm", "uksm"]),
    ] {
        for (runs, code) in [true, false].into_iter().zip(codes) {
            assert_eq!(found(|_, c| c.others = vec![controller(name, runs)]), [code], "{name} {runs}");
        }
    }
    assert_eq!(
        found(|_, c| c.others = vec![FoundController { states: vec![], ..controller("uksmd", false) }]),
        [""; 0]
    );
    let nothing = found(|s, _| {
        s.processes.clear();
        s.ksm.pages_sharing = Reading::Value(0);
    });
    assert_eq!(nothing, ["nothing-mergeable"]);
    let shared = found(|s, _| {
        s.processes[0].ksm.mergeable = Some(false);
        s.ksm.pages_sharing = Reading::Value(0);
    });
    assert_eq!(shared, ["nothing-mergeable"]);
    let trapped = found(|s, _| {
        s.ksm.smart_scan = Reading::Value(1);
        s.ksm.pages_skipped = Reading::Value(5000);
    });
    assert_eq!(trapped, ["smart-scan"]);
    let loss = found(|s, _| {
        s.ksm.pages_unshared = Reading::Value(100_000);
        s.ksm.full_scans = Reading::Value(3);
    });
    assert_eq!(loss, ["loss"]);
    let unknown = found(|s, _| {
        s.ksm.pages_sharing = Reading::Malformed(Malformed::new(1, "a number of pages", "18446744073709551615"));
        s.ksm.pages_unshared = Reading::Value(100_000);
        s.ksm.full_scans = Reading::Value(3);
    });
    assert_eq!(unknown, ["counters"], "what is not known is no loss");
}

#[test]
fn a_daemon_that_parked_ksmd_is_no_fault() {
    let beside = |daemon| {
        found(|s, c| {
            s.ksm.run = Reading::Value(0);
            c.others = vec![controller(ADVISOR, true)];
            c.daemon = daemon;
        })
    };
    assert_eq!(beside(DaemonPresence::Present), [""; 0]);
    assert_eq!(beside(DaemonPresence::Hidden), ["perhaps-parked"]);
    assert_eq!(beside(DaemonPresence::Absent), ["switched-off", "advisor"]);
}

#[test]
fn a_running_daemon_allows_every_remedy() {
    let mut sample = healthy();
    sample.ksm.pages_unshared = Reading::Value(100_000);
    sample.ksm.full_scans = Reading::Value(3);
    let remedy = |daemon| {
        let findings = diagnose(&sample, &HostCircumstances { daemon, ..HostCircumstances::default() });
        assert_eq!(findings[0].code, "loss");
        findings[0].remedy.clone()
    };
    assert!(remedy(DaemonPresence::Absent).starts_with("`ksmith unmerge`"));
    assert!(remedy(DaemonPresence::Present).contains("`systemctl stop ksmith`), and `ksmith unmerge`"));
}

#[test]
fn problems_come_first() {
    let mut sample = healthy();
    sample.ksm.run = Reading::Value(0);
    let others = vec![controller(ADVISOR, true)];
    let findings = diagnose(&sample, &HostCircumstances { others, ..HostCircumstances::default() });
    assert_eq!(findings.iter().map(|f| f.code).collect::<Vec<_>>(), ["switched-off", "advisor"]);
}

/// A change to a host.
type HostChange<'a> = &'a dyn Fn(&mut Sample, &mut HostCircumstances);

/// khugepaged with the kernel's defaults, beside a ksmith that may keep what is merged.
fn with_khugepaged(sample: &mut Sample, circumstances: &mut HostCircumstances) {
    sample.ksm.max_ptes_shared = Reading::Value(256);
    sample.ksm.max_ptes_none = Reading::Value(511);
    circumstances.huge_pages =
        HugePageCircumstances { khugepaged: true, keep: true, ..HugePageCircumstances::default() };
}

#[test]
fn merges_that_khugepaged_undoes_are_named_unless_a_daemon_keeps_them() {
    let with = |change: HostChange<'_>| {
        found(|sample, circumstances| {
            with_khugepaged(sample, circumstances);
            change(sample, circumstances);
        })
    };
    assert_eq!(with(&|_, _| ()), ["huge-pages"]);
    let kept: [HostChange<'_>; 6] = [
        &|sample, about| {
            (about.daemon, sample.ksm.max_ptes_shared) = (DaemonPresence::Present, Reading::Value(0));
        },
        &|_, about| about.huge_pages.khugepaged = false,
        &|sample, _| {
            (sample.ksm.max_ptes_shared, sample.ksm.max_ptes_none) = (Reading::Value(0), Reading::Value(0))
        },
        &|sample, _| sample.ksm.max_ptes_shared = Reading::Absent,
        &|sample, _| sample.ksm.pages_sharing = Reading::Value(0),
        &|_, about| about.huge_pages = HugePageCircumstances::default(),
    ];
    for (index, change) in kept.iter().enumerate() {
        assert!(!with(change).contains(&"huge-pages"), "{index}");
    }
    let refused = with(&|_, about| (about.daemon, about.huge_pages.keep) = (DaemonPresence::Present, false));
    assert_eq!(refused, ["huge-pages"], "a daemon that may not keep them");
    let unable = with(&|_, about| about.daemon = DaemonPresence::Present);
    assert_eq!(unable, ["huge-pages"], "a daemon that can't keep them");
}

#[test]
fn the_remedy_for_khugepaged_is_the_one_that_is_left() {
    let (mut sample, mut circumstances) = (healthy(), HostCircumstances::default());
    with_khugepaged(&mut sample, &mut circumstances);
    circumstances.huge_pages.shrink_underused = true;
    let told = diagnose(&sample, &circumstances);
    for part in ["256 shared and 511 empty", "max_ptes_shared, max_ptes_none", "3.91 MiB"] {
        assert!(told[0].what.contains(part), "{part}: {}", told[0].what);
    }
    assert!(told[0].remedy.contains("ksmith set max_ptes_shared=0"), "{}", told[0].remedy);
    assert!(told[0].remedy.contains("shrink_underused"), "{}", told[0].remedy);
    assert!(told[0].remedy.ends_with("neither defrag nor khugepaged/defrag stops it"), "{}", told[0].remedy);
    sample.page_size = 64 << 10;
    for (none, is_named) in [(511, false), (8191, true)] {
        sample.ksm.max_ptes_none = Reading::Value(none);
        let told = diagnose(&sample, &circumstances);
        let told = told.iter().find(|finding| finding.code == "huge-pages").unwrap();
        assert_eq!(told.remedy.contains("shrink_underused"), is_named, "{none} of the 8,192 pages of 512 MiB");
    }
    (sample.page_size, sample.ksm.max_ptes_none) = (4096, Reading::Value(511));
    circumstances.huge_pages.keep = false;
    sample.ksm.pages_sharing = Reading::Value(0);
    let told = diagnose(&sample, &circumstances);
    let told = told.iter().find(|finding| finding.code == "huge-pages").unwrap();
    assert!(told.severity == Severity::Note && told.what.ends_with("is lost again"), "{}", told.what);
    assert!(told.remedy.starts_with("keep = true in [huge_pages]"), "{}", told.remedy);
}

#[test]
fn the_price_of_keeping_merges_is_said_where_the_shrinker_asks_it() {
    let price = |change: HostChange<'_>| {
        let (mut sample, mut circumstances) = (healthy(), HostCircumstances::default());
        with_khugepaged(&mut sample, &mut circumstances);
        (sample.ksm.max_ptes_shared, sample.ksm.max_ptes_none) = (Reading::Value(0), Reading::Value(0));
        circumstances.huge_pages.shrink_underused = true;
        change(&mut sample, &mut circumstances);
        diagnose(&sample, &circumstances).into_iter().find(|finding| finding.code == "huge-pages-price")
    };
    let told = price(&|_, _| ()).unwrap();
    assert!(told.severity == Severity::Note && told.what.contains("splits each huge page"), "{}", told.what);
    assert!(
        told.remedy.contains("echo 0 > /sys/kernel/mm/transparent_hugepage/shrink_underused"),
        "{}",
        told.remedy
    );
    let free: [HostChange<'_>; 3] = [
        &|sample, _| sample.ksm.max_ptes_none = Reading::Value(511),
        &|_, about| about.huge_pages.shrink_underused = false,
        &|_, about| about.huge_pages.khugepaged = false,
    ];
    for (index, change) in free.iter().enumerate() {
        assert_eq!(price(change), None, "{index}");
    }
}

#[test]
fn merging_across_nodes_is_named_where_there_are_several() {
    let found = |nodes, across| {
        let (mut sample, mut circumstances) = (healthy(), HostCircumstances::default());
        circumstances.memory_nodes = nodes;
        sample.ksm.merge_across_nodes = Reading::Value(across);
        diagnose(&sample, &circumstances).into_iter().find(|finding| finding.code == "numa")
    };
    assert_eq!([found(2, 0), found(1, 1), found(0, 1)], [None, None, None]);
    let remedy = found(2, 1).unwrap().remedy;
    for command in ["`ksmith estimate`", "`[daemon] merge_across_nodes = false`"] {
        assert!(remedy.contains(command), "{remedy}");
    }
}

#[test]
fn who_else_writes_or_makes_huge_pages_is_named_with_the_winner() {
    let about = |change: &dyn Fn(&mut HugePageCircumstances)| {
        let (mut sample, mut circumstances) = (healthy(), HostCircumstances::default());
        with_khugepaged(&mut sample, &mut circumstances);
        sample.ksm.max_ptes_shared = Reading::Value(0);
        circumstances.daemon = DaemonPresence::Present;
        change(&mut circumstances.huge_pages);
        diagnose(&sample, &circumstances)
    };
    let tuned = about(&|huge| huge.tuned_file = Some("/etc/tuned/rt/tuned.conf".into()));
    assert!(tuned[0].what.contains("/etc/tuned/rt/tuned.conf"), "{}", tuned[0].what);
    assert!(tuned[0].remedy.contains("sets max_ptes_shared and max_ptes_none back"), "{}", tuned[0].remedy);
    let hugepage = about(&|huge| huge.damon_action = Some("hugepage".into()));
    assert!(hugepage[0].remedy.contains("keep = true"), "{}", hugepage[0].remedy);
    let collapse = about(&|huge| huge.damon_action = Some("collapse".into()));
    assert!(collapse[0].what.contains("whatever max_ptes_shared says"), "{}", collapse[0].what);
    assert!(about(&|_| ()).is_empty());
}
