//! User-mode Linux: its management console plugs memory in and out.
//!
//! `config mem=-8M` makes the guest allocate that much, page by page and without waiting, and hand it back to the host
//! (`MADV_REMOVE` on its RAM file); `config mem=+8M` frees it again. Three properties matter:
//!
//! * It answers OK even if it stopped half way. The memory that it has allocated is the part that no line of its
//!   `/proc/meminfo` accounts for, which is therefore read before and after each step.
//! * It takes free memory only. Low free memory wakes the guest's kswapd, which drops page cache: hence small steps
//!   with pauses.
//! * Without an available page it panics. So no step may leave less than a reserve.
//!
//! Source: `arch/um/drivers/mconsole_kern.c` (`mem_config`).

use std::fs;
use std::io;
use std::thread::sleep;
use std::time::{Duration, Instant};

use ksmith_core::balance::ReportedFigures;
use ksmith_core::kernel::{Meminfo, Psi, SmapsRollup, Vmstat};
use ksmith_core::sample::ProcessId;

use rustix::fs::FileType;

use super::account::LedgerAccount;
use super::ledger::MemoryLedger;
use super::rates::{CounterRates, PagingCounters};
use super::{ActuatorAbilities, ActuatorError, ActuatorFigures, MemoryActuator};
use ksmith_host::guests::{GuestTarget, Mconsole, MconsoleError, has_ended};
use ksmith_host::reader;
use ksmith_host::root::Root;

const PAGE: u64 = 4096;

/// The largest step.
const STEP: u64 = 4 << 20;

/// The smallest step: less does not wake kswapd in reasonable time.
const SMALLEST: u64 = 1 << 20;

/// The time for an answer. The guest answers from a work queue, and its host may be busy.
const PATIENCE: Duration = Duration::from_secs(1);

/// The longest resize.
const LONGEST: Duration = Duration::from_secs(7);

/// The pause after a step, for kswapd.
const PAUSE: Duration = Duration::from_millis(20);

/// The number of steps in a row that may yield next to nothing.
const MOST_WASTED: u32 = 25;

/// The tolerated difference between the host's measure and the ledger: a step that was noted and not done, and more.
const SLACK: u64 = 2 * STEP;

/// One user-mode Linux.
#[derive(Debug)]
pub(super) struct UmlActuator {
    root: Root,
    console: Mconsole,
    process: ProcessId,
    ram: Option<RamFile>,
    account: LedgerAccount,
    rates: CounterRates<3>,
    started: Instant,
    /// True if its kernel counts memory pressure; `None` before the first request.
    has_psi: Option<bool>,
    /// The part of its memory that no line of its meminfo accounts for, without what was taken.
    baseline: Option<u64>,
    /// Amount before a step with an unknown outcome.
    unsure: Option<u64>,
}

impl UmlActuator {
    /// Creates the actuator of this guest. Queries it once.
    pub(super) fn open(
        root: &Root,
        target: &GuestTarget,
        key: &str,
        ledger: &MemoryLedger,
    ) -> Result<Self, ActuatorError> {
        let console = Mconsole::find_by_pid(root, target.id.pid()).ok_or_else(|| {
            ActuatorError::Unable(
                "its management console was not found; it lies in ~/.uml/NAME of its user, or below uml_dir="
                    .to_owned(),
            )
        })?;
        Self::with(root, console, target, key, ledger)
    }

    fn with(
        root: &Root,
        console: Mconsole,
        target: &GuestTarget,
        key: &str,
        ledger: &MemoryLedger,
    ) -> Result<Self, ActuatorError> {
        let told = || -> Result<u64, ActuatorError> {
            let memory = memory(&console)?;
            memory.total.ok_or_else(|| ActuatorError::Nonsense("a meminfo without MemTotal".to_owned()))
        };
        let whole = target.identity.memory_bytes.map_or_else(told, Ok)? / PAGE * PAGE;
        let account = LedgerAccount::of_guest(ledger, key, target, whole);
        let ram = RamFile::find(root, target.id.pid(), whole);
        Ok(Self {
            root: root.clone(),
            console,
            process: target.id.process(),
            ram,
            account,
            rates: CounterRates::default(),
            started: Instant::now(),
            has_psi: None,
            baseline: None,
            unsure: None,
        })
    }

    fn check_alive(&self) -> Result<(), ActuatorError> {
        if has_ended(&self.root, self.process) { Err(ActuatorError::Gone) } else { Ok(()) }
    }

    /// Replaces a failure by the end of the guest, if that explains it.
    fn explain<T>(&self, result: Result<T, ActuatorError>) -> Result<T, ActuatorError> {
        result.or_else(|error| self.check_alive().and(Err(error)))
    }

