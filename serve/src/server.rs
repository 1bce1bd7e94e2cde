//! The server: listens, accepts connections within limits, and ends on SIGTERM and SIGINT.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio_io_timeout::TimeoutStream;
use tower::ServiceExt;
use tracing::{debug, info, warn};

use crate::api::{RouteState, router};
use crate::connections::{ConnectionLimiter, ConnectionSlot};
use crate::guard::{ArrivalAddress, RequestGuard};
use crate::history::HistoryBackend;
use crate::listen::listener;
use crate::options::{ClientLimits, ServeOptions};
use crate::peers::PeerHosts;
use crate::poller::SourcePoller;
use crate::source::{FigureSource, ModelRenderer};
use crate::stream::EventStreams;

/// Back-off after a failed accept(2), which would otherwise spin on one CPU.
const PAUSE: Duration = Duration::from_millis(100);

/// Blocking threads for the daemon, the store and name resolution.
const WAITING_THREADS: usize = 8;

/// The error of a server that can't start or run.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address can't be bound.
    #[error("can't listen on {address}: {source}; name another by --listen, or end the program that has it")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The cause.
        source: io::Error,
    },
    /// The host lacks a thread, descriptor or signal that the server needs.
    #[error("can't start: {0}")]
    Start(#[from] io::Error),
}

/// Serves until SIGTERM or SIGINT.
///
/// # Errors
/// The server can't start or listen.
pub fn run(
    options: &ServeOptions,
    source: Arc<dyn FigureSource>,
    render: ModelRenderer,
    history: Arc<dyn HistoryBackend>,
) -> Result<(), ServeError> {
    let threads = WAITING_THREADS + 2 * options.peers.len();
    let runtime = Builder::new_current_thread().enable_all().max_blocking_threads(threads).build()?;
    let served = runtime.block_on(serve(options, source, render, history));
    // A question to a daemon that hangs ends with the process.
    runtime.shutdown_background();
    served
}

async fn serve(
    options: &ServeOptions,
    source: Arc<dyn FigureSource>,
    render: ModelRenderer,
    history: Arc<dyn HistoryBackend>,
) -> Result<(), ServeError> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let address = options.listen;
    let listener = listener(address).map_err(|source| ServeError::Listen { address, source })?;
    let address = listener.local_addr()?;
    info!("serving at http://{address}");
    if !address.ip().is_loopback() && options.tokens.is_empty() {
        warn!("{address} is not loopback, and there is no --token-file: all that reach it may read the figures");
    }
    let poller = SourcePoller::new(source, render);
    let streams = EventStreams::new(poller.clone(), options.limits.streams);
    let peers = PeerHosts::start(&options.peers, options.peer_token.as_deref());
    let mut shared = RouteState::new(poller, streams, history, peers, &host_name(), options.most_guests);
    shared.sketch = options.sketch.as_deref().filter(|_| !options.tokens.is_empty()).map(Arc::from);
    let routes = router(shared, RequestGuard::new(&options.tokens, &options.allowed_hosts));
    let connections = ConnectionLimiter::new(options.limits.connections, options.limits.of_one_address);
    if let Err(why) = sd_notify::notify(&[sd_notify::NotifyState::Ready]) {
        debug!("can't notify the service manager: {why}");
    }
    tokio::select! {
        () = accept(&listener, routes, &connections, options.limits) => {}
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    info!("ending");
    Ok(())
}

fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Accepts connections forever, and serves `routes` to them.
pub async fn accept(
    listener: &TcpListener,
    routes: Router,
    connections: &Arc<ConnectionLimiter>,
    limits: ClientLimits,
) {
    let mut is_failing = false;
    loop {
        match listener.accept().await {
            Ok((stream, from)) => {
                is_failing = false;
                // One that gets no place is closed.
                if let Some(place) = connections.acquire_slot(from.ip()) {
                    spawn_connection(stream, place, routes.clone(), limits);
                }
            }
            Err(why) => {
                if !std::mem::replace(&mut is_failing, true) {
                    warn!("connections can't be accepted: {why}; retrying");
                }
                connections.close_one();
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Serves a connection in a new task.
fn spawn_connection(stream: TcpStream, place: ConnectionSlot, routes: Router, limits: ClientLimits) {
    let Ok(local) = stream.local_addr() else { return };
    let place = Arc::new(place);
    let served = serve_one(stream, local.ip(), Arc::clone(&place), routes, limits);
    place.set_task(tokio::spawn(served).abort_handle());
}

async fn serve_one(
    stream: TcpStream,
    local: IpAddr,
    place: Arc<ConnectionSlot>,
    routes: Router,
    limits: ClientLimits,
) {
    let _ = stream.set_nodelay(true);
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(limits.write));
    let answer = move |request: hyper::Request<Incoming>| {
        let (routes, busy) = (routes.clone(), place.busy());
        async move {
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(ArrivalAddress(local));
            request.extensions_mut().insert(busy.clone());
            let answered = routes.oneshot(request).await;
            drop(busy);
            answered
        }
    };
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .max_buf_size(limits.head_bytes)
        .max_headers(64)
        .serve_connection(TokioIo::new(Box::pin(stream)), service_fn(answer));
    if let Err(why) = served.await {
        debug!("a connection ended: {why}");
    }
}
