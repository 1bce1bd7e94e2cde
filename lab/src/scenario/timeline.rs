//! The timeline: the lines of the file as actions of single guests, in order.

use std::collections::BTreeMap;
use std::time::Duration;

use ksmith_core::sim::KhugepagedPace;
use toml::Spanned;

use super::file::{KhugepagedTable, TimelineTable};
use super::{LabGuestKind, TextFault};
use crate::MemoryPart;

/// One guest of the scenario.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestInstance {
    /// Kind and number, such as `clone-2`.
    pub name: String,
    /// Kind of the guest.
    pub kind: LabGuestKind,
}

/// An event of the timeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimelineAction {
    /// Time since the start.
    pub at: Duration,
    /// The action on one guest. Guests are indices into [`Scenario::instances`](super::Scenario::instances).
    pub deed: GuestAction,
}

/// An action of the timeline on one guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GuestAction {
    /// The guest starts.
    Start(usize),
    /// The guest is ended.
    Stop(usize),
    /// New content, unique to the guest, is written into a part.
    Rewrite {
        /// Index of the guest.
        guest: usize,
        /// Index of the part.
        part: usize,
    },
    /// The first content of a part is restored.
    Refill {
        /// Index of the guest.
        guest: usize,
        /// Index of the part.
        part: usize,
    },
    /// The load of the guest's worker is set.
    Work {
        /// Index of the guest.
        guest: usize,
        /// Load in per cent, from 0 to 100.
        percent: u8,
    },
    /// The settings of the host's khugepaged are written.
    Khugepaged(KhugepagedPace),
}

/// Upper bound for `times`, so that a mistake there does not fill the memory.
const MOST_TIMES: u32 = 10_000;

/// Expands the timeline. `end` and the times of the steps are seconds of the long form; `scale` converts them to
/// the form that is played.
pub(super) fn expand(
    steps: &[Spanned<TimelineTable>],
    kinds: &BTreeMap<String, LabGuestKind>,
    end: f64,
    scale: f64,
) -> Result<(Vec<GuestInstance>, Vec<TimelineAction>), TextFault> {
    let mut cast = TimelineBuilder { instances: Vec::new(), lives: Vec::new(), actions: Vec::new(), end, scale };
    // Starts are expanded first, so that a step may name a guest that the file starts further below.
    for step in steps.iter().filter(|step| step.get_ref().start.is_some()) {
        cast.starts(step.get_ref(), kinds).map_err(|what| TextFault(step.span(), what))?;
    }
    let others = |wanted: bool| {
        steps.iter().filter(move |s| s.get_ref().start.is_none() && s.get_ref().stop.is_some() == wanted)
    };
    for step in others(true).chain(others(false)) {
        cast.happens(step.get_ref()).map_err(|what| TextFault(step.span(), what))?;
    }
    // The sort is stable: starts stay before other actions at the same time.
    cast.actions.sort_by_key(|action| action.at);
    Ok((cast.instances, cast.actions))
}

struct TimelineBuilder {
    instances: Vec<GuestInstance>,
    /// Start and end of each guest, in seconds of the long form.
    lives: Vec<(f64, f64)>,
    actions: Vec<TimelineAction>,
    end: f64,
    scale: f64,
}

impl TimelineBuilder {
    fn act(&mut self, at: f64, deed: GuestAction) {
        self.actions.push(TimelineAction { at: Duration::from_secs_f64(at * self.scale), deed });
    }

    /// Times of the repetitions of a step.
    fn moments(&self, step: &TimelineTable) -> Result<Vec<f64>, String> {
        let (times, every) = (step.times.unwrap_or(1), step.every.unwrap_or(0.0));
        if times == 0 || times > MOST_TIMES {
            return Err(format!("times goes from 1 to {MOST_TIMES}"));
        }
        let moments: Vec<f64> = (0..times).map(|number| step.at + every * f64::from(number)).collect();
        let is_within = |at: &f64| (0.0..self.end).contains(at);
        if every < 0.0 || !moments.iter().all(is_within) {
            return Err(format!("it would happen before 0 s or after the end of the long form, {} s", self.end));
        }
        Ok(moments)
    }

    fn starts(&mut self, step: &TimelineTable, kinds: &BTreeMap<String, LabGuestKind>) -> Result<(), String> {
        let name = step.start.as_deref().unwrap_or_default();
        let kind = kinds.get(name).ok_or_else(|| format!("there is no guest {name:?}"))?;
        let alone = [&step.stop, &step.rewrite, &step.refill, &step.work].iter().all(|verb| verb.is_none());
        if !alone || step.part.is_some() || step.percent.is_some() || step.khugepaged.is_some() {
            return Err("start takes at, times, every and lifetime, and nothing else".to_owned());
        }
        let lifetime = step.lifetime.unwrap_or(f64::INFINITY);
        if lifetime.is_nan() || lifetime <= 0.0 {
            return Err("a lifetime is over 0".to_owned());
        }
        for at in self.moments(step)? {
            let prefix = format!("{name}-");
            let number = 1 + self.instances.iter().filter(|i| i.name.starts_with(&prefix)).count();
            let guest = self.instances.len();
            self.instances.push(GuestInstance { name: format!("{prefix}{number}"), kind: kind.clone() });
            self.lives.push((at, at + lifetime));
            self.act(at, GuestAction::Start(guest));
            if at + lifetime < self.end {
                self.act(at + lifetime, GuestAction::Stop(guest));
            }
        }
        Ok(())
    }

