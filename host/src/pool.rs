//! A parallel map with a deadline: an item that hangs delays no other.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::bounded;

/// Upper bound of the threads. The daemon's unit limits its threads too.
const MOST: usize = 32;

/// Applies `work` to all items, in at most 32 threads. Returns the results in the order of the items: `None` for work
/// that has not ended within `patience`, was never started, or has panicked. A thread that hangs is abandoned; it
/// starts no further item.
pub fn each_within<T, R>(
    items: Vec<T>,
    patience: Duration,
    work: impl Fn(&T) -> R + Send + Sync + 'static,
) -> Vec<Option<R>>
where
    T: Send + Sync + 'static,
    R: Send + 'static,
{
    let deadline = Instant::now() + patience;
    let mut results: Vec<Option<R>> = items.iter().map(|_| None).collect();
    let (sender, outcomes) = bounded(items.len());
    let threads = items.len().min(MOST);
    let shared = Arc::new((items, AtomicUsize::new(0), work));
    for _ in 0..threads {
        let (shared, sender) = (Arc::clone(&shared), sender.clone());
        let labour = move || {
            let (items, next, work) = &*shared;
            while Instant::now() < deadline {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(item) = items.get(index) else { return };
                // After the deadline there is no receiver.
                let _ = sender.send((index, work(item)));
            }
        };
        if thread::Builder::new().name("guest".to_owned()).spawn(labour).is_err() {
            break;
        }
    }
    drop(sender);
    while let Ok((index, result)) = outcomes.recv_deadline(deadline) {
        if let Some(place) = results.get_mut(index) {
            *place = Some(result);
        }
    }
    results
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_items() {
        let items: Vec<usize> = (0..100).collect();
        let results = each_within(items, Duration::from_secs(600), |item| item * 2);
        assert_eq!(results, (0..100).map(|item| Some(item * 2)).collect::<Vec<_>>());
        assert_eq!(each_within(Vec::<u8>::new(), Duration::from_secs(600), |item| *item), []);
    }

    #[test]
    fn one_that_hangs_holds_up_no_other() {
        let (never, hang) = bounded::<()>(0);
        let (told, done) = bounded(100);
        let items: Vec<usize> = (0..8).collect();
        let patience = Duration::from_secs(3);
        let asking = thread::spawn(move || {
            each_within(items, patience, move |item| {
                if *item == 0 {
                    let _ = hang.recv();
                } else {
                    told.send(*item).unwrap();
                }
            })
        });
        for _ in 1..8 {
            done.recv().unwrap();
        }
        let results = asking.join().unwrap();
        assert_eq!(results.first(), Some(&None));
        drop(never);
    }

    #[test]
    fn one_that_panics_has_no_result() {
        let results =
            each_within(vec![1, 0, 2], Duration::from_secs(600), |item| 6_u32.checked_div(*item).unwrap());
        assert_eq!(results, [Some(6), None, Some(3)]);
    }
}