    /// Queries its memory figures, and settles a step with an unknown outcome.
    fn memory(&mut self) -> Result<Meminfo, ActuatorError> {
        let memory = self.explain(memory(&self.console))?;
        if let Some(now) = memory.unaccounted() {
            let taken = self.account.whole() - self.account.given();
            let baseline = *self.baseline.get_or_insert(now.saturating_sub(taken));
            if let Some(before) = self.unsure {
                let given = self.account.whole().saturating_sub(now.saturating_sub(baseline));
                // The host's measure may have raised the account beyond the amount before the step.
                self.account.record_given(given.min(before).max(self.account.given()))?;
                self.unsure = None;
            }
        }
        // Pages that the host still has were not given back, whatever the guest answered.
        if let Some(kept) = self.ram.as_ref().and_then(RamFile::resident) {
            let kept = kept.min(self.account.whole());
            if kept > self.account.given() + SLACK {
                self.account.record_given(kept)?;
            }
        }
        Ok(memory)
    }

    /// Queries its PSI `some` of memory. A kernel without PSI is asked once.
    fn pressure(&mut self) -> Option<f64> {
        if self.has_psi == Some(false) {
            return None;
        }
        let psi = match self.console.send_command_within("proc pressure/memory", PATIENCE) {
            Ok(text) => Psi::parse(&text).ok(),
            Err(MconsoleError::Refused { .. }) => None,
            // A missing answer does not show whether its kernel has PSI.
            Err(MconsoleError::Socket { .. }) => return None,
        };
        self.has_psi = Some(psi.is_some());
        psi?.some.avg10.map(f64::from)
    }

    /// Takes one step, and returns its yield.
    fn take_step(&mut self, step: u64) -> Result<u64, ActuatorError> {
        let given = self.account.given();
        self.account.record_given(given - step)?;
        self.unsure = Some(given);
        if let Err(error) = self.explain(plug(&self.console, '-', step)) {
            if let ActuatorError::Refused { .. } = error {
                self.unsure = None;
                self.account.record_given(given)?;
            }
            return Err(error);
        }
        // The new figures show the yield of the step.
        self.memory()?;
        Ok(given.saturating_sub(self.account.given()))
    }

    fn shrink(&mut self, to: u64, deadline: Instant) -> Result<(), ActuatorError> {
        let reserve = reserve(self.account.whole());
        let had = self.account.given();
        let mut wasted = 0;
        while self.account.given() > to && wasted < MOST_WASTED && Instant::now() < deadline {
            let memory = self.memory()?;
            let (Some(available), Some(free)) = (memory.available, memory.free) else {
                return Err(ActuatorError::Nonsense("a meminfo without MemAvailable".to_owned()));
            };
            unaccounted(&memory)?;
            let wanted = self.account.given().saturating_sub(to).min(STEP);
            let step = wanted.min((free / 4 * 3).max(SMALLEST)) / PAGE * PAGE;
            if step == 0 || available < reserve + step {
                break;
            }
            let yielded = self.take_step(step)?;
            wasted = if yielded < step / 4 { wasted + 1 } else { 0 };
            if yielded < STEP {
                sleep(PAUSE);
            }
        }
        // It may have come to use some of its reserve meanwhile: return that much of what was taken here.
        let lacks = self.memory()?.available.map_or(0, |available| reserve.saturating_sub(available));
        let enough = (self.account.given() + lacks.next_multiple_of(SMALLEST)).min(had);
        if enough > self.account.given() { self.grow(enough) } else { Ok(()) }
    }

    fn grow(&mut self, to: u64) -> Result<(), ActuatorError> {
        let before = self.memory()?;
        let (given, whole) = (self.account.given(), self.account.whole());
        if to >= whole {
            // More than was taken: the guest stops at its whole, which corrects an error of the ledger.
            self.explain(plug(&self.console, '+', whole))?;
            return self.account.record_given(whole);
        }
        self.explain(plug(&self.console, '+', to - given))?;
        let after = self.memory()?;
        let grown = unaccounted(&before)?.saturating_sub(unaccounted(&after)?);
        // Pages between two lists of its kernel count nowhere.
        let is_all = grown + SMALLEST >= to - given;
        self.account.record_given(if is_all { to } else { (given + grown).min(to) })
    }
}

