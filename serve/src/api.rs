//! The routes of the server and their responses.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path as FilePath;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, Query, State};
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, extract::rejection::QueryRejection};
use serde_json::json;
use tokio::sync::Semaphore;

use crate::assets;
use crate::connections::BusyGuard;
use crate::guard::{RequestGuard, error, guard};
use crate::history::{HistoryBackend, HistoryError, HistoryQuery};
use crate::metrics::{self, MetricsFormat, MetricsSnapshot};
use crate::peers::{PeerHosts, PolledHost};
use crate::poller::{Answer, SourcePoller};
use crate::stream::EventStreams;

/// Limit of concurrent history queries.
const HISTORIES: usize = 2;

/// Limit of a sketch in bytes, a quarter of the service's memory.
const MOST_SKETCH: u64 = 32 << 20;

/// State shared by all routes.
#[derive(Clone)]
pub struct RouteState {
    /// The source of figures.
    pub poller: SourcePoller,
    /// The event streams.
    pub streams: EventStreams,
    /// The history backend.
    pub history: Arc<dyn HistoryBackend>,
    /// The other hosts.
    pub peers: PeerHosts,
    /// This host's name.
    pub name: Arc<str>,
    /// Limit of guests with metrics of their own.
    pub most_guests: usize,
    /// The sketch file of this host, if it is served.
    pub sketch: Option<Arc<FilePath>>,
    histories: Arc<Semaphore>,
}

impl RouteState {
    /// Creates the shared state.
    pub fn new(
        poller: SourcePoller,
        streams: EventStreams,
        history: Arc<dyn HistoryBackend>,
        peers: PeerHosts,
        name: &str,
        most_guests: usize,
    ) -> Self {
        let histories = Arc::new(Semaphore::new(HISTORIES));
        Self { poller, streams, history, peers, name: name.into(), most_guests, sketch: None, histories }
    }
}

/// Builds all routes, behind the guard.
pub fn router(shared: RouteState, rules: RequestGuard) -> Router {
    Router::new()
        .route("/", get(page))
        .route("/assets/{*name}", get(asset))
        .route("/favicon.ico", get(|| async { StatusCode::NO_CONTENT }))
        .route(
            "/api/v1/status",
            get(|State(shared): State<RouteState>| async move { figures(shared.poller.status().await) }),
        )
        .route(
            "/api/v1/guests",
            get(|State(shared): State<RouteState>| async move { figures(shared.poller.guests().await) }),
        )
        .route(
            "/api/v1/balance",
            get(|State(shared): State<RouteState>| async move { figures(shared.poller.balance().await) }),
        )
        .route("/api/v1/schema/{command}", get(schema))
        .route("/api/v1/history", get(history))
        .route("/api/v1/hosts", get(hosts))
        .route("/api/v1/sketch", get(sketch))
        .route("/api/v1/stream", get(stream))
        .route("/metrics", get(openmetrics))
        .fallback(|| async {
            error(StatusCode::NOT_FOUND, "there is no such page; the figures are under /api/v1/")
        })
        .with_state(shared)
        .layer(from_fn_with_state(rules, guard))
}

fn json(text: impl Into<axum::body::Body>) -> Response {
    let mut response = Response::new(text.into());
    response.headers_mut().insert(CONTENT_TYPE, axum::http::HeaderValue::from_static("application/json"));
    response
}

fn figures<M>(answer: Answer<M>) -> Response {
    match answer {
        Ok(shown) => json(shown.json.to_string()),
        Err(why) => error(StatusCode::SERVICE_UNAVAILABLE, &why.to_string()),
    }
}

async fn page(headers: HeaderMap) -> Response {
    asset(Path(assets::INDEX.to_owned()), headers).await
}

async fn asset(Path(name): Path<String>, headers: HeaderMap) -> Response {
    assets::answer(&name, &headers).unwrap_or_else(|| error(StatusCode::NOT_FOUND, "there is no such file"))
}

async fn schema(State(shared): State<RouteState>, Path(command): Path<String>) -> Response {
    match shared.poller.schema(&command) {
        Some(schema) => json(schema.to_string()),
        None => error(StatusCode::NOT_FOUND, "there is no schema of that name: ask for status, guests or balance"),
    }
}

