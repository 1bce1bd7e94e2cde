//! The pictures of a report as SVG.

use ksmith_record::{HistoryReport, times};
use plotters::prelude::*;

const SIZE: (u32, u32) = (960, 420);
const FONT: i32 = 14;
const GIB: f64 = (1_u64 << 30) as f64;

/// Two colours that differ for any colour vision (Okabe and Ito, 2008).
const SAVED: RGBColor = RGBColor(0, 114, 178);
const SPENT: RGBColor = RGBColor(213, 94, 0);
const MARK: RGBColor = RGBColor(150, 150, 150);

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
    let line = |name: &str, scale: f64| -> Vec<(f64, f64)> {
        let Some(at) = report.columns.iter().position(|column| column == name) else { return Vec::new() };
        let point = |row: &Vec<serde_json::Value>| Some((row.first()?.as_f64()?, row.get(at)?.as_f64()? / scale));
        report.rows.iter().filter_map(point).collect()
    };
    let saved = line("saved_bytes", GIB);
    let spent = line("ksmd_cpu_percent", 1.0);
    let mut svg = String::new();
    draw(&mut svg, report, marks, [("saved, GiB", saved, SAVED), ("ksmd, % of a CPU", spent, SPENT)])
        .map_err(|why| anyhow::anyhow!("can't draw the picture of the report: {why}"))?;
    Ok(svg)
}

type Line = (&'static str, Vec<(f64, f64)>, RGBColor);

fn draw(
    svg: &mut String,
    report: &HistoryReport,
    marks: &[TimeMark],
    lines: [Line; 2],
) -> Result<(), Box<dyn std::error::Error>> {
    let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let halves = area.split_evenly((2, 1));
    let (begin, end) = (report.since, report.until.max(report.since + 1.0));
    for (half, (name, points, colour)) in halves.iter().zip(lines) {
        let top = points.iter().map(|point| point.1).fold(0.001, f64::max) * 1.08;
        let mut chart = ChartBuilder::on(half)
            .margin(8)
            .x_label_area_size(30)
            .y_label_area_size(72)
            .build_cartesian_2d(begin..end, 0.0..top)?;
        let font = ("sans-serif", FONT).into_text_style(&SIZE);
        chart
            .configure_mesh()
            .light_line_style(WHITE)
            .y_desc(name)
            .x_labels(6)
            .y_labels(5)
            .x_label_formatter(&|time| times::local((time * 1000.0) as i64).chars().skip(5).take(11).collect())
            .y_label_formatter(&|y| format!("{y:.2}"))
            .label_style(font.clone())
            .axis_desc_style(font)
            .draw()?;
        let bars = marks
            .iter()
            .map(|mark| PathElement::new(vec![(mark.time, 0.0), (mark.time, top)], MARK.stroke_width(1)));
        chart.draw_series(bars)?;
        chart.draw_series(LineSeries::new(points, colour.stroke_width(2)))?;
    }
    area.present()?;
    Ok(())
}
