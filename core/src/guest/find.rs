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
/// of this name.
///
/// # Errors
/// There is none, or several have this name.
pub fn find<'a>(guests: &'a [Guest], wanted: &str) -> Result<&'a Guest, NotOne> {
    let uuid = |guest: &&Guest| guest.uuid.as_deref().is_some_and(|uuid| uuid.eq_ignore_ascii_case(wanted));
    let pid = wanted.parse::<u32>().ok();
    let has_pid = |guest: &&Guest| guest.processes.iter().any(|process| Some(process.pid) == pid);
    let name = |guest: &&Guest| guest.name == wanted;
    let by_uuid: Vec<&Guest> = guests.iter().filter(uuid).collect();
    let by_pid: Vec<&Guest> = guests.iter().filter(has_pid).collect();
    let given = |guest: &&Guest| name(guest) && guest.kind != Kind::PROCESS;
    let by_given_name: Vec<&Guest> = guests.iter().filter(given).collect();
    let by_name: Vec<&Guest> = guests.iter().filter(name).collect();
    let found =
        [by_uuid, by_pid, by_given_name, by_name].into_iter().find(|found| !found.is_empty()).unwrap_or_default();
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
    fn a_name_of_two_guests_is_asked_back_with_what_tells_them_apart() {
        let guests = [named("web", 10, Some("aa")), named("web", 11, None)];
        let error = find(&guests, "web").unwrap_err().to_string();
        assert!(error.contains("pid 10 (process, uuid aa), pid 11 (process)"), "{error}");
        assert_eq!(find(&guests, "aa").unwrap().id().pid(), 10);
    }
}
