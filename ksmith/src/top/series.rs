//! The figures of the host over time, for the charts.

use std::collections::VecDeque;

use super::figures::HeaderFigures;

/// Most points that are kept: an hour of looks each second.
const KEPT: usize = 3600;

/// The longest time in seconds for which a point stands: a parked daemon records once a minute.
const HOLDS: f64 = 90.0;

/// The longest time in seconds that a chart shows.
const LONGEST: f64 = 900.0;

/// The figures of one moment that are drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ChartPoint {
    /// Seconds since `ksmith top` started; negative before.
    pub at: f64,
    /// Saved memory.
    pub saved_bytes: Option<u64>,
    /// Thousandths of a CPU that ksmd used: a chart counts in whole numbers.
    pub ksmd_permille: Option<u64>,
}

impl ChartPoint {
    fn new(at: f64, figures: &HeaderFigures) -> Self {
        let ksmd_permille = figures.ksmd_percent.map(|percent| (percent * 10.0).round() as u64);
        Self { at, saved_bytes: figures.saved_bytes, ksmd_permille }
    }
}

/// The time that a chart shows, in seconds since `ksmith top` started.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ChartWindow {
    /// The beginning.
    pub since: f64,
    /// The end.
    pub until: f64,
}

impl ChartWindow {
    /// Returns the column of a moment, of so many columns; `None` if it is outside.
    pub fn column(self, at: f64, columns: usize) -> Option<usize> {
        let step = (self.until - self.since) / columns.max(1) as f64;
        let is_inside = at > self.since && at <= self.until && step > 0.0;
        // A column has the moments after its beginning, up to its end.
        is_inside.then(|| (((at - self.since) / step).ceil() as usize).clamp(1, columns.max(1)) - 1)
    }
}

/// The points, the oldest first.
#[derive(Debug, Clone, Default)]
pub struct ChartSeries {
    points: VecDeque<ChartPoint>,
}

impl ChartSeries {
    /// Records the figures of a moment.
    pub fn push(&mut self, at: f64, figures: &HeaderFigures) {
        self.points.push_back(ChartPoint::new(at, figures));
        if self.points.len() > KEPT {
            self.points.pop_front();
        }
    }

    /// Puts points of the history, the oldest first, before those that were seen.
    pub fn prefill<'a>(&mut self, past: impl DoubleEndedIterator<Item = (f64, &'a HeaderFigures)>) {
        let first = self.points.front().map_or(f64::INFINITY, |point| point.at);
        let room = KEPT.saturating_sub(self.points.len());
        for (at, figures) in past.rev().filter(|(at, _)| *at < first).take(room) {
            self.points.push_front(ChartPoint::new(at, figures));
        }
    }

    /// Returns the time up to `until` that a chart of so many columns shows: at first a second in each column.
    pub fn window(&self, until: f64, columns: usize) -> ChartWindow {
        let known = self.points.front().map_or(0.0, |point| until - point.at);
        let seconds = known.min(LONGEST).max(columns.max(1) as f64);
        ChartWindow { since: until - seconds, until }
    }

    /// Returns a value for each column, the oldest first: the largest of its time, or the one that still holds.
    pub fn values(
        &self,
        window: ChartWindow,
        columns: usize,
        read: impl Fn(&ChartPoint) -> Option<u64>,
    ) -> Vec<Option<u64>> {
        let mut values = vec![None; columns];
        let mut last: Vec<Option<f64>> = vec![None; columns];
        let mut before: Option<(f64, u64)> = None;
        for point in &self.points {
            let Some(value) = read(point) else { continue };
            match window.column(point.at, columns) {
                Some(column) => {
                    if let (Some(largest), Some(at)) = (values.get_mut(column), last.get_mut(column)) {
                        *largest = (*largest).max(Some(value));
                        *at = Some(point.at);
                    }
                }
                None if point.at <= window.since => before = Some((point.at, value)),
                None => {}
            }
        }
        let step = (window.until - window.since) / columns.max(1) as f64;
        for (column, (value, at)) in values.iter_mut().zip(last).enumerate() {
            let starts = window.since + step * column as f64;
            match (*value, at) {
                (Some(seen), Some(at)) => before = Some((at, seen)),
                _ => *value = before.filter(|(at, _)| starts - at < HOLDS).map(|(_, seen)| seen),
            }
        }
        values
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn saving(saved_bytes: u64) -> HeaderFigures {
        HeaderFigures { saved_bytes: Some(saved_bytes), ..HeaderFigures::default() }
    }

    fn saved(series: &ChartSeries, until: f64, columns: usize) -> Vec<Option<u64>> {
        series.values(series.window(until, columns), columns, |point| point.saved_bytes)
    }

    #[test]
    fn at_first_each_column_is_a_second() {
        let mut series = ChartSeries::default();
        for at in 0..3_u32 {
            series.push(f64::from(at), &saving(at.into()));
        }
        assert_eq!(saved(&series, 2.0, 5), [None, None, Some(0), Some(1), Some(2)]);
    }

    #[test]
    fn points_of_the_history_come_before_what_was_seen() {
        let mut series = ChartSeries::default();
        series.push(0.0, &saving(9));
        let past = [(-600.0, saving(1)), (-300.0, saving(5)), (-299.0, saving(4)), (1.0, saving(7))];
        series.prefill(past.iter().map(|(at, figures)| (*at, figures)));
        let window = series.window(0.0, 6);
        assert_eq!((window.since, window.until), (-600.0, 0.0));
        // A point holds for 90 s: the columns begin 100 s apart.
        let expected = [Some(1), None, Some(5), Some(4), None, Some(9)];
        assert_eq!(saved(&series, 0.0, 6), expected, "the largest of each column");
    }

    #[test]
    fn a_window_is_no_longer_than_a_quarter_of_an_hour() {
        let mut series = ChartSeries::default();
        series.push(0.0, &saving(1));
        series.push(5000.0, &saving(2));
        assert_eq!(series.window(5000.0, 20), ChartWindow { since: 4100.0, until: 5000.0 });
    }

    #[test]
    fn a_moment_has_a_column_where_it_is_shown() {
        let window = ChartWindow { since: 0.0, until: 10.0 };
        let columns = [-1.0, 0.0, 0.1, 1.0, 1.1, 10.0, 10.1].map(|at| window.column(at, 10));
        assert_eq!(columns, [None, None, Some(0), Some(0), Some(1), Some(9), None]);
    }
}
