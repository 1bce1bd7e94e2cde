//! Tests of slow clients and the eviction of their connections.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test ends by panicking")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use ksmith_serve::ClientLimits;
use ksmith_serve::connections::ConnectionLimiter;
use ksmith_serve::server::accept;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Starts a server with three pages: a short one, one that fills every buffer, and one that never completes.
async fn serving(limits: ClientLimits) -> (SocketAddr, Arc<ConnectionLimiter>) {
    let routes = Router::new()
        .route("/", get(|| async { "here" }))
        .route("/much", get(|| async { vec![b'x'; 256 << 20] }))
        .route("/never", get(std::future::pending::<&str>));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let connections = ConnectionLimiter::new(limits.connections, limits.of_one_address);
    let shared = Arc::clone(&connections);
    tokio::spawn(async move { accept(&listener, routes, &shared, limits).await });
    (address, connections)
}

fn short() -> ClientLimits {
    let moment = Duration::from_millis(100);
    ClientLimits { head: moment, write: moment, ..ClientLimits::default() }
}

async fn until(what: &str, done: impl Fn() -> bool) {
    let waited = async {
        while !done() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), waited)
        .await
        .unwrap_or_else(|_| panic!("waited too long until {what}"));
}

#[tokio::test]
async fn a_client_that_sends_byte_by_byte_is_let_go() {
    let (address, connections) = serving(short()).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    // Bytes without end, of a head that never is whole.
    stream.write_all(b"GET / HTTP/1.1\r\nX-Slow: ").await.unwrap();
    until("it is connected", || !connections.is_empty()).await;
    let trickle = tokio::spawn(async move {
        while stream.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    until("its place is free", || connections.is_empty()).await;
    trickle.abort();
}

#[tokio::test]
async fn a_client_that_says_nothing_is_let_go_before_and_after_its_first_request() {
    let (address, connections) = serving(short()).await;
    let silent = TcpStream::connect(address).await.unwrap();
    until("it is connected", || !connections.is_empty()).await;
    let mut asked = TcpStream::connect(address).await.unwrap();
    asked.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    asked.read_to_string(&mut answer).await.unwrap();
    assert!(answer.ends_with("here"), "{answer}");
    until("both places are free", || connections.is_empty()).await;
    drop(silent);
}

#[tokio::test]
async fn a_client_that_takes_no_answer_is_let_go() {
    let (address, connections) = serving(short()).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET /much HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    until("it is connected", || !connections.is_empty()).await;
    until("its place is free", || connections.is_empty()).await;
    drop(stream);
}

#[tokio::test]
async fn idle_clients_make_room_and_those_that_await_an_answer_keep_their_places() {
    let limits = ClientLimits { connections: 4, of_one_address: 4, ..ClientLimits::default() };
    let (address, connections) = serving(limits).await;
    let mut waiting = TcpStream::connect(address).await.unwrap();
    waiting.write_all(b"GET /never HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut idle = Vec::new();
    for _ in 0..100 {
        idle.push(TcpStream::connect(address).await.unwrap());
        until("there is no place left, or it is taken", || connections.len() <= 4).await;
    }
    let mut client = TcpStream::connect(address).await.unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert!(answer.ends_with("here"), "{answer}");
    // Nothing has come, and the connection is open still.
    let nothing = tokio::time::timeout(Duration::from_millis(50), waiting.read_u8()).await;
    assert!(nothing.is_err(), "{nothing:?}");
}
