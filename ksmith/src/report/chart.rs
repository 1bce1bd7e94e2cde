//! The pictures of a report as SVG.

use ksmith_record::{HistoryReport, LabelSeries, times};
use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

const SIZE: (u32, u32) = (960, 420);
const FONT: i32 = 14;

/// The units of an axis of bytes, the largest first.
const BYTE_UNITS: [(&str, f64); 3] =
    [("GiB", (1_u64 << 30) as f64), ("MiB", (1_u64 << 20) as f64), ("KiB", (1_u64 << 10) as f64)];

/// Two colours that differ for any colour vision (Okabe and Ito, 2008).
const SAVED: RGBColor = RGBColor(0, 114, 178);
const SPENT: RGBColor = RGBColor(213, 94, 0);
const MARK: RGBColor = RGBColor(150, 150, 150);

/// The size of a picture with one chart.
const LOW: (u32, u32) = (960, 260);

/// The colours of a label's values, by the same authors. No more values are drawn.
pub const VALUES: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
];

/// A mark on the time axis.
#[derive(Debug, Clone, PartialEq)]
pub struct TimeMark {
    /// Seconds since 1970.
    pub time: f64,
}

/// Draws memory saved above ksmd's CPU, over the same time, with a mark for each decision.
///
/// # Errors
/// The picture can't be drawn.
pub fn saved_and_spent(report: &HistoryReport, marks: &[TimeMark]) -> anyhow::Result<String> {
    let line = |name: &str| -> Vec<(f64, f64)> {
        let Some(at) = report.columns.iter().position(|column| column == name) else { return Vec::new() };
        let point = |row: &Vec<serde_json::Value>| Some((row.first()?.as_f64()?, row.get(at)?.as_f64()?));
        report.rows.iter().filter_map(point).collect()
    };
    let saved = line("saved_bytes");
    let (unit, size) = choose_byte_unit(find_highest(&saved));
    let saved = saved.into_iter().map(|(time, bytes)| (time, bytes / size)).collect();
    let mut svg = String::new();
    let lines = [
        (format!("saved, {unit}"), saved, SAVED),
        ("ksmd, % of a CPU".to_owned(), line("ksmd_cpu_percent"), SPENT),
    ];
    draw(&mut svg, report, marks, lines)
        .map_err(|why| anyhow::anyhow!("can't draw the picture of the report: {why}"))?;
    Ok(svg)
}

/// Returns the largest unit in which the highest value is at least one.
fn choose_byte_unit(highest: f64) -> (&'static str, f64) {
    let fits = BYTE_UNITS.into_iter().find(|(_, size)| highest >= *size);
    fits.unwrap_or(("KiB", 1024.0))
}

/// Returns the highest value of a line, and 0 where there is none.
fn find_highest(points: &[(f64, f64)]) -> f64 {
    points.iter().map(|point| point.1).fold(0.0, f64::max)
}

/// Returns the top of an axis above its highest value. An axis without values has room for a thousandth.
fn axis_top(highest: f64) -> f64 {
    highest.max(0.001) * 1.08
}

/// Returns the time of the first row and the end of the report. The time before any record is not drawn; one without
/// records at the end is an outage, and is.
fn recorded_span(report: &HistoryReport) -> (f64, f64) {
    let since = report.rows.first().and_then(|row| row.first()?.as_f64()).unwrap_or(report.since);
    (since, report.until.max(since + 1.0))
}

/// Returns the digits after the point that tell the values on an axis apart.
fn count_digits(top: f64) -> usize {
    match top {
        _ if top >= 50.0 => 0,
        _ if top >= 5.0 => 1,
        _ if top >= 0.5 => 2,
        _ => 4,
    }
}

/// Draws memory saved by the guests with each value of a label, over the recorded time.
///
/// # Errors
/// The picture can't be drawn.
pub fn saved_by_value(report: &HistoryReport, series: &[&LabelSeries]) -> anyhow::Result<String> {
    let mut svg = String::new();
    draw_values(&mut svg, report, series)
        .map_err(|why| anyhow::anyhow!("can't draw the picture of a label: {why}"))?;
    Ok(svg)
}

fn draw_values(
    svg: &mut String,
    report: &HistoryReport,
    series: &[&LabelSeries],
) -> Result<(), Box<dyn std::error::Error>> {
    let area = SVGBackend::with_string(svg, LOW).into_drawing_area();
    area.fill(&WHITE)?;
    let highest = series.iter().map(|one| find_highest(&one.points)).fold(0.0, f64::max);
    let (unit, size) = choose_byte_unit(highest);
    let mut chart = chart_over_time(&area, report, axis_top(highest / size), &format!("saved, {unit}"))?;
    for (one, colour) in series.iter().zip(VALUES) {
        let points = one.points.iter().map(|(time, bytes)| (*time, bytes / size));
        chart
            .draw_series(LineSeries::new(points, colour.stroke_width(2)))?
            .label(one.value.clone())
            .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 16, y)], colour.stroke_width(2)));
    }
    let font = ("sans-serif", FONT).into_text_style(&LOW);
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .border_style(MARK)
        .label_font(font)
        .draw()?;
    area.present()?;
    Ok(())
}

type Line = (String, Vec<(f64, f64)>, RGBColor);

fn draw(
    svg: &mut String,
    report: &HistoryReport,
    marks: &[TimeMark],
    lines: [Line; 2],
) -> Result<(), Box<dyn std::error::Error>> {
    let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let halves = area.split_evenly((2, 1));
    for (half, (name, points, colour)) in halves.iter().zip(lines) {
        let top = axis_top(find_highest(&points));
        let mut chart = chart_over_time(half, report, top, &name)?;
        let (since, until) = recorded_span(report);
        let bars = marks
            .iter()
            .filter(|mark| (since..=until).contains(&mark.time))
            .map(|mark| PathElement::new(vec![(mark.time, 0.0), (mark.time, top)], MARK.stroke_width(1)));
        chart.draw_series(bars)?;
        chart.draw_series(LineSeries::new(points, colour.stroke_width(2)))?;
    }
    area.present()?;
    Ok(())
}

/// Returns a time for an axis: with seconds where the axis spans minutes, and else with the day.
fn format_time(time: f64, span: f64) -> String {
    let text = times::local((time * 1000.0) as i64);
    let (skipped, taken) = if span < 600.0 { (11, 8) } else { (5, 11) };
    text.chars().skip(skipped).take(taken).collect()
}

type TimeChart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// Makes a chart over the recorded time of the report, from 0 to `top`, with its axes drawn.
fn chart_over_time<'a, 'b>(
    area: &'a DrawingArea<SVGBackend<'b>, Shift>,
    report: &HistoryReport,
    top: f64,
    name: &str,
) -> Result<TimeChart<'a, 'b>, Box<dyn std::error::Error>> {
    let (since, until) = recorded_span(report);
    let mut chart = ChartBuilder::on(area)
        .margin(8)
        .x_label_area_size(30)
        .y_label_area_size(72)
        .build_cartesian_2d(since..until, 0.0..top)?;
    let font = ("sans-serif", FONT).into_text_style(&SIZE);
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .y_desc(name)
        .x_labels(6)
        .y_labels(5)
        .x_label_formatter(&|time| format_time(*time, until - since))
        .y_label_formatter(&|y| format!("{y:.0$}", count_digits(top)))
        .label_style(font.clone())
        .axis_desc_style(font)
        .draw()?;
    Ok(chart)
}
