//! Other hosts: each one's server is asked for its status now and then, by a task of its own.

use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::http::header::AUTHORIZATION;
use axum::http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::Serialize;
use serde_json::Value as Json;

/// The time between two questions.
const INTERVAL: Duration = Duration::from_secs(5);

/// A peer that has not answered for so long does not answer.
const PATIENCE: Duration = Duration::from_secs(4);

/// Bytes of an answer at most.
const LONGEST: usize = 4 << 20;

/// Bytes of an answer's headers at most.
const LONGEST_HEAD: usize = 16 << 10;

/// The server of another host: `http://HOST[:PORT]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerUrl {
    authority: String,
}

/// The text is no URL of a peer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadPeer {
    /// It asks for TLS.
    #[error(
        "{0:?}: ksmith speaks no TLS itself: name a proxy on this host that does (/usr/share/doc/ksmith/docs/how-to/web-page.md), by http://"
    )]
    Tls(String),
    /// It is something else.
    #[error("{0:?} is no server: write it as http://HOST:PORT, without a path")]
    Other(String),
}

impl FromStr for PeerUrl {
    type Err = BadPeer;

    fn from_str(text: &str) -> Result<Self, BadPeer> {
        let other = || BadPeer::Other(text.to_owned());
        let uri: Uri = text.parse().map_err(|_| other())?;
        match uri.scheme_str() {
            Some("https") => return Err(BadPeer::Tls(text.to_owned())),
            Some("http") => {}
            _ => return Err(other()),
        }
        let authority = uri.authority().map(ToString::to_string).filter(|authority| !authority.contains('@'));
        let is_root = matches!(uri.path(), "" | "/") && uri.query().is_none();
        authority.filter(|_| is_root).map(|authority| Self { authority }).ok_or_else(other)
    }
}

impl fmt::Display for PeerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}", self.authority)
    }
}

/// What is known of a host.
#[derive(Debug, Clone, Serialize)]
pub struct Host {
    /// The name to show.
    pub name: String,
    /// Where its page is.
    pub url: String,
    /// Whether it has answered.
    pub ok: bool,
    /// Why it has not answered.
    pub error: Option<String>,
    /// What `ksmith status --json` says there.
    pub status: Option<Json>,
}

/// The other hosts.
#[derive(Debug, Clone, Default)]
pub struct Peers(Arc<[Mutex<Host>]>);

impl Peers {
    /// Starts to ask. To be called from within the runtime.
    pub fn start(urls: &[PeerUrl], token: Option<&str>) -> Self {
        let host = |url: &PeerUrl| Host {
            name: url.authority.clone(),
            url: url.to_string(),
            ok: false,
            error: Some("it was not asked yet".to_owned()),
            status: None,
        };
        let peers = Self(urls.iter().map(|url| Mutex::new(host(url))).collect());
        for (at, url) in urls.iter().enumerate() {
            tokio::spawn(peers.clone().ask_on(at, url.clone(), token.map(str::to_owned)));
        }
        peers
    }

    /// What is known of each.
    pub fn hosts(&self) -> Vec<Host> {
        self.0.iter().map(|host| host.lock().unwrap_or_else(PoisonError::into_inner).clone()).collect()
    }

    async fn ask_on(self, at: usize, url: PeerUrl, token: Option<String>) {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(PATIENCE));
        let client = Client::builder(TokioExecutor::new())
            .pool_max_idle_per_host(1)
            .http1_max_buf_size(LONGEST_HEAD)
            .build(connector);
        loop {
            let answer = tokio::time::timeout(PATIENCE, ask(&client, &url, token.as_deref())).await;
            let answer = answer.unwrap_or_else(|_| Err(format!("no answer in {} s", PATIENCE.as_secs())));
            if let Some(host) = self.0.get(at) {
                let mut host = host.lock().unwrap_or_else(PoisonError::into_inner);
                (host.ok, host.error, host.status) = match answer {
                    Ok(status) => (true, None, Some(status)),
                    Err(why) => (false, Some(why), None),
                };
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }
}

type PeerClient = Client<HttpConnector, Empty<Bytes>>;

/// A peer's status. Follows no redirect: it would lead to another server, with the token.
async fn ask(client: &PeerClient, url: &PeerUrl, token: Option<&str>) -> Result<Json, String> {
    let mut request = Request::get(format!("{url}/api/v1/status"));
    if let Some(token) = token {
        request = request.header(AUTHORIZATION, format!("Bearer {token}"));
    }
    let request = request.body(Empty::new()).map_err(|why| format!("it can't be asked: {why}"))?;
    let response = client.request(request).await.map_err(|why| match std::error::Error::source(&why) {
        Some(cause) => format!("{why}: {cause}"),
        None => why.to_string(),
    })?;
    let status = response.status();
    let body = Limited::new(response.into_body(), LONGEST).collect().await;
    let body = body.map_err(|why| format!("its answer does not come: {why}"))?.to_bytes();
    if status != StatusCode::OK {
        let said = serde_json::from_slice::<Json>(&body).ok();
        let said = said.as_ref().and_then(|said| said["error"].as_str()).map(|said| format!(": {said}"));
        return Err(format!("it answers {status}{}", said.unwrap_or_default()));
    }
    let json: Json = serde_json::from_slice(&body).map_err(|why| format!("its answer is no JSON: {why}"))?;
    if json.is_object() { Ok(json) } else { Err("its answer is no status of ksmith".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_named_by_host_and_port() {
        let url: PeerUrl = "http://b.example:9797/".parse().unwrap();
        assert_eq!(url.to_string(), "http://b.example:9797");
        assert!("https://b.example".parse::<PeerUrl>().unwrap_err().to_string().contains("no TLS"));
        for bad in ["b.example", "http://a@b", "http://b/x", "http://b/?x", "file:///etc/passwd", ""] {
            assert!(matches!(bad.parse::<PeerUrl>(), Err(BadPeer::Other(_))), "{bad}");
        }
    }
}
