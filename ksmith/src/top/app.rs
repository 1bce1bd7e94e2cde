//! The state of `ksmith top`.

use std::rc::Rc;
use std::time::Duration;

use ksmith_core::guest::{Guest, GuestId};
use ksmith_core::model::StatusReport;
use ksmith_core::printable::TextPage;

use super::decisions::DecisionLog;
use super::event::{HostSnapshot, TopEvent, TopRequest};
use super::figures::HeaderFigures;
use super::layout;
use super::list::{GuestListRows, GuestListView, GuestRowCache};
use super::replay::{PastFigures, ReplayState};
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
    /// The charts, as large as there is room.
    Charts,
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
    /// The number of snapshots that were shown so far.
    shown: u64,
    /// The newest figures that came while the screen was held.
    pub(super) held: Option<HostSnapshot>,
    pub(super) is_held: bool,
    /// The replay, where the past is shown.
    pub(super) replay: Option<ReplayState>,
    pub(super) series: ChartSeries,
    pub(super) decisions: DecisionLog,
    pub(super) list: GuestListView,
    row_cache: GuestRowCache,
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
            shown: 0,
            held: None,
            is_held: false,
            replay: None,
            series: ChartSeries::default(),
            decisions: DecisionLog::default(),
            list: GuestListView::default(),
            row_cache: GuestRowCache::default(),
            prompt: None,
            scroll: 0,
            explained: None,
        }
    }

    /// Returns the state with another order of the list and a filter, as the command line names them.
    ///
    /// # Errors
    /// The list can't be ordered by that, or the filter is none; the message says what can be.
    pub fn with_list(mut self, order: Option<&str>, filter: Option<&str>) -> Result<Self, String> {
        if let Some(order) = order {
            self.list.order_by_name(order)?;
        }
        self.list.sieve = filter.map(GuestFilter::parse).transpose().map_err(|error| error.to_string())?;
        Ok(self)
    }

    /// Returns the state of a replay that begins at a moment, in seconds since `ksmith top` started, and the request for
    /// its guests.
    pub fn replaying(mut self, past: PastFigures, at: f64) -> (Self, Option<TopRequest>) {
        let PastFigures { moments, decisions } = past;
        self.series.prefill(moments.iter().map(|moment| (moment.at, &moment.figures)));
        self.decisions.prefill(decisions);
        let replay = ReplayState::new(moments, at);
        let request = replay.moment().map(|moment| TopRequest::Recall(moment.at));
        self.replay = Some(replay);
        (self, request)
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
            TopEvent::Past(past) => {
                self.series.prefill(past.moments.iter().map(|moment| (moment.at, &moment.figures)));
                self.decisions.prefill(past.decisions);
                None
            }
            TopEvent::Recalled(guests) => {
                let status = StatusReport::default();
                let at = Duration::ZERO;
                self.show_snapshot(HostSnapshot { at, status, guests: *guests, balance: None, note: None });
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
        self.series.push(sight.at.as_secs_f64(), &HeaderFigures::from_status(&sight.status));
        if let Some(note) = &sight.note {
            self.decisions.record_note(sight.at, note);
        }
        if let Some(daemon) = &sight.status.daemon {
            self.decisions.push(sight.at, daemon);
        }
        if self.is_held {
            self.held = Some(sight);
        } else {
            self.show_snapshot(sight);
        }
    }

    fn show_snapshot(&mut self, sight: HostSnapshot) {
        self.sight = Some(sight);
        self.shown += 1;
    }

    /// Returns the rows of the list; `None` before the first snapshot.
    pub(super) fn rows(&self) -> Option<Rc<GuestListRows>> {
        let sight = self.sight.as_ref()?;
        Some(self.row_cache.rows(self.shown, &sight.guests, &self.list))
    }

    /// Returns the figures of the moment that is shown.
    pub(super) fn figures(&self) -> Option<HeaderFigures> {
        match &self.replay {
            Some(replay) => replay.moment().map(|moment| moment.figures),
            None => self.sight.as_ref().map(|sight| HeaderFigures::from_status(&sight.status)),
        }
    }

    /// Returns the moment that is shown, in seconds since `ksmith top` started.
    pub(super) fn moment(&self) -> f64 {
        match &self.replay {
            Some(replay) => replay.moment().map_or(0.0, |moment| moment.at),
            None => self.sight.as_ref().map_or(0.0, |sight| sight.at.as_secs_f64()),
        }
    }

    /// Returns the moment in words: `now`, or the time of a replay.
    pub(super) fn moment_in_words(&self) -> String {
        let moment = self.replay.as_ref().and_then(ReplayState::moment);
        moment.map_or("now".to_owned(), |moment| moment.clock.clone())
    }

    /// Steps a replay by so many moments. Returns the request for the guests of the new one.
    pub(super) fn step_replay(&mut self, by: isize) -> Option<TopRequest> {
        let replay = self.replay.as_mut()?;
        let is_new = replay.step(by);
        replay.moment().filter(|_| is_new).map(|moment| TopRequest::Recall(moment.at))
    }

    /// Holds the screen, or resumes it.
    pub(super) fn hold(&mut self) {
        self.is_held = !self.is_held;
        if let Some(sight) = self.held.take() {
            self.show_snapshot(sight);
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
        let is_under_way = matches!(self.explained, Some((asked, GuestDiagnosis::UnderWay(_))) if asked == id);
        // The memory of a replayed guest is past.
        if is_under_way || self.replay.is_some() {
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
