//! The process at the other end of a connection, as the kernel knows it.

use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;

use ksmith_core::job::{JobMoment, JobProcess, saved_bytes};
use ksmith_core::kernel::{KsmStat, PidStat, RMAP_ITEM_BYTES};
use ksmith_core::sample::ProcessId;
use rustix::fs::{Mode, OFlags, open, openat};

use super::protocol::PeerSavings;
use crate::socket::PeerCredentials;
use ksmith_host::accountable::accountable_uid;
use ksmith_host::ksm_counts::ksm_as_counted;
use ksmith_host::memory::rights::ProcessRights;
use ksmith_host::proc_file;
use ksmith_host::reader;
use ksmith_host::root::Root;

/// A process that has connected. Its /proc directory is held open, so that a PID that is used again is never
/// taken for it.
#[derive(Debug)]
pub struct UserPeer {
    /// Its user when it connected.
    pub user: u32,
    /// The accountable uid: its user, or the one that made that user up in a namespace.
    pub accountable_uid: u32,
    /// The process's PID and start.
    pub id: ProcessId,
    /// Its program's name.
    pub name: String,
    /// Its group when it connected.
    group: u32,
    /// Its rights and its program when it was accepted.
    state: PeerState,
    directory: OwnedFd,
}

/// The rights and the program that a process must keep from its connection until its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
struct PeerState {
    rights: ProcessRights,
    start_ticks: u64,
    /// Device and inode of its program; `None` if that is hidden from this process.
    program: Option<([u32; 2], u64)>,
    /// Addresses that change when a process executes a program, even the same one.
    addresses: Option<[u64; 2]>,
}

/// An error of reading a peer's figures.
#[derive(Debug, thiserror::Error)]
pub enum PeerFiguresError {
    /// It has, or has had since it connected, other rights than its user, or another program.
    #[error(
        "your process has other rights or another program than when it connected, or may not be examined by its user"
    )]
    OtherRights,
    /// It has ended, or the kernel does not say.
    #[error("your figures can't be read: {0}")]
    Unreadable(#[from] io::Error),
}

impl UserPeer {
    /// Opens and examines the process that has connected.
    ///
    /// # Errors
    /// It has ended, may not be examined, is in a PID namespace that can't be seen from here, or has another user than
    /// when it connected: then it may be another process that was given the PID.
    pub fn open(PeerCredentials { pid, user, group }: PeerCredentials) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = open(format!("/proc/{pid}"), flags, Mode::empty())?;
        // First, before a process that connected as a subordinate user may end.
        let accountable_uid = accountable_uid(&directory, pid, user)?;
        let (state, stat) = PeerState::read(&directory, pid)?;
        if state.rights.effective_user() != user {
            return Err(ErrorKind::PermissionDenied.into());
        }
        let id = ProcessId { pid, start_ticks: stat.start_ticks };
        Ok(Self { user, accountable_uid, id, name: stat.comm, group, state, directory })
    }

    /// Returns the memory that KSM saves for the peer.
    ///
    /// # Errors
    /// See [`PeerFiguresError`].
    pub fn saves(&self, root: &Root) -> Result<PeerSavings, PeerFiguresError> {
        self.examine(|| Ok(self.figures(root)?))
    }

    /// Returns the result of `work` if the process had exactly the rights of its user, and ran the same program, before
    /// and afterwards. A user may learn nothing of a set-user-id program that its process has begun, though a child of
    /// it may hold the connection.
    ///
    /// # Errors
    /// It had others, or those of `work`.
    pub fn examine<T, E: From<OtherRights>>(&self, work: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        self.check()?;
        let done = work();
        self.check()?;
        done
    }

    fn check(&self) -> Result<(), OtherRights> {
        let is_same = PeerState::read(&self.directory, self.id.pid).is_ok_and(|(now, _)| now == self.state);
        let is_same = is_same && self.state.rights.are_of_group(self.user, self.group);
        if is_same { Ok(()) } else { Err(OtherRights) }
    }

    fn figures(&self, root: &Root) -> io::Result<PeerSavings> {
        let page_size = rustix::param::page_size() as u64;
        let stat = PidStat::parse(&read(&self.directory, self.id.pid, "stat")?).ok();
        let rss_pages = stat
            .and_then(|stat| stat.rss_pages)
            .ok_or_else(|| io::Error::other("the kernel shows an impossible resident size"))?;
        let ksm = KsmStat::parse(&read(&self.directory, self.id.pid, "ksm_stat")?)
            .map_err(|why| io::Error::other(why.to_string()))?;
        let seen = JobProcess::new(self.id, self.name.as_str().into(), ksm);
        let moment =
            JobMoment { page_size, ksm: ksm_as_counted(root), processes: vec![seen], ..JobMoment::default() };
        let saved_bytes = saved_bytes(&moment).first().copied().unwrap_or(0);
        let (merging, zero) = (ksm.merging_pages.unwrap_or(0), ksm.zero_pages.unwrap_or(0));
        let overhead = ksm.rmap_items.unwrap_or(0).saturating_mul(RMAP_ITEM_BYTES);
        Ok(PeerSavings {
            rss_bytes: rss_pages.saturating_mul(page_size),
            merged_bytes: merging.saturating_add(zero).saturating_mul(page_size),
            saved_bytes,
            profit_bytes: i64::try_from(i128::from(saved_bytes) - i128::from(overhead)).unwrap_or(i64::MIN),
            zero_bytes: zero.saturating_mul(page_size),
        })
    }
}

