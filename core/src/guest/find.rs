//! Search for the guest that a person names: the one convention for naming a guest, in every command.

use super::{Guest, GuestKind};

/// The ways to name a guest, for the help of commands.
pub const WAYS: &str = "name, UUID, PID, kind:name or VMID, such as web, 4242, qemu:web, 104 or proxmox:104";

/// The error of a search that did not find exactly one guest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FindGuestError {
    /// None has this name, UUID or PID.
    #[error(
        "there is no guest {wanted:?}{}: `ksmith guests` lists them; name one by name, UUID, PID, kind:name or VMID",
        suggest_names(near)
    )]
    None {
        /// The name that was given.
        wanted: String,
        /// The names of guests that are nearest to it, the nearest first.
        near: Vec<String>,
    },
    /// Several have this name.
    #[error("{} guests are called {wanted:?}: name one by its PID or UUID: {}", .which.len(), .which.join(", "))]
    Several {
        /// The name that was given.
        wanted: String,
        /// `kind:name pid 12 (uuid …)` each.
        which: Vec<String>,
    },
}

/// Most near names in an error.
const MOST_NEAR: usize = 3;

/// Characters of the longest name for which near ones are sought.
const LONGEST_NAME: usize = 128;

impl FindGuestError {
    /// Creates the error for a name that no guest has. `names` are those of all guests.
    pub fn unknown<'a>(wanted: &str, names: impl IntoIterator<Item = &'a str>) -> Self {
        Self::None { wanted: wanted.to_owned(), near: near_names(wanted, names) }
    }
}

/// Returns the names that are nearest to one that no guest has, the nearest first. A number is a PID, to which none is near.
fn near_names<'a>(wanted: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let word = wanted.split_once(':').map_or(wanted, |(_, name)| name).to_lowercase();
    let length = word.chars().count();
    if length > LONGEST_NAME || word.parse::<u32>().is_ok() {
        return Vec::new();
    }
    let distance = |name: &str| {
        let lower = name.to_lowercase();
        let distance = strsim::damerau_levenshtein(&word, &lower);
        let is_part = length > 2 && lower.contains(&word);
        (is_part || distance <= lower.chars().count().max(3).div_ceil(3)).then_some(distance)
    };
    let names = names.into_iter().filter(|name| name.len() <= LONGEST_NAME);
    let mut near: Vec<(usize, &str)> = names.filter_map(|name| Some((distance(name)?, name))).collect();
    near.sort_unstable();
    near.dedup();
    near.into_iter().take(MOST_NEAR).map(|(_, name)| name.to_owned()).collect()
}

/// Returns ` (did you mean "web" or "web-2"?)`, or nothing without names.
pub fn suggest_names(near: &[String]) -> String {
    let quoted: Vec<String> = near.iter().map(|name| format!("{name:?}")).collect();
    match quoted.split_last() {
        None => String::new(),
        Some((last, [])) => format!(" (did you mean {last}?)"),
        Some((last, rest)) => format!(" (did you mean {} or {last}?)", rest.join(", ")),
    }
}

/// The properties by which a guest can be named.
pub trait NamedGuest {
    /// Returns the guest's name, which need not be unique.
    fn name(&self) -> &str;
    /// Returns the kind of the guest.
    fn kind(&self) -> &str;
    /// Returns the UUID, if there is one.
    fn uuid(&self) -> Option<&str>;
    /// Returns the PID of the first process, if that is known.
    fn pid(&self) -> Option<u32>;
    /// Returns the key of the guest in files and replies: `PID:START`, or `cgroup:PATH`.
    fn key(&self) -> String;
    /// Returns the manager that started it and the number by which the manager's users know it: the VMID of Proxmox VE.
    fn number(&self) -> Option<(&str, u32)> {
        None
    }
    /// Returns true if name and UUID are verified.
    fn is_verified(&self) -> bool;
    /// Returns true if one of its processes has this PID.
    fn has_pid(&self, pid: u32) -> bool {
        self.pid() == Some(pid)
    }
}

impl NamedGuest for Guest {
    fn name(&self) -> &str {
        &self.name
    }

    fn kind(&self) -> &str {
        self.kind.word()
    }

    fn uuid(&self) -> Option<&str> {
        self.uuid.as_deref()
    }

    fn pid(&self) -> Option<u32> {
        Some(self.id().pid())
    }

    fn key(&self) -> String {
        self.id().to_string()
    }

    fn number(&self) -> Option<(&str, u32)> {
        Some((self.manager.as_deref()?, self.number?))
    }

    fn is_verified(&self) -> bool {
        self.is_verified
    }

    fn has_pid(&self, pid: u32) -> bool {
        self.processes.iter().any(|process| process.pid == pid)
    }
}

