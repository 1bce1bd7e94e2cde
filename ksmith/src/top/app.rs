//! The state of `ksmith top`.

use std::time::Duration;

use ksmith_core::guest::{Guest, GuestId};
use ksmith_core::printable::TextPage;

use super::decisions::DecisionLog;
use super::event::{HostSnapshot, TopEvent, TopRequest};
use super::layout;
use super::list::GuestListView;
use super::series::ChartSeries;
use super::sieve::GuestFilter;

/// The content of the middle of the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TopView {
    /// The list of guests.
    Guests,
    /// The page of one guest.
    Guest(GuestId),
    /// The decisions of the policy.
    Decisions,
    /// The pool, its guests and the plan.
    Balance,
    /// The keys.
    Help,
}

/// The diagnosis of a guest's memory.
#[derive(Debug, Clone)]
pub(super) enum GuestDiagnosis {
    /// The guest is being examined, since the sample of this time.
    UnderWay(Duration),
    /// The diagnosis, or the reason why there is none.
    Known(Result<TextPage, String>),
}

/// A filter that is being typed.
#[derive(Debug, Clone, Default)]
pub(super) struct FilterPrompt {
    pub text: String,
    pub error: Option<String>,
}

/// The state that the screen is drawn from.
#[derive(Debug)]
pub struct TopApp {
    pub(super) size: (u16, u16),
    pub(super) has_colours: bool,
    pub(super) view: TopView,
    pub(super) sight: Option<HostSnapshot>,
    /// The newest figures that came while the screen was held.
    pub(super) held: Option<HostSnapshot>,
    pub(super) is_held: bool,
    pub(super) series: ChartSeries,
    pub(super) decisions: DecisionLog,
    pub(super) list: GuestListView,
    pub(super) prompt: Option<FilterPrompt>,
    /// The first line that is shown of a page.
    pub(super) scroll: usize,
    /// The guest that was examined last.
    pub(super) explained: Option<(GuestId, GuestDiagnosis)>,
}

impl TopApp {
    /// Returns the state before the first sample, on a terminal of so many columns and lines.
    pub fn new(size: (u16, u16), has_colours: bool) -> Self {
        Self {
            size,
            has_colours,
            view: TopView::Guests,
            sight: None,
            held: None,
            is_held: false,
            series: ChartSeries::default(),
            decisions: DecisionLog::default(),
            list: GuestListView::default(),
            prompt: None,
            scroll: 0,
            explained: None,
        }
    }

    /// Handles an event. Returns a request to the shell, if there is one.
    pub fn update(&mut self, event: TopEvent) -> Option<TopRequest> {
        match event {
            TopEvent::Key(key) => self.press(key),
            TopEvent::Mouse(mouse) => self.point(mouse),
            TopEvent::Resize(columns, lines) => {
                self.size = (columns, lines);
                None
            }
            TopEvent::Seen(sight) => {
                self.record_snapshot(*sight);
                None
            }
            TopEvent::Explained(guest, page) => {
                if matches!(&self.explained, Some((asked, _)) if *asked == guest) {
                    self.explained = Some((guest, GuestDiagnosis::Known(page)));
                }
                None
            }
        }
    }

    fn record_snapshot(&mut self, sight: HostSnapshot) {
        self.series.push(&sight.status);
        if let Some(note) = &sight.note {
            self.decisions.record_note(sight.at, note);
        }
        if let Some(daemon) = &sight.status.daemon {
            self.decisions.push(sight.at, daemon);
        }
        if self.is_held {
            self.held = Some(sight);
        } else {
            self.sight = Some(sight);
        }
    }

    /// Holds the screen, or resumes it.
    pub(super) fn hold(&mut self) {
        self.is_held = !self.is_held;
        if let Some(sight) = self.held.take() {
            self.sight = Some(sight);
        }
    }

    /// Switches to another view, at its beginning.
    pub(super) fn go(&mut self, view: TopView) {
        self.view = view;
        self.scroll = 0;
    }

    /// Returns the guest of the page, if it is still there.
    pub(super) fn guest(&self, id: GuestId) -> Option<&Guest> {
        self.sight.as_ref()?.guests.guests.iter().find(|guest| guest.id() == id)
    }

    /// Requests a diagnosis of the guest, unless one is under way.
    pub(super) fn explain(&mut self, id: GuestId) -> Option<TopRequest> {
        if matches!(self.explained, Some((asked, GuestDiagnosis::UnderWay(_))) if asked == id) {
            return None;
        }
        let processes = self.guest(id)?.processes.clone();
        let now = self.sight.as_ref()?.at;
        self.explained = Some((id, GuestDiagnosis::UnderWay(now)));
        // What comes stands below the figures.
        self.scroll = layout::lines_of(&self.facts(id), self.size.0);
        Some(TopRequest::Explain(id, processes))
    }

    /// Applies the typed text as the filter. An error stays with the text.
    pub(super) fn take_filter(&mut self) {
        let Some(prompt) = &mut self.prompt else { return };
        let text = prompt.text.trim();
        if text.is_empty() {
            self.list.sieve = None;
            self.prompt = None;
            return;
        }
        match GuestFilter::parse(text) {
            Ok(sieve) => {
                self.list.sieve = Some(sieve);
                self.prompt = None;
            }
            Err(error) => prompt.error = Some(error.to_string()),
        }
    }
}
