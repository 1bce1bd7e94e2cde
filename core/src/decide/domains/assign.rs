//! The assignment of guests to domains by ordered rules, of which the first match counts.

use serde::Deserialize;
use wildmatch::WildMatch;

use crate::guest::Guest;

/// One rule: it matches a guest that matches all that it names. `*` stands for any text, `?` for one character.
///
/// A process chooses its own command line. So a rule with name, UUID or metadata fits a verified guest only. User and
/// cgroup are the kernel's word.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "RawDomainRule")]
pub struct DomainRule {
    domain: String,
    name: Option<WildMatch>,
    uuid: Option<String>,
    metadata: Option<WildMatch>,
    cgroup: Option<WildMatch>,
    user: Option<WildMatch>,
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
    #[error("a rule names the domain that it assigns to")]
    NoDomain,
    /// It would fit all guests.
    #[error(
        "a rule names at least one of name, uuid, metadata, cgroup and user; for all the rest there is default"
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
        if [&name, &uuid, &metadata, &cgroup, &user].into_iter().all(Option::is_none) {
            return Err(BadRule::FitsAll);
        }
        if cgroup.as_deref().is_some_and(is_loose) {
            return Err(BadRule::LooseCgroup);
        }
        let pattern = |text: Option<String>| text.map(|text| WildMatch::new(&text));
        Ok(Self {
            domain,
            name: pattern(name),
            uuid,
            metadata: pattern(metadata),
            cgroup: pattern(cgroup),
            user: pattern(user),
        })
    }
}

impl DomainRule {
    /// The domain that it assigns to.
    pub fn domain(&self) -> &str {
        &self.domain
    }

    /// Returns true if the rule matches every guest of an ordinary user.
    pub fn fits_all_users(&self) -> bool {
        let names_more = self.goes_by_words() || self.cgroup.is_some();
        !names_more && self.user.as_ref().is_some_and(|user| *user == WildMatch::new("*"))
    }

    /// Returns true if the rule matches by text that the guest's own user can choose, unless the guest is verified.
    fn goes_by_words(&self) -> bool {
        self.name.is_some() || self.uuid.is_some() || self.metadata.is_some()
    }

    /// Returns true if the rule matches. An unknown property of a guest matches no pattern.
    pub fn fits(&self, guest: &Guest) -> bool {
        if self.goes_by_words() && !guest.is_verified {
            return false;
        }
        let fits = |pattern: &Option<WildMatch>, text: Option<&str>| {
            pattern.as_ref().is_none_or(|pattern| text.is_some_and(|text| pattern.matches(text)))
        };
        let uuid = |wanted: &String| guest.uuid.as_deref().is_some_and(|uuid| uuid.eq_ignore_ascii_case(wanted));
        fits(&self.name, Some(&guest.name))
            && self.uuid.as_ref().is_none_or(uuid)
            && fits(&self.metadata, guest.metadata.as_deref())
            && fits(&self.cgroup, guest.cgroup.as_deref())
            && fits(&self.user, guest.only_user())
    }
}

/// Returns true if a pattern of a cgroup may match one that an ordinary user has made.
fn is_loose(pattern: &str) -> bool {
    let first = pattern.strip_prefix('/').map(|rest| rest.split_once('/').map_or(rest, |(first, _)| first));
    first.is_none_or(|first| first.contains(['*', '?']))
}
