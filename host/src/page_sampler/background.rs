//! The page sampler on a worker thread, so that no tick waits for other processes' memory.

use std::io;
use std::time::Duration;

use crossbeam_channel::TryRecvError;
use ksmith_core::page_sample::PageSampleRequest;
use ksmith_core::reading::Reading;
use ksmith_core::sample::{PageSamples, Sample};

use super::LiveSampler;
use crate::worker_thread::WorkerThread;

/// Time for which a tick waits for the counts. They arrive in time unless a process blocks the reader.
const PATIENCE: Duration = Duration::from_millis(5);

/// A page sampler with a worker thread that reads the pages. At most samples nothing is due, and the thread sleeps on.
#[derive(Debug)]
pub struct BackgroundSampler {
    /// `None` while the thread reads.
    sampler: Option<Box<LiveSampler>>,
    worker: WorkerThread<SamplerRequest, Box<LiveSampler>>,
    newest: Reading<PageSamples>,
}

/// A request to the worker thread, with the sampler that it works on.
#[derive(Debug)]
struct SamplerRequest {
    sampler: Box<LiveSampler>,
    request: PageSampleRequest,
    sample: Sample,
}

impl BackgroundSampler {
    /// Starts the thread. It ends when this is dropped.
    ///
    /// # Errors
    /// The host has no thread for it.
    pub fn start() -> io::Result<Self> {
        let work = |SamplerRequest { mut sampler, request, sample }| {
            sampler.carry_out(request, &sample);
            sampler
        };
        let worker = WorkerThread::start_replying("page-sampler", 1, work)?;
        Ok(Self { sampler: Some(Box::default()), worker, newest: Reading::Absent })
    }

    /// Requests the sampled pages if they are due, and fills the newest counts into `sample`. The counts of a slow read
    /// appear in a later sample.
    pub fn read(&mut self, sample: &mut Sample) {
        match self.worker.poll_reply() {
            Ok(sampler) => self.accept_sampler(Some(sampler)),
            Err(TryRecvError::Disconnected) => self.start_again(),
            Err(TryRecvError::Empty) => {}
        }
        if let Some(mut sampler) = self.sampler.take() {
            match sampler.next(sample) {
                PageSampleRequest::Nothing => self.sampler = Some(sampler),
                request => self.send_request(SamplerRequest { sampler, request, sample: sample.clone() }),
            }
        }
        sample.page_samples = self.newest.clone();
    }

    /// Starts another thread for one that a fault has ended, with its sampler.
    fn start_again(&mut self) {
        if let Ok(fresh) = Self::start() {
            *self = fresh;
        }
    }

    fn send_request(&mut self, request: SamplerRequest) {
        if self.worker.queue_request(request).is_ok() {
            self.accept_sampler(self.worker.await_reply(PATIENCE).ok());
        }
    }

    fn accept_sampler(&mut self, sampler: Option<Box<LiveSampler>>) {
        if let Some(sampler) = sampler {
            self.newest = sampler.counts();
            self.sampler = Some(sampler);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_a_fault_has_ended_is_started_again() {
        let worker = WorkerThread::start_replying("page-sampler", 1, |_| panic!("a fault of the program"));
        let mut sampler = BackgroundSampler { sampler: None, worker: worker.unwrap(), newest: Reading::Absent };
        let (request, mut sample) = (PageSampleRequest::Nothing, Sample::default());
        sampler.send_request(SamplerRequest { sampler: Box::default(), request, sample: sample.clone() });
        while sampler.sampler.is_none() {
            sampler.read(&mut sample);
            std::thread::yield_now();
        }
    }
}
