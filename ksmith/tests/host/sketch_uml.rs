//! Guests of user-mode Linux have shared memory, which KSM never merges: sketches leave them out by name.

use std::time::Duration;

use crate::support::image::UmlImage;
use ksmith_core::balance::BalanceConfig;
use ksmith_host::memory::process::OpenProcess;
use ksmith_sketch::{CaptureOptions, FleetKey, RateRule, SamplingRate, SketchSubject, capture};

const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn a_guest_of_user_mode_linux_is_left_out_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let Some(image) = UmlImage::make(directory.path(), 32) else { return };
    let mut guest = image.start("shared", 96, None);
    assert!(guest.boot(PATIENCE), "{}", guest.console());
    let subject = |pid| SketchSubject::from_process(&OpenProcess::open(pid).unwrap(), &BalanceConfig::default());
    let options = CaptureOptions {
        subjects: vec![subject(guest.pid()), subject(std::process::id())],
        rate: RateRule::Stated(SamplingRate::from_bits(6)),
        again: None,
    };
    let found = capture(&options, &FleetKey::from_secret(b"a secret of the tests")).unwrap();
    let [sketched] = &found.guests[..] else { panic!("{:?}", found.skipped) };
    assert_eq!(sketched.subject.pid, std::process::id());
    let [skipped] = &found.skipped[..] else { panic!("{:?}", found.skipped) };
    assert_eq!(skipped.guest, format!("shared (pid {})", guest.pid()));
    assert!(skipped.why.ends_with("in shared mappings"), "{skipped:?}");
}
