//! A cached poll of the source: at most one request a second for each model, regardless of the number of clients.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ksmith_core::model::{BalanceReport, GuestsReport, StatusReport};
use serde_json::Value as Json;
use tokio::sync::Mutex;

use crate::source::{FigureSource, ModelRenderer, SourceUnavailable};

/// Maximum age of a cached reply.
const FRESH: Duration = Duration::from_secs(1);

/// A model and its rendered JSON.
#[derive(Debug)]
pub struct RenderedModel<M> {
    /// The model as data.
    pub model: M,
    /// The JSON of the model as text.
    pub json: Arc<str>,
}

/// A rendered model, or the error of its source.
pub type Answer<M> = Result<Arc<RenderedModel<M>>, SourceUnavailable>;

/// The last reply and its time. Locked while the source is polled, so that concurrent clients wait for the same reply.
type Last<M> = Arc<Mutex<Option<(Instant, Answer<M>)>>>;

/// A poller that caches a source's replies.
#[derive(Clone)]
pub struct SourcePoller {
    source: Arc<dyn FigureSource>,
    render: ModelRenderer,
    status: Last<StatusReport>,
    guests: Last<GuestsReport>,
    balance: Last<BalanceReport>,
}

impl SourcePoller {
    /// Creates a poller with an empty cache.
    pub fn new(source: Arc<dyn FigureSource>, render: ModelRenderer) -> Self {
        Self { source, render, status: Last::default(), guests: Last::default(), balance: Last::default() }
    }

    /// Returns the host's KSM status, at most a second old.
    ///
    /// # Errors
    /// The source does not answer.
    pub async fn status(&self) -> Answer<StatusReport> {
        fresh(&self.status, &self.source, |source| source.status(), self.render.status).await
    }

    /// Returns the guests, at most a second old.
    ///
    /// # Errors
    /// The source does not answer.
    pub async fn guests(&self) -> Answer<GuestsReport> {
        fresh(&self.guests, &self.source, |source| source.guests(), self.render.guests).await
    }

    /// Returns the balance plan, at most a second old.
    ///
    /// # Errors
    /// The source does not answer.
    pub async fn balance(&self) -> Answer<BalanceReport> {
        fresh(&self.balance, &self.source, |source| source.balance(), self.render.balance).await
    }

    /// Returns the JSON Schema of a command's output.
    pub fn schema(&self, command: &str) -> Option<Json> {
        (self.render.schema)(command)
    }
}

/// Returns the cached reply, or polls the source if it is too old. A client that disconnects does not cancel the poll:
/// the next client gets its reply.
async fn fresh<M: Send + Sync + 'static>(
    last: &Last<M>,
    source: &Arc<dyn FigureSource>,
    ask: fn(&dyn FigureSource) -> Result<M, SourceUnavailable>,
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

fn shown<M>(model: M, render: fn(&M) -> Json) -> Arc<RenderedModel<M>> {
    let json = render(&model).to_string().into();
    Arc::new(RenderedModel { model, json })
}

fn fault() -> SourceUnavailable {
    SourceUnavailable("the request for figures failed: this is a fault of ksmith, see its log".to_owned())
}
