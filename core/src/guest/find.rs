//! Finds the guest that a person means.

use super::{Guest, Kind};

/// Why it is not exactly one guest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotOne {
    /// None has this name, UUID or PID.
    #[error("there is no guest {0:?}: `ksmith guests` lists them, by name, UUID and PID")]
    None(String),
    /// Several have this name.
    #[error("{} guests are called {wanted:?}; say which by PID or UUID: {}", .which.len(), .which.join(", "))]
    Several {
        /// What was asked for.
        wanted: String,
        /// `pid 12 (uuid …)` each.
        which: Vec<String>,
    },
}

/// The guest with this UUID, PID (of any of its processes) or name. A name that is a number finds its guest,
/// unless the number is another guest's PID. A guest that was given the name comes before a plain process with a program
/// of this name. A verified guest comes before all that only claim its name or UUID.
///
/// # Errors
/// There is none, or several have this name.
pub fn find<'a>(guests: &'a [Guest], wanted: &str) -> Result<&'a Guest, NotOne> {
    let uuid = |guest: &&Guest| guest.uuid.as_deref().is_some_and(|uuid| uuid.eq_ignore_ascii_case(wanted));
    let pid = wanted.parse::<u32>().ok();
    let has_pid = |guest: &&Guest| guest.processes.iter().any(|process| Some(process.pid) == pid);
    let name = |guest: &&Guest| guest.name == wanted;
    let given = |guest: &&Guest| name(guest) && guest.kind != Kind::PROCESS;
    let is_verified = |guest: &&Guest| guest.is_verified;
    let verified_uuid = |guest: &&Guest| is_verified(guest) && uuid(guest);
    let verified_name = |guest: &&Guest| is_verified(guest) && given(guest);
    let ways: [&dyn Fn(&&Guest) -> bool; 6] = [&verified_uuid, &has_pid, &verified_name, &uuid, &given, &name];
    let mut found = ways.into_iter().map(|way| guests.iter().filter(way).collect::<Vec<_>>());
    let found = found.find(|found| !found.is_empty()).unwrap_or_default();
    match found[..] {
        [] => Err(NotOne::None(wanted.to_owned())),
        [guest] => Ok(guest),
        _ => Err(NotOne::Several { wanted: wanted.to_owned(), which: found.into_iter().map(describe).collect() }),
    }
}

fn describe(guest: &Guest) -> String {
    let uuid = guest.uuid.as_ref().map_or(String::new(), |uuid| format!(", uuid {uuid}"));
    format!("pid {} ({}{uuid})", guest.id().pid(), guest.kind)
}

#[cfg(test)]
mod tests {
    use super::super::group::tests::guest;
    use super::*;

    fn named(name: &str, pid: u32, uuid: Option<&str>) -> Guest {
        Guest { uuid: uuid.map(str::to_owned), ..guest(name, pid) }
    }

    #[test]
    fn name_uuid_and_pid_each_find_the_guest() {
        let guests = [named("web", 10, Some("0e1a-ff")), named("db", 11, None), named("12", 13, None)];
        let pid = |wanted| find(&guests, wanted).map(|guest| guest.id().pid());
        assert_eq!(pid("web"), Ok(10));
        assert_eq!(pid("0E1A-FF"), Ok(10));
        assert_eq!(pid("11"), Ok(11));
        assert_eq!(pid("12"), Ok(13));
        assert_eq!(pid("mail"), Err(NotOne::None("mail".to_owned())));
    }

    #[test]
    fn a_given_name_comes_before_that_of_a_program() {
        let machine = Guest { kind: Kind::new("qemu"), ..named("web", 11, None) };
        assert_eq!(find(&[named("web", 10, None), machine], "web").unwrap().id().pid(), 11);
    }

    #[test]
    fn a_guest_that_only_claims_a_name_or_uuid_never_stands_in_the_way() {
        let verified = Guest { is_verified: true, kind: Kind::new("qemu"), ..named("web", 10, Some("aa")) };
        let claims = Guest { kind: Kind::new("qemu"), ..named("web", 11, Some("aa")) };
        let guests = [claims.clone(), verified];
        assert_eq!(find(&guests, "web").unwrap().id().pid(), 10);
        assert_eq!(find(&guests, "aa").unwrap().id().pid(), 10);
        let pid = Guest { name: "10".to_owned(), uuid: Some("10".to_owned()), ..claims };
        assert_eq!(find(&[pid, guests[1].clone()], "10").unwrap().id().pid(), 10, "nor one that claims a PID");
    }

    #[test]
    fn a_name_of_two_guests_is_asked_back_with_what_tells_them_apart() {
        let guests = [named("web", 10, Some("aa")), named("web", 11, None)];
        let error = find(&guests, "web").unwrap_err().to_string();
        assert!(error.contains("pid 10 (process, uuid aa), pid 11 (process)"), "{error}");
        assert_eq!(find(&guests, "aa").unwrap().id().pid(), 10);
    }
}
