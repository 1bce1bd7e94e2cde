//! Writes to the machine's files, with the kernel's rules of when which value is accepted.

use super::super::advisor::SimAdvisor;
use super::super::settings::{KnobRefusal, has};
use super::SimMachine;
use crate::knobs::{Knob, KnobSettings};
use crate::sample::BoundaryPause;

impl SimMachine {
    /// The value of a setting. `None` where the kernel lacks it.
    pub fn knob(&self, knob: Knob) -> Option<u64> {
        if has(self.config.kernel, knob.name()) { self.settings.get(knob) } else { None }
    }

    /// Writes one file, as root.
    ///
    /// A write that stops ksmd ends its rest, as it ends a lease. Writing `run`, `merge_across_nodes` or
    /// `max_page_sharing` in the middle of a batch waits for the batch's end: [`now`](SimMachine::now) may be later
    /// afterwards.
    ///
    /// # Errors
    /// The kernel would refuse the value.
    pub fn write(&mut self, knob: Knob, value: u64) -> Result<(), KnobRefusal> {
        if !has(self.config.kernel, knob.name()) {
            return Err(KnobRefusal::Absent(knob));
        }
        if !knob.range().contains(&value) {
            return Err(KnobRefusal::Invalid { knob, value });
        }
        let Some(before) = self.settings.get_mut(knob) else { return Err(KnobRefusal::Absent(knob)) };
        let changed = *before != value;
        match knob {
            Knob::PagesToScan if self.settings.advisor_mode != 0 => return Err(KnobRefusal::Advisor),
            Knob::AdvisorMode if changed => {
                self.advisor = SimAdvisor::default();
                self.settings.pages_to_scan =
                    if value == 0 { 100 } else { self.settings.advisor_min_pages_to_scan };
            }
            Knob::MergeAcrossNodes | Knob::MaxPageSharing if changed => {
                self.finish_batch();
                if self.memory.stable.shared > 0 {
                    return Err(KnobRefusal::Merged(knob));
                }
            }
            Knob::SleepMillisecs if changed => self.wake_ksmd(),
            Knob::Run => {
                self.finish_batch();
                if value != 1 {
                    self.rest_after = None;
                    if std::mem::replace(&mut self.rest, BoundaryPause::Unavailable) == BoundaryPause::Resting {
                        self.wake_ksmd();
                    }
                }
                if changed && value == 2 {
                    self.settings.run = 2;
                    return self.unmerge().inspect_err(|_| self.settings.run = 0);
                }
            }
            _ => {}
        }
        if let Some(setting) = self.settings.get_mut(knob) {
            *setting = value;
        }
        if knob == Knob::MaxPageSharing {
            self.memory.contents.set_limit(value);
        }
        Ok(())
    }

    /// Writes several files in the order in which they may be written.
    ///
    /// # Errors
    /// The first refusal. The files before it are written, and those after it are not.
    pub fn write_all(&mut self, knobs: &KnobSettings) -> Result<(), KnobRefusal> {
        knobs.writes().try_for_each(|(knob, value)| self.write(knob, value))
    }
}
