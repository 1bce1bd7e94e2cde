//! The `[balance]` table: the settings of the balance policies.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use wildmatch::WildMatch;

use super::classes::{GuestRule, GuestTerms};
use super::key::config_table;
use super::{GuestClass, GuestView, PoolView};
use crate::contradiction::Contradiction;
use crate::decide::bounds::{percent, positive};

config_table! {
    /// The settings of balance: `[balance]`.
    pub struct BalanceConfig {
        /// True to carry plans out; `ksmith balance` shows them in any case.
        pub enabled: bool = false,
        /// The policy: no-swap, or squeeze, which also takes from guests what they do not use.
        pub policy: BalanceKind = BalanceKind::default(),
        /// The memory to share: host, or a cgroup (v2) with memory.max, such as "machine.slice".
        pub pool: PoolScope = PoolScope::default(),
        /// Cgroups that are guests themselves, such as containers; * and ? have no meaning here.
        pub cgroups: Vec<String> = Vec::new(),
        /// Users with guests that are balanced although they are not verified: docs/reference/guests.md.
        pub users: Vec<String> = Vec::new(),
        /// True to balance guests of Proxmox VE that its pvestatd does not resize: docs/how-to/proxmox.md.
        pub proxmox: bool = false,
        /// Memory is taken from guests while less of the pool is available.
        #[serde(deserialize_with = "percent")]
        pub low_percent: f64 = 10.0,
        /// Memory is given back while more of the pool is available.
        #[serde(deserialize_with = "percent")]
        pub high_percent: f64 = 20.0,
        /// The most that a guest gives or gets at once, of what it was started with.
        #[serde(deserialize_with = "percent")]
        pub step_percent: f64 = 5.0,
        /// The most at once below half the low mark, of what the guest was started with.
        #[serde(deserialize_with = "percent")]
        pub urgent_step_percent: f64 = 15.0,
        /// The shortest time between two resizes of one guest.
        #[serde(deserialize_with = "positive")]
        pub cooldown_seconds: f64 = 2.0,
        /// The time above the low mark before memory goes back to guests without memory pressure.
        #[serde(deserialize_with = "positive")]
        pub calm_seconds: f64 = 60.0,
        /// The floor of each guest, of what it was started with.
        #[serde(deserialize_with = "percent")]
        pub floor_percent: f64 = 10.0,
        /// The available memory that each guest keeps, of what it was started with.
        #[serde(deserialize_with = "percent")]
        pub reserve_percent: f64 = 5.0,
        /// The available memory that each guest keeps, as an amount; the larger of the two counts.
        #[serde(deserialize_with = "positive")]
        pub reserve_mib: f64 = 16.0,
        /// A guest is under memory pressure if its tasks wait for memory this long (PSI some).
        #[serde(deserialize_with = "percent")]
        pub pressure_psi_percent: f64 = 1.0,
        /// A guest is under memory pressure if it has this many major faults per second.
        #[serde(deserialize_with = "positive")]
        pub pressure_faults_per_second: f64 = 50.0,
        /// The response if unmerging could need more memory than there is: report, refuse, cover or unmerge.
        pub exposure: ExposureResponse = ExposureResponse::default(),
        /// True to give guests what they were started with when the daemon ends.
        pub give_back_on_exit: bool = true,
        /// The class of guests that no rule gives another.
        pub default_class: String = "silver".to_owned(),
        /// The settings of the policy `squeeze`.
        pub squeeze: SqueezeConfig = SqueezeConfig::default(),
        /// The weight of each class: a class with more weight gets memory first and gives it last.
        pub classes: BTreeMap<String, u32> =
            [("gold", 100), ("silver", 10), ("bronze", 1)].map(|(name, weight)| (name.to_owned(), weight)).into(),
        /// The rules in their order; the first that fits a guest counts.
        #[serde(skip_serializing)]
        pub rule: Vec<GuestRule> = Vec::new(),
    }
}

/// The balance policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum BalanceKind {
    /// Keeps the pool above its low mark.
    #[default]
    NoSwap,
    /// Does the same, and always takes from guests what they do not use.
    Squeeze,
}

/// The memory that guests share.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(from = "String", into = "String")]
pub enum PoolScope {
    /// The host's memory.
    #[default]
    Host,
    /// The memory of a cgroup, by its path below `/sys/fs/cgroup`.
    Cgroup(String),
}

