//! Scenarios describe guests and a timeline of events. They are read from TOML; an unknown key or name is refused
//! with its line and column. `docs/internals/lab.md` describes the format.

mod file;
mod guest;
mod size;
mod timeline;

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ksmith_core::decide::PolicyLimits;

pub use guest::{LabGuestKind, QemuGuest};
pub use timeline::{GuestAction, GuestInstance, TimelineAction};

use self::file::ScenarioFile;
use crate::GuestPages;
use ksmith_host::bad_file::{BadFile, read_text};

/// The two forms of a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum ScenarioForm {
    /// About a minute, with smaller guests.
    #[default]
    Short,
    /// About five minutes, at full size.
    Long,
}

impl ScenarioForm {
    /// The name of the form: `short` or `long`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Short => "short",
            Self::Long => "long",
        }
    }
}

/// A scenario in one of its forms, ready to be played.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// Name of the file, without `.toml`.
    pub name: String,
    /// Description in one sentence.
    pub about: String,
    /// Duration from the first moment of the timeline.
    pub duration: Duration,
    /// Limits of every ksmith daemon.
    pub limits: PolicyLimits,
    /// Guests, in the order in which they start.
    pub instances: Vec<GuestInstance>,
    /// Actions of the timeline, in order.
    pub actions: Vec<TimelineAction>,
}

/// An error of loading a scenario.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// The file can't be read or is refused.
    #[error(transparent)]
    File(#[from] BadFile),
    /// No directory has a file of this name.
    #[error("there is no scenario {name:?}; there are: {known}")]
    Unknown {
        /// The name that was given.
        name: String,
        /// The names of all scenarios.
        known: String,
    },
}

/// A fault in the text, with its place.
#[derive(Debug)]
struct TextFault(Range<usize>, String);

impl Scenario {
    /// Reads the scenario at `path`.
    ///
    /// # Errors
    /// The file can't be read or is refused.
    pub fn load(path: &Path, form: ScenarioForm) -> Result<Self, ScenarioError> {
        let text = read_text(path).map_err(|source| BadFile::Unreadable {
            what: "scenario",
            path: path.to_owned(),
            source,
        })?;
        Self::parse(path, &text, form)
    }

    /// Reads the text of the scenario at `path`.
    ///
    /// # Errors
    /// A key, name or value is not valid.
    pub fn parse(path: &Path, text: &str, form: ScenarioForm) -> Result<Self, ScenarioError> {
        let refuse = |message: String| ScenarioError::from(BadFile::Meaningless { path: path.to_owned(), message });
        let file: ScenarioFile =
            toml::from_str(text).map_err(|error| refuse(error.to_string().trim_end().to_owned()))?;
        let name = path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
        Self::mean(name, file, form).map_err(|TextFault(span, what)| {
            let before = text.get(..span.start).unwrap_or(text);
            let line = before.matches('\n').count() + 1;
            let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
            refuse(format!("line {line}, column {column}: {what}"))
        })
    }

    fn mean(name: String, file: ScenarioFile, form: ScenarioForm) -> Result<Self, TextFault> {
        let (long, short) = (file.long.seconds, file.short.seconds);
        let is_sound = |value: f64| value.is_finite() && value > 0.0;
        if ![long, short, file.short.memory].into_iter().all(is_sound) || long.max(short) > 86_400.0 {
            let why = "the seconds and memory of a form must be over 0, and no form longer than a day";
            return Err(TextFault(0..0, why.to_owned()));
        }
        let (seconds, memory) = match form {
            ScenarioForm::Long => (long, 1.0),
            ScenarioForm::Short => (short, file.short.memory),
        };
        let kinds = guest::kinds(file.guests, file.huge, memory)?;
        let (instances, actions) = timeline::expand(&file.timeline, &kinds, long, seconds / long)?;
        Ok(Self {
            name,
            about: file.about,
            duration: Duration::from_secs_f64(seconds),
            limits: file.limits,
            instances,
            actions,
        })
    }

    /// The most memory that the guests use at the same time, in bytes.
    pub fn peak_bytes(&self) -> u64 {
        let (mut now, mut peak) = (0_u64, 0_u64);
        for action in &self.actions {
            let bytes = |instance: &usize| self.instances.get(*instance).map_or(0, |i| i.kind.bytes());
            match &action.deed {
                GuestAction::Start(instance) => now += bytes(instance),
                GuestAction::Stop(instance) => now = now.saturating_sub(bytes(instance)),
                GuestAction::Rewrite { .. }
                | GuestAction::Refill { .. }
                | GuestAction::Work { .. }
                | GuestAction::Khugepaged(_) => {}
            }
            peak = peak.max(now);
        }
        peak
    }

    /// Puts the known contents of all guests on such pages, whatever the file says.
    pub fn set_pages(&mut self, pages: GuestPages) {
        for instance in &mut self.instances {
            instance.kind = instance.kind.clone().on_pages(pages);
        }
    }

    /// Returns the pages that the memory of all guests is on. `None` if they differ, or are not known.
    pub fn pages(&self) -> Option<GuestPages> {
        let mut all = self.instances.iter().map(|instance| instance.kind.pages());
        let first = all.next()??;
        all.all(|other| other == Some(first)).then_some(first)
    }

    /// Returns true if savings are judged by the guests' page tables. KSM's counters do not tell of guests on huge pages: they miss
    /// what splits save and what khugepaged undoes. Page tables do not tell of contents that are not known.
    pub fn is_judged_by_page_tables(&self) -> bool {
        self.has_huge_guests() && self.instances.iter().all(|instance| instance.kind.contents().is_some())
    }

    /// Returns true if a guest with known contents is on huge pages.
    pub fn has_huge_guests(&self) -> bool {
        self.instances.iter().any(|instance| instance.kind.is_huge())
    }

    /// The missing files that its guests need, each with a hint on how to get it.
    pub fn missing_files(&self) -> Vec<String> {
        let mut missing: Vec<String> = self.instances.iter().flat_map(|i| i.kind.missing_files()).collect();
        missing.dedup();
        missing
    }
}

/// Finds a scenario by its path, or by its name in one of `places`.
///
/// # Errors
/// No scenario has this name; the message lists all names.
pub fn find(name: &str, places: &[PathBuf]) -> Result<PathBuf, ScenarioError> {
    let path = Path::new(name);
    if path.extension().is_some_and(|extension| extension == "toml") || name.contains('/') {
        return Ok(path.to_owned());
    }
    let named = places.iter().map(|place| place.join(format!("{name}.toml"))).find(|path| path.exists());
    named.ok_or_else(|| {
        let known: Vec<String> =
            list(places).iter().filter_map(|path| Some(path.file_stem()?.to_string_lossy().into_owned())).collect();
        let known = if known.is_empty() {
            "none here; the package ksmith-lab puts them in /usr/share/ksmith/scenarios".to_owned()
        } else {
            known.join(", ")
        };
        ScenarioError::Unknown { name: name.to_owned(), known }
    })
}

/// Lists the scenario files in `places`, sorted by name.
pub fn list(places: &[PathBuf]) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = places
        .iter()
        .filter_map(|place| fs::read_dir(place).ok())
        .flat_map(|entries| entries.flatten().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .collect();
    found.sort_by_key(|path| path.file_name().map(ToOwned::to_owned));
    found.dedup_by_key(|path| path.file_name().map(ToOwned::to_owned));
    found
}

#[cfg(test)]
mod tests;
