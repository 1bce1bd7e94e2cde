//! Request guard: accepts only known host names, GET or HEAD, no body, and the token if one is set.

use std::net::IpAddr;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{
    ALLOW, AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, HOST, HeaderName,
    REFERRER_POLICY, TRANSFER_ENCODING, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::uri::Authority;
use axum::http::{HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use headers::authorization::{Basic, Credentials};
use serde_json::json;
use subtle::ConstantTimeEq;

/// The rules for accepting requests.
#[derive(Debug, Clone)]
pub struct RequestGuard {
    tokens: Arc<[String]>,
    allowed_hosts: Arc<[String]>,
}

/// The local address at which a request arrived.
#[derive(Debug, Clone, Copy)]
pub struct ArrivalAddress(pub IpAddr);

/// Content security policy: scripts of this server only, no frame, no form, no other origin.
const POLICY: HeaderValue =
    HeaderValue::from_static("default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'");

impl RequestGuard {
    /// Requires one of the tokens if there are any, and one of these host names or loopback's.
    pub fn new(tokens: &[String], allowed_hosts: &[String]) -> Self {
        let allowed_hosts =
            allowed_hosts.iter().map(|name| name.trim_end_matches('.').to_ascii_lowercase()).collect();
        Self { tokens: Arc::from(tokens), allowed_hosts }
    }

    /// Returns the response that rejects a request; `None` if the request is accepted.
    fn refusal(&self, request: &Request) -> Option<Response> {
        let arrived = request.extensions().get::<ArrivalAddress>().map(|arrived| arrived.0.to_canonical());
        if let Err((status, why)) = self.check_host(request, arrived) {
            return Some(error(status, &why));
        }
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut response =
                error(StatusCode::METHOD_NOT_ALLOWED, "figures can be read here, and nothing changed");
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return Some(response);
        }
        let headers = request.headers();
        let is_empty = headers.get(CONTENT_LENGTH).is_none_or(|length| length == "0");
        if !is_empty || headers.contains_key(TRANSFER_ENCODING) {
            let mut response = error(StatusCode::PAYLOAD_TOO_LARGE, "a request has no body here");
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            return Some(response);
        }
        let carries_one = |given| self.tokens.iter().any(|token| carries(given, token));
        let is_right = self.tokens.is_empty() || headers.get(AUTHORIZATION).is_some_and(carries_one);
        (!is_right).then(|| {
            let why = "the token is missing or wrong: send it as a bearer token, or as the password of any user";
            let mut response = error(StatusCode::UNAUTHORIZED, why);
            for scheme in ["Bearer realm=\"ksmith\"", "Basic realm=\"ksmith\", charset=\"UTF-8\""] {
                response.headers_mut().append(WWW_AUTHENTICATE, HeaderValue::from_static(scheme));
            }
            response
        })
    }

    /// Checks the host name of a request. Another site can point its own name to this address (DNS rebinding); a
    /// browser then sends that name.
    fn check_host(&self, request: &Request, arrived: Option<IpAddr>) -> Result<(), (StatusCode, String)> {
        let mut given = request.headers().get_all(HOST).iter();
        let of_header =
            given.next().map(|value| value.to_str().ok().and_then(|text| text.parse::<Authority>().ok()));
        let of_target = request.uri().authority().cloned();
        let is_twice = given.next().is_some();
        match (of_header, of_target) {
            _ if is_twice => Err((StatusCode::BAD_REQUEST, "the request names two hosts".to_owned())),
            (Some(Some(header)), target) => {
                [Some(header), target].into_iter().flatten().try_for_each(|name| self.check_name(&name, arrived))
            }
            (Some(None), _) => Err((StatusCode::BAD_REQUEST, "the request's host is not a name".to_owned())),
            (None, _) => Err((StatusCode::BAD_REQUEST, "the request names no host".to_owned())),
        }
    }

    fn check_name(&self, authority: &Authority, arrived: Option<IpAddr>) -> Result<(), (StatusCode, String)> {
        let host = authority.host().trim_end_matches('.').to_ascii_lowercase();
        let address: Option<IpAddr> = host.trim_start_matches('[').trim_end_matches(']').parse().ok();
        let is_known = match address {
            Some(address) => address.is_loopback() || Some(address) == arrived,
            None => host == "localhost" || host.ends_with(".localhost"),
        };
        if (is_known || self.allowed_hosts.contains(&host)) && !authority.as_str().contains('@') {
            return Ok(());
        }
        let why =
            format!("this server may not be asked as {host:?}; if it should be, start it with --allow-host NAME");
        Err((StatusCode::MISDIRECTED_REQUEST, why))
    }
}

/// Returns true if the header has the token: as a bearer token, or as a password, which browsers prompt for. Compares
/// in constant time.
fn carries(given: &HeaderValue, token: &str) -> bool {
    let is_it = |text: &str| bool::from(text.as_bytes().ct_eq(token.as_bytes()));
    let Some((scheme, rest)) = given.to_str().ok().and_then(|text| text.split_once(' ')) else { return false };
    if scheme.eq_ignore_ascii_case("bearer") {
        return is_it(rest.trim());
    }
    // As the decoder wants it: the scheme in its usual letters.
    let given = HeaderValue::from_str(&format!("Basic {}", rest.trim())).ok();
    let basic = given.filter(|_| scheme.eq_ignore_ascii_case("basic")).and_then(|given| Basic::decode(&given));
    basic.is_some_and(|basic| is_it(basic.password()))
}

/// Creates an error response with its JSON body.
pub fn error(status: StatusCode, why: &str) -> Response {
    let body = Body::from(json!({ "error": why }).to_string());
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/json"));
    response
}

/// Rejects disallowed requests, and adds security headers to each response.
pub async fn guard(State(guard): State<RequestGuard>, request: Request, next: Next) -> Response {
    let refusal = guard.refusal(&request);
    let mut response = match refusal {
        Some(refusal) => refusal,
        None => next.run(request).await,
    };
    let headers = response.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, POLICY);
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    for name in ["cross-origin-resource-policy", "cross-origin-opener-policy"] {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static("same-origin"));
    }
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}
