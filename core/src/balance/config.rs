//! The `[balance]` table: what the policies go by.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

use super::classes::{GuestRule, Terms};
use super::{Class, GuestView, PoolView};
use crate::decide::bounds::{percent, positive};

/// How guests are balanced.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BalanceConfig {
    /// Whether the daemon carries plans out. `ksmith balance` shows them in any case.
    pub enabled: bool,
    /// Which policy makes them.
    pub policy: BalanceKind,
    /// What is shared: `host`, or a cgroup (v2) with a limit, such as `machine.slice`.
    pub pool: Pool,
    /// Cgroups that are guests themselves: containers, services. `*` and `?` are not understood.
    pub cgroups: Vec<String>,
    /// Memory is taken from guests while less than this part of the pool is available.
    #[serde(deserialize_with = "percent")]
    pub low_percent: f64,
    /// Memory goes back to guests while more than this part of the pool is available.
    #[serde(deserialize_with = "percent")]
    pub high_percent: f64,
    /// The most that a guest gives or gets at once, of what it was started with.
    #[serde(deserialize_with = "percent")]
    pub step_percent: f64,
    /// The same while less than half the low mark is available.
    #[serde(deserialize_with = "percent")]
    pub urgent_step_percent: f64,
    /// The shortest time between two actions on one guest.
    #[serde(deserialize_with = "positive")]
    pub cooldown_seconds: f64,
    /// How long the pool must have been above the low mark before memory goes back to guests that do not need it.
    #[serde(deserialize_with = "positive")]
    pub calm_seconds: f64,
    /// No guest is taken below this part of what it was started with.
    #[serde(deserialize_with = "percent")]
    pub floor_percent: f64,
    /// What a guest must have available after memory was taken, of what it was started with.
    #[serde(deserialize_with = "percent")]
    pub reserve_percent: f64,
    /// The same in MiB; the larger of the two counts.
    #[serde(deserialize_with = "positive")]
    pub reserve_mib: f64,
    /// A guest squeals when its work waits for memory for this part of the time.
    #[serde(deserialize_with = "percent")]
    pub squeal_psi_percent: f64,
    /// A guest squeals when it reads so many pages a second back from its disk.
    #[serde(deserialize_with = "positive")]
    pub squeal_faults_per_second: f64,
    /// What is done when merged pages could need more than the host has.
    pub exposure: WhenExposed,
    /// Whether guests get everything back when the daemon ends.
    pub give_back_on_exit: bool,
    /// How the policy `squeeze` goes about it.
    pub squeeze: SqueezeConfig,
    /// The weight of each class; a class with more weight gets first and gives last.
    pub classes: BTreeMap<String, u32>,
    /// The class of guests that no rule gives one.
    pub default_class: String,
    /// Rules in their order; the first that fits a guest counts.
    pub rule: Vec<GuestRule>,
}

/// The policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BalanceKind {
    /// Keep the pool above its low mark.
    #[default]
    NoSwap,
    /// The same, and always pull out of guests what they do not use.
    Squeeze,
}

/// What guests share.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(from = "String")]
pub enum Pool {
    /// The host's memory.
    #[default]
    Host,
    /// A cgroup's, by its path below `/sys/fs/cgroup`.
    Cgroup(String),
}

impl From<String> for Pool {
    fn from(text: String) -> Self {
        match text.trim_start_matches("/sys/fs/cgroup").trim_matches('/') {
            "host" | "" => Self::Host,
            path => Self::Cgroup(path.to_owned()),
        }
    }
}

/// What is done when exposure exceeds headroom; each includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WhenExposed {
    /// Say so.
    Report,
    /// Offer no more memory to merging.
    Refuse,
    /// Take from guests until the headroom covers the exposure. A wave of divergence is over before a look, and what is
    /// not there by then the kernel gets by killing.
    #[default]
    Cover,
    /// Where that is not enough, stop merging guests whose pages diverge, one at a time.
    Unmerge,
}

/// `[balance.squeeze]`
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SqueezeConfig {
    /// Between two pulls at one guest.
    #[serde(deserialize_with = "positive")]
    pub interval_seconds: f64,
    /// The most that one pull takes, of what the guest was started with.
    #[serde(deserialize_with = "percent")]
    pub step_percent: f64,
    /// How long a guest that squealed is left alone, at first; doubles each time.
    #[serde(deserialize_with = "positive")]
    pub rest_seconds: f64,
    /// And at most.
    #[serde(deserialize_with = "positive")]
    pub longest_rest_seconds: f64,
}

impl Default for SqueezeConfig {
    fn default() -> Self {
        Self { interval_seconds: 6.0, step_percent: 1.0, rest_seconds: 60.0, longest_rest_seconds: 3600.0 }
    }
}

impl Default for BalanceConfig {
    fn default() -> Self {
        let classes = [("gold", 100), ("silver", 10), ("bronze", 1)];
        Self {
            enabled: false,
            policy: BalanceKind::default(),
            pool: Pool::default(),
            cgroups: Vec::new(),
            low_percent: 10.0,
            high_percent: 20.0,
            step_percent: 5.0,
            urgent_step_percent: 15.0,
            cooldown_seconds: 2.0,
            calm_seconds: 60.0,
            floor_percent: 10.0,
            reserve_percent: 5.0,
            reserve_mib: 16.0,
            squeal_psi_percent: 1.0,
            squeal_faults_per_second: 50.0,
            exposure: WhenExposed::default(),
            give_back_on_exit: true,
            squeeze: SqueezeConfig::default(),
            classes: classes.map(|(name, weight)| (name.to_owned(), weight)).into(),
            default_class: "silver".to_owned(),
            rule: Vec::new(),
        }
    }
}