/// The process has other rights or another program than when it connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OtherRights;

impl From<OtherRights> for PeerFiguresError {
    fn from(OtherRights: OtherRights) -> Self {
        Self::OtherRights
    }
}

impl PeerState {
    /// Reads the state of the process of an open /proc directory, with its statistics.
    fn read(directory: &OwnedFd, pid: u32) -> io::Result<(Self, PidStat)> {
        let text = read(directory, pid, "stat")?;
        let stat = PidStat::parse(&text).map_err(|why| io::Error::other(why.to_string()))?;
        let program = match reader::file_status(pid, "exe") {
            Ok(found) => Some((found.device, found.inode)),
            Err(error) if matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::NotFound) => None,
            Err(error) => return Err(error),
        };
        let state = Self {
            rights: ProcessRights::read(directory)?,
            start_ticks: stat.start_ticks,
            program,
            addresses: PidStat::program_addresses(&text),
        };
        Ok((state, stat))
    }
}

fn read(directory: &OwnedFd, pid: u32, name: &str) -> io::Result<String> {
    let open = |name: &str| openat(directory, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    if !proc_file::may_wait(name) {
        return proc_file::read(open(name)?.into(), pid, name).map(proc_file::lossy);
    }
    let bytes = reader::read(pid, name)?;
    // The directory shows that what was read by PID is this process's.
    open("stat")?;
    Ok(proc_file::lossy(bytes))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_peer_is_the_process_that_the_kernel_names() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let peer = UserPeer::open(PeerCredentials::from_stream(&ours).unwrap()).unwrap();
        assert_eq!((peer.id.pid, peer.user), (std::process::id(), rustix::process::getuid().as_raw()));
        assert_eq!(peer.check(), Ok(()));
    }

    /// Connecting and then beginning passwd(1) must not show passwd's memory, though its real user is the same.
    #[test]
    fn a_program_that_its_user_may_not_read_is_not_its_users() {
        use std::os::unix::fs::PermissionsExt;
        use std::os::unix::process::CommandExt;

        const OTHER_USER: u32 = 65534;
        if !rustix::process::geteuid().is_root() {
            eprintln!("only root can become another user");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let program = directory.path().join("sleep");
        // 0711 where the file system knows no set-user-id: that can't be read either.
        for (mode, expected) in [(0o755, true), (0o711, false), (0o4711, false)] {
            crate::testing::copy_program("/bin/sleep", &program);
            std::fs::set_permissions(&program, PermissionsExt::from_mode(mode)).unwrap();
            let mut command = std::process::Command::new(&program);
            let mut child = command.arg("1000").uid(OTHER_USER).gid(OTHER_USER).spawn().unwrap();
            let is_fit = |user, group| {
                let opened = UserPeer::open(PeerCredentials { pid: child.id(), user, group });
                opened.is_ok_and(|peer| peer.check().is_ok())
            };
            let found = (is_fit(OTHER_USER, OTHER_USER), is_fit(1, OTHER_USER) || is_fit(OTHER_USER, 1));
            child.kill().unwrap();
            child.wait().unwrap();
            std::fs::remove_file(&program).unwrap();
            assert_eq!(found, (expected, false), "{mode:o}");
        }
    }

    /// A process connects as a subordinate user and ends, and its maker's next process is given the PID.
    #[test]
    fn a_process_of_another_user_than_connected_is_no_peer() {
        let own = PeerCredentials { pid: std::process::id(), user: rustix::process::getuid().as_raw(), group: 0 };
        assert!(UserPeer::open(own).is_ok());
        assert!(UserPeer::open(PeerCredentials { user: 300_005, ..own }).is_err());
    }

    #[test]
    fn a_peer_that_has_ended_has_no_figures() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let user = rustix::process::getuid().as_raw();
        let peer = UserPeer::open(PeerCredentials { pid: child.id(), user, group: 0 }).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(peer.saves(&Root::host()).is_err());
    }
}
