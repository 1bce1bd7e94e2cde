//! The numbers of a policy's settings that are searched, each within bounds.

use ksmith_core::decide::{PolicyKind, ProfitConstants};
use schemars::JsonSchema;
use serde::Serialize;

/// A number that is searched on a logarithmic scale.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct TuneKey {
    /// The name in the policy's table.
    pub name: String,
    /// The least value that is tried.
    pub low: f64,
    /// The greatest value that is tried.
    pub high: f64,
    /// The value that the policy has by default.
    pub default: f64,
    /// True if only whole numbers are valid.
    pub is_whole: bool,
    /// True if it is a constant of the policy, which no configuration has.
    pub is_constant: bool,
}

/// The greatest factor by which a value lies below or above its default.
const SPAN: f64 = 8.0;

/// The most that makes sense, by what ends the name.
const MOST: [(&str, f64); 2] = [("percent", 100.0), ("part", 1.0)];

/// An error in the keys of a search.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum BadKey {
    /// The policy has no such number.
    #[error("{policy} has no number {name:?} to search; it has: {known}")]
    Unknown {
        /// The policy.
        policy: String,
        /// The requested name.
        name: String,
        /// The policy's numbers.
        known: String,
    },
    /// The policy has no numbers.
    #[error("{0} has no numbers to search")]
    None(String),
    /// The bounds are none.
    #[error("--key {0}: bounds are two numbers over 0, the least first, as in {1}=1..8")]
    Bounds(String, String),
    /// A key is named twice.
    #[error("--key {0} is given twice")]
    Twice(String),
}

impl TuneKey {
    /// A key with its default as TOML, from an eighth to eight times that. `None` if that is no number over 0.
    pub fn from_default(name: &str, default: &str) -> Option<Self> {
        let value = default.parse::<f64>().ok().filter(|value| value.is_finite() && *value > 0.0)?;
        let is_whole = default.parse::<u64>().is_ok();
        let most = MOST.iter().find(|(end, _)| name.ends_with(end)).map_or(f64::INFINITY, |(_, most)| *most);
        let least = if is_whole { 1.0 } else { 0.0 };
        let (low, high) = ((value / SPAN).max(least), (value * SPAN).min(most.max(value)));
        Some(Self { name: name.to_owned(), low, high, default: value, is_whole, is_constant: false })
    }

    /// The constants of a policy that can be searched, with the same bounds.
    pub fn constants(policy: &PolicyKind) -> Vec<Self> {
        if *policy != PolicyKind::default() {
            return Vec::new();
        }
        let of = |(name, value): (&str, f64)| Self::from_default(name, &format!("{value:?}"));
        let constants = ProfitConstants::default().all().into_iter().filter_map(of);
        constants.map(|key| Self { is_constant: true, ..key }).collect()
    }

    /// Selects the keys given as `NAME` or `NAME=LOW..HIGH` from all keys of a policy; if none is given, all keys of a
    /// configuration.
    ///
    /// # Errors
    /// There is no such key, it is named twice, or the bounds are none.
    pub fn choose(policy: &str, all: Vec<Self>, wanted: &[String]) -> Result<Vec<Self>, BadKey> {
        if all.is_empty() {
            return Err(BadKey::None(policy.to_owned()));
        }
        let mut chosen: Vec<Self> = Vec::new();
        for text in wanted {
            let (name, bounds) = text.split_once('=').map_or((text.as_str(), None), |(name, b)| (name, Some(b)));
            let key = all.iter().find(|key| key.name == name).ok_or_else(|| BadKey::Unknown {
                policy: policy.to_owned(),
                name: name.to_owned(),
                known: all.iter().map(|key| key.name.as_str()).collect::<Vec<_>>().join(", "),
            })?;
            if chosen.iter().any(|other| other.name == name) {
                return Err(BadKey::Twice(name.to_owned()));
            }
            let (low, high) = match bounds {
                None => (key.low, key.high),
                Some(bounds) => read_bounds(bounds).ok_or_else(|| BadKey::Bounds(text.clone(), name.to_owned()))?,
            };
            chosen.push(Self { low, high, ..key.clone() });
        }
        Ok(if chosen.is_empty() { all.into_iter().filter(|key| !key.is_constant).collect() } else { chosen })
    }

    /// The value at a place of the search: 0 is the least and 1 the greatest; beyond them the way leads back. Three digits are
    /// kept, so that what is shown is what was tried.
    pub(super) fn at(&self, place: f64) -> f64 {
        let around = place.rem_euclid(2.0);
        let inside = if around > 1.0 { 2.0 - around } else { around };
        let value = self.low * (self.high / self.low).powf(inside);
        let value = if self.is_whole { value.round() } else { three_digits(value) };
        value.clamp(self.low, self.high)
    }

    /// The place of the default, or the bound next to it.
    pub(super) fn place(&self) -> f64 {
        let value = self.default.clamp(self.low, self.high);
        if self.high > self.low { (value / self.low).ln() / (self.high / self.low).ln() } else { 0.0 }
    }

