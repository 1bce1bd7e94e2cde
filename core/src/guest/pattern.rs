//! Patterns by which an operator's rules name guests.

use wildmatch::WildMatch;

use super::Guest;

/// A pattern as it is written: it matches a guest that matches all keys that it names.
#[derive(Debug, Clone, Default)]
pub struct WrittenPattern {
    /// Pattern of the name.
    pub name: Option<String>,
    /// The UUID, in any case.
    pub uuid: Option<String>,
    /// Pattern of libvirt's metadata.
    pub metadata: Option<String>,
    /// Pattern of the cgroup, with a fixed first part.
    pub cgroup: Option<String>,
    /// Pattern of the user.
    pub user: Option<String>,
}

/// A pattern of guests. `*` stands for any text, `?` for one character.
///
/// A process chooses its own command line. So a pattern with name, UUID or metadata matches a verified guest only. User
/// and cgroup are the kernel's word.
#[derive(Debug, Clone, PartialEq)]
pub struct GuestPattern {
    name: Option<WildMatch>,
    uuid: Option<String>,
    metadata: Option<WildMatch>,
    cgroup: Option<WildMatch>,
    user: Option<WildMatch>,
}

/// An error of a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadGuestPattern {
    /// It names no key, and would match all guests.
    MatchesAll,
    /// It would match cgroups that any user can make.
    LooseCgroup,
}

impl GuestPattern {
    /// Creates a pattern.
    ///
    /// # Errors
    /// The pattern names nothing, or its cgroup may be any user's.
    pub fn new(written: WrittenPattern) -> Result<Self, BadGuestPattern> {
        let WrittenPattern { name, uuid, metadata, cgroup, user } = written;
        if [&name, &uuid, &metadata, &cgroup, &user].into_iter().all(Option::is_none) {
            return Err(BadGuestPattern::MatchesAll);
        }
        if cgroup.as_deref().is_some_and(is_loose) {
            return Err(BadGuestPattern::LooseCgroup);
        }
        let pattern = |text: Option<String>| text.map(|text| WildMatch::new(&text));
        Ok(Self {
            name: pattern(name),
            uuid,
            metadata: pattern(metadata),
            cgroup: pattern(cgroup),
            user: pattern(user),
        })
    }

    /// Returns true if the pattern matches every guest of an ordinary user.
    pub fn matches_all_users(&self) -> bool {
        let names_more = self.goes_by_words() || self.cgroup.is_some();
        !names_more && self.user.as_ref().is_some_and(|user| *user == WildMatch::new("*"))
    }

    /// Returns true if the pattern goes by text that the guest's own user can choose, unless the guest is verified.
    fn goes_by_words(&self) -> bool {
        self.name.is_some() || self.uuid.is_some() || self.metadata.is_some()
    }

    /// Returns true if the pattern matches the processes of a guest that are in this cgroup and of this user. An unknown
    /// property matches no pattern.
    pub fn matches(&self, guest: &Guest, cgroup: Option<&str>, user: Option<&str>) -> bool {
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
            && fits(&self.cgroup, cgroup)
            && fits(&self.user, user)
    }
}

impl Guest {
    /// Returns the first of an operator's rules that fits the guest; `None` if none does, or if the rules tell its
    /// processes apart by their cgroups or users.
    ///
    /// `rule` returns that of the processes of a cgroup and a user.
    pub fn rule_of_all<T: PartialEq>(&self, rule: impl Fn(Option<&str>, Option<&str>) -> Option<T>) -> Option<T> {
        let mut of_places =
            self.placements.iter().map(|place| rule(place.cgroup.as_deref(), place.user.as_deref()));
        let first = of_places.next().unwrap_or_else(|| rule(self.cgroup.as_deref(), self.only_user()));
        first.filter(|first| of_places.all(|other| other.as_ref() == Some(first)))
    }
}

/// Returns true if a pattern of a cgroup may match one that an ordinary user has made.
fn is_loose(pattern: &str) -> bool {
    let first = pattern.strip_prefix('/').map(|rest| rest.split_once('/').map_or(rest, |(first, _)| first));
    first.is_none_or(|first| first.contains(['*', '?']))
}
