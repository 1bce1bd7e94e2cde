//! Names of users and numbers of groups, by the name service switch: files, LDAP, SSSD, systemd.
//!
//! A directory service may take seconds to answer. So [`UserNames`] queries it in a thread of its own and returns the
//! number of a user if the name does not arrive in time.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};
use nix::unistd::{Group, Uid, User};

use crate::root::Root;

/// Longest time for which a caller waits for the name of one user.
const PATIENCE: Duration = Duration::from_millis(50);

/// A cache of user names by uid, of the running host or of a captured tree.
#[derive(Debug)]
pub struct UserNames {
    is_host: bool,
    known: Mutex<NameCache>,
}

#[derive(Debug, Default)]
struct NameCache {
    /// Resolved names, and `None` for uids without one.
    names: HashMap<u32, Option<String>>,
    /// The lookup thread, started at the first query. A captured tree has none.
    service: Option<NameService>,
    /// Names that arrived too late and were not fetched yet.
    late: Vec<(u32, String)>,
}

/// The thread that queries the name service.
#[derive(Debug)]
struct NameService {
    questions: Sender<u32>,
    answers: Receiver<(u32, Option<String>)>,
    /// Uids of pending queries.
    asked: Vec<u32>,
}

impl UserNames {
    /// Creates the cache for this host, or for `etc/passwd` of a captured tree.
    pub fn new(root: &Root) -> Self {
        let names = match root.is_host() {
            true => HashMap::new(),
            false => root.text("etc/passwd").value().map(|text| parse(text)).unwrap_or_default(),
        };
        Self { is_host: root.is_host(), known: Mutex::new(NameCache { names, ..NameCache::default() }) }
    }

    /// Returns the name of a user, or the number if there is no name or none in time.
    pub fn name(&self, uid: u32) -> String {
        let mut known = self.lock();
        known.take_answers();
        if self.is_host && !known.names.contains_key(&uid) {
            known.query_name(uid);
        }
        known.names.get(&uid).cloned().flatten().unwrap_or_else(|| uid.to_string())
    }

    /// Returns the names that arrived too late for [`name`](Self::name), each once.
    pub fn late(&self) -> Vec<(u32, String)> {
        let mut known = self.lock();
        known.take_answers();
        std::mem::take(&mut known.late)
    }

    fn lock(&self) -> MutexGuard<'_, NameCache> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NameCache {
    fn take_answers(&mut self) {
        let Some(service) = &mut self.service else { return };
        while let Ok((uid, name)) = service.answers.try_recv() {
            service.asked.retain(|asked| *asked != uid);
            self.late.extend(name.clone().map(|name| (uid, name)));
            self.names.insert(uid, name);
        }
    }

    /// Queries a name. Waits for it only if no other query is pending: otherwise the service is slow.
    fn query_name(&mut self, uid: u32) {
        if self.service.is_none() {
            self.service = NameService::start(user_name);
        }
        let Some(service) = &mut self.service else { return };
        if service.asked.contains(&uid) || service.questions.send(uid).is_err() {
            return;
        }
        if service.asked.is_empty()
            && let Ok((_, name)) = service.answers.recv_timeout(PATIENCE)
        {
            self.names.insert(uid, name);
        } else {
            service.asked.push(uid);
        }
    }
}

impl NameService {
    fn start(look_up: fn(u32) -> Option<String>) -> Option<Self> {
        let ((questions, waiting), (told, answers)) = (unbounded(), unbounded());
        let work = move || {
            for uid in waiting {
                if told.send((uid, look_up(uid))).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("users".to_owned()).spawn(work).ok()?;
        Some(Self { questions, answers, asked: Vec::new() })
    }
}

/// Returns the name of a user by the name service of this host. May take seconds.
pub fn user_name(uid: u32) -> Option<String> {
    User::from_uid(Uid::from_raw(uid)).ok().flatten().map(|user| user.name)
}

/// Returns the number of a group by the name service of this host, or the number in the text itself. May take seconds.
pub fn group_id(name: &str) -> Option<u32> {
    let found = Group::from_name(name).ok().flatten();
    found.map(|group| group.gid.as_raw()).or_else(|| name.parse().ok())
}

fn parse(text: &str) -> HashMap<u32, Option<String>> {
    let user = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        Some((fields.nth(1)?.parse().ok()?, Some(name.to_owned())))
    };
    // The first of several names of one number counts, as in getpwuid(3).
    text.lines().rev().filter_map(user).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_name_of_a_number_counts_in_a_captured_tree() {
        let tree = tempfile::tempdir().unwrap();
        std::fs::create_dir(tree.path().join("etc")).unwrap();
        let text = "root:x:0:0:root:/root:/bin/sh\ntoor:x:0:0::/:\nbroken\na:x:y:0::/:\nqemu:x:64:64::/:\n";
        std::fs::write(tree.path().join("etc/passwd"), text).unwrap();
        let users = UserNames::new(&Root::at(tree.path()));
        assert_eq!([0, 64, 7].map(|uid| users.name(uid)), ["root", "qemu", "7"]);
        let empty = UserNames::new(&Root::at(tree.path().join("etc")));
        assert_eq!(empty.name(0), "0", "names of this host are not those of the tree");
    }

    #[test]
    fn this_host_is_asked_by_its_name_service() {
        assert_eq!(user_name(0).as_deref(), Some("root"));
        let users = UserNames::new(&Root::host());
        // It may come late on a busy host.
        while users.name(0) != "root" {
            std::thread::yield_now();
        }
        assert_eq!(users.name(3_999_999_999), "3999999999");
    }

    #[test]
    fn a_service_that_does_not_answer_in_time_costs_one_wait_and_its_name_comes_late() {
        fn slow(uid: u32) -> Option<String> {
            std::thread::sleep(PATIENCE * 4);
            Some(format!("user{uid}"))
        }
        let known = NameCache { service: NameService::start(slow), ..NameCache::default() };
        let users = UserNames { is_host: true, known: Mutex::new(known) };
        assert_eq!([5, 6, 5].map(|uid| users.name(uid)), ["5", "6", "5"]);
        let mut late = Vec::new();
        while late.len() < 2 {
            late.extend(users.late());
            std::thread::yield_now();
        }
        assert_eq!(late, [(5, "user5".to_owned()), (6, "user6".to_owned())]);
        assert_eq!(users.name(6), "user6");
    }

    #[test]
    fn a_group_is_found_by_name_or_number() {
        assert_eq!(group_id("root"), Some(0));
        assert_eq!(group_id("65534"), Some(65534));
        assert_eq!(group_id("no such group"), None);
    }
}