    /// The line of a TOML table that sets it.
    pub(super) fn line(&self, value: f64) -> String {
        let number = if self.is_whole { format!("{value:.0}") } else { format!("{value:?}") };
        format!("{} = {number}\n", self.name)
    }
}

fn three_digits(value: f64) -> f64 {
    format!("{value:.2e}").parse().unwrap_or(value)
}

/// Reads `LOW..HIGH`.
fn read_bounds(text: &str) -> Option<(f64, f64)> {
    let (low, high) = text.split_once("..")?;
    let number = |text: &str| text.trim().parse::<f64>().ok().filter(|it| it.is_finite() && *it > 0.0);
    let (low, high) = (number(low)?, number(high)?);
    (low <= high).then_some((low, high))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn keys() -> Vec<TuneKey> {
        let texts = [("price", "8.0"), ("busy_percent", "20.0"), ("passes", "2"), ("zero", "true"), ("off", "0.0")];
        texts.iter().filter_map(|(name, default)| TuneKey::from_default(name, default)).collect()
    }

    fn chosen(wanted: &[&str]) -> Result<Vec<(String, f64, f64)>, String> {
        let wanted: Vec<String> = wanted.iter().map(|text| (*text).to_owned()).collect();
        let chosen = TuneKey::choose("profit", keys(), &wanted).map_err(|error| error.to_string())?;
        Ok(chosen.into_iter().map(|key| (key.name, key.low, key.high)).collect())
    }

    #[test]
    fn numbers_over_0_are_keys_with_bounds_around_their_defaults() {
        let found = chosen(&[]).unwrap();
        let price = ("price".to_owned(), 1.0, 64.0);
        assert_eq!(found, [price, ("busy_percent".to_owned(), 2.5, 100.0), ("passes".to_owned(), 1.0, 16.0)]);
        assert_eq!(chosen(&["passes=2..4"]).unwrap(), [("passes".to_owned(), 2.0, 4.0)]);
    }

    #[test]
    fn what_is_no_key_is_refused_with_the_reason() {
        for (wanted, why) in [
            (&["prise"][..], "profit has no number \"prise\" to search; it has: price, busy_percent, passes"),
            (&["zero"], "has no number \"zero\""),
            (&["price=8..1"], "--key price=8..1: bounds are two numbers over 0, the least first, as in price=1..8"),
            (&["price=0..1"], "over 0"),
            (&["price=1"], "bounds are two numbers"),
            (&["price=a..b"], "bounds are two numbers"),
            (&["price=1..inf"], "bounds are two numbers"),
            (&["price", "price=1..2"], "--key price is given twice"),
        ] {
            let error = chosen(wanted).unwrap_err();
            assert!(error.contains(why), "{wanted:?}: {error}");
        }
        assert_eq!(TuneKey::choose("off", Vec::new(), &[]), Err(BadKey::None("off".to_owned())));
    }

    #[test]
    fn constants_are_searched_where_they_are_named_and_parts_end_at_the_whole() {
        let all = [keys(), TuneKey::constants(&PolicyKind::default())].concat();
        assert_eq!(TuneKey::choose("profit", all.clone(), &[]).unwrap(), keys());
        let wanted = ["recurring_part".to_owned(), "price".to_owned()];
        let chosen = TuneKey::choose("profit", all, &wanted).unwrap();
        assert_eq!((chosen[0].is_constant, chosen[0].low, chosen[0].high), (true, 0.1, 1.0));
        assert!(!chosen[1].is_constant);
        assert_eq!(TuneKey::constants(&PolicyKind::find("score").unwrap()), []);
    }

    #[test]
    fn the_default_is_found_at_its_place() {
        for key in keys() {
            assert_eq!(key.at(key.place()), key.default, "{}", key.name);
        }
        assert_eq!(keys()[0].line(4.0), "price = 4.0\n");
        assert_eq!(keys()[2].line(4.0), "passes = 4\n");
        let one = TuneKey { low: 3.0, high: 3.0, ..keys()[0].clone() };
        assert_eq!((one.place(), one.at(0.7)), (0.0, 3.0));
    }

    proptest! {
        #[test]
        fn every_place_lies_within_the_bounds(place in -1e3..1e3_f64, low in 1e-3..1e3_f64, times in 1.0..1e4_f64) {
            for is_whole in [false, true] {
                let key = TuneKey { name: String::new(), low, high: low * times, default: low, is_whole, is_constant: false };
                let value = key.at(place);
                prop_assert!(value >= key.low && value <= key.high, "{} in {:?}", value, key);
            }
        }

        #[test]
        fn the_way_leads_back_from_the_bounds(place in 0.0..1.0_f64) {
            let key = &keys()[0];
            prop_assert!((key.at(-place) / key.at(place) - 1.0).abs() < 0.01);
            prop_assert!((key.at(2.0 - place) / key.at(place) - 1.0).abs() < 0.01);
        }
    }
}
