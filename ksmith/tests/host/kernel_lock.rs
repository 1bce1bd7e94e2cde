//! The lock that tests on the live kernel take.

use std::collections::BTreeMap;

use crate::support::not_default;

#[test]
fn settings_that_a_killed_experiment_has_left_are_named_with_their_cure() {
    let defaults = [("run", "0"), ("pages_to_scan", "100"), ("sleep_millisecs", "20"), ("advisor_max_cpu", "7")];
    let mut settings: BTreeMap<_, _> = defaults.map(|(knob, value)| (knob, value.to_owned())).into();
    assert_eq!(not_default(&settings), None, "no test relies on the others, and a kernel may lack some");
    settings.insert("sleep_millisecs", "86400000".to_owned());
    settings.insert("smart_scan", "0".to_owned());
    let why = not_default(&settings).unwrap();
    assert!(why.contains("sleep_millisecs is 86400000 (default 20), smart_scan is 0 (default 1)."), "{why}");
    assert!(why.contains("echo 20 > /sys/kernel/mm/ksm/sleep_millisecs; echo 1 > /sys/kernel/mm/ksm/smart_scan"));
    assert!(!why.contains("pages_to_scan"), "{why}");
}
