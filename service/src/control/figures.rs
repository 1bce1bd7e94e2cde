//! Answers with figures for those that watch. They share them, at whichever socket they ask: the daemon samples and
//! formats once for all.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::{RecvTimeoutError, Sender, bounded};
use serde::{Deserialize, Serialize};

use super::ControlReply;
use super::ControlRequest;
use super::pending::{PendingRequest, line, refusal};
use super::trimmed::trimmed;
use crate::socket::watch_peer;

/// Error of a request that the daemon's end cuts short.
const ENDING: &str = "the daemon is ending: try again";

/// The longest wait for an answer. A daemon answers between two turns; one that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(5);

/// Figures that can be watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WatchedFigures {
    /// Those of [`ControlRequest::Status`].
    Status,
    /// Those of [`ControlRequest::Guests`].
    Guests,
    /// Those of [`ControlRequest::Balance`].
    Balance,
}

impl From<WatchedFigures> for ControlRequest {
    fn from(figures: WatchedFigures) -> Self {
        match figures {
            WatchedFigures::Status => Self::Status,
            WatchedFigures::Guests => Self::Guests,
            WatchedFigures::Balance => Self::Balance,
        }
    }
}

/// A request for figures of a certain age, without what no command shows.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WatchRequest {
    /// The figures.
    pub watch: WatchedFigures,
    /// The greatest age of the answer, in seconds.
    pub max_age: f64,
}

impl WatchRequest {
    /// Returns the greatest age; 0 if it makes no sense.
    pub(super) fn greatest_age(&self) -> Duration {
        Duration::try_from_secs_f64(self.max_age).unwrap_or_default()
    }
}

/// An answer, and the time of its request. The lock is held while the daemon is asked: other peers wait for the same
/// answer.
type LastAnswer = Mutex<Option<(Instant, Arc<str>)>>;

/// The last answers of the daemon, as text without what no command shows.
#[derive(Debug)]
pub struct FigureAnswers<T> {
    sender: Sender<T>,
    wrap: fn(PendingRequest) -> T,
    /// The last answer for each of [`WatchedFigures`].
    last: [LastAnswer; 3],
}

impl<T> FigureAnswers<T> {
    /// Creates a set without answers. Requests go to `sender`, each made into a message by `wrap`.
    pub fn new(sender: Sender<T>, wrap: fn(PendingRequest) -> T) -> Arc<Self> {
        Arc::new(Self { sender, wrap, last: Default::default() })
    }

    /// Returns the last answer, or a new one if that was older at the time of this call.
    pub(crate) fn answer(&self, figures: WatchedFigures, max_age: Duration) -> Arc<str> {
        let arrived = Instant::now();
        let mut last = self.last[figures as usize].lock().unwrap_or_else(PoisonError::into_inner);
        // An answer that took long is not made again for each peer that has waited for it.
        let is_fresh = |asked: &Instant| arrived.saturating_duration_since(*asked) < max_age;
        if let Some((_, text)) = last.as_ref().filter(|(asked, _)| is_fresh(asked)) {
            return Arc::clone(text);
        }
        let asked = Instant::now();
        match self.request_answer(figures) {
            Ok(text) => {
                let text: Arc<str> = text.into();
                *last = Some((asked, Arc::clone(&text)));
                text
            }
            // The next peer asks again.
            Err(refusal) => refusal.into(),
        }
    }

    /// Sends a request to the daemon. A peer that hangs up meanwhile is waited for all the same, since the next one
    /// gets its answer: a peer that asks and hangs up again and again costs no more than others.
    ///
    /// # Errors
    /// The text of a refusal.
    fn request_answer(&self, figures: WatchedFigures) -> Result<String, String> {
        let (reply, answers) = bounded(1);
        let (waits, peer) = watch_peer();
        if self.sender.send((self.wrap)(PendingRequest::new(figures.into(), reply, peer))).is_err() {
            return Err(refusal(ENDING));
        }
        let answer = answers.recv_timeout(PATIENCE);
        drop(waits);
        match answer {
            Ok(answer @ ControlReply::Error { .. }) => Err(line(&answer)),
            Ok(answer) => Ok(line(&trimmed(answer))),
            Err(RecvTimeoutError::Timeout) => Err(refusal("the daemon is busy; try again")),
            Err(RecvTimeoutError::Disconnected) => Err(refusal(ENDING)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use crossbeam_channel::{Receiver, unbounded};

    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    /// Answers each request by its number, and returns the number of requests in the end.
    fn count_requests(inbox: &Receiver<PendingRequest>) -> usize {
        let mut count = 0;
        while let Ok(asked) = inbox.recv() {
            let _ = asked.reply.send(ControlReply::Done { message: format!("{count}") });
            count += 1;
        }
        count
    }

    #[test]
    fn all_that_watch_share_one_request_and_one_text() {
        let (sender, inbox) = unbounded();
        let answers = FigureAnswers::new(sender, |asked| asked);
        let daemon = thread::spawn(move || count_requests(&inbox));
        let watcher = |_| {
            let answers = Arc::clone(&answers);
            thread::spawn(move || answers.answer(WatchedFigures::Status, LONG))
        };
        let watchers: Vec<_> = (0..4).map(watcher).collect();
        let texts: Vec<Arc<str>> = watchers.into_iter().map(|watcher| watcher.join().unwrap()).collect();
        assert!(texts.iter().all(|text| Arc::ptr_eq(text, &texts[0])), "the text is made once: {texts:?}");
        let guests = answers.answer(WatchedFigures::Guests, LONG);
        assert_ne!(guests, texts[0], "other figures are requested by themselves");
        let fresh = answers.answer(WatchedFigures::Guests, Duration::ZERO);
        assert_ne!(fresh, guests);
        assert!(Arc::ptr_eq(&fresh, &answers.answer(WatchedFigures::Guests, LONG)), "the newest is kept");
        drop(answers);
        assert_eq!(daemon.join().unwrap(), 3);
    }

    #[test]
    fn a_refusal_is_asked_for_again() {
        let (sender, inbox) = unbounded::<PendingRequest>();
        let answers = FigureAnswers::new(sender, |asked| asked);
        let daemon = thread::spawn(move || {
            inbox.recv().unwrap().reply.send(ControlReply::error("the registry is busy")).unwrap();
            count_requests(&inbox)
        });
        assert!(answers.answer(WatchedFigures::Guests, LONG).contains("the registry is busy"));
        assert!(answers.answer(WatchedFigures::Guests, LONG).contains("done"));
        drop(answers);
        assert_eq!(daemon.join().unwrap(), 1);
    }

    #[test]
    fn an_age_that_makes_no_sense_is_none() {
        let age = |max_age| WatchRequest { watch: WatchedFigures::Balance, max_age }.greatest_age();
        assert_eq!([-1.0, f64::NAN, f64::INFINITY].map(age), [Duration::ZERO; 3]);
        assert_eq!(age(0.5), Duration::from_millis(500));
        let read = |text| serde_json::from_str::<WatchRequest>(text);
        assert_eq!(read(r#"{"watch":"guests","max_age":0.9}"#).unwrap().watch, WatchedFigures::Guests);
        for bad in [r#"{"watch":"scan","max_age":1}"#, r#"{"watch":"guests"}"#, r#"{"request":"guests"}"#] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
