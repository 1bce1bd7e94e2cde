//! Figures of the history over time, drawn with characters.

use ksmith_core::field::FigureUnit;
use ksmith_core::printable::TextPage;
use ksmith_core::units::Bytes;
use ksmith_record::{HistoryReport, columns, times};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::symbols::Marker;
use ratatui::widgets::{Axis, Chart, Dataset, GraphType, Widget};

/// Lines of each plot, with its axis.
const HEIGHT: u16 = 14;

/// Width of the narrowest plot.
const LEAST: u16 = 40;

/// Plots each figure of a report by itself, as wide as the terminal.
pub fn plot(report: &HistoryReport, width: u16) -> TextPage {
    let mut page = TextPage::new();
    if report.rows.is_empty() {
        page.line("nothing was recorded in that time");
        return page;
    }
    for (at, name) in report.columns.iter().enumerate().skip(1) {
        let point = |row: &Vec<serde_json::Value>| Some((row.first()?.as_f64()?, row.get(at)?.as_f64()?));
        let points: Vec<(f64, f64)> = report.rows.iter().filter_map(point).collect();
        match report.label {
            Some(_) => page.line(name),
            None => page.line(columns::format_heading(name)),
        }
        match points.is_empty() {
            true => page.line("  unknown in all that time"),
            false => {
                let figure = if report.label.is_some() { "saved_bytes" } else { name.as_str() };
                page.lines(picture(report, figure, &points, width.max(LEAST)));
            }
        }
        page.line("");
    }
    page
}

fn picture(report: &HistoryReport, name: &str, points: &[(f64, f64)], width: u16) -> Vec<String> {
    let least = points.iter().map(|point| point.1).fold(0.0, f64::min);
    let most = points.iter().map(|point| point.1).fold(least + 1e-9, f64::max);
    let label = |value: f64| label(name, value);
    let line = Dataset::default().marker(Marker::Braille).graph_type(GraphType::Line).data(points);
    let time = |seconds: f64| times::local((seconds * 1000.0) as i64);
    let across =
        Axis::default().bounds([report.since, report.until]).labels([time(report.since), time(report.until)]);
    let up = Axis::default().bounds([least, most]).labels([label(least), label((least + most) / 2.0), label(most)]);
    let area = Rect::new(0, 0, width, HEIGHT);
    let mut buffer = Buffer::empty(area);
    Chart::new(vec![line]).x_axis(across).y_axis(up).render(area, &mut buffer);
    (0..HEIGHT)
        .map(|y| {
            let cells = (0..width).filter_map(|x| buffer.cell((x, y)));
            cells.map(|cell| cell.symbol()).collect::<String>().trim_end().to_owned()
        })
        .collect()
}

fn label(name: &str, value: f64) -> String {
    let known = columns::host().into_iter().chain(columns::guest()).find(|column| column.name == name);
    match known.map(|column| column.field.unit) {
        Some(FigureUnit::Bytes) => Bytes::from(value as i64).to_string(),
        Some(FigureUnit::Percent) => format!("{value:.1} %"),
        _ => format!("{value:.1}"),
    }
}
