//! Server-sent events: changed models, at most once a second, from one poller for all clients.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::Stream;
use serde_json::json;
use tokio::sync::watch;

use crate::connections::BusyGuard;
use crate::poller::SourcePoller;

/// Interval between two polls.
const INTERVAL: Duration = Duration::from_millis(1001);

/// Interval of keep-alive comments on a silent stream.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// A text with its sequence number.
type Version = (u64, Arc<str>);

/// The current texts, shared by all streams.
#[derive(Debug, Clone, Default)]
struct StreamTexts {
    /// The last sequence number.
    count: u64,
    status: Option<Version>,
    guests: Option<Version>,
    unavailable: Option<Version>,
}

/// The event streams of all clients.
#[derive(Clone)]
pub struct EventStreams {
    poller: SourcePoller,
    now: Arc<watch::Sender<StreamTexts>>,
    is_looking: Arc<AtomicBool>,
    places: Arc<StreamPlaces>,
}

/// The places of streams, of which each address has a share: it may take one while it has fewer than are free. So one
/// address has half of them at most, and leaves others as many.
#[derive(Debug)]
struct StreamPlaces {
    most: usize,
    /// Open streams of each address. All clients whose address is not known have one share.
    taken: Mutex<BTreeMap<Option<IpAddr>, usize>>,
}

/// A stream's place, released on drop.
#[derive(Debug)]
struct StreamPlace {
    places: Arc<StreamPlaces>,
    address: Option<IpAddr>,
}

/// Resources that an open stream holds.
struct StreamPermit {
    _place: StreamPlace,
    _busy: Option<BusyGuard>,
}

impl EventStreams {
    /// Creates a set of at most `most` streams.
    pub fn new(poller: SourcePoller, most: usize) -> Self {
        let (now, _) = watch::channel(StreamTexts::default());
        let places = Arc::new(StreamPlaces { most, taken: Mutex::default() });
        Self { poller, now: Arc::new(now), is_looking: Arc::default(), places }
    }

    /// Opens a stream for a client. `None` if the limit, or its address's share, is reached.
    pub fn open(
        &self,
        busy: Option<BusyGuard>,
    ) -> Option<Sse<impl Stream<Item = Result<Event, Infallible>> + use<>>> {
        let place = StreamPlaces::acquire(&self.places, busy.as_ref().and_then(BusyGuard::address))?;
        let mut changes = self.now.subscribe();
        changes.mark_changed();
        if !self.is_looking.swap(true, Ordering::Relaxed) {
            // What was shown to streams that have ended is old.
            self.now.send_modify(|now| *now = StreamTexts { count: now.count, ..StreamTexts::default() });
            tokio::spawn(self.clone().poll_source());
        }
        let held = StreamPermit { _place: place, _busy: busy };
        let client = StreamClient { changes, held, sent: [0; 3], queue: VecDeque::new() };
        let events = futures_util::stream::unfold(client, |mut client| async {
            let event = client.next().await?;
            Some((Ok(event), client))
        });
        Some(Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)))
    }

    /// Polls as long as there are streams.
    async fn poll_source(self) {
        while self.now.receiver_count() > 0 {
            let (status, guests) = (self.poller.status().await, self.poller.guests().await);
            let status = status.map(|shown| Arc::clone(&shown.json));
            let guests = guests.map(|shown| Arc::clone(&shown.json));
            let error = status.as_ref().err().map(|why| Arc::from(json!({ "error": why.to_string() }).to_string()));
            self.now.send_if_modified(|now| {
                let is_back = error.is_none() && now.unavailable.take().is_some();
                let changed = [
                    put(&mut now.count, &mut now.status, status.ok(), is_back),
                    put(&mut now.count, &mut now.guests, guests.ok(), is_back),
                    put(&mut now.count, &mut now.unavailable, error, false),
                ];
                is_back || changed.contains(&true)
            });
            tokio::time::sleep(INTERVAL).await;
        }
        // No stream is opened between the last look at their number and this: there is no await in between.
        self.is_looking.store(false, Ordering::Relaxed);
    }
}

impl StreamPlaces {
    fn acquire(this: &Arc<Self>, address: Option<IpAddr>) -> Option<StreamPlace> {
        let mut taken = this.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let free = this.most.saturating_sub(taken.values().sum());
        let own = taken.get(&address).copied().unwrap_or(0);
        if own >= free {
            return None;
        }
        taken.insert(address, own + 1);
        Some(StreamPlace { places: Arc::clone(this), address })
    }
}

impl Drop for StreamPlace {
    fn drop(&mut self) {
        let mut taken = self.places.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Entry::Occupied(mut own) = taken.entry(self.address) {
            *own.get_mut() -= 1;
            if *own.get() == 0 {
                own.remove();
            }
        }
    }
}

/// Replaces a text. Returns true if it differs from the old one, or if `again` is set.
fn put(count: &mut u64, place: &mut Option<Version>, text: Option<Arc<str>>, again: bool) -> bool {
    let Some(text) = text else { return false };
    if place.as_ref().is_some_and(|(_, old)| *old == text) && !again {
        return false;
    }
    *count += 1;
    *place = Some((*count, text));
    true
}

/// The state of one client's stream.
struct StreamClient {
    changes: watch::Receiver<StreamTexts>,
    #[allow(dead_code, reason = "it is only held")]
    held: StreamPermit,
    /// The sequence numbers sent last: of status, guests and unavailability.
    sent: [u64; 3],
    queue: VecDeque<Event>,
}

impl StreamClient {
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.queue.pop_front() {
                return Some(event);
            }
            self.changes.changed().await.ok()?;
            let now = self.changes.borrow_and_update().clone();
            let places = [("status", now.status), ("guests", now.guests), ("unavailable", now.unavailable)];
            for ((name, version), sent) in places.into_iter().zip(&mut self.sent) {
                match version {
                    Some((number, text)) if number != *sent => {
                        *sent = number;
                        self.queue.push_back(Event::default().event(name).data(&*text));
                    }
                    Some(_) => {}
                    None => *sent = 0,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::connections::ConnectionLimiter;

    #[test]
    fn no_address_takes_the_streams_of_others() {
        let places = Arc::new(StreamPlaces { most: 64, taken: Mutex::default() });
        let address = |last| Some(Ipv4Addr::new(10, 0, 0, last).into());
        let all_of =
            |last| std::iter::from_fn(|| StreamPlaces::acquire(&places, address(last))).collect::<Vec<_>>();
        let (greedy, other) = (all_of(1), all_of(2));
        assert_eq!((greedy.len(), other.len()), (32, 16));
        drop(greedy);
        assert_eq!(all_of(3).len(), 24, "what is released is shared anew");
        drop(other);
        assert!(places.taken.lock().unwrap().is_empty());
    }

    #[test]
    fn all_loopback_addresses_have_one_share() {
        let places = Arc::new(StreamPlaces { most: 64, taken: Mutex::default() });
        let limiter = ConnectionLimiter::new(100, 100);
        let open = |address: IpAddr| {
            let slot = limiter.acquire_slot(address).unwrap();
            StreamPlaces::acquire(&places, slot.busy().address())
        };
        let own: Vec<_> = (1..=64).filter_map(|last| open(Ipv4Addr::new(127, 0, 0, last).into())).collect();
        assert_eq!(own.len(), 32);
        assert!(open(Ipv4Addr::new(10, 0, 0, 1).into()).is_some());
    }
}
