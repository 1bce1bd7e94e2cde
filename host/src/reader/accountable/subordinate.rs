//! Subordinate users by `/etc/subuid`, and the users that have them.
//!
//! A file with the set-user-id bit that a user made in a namespace of its own runs as a subordinate user outside of it
//! too, where no namespace names its maker.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{fs, io};

/// The most bytes of a file: some 500,000 lines.
const MOST: u64 = 16 << 20;

const ROOT: u32 = 0;

/// The users of this host, and the ranges of subordinate users, each with its accountable uid.
#[derive(Debug, Default)]
pub(super) struct SubordinateRanges {
    ranges: Vec<(Range<u32>, u32)>,
    named: HashSet<u32>,
}

impl SubordinateRanges {
    /// Parses `/etc/subuid`, whose lines are `user:first:count`, with the names of `/etc/passwd`. A range of root's
    /// (containers), or of a user with no name there, is accountable as a whole, by its first uid. Other lines are
    /// ignored, as shadow's tools do.
    pub(super) fn parse(subuid: &str, passwd: &str) -> Self {
        let mut uids: HashMap<&str, u32> = HashMap::new();
        for line in passwd.lines() {
            let mut fields = line.split(':');
            let (name, uid) = (fields.next(), fields.nth(1).and_then(|uid| uid.parse().ok()));
            uids.extend(name.zip(uid));
        }
        let range = |line: &str| {
            let mut fields = line.split(':');
            let (user, first, count) = (fields.next()?, fields.next()?, fields.next()?);
            let first: u32 = first.trim().parse().ok().filter(|first| *first != ROOT)?;
            let count: u32 = count.trim().parse().ok()?;
            let owner = uids.get(user).copied().or_else(|| user.parse().ok());
            Some((first..first.saturating_add(count), owner.filter(|owner| *owner != ROOT).unwrap_or(first)))
        };
        let ranges = subuid.lines().filter_map(range).collect();
        Self { ranges, named: uids.into_values().collect() }
    }

    /// Returns the accountable uid of a user: of the first range that it is in, or the user's own.
    pub(super) fn accountable(&self, user: u32) -> u32 {
        let range = self.ranges.iter().find(|(range, owner)| range.contains(&user) && *owner != user);
        range.map_or(user, |(_, owner)| *owner)
    }

    /// Returns the user of this host that has `user` as a subordinate one, or `user` itself. Ranges of root's are no
    /// user's: their containers have accounts of their own.
    pub(super) fn holder(&self, user: u32) -> u32 {
        let accountable = self.accountable(user);
        if self.is_of_host(accountable) { accountable } else { user }
    }

    /// Returns true if `/etc/passwd` names this user, who is not root.
    pub(super) fn is_of_host(&self, user: u32) -> bool {
        user != ROOT && self.named.contains(&user)
    }
}

/// Time for which the files are taken to be as they were.
const FRESH: Duration = Duration::from_secs(1);

/// A file's inode, time of change in seconds and nanoseconds, and length; `None` if there is none.
type FileVersion = Option<(u64, i64, i64, u64)>;

/// Both files as they were when they were parsed.
#[derive(Debug)]
struct KnownRanges {
    checked: Instant,
    files: [FileVersion; 2],
    ranges: SubordinateRanges,
}

impl KnownRanges {
    /// Returns true if the files are as they were, by a look a moment ago at most.
    fn is_current(&mut self, paths: [&Path; 2]) -> io::Result<bool> {
        if self.checked.elapsed() < FRESH {
            return Ok(true);
        }
        let checked = Instant::now();
        let is_same = self.files == [version(paths[0])?, version(paths[1])?];
        if is_same {
            self.checked = checked;
        }
        Ok(is_same)
    }

    fn read(paths: [&Path; 2]) -> io::Result<Self> {
        let checked = Instant::now();
        let files = [version(paths[0])?, version(paths[1])?];
        let text = |at: usize| match files[at] {
            None => Ok(String::new()),
            Some(_) => fs::read(paths[at]).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
        };
        Ok(Self { checked, files, ranges: SubordinateRanges::parse(&text(0)?, &text(1)?) })
    }
}

