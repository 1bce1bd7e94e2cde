//! Tests of the routes without a network: responses, rejections, and polls of the source.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test ends by panicking")]

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt;
use ksmith_core::guest::MergeEfficiency;
use ksmith_core::model::{BalanceReport, GuestsReport, StatusReport};
use ksmith_core::sample::Sample;
use ksmith_serve::api::{RouteState, router};
use ksmith_serve::guard::{ArrivalAddress, RequestGuard};
use ksmith_serve::peers::PeerHosts;
use ksmith_serve::poller::SourcePoller;
use ksmith_serve::stream::EventStreams;
use ksmith_serve::{FigureSource, HistoryBackend, HistoryError, HistoryQuery, ModelRenderer, SourceUnavailable};
use serde_json::{Value as Json, json};
use tower::ServiceExt;

/// A source that counts its requests.
#[derive(Default)]
struct CountingSource {
    asked: AtomicUsize,
}

impl FigureSource for CountingSource {
    fn status(&self) -> Result<StatusReport, SourceUnavailable> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let sample = Sample { page_size: 4096, ..Sample::default() };
        Ok(StatusReport {
            sample,
            ksmd_cpu_percent: None,
            daemon: None,
            domains: None,
            balance: None,
            history: None,
            sketch: None,
            committed_bytes: None,
        })
    }

    fn guests(&self) -> Result<GuestsReport, SourceUnavailable> {
        let mut report = GuestsReport::new(&Sample::default(), Vec::new(), 0);
        report.efficiency = MergeEfficiency::default();
        Ok(report)
    }

    fn balance(&self) -> Result<BalanceReport, SourceUnavailable> {
        Err(SourceUnavailable("guests are not balanced".to_owned()))
    }
}

/// A history backend that echoes its query.
struct EchoHistory;

impl HistoryBackend for EchoHistory {
    fn history(&self, query: &HistoryQuery) -> Result<Json, HistoryError> {
        match query.guest.as_deref() {
            Some("none") => Err(HistoryError::Unknown("there is no such guest".to_owned())),
            _ if [&query.since, &query.until].iter().any(|time| ["x", "-5"].contains(&time.as_str())) => {
                Err(HistoryError::Meaningless("that is no time".to_owned()))
            }
            _ => Ok(
                json!({ "points": query.points, "is_default": (query.since.as_str(), query.until.as_str()) == ("2h", "now") }),
            ),
        }
    }
}

fn render() -> ModelRenderer {
    ModelRenderer {
        status: |status| json!({ "page_size": status.sample.page_size }),
        guests: |report| json!({ "saved_bytes": report.saved_bytes }),
        balance: |_| json!({}),
        schema: |command| (command == "status").then(|| json!({ "title": "status" })),
    }
}

const TOKEN: &str = "0123456789abcdef";
/// The token that comes after it.
const NEXT_TOKEN: &str = "fedcba9876543210";

/// Builds the routes on a counting source. Must be called within a runtime.
fn routes(token: Option<&str>, most_streams: usize) -> (Router, Arc<CountingSource>) {
    routes_with_sketch(token, most_streams, None)
}

fn routes_with_sketch(
    token: Option<&str>,
    most_streams: usize,
    sketch: Option<&Path>,
) -> (Router, Arc<CountingSource>) {
    let fake = Arc::new(CountingSource::default());
    let poller = SourcePoller::new(Arc::clone(&fake) as Arc<dyn FigureSource>, render());
    let streams = EventStreams::new(poller.clone(), most_streams);
    let mut shared = RouteState::new(poller, streams, Arc::new(EchoHistory), PeerHosts::default(), "here", 1000);
    shared.sketch = sketch.map(Arc::from);
    let tokens: Vec<String> = token.into_iter().chain(token.and(Some(NEXT_TOKEN))).map(str::to_owned).collect();
    (router(shared, RequestGuard::new(&tokens, &["Ksmith.Example".to_owned()])), fake)
}

struct RouteResponse {
    status: StatusCode,
    headers: HeaderMap,
    body: String,
}

impl RouteResponse {
    fn json(&self) -> Json {
        serde_json::from_str(&self.body).unwrap()
    }
}

async fn send(routes: &Router, request: axum::http::request::Builder) -> RouteResponse {
    let mut request = request.body(Body::empty()).unwrap();
    request.extensions_mut().insert(ArrivalAddress(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7))));
    let response = routes.clone().oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let body = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
    RouteResponse { status: parts.status, headers: parts.headers, body }
}

