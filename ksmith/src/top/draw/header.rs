//! The header: savings, costs, the state of the policy, and charts of the last minutes.

use ksmith_core::account::HostTotals;
use ksmith_core::printable::{OneLine, TextTone};
use ksmith_core::units::Bytes;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{RenderDirection, Sparkline, SparklineBar};

use super::super::app::{TopApp, TopView};
use super::super::event::HostSnapshot;
use crate::show::{cut, status, width};

/// Cells before a chart, for its name and its largest value.
const BEFORE_CHART: u16 = 16;

impl TopApp {
    pub(super) fn draw_header(&self, frame: &mut Frame<'_>, area: Rect) {
        let columns = usize::from(area.width);
        let Some(sight) = &self.sight else {
            return self.line(frame, 0, "ksmith top: looking at the host …");
        };
        self.line(frame, 0, self.title(sight, columns));
        self.line(frame, 1, self.totals(sight));
        self.line(frame, 2, use_line(sight, columns));
        self.line(frame, 3, self.policy(sight, columns));
        let charts = Rect { y: 4, height: area.height - 5, ..area };
        self.draw_charts(frame, charts);
        self.line(frame, area.height - 1, self.state(columns));
    }

    fn title(&self, sight: &HostSnapshot, columns: usize) -> Line<'static> {
        let from = match (&sight.status.daemon, self.is_held) {
            (_, true) => "HELD: Space goes on".to_owned(),
            (Some(daemon), _) => format!("daemon pid {}", daemon.pid),
            (None, _) => "from the kernel, no daemon".to_owned(),
        };
        let headline = OneLine(status::headline(&sight.status)).to_string();
        let headline = cut(&headline, columns.saturating_sub(width(&from) + 2));
        let gap = columns.saturating_sub(width(&from) + width(&headline));
        let bold = Style::new().add_modifier(Modifier::BOLD);
        Line::from(vec![Span::styled(headline, bold), Span::raw(" ".repeat(gap)), Span::raw(from)])
    }

    fn totals(&self, sight: &HostSnapshot) -> Line<'static> {
        if !sight.status.sample.ksm.is_present() {
            return Line::from("");
        }
        let totals = HostTotals::from_sample(&sight.status.sample);
        if totals.is_unknown {
            return Line::from("saved: unknown, because KSM's counters can't be read");
        }
        let headroom = totals.headroom_bytes.map_or("unknown".to_owned(), |bytes| Bytes::from(bytes).to_string());
        let before = format!("saved {}  profit ", Bytes::from(totals.saved_bytes));
        let profit = Bytes::from(totals.profit_bytes).to_string();
        let exposure = format!("exposure {}", Bytes::from(totals.exposure_bytes));
        let is_over = totals.is_overexposed();
        let tone = is_over.then_some(TextTone::Problem);
        let relation = if is_over { " OVER headroom " } else { "  headroom " };
        let style = |tone: Option<TextTone>| tone.map_or(Style::new(), |tone| self.style(tone));
        let profit_tone = match totals.profit_bytes {
            0 => None,
            profit if profit < 0 => Some(TextTone::Warning),
            _ => Some(TextTone::Good),
        };
        Line::from(vec![
            Span::raw(before),
            Span::styled(profit, style(profit_tone)),
            Span::raw("  "),
            Span::styled(exposure, style(tone)),
            Span::styled(relation, style(tone)),
            Span::raw(headroom),
        ])
    }

    fn policy(&self, sight: &HostSnapshot, columns: usize) -> Line<'static> {
        let text = match (&sight.note, &sight.status.daemon) {
            (Some(note), _) => {
                return Line::styled(cut(&OneLine(note).to_string(), columns), self.style(TextTone::Warning));
            }
            (None, Some(daemon)) => format!("policy {}: {}, {}", daemon.policy, daemon.state, daemon.reason),
            (None, None) => "policy none: no daemon controls KSM here".to_owned(),
        };
        Line::from(cut(&OneLine(text).to_string(), columns))
    }

    /// Returns the line with the view, and the order of the list.
    fn state(&self, columns: usize) -> Line<'static> {
        let views = [
            ("1 guests", matches!(self.view, TopView::Guests | TopView::Guest(_))),
            ("2 decisions", self.view == TopView::Decisions),
            ("3 balance", self.view == TopView::Balance),
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
        let bytes = |largest: u64| Bytes::from(largest).to_string();
        let percent = |largest: u64| format!("{:.1} %", largest as f64 / 10.0);
        chart(frame, left, "saved", self.series.saved(), bytes);
        chart(frame, right, "ksmd", self.series.ksmd(), percent);
    }
}

/// Draws a chart with its name and its largest value, the newest value on the right.
fn chart(
    frame: &mut Frame<'_>,
    area: Rect,
    name: &str,
    values: impl Iterator<Item = Option<u64>>,
    show: impl Fn(u64) -> String,
) {
    let room = area.width.saturating_sub(BEFORE_CHART + 1);
    let values: Vec<Option<u64>> = values.take(room.into()).collect();
    let largest = values.iter().flatten().max().copied();
    let before = format!("{name} ≤{}", largest.map_or("-".to_owned(), show));
    frame.render_widget(
        Span::raw(cut(&before, BEFORE_CHART.into())),
        Rect { height: 1, width: BEFORE_CHART, ..area },
    );
    let bars = values.into_iter().map(SparklineBar::from);
    let line = Sparkline::default()
        .data(bars.collect::<Vec<_>>())
        .max(largest.unwrap_or(1).max(1))
        .direction(RenderDirection::RightToLeft);
    frame.render_widget(line, Rect { x: area.x + BEFORE_CHART, width: room, ..area });
}

/// Returns the line with ksmd's CPU, the host's memory pressure, and what splits of huge pages cost.
fn use_line(sight: &HostSnapshot, columns: usize) -> String {
    let ksmd = sight.status.ksmd_cpu_percent.map_or("-".to_owned(), |percent| format!("{percent:.1} %"));
    let pressure = sight.status.sample.memory_pressure.value();
    let pressure =
        pressure.and_then(|psi| psi.some.avg10).map_or("-".to_owned(), |percent| format!("{percent:.1} %"));
    let daemon = sight.status.daemon.as_ref().map_or(String::new(), |daemon| {
        let share = 100.0 * daemon.cpu_seconds / daemon.uptime_seconds.max(1.0);
        format!("  daemon CPU {share:.2} %, {}", Bytes::from(daemon.rss_bytes))
    });
    let split = HostTotals::from_sample(&sight.status.sample).split.filter(|split| split.bytes > 0);
    let splits = split.map_or(String::new(), |split| format!("  splits cost ≤{:.2} CPU", split.cost_cpus()));
    let all = sight.guests.guests.len();
    let notes = match sight.notes().len() {
        0 => String::new(),
        notes => format!("  notes: {notes}, see 2"),
    };
    let text = format!("ksmd CPU {ksmd}  memory pressure {pressure}{daemon}{splits}  guests {all}{notes}");
    cut(&text, columns)
}
