//! A cgroup (version 2) with all that is in it: a container, a service, a slice of guests.
//!
//! A take asks the kernel to reclaim page cache (`memory.reclaim`, Linux 5.19), and then sets `memory.high` just above
//! what is left: growth beyond that is slowed down and reclaimed, and no process is killed. `memory.max` is never
//! changed. A give raises `memory.high`; giving all restores its first value.
//!
//! Source: `Documentation/admin-guide/cgroup-v2.rst`.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Instant;

use ksmith_core::balance::ReportedFigures;
use ksmith_core::guest::GuestKind;
use ksmith_core::kernel::{Meminfo, Psi, byte_count};
use ksmith_core::sample::ProcessId;

use super::account::LedgerAccount;
use super::ledger::{MOUNTS, MemoryLedger, OriginalCgroup};
use super::rates::{CounterRates, PagingCounters};
use super::{ActuatorAbilities, ActuatorError, ActuatorFigures, MemoryActuator};
use ksmith_host::memory::scan::page_size;
use ksmith_host::root::Root;

/// The granule of resizes.
const STEP: u64 = 1 << 20;

/// The size of one reclaim request: each is a system call of unbounded duration.
const PIECE: u64 = 32 << 20;

/// The distance of `memory.high` from what is used, so that processes are not slowed down at once.
const AIR: u64 = 2 << 20;

/// The longest resize.
const LONGEST: std::time::Duration = std::time::Duration::from_secs(8);

/// One cgroup and its limits.
#[derive(Debug)]
pub(super) struct CgroupActuator {
    root: Root,
    path: String,
    directory: PathBuf,
    inode: u64,
    account: LedgerAccount,
    rates: CounterRates<3>,
    started: Instant,
    can_reclaim: bool,
}

impl CgroupActuator {
    /// Creates the actuator of the cgroup at `path` below the mount point.
    pub(super) fn open(root: &Root, path: &str, key: &str, ledger: &MemoryLedger) -> Result<Self, ActuatorError> {
        let directory = find(root, path)?;
        let inode = fs::metadata(root.path(&directory)).map_err(|why| failed(&directory, why))?.ino();
        // A cgroup has no process of its own. Its inode tells it from a later one of the same path.
        let no_process = ProcessId { pid: 0, start_ticks: 0 };
        let name = path.rsplit('/').next().unwrap_or(path);
        let host = root.text("proc/meminfo").and_then(|text| Meminfo::parse(&text));
        let host = host.value().and_then(|memory| memory.total).unwrap_or(u64::MAX >> 1);
        let limit = |file: &str| match number(root, &directory, file) {
            Err(ActuatorError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(u64::MAX),
            read => read.map(|limit| limit.unwrap_or(u64::MAX)),
        };
        let whole = limit("memory.max")?.min(limit("memory.high")?).min(host);
        let mut account = LedgerAccount::open(ledger, key, name, GuestKind::new("container"), no_process, whole);
        if account.cgroup().is_some_and(|was| was.inode != inode) {
            ledger.strike(key).map_err(|why| failed(&directory, io::Error::other(why)))?;
            account = LedgerAccount::open(ledger, key, name, GuestKind::new("container"), no_process, whole);
        }
        let can_reclaim = root.path(directory.join("memory.reclaim")).exists();
        Ok(Self {
            root: root.clone(),
            path: path.to_owned(),
            directory,
            inode,
            account,
            rates: CounterRates::default(),
            started: Instant::now(),
            can_reclaim,
        })
    }

    fn check_there(&self) -> Result<(), ActuatorError> {
        let found = fs::metadata(self.root.path(&self.directory));
        if found.is_ok_and(|found| found.ino() == self.inode) { Ok(()) } else { Err(ActuatorError::Gone) }
    }

    fn current(&self) -> Result<u64, ActuatorError> {
        let current = number(&self.root, &self.directory, "memory.current")?;
        current.ok_or_else(|| ActuatorError::Nonsense("memory.current is not a number".to_owned()))
    }

    fn write(&self, file: &str, text: &str) -> io::Result<()> {
        fs::write(self.root.path(self.directory.join(file)), text)
    }

    /// Reads `memory.stat`: page cache that can be reclaimed, and counters.
    fn stat(&self) -> CgroupStat {
        let text = self.root.text(self.directory.join("memory.stat"));
        text.value().map(|text| CgroupStat::parse(text, page_size())).unwrap_or_default()
    }

    /// Reclaims page cache until the cgroup uses `to`, or there is no more. Anonymous memory stays: it would go to
    /// swap, which balance is there to avoid.
    fn reclaim(&self, to: u64, deadline: Instant) -> Result<(), ActuatorError> {
        let mut is_choosy = true;
        while Instant::now() < deadline {
            let current = self.current()?;
            let cache = self.stat().cache;
            let piece = current.saturating_sub(to).min(PIECE).min(cache);
            if piece < page_size() {
                return Ok(());
            }
            let text = if is_choosy { format!("{piece} swappiness=0") } else { piece.to_string() };
            match self.write("memory.reclaim", &text) {
                // Its processes refill the cache as fast as it is reclaimed: they need it.
                Ok(()) if self.current()?.saturating_add(piece / 8) > current => return Ok(()),
                Ok(()) => {}
                // Before Linux 6.8 there is no swappiness argument; reclaim prefers page cache by itself.
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) && is_choosy => is_choosy = false,
                // The kernel found less than that.
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => return Ok(()),
                Err(error) => return Err(failed(&self.directory.join("memory.reclaim"), error)),
            }
        }
        Ok(())
    }

