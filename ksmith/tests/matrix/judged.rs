//! The judgement of right and wrong results of the checks, without a guest.

use ksmith_core::field::KernelVersion;

use crate::checks::{Ksm, judge};
use crate::guest::CheckOutput;

fn said(code: i32, text: &str) -> CheckOutput {
    CheckOutput { code, text: text.to_owned() }
}

fn demo(code: i32, saved: u32, missed: &str) -> CheckOutput {
    let report = format!(
        "{{\"mode\": \"live\", \"mergeable_bytes\": 100, \"saved_bytes\": {saved}, \"wrong_pages\": 0, \"restored\": true, \
         \"missed\": {missed}}}"
    );
    said(code, &format!("guests have started\n{report}\n"))
}

const fn linux(major: u32, minor: u32) -> Ksm {
    Some(KernelVersion::new(major, minor))
}

#[test]
fn a_demo_that_saves_too_little_must_say_so_by_words_and_exit_code() {
    let judged = |said: &CheckOutput| judge("demo", linux(6, 12), said).is_ok();
    assert!(judged(&demo(0, 95, "null")));
    assert!(!judged(&demo(0, 89, "null")), "the exit code does not tell");
    assert!(!judged(&demo(1, 89, "null")), "no words");
    assert!(judged(&demo(1, 89, "\"11 of 100, since ...\"")));
    assert!(!judged(&demo(1, 99, "\"1 of 100\"")), "nothing worth a failure was missed");
}

#[test]
fn domains_are_refused_where_pages_merge_on_the_first_visit() {
    let kept = said(0, "no page of 5 new guests outside merged\n");
    let refused =
        |version: &str| said(3, &format!("ksmith: domains.mode = \"one\" can't be kept on Linux {version}: ...\n"));
    assert!(judge("domains one", linux(6, 12), &kept).is_ok());
    assert!(judge("domains one", linux(6, 1), &kept).is_err());
    assert!(judge("domains one", linux(6, 1), &refused("6.1")).is_ok());
    assert!(judge("domains one", linux(6, 12), &refused("6.12")).is_err());
    assert!(judge("domains one", linux(6, 12), &said(97, "904 pages of a guest outside merged\n")).is_err());
}

#[test]
fn a_kernel_that_does_not_show_its_fact_is_a_fault() {
    for (name, version, code, is_right) in [
        ("first_visit", linux(6, 1), 0, true),
        ("first_visit", linux(6, 1), 1, false),
        ("first_visit", linux(6, 11), 0, false),
        ("smart_scan", linux(6, 1), 4, true),
        ("smart_scan", linux(6, 12), 4, false),
        ("zero_pages", linux(6, 18), 0, false),
        ("uncounted_zeros", linux(6, 1), 0, false),
        ("uncounted_zeros", linux(6, 12), 0, true),
        ("split_search", linux(6, 1), 4, true),
        ("split_search", linux(6, 12), 1, false),
        ("unstable_tree", None, 4, true),
        ("huge_pages", linux(5, 10), 2, false),
    ] {
        assert_eq!(judge(name, version, &said(code, "")).is_ok(), is_right, "{name} on {version:?}: {code}");
    }
}

#[test]
fn the_method_of_a_run_is_that_of_the_kernel() {
    let by = |method: &str| said(0, &format!("memory marked, and unharmed, by {method}\n"));
    assert!(judge("run", linux(6, 1), &by("preload")).is_ok());
    assert!(judge("run", linux(6, 1), &by("prctl")).is_err());
    assert!(judge("run", linux(6, 12), &by("prctl")).is_ok());
    assert!(judge("run", linux(6, 12), &said(96, "no memory marked\n")).is_err());
}

#[test]
fn without_ksm_each_command_must_say_so() {
    let no_ksm = "ksmith: this kernel has no KSM (no /sys/kernel/mm/ksm): it needs CONFIG_KSM=y\n";
    assert!(judge("scan", None, &said(3, no_ksm)).is_ok());
    assert!(judge("scan", None, &said(0, no_ksm)).is_err());
    assert!(judge("daemon profit", None, &said(3, "Segmentation fault\n")).is_err());
    assert!(
        judge("demo", None, &said(0, "SIMULATED (this kernel has no KSM)\n{\n  \"mode\": \"simulated\"\n}\n"))
            .is_ok()
    );
    assert!(judge("demo", None, &demo(0, 100, "null")).is_err());
}
