//! The embedded web page and the files that it loads.

use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use rust_embed::RustEmbed;

/// The files of `serve/assets/`.
#[derive(Debug, RustEmbed)]
#[folder = "assets/"]
struct EmbeddedAssets;

/// The name of the page.
pub const INDEX: &str = "index.html";

/// Returns the response for an embedded file, or 304 if the client's cached copy has the same tag. `None` if there is
/// no such file.
pub fn answer(name: &str, asked: &HeaderMap) -> Option<Response> {
    let file = EmbeddedAssets::get(name)?;
    let tag: String = file.metadata.sha256_hash().iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    let tag = format!("\"{tag}\"");
    let has_it = asked
        .get_all(IF_NONE_MATCH)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .any(|value| value.split(',').any(|one| one.trim().trim_start_matches("W/") == tag));
    let mime = file.metadata.mimetype();
    let charset = if mime.starts_with("text/") || mime.ends_with("javascript") { "; charset=utf-8" } else { "" };
    // The client asks each time whether it is still the same: a new release shows at once.
    let headers = [(ETAG, tag), (CACHE_CONTROL, "no-cache".to_owned()), (CONTENT_TYPE, format!("{mime}{charset}"))];
    Some(match has_it {
        true => (StatusCode::NOT_MODIFIED, headers).into_response(),
        false => (headers, file.data.into_owned()).into_response(),
    })
}
