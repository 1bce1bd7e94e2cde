//! Forecasts of merging in huge pages on the live host ([`ksmith_core::merge_forecast`]), on a worker thread.

mod reader;

use std::io;

use ksmith_core::merge_forecast::{ForecastPlanner, ForecastRequest};
use ksmith_core::sample::{HostForecast, ProcessSample, Sample};

pub use self::reader::{ForecastReader, ForecastSpace};
use crate::memory::process::{MarkedMemory, OpenProcess};
use crate::worker_thread::WorkerThread;

/// The part of the resident memory of guests that a forecast must have seen. Pages of files are resident too.
const SEEN: f64 = 0.5;

/// Makes forecasts when they are due. At most samples nothing is.
#[derive(Debug)]
pub struct MergeForecaster {
    planner: ForecastPlanner,
    worker: WorkerThread<ForecastOrder, Option<HostForecast>>,
}

/// An order to the worker thread.
#[derive(Debug)]
struct ForecastOrder {
    request: ForecastRequest,
    /// PIDs, and true for those that offer all of their memory.
    processes: Vec<(u32, bool)>,
    page_size: u64,
}

impl MergeForecaster {
    /// Starts the thread. It ends when this is dropped.
    ///
    /// # Errors
    /// The host has no thread for it.
    pub fn start() -> io::Result<Self> {
        let mut reader = ForecastReader::new();
        let work = move |order: ForecastOrder| carry_out(&mut reader, &order);
        Ok(Self {
            planner: ForecastPlanner::default(),
            worker: WorkerThread::start_replying("forecaster", 1, work)?,
        })
    }

    /// Requests a forecast of all memory for the next samples, however little is in huge pages.
    pub fn request(&mut self) {
        self.planner.request();
    }

    /// Requests a forecast if it is due, and fills the state of the newest into `sample`. A new one is in a later sample.
    pub fn fill(&mut self, sample: &mut Sample) {
        if let Ok(forecast) = self.worker.poll_reply() {
            self.planner.record(forecast);
        }
        if let Some(request) = self.planner.next_request(sample) {
            let processes = sample.processes.iter().filter(|process| process.may_merge());
            let processes = processes.map(|process| (process.id.pid, offers_all(process))).collect();
            let order = ForecastOrder { request, processes, page_size: sample.page_size };
            if self.worker.queue_request(order).is_err() {
                self.planner.record(None);
            }
        }
        self.planner.fill(sample);
    }
}

/// Carries an order out. `None` if too little of the memory could be read.
fn carry_out(reader: &mut ForecastReader, order: &ForecastOrder) -> Option<HostForecast> {
    if order.request.needs_huge_pages && !reader.tells_huge_pages() {
        return None;
    }
    let mut bytes = order.request.bytes;
    let mut spaces = Vec::new();
    for &(pid, offers_all) in &order.processes {
        let Ok(process) = OpenProcess::open(pid) else { continue };
        let all = |stretches| MarkedMemory { stretches, unmarked_bytes: 0 };
        let offered = if offers_all { process.stretches().map(all) } else { process.marked_memory() };
        let Ok(offered) = offered else { continue };
        bytes = bytes.saturating_sub(offered.unmarked_bytes);
        spaces.push(ForecastSpace { pid, stretches: offered.stretches });
    }
    let forecast = reader.forecast(&spaces, order.request.rate, bytes, order.page_size);
    (forecast.total.bytes as f64 >= bytes as f64 * SEEN).then_some(forecast)
}

/// Returns true if all memory of the process counts as offered: a hypervisor's is nearly all its guest's, and before Linux 6.14
/// the kernel does not say. What it has marked takes longer to read.
fn offers_all(process: &ProcessSample) -> bool {
    process.is_vm || process.ksm.merge_any != Some(false)
}
