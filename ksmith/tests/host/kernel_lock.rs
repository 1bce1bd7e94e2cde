//! The lock that tests on the live kernel take.

use crate::support::settings::{Settings, not_default};

#[test]
fn settings_that_are_not_the_kernels_are_found() {
    let defaults = [("run", "0"), ("pages_to_scan", "100"), ("sleep_millisecs", "20"), ("advisor_max_cpu", "7")];
    let mut settings: Settings = defaults.map(|(knob, value)| (knob, value.to_owned())).into();
    assert!(not_default(&settings).is_empty(), "no test relies on the others, and a kernel may lack some");
    settings.insert("sleep_millisecs", "86400000".to_owned());
    settings.insert("smart_scan", "0".to_owned());
    assert_eq!(not_default(&settings), ["sleep_millisecs", "smart_scan"]);
}