    fn shrink(&mut self, to: u64) -> Result<(), ActuatorError> {
        let was = match self.account.cgroup() {
            Some(was) => was.clone(),
            None => {
                // An unknown limit must not be given back as none.
                let high = self.root.path(self.directory.join("memory.high"));
                let text = fs::read_to_string(&high).map_err(|why| failed(&high, why))?;
                OriginalCgroup { path: self.path.clone(), inode: self.inode, high: text.trim().to_owned() }
            }
        };
        self.account.record_cgroup(Some(was), to)?;
        self.reclaim(to.saturating_sub(AIR), Instant::now() + LONGEST)?;
        // The kernel keeps whole pages, and what it shows is compared with what was written.
        let pages = to.max(self.current()?.saturating_add(AIR)).min(self.account.whole()) / page_size();
        let high = pages * page_size();
        self.write("memory.high", &high.to_string())
            .map_err(|why| failed(&self.directory.join("memory.high"), why))?;
        self.account.record_given(high)
    }

    fn grow(&mut self, to: u64) -> Result<(), ActuatorError> {
        let Some(was) = self.account.cgroup().cloned() else { return Ok(()) };
        let is_all = to >= self.account.whole();
        let text = if is_all { was.high.clone() } else { to.to_string() };
        self.write("memory.high", &text).map_err(|why| failed(&self.directory.join("memory.high"), why))?;
        self.account.record_cgroup((!is_all).then_some(was), to)
    }
}

impl MemoryActuator for CgroupActuator {
    fn read_figures(&mut self) -> Result<ActuatorFigures, ActuatorError> {
        self.check_there()?;
        let current = self.current()?;
        let stat = self.stat();
        let mut inside = ReportedFigures {
            cache_bytes: Some(stat.cache),
            // Memory up to the limit, and page cache that was not used lately.
            available_bytes: Some(self.account.given().saturating_sub(current).saturating_add(stat.idle_cache)),
            free_bytes: Some(self.account.given().saturating_sub(current)),
            ..ReportedFigures::default()
        };
        let pressure = self.root.text(self.directory.join("memory.pressure"));
        inside.psi_some_percent =
            pressure.and_then(|text| Psi::parse(&text)).value().and_then(|psi| psi.some.avg10).map(f64::from);
        self.rates.fill(self.started.elapsed(), stat.counts, &mut inside);
        Ok(ActuatorFigures {
            given_bytes: self.account.given(),
            whole_bytes: self.account.whole(),
            resident_bytes: current,
            inside,
        })
    }