async fn history(State(shared): State<RouteState>, query: Result<Query<HistoryQuery>, QueryRejection>) -> Response {
    let query = match query {
        Ok(Query(query)) => query,
        Err(why) => return error(StatusCode::BAD_REQUEST, &why.body_text()),
    };
    let Ok(place) = shared.histories.acquire_owned().await else {
        return error(StatusCode::SERVICE_UNAVAILABLE, "the server is ending");
    };
    let store = shared.history;
    // The place goes with the question: a client that hangs up gives none back before the question is answered.
    let ask = move || {
        let _place = place;
        store.history(&query)
    };
    let answer = tokio::task::spawn_blocking(ask).await;
    match answer {
        Ok(Ok(history)) => json(history.to_string()),
        Ok(Err(HistoryError::Unavailable(why))) => error(StatusCode::SERVICE_UNAVAILABLE, &why),
        Ok(Err(HistoryError::Meaningless(why))) => error(StatusCode::BAD_REQUEST, &why),
        Ok(Err(HistoryError::Unknown(why))) => error(StatusCode::NOT_FOUND, &why),
        Err(_) => error(StatusCode::INTERNAL_SERVER_ERROR, "reading the history failed: see ksmith's log"),
    }
}

async fn hosts(State(shared): State<RouteState>) -> Response {
    let own = shared.poller.status().await;
    let own = PolledHost {
        name: shared.name.to_string(),
        url: "/".to_owned(),
        ok: own.is_ok(),
        error: own.as_ref().err().map(ToString::to_string),
        status: own.ok().and_then(|shown| serde_json::from_str(&shown.json).ok()),
    };
    let all: Vec<PolledHost> = [own].into_iter().chain(shared.peers.hosts()).collect();
    json(json!(all).to_string())
}

/// Returns the sketch as it is. Its writer replaces the file as a whole.
async fn sketch(State(shared): State<RouteState>) -> Response {
    let Some(path) = shared.sketch else {
        return error(
            StatusCode::NOT_FOUND,
            "no sketch is served here: start the server with --sketch and --token-file",
        );
    };
    match tokio::task::spawn_blocking(move || read_sketch(&path)).await {
        Ok(Ok(bytes)) => ([(CONTENT_TYPE, "application/vnd.apache.parquet")], bytes).into_response(),
        Ok(Err(why)) => error(StatusCode::SERVICE_UNAVAILABLE, &format!("the sketch can't be read: {why}")),
        Err(_) => error(StatusCode::INTERNAL_SERVER_ERROR, "reading the sketch failed: see ksmith's log"),
    }
}

/// Reads a sketch of at most [`MOST_SKETCH`] bytes. A pipe in its place would keep a thread for ever.
fn read_sketch(path: &FilePath) -> io::Result<Vec<u8>> {
    let metadata = fs::metadata(path)?;
    if !metadata.is_file() || metadata.len() > MOST_SKETCH {
        return Err(io::Error::other(format!("it is not a file of at most {} MiB", MOST_SKETCH >> 20)));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(MOST_SKETCH).read_to_end(&mut bytes)?;
    Ok(bytes)
}

async fn stream(State(shared): State<RouteState>, busy: Option<Extension<BusyGuard>>) -> Response {
    match shared.streams.open(busy.map(|Extension(busy)| busy)) {
        Some(stream) => stream.into_response(),
        None => {
            error(StatusCode::SERVICE_UNAVAILABLE, "too many streams are open; close a page, or try again later")
        }
    }
}

/// Renders OpenMetrics, or Prometheus' text format for a client that accepts only that.
async fn openmetrics(State(shared): State<RouteState>, headers: HeaderMap) -> Response {
    let status = shared.poller.status().await.ok();
    let (guests, balance) = match &status {
        // Each question to a daemon that hangs takes seconds.
        Some(_) => (shared.poller.guests().await.ok(), shared.poller.balance().await.ok()),
        None => (None, None),
    };
    let format = wanted(&headers);
    let text = metrics::text(
        &MetricsSnapshot {
            is_up: status.as_ref().is_some_and(|shown| shown.model.daemon.is_some()),
            status: status.as_deref().map(|shown| &shown.model),
            guests: guests.as_deref().map(|shown| &shown.model),
            balance: balance.as_deref().map(|shown| &shown.model),
            most_guests: shared.most_guests,
        },
        format,
    );
    ([(CONTENT_TYPE, format.content_type())], text).into_response()
}

fn wanted(headers: &HeaderMap) -> MetricsFormat {
    let accepted = headers.get(ACCEPT).and_then(|accepted| accepted.to_str().ok()).unwrap_or("*/*");
    let takes = |kind: &str| accepted.split(',').any(|one| one.trim().starts_with(kind));
    if takes("text/plain") && !takes("application/openmetrics-text") {
        MetricsFormat::Prometheus
    } else {
        MetricsFormat::OpenMetrics
    }
}
