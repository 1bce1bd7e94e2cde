//! The counted work of a guest, which shows what merging costs the guest.
//!
//! In every period of 10 ms the worker is busy for its share of the time by the clock. It rewrites a page of its
//! own part and reads a page of another part, by turns. It does less where ksmd takes its CPU away, where writes
//! copy merged pages, or where smaller pages make memory slower.

use std::io;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::Thread;
use std::time::{Duration, Instant};

use super::contents::MemoryPart;
use super::filled::{FilledPart, lock};

const PERIOD: Duration = Duration::from_millis(10);

/// The thread for a guest's first `work` part. The thread ends with the guest.
#[derive(Debug)]
pub(super) struct GuestWorker {
    thread: Thread,
    percent: Arc<AtomicU8>,
    done: Arc<AtomicU64>,
}

impl GuestWorker {
    /// Starts the worker of the guest with these parts. `None` if no part is for work.
    ///
    /// # Errors
    /// The thread can't be started.
    pub(super) fn start(parts: &[Arc<Mutex<FilledPart>>]) -> io::Result<Option<Self>> {
        let is_work =
            |part: &Arc<Mutex<FilledPart>>| matches!(lock(part).part, MemoryPart::Work { pages, .. } if pages > 0);
        let (work, others): (Vec<_>, Vec<_>) = parts.iter().cloned().partition(is_work);
        let Some(own) = work.into_iter().next() else { return Ok(None) };
        let first = match lock(&own).part {
            MemoryPart::Work { percent, .. } => percent,
            _ => 0,
        };
        let (percent, done) = (Arc::new(AtomicU8::new(first)), Arc::new(AtomicU64::new(0)));
        let mut desk = WorkerParts { own, others, turn: 0 };
        let (share, count) = (Arc::clone(&percent), Arc::clone(&done));
        let thread = std::thread::Builder::new().name("work".to_owned()).spawn(move || {
            loop {
                desk.period(share.load(Ordering::Relaxed), &count);
            }
        })?;
        Ok(Some(Self { thread: thread.thread().clone(), percent, done }))
    }

    /// Sets the load in per cent.
    pub(super) fn set_percent(&self, percent: u8) {
        self.percent.store(percent, Ordering::Relaxed);
        self.thread.unpark();
    }

    /// Number of pages processed.
    pub(super) fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }
}

struct WorkerParts {
    own: Arc<Mutex<FilledPart>>,
    others: Vec<Arc<Mutex<FilledPart>>>,
    turn: usize,
}

impl WorkerParts {
    fn period(&mut self, percent: u8, done: &AtomicU64) {
        if percent == 0 {
            std::thread::park();
            return;
        }
        let began = Instant::now();
        let busy = PERIOD * u32::from(percent) / 100;
        while began.elapsed() < busy {
            self.step();
            done.fetch_add(1, Ordering::Relaxed);
        }
        std::thread::sleep(PERIOD.saturating_sub(began.elapsed()));
    }

    fn step(&mut self) {
        let turn = self.turn;
        self.turn += 1;
        {
            let mut own = lock(&self.own);
            let pages = own.part.pages().max(1);
            own.write(turn % pages, 1 + (turn / pages) as u64);
        }
        // Skips a part that is being rewritten as a whole, because its lock is held for long.
        let count = self.others.len().max(1);
        if let Some(other) = self.others.get(turn % count).and_then(|part| part.try_lock().ok()) {
            std::hint::black_box(other.read((turn / count) % other.part.pages().max(1)));
        }
    }
}
