//! The command `ksmith serve`.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use ksmith_host::bad_file::read_text;
use ksmith_record::{HistoryReader, ReadError, ReportQuery, ReportResolution, times};
use ksmith_serve::{ClientLimits, HistoryBackend, HistoryError, HistoryQuery, PeerUrl, ServeOptions, metrics};
use ksmith_service::config::Config;
use ksmith_service::daemon::{DaemonEnvironment, LiveEnvironment};

use super::asked::{DaemonSockets, RENDER};
use super::{CommandFailure, GlobalArgs};

/// Serve the figures of a running daemon: a page, JSON and metrics.
///
/// The daemon itself has no network. This process needs no privilege: it asks the daemon at its read-only socket, which
/// is open to the group in [view]. It answers GET requests, and changes nothing. It listens on loopback by default; a
/// proxy adds TLS and access for other users (/usr/share/doc/ksmith/docs/how-to/web-page.md).
///
/// The page is at /, the metrics are at /metrics, and the JSON of `ksmith status`, `guests` and `balance` is under
/// /api/v1/.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Listen at this address; the service manager's socket takes precedence
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9797")]
    listen: SocketAddr,
    /// Require a token from this file, one per line, as a bearer token or as any user's password
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Also answer to this name, besides those of loopback and of the address that is asked
    #[arg(long, value_name = "NAME")]
    allow_host: Vec<String>,
    /// Also show this server of another host: http://HOST:PORT
    #[arg(long, value_name = "URL")]
    peer: Vec<PeerUrl>,
    /// The token of the other hosts' servers: the first line of this file
    #[arg(long, value_name = "FILE", requires = "peer")]
    peer_token_file: Option<PathBuf>,
    /// Give at most this many guests metrics of their own, those that save most
    #[arg(long, value_name = "NUMBER", default_value_t = metrics::MOST_GUESTS)]
    limit: usize,
    /// Serve this sketch of the host to holders of the token, at /api/v1/sketch
    #[arg(long, value_name = "FILE", requires = "token_file")]
    sketch: Option<PathBuf>,
    /// Ask the daemon at this socket, without reading the configuration
    #[arg(long, value_name = "SOCKET")]
    view_socket: Option<PathBuf>,
    /// Show this history instead of the configured one
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