/// Finds the guest with this key, UUID, PID (of any of its processes), VMID, name, `kind:name` or `manager:VMID`.
///
/// A name that is a number finds its guest, unless the number is another guest's PID or VMID. A guest that was given
/// the name comes before a plain process with a program of this name. A verified guest comes before all that only
/// claim its name or UUID.
///
/// # Errors
/// There is none, or several have this name.
pub fn find<'a, G: NamedGuest>(
    guests: impl IntoIterator<Item = &'a G>,
    wanted: &str,
) -> Result<&'a G, FindGuestError> {
    let guests: Vec<&G> = guests.into_iter().collect();
    let found = find_all(guests.iter().copied(), wanted);
    match found[..] {
        [] => Err(FindGuestError::unknown(wanted, guests.into_iter().map(NamedGuest::name))),
        [guest] => Ok(guest),
        _ => Err(FindGuestError::Several {
            wanted: wanted.to_owned(),
            which: found.into_iter().map(describe).collect(),
        }),
    }
}

/// Returns all guests that [`find`] would choose from.
pub fn find_all<'a, G: NamedGuest>(guests: impl IntoIterator<Item = &'a G>, wanted: &str) -> Vec<&'a G> {
    let guests: Vec<&G> = guests.into_iter().collect();
    let uuid = |guest: &G| guest.uuid().is_some_and(|uuid| uuid.eq_ignore_ascii_case(wanted));
    let number = wanted.parse::<u32>().ok();
    let vmid = |guest: &G| number.is_some() && guest.number().map(|(_, vmid)| vmid) == number;
    // One guest's PID may be another's VMID: then both are meant.
    let pid = |guest: &G| number.is_some_and(|pid| guest.has_pid(pid)) || guest.is_verified() && vmid(guest);
    let key = |guest: &G| guest.key() == wanted;
    let name = |guest: &G| guest.name() == wanted;
    let given = |guest: &G| name(guest) && guest.kind() != GuestKind::PROCESS.word();
    let (kind, rest) = wanted.split_once(':').unwrap_or_default();
    let of_kind = |guest: &G| !kind.is_empty() && guest.kind() == kind && guest.name() == rest;
    let of_manager =
        |guest: &G| guest.number().is_some_and(|(manager, vmid)| manager == kind && is_number(rest, vmid));
    let verified_of_manager = |guest: &G| guest.is_verified() && of_manager(guest);
    let verified_uuid = |guest: &G| guest.is_verified() && uuid(guest);
    let verified_name = |guest: &G| guest.is_verified() && given(guest);
    let verified_of_kind = |guest: &G| guest.is_verified() && of_kind(guest);
    let ways: [&dyn Fn(&G) -> bool; 12] = [
        &verified_uuid,
        &pid,
        &key,
        &verified_name,
        &verified_of_kind,
        &verified_of_manager,
        &uuid,
        &given,
        &of_kind,
        &vmid,
        &of_manager,
        &name,
    ];
    let mut found =
        ways.into_iter().map(|way| guests.iter().copied().filter(|guest| way(guest)).collect::<Vec<_>>());
    found.find(|found| !found.is_empty()).unwrap_or_default()
}

fn is_number(text: &str, number: u32) -> bool {
    text.parse() == Ok(number)
}

/// Describes a guest so that it differs from others of its name: `qemu:web pid 12 (uuid …, proxmox:104)`, or by its
/// key where no PID is known.
pub fn describe<G: NamedGuest>(guest: &G) -> String {
    let uuid = guest.uuid().map(|uuid| format!("uuid {uuid}"));
    let number = guest.number().map(|(manager, vmid)| format!("{manager}:{vmid}"));
    let more = uuid.into_iter().chain(number).collect::<Vec<_>>().join(", ");
    let more = if more.is_empty() { more } else { format!(" ({more})") };
    let which = guest.pid().map_or_else(|| guest.key(), |pid| format!("pid {pid}"));
    format!("{}:{} {which}{more}", guest.kind(), guest.name())
}

#[cfg(test)]
mod tests {
    use super::super::group::tests::guest;
    use super::*;

    fn named(name: &str, pid: u32, uuid: Option<&str>) -> Guest {
        Guest { uuid: uuid.map(str::to_owned), ..guest(name, pid) }
    }

    fn none(wanted: &str) -> FindGuestError {
        FindGuestError::None { wanted: wanted.to_owned(), near: Vec::new() }
    }

    fn near(wanted: &str, name: &str) -> FindGuestError {
        FindGuestError::None { wanted: wanted.to_owned(), near: vec![name.to_owned()] }
    }

