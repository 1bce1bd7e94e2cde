//! The order in which original settings are restored.

use ksmith_core::knobs::{Knob, KnobSettings};

/// One step of restoring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RestoreStep {
    /// Write a value, if it differs.
    Set(Knob, u64),
    /// Write values while nothing is merged.
    SetUnmerged(Vec<(Knob, u64)>),
    /// Unmerge everything, as `run` = 2 does.
    Unmerge,
    /// Only pass on a message.
    Say(String),
}

/// Returns the steps from `now` to `originals`.
///
/// ksmd is stopped first if it was stopped, and started last if it ran. The advisor goes off before the knobs that it
/// blocks and on after those that it reads. `pages_to_scan` belongs to the advisor while that is on, and is not
/// written. Knobs that need everything unmerged may take minutes, and so come last.
pub(super) fn plan(originals: &KnobSettings, now: &KnobSettings) -> Vec<RestoreStep> {
    let (mut steps, mut unmerged) = (Vec::new(), Vec::new());
    let run = originals.get(Knob::Run);
    let advisor = originals.get(Knob::AdvisorMode);
    let quiet = run.is_some_and(|run| run != 1) && now.get(Knob::Run) == Some(1);
    if quiet {
        steps.push(RestoreStep::Set(Knob::Run, 0));
    }
    if advisor == Some(0) {
        steps.push(RestoreStep::Set(Knob::AdvisorMode, 0));
    }
    for (knob, value) in originals.iter() {
        match knob {
            Knob::AdvisorMode | Knob::Run => {}
            Knob::PagesToScan if advisor == Some(1) => {
                if now.get(Knob::AdvisorMode) != advisor {
                    let text =
                        format!("pages_to_scan was {value}; the kernel's advisor is on again and sets it itself");
                    steps.push(RestoreStep::Say(text));
                }
            }
            Knob::PagesToScan if advisor.is_none() && now.get(Knob::AdvisorMode) == Some(1) => {
                let text = "the kernel's advisor was switched on meanwhile and owns it now";
                steps.push(RestoreStep::Say(format!("pages_to_scan was {value} and is left alone: {text}")));
            }
            _ if knob.needs_nothing_merged() => unmerged.push((knob, value)),
            _ => steps.push(RestoreStep::Set(knob, value)),
        }
    }
    if advisor == Some(1) {
        steps.push(RestoreStep::Set(Knob::AdvisorMode, 1));
    }
    if !unmerged.is_empty() {
        steps.push(RestoreStep::SetUnmerged(unmerged));
    }
    match run {
        Some(2) => steps.push(RestoreStep::Unmerge),
        Some(0) if quiet => {}
        Some(run) => steps.push(RestoreStep::Set(Knob::Run, run)),
        None => {}
    }
    steps
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// KSM as far as order matters, after the store functions in `mm/ksm.c`.
    #[derive(Debug, Clone, PartialEq)]
    struct KsmModel {
        knobs: KnobSettings,
        merged: bool,
    }

    impl KsmModel {
        fn new(values: &[u64; Knob::ALL.len()]) -> Self {
            let range = |knob: Knob, value: u64| match knob {
                Knob::Run => value % 3,
                Knob::AdvisorMode | Knob::SmartScan | Knob::UseZeroPages | Knob::MergeAcrossNodes => value % 2,
                _ => value,
            };
            let knobs: KnobSettings =
                Knob::ALL.into_iter().zip(values).map(|(knob, &value)| (knob, range(knob, value))).collect();
            let merged = knobs.get(Knob::Run) == Some(1);
            Self { knobs, merged }
        }

        fn get(&self, knob: Knob) -> u64 {
            self.knobs.get(knob).unwrap()
        }

        fn set(&mut self, knob: Knob, value: u64) -> Result<(), String> {
            if self.get(knob) == value {
                return Ok(());
            }
            match knob {
                Knob::PagesToScan if self.get(Knob::AdvisorMode) == 1 => return Err("EINVAL".into()),
                _ if knob.needs_nothing_merged() && self.merged => return Err("EBUSY".into()),
                Knob::AdvisorMode => {
                    let pages = if value == 1 { self.get(Knob::AdvisorMinPagesToScan) } else { 100 };
                    self.knobs.set(Knob::PagesToScan, pages);
                }
                Knob::Run => self.merged = value == 1 || value == 0 && self.merged,
                _ => {}
            }
            self.knobs.set(knob, value);
            Ok(())
        }

        fn set_unmerged(&mut self, settings: &[(Knob, u64)]) -> Result<(), String> {
            let run = self.get(Knob::Run);
            self.set(Knob::Run, 2)?;
            settings.iter().try_for_each(|(knob, value)| self.set(*knob, *value))?;
            self.set(Knob::Run, run)
        }
    }

    /// Writes like the writer: the first change of a knob is noted, the advisor's with `pages_to_scan`.
    fn change(machine: &mut KsmModel, journal: &mut KnobSettings, knob: Knob, value: u64) {
        let before = machine.knobs.clone();
        if machine.set(knob, value).is_err() {
            return;
        }
        let noted: &[Knob] =
            if knob == Knob::AdvisorMode { &[Knob::PagesToScan, Knob::AdvisorMode] } else { &[knob] };
        for &knob in noted.iter().filter(|_| machine.knobs != before) {
            if journal.get(knob).is_none() {
                journal.set(knob, before.get(knob).unwrap());
            }
        }
    }

    fn values() -> impl Strategy<Value = [u64; Knob::ALL.len()]> {
        prop::array::uniform17(2_u64..100_000)
    }

    proptest! {
        #[test]
        fn whatever_was_changed_everything_is_as_before(
            original in values(),
            changes in prop::collection::vec((0..Knob::ALL.len(), 0_u64..100_000), 0..30),
        ) {
            let original = KsmModel::new(&original);
            let mut machine = original.clone();
            let mut journal = KnobSettings::none();
            for (index, value) in changes {
                let knob = Knob::ALL[index];
                let value = match knob {
                    Knob::Run | Knob::AdvisorMode | Knob::SmartScan | Knob::UseZeroPages
                    | Knob::MergeAcrossNodes => value % 2,
                    _ => value,
                };
                change(&mut machine, &mut journal, knob, value);
            }
            let advisor_was_touched = journal.get(Knob::AdvisorMode).is_some();
            let steps = plan(&journal, &machine.knobs);
            for (index, step) in steps.iter().enumerate() {
                let quiet = journal.get(Knob::Run).is_none_or(|run| run == 1)
                    || machine.get(Knob::Run) != 1
                    || index == 0;
                prop_assert!(quiet, "ksmd runs during {:?}", step);
                let outcome = match step {
                    RestoreStep::Set(knob, value) => machine.set(*knob, *value),
                    RestoreStep::SetUnmerged(settings) => machine.set_unmerged(settings),
                    RestoreStep::Unmerge => machine.set(Knob::Run, 2),
                    RestoreStep::Say(_) => Ok(()),
                };
                prop_assert_eq!(outcome, Ok(()), "{:?} of {:?}", step, steps);
            }
            let mut wanted = original.knobs.clone();
            if advisor_was_touched && wanted.get(Knob::AdvisorMode) == Some(1) {
                // The advisor begins anew with its minimum, or goes on from where it is.
                wanted.set(Knob::PagesToScan, machine.get(Knob::PagesToScan));
            }
            prop_assert_eq!(&machine.knobs, &wanted);
            prop_assert!(plan(&journal, &machine.knobs).iter().all(|step| match step {
                RestoreStep::Set(knob, value) => machine.get(*knob) == *value,
                RestoreStep::SetUnmerged(settings) => settings.iter().all(|(knob, value)| machine.get(*knob) == *value),
                RestoreStep::Unmerge => machine.get(Knob::Run) == 2,
                RestoreStep::Say(_) => false,
            }), "restoring again does nothing");
        }
    }

    #[test]
    fn an_advisor_that_was_on_comes_back_after_its_own_knobs() {
        let originals = KnobSettings::none()
            .with(Knob::AdvisorMode, 1)
            .with(Knob::PagesToScan, 4000)
            .with(Knob::AdvisorMinPagesToScan, 500)
            .with(Knob::Run, 1);
        let steps = plan(&originals, &KnobSettings::none().with(Knob::AdvisorMode, 0).with(Knob::Run, 1));
        assert!(
            matches!(&steps[1], RestoreStep::Say(text) if text.contains("pages_to_scan was 4000")),
            "{steps:?}"
        );
        let set = [(Knob::AdvisorMinPagesToScan, 500), (Knob::AdvisorMode, 1), (Knob::Run, 1)];
        let set = set.map(|(knob, value)| RestoreStep::Set(knob, value));
        assert_eq!([&steps[0], &steps[2], &steps[3]], [&set[0], &set[1], &set[2]]);
    }

    #[test]
    fn an_advisor_that_another_program_switched_on_is_left_its_pages() {
        let originals = KnobSettings::none().with(Knob::PagesToScan, 100);
        let steps = plan(&originals, &KnobSettings::none().with(Knob::AdvisorMode, 1));
        assert!(matches!(&steps[..], [RestoreStep::Say(text)] if text.contains("left alone")), "{steps:?}");
    }
}
