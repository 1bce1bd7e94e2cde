//! The assignment of guests to domains by ordered rules, of which the first match counts.

use serde::Deserialize;

use crate::guest::{BadGuestPattern, Guest, GuestPattern, WrittenPattern};

/// One rule: it assigns the guests that its pattern matches to a domain.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "RawDomainRule")]
pub struct DomainRule {
    domain: String,
    pattern: GuestPattern,
}

/// A rule as it is written.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RawDomainRule {
    domain: String,
    name: Option<String>,
    uuid: Option<String>,
    metadata: Option<String>,
    cgroup: Option<String>,
    user: Option<String>,
}

/// A rule without sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadRule {
    /// It assigns to no domain.
    #[error("a rule must name the domain that it assigns to")]
    NoDomain,
    /// It would fit all guests.
    #[error(
        "a rule must name at least one of name, uuid, metadata, cgroup and user; all other guests fall under \
        default"
    )]
    FitsAll,
    /// It would fit cgroups that any user can make.
    #[error(
        "the cgroup of a rule begins with a slash and a first part without * and ?, as in /machine.slice/*: users make \
         cgroups of any name below their own"
    )]
    LooseCgroup,
}

impl TryFrom<RawDomainRule> for DomainRule {
    type Error = BadRule;

    fn try_from(written: RawDomainRule) -> Result<Self, BadRule> {
        let RawDomainRule { domain, name, uuid, metadata, cgroup, user } = written;
        if domain.is_empty() {
            return Err(BadRule::NoDomain);
        }
        let pattern =
            GuestPattern::new(WrittenPattern { name, uuid, metadata, cgroup, user }).map_err(|bad| match bad {
                BadGuestPattern::MatchesAll => BadRule::FitsAll,
                BadGuestPattern::LooseCgroup => BadRule::LooseCgroup,
            })?;
        Ok(Self { domain, pattern })
    }
}

impl DomainRule {
    /// The domain that it assigns to.
    pub fn domain(&self) -> &str {
        &self.domain
    }

    /// Returns true if the rule matches every guest of an ordinary user.
    pub fn fits_all_users(&self) -> bool {
        self.pattern.matches_all_users()
    }

    /// Returns true if the rule matches the processes of a guest that are in this cgroup and of this user.
    pub fn fits(&self, guest: &Guest, cgroup: Option<&str>, user: Option<&str>) -> bool {
        self.pattern.matches(guest, cgroup, user)
    }
}
