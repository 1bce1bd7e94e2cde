//! The plots of one scenario as SVG.

use plotters::coord::Shift;
use plotters::prelude::*;

use super::{ReportError, colour};
use crate::measure::{RunSeries, SeriesPoint};
use crate::results::{CompetitorResults, ScenarioResults};

const SIZE: (u32, u32) = (960, 360);
/// Height of letters.
const FONT: i32 = 14;
const MIB: f64 = (1_u64 << 20) as f64;
/// The CPU share of ksmd is drawn as the mean over this many seconds.
const WINDOW: f64 = 2.0;
const GREY: RGBColor = RGBColor(140, 140, 140);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// A line of a plot, and how it is drawn.
type Line = (Vec<(f64, f64)>, ShapeStyle);

/// Plots the saved memory of all competitors over time, and the attainable savings in grey.
pub(super) fn saved(scenario: &ScenarioResults) -> Result<String, ReportError> {
    let top = scenario.attainable_bytes.max(1 << 20) as f64 / MIB * 1.05;
    let most = points(scenario).map(|point| point.saved_bytes as f64 / MIB).fold(top, f64::max);
    // The attainable savings of all runs differ only by the time that guests took to start.
    let attainable = scenario.competitors.first().and_then(CompetitorResults::middle_run);
    let attainable = attainable.map(|run| (staircase(&run.series, scenario.seconds), GREY.stroke_width(2)));
    let runs = middle_runs(scenario).map(|(place, series)| {
        let line = series.points.iter().map(|point| (point.at, point.saved_bytes as f64 / MIB));
        (line.collect(), style(place))
    });
    draw("saved memory", &scenario.name, |area| {
        over_time(&area, scenario.seconds, ("saved, MiB", most), attainable.into_iter().chain(runs))
    })
}

/// Plots the CPU share of ksmd over time for all competitors.
pub(super) fn cpu(scenario: &ScenarioResults) -> Result<String, ReportError> {
    let runs = middle_runs(scenario).map(|(place, series)| (usage(series), style(place)));
    draw("ksmd's CPU", &scenario.name, |area| over_time(&area, scenario.seconds, ("ksmd, % of a CPU", 105.0), runs))
}

/// Plots one figure over the seconds of a run as SVG.
///
/// # Errors
/// The plot can't be drawn.
pub fn line_plot(figure: &'static str, run: &str, points: Vec<(f64, f64)>) -> Result<String, ReportError> {
    let most = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).fold(1.0, f64::max);
    let (seconds, top) = (most(|point| point.0), most(|point| point.1) * 1.05);
    draw(figure, run, |area| over_time(&area, seconds, (figure, top), [(points, style(0))]))
}

/// Draws lines over seconds from zero on.
fn over_time(
    area: &Area<'_>,
    seconds: f64,
    (figure, most): (&str, f64),
    lines: impl IntoIterator<Item = Line>,
) -> Drawn {
    let mut chart = ChartBuilder::on(area)
        .margin(8)
        .x_label_area_size(44)
        .y_label_area_size(72)
        .build_cartesian_2d(0.0..seconds, 0.0..most)?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .x_desc("seconds")
        .y_desc(figure)
        .x_label_formatter(&|x| format!("{x:.0}"))
        .y_label_formatter(&|y| ((y * 100.0).round() / 100.0).to_string())
        .label_style(font())
        .axis_desc_style(font())
        .draw()?;
    for (line, style) in lines {
        chart.draw_series(LineSeries::new(line, style))?;
    }
    Ok(())
}