    fn happens(&mut self, step: &TimelineTable) -> Result<(), String> {
        if let Some(settings) = step.khugepaged {
            return self.khugepaged(step, settings);
        }
        let verbs = [&step.stop, &step.rewrite, &step.refill, &step.work];
        let mut named = verbs.into_iter().flatten();
        let (Some(name), None) = (named.next(), named.next()) else {
            return Err("a step takes exactly one of start, stop, rewrite, refill, work and khugepaged".to_owned());
        };
        let takes_part = step.rewrite.is_some() || step.refill.is_some();
        if step.lifetime.is_some()
            || takes_part != step.part.is_some()
            || step.work.is_some() != step.percent.is_some()
        {
            return Err("rewrite and refill take a part, work takes percent, start may take lifetime".to_owned());
        }
        for at in self.moments(step)? {
            let guests = self.named(name, at)?;
            for guest in guests {
                let deed = self.deed(step, guest)?;
                if let (GuestAction::Stop(_), Some(life)) = (&deed, self.lives.get_mut(guest)) {
                    life.1 = at;
                    // Replaces a later stop that follows from its lifetime.
                    self.actions.retain(|action| action.deed != GuestAction::Stop(guest));
                }
                self.act(at, deed);
            }
        }
        Ok(())
    }

    fn khugepaged(&mut self, step: &TimelineTable, settings: KhugepagedTable) -> Result<(), String> {
        let verbs = [&step.stop, &step.rewrite, &step.refill, &step.work];
        let is_alone = verbs.iter().all(|verb| verb.is_none())
            && step.lifetime.is_none()
            && step.part.is_none()
            && step.percent.is_none();
        let KhugepagedTable { pages_to_scan, scan_sleep_millisecs } = settings;
        if !is_alone || pages_to_scan == 0 {
            return Err("khugepaged takes at, times and every; pages_to_scan is over 0".to_owned());
        }
        let settings = KhugepagedPace { pages_to_scan, scan_sleep_millisecs };
        for at in self.moments(step)? {
            self.act(at, GuestAction::Khugepaged(settings));
        }
        Ok(())
    }

    fn deed(&self, step: &TimelineTable, guest: usize) -> Result<GuestAction, String> {
        if step.stop.is_some() {
            return Ok(GuestAction::Stop(guest));
        }
        let known = |GuestInstance { name, kind }: &GuestInstance| Some((name.clone(), kind.contents()?.clone()));
        let Some((name, contents)) = self.instances.get(guest).and_then(known) else {
            return Err("only guests with parts can be told to do something".to_owned());
        };
        if let Some(percent) = step.percent {
            let has_work =
                contents.0.iter().any(|part| matches!(part, MemoryPart::Work { pages, .. } if *pages > 0));
            if !has_work || percent > 100 {
                return Err(format!("{name} needs a part for work, and percent is at most 100"));
            }
            return Ok(GuestAction::Work { guest, percent });
        }
        let part = step.part.unwrap_or_default();
        match contents.0.get(part) {
            Some(MemoryPart::Equal { .. } | MemoryPart::Zero { .. } | MemoryPart::Unique { .. }) => {}
            _ => return Err(format!("{name} has no part {part} (from 0) that can be rewritten and refilled")),
        }
        Ok(if step.rewrite.is_some() {
            GuestAction::Rewrite { guest, part }
        } else {
            GuestAction::Refill { guest, part }
        })
    }

    /// The guests of this name at that time: one by its full name, or all of a kind.
    fn named(&self, name: &str, at: f64) -> Result<Vec<usize>, String> {
        let is_meant = |instance: &GuestInstance| {
            instance.name == name || instance.name.rsplit_once('-').is_some_and(|(kind, _)| kind == name)
        };
        let there = |guest: &usize| self.lives.get(*guest).is_some_and(|(from, to)| *from <= at && at < *to);
        let meant = self.instances.iter().enumerate().filter(|(_, instance)| is_meant(instance));
        let guests: Vec<usize> = meant.map(|(guest, _)| guest).filter(there).collect();
        if guests.is_empty() {
            return Err(format!("there is no guest {name:?} at {at} s"));
        }
        Ok(guests)
    }
}
