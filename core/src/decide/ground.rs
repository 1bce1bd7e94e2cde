//! The common ground of all policies: the check that KSM can be controlled, taking `pages_to_scan` back from the
//! kernel's advisor, and the sentences about ksmd.

use std::time::Duration;

use crate::kernel::{AdvisorMode, Ksm};
use crate::knobs::{Knob, KnobSettings};
use crate::reading::Reading;
use crate::scan::ScanOutcome;
use crate::units::{Bytes, NewSavings, TimeSpan};

use super::{DecisionReason, PassHistory, Policy, PolicyDecision, PolicyView, ReasonSentences};

/// The interval between two looks at a KSM that can't be controlled.
const UNUSABLE: Duration = Duration::from_secs(10);

/// Has `policy` decide. Where KSM can't be controlled, the policy is not asked, and nothing is set.
pub fn decide(policy: &mut dyn Policy, view: &PolicyView<'_>) -> PolicyDecision {
    match unusable(&view.now.ksm).or_else(|| view.now.is_ksm_read_only.then(read_only)) {
        Some(reason) => PolicyDecision::new(KnobSettings::none(), reason, UNUSABLE),
        None => policy.decide(view),
    }
}

/// Returns the reason why nothing can be decided about this KSM; `None` if it can be controlled.
fn unusable(ksm: &Ksm) -> Option<DecisionReason> {
    match &ksm.run {
        Reading::Value(_) => None,
        Reading::Absent => {
            Some(DecisionReason::new("no-ksm", "this kernel has no KSM (CONFIG_KSM): nothing to control"))
        }
        fault => Some(DecisionReason::new("blind", format!("run can't be read: {fault}; nothing is changed"))),
    }
}

fn read_only() -> DecisionReason {
    DecisionReason::new("watching", "/sys is read-only here: nothing is changed")
}

/// Adds `advisor_mode=none` where it is needed: the kernel refuses `pages_to_scan` while its advisor is on.
/// Settings that want the advisor on lose their `pages_to_scan` instead.
pub(super) fn take_over(mut knobs: KnobSettings, ksm: &Ksm) -> KnobSettings {
    if knobs.get(Knob::PagesToScan).is_none() {
        return knobs;
    }
    match knobs.get(Knob::AdvisorMode) {
        Some(1..) => {
            knobs.remove(Knob::PagesToScan);
        }
        None if ksm.advisor_mode.get() == Some(AdvisorMode::ScanTime) => knobs.set(Knob::AdvisorMode, 0),
        _ => {}
    }
    knobs
}

/// `last pass took 3 min 20 s, 12.0 MiB saved at 3.1 MiB per CPU-second`
pub(super) fn last_pass(history: &PassHistory) -> String {
    let Some(pass) = history.last_pass() else { return "no pass has ended yet".to_owned() };
    let took = pass.took.checked_div(u32::try_from(pass.count).unwrap_or(u32::MAX)).unwrap_or(pass.took);
    let mut text = format!("last pass took {}, {}", TimeSpan(took), NewSavings(pass.saved_bytes));
    if !pass.ksmd_cpu.is_zero() && pass.saved_bytes >= 0 {
        let per_second = Bytes(pass.yield_per_cpu_second() as i128);
        text.push_str(&format!(" at {per_second} per CPU-second"));
    }
    text
}

/// Describes a scan in progress: `12.0 MiB saved so far`, and apart `0.40 CPU-s of ksmd`.
pub(super) fn so_far(outcome: &ScanOutcome) -> ReasonSentences {
    ReasonSentences::detailed(
        format!("{} so far", NewSavings(outcome.saved_bytes)),
        format!("{:.2} CPU-s of ksmd", outcome.cpu_seconds),
    )
}

/// `ksmd at 12 % of a CPU`, or nothing where that is not known.
pub(super) fn ksmd_share(history: &PassHistory) -> Option<String> {
    history.ksmd_share().map(|share| format!("ksmd at {:.0} % of a CPU", share * 100.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::testing::PolicyTestHost;

    #[test]
    fn a_kernel_without_ksm_and_one_that_hides_it_are_told_apart() {
        assert_eq!(unusable(&Ksm::default()).unwrap().state, "no-ksm");
        let denied = Ksm { run: Reading::Denied, ..Ksm::default() };
        assert_eq!(unusable(&denied).unwrap().to_string(), "blind: run can't be read: denied; nothing is changed");
        assert_eq!(unusable(&PolicyTestHost::linux_6_18().sample.ksm), None);
    }

    #[test]
    fn where_settings_are_read_only_no_policy_changes_any() {
        let mut host = PolicyTestHost::linux_6_18();
        host.sample.is_ksm_read_only = true;
        let decision = host.decide(&mut crate::decide::off::OffPolicy);
        assert_eq!(decision.reason.to_string(), "watching: /sys is read-only here: nothing is changed");
        assert_eq!(decision.knobs, KnobSettings::none());
        host.sample.is_ksm_read_only = false;
        assert_ne!(host.decide(&mut crate::decide::off::OffPolicy).knobs, KnobSettings::none());
    }

    #[test]
    fn the_advisor_is_switched_off_only_where_it_is_on_and_in_the_way() {
        let wanted = KnobSettings::none().with(Knob::PagesToScan, 500);
        let mut ksm = PolicyTestHost::linux_6_18().sample.ksm;
        assert_eq!(take_over(wanted.clone(), &ksm), wanted);
        ksm.advisor_mode = Reading::Value(AdvisorMode::ScanTime);
        assert_eq!(take_over(wanted.clone(), &ksm), wanted.clone().with(Knob::AdvisorMode, 0));
        assert_eq!(
            take_over(KnobSettings::none().with(Knob::Run, 1), &ksm),
            KnobSettings::none().with(Knob::Run, 1)
        );
        assert_eq!(take_over(wanted.clone(), &PolicyTestHost::linux_6_1().sample.ksm), wanted);
    }

    #[test]
    fn pages_to_scan_is_left_to_an_advisor_that_is_wanted() {
        let wanted = KnobSettings::none().with(Knob::PagesToScan, 500).with(Knob::AdvisorMode, 1);
        let left = take_over(wanted, &PolicyTestHost::linux_6_18().sample.ksm);
        assert_eq!(left, KnobSettings::none().with(Knob::AdvisorMode, 1));
    }

    #[test]
    fn a_pass_is_told_with_what_it_took_saved_and_cost() {
        let mut host = PolicyTestHost::linux_6_18();
        host.observe();
        assert_eq!(last_pass(&host.history), "no pass has ended yet");
        host.pass(10, 1000).ksmd_cpu_ms(500).observe();
        assert_eq!(last_pass(&host.history), "last pass took 10 s, 3.91 MiB saved at 7.81 MiB per CPU-second");
        assert_eq!(ksmd_share(&host.history).unwrap(), "ksmd at 5 % of a CPU");
        host.pass(10, -1000).ksmd_cpu_ms(500).observe();
        assert_eq!(last_pass(&host.history), "last pass took 10 s, 3.91 MiB less saved");
    }

    #[test]
    fn a_scan_in_progress_is_told_by_its_savings() {
        let told = |saved_bytes| so_far(&ScanOutcome { saved_bytes, cpu_seconds: 0.4 });
        assert_eq!(told(12 << 20), ReasonSentences::detailed("12.0 MiB saved so far", "0.40 CPU-s of ksmd"));
        assert_eq!(told(-48 << 20).text, "48.0 MiB less saved so far");
    }
}
