//! A ksmd that is led through single passes.
//!
//! Its batch is larger than any pass, and its sleep is many minutes, so that it sleeps after each pass. A changed
//! `sleep_millisecs` wakes it for the next.

use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;
use ksmith_core::kernel::{self, is_asleep};
use ksmith_core::knobs::Knob;
use ksmith_host::act::KnobWriter;
use ksmith_host::ksmd;
use ksmith_host::root::Root;
use ksmith_host::signals::Signal;

use super::{CalibrateError, is_interrupted};

/// The sleep after the first pass, in milliseconds. It grows by one with each pass: a ksmd that has not run since it was woken
/// would find the value that it sleeps for, and sleep on.
const FIRST_SLEEP_MS: u64 = 600_000;

/// Pages in a batch: more than a pass has.
const WHOLE_PASS: u64 = 10_000_000;

/// Time between two looks at a pass under way.
const LOOK: Duration = Duration::from_millis(5);

/// The longest time that a pass may take. Usual is below one second.
const LONGEST: Duration = Duration::from_secs(60);

/// The time over which empty batches are counted.
const IDLE: Duration = Duration::from_millis(1000);

/// ksmd under the writer's control.
pub(super) struct SteppedKsmd<'a> {
    writer: &'a mut KnobWriter,
    interrupts: &'a Receiver<Signal>,
    root: Root,
    pid: u32,
    sleep_ms: u64,
}

impl<'a> SteppedKsmd<'a> {
    /// Finds ksmd, and sees that its CPU time is counted.
    pub fn find(writer: &'a mut KnobWriter, interrupts: &'a Receiver<Signal>) -> Result<Self, CalibrateError> {
        let root = writer.root().clone();
        let pid = ksmd::pid(&root).ok_or_else(|| CalibrateError::Unseen("there is no ksmd in /proc".to_owned()))?;
        let ksmd = Self { writer, interrupts, root, pid, sleep_ms: FIRST_SLEEP_MS };
        ksmd.cpu_ns()?;
        Ok(ksmd)
    }

    /// The settings of a measurement. The writer starts from unmerged memory.
    pub fn prepare(&mut self, is_smart: bool, zero_pages: bool) -> Result<(), CalibrateError> {
        self.writer.set(Knob::UseZeroPages, zero_pages.into())?;
        self.smart_scan(is_smart)?;
        self.writer.set(Knob::PagesToScan, WHOLE_PASS)?;
        Ok(())
    }

    /// Sets `smart_scan`, and returns whether the kernel has it.
    pub fn smart_scan(&mut self, is_smart: bool) -> Result<bool, CalibrateError> {
        self.writer.set(Knob::SmartScan, is_smart.into())?;
        Ok(self.writer.get(Knob::SmartScan)?.is_some())
    }

    /// Lets ksmd make one pass, and returns its CPU time in nanoseconds.
    pub fn pass(&mut self) -> Result<u64, CalibrateError> {
        self.wait(Self::is_asleep)?;
        let (before, passes) = (self.cpu_ns()?, self.number("full_scans")?);
        self.sleep_ms += 1;
        self.writer.set(Knob::SleepMillisecs, self.sleep_ms)?;
        // The sleep that it may still be in is not ended by `run`.
        self.writer.set(Knob::Run, 1)?;
        // ksmd counts the pass before it sleeps. Its time is exact once it sleeps.
        self.wait(|ksmd| Ok(ksmd.number("full_scans")? > passes && ksmd.is_asleep()?))?;
        Ok(self.cpu_ns()?.saturating_sub(before))
    }

    /// The CPU time of waking up for a batch without pages, in nanoseconds.
    pub fn idle_batch(&mut self) -> Result<u64, CalibrateError> {
        self.writer.set(Knob::PagesToScan, 0)?;
        self.writer.set(Knob::SleepMillisecs, 1)?;
        let (before, slept) = (self.cpu_ns()?, self.sleeps()?);
        let began = Instant::now();
        while began.elapsed() < IDLE {
            self.pause(LOOK.min(IDLE.saturating_sub(began.elapsed())))?;
        }
        let (cpu_ns, sleeps) = (self.cpu_ns()?.saturating_sub(before), self.sleeps()?.saturating_sub(slept));
        self.writer.set(Knob::SleepMillisecs, self.sleep_ms)?;
        self.writer.set(Knob::PagesToScan, WHOLE_PASS)?;
        if sleeps == 0 {
            return Err(CalibrateError::Unseen(format!("ksmd did not wake in {} s", IDLE.as_secs_f64())));
        }
        Ok(cpu_ns / sleeps)
    }

    /// Checks that a gauge of KSM is near the expected number of pages.
    pub fn expect(&self, gauge: &str, what: &'static str, wanted: u64) -> Result<(), CalibrateError> {
        self.expect_number(self.number(gauge)?, what, wanted)
    }

    /// Checks that a count is near the expected number of pages.
    pub fn expect_number(&self, found: u64, what: &'static str, wanted: u64) -> Result<(), CalibrateError> {
        // ksmd passes over a few pages that something else holds for a moment.
        let little = wanted / 50 + 16;
        if found.abs_diff(wanted) <= little {
            Ok(())
        } else {
            Err(CalibrateError::Otherwise { what, found, wanted })
        }
    }

    /// The value of one of KSM's counters.
    pub fn number(&self, name: &str) -> Result<u64, CalibrateError> {
        self.read(&format!("sys/kernel/mm/ksm/{name}"), |text| kernel::number(text).ok())
    }

    /// CPU time of the first thread of a process, in nanoseconds.
    pub fn thread_cpu_ns(&self, pid: u32) -> Result<u64, CalibrateError> {
        self.read(&format!("proc/{pid}/schedstat"), |text| kernel::cpu_ns(text).ok())
    }

    fn cpu_ns(&self) -> Result<u64, CalibrateError> {
        self.thread_cpu_ns(self.pid)
    }

    fn is_asleep(&self) -> Result<bool, CalibrateError> {
        self.read(&format!("proc/{}/stat", self.pid), |text| Some(is_asleep(text)))
    }

    /// Returns the number of times that ksmd has gone to sleep.
    fn sleeps(&self) -> Result<u64, CalibrateError> {
        self.read(&format!("proc/{}/status", self.pid), |text| {
            let line = text.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
            kernel::number(line).ok()
        })
    }

    fn read<T>(&self, file: &str, parse: impl Fn(&str) -> Option<T>) -> Result<T, CalibrateError> {
        let text = self.root.text(file);
        let unseen =
            || CalibrateError::Unseen(format!("/{file} is {}", text.as_ref().map(|_| "not what it should be")));
        text.value().and_then(|text| parse(text)).ok_or_else(unseen)
    }

    fn wait(&self, done: impl Fn(&Self) -> Result<bool, CalibrateError>) -> Result<(), CalibrateError> {
        let began = Instant::now();
        while !done(self)? {
            if began.elapsed() > LONGEST {
                return Err(CalibrateError::Stuck { seconds: LONGEST.as_secs() });
            }
            self.pause(LOOK)?;
        }
        Ok(())
    }

    fn pause(&self, time: Duration) -> Result<(), CalibrateError> {
        if is_interrupted(self.interrupts) {
            return Err(CalibrateError::Interrupted);
        }
        std::thread::sleep(time);
        Ok(())
    }
}
