//! Status of other hosts: a task for each polls its server.

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

/// Interval between two polls of a peer.
const INTERVAL: Duration = Duration::from_secs(5);

/// Timeout of a request to a peer.
const PATIENCE: Duration = Duration::from_secs(4);

/// Limit of bytes in a peer's reply.
const LONGEST: usize = 4 << 20;

/// Limit of bytes in a reply's headers.
const LONGEST_HEAD: usize = 16 << 10;

/// The server of another host: `http://HOST[:PORT]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerUrl {
    authority: String,
}

/// The error for text that is not a peer's URL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadPeer {
    /// The scheme is `https`.
    #[error(
        "{0:?}: ksmith speaks no TLS itself: name a proxy on this host that does (/usr/share/doc/ksmith/docs/how-to/web-page.md), by http://"
    )]
    Tls(String),
    /// The text is malformed, or not just a host and port.
    #[error("{0:?} is not a server: write it as http://HOST:PORT, without a path")]
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

/// A host, its reachability and its last status.
#[derive(Debug, Clone, Serialize)]
pub struct PolledHost {
    /// The name to show.
    pub name: String,
    /// URL of its page.
    pub url: String,
    /// True if the last poll succeeded.
    pub ok: bool,
    /// The error of the last poll, if it failed.
    pub error: Option<String>,
    /// The output of `ksmith status --json` on that host.
    pub status: Option<Json>,
}

/// The peers with their last status.
#[derive(Debug, Clone, Default)]
pub struct PeerHosts(Arc<[Mutex<PolledHost>]>);

impl PeerHosts {
    /// Starts to poll the peers. Must be called within the runtime.
    pub fn start(urls: &[PeerUrl], token: Option<&str>) -> Self {
        let host = |url: &PeerUrl| PolledHost {
            name: url.authority.clone(),
            url: url.to_string(),
            ok: false,
            error: Some("it has not been queried yet".to_owned()),
            status: None,
        };
        let peers = Self(urls.iter().map(|url| Mutex::new(host(url))).collect());
        for (at, url) in urls.iter().enumerate() {
            tokio::spawn(peers.clone().ask_on(at, url.clone(), token.map(str::to_owned)));
        }
        peers
    }

    /// Returns a copy of each peer's last status.
    pub fn hosts(&self) -> Vec<PolledHost> {
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
            let answer = tokio::time::timeout(PATIENCE, request_status(&client, &url, token.as_deref())).await;
            let answer = answer.unwrap_or(Err(PeerError::Silent));
            if let Some(host) = self.0.get(at) {
                let mut host = host.lock().unwrap_or_else(PoisonError::into_inner);
                (host.ok, host.error, host.status) = match answer {
                    Ok(status) => (true, None, Some(status)),
                    Err(why) => (false, Some(why.to_string()), None),
                };
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }
}

type PeerClient = Client<HttpConnector, Empty<Bytes>>;

/// A peer that gives no status.
#[derive(Debug, thiserror::Error)]
enum PeerError {
    #[error("no answer in {} s", PATIENCE.as_secs())]
    Silent,
    #[error("it can't be reached: {0}")]
    Request(#[from] axum::http::Error),
    #[error("{0}{cause}", cause = std::error::Error::source(.0).map_or_else(String::new, |cause| format!(": {cause}")))]
    Connection(#[from] hyper_util::client::legacy::Error),
    #[error("its answer does not come: {0}")]
    Body(#[from] Box<dyn std::error::Error + Send + Sync>),
    #[error("it answers {0}{1}")]
    Refused(StatusCode, String),
    #[error("its answer is not JSON: {0}")]
    NoJson(#[from] serde_json::Error),
    #[error("its answer is not the status of a ksmith")]
    NoStatus,
}

/// Requests a peer's status. Follows no redirect, which would send the token to another server.
async fn request_status(client: &PeerClient, url: &PeerUrl, token: Option<&str>) -> Result<Json, PeerError> {
    let mut request = Request::get(format!("{url}/api/v1/status"));
    if let Some(token) = token {
        request = request.header(AUTHORIZATION, format!("Bearer {token}"));
    }
    let response = client.request(request.body(Empty::new())?).await?;
    let status = response.status();
    let body = Limited::new(response.into_body(), LONGEST).collect().await?.to_bytes();
    if status != StatusCode::OK {
        let said = serde_json::from_slice::<Json>(&body).ok();
        let said = said.as_ref().and_then(|said| said["error"].as_str()).map(|said| format!(": {said}"));
        return Err(PeerError::Refused(status, said.unwrap_or_default()));
    }
    let json: Json = serde_json::from_slice(&body)?;
    if json.is_object() { Ok(json) } else { Err(PeerError::NoStatus) }
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
