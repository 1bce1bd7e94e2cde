//! Names, units and divisors of metrics, derived from the rows of the table of figures.

use ksmith_core::field::{FigureDescription, FigureKind, FigureType, FigureUnit};
use ksmith_core::figures::FigureScalar;

/// A figure's metric name, unit and divisor.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct MetricName {
    /// The name without unit and without `_total`.
    pub(super) stem: String,
    /// The unit, which is the name's suffix.
    pub(super) unit: Option<&'static str>,
    /// True if the value only grows.
    pub(super) is_counter: bool,
    /// Divisor that converts the figure to the metric's unit.
    divisor: f64,
}

/// The number of a sample.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum SampleNumber {
    Unsigned(u64),
    Signed(i64),
    Real(f64),
}

/// Derives the metric of a figure. `prefix` precedes the figure's key, unless the key begins with one of `own_groups`,
/// such as `pool.`. `None` if the figure is text.
pub(super) fn derive_metric(prefix: &str, own_groups: &[&str], field: &FigureDescription) -> Option<MetricName> {
    if field.holds == FigureType::Text || matches!(field.unit, FigureUnit::Text | FigureUnit::Label) {
        return None;
    }
    let (unit, old_end, divisor) = match field.unit {
        FigureUnit::Bytes => (Some("bytes"), "_bytes", 1.0),
        FigureUnit::BytesPerSecond => (Some("bytes_per_second"), "_bytes_per_second", 1.0),
        FigureUnit::Milliseconds => (Some("seconds"), "_millisecs", 1000.0),
        FigureUnit::Seconds => (Some("seconds"), "_seconds", 1.0),
        FigureUnit::Percent => (Some("ratio"), "_percent", 100.0),
        FigureUnit::Pages
        | FigureUnit::Count
        | FigureUnit::PerSecond
        | FigureUnit::Ratio
        | FigureUnit::Mode
        | FigureUnit::Label
        | FigureUnit::Text => (None, "", 1.0),
    };
    let has_own_group = field.name.split_once('.').is_some_and(|(group, _)| own_groups.contains(&group));
    let prefix = if has_own_group { "" } else { prefix };
    let key = field.name.replace('.', "_");
    let key = key.strip_suffix(old_end).unwrap_or(&key);
    Some(MetricName {
        stem: format!("ksmith_{prefix}{key}"),
        unit,
        is_counter: field.kind == FigureKind::Counter,
        divisor,
    })
}

impl MetricName {
    /// Returns the value in the metric's unit; `None` if it is unknown.
    pub(super) fn number(&self, value: &FigureScalar) -> Option<SampleNumber> {
        if self.divisor != 1.0 {
            return value.number().map(|number| SampleNumber::Real(number / self.divisor));
        }
        match value {
            FigureScalar::Unsigned(number) => Some(SampleNumber::Unsigned(*number)),
            FigureScalar::Signed(number) => Some(SampleNumber::Signed(*number)),
            FigureScalar::Real(number) => Some(SampleNumber::Real(*number)),
            FigureScalar::Flag(is_so) => Some(SampleNumber::Unsigned(u64::from(*is_so))),
            FigureScalar::Unknown | FigureScalar::Text(_) => None,
        }
    }
}
