//! The header: savings, costs, the state of the policy, and charts of the last minutes.

use ksmith_core::account::HostTotals;
use ksmith_core::printable::{OneLine, TextTone};
use ksmith_core::units::Bytes;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

use super::super::app::{TopApp, TopView};
use super::super::event::HostSnapshot;
use super::super::figures::HeaderFigures;
use super::chart::{KSMD, SAVED};
use super::figure_line::{RankedFigure, fit_figures};
use crate::show::{cut, status, width};

/// Lines of the header above the charts.
const ABOVE_CHARTS: u16 = 5;

impl TopApp {
    pub(super) fn draw_header(&self, frame: &mut Frame<'_>, area: Rect) {
        let columns = usize::from(area.width);
        let Some(figures) = self.figures() else {
            let nothing = match self.replay {
                Some(_) => "ksmith top: nothing was recorded in that time",
                None => "ksmith top: looking at the host …",
            };
            return self.line(frame, 0, nothing);
        };
        self.line(frame, 0, self.title(columns));
        self.line(frame, 1, self.memory_bar(&figures, columns));
        self.line(frame, 2, self.memory_legend(&figures));
        self.line(frame, 3, self.figures_line(&figures, columns));
        self.line(frame, 4, self.policy(columns));
        let height = area.height.saturating_sub(ABOVE_CHARTS + 1);
        self.draw_charts(frame, Rect { y: ABOVE_CHARTS, height, ..area });
        self.line(frame, area.height - 1, self.state(columns));
    }

    fn title(&self, columns: usize) -> Line<'static> {
        let (headline, from) = match (&self.replay, &self.sight) {
            (Some(replay), _) => {
                let clock = replay.moment().map_or(String::new(), |moment| moment.clock.clone());
                (format!("REPLAY {clock}"), format!("{}  t forth  T back", replay.place_in_words()))
            }
            (None, Some(sight)) => {
                let from = match &sight.status.daemon {
                    _ if self.is_held => "HELD: Space goes on".to_owned(),
                    Some(daemon) => format!("daemon pid {}", daemon.pid),
                    None => "from the kernel, no daemon".to_owned(),
                };
                (status::headline(&sight.status), from)
            }
            (None, None) => (String::new(), String::new()),
        };
        let headline = cut(&OneLine(headline).to_string(), columns.saturating_sub(width(&from) + 2));
        let gap = columns.saturating_sub(width(&from) + width(&headline));
        let bold = Style::new().add_modifier(Modifier::BOLD);
        Line::from(vec![Span::styled(headline, bold), Span::raw(" ".repeat(gap)), Span::raw(from)])
    }

    /// Returns the line with what is saved, ksmd's CPU, the host's memory pressure, and what splits of huge pages cost,
    /// as far as there is room.
    fn figures_line(&self, figures: &HeaderFigures, columns: usize) -> Line<'static> {
        let saved = figures.saved_bytes.map_or("unknown".to_owned(), |bytes| Bytes::from(bytes).to_string());
        let profit = figures.profit_bytes.map_or("-".to_owned(), |bytes| Bytes::from(bytes).to_string());
        let profit_style = match figures.profit_bytes {
            None | Some(0) => Style::new(),
            Some(..0) => self.style(TextTone::Warning),
            Some(_) => self.style(TextTone::Good),
        };
        let percent = |percent: Option<f64>| percent.map_or("-".to_owned(), |percent| format!("{percent:.1} %"));
        let mut line = vec![
            rank_figure(100, format!("saved {saved}")),
            RankedFigure::new(90, [Span::raw("profit "), Span::styled(profit, profit_style)]),
            rank_figure(80, format!("ksmd CPU {}", percent(figures.ksmd_percent))),
            rank_figure(60, format!("pressure {}", percent(figures.pressure_percent))),
        ];
        line.extend(self.sight.as_ref().map(list_sight_figures).unwrap_or_default());
        fit_figures(line, columns)
    }

    /// Returns the line with the policy's state and its reason at the moment that is shown.
    fn policy(&self, columns: usize) -> Line<'static> {
        let sight = self.sight.as_ref().filter(|_| self.replay.is_none());
        if let Some(note) = sight.and_then(|sight| sight.note.as_ref()) {
            return Line::styled(cut(&OneLine(note).to_string(), columns), self.style(TextTone::Warning));
        }
        let daemon = sight.and_then(|sight| sight.status.daemon.as_ref());
        let text = match (daemon, self.decisions.until(self.moment()).next()) {
            (Some(daemon), _) => format!("policy {}: {}, {}", daemon.policy, daemon.state, daemon.reason),
            (None, Some(decision)) if self.replay.is_some() => {
                format!("policy {}, {}", decision.state, decision.reason)
            }
            (None, _) if self.replay.is_some() => "policy -: no decision was recorded before".to_owned(),
            (None, _) => "policy none: no daemon controls KSM here".to_owned(),
        };
        Line::from(cut(&OneLine(text).to_string(), columns))
    }

    /// Returns the line with the view, and the order of the list.
    fn state(&self, columns: usize) -> Line<'static> {
        let views = [
            ("1 guests", matches!(self.view, TopView::Guests | TopView::Guest(_))),
            ("2 decisions", self.view == TopView::Decisions),
            ("3 balance", self.view == TopView::Balance),
            ("4 charts", self.view == TopView::Charts),
        ];
        let mut spans = Vec::new();
        for (name, is_shown) in views {
            let style = if is_shown { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() };
            spans.push(Span::styled(format!(" {name} "), style));
        }
        if self.view == TopView::Guests {
            let order = self.list.order();
            let arrow = if self.list.is_reversed { "▲" } else { "▼" };
            let mut state = format!("  order {order} {arrow}");
            if let Some(label) = self.list.label() {
                state.push_str(&format!("  by {}", label.field.name));
            }
            if let Some(sieve) = &self.list.sieve {
                state.push_str(&format!("  filter {}", OneLine(&sieve.text)));
            }
            let used: usize = spans.iter().map(|span| width(&span.content)).sum();
            spans.push(Span::raw(cut(&state, columns.saturating_sub(used))));
        }
        Line::from(spans)
    }

    fn draw_charts(&self, frame: &mut Frame<'_>, area: Rect) {
        let half = area.width / 2;
        let left = Rect { width: half.saturating_sub(1), ..area };
        let right = Rect { x: half, width: area.width - half, ..area };
        self.draw_chart(frame, left, SAVED);
        self.draw_chart(frame, right, KSMD);
    }
}

fn rank_figure(importance: u8, text: String) -> RankedFigure {
    RankedFigure::new(importance, [Span::raw(text)])
}

/// Returns the guests, the notes, and the costs of splits and of the daemon. What calls for a look is the most important.
fn list_sight_figures(sight: &HostSnapshot) -> Vec<RankedFigure> {
    let mut figures = vec![rank_figure(50, format!("guests {}", sight.guests.guests.len()))];
    let notes = sight.notes().len();
    if notes > 0 {
        figures.push(rank_figure(70, format!("notes: {notes}, see 2")));
    }
    if let Some(split) = HostTotals::from_sample(&sight.status.sample).split.filter(|split| split.bytes > 0) {
        figures.push(rank_figure(40, format!("splits cost ≤{:.2} CPU", split.cost_cpus())));
    }
    if let Some(daemon) = &sight.status.daemon {
        let share = 100.0 * daemon.cpu_seconds / daemon.uptime_seconds.max(1.0);
        let memory = Bytes::from(daemon.rss_bytes);
        figures.push(rank_figure(30, format!("daemon CPU {share:.2} %, {memory}")));
    }
    figures
}
