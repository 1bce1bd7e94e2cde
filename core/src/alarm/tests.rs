use proptest::prelude::*;

use super::*;

fn totals(saved: u64, overhead: u64, headroom: u64) -> HostTotals {
    HostTotals {
        saved_bytes: saved,
        unverified_bytes: 0,
        earlier_zero_bytes: None,
        oldest_reading_seconds: None,
        huge_bytes: None,
        split: None,
        overhead_bytes: overhead,
        profit_bytes: saved as i64 - overhead as i64,
        folded_bytes: 0,
        exposure_bytes: saved,
        headroom_bytes: Some(headroom),
        is_unknown: false,
    }
}

fn facts(seconds: u64, totals: HostTotals) -> AlarmInput<'static> {
    AlarmInput { at: Duration::from_secs(seconds), totals, breach: None }
}

fn kind(name: &str) -> AlarmKind {
    AlarmKind::find(name).unwrap()
}

fn alarms() -> AlarmTracker {
    AlarmTracker::new(Duration::from_secs(3600))
}

#[test]
fn exposure_over_headroom_is_told_once_and_its_end_once() {
    let mut alarms = alarms();
    let (well, over) = (totals(10, 1, 20), totals(30, 1, 20));
    let mut told = Vec::new();
    for second in 0..1000 {
        let now = if (100..500).contains(&second) { over } else { well };
        told.extend(
            alarms.update(&facts(second, now)).into_iter().map(|notice| (second, notice.begins, notice.alarm)),
        );
    }
    assert_eq!(told, [(130, true, kind("exposure")), (560, false, kind("exposure"))]);
}

#[test]
fn an_unknown_headroom_ends_no_alarm() {
    let mut alarms = alarms();
    let over = totals(30, 1, 20);
    (0..40).for_each(|second| drop(alarms.update(&facts(second, over))));
    let unknown = HostTotals { headroom_bytes: None, ..over };
    assert!((40..1000).all(|second| alarms.update(&facts(second, unknown)).is_empty()));
}

#[test]
fn a_figure_about_the_threshold_is_no_flood() {
    let mut alarms = alarms();
    let told: usize =
        (0..10_000).map(|second| alarms.update(&facts(second, totals(20 + second % 3, 1, 21))).len()).sum();
    assert_eq!(told, 0);
}

#[test]
fn profit_must_be_negative_for_its_time() {
    let mut alarms = alarms();
    let at_a_loss = totals(1, 5, 100);
    assert_eq!(alarms.update(&facts(0, at_a_loss)), []);
    assert_eq!(alarms.update(&facts(3599, at_a_loss)), []);
    let notices = alarms.update(&facts(3600, at_a_loss));
    assert!(notices[0].begins && notices[0].text.contains("saves 1 B and its metadata takes 5 B"), "{notices:?}");
    // Nothing merged costs nothing.
    assert_eq!(alarms.update(&facts(3700, totals(0, 0, 100))), []);
    assert!(!alarms.update(&facts(3760, totals(0, 0, 100)))[0].begins);
}

#[test]
fn a_breach_of_domains_is_told_at_once() {
    let mut alarms = alarms();
    let breach = AlarmInput { breach: Some("guest b can't be switched off"), ..facts(5, totals(0, 0, 1)) };
    let notices = alarms.update(&breach);
    assert_eq!(notices[0].alarm, kind("domains"));
    let (cause, runbook) = notices[0].text.split_once(" (").unwrap();
    assert!(cause.ends_with("guest b can't be switched off"));
    assert!(runbook.ends_with("/runbooks/KsmithTrustDomainBreached.md)"));
    assert_eq!(alarms.update(&breach), []);
}

#[test]
fn each_alarm_has_a_message_id_of_its_own() {
    for alarm in AlarmKind::all() {
        let id = alarm.message_id();
        assert!(id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
        assert_eq!(
            AlarmKind::all().filter(|other| other.message_id() == id || other.word() == alarm.word()).count(),
            1
        );
    }
}

proptest! {
    /// Whatever happens, beginnings and ends of an alarm take turns.
    #[test]
    fn beginnings_and_ends_take_turns(
        steps in proptest::collection::vec((0_u64..4000, 0_u64..40, 0_u64..40, 0_u64..40, any::<bool>()), 0..200),
    ) {
        let mut alarms = alarms();
        let (mut at, mut begun) = (0, [false; 3]);
        for (step, saved, overhead, headroom, is_breached) in steps {
            at += step;
            let breach = is_breached.then_some("why");
            for notice in alarms.update(&AlarmInput { breach, ..facts(at, totals(saved, overhead, headroom)) }) {
                let index = AlarmKind::all().position(|alarm| alarm == notice.alarm).unwrap();
                prop_assert_ne!(begun[index], notice.begins);
                begun[index] = notice.begins;
            }
        }
    }
}