    #[test]
    fn a_name_that_no_guest_has_is_answered_by_the_nearest_names() {
        let names = ["web-1", "web-2", "db", "mail", "Backup", "web-2", "4711"];
        let near = |wanted: &str| near_names(wanted, names);
        assert_eq!(near("wbe-1"), ["web-1", "web-2"]);
        assert_eq!(near("qemu:maill"), ["mail"]);
        assert_eq!(near("backup"), ["Backup"]);
        assert_eq!(near("web"), ["web-1", "web-2"]);
        for far in ["printer", "4712", "", &"web-1".repeat(100)] {
            assert_eq!(near(far), Vec::<String>::new(), "{far}");
        }
        let said = FindGuestError::unknown("wbe-1", names).to_string();
        assert!(
            said.starts_with("there is no guest \"wbe-1\" (did you mean \"web-1\" or \"web-2\"?): `ksmith"),
            "{said}"
        );
        let said = FindGuestError::unknown("printer", names).to_string();
        assert!(said.starts_with("there is no guest \"printer\": `ksmith guests` lists them"), "{said}");
    }

    #[test]
    fn name_uuid_and_pid_each_find_the_guest() {
        let guests = [named("web", 10, Some("0e1a-ff")), named("db", 11, None), named("12", 13, None)];
        let pid = |wanted| find(&guests, wanted).map(|guest| guest.id().pid());
        assert_eq!(pid("web"), Ok(10));
        assert_eq!(pid("0E1A-FF"), Ok(10));
        assert_eq!(pid("11"), Ok(11));
        assert_eq!(pid("12"), Ok(13));
        assert_eq!(pid("mail"), Err(none("mail")));
    }

    #[test]
    fn a_given_name_comes_before_that_of_a_program() {
        let machine = Guest { kind: GuestKind::new("qemu"), ..named("web", 11, None) };
        assert_eq!(find(&[named("web", 10, None), machine], "web").unwrap().id().pid(), 11);
    }

    #[test]
    fn a_guest_that_only_claims_a_name_or_uuid_never_stands_in_the_way() {
        let verified = Guest { is_verified: true, kind: GuestKind::new("qemu"), ..named("web", 10, Some("aa")) };
        let claims = Guest { kind: GuestKind::new("qemu"), ..named("web", 11, Some("aa")) };
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
        assert!(error.contains("process:web pid 10 (uuid aa), process:web pid 11"), "{error}");
        assert_eq!(find(&guests, "aa").unwrap().id().pid(), 10);
    }

    #[test]
    fn a_kind_tells_guests_of_one_name_apart() {
        let kind = |word, pid| Guest { kind: GuestKind::new(word), ..named("web", pid, None) };
        let guests = [kind("qemu", 10), kind("container", 11), named("web", 12, None), named("a:b", 13, None)];
        let pid = |wanted| find(&guests, wanted).map(|guest| guest.id().pid());
        assert_eq!([pid("qemu:web"), pid("container:web"), pid("process:web")], [Ok(10), Ok(11), Ok(12)]);
        let key = guests[1].id().to_string();
        assert_eq!([pid("a:b"), pid("process:a:b"), pid(&key)], [Ok(13), Ok(13), Ok(11)]);
        assert_eq!(pid("uml:web"), Err(near("uml:web", "web")));
        let error = pid("web").unwrap_err().to_string();
        assert!(error.contains("qemu:web pid 10, container:web pid 11"), "{error}");
    }

    #[test]
    fn a_guest_of_proxmox_is_found_by_its_vmid_and_one_that_is_also_a_pid_is_asked_back() {
        let of_proxmox = |name, pid, vmid, is_verified| Guest {
            kind: GuestKind::new("qemu"),
            manager: Some("proxmox".to_owned()),
            number: Some(vmid),
            is_verified,
            ..named(name, pid, None)
        };
        let guests = [of_proxmox("web", 2000, 104, true), of_proxmox("db", 2001, 105, true)];
        let pid = |guests: &[Guest], wanted| find(guests, wanted).map(|guest| guest.id().pid());
        assert_eq!(pid(&guests, "104"), Ok(2000));
        assert_eq!(pid(&guests, "proxmox:105"), Ok(2001));
        assert_eq!(pid(&guests, "qemu:104"), Err(none("qemu:104")));
        assert_eq!(pid(&guests, "libvirt:104"), Err(none("libvirt:104")));
        let [web, db] = guests;
        let claims = of_proxmox("claims", 2002, 104, false);
        assert_eq!(pid(&[claims.clone(), web.clone()], "104"), Ok(2000), "a VMID that is only claimed");
        assert_eq!(pid(&[claims], "104"), Ok(2002), "there is no other");
        let guests = [web, db, named("job", 104, None)];
        let error = find(&guests, "104").unwrap_err().to_string();
        assert!(error.contains("qemu:web pid 2000 (proxmox:104), process:job pid 104"), "{error}");
        assert_eq!(pid(&guests, "proxmox:104"), Ok(2000));
    }
}