impl From<String> for PoolScope {
    fn from(text: String) -> Self {
        match text.trim_start_matches("/sys/fs/cgroup").trim_matches('/') {
            "host" | "" => Self::Host,
            path => Self::Cgroup(path.to_owned()),
        }
    }
}

impl From<PoolScope> for String {
    fn from(scope: PoolScope) -> Self {
        match scope {
            PoolScope::Host => "host".to_owned(),
            PoolScope::Cgroup(path) => path,
        }
    }
}

/// The response when exposure exceeds headroom; each includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExposureResponse {
    /// Report the shortfall only.
    Report,
    /// Offer no more memory to merging.
    Refuse,
    /// Take from guests until the headroom covers the exposure.
    ///
    /// A wave of divergence is shorter than the interval between two views, and the kernel kills for the memory that it
    /// then lacks.
    #[default]
    Cover,
    /// Stop merging guests with diverging pages, one at a time, where taking is not enough.
    Unmerge,
}

config_table! {
    /// The settings of the policy `squeeze`: `[balance.squeeze]`.
    pub struct SqueezeConfig {
        /// The interval between two takes from one guest.
        #[serde(deserialize_with = "positive")]
        pub interval_seconds: f64 = 6.0,
        /// The most that one take brings, of what the guest was started with.
        #[serde(deserialize_with = "percent")]
        pub step_percent: f64 = 1.0,
        /// The first pause after memory pressure; it doubles each time.
        #[serde(deserialize_with = "positive")]
        pub rest_seconds: f64 = 60.0,
        /// The longest pause.
        #[serde(deserialize_with = "positive")]
        pub longest_rest_seconds: f64 = 3600.0,
    }
}

/// The pool's watermarks in bytes, in rising order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolWatermarks {
    /// Half the low mark: below it steps are larger, and only guests under memory pressure get memory.
    pub min: u64,
    /// The low mark: below it memory is taken.
    pub low: u64,
    /// The middle of low and high mark: taking ends here.
    pub enough: u64,
    /// The high mark: above it memory goes back.
    pub high: u64,
}

impl BalanceConfig {
    /// Computes the watermarks of a pool.
    pub fn marks(&self, pool: &PoolView) -> PoolWatermarks {
        let part = |percent: f64| part_of(pool.size_bytes, percent);
        let (low, high) = (part(self.low_percent), part(self.high_percent));
        PoolWatermarks { min: low / 2, low, enough: low / 2 + high / 2, high }
    }

    /// The shortest time between two actions on one guest.
    pub fn cooldown(&self) -> Duration {
        Duration::from_secs_f64(self.cooldown_seconds)
    }

    /// Returns the memory that a guest must keep available.
    pub fn reserve_bytes(&self, guest: &GuestView) -> u64 {
        part_of(guest.whole_bytes, self.reserve_percent).max((self.reserve_mib * f64::from(1 << 20)) as u64)
    }

    /// Returns the operator's terms for a guest.
    ///
    /// Rules match by name and UUID. So none fits a guest that only claims them.
    pub fn terms(&self, name: &str, uuid: Option<&str>, is_verified: bool) -> GuestTerms {
        let rule = self.rule.iter().find(|rule| is_verified && rule.fits(name, uuid));
        let class = rule.and_then(GuestRule::class).unwrap_or(&self.default_class);
        let weight = self.classes.get(class).copied().unwrap_or(1);
        GuestTerms {
            class: GuestClass { name: class.to_owned(), weight },
            floor_bytes: rule.and_then(GuestRule::floor_bytes),
            ceiling_bytes: rule.and_then(GuestRule::ceiling_bytes),
            is_held: rule.is_some_and(GuestRule::is_held),
        }
    }

    /// Returns true if a guest of this one user is balanced although it is not verified.
    pub fn has_user(&self, user: Option<&str>) -> bool {
        user.is_some_and(|user| self.users.iter().any(|pattern| WildMatch::new(pattern).matches(user)))
    }