async fn get(routes: &Router, path: &str) -> RouteResponse {
    send(routes, Request::get(path).header("host", "localhost:9797")).await
}

#[tokio::test]
async fn each_route_answers_as_the_contract_says() {
    let (routes, _) = routes(None, 1);
    assert_eq!(get(&routes, "/api/v1/status").await.json(), json!({ "page_size": 4096 }));
    assert_eq!(get(&routes, "/api/v1/guests").await.json(), json!({ "saved_bytes": 0 }));
    let balance = get(&routes, "/api/v1/balance").await;
    assert_eq!(balance.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(balance.json(), json!({ "error": "guests are not balanced" }));
    let hosts = get(&routes, "/api/v1/hosts").await.json();
    assert_eq!(
        (&hosts[0]["name"], &hosts[0]["ok"], &hosts[0]["status"]["page_size"]),
        (&json!("here"), &json!(true), &json!(4096))
    );
    assert_eq!(get(&routes, "/api/v1/schema/status").await.json()["title"], "status");
    assert_eq!(get(&routes, "/api/v1/schema/scan").await.status, StatusCode::NOT_FOUND);
    assert_eq!(get(&routes, "/none").await.status, StatusCode::NOT_FOUND);
    assert!(get(&routes, "/none").await.json()["error"].is_string());
}

#[tokio::test]
async fn a_history_is_asked_with_bounded_points_and_says_what_is_wrong() {
    let (routes, _) = routes(None, 1);
    assert_eq!(get(&routes, "/api/v1/history").await.json(), json!({ "points": 1000, "is_default": true }));
    let many = get(&routes, "/api/v1/history?since=30m&until=1795466794.5&points=99999999").await;
    assert_eq!(many.json(), json!({ "points": 10_000, "is_default": false }));
    for bad in ["since=x", "points=-1", "points=x", "until=-5"] {
        let answer = get(&routes, &format!("/api/v1/history?{bad}")).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{bad}");
        assert!(answer.json()["error"].is_string());
    }
    assert_eq!(get(&routes, "/api/v1/history?guest=none").await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_host_that_is_not_this_one_is_refused_and_so_no_site_can_rebind_its_name() {
    let (routes, fake) = routes(None, 1);
    for (host, status) in [
        ("localhost", 200),
        ("LOCALHOST:80", 200),
        ("localhost.", 200),
        ("127.0.0.1:9797", 200),
        ("127.9.9.9", 200),
        ("[::1]:9797", 200),
        ("192.0.2.7:9797", 200),
        ("ksmith.example", 200),
        ("ksmith.example:443", 200),
        ("192.0.2.8:9797", 421),
        ("evil.example", 421),
        ("localhost.evil.example", 421),
        ("ksmith.example.evil", 421),
        ("xksmith.example", 421),
        ("user@localhost", 421),
        ("", 400),
        ("local host", 400),
    ] {
        let answer = send(&routes, Request::get("/api/v1/status").header("host", host)).await;
        let wanted = StatusCode::from_u16(status).unwrap();
        // Either refusal will do.
        let is_refused =
            answer.status == StatusCode::BAD_REQUEST || answer.status == StatusCode::MISDIRECTED_REQUEST;
        assert!(answer.status == wanted || (status != 200 && is_refused), "{host:?}: {}", answer.status);
    }
    // A socket for both families shows an IPv4 address like this.
    let mut both = Request::get("/").header("host", "192.0.2.9").body(Body::empty()).unwrap();
    both.extensions_mut().insert(ArrivalAddress("::ffff:192.0.2.9".parse().unwrap()));
    assert_eq!(routes.clone().oneshot(both).await.unwrap().status(), StatusCode::OK);
    assert_eq!(send(&routes, Request::get("/")).await.status, StatusCode::BAD_REQUEST, "no host at all");
    let twice = Request::get("/").header("host", "localhost").header("host", "evil.example");
    assert_eq!(send(&routes, twice).await.status, StatusCode::BAD_REQUEST);
    let target = Request::get("http://evil.example/api/v1/status").header("host", "localhost");
    assert_eq!(send(&routes, target).await.status, StatusCode::MISDIRECTED_REQUEST);
    assert!(fake.asked.load(Ordering::SeqCst) > 0);
}

#[tokio::test]
async fn nothing_but_get_and_head_is_answered_and_a_body_is_refused() {
    let (routes, _) = routes(None, 1);
    for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "BREW"] {
        for path in ["/", "/api/v1/status", "/none"] {
            let answer =
                send(&routes, Request::builder().method(method).uri(path).header("host", "localhost")).await;
            assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED, "{method} {path}");
            assert_eq!(answer.headers["allow"], "GET, HEAD");
        }
    }
    let head = send(&routes, Request::head("/api/v1/status").header("host", "localhost")).await;
    assert_eq!((head.status, head.body.as_str()), (StatusCode::OK, ""));
    for (name, value) in [("content-length", "5"), ("transfer-encoding", "chunked")] {
        let answer = send(&routes, Request::get("/").header("host", "localhost").header(name, value)).await;
        assert_eq!(answer.status, StatusCode::PAYLOAD_TOO_LARGE);
        assert_eq!(answer.headers["connection"], "close");
    }
}

#[tokio::test]
async fn with_a_token_each_route_wants_it() {
    let (routes, fake) = routes(Some(TOKEN), 1);
    let basic = |text: &str| format!("Basic {}", base64(text));
    let ask = async |path: &str, header: Option<&str>| {
        let mut request = Request::get(path).header("host", "localhost");
        if let Some(header) = header {
            request = request.header("authorization", header);
        }
        send(&routes, request).await
    };
    for path in ["/", "/metrics", "/api/v1/status", "/api/v1/stream", "/assets/index.html", "/none"] {
        let refused = ask(path, None).await;
        assert_eq!(refused.status, StatusCode::UNAUTHORIZED, "{path}");
        assert_eq!(refused.headers.get_all("www-authenticate").iter().count(), 2);
        assert!(!refused.body.contains(TOKEN));
    }
    assert_eq!(fake.asked.load(Ordering::SeqCst), 0, "no look for the refused");
    for right in [
        format!("Bearer {TOKEN}"),
        format!("bearer {TOKEN}"),
        format!("Bearer {NEXT_TOKEN}"),
        basic(&format!("any:{TOKEN}")),
        basic(&format!("any:{TOKEN}")).replace("Basic", "basic"),
    ] {
        assert_eq!(ask("/metrics", Some(&right)).await.status, StatusCode::OK, "{right}");
    }
    let wrong = [
        TOKEN.to_owned(),
        format!("Bearer {TOKEN}0"),
        format!("Bearer {TOKEN}{NEXT_TOKEN}"),
        "Bearer ".to_owned(),
        basic(TOKEN),
        basic("x:"),
        "Digest x".to_owned(),
    ];
    for wrong in wrong {
        assert_eq!(ask("/metrics", Some(&wrong)).await.status, StatusCode::UNAUTHORIZED, "{wrong}");
    }
}

fn base64(text: &str) -> String {
    use headers::{Authorization, HeaderMapExt};
    let (user, password) = text.split_once(':').unwrap_or((text, ""));
    let mut map = HeaderMap::new();
    map.typed_insert(Authorization::basic(user, password));
    map["authorization"].to_str().unwrap().strip_prefix("Basic ").unwrap().to_owned()
}

#[tokio::test]
async fn each_answer_says_what_a_browser_may_do_with_it() {
    let (routes, _) = routes(None, 1);
    for path in ["/", "/api/v1/status", "/metrics", "/none", "/assets/index.html"] {
        let headers = get(&routes, path).await.headers;
        let policy = headers["content-security-policy"].to_str().unwrap();
        assert!(policy.starts_with("default-src 'self'") && policy.contains("frame-ancestors 'none'"), "{path}");
        assert_eq!(headers["x-content-type-options"], "nosniff");
        assert_eq!(headers["x-frame-options"], "DENY");
        assert_eq!(headers["cross-origin-resource-policy"], "same-origin");
        let cache =
            if path.starts_with("/a") && path.ends_with("html") || path == "/" { "no-cache" } else { "no-store" };
        assert_eq!(headers["cache-control"], cache, "{path}");
        assert!(!headers.contains_key("access-control-allow-origin"));
    }
}

#[tokio::test]
async fn a_file_that_the_browser_has_is_not_sent_again() {
    let (routes, _) = routes(None, 1);
    let first = get(&routes, "/").await;
    assert!(first.body.contains("<!doctype html>") && first.headers["content-type"] == "text/html; charset=utf-8");
    let tag = first.headers["etag"].clone();
    let again = send(&routes, Request::get("/").header("host", "localhost").header("if-none-match", tag)).await;
    assert_eq!((again.status, again.body.as_str()), (StatusCode::NOT_MODIFIED, ""));
    for path in ["/assets/../Cargo.toml", "/assets/%2e%2e/Cargo.toml", "/assets//etc/passwd", "/assets/"] {
        assert_eq!(get(&routes, path).await.status, StatusCode::NOT_FOUND, "{path}");
    }
}

#[tokio::test]
async fn a_thousand_clients_cost_one_look_a_second() {
    let (routes, fake) = routes(None, 1);
    let begin = Instant::now();
    let clients = (0..1000).map(|_| get(&routes, "/api/v1/status"));
    let answers = futures_util::future::join_all(clients).await;
    assert!(answers.iter().all(|answer| answer.status == StatusCode::OK));
    let asked = fake.asked.load(Ordering::SeqCst);
    assert!((1..=begin.elapsed().as_secs() as usize + 1).contains(&asked), "{asked}");
}

#[tokio::test]
async fn metrics_come_in_the_form_that_the_client_takes() {
    let (routes, _) = routes(None, 1);
    let openmetrics = get(&routes, "/metrics").await;
    assert!(openmetrics.headers["content-type"].to_str().unwrap().starts_with("application/openmetrics-text"));
    assert!(openmetrics.body.ends_with("# EOF\n") && openmetrics.body.contains("ksmith_page_size_bytes 4096\n"));
    // As Prometheus 2.42 asks, and as a client of the older format does.
    let both = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
    let ask = |accept: &str| Request::get("/metrics").header("host", "localhost").header("accept", accept);
    assert!(send(&routes, ask(both)).await.body.ends_with("# EOF\n"));
    let plain = send(&routes, ask("text/plain;version=0.0.4;q=1,*/*;q=0.1")).await;
    assert_eq!(plain.headers["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    assert!(!plain.body.contains("# EOF"));
}

#[tokio::test]
async fn streams_are_bounded_and_begin_with_what_is_known() {
    let (routes, _) = routes(None, 1);
    let open = || async {
        let request = Request::get("/api/v1/stream").header("host", "localhost").body(Body::empty()).unwrap();
        routes.clone().oneshot(request).await.unwrap()
    };
    let first = open().await;
    assert_eq!(first.headers()["content-type"], "text/event-stream");
    let second = open().await;
    assert_eq!(second.status(), StatusCode::SERVICE_UNAVAILABLE);
    let mut body = first.into_body();
    let mut text = String::new();
    while !(text.contains("event: status\ndata: {\"page_size\":4096}\n\n") && text.contains("event: guests\n")) {
        let frame = body.frame().await.unwrap().unwrap();
        text.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
    }
    drop(body);
    assert_eq!(open().await.status(), StatusCode::OK, "the place is free again");
}

#[tokio::test]
async fn a_sketch_goes_to_holders_of_the_token_as_it_is() {
    let (none, _) = routes(Some(TOKEN), 1);
    let with = |path: &str| {
        Request::get(path).header("host", "localhost").header("authorization", format!("Bearer {TOKEN}"))
    };
    assert_eq!(send(&none, with("/api/v1/sketch")).await.status, StatusCode::NOT_FOUND, "off by default");
    let path = std::env::temp_dir().join(format!("ksmith-served-sketch-{}", std::process::id()));
    let (routes, _) = routes_with_sketch(Some(TOKEN), 1, Some(&path));
    let missing = send(&routes, with("/api/v1/sketch")).await;
    assert_eq!(missing.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(
        missing.json()["error"].as_str().unwrap().starts_with("the sketch can't be read: "),
        "{}",
        missing.body
    );
    fs::write(&path, "PAR1 as it is").unwrap();
    assert_eq!(get(&routes, "/api/v1/sketch").await.status, StatusCode::UNAUTHORIZED);
    let response = send(&routes, with("/api/v1/sketch")).await;
    assert_eq!((response.status, response.body.as_str()), (StatusCode::OK, "PAR1 as it is"));
    assert_eq!(response.headers["content-type"], "application/vnd.apache.parquet");
    fs::File::create(&path).unwrap().set_len((32 << 20) + 1).unwrap();
    assert_eq!(send(&routes, with("/api/v1/sketch")).await.status, StatusCode::SERVICE_UNAVAILABLE);
    fs::remove_file(&path).unwrap();
}
