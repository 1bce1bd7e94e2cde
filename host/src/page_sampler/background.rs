//! The page sampler in a thread of its own, so that no turn waits for other processes' memory.

use std::io;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use ksmith_core::reading::Reading;
use ksmith_core::sample::{PageSamples, Sample};

use super::LiveSampler;

/// How long a turn waits for the counts. They are there by then unless a process holds up the reading.
const PATIENCE: Duration = Duration::from_millis(5);

/// A page sampler to which samples are handed over.
#[derive(Debug)]
pub struct BackgroundSampler {
    samples: Sender<Box<Sample>>,
    counts: Receiver<Reading<PageSamples>>,
    newest: Reading<PageSamples>,
    is_busy: bool,
}

impl BackgroundSampler {
    /// Starts the thread. It ends when this is dropped.
    ///
    /// # Errors
    /// The host has no thread for it.
    pub fn start() -> io::Result<Self> {
        let (samples, handed_over) = bounded::<Box<Sample>>(1);
        let (sender, counts) = bounded(1);
        let work = move || {
            let mut sampler = LiveSampler::default();
            for mut sample in handed_over {
                sampler.read(&mut sample);
                if sender.send(sample.page_samples).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("page-sampler".to_owned()).spawn(work)?;
        Ok(Self { samples, counts, newest: Reading::Absent, is_busy: false })
    }

    /// Has the sampled pages read if it is time to, and fills the newest counts into `sample`. The counts of a reading
    /// that takes long are those of a later sample.
    pub fn read(&mut self, sample: &mut Sample) {
        self.take(self.counts.try_recv().ok());
        if !self.is_busy && self.samples.try_send(Box::new(sample.clone())).is_ok() {
            self.is_busy = true;
            self.take(self.counts.recv_timeout(PATIENCE).ok());
        }
        sample.page_samples = self.newest.clone();
    }

    fn take(&mut self, counts: Option<Reading<PageSamples>>) {
        if let Some(counts) = counts {
            (self.newest, self.is_busy) = (counts, false);
        }
    }
}
