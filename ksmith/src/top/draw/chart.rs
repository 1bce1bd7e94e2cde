//! Charts of the host's figures over time, with a scale, a grid, and the decisions as marks.

use std::time::Duration;

use ksmith_core::printable::TextTone;
use ksmith_core::units::{Bytes, TimeSpan};
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::Span;

use super::super::app::TopApp;
use super::super::series::ChartPoint;
use crate::show::{cut, width};

/// Cells before a chart, for its name and its scale.
const BEFORE_CHART: u16 = 16;

/// The least height of a chart with a scale, a grid and marks.
const LEAST_WITH_SCALE: u16 = 4;

/// Bars in eighths of a cell.
const BARS: [&str; 9] = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];

/// The mark of a decision.
const MARK: &str = "▼";

/// The line of the grid.
const GRID: &str = "┈";

/// A figure that is drawn over time.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChartFigure {
    name: &'static str,
    read: fn(&ChartPoint) -> Option<u64>,
    label: fn(u64) -> String,
}

/// The saved memory.
pub(super) const SAVED: ChartFigure =
    ChartFigure { name: "saved", read: |point| point.saved_bytes, label: |bytes| Bytes::from(bytes).to_string() };

/// The CPU time that ksmd uses.
pub(super) const KSMD: ChartFigure = ChartFigure {
    name: "ksmd",
    read: |point| point.ksmd_permille,
    label: |permille| format!("{:.1} %", permille as f64 / 10.0),
};

/// Returns the eighths of a cell that a value fills in a row, of so many rows, the lowest first.
fn eighths(value: u64, largest: u64, rows: u16, row: u16) -> usize {
    let whole = u128::from(value) * u128::from(rows) * 8;
    // A value above 0 is seen.
    let filled = whole.div_ceil(u128::from(largest.max(1)));
    usize::try_from(filled.saturating_sub(u128::from(row) * 8)).unwrap_or(8).min(8)
}

impl TopApp {
    /// Draws a chart: one line on little room, else with its scale, a grid and the decisions.
    pub(super) fn draw_chart(&self, frame: &mut Frame<'_>, area: Rect, figure: ChartFigure) {
        let columns = area.width.saturating_sub(BEFORE_CHART + 1);
        let window = self.series.window(self.moment(), columns.into());
        let values = self.series.values(window, columns.into(), figure.read);
        let largest = values.iter().flatten().max().copied();
        let plot = Rect { x: area.x + BEFORE_CHART, width: columns, ..area };
        if area.height < LEAST_WITH_SCALE {
            let name = format!("{} ≤{}", figure.name, largest.map_or("-".to_owned(), figure.label));
            put(frame, area.x, area.y, &cut(&name, BEFORE_CHART.into()), Style::new());
            return draw_bars(frame, Rect { height: 1, ..plot }, &values, largest);
        }
        let (bold, faint) = (Style::new().add_modifier(Modifier::BOLD), self.style(TextTone::Faint));
        put(frame, area.x, area.y, figure.name, bold);
        for at in self.decisions.times() {
            if let Some(column) = window.column(at, columns.into()).and_then(|column| u16::try_from(column).ok()) {
                put(frame, plot.x + column, area.y, MARK, bold);
            }
        }
        let plot = Rect { y: area.y + 1, height: area.height - 2, ..plot };
        let middle = plot.y + plot.height / 2;
        for y in [plot.y, middle] {
            put(frame, plot.x, y, &GRID.repeat(columns.into()), faint);
        }
        if let Some(largest) = largest {
            // The middle line is the upper edge of its row.
            let rows = u64::from(plot.height);
            let below = u64::from(plot.bottom() - middle);
            let of_middle = u64::try_from(u128::from(largest) * u128::from(below) / u128::from(rows.max(1)));
            for (y, value) in [(plot.y, largest), (middle, of_middle.unwrap_or(largest)), (plot.bottom() - 1, 0)] {
                let label = format!("{:>1$} ", (figure.label)(value), usize::from(BEFORE_CHART) - 1);
                put(frame, area.x, y, &label, faint);
            }
        }
        draw_bars(frame, plot, &values, largest);
        let ago = |seconds: f64| TimeSpan(Duration::from_secs(seconds.max(0.0).round() as u64)).to_string();
        let (begin, end) = (format!("{} ago", ago(window.until - window.since)), self.moment_in_words());
        let gap = usize::from(columns).saturating_sub(width(&begin) + width(&end));
        put(
            frame,
            plot.x,
            area.bottom() - 1,
            &cut(&format!("{begin}{}{end}", " ".repeat(gap)), columns.into()),
            faint,
        );
    }
}

/// Draws a bar in each column. The grid stays where there is none.
fn draw_bars(frame: &mut Frame<'_>, area: Rect, values: &[Option<u64>], largest: Option<u64>) {
    let Some(largest) = largest else { return };
    for (x, value) in (area.x..area.right()).zip(values) {
        for (row, y) in (area.y..area.bottom()).rev().enumerate() {
            let row = u16::try_from(row).unwrap_or(u16::MAX);
            let filled = value.map_or(0, |value| eighths(value, largest, area.height, row));
            if let Some(bar) = BARS.get(filled).filter(|_| filled > 0) {
                // The grid is faint, the bar is not.
                put(frame, x, y, bar, Style::reset());
            }
        }
    }
}

/// Writes text at a place, as far as there is room.
fn put(frame: &mut Frame<'_>, x: u16, y: u16, text: &str, style: Style) {
    let room = u16::try_from(width(text)).unwrap_or(u16::MAX);
    let area = Rect { x, y, width: room, height: 1 }.intersection(frame.area());
    frame.render_widget(Span::styled(text.to_owned(), style), area);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_fills_its_rows_from_below() {
        let bar = |value| [0, 1, 2].map(|row| eighths(value, 24, 3, row));
        assert_eq!(bar(0), [0, 0, 0]);
        assert_eq!(bar(1), [1, 0, 0]);
        assert_eq!(bar(12), [8, 4, 0]);
        assert_eq!(bar(24), [8, 8, 8]);
        assert_eq!(eighths(1, u64::MAX, 3, 0), 1, "a value above 0 is seen");
        assert_eq!(eighths(u64::MAX, u64::MAX, u16::MAX, u16::MAX), 0);
    }
}