    /// Returns the contradictions in the settings.
    pub fn contradictions(&self) -> Vec<Contradiction> {
        let mut found = Vec::new();
        if self.low_percent >= self.high_percent {
            let message = format!(
                "low_percent ({}) must be less than high_percent ({})",
                self.low_percent, self.high_percent
            );
            found.push(Contradiction::new(&[&["balance", "low_percent"], &["balance", "high_percent"]], message));
        }
        if self.urgent_step_percent < self.step_percent {
            let message = format!(
                "urgent_step_percent ({}) must not be less than step_percent ({})",
                self.urgent_step_percent, self.step_percent
            );
            let keys: [&[&str]; 2] = [&["balance", "urgent_step_percent"], &["balance", "step_percent"]];
            found.push(Contradiction::new(&keys, message));
        }
        let no_weight = |class: &str| {
            let known: Vec<_> = self.classes.keys().map(|name| format!("{name:?}")).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            format!("the class {class:?} has no weight: add it to [balance.classes], which has {known}")
        };
        if !self.classes.contains_key(&self.default_class) {
            let keys: [&[&str]; 2] = [&["balance", "default_class"], &["balance", "classes"]];
            found.push(Contradiction::new(&keys, no_weight(&self.default_class)));
        }
        for (index, rule) in self.rule.iter().enumerate() {
            let index = index.to_string();
            let key = |name| ["balance", "rule", index.as_str(), name];
            if let Some(class) = rule.class().filter(|class| !self.classes.contains_key(*class)) {
                found.push(Contradiction::new(&[&key("class"), &["balance", "classes"]], no_weight(class)));
            }
            if let (Some(floor), Some(ceiling)) = (rule.floor_bytes(), rule.ceiling_bytes())
                && floor > ceiling
            {
                let message =
                    format!("floor_mib ({}) must not be more than ceiling_mib ({})", floor >> 20, ceiling >> 20);
                found.push(Contradiction::new(&[&key("floor_mib"), &key("ceiling_mib")], message));
            }
        }
        found
    }
}

/// Returns the shortness of a pool, from 0 to 1. The price that merging may cost rises with it.
///
/// ```text
/// shortness = max((high - available) / (high - low / 2), psi_some / 10 %), between 0 and 1
/// ```
pub fn shortness(config: &BalanceConfig, pool: &PoolView) -> f64 {
    let marks = config.marks(pool);
    let span = marks.high.saturating_sub(marks.min).max(1) as f64;
    let scarcity = marks.high.saturating_sub(pool.available_bytes) as f64 / span;
    let stalls = pool.psi_some_percent.unwrap_or(0.0) / 10.0;
    scarcity.max(stalls).clamp(0.0, 1.0)
}

/// Returns the given per cent of an amount.
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
    fn marks_are_ordered() {
        let pool = PoolView { size_bytes: 1000, ..PoolView::default() };
        let marks = BalanceConfig::default().marks(&pool);
        assert_eq!(marks, PoolWatermarks { min: 50, low: 100, enough: 150, high: 200 });
    }

    #[test]
    fn a_pool_is_short_by_its_memory_or_by_its_stalls() {
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
        assert_eq!(parse("pool = 'host'").pool, PoolScope::Host);
        for path in ["machine.slice/a", "/machine.slice/a/", "/sys/fs/cgroup/machine.slice/a"] {
            assert_eq!(parse(&format!("pool = '{path}'")).pool, PoolScope::Cgroup("machine.slice/a".to_owned()));
        }
    }

    #[test]
    fn contradictory_settings_are_refused() {
        assert_eq!(BalanceConfig::default().contradictions(), []);
        for (text, word) in [
            ("low_percent = 30", "low_percent"),
            ("urgent_step_percent = 1", "urgent_step"),
            ("[[rule]]\nname = 'a'\nfloor_mib = 2\nceiling_mib = 1", "floor_mib (2)"),
            ("default_class = 'lead'", "lead"),
            ("[[rule]]\nname = 'a'\nclass = 'tin'", "tin"),
        ] {
            let found = parse(text).contradictions();
            assert!(found.len() == 1 && found[0].message.contains(word), "{text}: {found:?}");
        }
    }

    #[test]
    fn the_first_rule_that_fits_says_the_terms() {
        let config = parse(
            "classes = { high = 7, low = 1 }\ndefault_class = 'low'\n\
             [[rule]]\nname = 'db-*'\nclass = 'high'\nfloor_mib = 64\n[[rule]]\nname = '*'\nhold = true",
        );
        assert_eq!(config.contradictions(), []);
        let terms = config.terms("db-1", None, true);
        assert_eq!((terms.class.weight, terms.floor_bytes, terms.is_held), (7, Some(64 << 20), false));
        assert_eq!(config.terms("db-1", None, false).class.name, "low", "a name that is only claimed");
        let terms = config.terms("web", None, true);
        assert_eq!((terms.class.name.as_str(), terms.floor_bytes, terms.is_held), ("low", None, true));
    }
}
