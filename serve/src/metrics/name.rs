//! Names, units and divisors of metrics, derived from the rows of the table of figures.

use ksmith_core::field::{Field, Kind, Type, Unit};
use ksmith_core::figures::Value;

/// A figure's metric name, unit and divisor.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Naming {
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
pub(super) enum Number {
    Unsigned(u64),
    Signed(i64),
    Real(f64),
}

/// Derives the metric of a figure. `prefix` precedes the figure's key, unless the key begins with one of `own_groups`,
/// such as `pool.`. `None` if the figure is text.
pub(super) fn of(prefix: &str, own_groups: &[&str], field: &Field) -> Option<Naming> {
    if field.holds == Type::Text || matches!(field.unit, Unit::Text | Unit::Label) {
        return None;
    }
    let (unit, old_end, divisor) = match field.unit {
        Unit::Bytes => (Some("bytes"), "_bytes", 1.0),
        Unit::BytesPerSecond => (Some("bytes_per_second"), "_bytes_per_second", 1.0),
        Unit::Milliseconds => (Some("seconds"), "_millisecs", 1000.0),
        Unit::Seconds => (Some("seconds"), "_seconds", 1.0),
        Unit::Percent => (Some("ratio"), "_percent", 100.0),
        Unit::Pages | Unit::Count | Unit::PerSecond | Unit::Ratio | Unit::Mode | Unit::Label | Unit::Text => {
            (None, "", 1.0)
        }
    };
    let has_own_group = field.name.split_once('.').is_some_and(|(group, _)| own_groups.contains(&group));
    let prefix = if has_own_group { "" } else { prefix };
    let key = field.name.replace('.', "_");
    let key = key.strip_suffix(old_end).unwrap_or(&key);
    Some(Naming { stem: format!("ksmith_{prefix}{key}"), unit, is_counter: field.kind == Kind::Counter, divisor })
}

impl Naming {
    /// Returns the value in the metric's unit; `None` if it is unknown.
    pub(super) fn number(&self, value: &Value) -> Option<Number> {
        if self.divisor != 1.0 {
            return value.number().map(|number| Number::Real(number / self.divisor));
        }
        match value {
            Value::Unsigned(number) => Some(Number::Unsigned(*number)),
            Value::Signed(number) => Some(Number::Signed(*number)),
            Value::Real(number) => Some(Number::Real(*number)),
            Value::Flag(is_so) => Some(Number::Unsigned(u64::from(*is_so))),
            Value::Unknown | Value::Text(_) => None,
        }
    }
}