/// The pool's marks in bytes, from below.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marks {
    /// Half the low mark: below it everything is urgent, and nothing is given.
    pub min: u64,
    /// Below it memory is taken.
    pub low: u64,
    /// Up to here memory is taken, once it is.
    pub enough: u64,
    /// Above it memory goes back.
    pub high: u64,
}

impl BalanceConfig {
    /// The marks of a pool.
    pub fn marks(&self, pool: &PoolView) -> Marks {
        let part = |percent: f64| part_of(pool.size_bytes, percent);
        let (low, high) = (part(self.low_percent), part(self.high_percent));
        Marks { min: low / 2, low, enough: low / 2 + high / 2, high }
    }

    /// The shortest time between two actions on one guest.
    pub fn cooldown(&self) -> Duration {
        Duration::from_secs_f64(self.cooldown_seconds)
    }

    /// What a guest must keep available.
    pub fn reserve_bytes(&self, guest: &GuestView) -> u64 {
        part_of(guest.whole_bytes, self.reserve_percent).max((self.reserve_mib * f64::from(1 << 20)) as u64)
    }

    /// What the operator says of a guest.
    pub fn terms(&self, name: &str, uuid: Option<&str>) -> Terms {
        let rule = self.rule.iter().find(|rule| rule.fits(name, uuid));
        let class = rule.and_then(GuestRule::class).unwrap_or(&self.default_class);
        let weight = self.classes.get(class).copied().unwrap_or(1);
        Terms {
            class: Class { name: class.to_owned(), weight },
            floor_bytes: rule.and_then(GuestRule::floor_bytes),
            ceiling_bytes: rule.and_then(GuestRule::ceiling_bytes),
            is_held: rule.is_some_and(GuestRule::is_held),
        }
    }

    /// What is wrong with it as a whole.
    pub fn fault(&self) -> Option<String> {
        if self.low_percent >= self.high_percent {
            return Some("balance.low_percent must be less than balance.high_percent".to_owned());
        }
        if self.urgent_step_percent < self.step_percent {
            return Some("balance.urgent_step_percent must not be less than balance.step_percent".to_owned());
        }
        let named = self.rule.iter().filter_map(GuestRule::class).chain([self.default_class.as_str()]);
        let unknown = named.into_iter().find(|class| !self.classes.contains_key(*class))?;
        Some(format!("balance.classes gives the class {unknown:?} no weight"))
    }
}

/// How short a pool is, from 0 (at its high mark and above) to 1 (at half its low mark, or where a tenth of all time is
/// spent waiting for memory). What merging may cost rises with it.
pub fn shortness(config: &BalanceConfig, pool: &PoolView) -> f64 {
    let marks = config.marks(pool);
    let span = marks.high.saturating_sub(marks.min).max(1) as f64;
    let scarcity = marks.high.saturating_sub(pool.available_bytes) as f64 / span;
    let stalls = pool.psi_some_percent.unwrap_or(0.0) / 10.0;
    scarcity.max(stalls).clamp(0.0, 1.0)
}

/// So many per cent of an amount.
pub(super) fn part_of(bytes: u64, percent: f64) -> u64 {
    (bytes as f64 * percent / 100.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> BalanceConfig {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn marks_stand_in_their_order() {
        let pool = PoolView { size_bytes: 1000, ..PoolView::default() };
        let marks = BalanceConfig::default().marks(&pool);
        assert_eq!(marks, Marks { min: 50, low: 100, enough: 150, high: 200 });
    }

    #[test]
    fn a_pool_is_short_by_what_is_available_or_by_what_waits() {
        let of = |available_bytes, psi| {
            let pool = PoolView { size_bytes: 1000, available_bytes, psi_some_percent: psi, ..PoolView::default() };
            shortness(&BalanceConfig::default(), &pool)
        };
        assert_eq!(
            [of(900, None), of(200, None), of(125, None), of(50, None), of(0, None)],
            [0.0, 0.0, 0.5, 1.0, 1.0]
        );
        assert_eq!(of(900, Some(5.0)), 0.5);
    }

    #[test]
    fn a_pool_is_the_host_or_a_path() {
        assert_eq!(parse("pool = 'host'").pool, Pool::Host);
        for path in ["machine.slice/a", "/machine.slice/a/", "/sys/fs/cgroup/machine.slice/a"] {
            assert_eq!(parse(&format!("pool = '{path}'")).pool, Pool::Cgroup("machine.slice/a".to_owned()));
        }
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        assert_eq!(BalanceConfig::default().fault(), None);
        for (text, word) in [
            ("low_percent = 30", "low_percent"),
            ("urgent_step_percent = 1", "urgent_step"),
            ("default_class = 'lead'", "lead"),
            ("[[rule]]\nname = 'a'\nclass = 'tin'", "tin"),
        ] {
            assert!(parse(text).fault().unwrap().contains(word), "{text}");
        }
    }

    #[test]
    fn the_first_rule_that_fits_says_the_terms() {
        let config = parse(
            "classes = { dear = 7, cheap = 1 }\ndefault_class = 'cheap'\n\
             [[rule]]\nname = 'db-*'\nclass = 'dear'\nfloor_mib = 64\n[[rule]]\nname = '*'\nhold = true",
        );
        assert_eq!(config.fault(), None);
        let terms = config.terms("db-1", None);
        assert_eq!((terms.class.weight, terms.floor_bytes, terms.is_held), (7, Some(64 << 20), false));
        let terms = config.terms("web", None);
        assert_eq!((terms.class.name.as_str(), terms.floor_bytes, terms.is_held), ("cheap", None, true));
    }
}
