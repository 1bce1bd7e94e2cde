//! Median and extremes of a figure over the repeats.

use schemars::JsonSchema;
use serde::Serialize;

/// Median and extremes of a figure. A value that was not reached ranks above all others; a result that is such a
/// value is `null`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Spread {
    /// The middle value, or the mean of the two middle values.
    pub median: Option<f64>,
    /// The least value.
    pub min: Option<f64>,
    /// The greatest value.
    pub max: Option<f64>,
}

impl Spread {
    /// Summarises any number of values.
    pub fn from_values(values: impl IntoIterator<Item = Option<f64>>) -> Self {
        let mut values: Vec<f64> = values.into_iter().map(|value| value.unwrap_or(f64::INFINITY)).collect();
        values.sort_by(f64::total_cmp);
        let at = |place: Option<usize>| values.get(place?).copied().filter(|value| value.is_finite());
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 {
            at(Some(middle))
        } else {
            at(middle.checked_sub(1)).zip(at(Some(middle))).map(|(low, high)| low.midpoint(high))
        };
        Self { median, min: at(Some(0)), max: at(values.len().checked_sub(1)) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_was_not_reached_is_later_than_all() {
        let none = Spread { median: None, min: None, max: None };
        assert_eq!(Spread::from_values([]), none);
        assert_eq!(Spread::from_values([None]), none);
        assert_eq!(Spread::from_values([Some(3.0), None, Some(1.0)]).median, Some(3.0));
        assert_eq!(Spread::from_values([Some(1.0), None]), Spread { median: None, min: Some(1.0), max: None });
        assert_eq!(Spread::from_values([Some(1.0), Some(4.0)]).median, Some(2.5));
    }

    proptest! {
        #[test]
        fn the_median_is_between_the_extremes(values in prop::collection::vec(0.0..1e9_f64, 1..9)) {
            let spread = Spread::from_values(values.iter().copied().map(Some));
            let (min, median, max) = (spread.min.unwrap(), spread.median.unwrap(), spread.max.unwrap());
            prop_assert!(min <= median && median <= max);
            prop_assert!(2 * values.iter().filter(|value| **value <= median).count() >= values.len());
        }
    }
}