/// Plots cost and benefit of each run: up is more saved, left is less CPU.
pub(super) fn plane(scenario: &ScenarioResults) -> Result<String, ReportError> {
    draw("cost and benefit", &scenario.name, |area| {
        let runs = || scenario.competitors.iter().flat_map(|competitor| &competitor.runs);
        let cost = |cpu: f64| cpu.max(LEAST_CPU);
        let most_cpu = runs().map(|run| run.measures.ksmd_cpu_seconds).fold(1.0, f64::max) * 2.0;
        let most = runs().map(|run| run.measures.attainable_gib_seconds).fold(0.01, f64::max) * 1.08;
        let mut chart = ChartBuilder::on(&area)
            .margin(8)
            .x_label_area_size(44)
            .y_label_area_size(72)
            .build_cartesian_2d((LEAST_CPU..most_cpu).log_scale(), -0.04 * most..most)?;
        chart
            .configure_mesh()
            .light_line_style(WHITE)
            .x_desc("ksmd, CPU-seconds (each step to the right costs ten times as much)")
            .y_desc("GiB-seconds saved")
            .x_label_formatter(&|x| format!("{x}"))
            .label_style(font())
            .axis_desc_style(font())
            .draw()?;
        let mut names = DotLabels::default();
        for (place, competitor) in scenario.competitors.iter().enumerate() {
            let (r, g, b) = colour(place);
            let dots = competitor.runs.iter().map(|run| {
                let at = (cost(run.measures.ksmd_cpu_seconds), run.measures.gib_seconds);
                Circle::new(at, 4, RGBColor(r, g, b).filled())
            });
            chart.draw_series(dots)?;
            if let Some(run) = competitor.middle_run() {
                let at = (cost(run.measures.ksmd_cpu_seconds), run.measures.gib_seconds);
                let at = names.place(chart.plotting_area().map_coordinate(&at), &competitor.name);
                area.draw(&Text::new(competitor.name.clone(), at, font().color(&RGBColor(r, g, b))))?;
            }
        }
        Ok(())
    })
}

fn font() -> TextStyle<'static> {
    ("sans-serif", FONT).into_text_style(&SIZE)
}

/// The least value of the logarithmic scale. Smaller values are drawn here.
const LEAST_CPU: f64 = 0.01;

fn draw(plot: &'static str, scenario: &str, paint: impl FnOnce(Area<'_>) -> Drawn) -> Result<String, ReportError> {
    let mut svg = String::new();
    let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
    paint(area).map_err(|why| ReportError { plot, scenario: scenario.to_owned(), why: why.to_string() })?;
    Ok(svg)
}

fn style(place: usize) -> ShapeStyle {
    let (r, g, b) = colour(place);
    RGBColor(r, g, b).stroke_width(2)
}

fn points(scenario: &ScenarioResults) -> impl Iterator<Item = &SeriesPoint> {
    scenario.competitors.iter().filter_map(CompetitorResults::middle_run).flat_map(|run| &run.series.points)
}

/// The middle run of each competitor. The competitor named first is drawn last, over the others.
fn middle_runs(scenario: &ScenarioResults) -> impl Iterator<Item = (usize, &RunSeries)> {
    let runs = scenario.competitors.iter().enumerate().rev();
    runs.filter_map(|(place, competitor)| Some((place, &competitor.middle_run()?.series)))
}

/// The attainable savings as a line with upright steps.
fn staircase(series: &RunSeries, end: f64) -> Vec<(f64, f64)> {
    let mut line = vec![(0.0, 0.0)];
    let mut level = 0.0;
    for step in &series.attainable {
        line.push((step.at, level));
        level = step.bytes as f64 / MIB;
        line.push((step.at, level));
    }
    line.push((end, level));
    line
}

/// CPU share of ksmd in per cent, each over the window that ends at the point.
fn usage(series: &RunSeries) -> Vec<(f64, f64)> {
    let mut line = Vec::new();
    let mut begin = 0;
    for to in &series.points {
        while series.points.get(begin + 1).is_some_and(|next| to.at - next.at >= WINDOW) {
            begin += 1;
        }
        let Some(from) = series.points.get(begin).filter(|from| to.at > from.at) else { continue };
        line.push((to.at, 100.0 * (to.ksmd_cpu_seconds - from.ksmd_cpu_seconds) / (to.at - from.at)));
    }
    line
}

/// Places of the names beside the dots, in pixels, such that no name covers another.
#[derive(Default)]
struct DotLabels(Vec<(i32, i32, i32)>);

impl DotLabels {
    fn place(&mut self, (x, y): (i32, i32), name: &str) -> (i32, i32) {
        // A letter of Helvetica is about half as wide as high.
        let width = i32::try_from(name.chars().count()).unwrap_or(i32::MAX / 16) * FONT / 2;
        let right = i32::try_from(SIZE.0).unwrap_or(i32::MAX);
        let x = if x + 8 + width > right { x - 8 - width } else { x + 8 };
        let mut y = y - FONT / 2;
        let is_taken = |y: i32, at: &(i32, i32, i32)| {
            (at.1 - y).abs() < FONT && x < at.0 + at.2 + FONT && at.0 < x + width + FONT
        };
        while self.0.iter().any(|at| is_taken(y, at)) {
            y -= FONT;
        }
        self.0.push((x, y, width));
        (x, y)
    }
}
