//! The source of the figures that commands show: a daemon that answers, else the kernel.
//!
//! A source that is polled survives the daemon: it falls back to the kernel, and says so.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use ksmith_core::decide::PassHistory;
use ksmith_core::decide::domains::DomainsReport;
use ksmith_core::guest::{Guest, GuestId, RollupFigures};
use ksmith_core::model::{BalanceReport, GuestsReport, StatusReport, committed_bytes};
use ksmith_core::sample::Sample;
use ksmith_host::guests::{GuestList, GuestTracker, read_memory};
use ksmith_host::observe::HostObserver;
use ksmith_host::root::Root;
use ksmith_service::config::Config;
use ksmith_service::control::{ClientError, ControlClient};

/// Time between the two samples from which ksmd's CPU use is computed.
const BETWEEN: Duration = Duration::from_millis(250);

/// Interval between two readings of private and shared memory, and the time budget of one.
const MEMORY_EVERY: Duration = Duration::from_secs(10);
const MEMORY_BUDGET: Duration = Duration::from_millis(60);

/// The greatest age of shared figures, as a part of the interval between two polls. The rest is for polls that come early.
const SHARED_PART: f64 = 0.9;

/// Timeout for hypervisors to answer, where no daemon has asked them before.
const PATIENCE: Duration = Duration::from_secs(1);

/// The source of figures, with the state kept between two samples.
pub(super) struct FallbackSource {
    root: Root,
    config: Config,
    observer: HostObserver,
    guests: GuestTracker,
    history: PassHistory,
    has_looked: bool,
    /// Private and shared memory of guests, with the time of its reading.
    memory: HashMap<GuestId, RollupFigures>,
    memory_read: Option<Instant>,
    /// True if it falls back to the kernel when the daemon fails.
    is_steady: bool,
    /// The greatest age of the daemon's figures, where all that watch share them.
    shared_age: Option<Duration>,
    /// The daemon that answered last.
    daemon: Option<u32>,
    /// True if that daemon is gone.
    is_lost: bool,
}

/// A value, with a note on its source if that has changed.
pub(super) struct NotedValue<T> {
    pub value: T,
    pub note: Option<String>,
}

/// The figures that `ksmith top` shows.
pub(super) struct HostFigures {
    pub status: StatusReport,
    pub guests: GuestsReport,
    pub balance: Option<BalanceReport>,
}

impl FallbackSource {
    /// Returns a source for a single query: a daemon that fails is an error.
    pub fn once(root: Root, config: Config) -> Self {
        let guests = GuestTracker::new(root.clone(), config.guests.libvirt_uri.clone());
        let (observer, history) = (HostObserver::new(root.clone()), PassHistory::default());
        Self {
            root,
            config,
            observer,
            guests,
            history,
            has_looked: false,
            memory: HashMap::new(),
            memory_read: None,
            is_steady: false,
            shared_age: None,
            daemon: None,
            is_lost: false,
        }
    }

    /// Returns a source for polling, which survives a daemon's end.
    pub fn steady(root: Root, config: Config) -> Self {
        Self { is_steady: true, ..Self::once(root, config) }
    }

    /// Returns the source for polling this often. It shares the daemon's figures with all that watch: a daemon that many
    /// watch makes them once. They are less old than the interval, so that each poll sees new ones.
    pub fn watching(self, every: Duration) -> Self {
        Self { shared_age: Some(every.mul_f64(SHARED_PART)), ..self }
    }

    /// Returns the status of the host.
    ///
    /// # Errors
    /// The daemon fails, unless the source is steady.
    pub fn status(&mut self) -> anyhow::Result<NotedValue<StatusReport>> {
        let ask = |client: &mut ControlClient| {
            let status = client.status()?;
            let pid = status.daemon.as_ref().map(|daemon| daemon.pid);
            Ok((status, pid))
        };
        self.query_or_sample(ask, |source| {
            let sample = source.sample_host();
            source.status_of(sample)
        })
    }

    /// Returns the guests of the host.
    ///
    /// # Errors
    /// As [`Self::status`].
    pub fn guests(&mut self) -> anyhow::Result<NotedValue<GuestsReport>> {
        // Which daemon answers is of interest only to those that saw another before.
        let asks_pid = self.is_steady;
        let ask = |client: &mut ControlClient| {
            let pid = if asks_pid { client.status()?.daemon.map(|daemon| daemon.pid) } else { None };
            Ok((client.guests()?, pid))
        };
        self.query_or_sample(ask, |source| {
            let sample = source.observer.sample();
            source.guests_of(&sample)
        })
    }