impl ServeArgs {
    pub(super) fn run(&self, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
        if !global.root().is_host() {
            return Err(CommandFailure::usage("--root names a captured tree, which has no daemon to ask").into());
        }
        let (daemon, config) = match &self.view_socket {
            Some(path) => (DaemonSockets::at(path.clone()), Config::default()),
            None => {
                let config = global.load_config_to_read()?;
                (DaemonSockets::from_config(&config), config)
            }
        };
        let store = ServedHistory(self.file.clone().unwrap_or(config.history.path));
        let options = ServeOptions {
            listen: self.listen,
            tokens: self.token_file.as_deref().map(read_tokens).transpose()?.unwrap_or_default(),
            allowed_hosts: self.allow_host.clone(),
            peers: self.peer.clone(),
            peer_token: self
                .peer_token_file
                .as_deref()
                .map(read_tokens)
                .transpose()?
                .and_then(|all| all.into_iter().next()),
            most_guests: self.limit,
            sketch: self.sketch.clone(),
            limits: ClientLimits::default(),
        };
        ksmith_serve::run(&options, Arc::new(daemon), RENDER, Arc::new(store))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Least length of a token in characters: a shorter one can be guessed.
const SHORTEST_TOKEN: usize = 16;

/// Reads the tokens in a file, one a line: there are two while clients change from one to the other.
fn read_tokens(path: &Path) -> Result<Vec<String>, CommandFailure> {
    let refuse = |why: String| CommandFailure::usage(format!("the token file {}: {why}", path.display()));
    let text = read_text(path).map_err(|why| refuse(format!("it can't be read: {why}")))?;
    let mode = fs::metadata(path).map_err(|why| refuse(why.to_string()))?.permissions().mode();
    if mode & 0o004 != 0 {
        return Err(refuse("every user may read it: chmod o-r".to_owned()));
    }
    let tokens: Vec<String> =
        text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect();
    let is_token =
        |token: &String| token.len() >= SHORTEST_TOKEN && token.bytes().all(|byte| byte.is_ascii_graphic());
    if tokens.is_empty() || !tokens.iter().all(is_token) {
        let what =
            format!("a token is one word of {SHORTEST_TOKEN} ASCII characters or more: openssl rand -hex 16");
        return Err(refuse(what));
    }
    Ok(tokens)
}

/// Columns of the host that the page draws besides those that `ksmith history` shows.
const HOST_MEMORY: [&str; 2] = ["host_memory_bytes", "host_available_bytes"];

/// The file of the history. It is opened for each query: a daemon may replace a damaged one.
struct ServedHistory(PathBuf);

impl HistoryBackend for ServedHistory {
    fn history(&self, query: &HistoryQuery) -> Result<serde_json::Value, HistoryError> {
        let now = LiveEnvironment.day_clock();
        let (since, until) = times::between(&query.since, &query.until, now)
            .map_err(|why| HistoryError::Meaningless(why.to_string()))?;
        let label = query.by.as_deref();
        let mut query = ReportQuery {
            since,
            until,
            guest: query.guest.clone(),
            columns: Vec::new(),
            resolution: ReportResolution::Rows(query.points),
        };
        if query.guest.is_none() && label.is_none() {
            query.columns = query.shown().iter().chain(&HOST_MEMORY).map(|&name| name.to_owned()).collect();
        }
        let read = |reader: HistoryReader| match label {
            Some(label) => reader.read_by_label(&query, label),
            None => reader.read_report(&query),
        };
        let report = HistoryReader::open(&self.0).and_then(read).map_err(|error| match error {
            ReadError::NoGuest(_) | ReadError::NoLabel { .. } => HistoryError::Unknown(error.to_string()),
            ReadError::NoColumn { .. } => HistoryError::Meaningless(error.to_string()),
            error => HistoryError::Unavailable(error.to_string()),
        })?;
        serde_json::to_value(report).map_err(|why| HistoryError::Unavailable(why.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;

    use ksmith_core::figures::FigureScalar;
    use ksmith_record::{GuestFigures, GuestIdentity, HistoryBounds, HistorySnapshot, HistoryStore, columns};
    use serde_json::json;

    use super::*;

    #[test]
    fn the_served_history_of_the_host_has_its_memory_and_that_of_a_guest_has_not() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("history.db");
        let time = LiveEnvironment.day_clock() - 60_000;
        let mut store = HistoryStore::open(&file, "boot", time, HistoryBounds::default()).unwrap().store;
        let host = columns::host().into_iter().map(|column| match column.name.as_str() {
            "host_memory_bytes" => FigureScalar::Unsigned(64 << 30),
            "host_available_bytes" => FigureScalar::Unsigned(9 << 30),
            "saved_bytes" => FigureScalar::Unsigned(7),
            _ => FigureScalar::Unknown,
        });
        let life = GuestIdentity { key: "5:7".to_owned(), name: "web".to_owned(), ..GuestIdentity::default() };
        let values = vec![FigureScalar::Unknown; columns::guest().len()];
        let guests = Some(vec![GuestFigures { life, values }]);
        store
            .write(&[HistorySnapshot { time, host: host.collect(), guests, ..HistorySnapshot::default() }])
            .unwrap();
        let served = ServedHistory(file);
        let query = HistoryQuery::default();
        let report = served.history(&query).unwrap();
        let columns = report["columns"].as_array().unwrap();
        let value = |name: &str| {
            let at = columns.iter().position(|column| column == name);
            at.map(|at| report["rows"][0][at].clone())
        };
        let found = ["host_memory_bytes", "host_available_bytes", "saved_bytes"].map(value);
        assert_eq!(found, [64_u64 << 30, 9 << 30, 7].map(|bytes| Some(json!(bytes))), "{report}");
        let of_guest = served.history(&HistoryQuery { guest: Some("web".to_owned()), ..query }).unwrap();
        let shown = ["time", "rss_bytes", "merged_bytes", "saved_bytes", "profit_bytes"];
        assert_eq!(of_guest["columns"], json!(shown));
    }

    #[test]
    fn a_token_file_that_is_a_fifo_or_without_end_is_refused_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        assert!(read_tokens(&path).unwrap_err().to_string().contains("it is a pipe"));
        assert!(read_tokens(Path::new("/dev/zero")).unwrap_err().to_string().contains("it is longer than 1 MiB"));
        fs::remove_file(&path).unwrap();
        fs::write(&path, "0123456789abcdef\n").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        assert_eq!(read_tokens(&path).unwrap(), ["0123456789abcdef"]);
    }

    #[test]
    fn a_token_file_has_a_token_a_line_and_no_line_that_could_be_guessed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        let read = |text: &str| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
            read_tokens(&path)
        };
        let two = read("the-old-token-of-all\r\n\nthe-new-token-of-all\n").unwrap();
        assert_eq!(two, ["the-old-token-of-all", "the-new-token-of-all"]);
        for wrong in ["", "\n\n", "the-old-token-of-all\nshort\n", "the old token of all"] {
            assert!(read(wrong).unwrap_err().to_string().contains("openssl rand"), "{wrong:?}");
        }
    }
}
