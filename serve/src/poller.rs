//! Asks the source, at most once a second for each model, however many clients want to know.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ksmith_core::model::{BalanceReport, GuestsReport, Status};
use serde_json::Value as Json;
use tokio::sync::Mutex;

use crate::source::{Render, Source, Unavailable};

/// The greatest age of an answer.
const FRESH: Duration = Duration::from_secs(1);

/// A model, and its JSON.
#[derive(Debug)]
pub struct Shown<M> {
    /// The model as data.
    pub model: M,
    /// The JSON of the model as text.
    pub json: Arc<str>,
}

/// A model, or why there is none.
pub type Answer<M> = Result<Arc<Shown<M>>, Unavailable>;

/// The last answer and its time. Held while the source is asked: others wait for the same answer.
type Last<M> = Arc<Mutex<Option<(Instant, Answer<M>)>>>;

/// The last answers of a source.
#[derive(Clone)]
pub struct Poller {
    source: Arc<dyn Source>,
    render: Render,
    status: Last<Status>,
    guests: Last<GuestsReport>,
    balance: Last<BalanceReport>,
}

impl Poller {
    /// A poller that has not asked yet.
    pub fn new(source: Arc<dyn Source>, render: Render) -> Self {
        Self { source, render, status: Last::default(), guests: Last::default(), balance: Last::default() }
    }

    /// The host's KSM, at most a second old.
    ///
    /// # Errors
    /// The source does not answer.
    pub async fn status(&self) -> Answer<Status> {
        fresh(&self.status, &self.source, |source| source.status(), self.render.status).await
    }

    /// The guests, at most a second old.
    ///
    /// # Errors
    /// The source does not answer.
    pub async fn guests(&self) -> Answer<GuestsReport> {
        fresh(&self.guests, &self.source, |source| source.guests(), self.render.guests).await
    }

    /// The plan of balance, at most a second old.
    ///
    /// # Errors
    /// The source does not answer.
    pub async fn balance(&self) -> Answer<BalanceReport> {
        fresh(&self.balance, &self.source, |source| source.balance(), self.render.balance).await
    }

    /// The JSON Schema of what a command prints.
    pub fn schema(&self, command: &str) -> Option<Json> {
        (self.render.schema)(command)
    }
}

/// The last answer, or a new one where that is too old. A client that goes away ends no question: the next one gets the
/// answer.
async fn fresh<M: Send + Sync + 'static>(
    last: &Last<M>,
    source: &Arc<dyn Source>,
    ask: fn(&dyn Source) -> Result<M, Unavailable>,
    render: fn(&M) -> Json,
) -> Answer<M> {
    let (last, source) = (Arc::clone(last), Arc::clone(source));
    let task = tokio::spawn(async move {
        let mut last = last.lock_owned().await;
        if let Some((_, answer)) = last.as_ref().filter(|(then, _)| then.elapsed() < FRESH) {
            return answer.clone();
        }
        let work = move || ask(&*source).map(|model| shown(model, render));
        let answer = tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| Err(fault()));
        *last = Some((Instant::now(), answer.clone()));
        answer
    });
    task.await.unwrap_or_else(|_| Err(fault()))
}

fn shown<M>(model: M, render: fn(&M) -> Json) -> Arc<Shown<M>> {
    let json = render(&model).to_string().into();
    Arc::new(Shown { model, json })
}

fn fault() -> Unavailable {
    Unavailable("asking for figures failed: this is a fault of ksmith, see its log".to_owned())
}
