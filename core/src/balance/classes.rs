//! The class and limits of each guest: ordered rules, of which the first that fits counts.

use serde::Deserialize;
use wildmatch::WildMatch;

use super::GuestClass;

/// One `[[balance.rule]]`: it fits a guest that has every property it names.
///
/// In a name `*` stands for any text and `?` for one character.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "Written")]
pub struct GuestRule {
    name: Option<WildMatch>,
    uuid: Option<String>,
    terms: Written,
}

/// A rule as written in the configuration file.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Written {
    name: Option<String>,
    uuid: Option<String>,
    class: Option<String>,
    floor_mib: Option<u32>,
    ceiling_mib: Option<u32>,
    hold: bool,
}

/// The error of a rule that names no guest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a rule must name a guest by name or uuid; all other guests fall under default_class")]
pub struct FitsAll;

impl TryFrom<Written> for GuestRule {
    type Error = FitsAll;

    fn try_from(written: Written) -> Result<Self, FitsAll> {
        if written.name.is_none() && written.uuid.is_none() {
            return Err(FitsAll);
        }
        let name = written.name.as_deref().map(WildMatch::new);
        Ok(Self { name, uuid: written.uuid.clone(), terms: written })
    }
}

/// The operator's terms for one guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestTerms {
    /// The class of the guest.
    pub class: GuestClass,
    /// The floor, if there is one.
    pub floor_bytes: Option<u64>,
    /// The ceiling, if there is one.
    pub ceiling_bytes: Option<u64>,
    /// True if the guest is held: it is left alone.
    pub is_held: bool,
}

impl GuestRule {
    pub(super) fn fits(&self, name: &str, uuid: Option<&str>) -> bool {
        self.name.as_ref().is_none_or(|pattern| pattern.matches(name))
            && self.uuid.as_ref().is_none_or(|wanted| uuid.is_some_and(|uuid| uuid.eq_ignore_ascii_case(wanted)))
    }

    pub(super) fn class(&self) -> Option<&str> {
        self.terms.class.as_deref()
    }

    pub(super) fn floor_bytes(&self) -> Option<u64> {
        self.terms.floor_mib.map(|mib| u64::from(mib) << 20)
    }

    pub(super) fn ceiling_bytes(&self) -> Option<u64> {
        self.terms.ceiling_mib.map(|mib| u64::from(mib) << 20)
    }

    pub(super) fn is_held(&self) -> bool {
        self.terms.hold
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_fits_a_guest_with_every_property_that_it_names() {
        let rule: GuestRule = toml::from_str("name = 'db-?'\nuuid = 'AB-1'").unwrap();
        assert!(rule.fits("db-1", Some("ab-1")));
        assert!(!rule.fits("db-1", None) && !rule.fits("db-12", Some("ab-1")));
        assert!(toml::from_str::<GuestRule>("class = 'gold'").is_err());
    }
}