    fn resize(&mut self, to_bytes: u64) -> Result<u64, ActuatorError> {
        self.check_there()?;
        let to = to_bytes.min(self.account.whole());
        if to < self.account.given() {
            if !self.can_reclaim {
                return Err(ActuatorError::Unable(
                    "this kernel has no memory.reclaim (Linux 5.19): memory.high alone would slow its processes down \
                     instead of asking for their cache"
                        .to_owned(),
                ));
            }
            self.shrink(to)?;
        } else {
            self.grow(to)?;
        }
        Ok(self.account.given())
    }

    fn abilities(&self) -> ActuatorAbilities {
        let why_not = (!self.can_reclaim).then(|| "memory.reclaim is missing: it came with Linux 5.19".to_owned());
        ActuatorAbilities { way: "cgroup", can_take: self.can_reclaim, can_give: true, step_bytes: STEP, why_not }
    }
}

/// Finds the directory of a cgroup in the unified hierarchy, relative to the root.
fn find(root: &Root, path: &str) -> Result<PathBuf, ActuatorError> {
    let relative = path.trim_start_matches('/');
    if relative.is_empty() || relative.split('/').any(|part| part == "..") {
        return Err(ActuatorError::Unable(format!("{path:?} is not a cgroup below the root: that has no limits")));
    }
    let mut exists = false;
    for mount in MOUNTS {
        let directory = PathBuf::from(mount).join(relative);
        exists |= root.path(&directory).is_dir();
        if root.path(directory.join("memory.high")).exists() {
            return Ok(directory);
        }
    }
    Err(ActuatorError::Unable(if exists || root.path("sys/fs/cgroup/memory").join(relative).is_dir() {
        "its memory is not controlled by cgroup version 2: boot with systemd.unified_cgroup_hierarchy=1, and have the \
         memory controller in the parent's cgroup.subtree_control; version 1 can only set a limit that kills"
            .to_owned()
    } else {
        format!("there is no cgroup {path}")
    }))
}

/// Reads a file with one number, or `max` (`None`).
fn number(root: &Root, directory: &std::path::Path, file: &str) -> Result<Option<u64>, ActuatorError> {
    let path = root.path(directory.join(file));
    let text = fs::read_to_string(&path).map_err(|why| failed(&path, why))?;
    match text.trim() {
        "max" => Ok(None),
        text => byte_count(text).map(Some).map_err(|_| ActuatorError::Nonsense(format!("{file} is {text:?}"))),
    }
}

fn failed(path: &std::path::Path, source: io::Error) -> ActuatorError {
    match source.raw_os_error() {
        // The cgroup was removed while its file was open.
        Some(libc::ENODEV) => ActuatorError::Gone,
        _ => ActuatorError::Io { what: path.display().to_string(), source },
    }
}

/// The lines of `memory.stat` that balance needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct CgroupStat {
    cache: u64,
    idle_cache: u64,
    counts: PagingCounters,
}

impl CgroupStat {
    fn parse(text: &str, page_size: u64) -> Self {
        let number = |key: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '))?;
            byte_count(line).ok()
        };
        let idle_cache = number("inactive_file").unwrap_or(0);
        let pages = |key: &str| number(key).and_then(|pages| pages.checked_mul(page_size));
        Self {
            cache: idle_cache.saturating_add(number("active_file").unwrap_or(0)),
            idle_cache,
            counts: PagingCounters {
                major_faults: number("pgmajfault"),
                swap_in_bytes: pages("pswpin"),
                swap_out_bytes: pages("pswpout"),
            },
        }
    }
}

#[cfg(test)]
mod tests;