    /// Returns status, guests and balance at once.
    ///
    /// # Errors
    /// As [`Self::status`].
    pub fn everything(&mut self) -> anyhow::Result<NotedValue<HostFigures>> {
        let ask = |client: &mut ControlClient| {
            let (status, guests) = (client.status()?, client.guests()?);
            let balance = status.balance.is_some().then(|| client.balance()).transpose()?;
            let pid = status.daemon.as_ref().map(|daemon| daemon.pid);
            Ok((HostFigures { status, guests, balance }, pid))
        };
        let mut seen = self.query_or_sample(ask, Self::of_kernel)?;
        self.remember_memory(&mut seen.value.guests.guests);
        Ok(seen)
    }

    /// Returns status and guests as the kernel shows them, without a daemon.
    pub fn of_kernel(&mut self) -> HostFigures {
        let sample = self.sample_host();
        let guests = self.guests_of(&sample);
        HostFigures { status: self.status_of(sample), guests, balance: None }
    }

    /// Fills in the guests' private and shared memory from a cache, which is refreshed from time to time: reading is
    /// expensive.
    fn remember_memory(&mut self, guests: &mut [Guest]) {
        if self.memory_read.is_none_or(|read| read.elapsed() >= MEMORY_EVERY) {
            // What can't be read is shown as unknown.
            let _ = read_memory(&self.root, guests, Some(MEMORY_BUDGET));
            self.memory = guests.iter().map(|guest| (guest.id(), guest.figures.memory)).collect();
            self.memory_read = Some(Instant::now());
        }
        for guest in guests {
            guest.figures.memory = self.memory.get(&guest.id()).copied().unwrap_or_default();
        }
    }

    /// Asks the daemon for a value with its PID. Reads the kernel instead if there is no daemon, or none that this user
    /// may ask.
    fn query_or_sample<T>(
        &mut self,
        ask: impl Fn(&mut ControlClient) -> Result<(T, Option<u32>), ClientError>,
        look: impl Fn(&mut Self) -> T,
    ) -> anyhow::Result<NotedValue<T>> {
        if !self.root.is_host() {
            return Ok(NotedValue { value: look(self), note: None });
        }
        let answer = ControlClient::connect(&self.config.daemon.control_socket).and_then(|client| {
            let mut client = match self.shared_age {
                Some(age) => client.sharing(age),
                None => client,
            };
            ask(&mut client)
        });
        let why = match answer {
            Ok((value, pid)) => return Ok(NotedValue { value, note: self.answered(pid) }),
            Err(error) if error.is_absent() => "no daemon answers".to_owned(),
            Err(error) if self.is_steady => error.to_string(),
            Err(error) => return Err(error.into()),
        };
        self.is_lost |= self.daemon.is_some();
        let note = self.is_lost.then(|| format!("{why} since the last one ended: these are the kernel's figures"));
        Ok(NotedValue { value: look(self), note })
    }

    /// Records the daemon that answers. Returns a note if it was restarted, or answers again.
    fn answered(&mut self, pid: Option<u32>) -> Option<String> {
        let (before, was_lost) = (self.daemon, std::mem::take(&mut self.is_lost));
        self.daemon = pid;
        let pid = pid?;
        match before {
            Some(before) if before != pid => {
                Some(format!("the daemon was restarted: pid {pid} answers, and pid {before} before"))
            }
            Some(_) if was_lost => Some(format!("the daemon answers again (pid {pid})")),
            _ => None,
        }
    }

    /// Samples the host. The first call takes two samples, so that ksmd's CPU use can be computed.
    fn sample_host(&mut self) -> Sample {
        if !std::mem::replace(&mut self.has_looked, true) {
            self.history.push(&self.observer.sample());
            if self.root.is_host() {
                std::thread::sleep(BETWEEN);
            }
        }
        let sample = self.observer.sample();
        self.history.push(&sample);
        sample
    }

    fn status_of(&mut self, sample: Sample) -> StatusReport {
        let ksmd_cpu_percent = self.history.ksmd_share().filter(|_| self.root.is_host()).map(|share| share * 100.0);
        let guests = self.guests.list(&sample).guests;
        let domains = Some(DomainsReport::from_guests(&self.config.domains, &guests, None));
        let committed_bytes = committed_bytes(&guests);
        StatusReport { sample, ksmd_cpu_percent, domains, committed_bytes, ..StatusReport::default() }
    }

    fn guests_of(&mut self, sample: &Sample) -> GuestsReport {
        let GuestList { mut guests, unattributed_bytes } = self.guests.list_within(sample, PATIENCE);
        // A daemon assigns domains and labels itself.
        self.config.assign_to(&mut guests);
        GuestsReport::new(sample, guests, unattributed_bytes)
    }
}