/// Returns the version of a file that may be read.
fn version(path: &Path) -> io::Result<FileVersion> {
    match fs::metadata(path) {
        Ok(its) if !its.is_file() => Err(io::ErrorKind::InvalidData.into()),
        Ok(its) if its.len() > MOST => Err(io::ErrorKind::FileTooLarge.into()),
        Ok(its) => Ok(Some((its.ino(), its.mtime(), its.mtime_nsec(), its.len()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

static KNOWN: Mutex<Option<KnownRanges>> = Mutex::new(None);

/// Returns the result of `ask` for this host's files, which are read again when they change.
///
/// # Errors
/// One can't be read. Then each subordinate user would count as a user of its own.
pub(super) fn with_ranges<T>(ask: impl FnOnce(&SubordinateRanges) -> T) -> io::Result<T> {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    with_files(["/etc/subuid", "/etc/passwd"].map(Path::new), &mut known, ask)
}

fn with_files<T>(
    paths: [&Path; 2],
    known: &mut Option<KnownRanges>,
    ask: impl FnOnce(&SubordinateRanges) -> T,
) -> io::Result<T> {
    let is_current = known.as_mut().map_or(Ok(false), |known| known.is_current(paths))?;
    if !is_current {
        *known = Some(KnownRanges::read(paths)?);
    }
    known.as_ref().map(|known| ask(&known.ranges)).ok_or_else(|| io::ErrorKind::NotFound.into())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PASSWD: &str = "root:x:0:0::/root:/bin/sh\nann:x:1000:1000::/home/ann:/bin/sh\nbad\nworse:x:y\n";

    #[test]
    fn a_subordinate_user_counts_as_the_one_that_has_it_and_one_of_roots_ranges_as_the_range() {
        let subuid =
            "ann:100000:65536\n1001:165536:10\nroot:300000:100\nldap-user:400000:5\nbad:x:1\nann:5\n\nann:0:9\n";
        let ranges = SubordinateRanges::parse(subuid, PASSWD);
        let accountable =
            [100_000, 165_535, 165_536, 165_545, 300_007, 400_004].map(|user| ranges.accountable(user));
        assert_eq!(accountable, [1000, 1000, 1001, 1001, 300_000, 400_000]);
        for own in [0, 1, 1000, 99_999, 165_546, 300_100, u32::MAX] {
            assert_eq!(ranges.accountable(own), own);
        }
        let holders = [100_000, 165_536, 300_007, 400_004, 1000, 0].map(|user| ranges.holder(user));
        assert_eq!(holders, [1000, 165_536, 300_007, 400_004, 1000, 0], "of users that the host names");
        let none = SubordinateRanges::parse("", "");
        assert_eq!(none.accountable(100_000), 100_000);
        assert_eq!([0, 1000, 1001].map(|user| ranges.is_of_host(user)), [false, true, false]);
    }

    #[test]
    fn where_a_file_can_not_be_read_no_subordinate_user_is_taken_for_a_user_of_its_own() {
        let directory = tempfile::tempdir().unwrap();
        let [subuid, passwd] = ["subuid", "passwd"].map(|name| directory.path().join(name));
        let mut known = None;
        let mut accountable = || {
            // As after the moment for which no look is due.
            if let Some(known) = &mut known {
                let known: &mut KnownRanges = known;
                known.checked -= FRESH;
            }
            with_files([&subuid, &passwd], &mut known, |ranges| ranges.accountable(100_005)).ok()
        };
        assert_eq!(accountable(), Some(100_005), "without the files there are no subordinate users");
        fs::write(&passwd, PASSWD).unwrap();
        fs::create_dir(&subuid).unwrap();
        assert_eq!(accountable(), None);
        fs::remove_dir(&subuid).unwrap();
        fs::write(&subuid, "ann:100000:10\n").unwrap();
        assert_eq!(accountable(), Some(1000));
        fs::OpenOptions::new().append(true).open(&subuid).unwrap().set_len(MOST + 1).unwrap();
        assert_eq!(accountable(), None, "it is not read in part");
    }

    proptest! {
        #[test]
        fn whatever_the_files_say_root_stays_root_and_nobody_becomes_root(
            subuid in "([a-z0-9:\n]|root:|100000:|65536){0,60}",
            passwd in "([a-z0-9:\n]|x:|root:){0,60}",
            user in any::<u32>(),
        ) {
            let ranges = SubordinateRanges::parse(&subuid, &passwd);
            prop_assert_eq!(ranges.accountable(ROOT), ROOT);
            prop_assert!(user == ROOT || ranges.accountable(user) != ROOT);
        }
    }
}