impl MemoryActuator for UmlActuator {
    fn read_figures(&mut self) -> Result<ActuatorFigures, ActuatorError> {
        self.check_alive()?;
        let memory = self.memory()?;
        let mut inside = ReportedFigures {
            available_bytes: memory.available,
            free_bytes: memory.free,
            cache_bytes: memory.cached,
            ..ReportedFigures::default()
        };
        let told = self.console.send_command_within("proc vmstat", PATIENCE).ok();
        if let Some(vm) = told.and_then(|text| Vmstat::parse(&text).ok()) {
            let counts = PagingCounters {
                major_faults: vm.pgmajfault,
                swap_in_bytes: vm.pswpin.and_then(|pages| pages.checked_mul(PAGE)),
                swap_out_bytes: vm.pswpout.and_then(|pages| pages.checked_mul(PAGE)),
            };
            self.rates.fill(self.started.elapsed(), counts, &mut inside);
        }
        inside.psi_some_percent = self.pressure();
        let mapped = || resident(&self.root, self.process.pid);
        let resident_bytes = self.ram.as_ref().and_then(RamFile::resident).or_else(mapped).unwrap_or(0);
        Ok(ActuatorFigures {
            given_bytes: self.account.given(),
            whole_bytes: self.account.whole(),
            resident_bytes,
            inside,
        })
    }

    fn resize(&mut self, to_bytes: u64) -> Result<u64, ActuatorError> {
        self.check_alive()?;
        let deadline = Instant::now() + LONGEST;
        let to = to_bytes.min(self.account.whole()) / PAGE * PAGE;
        self.memory()?;
        if to < self.account.given() {
            self.shrink(to, deadline)?;
        } else if to > self.account.given() || to_bytes >= self.account.whole() {
            self.grow(to)?;
        }
        Ok(self.account.given())
    }

    fn abilities(&self) -> ActuatorAbilities {
        ActuatorAbilities { way: "mconsole", can_take: true, can_give: true, step_bytes: STEP, why_not: None }
    }
}

/// Returns the memory that a guest of this size keeps available in any case: its kernel can't even exit without it.
fn reserve(whole: u64) -> u64 {
    (4 << 20) + whole / 64
}

fn memory(console: &Mconsole) -> Result<Meminfo, ActuatorError> {
    let text = console.send_command_within("proc meminfo", PATIENCE).map_err(translate)?;
    Meminfo::parse(&text).map_err(|why| ActuatorError::Nonsense(why.to_string()))
}

fn unaccounted(memory: &Meminfo) -> Result<u64, ActuatorError> {
    memory
        .unaccounted()
        .ok_or_else(|| ActuatorError::Nonsense("a meminfo without MemFree, Cached or AnonPages".to_owned()))
}

fn plug(console: &Mconsole, sign: char, bytes: u64) -> Result<(), ActuatorError> {
    console
        .send_command_within(&format!("config mem={sign}{}K", bytes >> 10), PATIENCE)
        .map(|_| ())
        .map_err(translate)
}

fn translate(error: MconsoleError) -> ActuatorError {
    match error {
        MconsoleError::Refused { command, why } => ActuatorError::Refused { what: command, why },
        MconsoleError::Socket { source, .. } if source.kind() == io::ErrorKind::TimedOut => {
            ActuatorError::Silent { patience: PATIENCE }
        }
        MconsoleError::Socket { source, .. } if source.kind() == io::ErrorKind::InvalidData => {
            ActuatorError::Nonsense(source.to_string())
        }
        MconsoleError::Socket { path, source } => {
            ActuatorError::Io { what: format!("the management console {}", path.display()), source }
        }
    }
}

fn resident(root: &Root, pid: u32) -> Option<u64> {
    let sums = root.text(format!("proc/{pid}/smaps_rollup")).and_then(|text| SmapsRollup::parse(&text));
    sums.value()?.pss
}

/// The file that is the guest's RAM: unlinked, held open by the guest, at least as large as its memory.
///
/// Its blocks are the memory that the host spends, which no answer of the guest can change. It is not held open here,
/// since that would keep it after the guest's end.
#[derive(Debug)]
struct RamFile {
    pid: u32,
    /// The guest's open file, such as `fd/7`.
    link: String,
    inode: u64,
}

impl RamFile {
    fn find(root: &Root, pid: u32, whole: u64) -> Option<Self> {
        let descriptors = fs::read_dir(root.path(format!("proc/{pid}/fd"))).ok()?;
        descriptors.flatten().take(1000).find_map(|entry| {
            let link = format!("fd/{}", entry.file_name().to_str()?);
            let found = reader::file_status(pid, &link).ok()?;
            let is_file = FileType::from_raw_mode(found.mode).is_file();
            let is_ram = is_file && found.links == 0 && found.length >= whole;
            is_ram.then_some(Self { pid, link, inode: found.inode })
        })
    }

    fn resident(&self) -> Option<u64> {
        let found = reader::file_status(self.pid, &self.link).ok().filter(|found| found.inode == self.inode)?;
        Some(found.blocks.saturating_mul(512))
    }
}

#[cfg(test)]
mod tests;
