//! The page sampler on a worker thread, so that no tick waits for other processes' memory.

use std::io;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use ksmith_core::page_sample::PageSampleRequest;
use ksmith_core::reading::Reading;
use ksmith_core::sample::{PageSamples, Sample};

use super::LiveSampler;

/// Time for which a tick waits for the counts. They arrive in time unless a process blocks the reader.
const PATIENCE: Duration = Duration::from_millis(5);

/// A page sampler with a worker thread that reads the pages. At most samples nothing is due, and the thread sleeps on.
#[derive(Debug)]
pub struct BackgroundSampler {
    /// `None` while the thread reads.
    sampler: Option<Box<LiveSampler>>,
    orders: Sender<SamplerRequest>,
    done: Receiver<Box<LiveSampler>>,
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
        let (orders, given) = bounded::<SamplerRequest>(1);
        let (sender, done) = bounded(1);
        let work = move || {
            for SamplerRequest { mut sampler, request, sample } in given {
                sampler.carry_out(request, &sample);
                if sender.send(sampler).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("page-sampler".to_owned()).spawn(work)?;
        Ok(Self { sampler: Some(Box::default()), orders, done, newest: Reading::Absent })
    }

    /// Requests the sampled pages if they are due, and fills the newest counts into `sample`. The counts of a slow read
    /// appear in a later sample.
    pub fn read(&mut self, sample: &mut Sample) {
        self.accept_sampler(self.done.try_recv().ok());
        if let Some(mut sampler) = self.sampler.take() {
            match sampler.next(sample) {
                PageSampleRequest::Nothing => self.sampler = Some(sampler),
                request => self.order(SamplerRequest { sampler, request, sample: sample.clone() }),
            }
        }
        sample.page_samples = self.newest.clone();
    }

    fn order(&mut self, order: SamplerRequest) {
        if self.orders.send(order).is_ok() {
            self.accept_sampler(self.done.recv_timeout(PATIENCE).ok());
        }
    }

    fn accept_sampler(&mut self, sampler: Option<Box<LiveSampler>>) {
        if let Some(sampler) = sampler {
            self.newest = sampler.counts();
            self.sampler = Some(sampler);
        }
    }
}
