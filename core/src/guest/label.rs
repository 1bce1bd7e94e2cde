//! Labels that an operator gives to guests by rules: a role, a tier, an owner.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{BadGuestPattern, Guest, GuestPattern, WrittenPattern};

/// The most characters of a label's name, and of its value.
const LONGEST: usize = 63;

/// One rule: it gives a value of a label to the guests that its pattern matches.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "RawLabelRule")]
pub struct GuestLabelRule {
    label: String,
    value: String,
    pattern: GuestPattern,
}

/// A rule as it is written.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RawLabelRule {
    label: String,
    value: String,
    name: Option<String>,
    uuid: Option<String>,
    metadata: Option<String>,
    cgroup: Option<String>,
    user: Option<String>,
}

/// A rule without sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadLabelRule {
    /// The label's name is none.
    #[error("label: {0:?} is not a name of a label: write a to z, 0 to 9 and _, a letter first, {LONGEST} at most")]
    Name(String),
    /// The value is empty or too long.
    #[error("a label's value has 1 to {LONGEST} characters")]
    Value,
    /// The rule would match all guests.
    #[error("a label's rule must name at least one of name, uuid, metadata, cgroup and user")]
    MatchesAll,
    /// The rule would match cgroups that any user can make.
    #[error(
        "the cgroup of a label's rule must begin with a slash and a first part without * and ?, as in /machine.slice/*"
    )]
    LooseCgroup,
}

impl TryFrom<RawLabelRule> for GuestLabelRule {
    type Error = BadLabelRule;

    fn try_from(written: RawLabelRule) -> Result<Self, BadLabelRule> {
        let RawLabelRule { label, value, name, uuid, metadata, cgroup, user } = written;
        if !is_label_name(&label) {
            return Err(BadLabelRule::Name(label));
        }
        if value.is_empty() || value.chars().count() > LONGEST {
            return Err(BadLabelRule::Value);
        }
        let pattern =
            GuestPattern::new(WrittenPattern { name, uuid, metadata, cgroup, user }).map_err(|bad| match bad {
                BadGuestPattern::MatchesAll => BadLabelRule::MatchesAll,
                BadGuestPattern::LooseCgroup => BadLabelRule::LooseCgroup,
            })?;
        Ok(Self { label, value, pattern })
    }
}

impl GuestLabelRule {
    /// The name of the label.
    pub fn label(&self) -> &str {
        &self.label
    }
}

impl Guest {
    /// Returns its labels as `role=db, tier=gold`; `None` if it has none.
    pub fn shown_labels(&self) -> Option<String> {
        let labels: Vec<String> = self.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        (!labels.is_empty()).then(|| labels.join(", "))
    }
}

/// Returns true if this can be the name of a label.
fn is_label_name(name: &str) -> bool {
    let is_part = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_';
    name.len() <= LONGEST && name.starts_with(|first: char| first.is_ascii_lowercase()) && name.chars().all(is_part)
}

/// Sets the labels of each guest. Of the rules of one label the first that fits counts.
pub fn assign_labels(rules: &[GuestLabelRule], guests: &mut [Guest]) {
    let mut of_labels: BTreeMap<&str, Vec<&GuestLabelRule>> = BTreeMap::new();
    for rule in rules {
        of_labels.entry(&rule.label).or_default().push(rule);
    }
    for guest in guests {
        let given = of_labels.iter().filter_map(|(label, rules)| {
            let value = guest.rule_of_all(|cgroup, user| {
                let rule = rules.iter().find(|rule| rule.pattern.matches(guest, cgroup, user))?;
                Some(rule.value.clone())
            })?;
            Some(((*label).to_owned(), value))
        });
        guest.labels = given.collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::ProcessPlacement;
    use crate::sample::ProcessId;

    #[derive(Debug, Deserialize)]
    struct RuleTable {
        label: Vec<GuestLabelRule>,
    }

    fn rules(text: &str) -> Result<Vec<GuestLabelRule>, String> {
        toml::from_str::<RuleTable>(text).map(|table| table.label).map_err(|error| error.to_string())
    }

    fn guest(name: &str) -> Guest {
        let guest = Guest::plain(name, ProcessId { pid: 7, start_ticks: 1 });
        Guest { is_verified: true, uid: Some(1), user: Some("alice".to_owned()), ..guest }
    }

    const ROLES: &str = "[[label]]\nlabel = \"role\"\nvalue = \"front\"\nname = \"web-*\"\n[[label]]\nlabel = \"role\"\n\
                         value = \"store\"\nuser = \"alice\"\n[[label]]\nlabel = \"tier\"\nvalue = \"gold\"\n\
                         cgroup = \"/machine.slice/*\"\n";

    fn labelled(change: impl Fn(&mut Guest)) -> Vec<String> {
        let mut guests = [guest("web-1")];
        change(&mut guests[0]);
        assign_labels(&rules(ROLES).unwrap(), &mut guests);
        guests[0].labels.iter().map(|(name, value)| format!("{name}={value}")).collect()
    }

    #[test]
    fn the_first_rule_of_each_label_that_fits_counts() {
        assert_eq!(labelled(|_| ()), ["role=front"]);
        assert_eq!(labelled(|guest| guest.name = "db".to_owned()), ["role=store"]);
        let of_slice = |guest: &mut Guest| guest.cgroup = Some("/machine.slice/a".to_owned());
        assert_eq!(labelled(of_slice), ["role=front", "tier=gold"]);
        let of_nobody = |guest: &mut Guest| (guest.name, guest.user) = ("db".to_owned(), None);
        assert_eq!(labelled(of_nobody), [""; 0]);
    }

    #[test]
    fn a_claimed_name_gets_no_label_and_neither_do_processes_that_the_rules_tell_apart() {
        assert_eq!(labelled(|guest| guest.is_verified = false), ["role=store"]);
        let apart = |guest: &mut Guest| {
            let place = |cgroup: &str| ProcessPlacement { cgroup: Some(cgroup.to_owned()), user: None };
            guest.placements = vec![place("/machine.slice/a"), place("/user.slice/b")];
        };
        assert_eq!(labelled(apart), ["role=front"]);
    }

    #[test]
    fn labels_that_are_gone_from_the_rules_are_gone_from_the_guest() {
        let mut guests = [guest("web-1")];
        assign_labels(&rules(ROLES).unwrap(), &mut guests);
        assign_labels(&[], &mut guests);
        assert!(guests[0].labels.is_empty());
    }

    #[test]
    fn a_rule_without_sense_is_refused_with_a_reason() {
        let long = format!("label = \"role\"\nvalue = \"{}\"\nname = \"a\"", "v".repeat(64));
        for (text, why) in [
            ("value = \"x\"\nname = \"a\"", "not a name of a label"),
            ("label = \"Role\"\nvalue = \"x\"\nname = \"a\"", "not a name of a label"),
            ("label = \"1a\"\nvalue = \"x\"\nname = \"a\"", "not a name of a label"),
            ("label = \"role\"\nname = \"a\"", "1 to 63"),
            (&long, "1 to 63"),
            ("label = \"role\"\nvalue = \"x\"", "must name at least one"),
            ("label = \"role\"\nvalue = \"x\"\ncgroup = \"*\"", "must begin with a slash"),
            ("label = \"role\"\nvalue = \"x\"\nhost = \"a\"", "unknown field"),
        ] {
            let refused = rules(&format!("[[label]]\n{text}\n")).unwrap_err();
            assert!(refused.contains(why), "{text}: {refused}");
        }
    }
}
