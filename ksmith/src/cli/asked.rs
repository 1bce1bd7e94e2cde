//! Figures from a running daemon: by its read-only socket, or by the control socket where this user may.

use std::path::PathBuf;

use ksmith_core::figures::{GUEST, find};
use ksmith_core::model::{BalanceReport, GuestsReport, StatusReport};
use ksmith_serve::{FigureSource, ModelRenderer, SourceUnavailable};
use ksmith_service::config::Config;
use ksmith_service::control::{ClientError, ControlClient};
use serde_json::Value;

use crate::show;
use crate::show::guests::GuestOrder;
use crate::show::schemas;

/// A daemon, by its sockets.
#[derive(Debug, Clone)]
pub struct DaemonSockets {
    sockets: Vec<PathBuf>,
}

impl DaemonSockets {
    /// Returns the sockets of the daemon with this configuration.
    pub fn from_config(config: &Config) -> Self {
        Self { sockets: vec![config.view.socket.clone(), config.daemon.control_socket.clone()] }
    }

    /// Returns the daemon with this read-only socket.
    pub fn at(view: PathBuf) -> Self {
        Self { sockets: vec![view] }
    }

    /// Sends a request to the first socket that this user may use; `None` if there is no daemon, or none that this user
    /// may ask.
    ///
    /// # Errors
    /// A daemon does not answer as it should.
    pub fn query_daemon<T>(
        &self,
        ask: impl Fn(&mut ControlClient) -> Result<T, ClientError>,
    ) -> Result<Option<T>, ClientError> {
        match self.connect() {
            Ok(mut client) => ask(&mut client).map(Some),
            Err(errors) => errors.into_iter().find(|error| !error.is_absent()).map_or(Ok(None), Err),
        }
    }

    fn connect(&self) -> Result<ControlClient, Vec<ClientError>> {
        let mut errors = Vec::new();
        for path in &self.sockets {
            match ControlClient::connect(path) {
                Ok(client) => return Ok(client),
                Err(error) => errors.push(error),
            }
        }
        Err(errors)
    }

    fn shown<T>(&self, ask: impl Fn(&mut ControlClient) -> Result<T, ClientError>) -> Result<T, SourceUnavailable> {
        let mut client = self.connect().map_err(|errors| {
            let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
            SourceUnavailable(format!(
                "{}: start the daemon (`systemctl start ksmith`), or add this user to the group in [view]",
                errors.join("; ")
            ))
        })?;
        ask(&mut client).map_err(|error| SourceUnavailable(error.to_string()))
    }
}

impl FigureSource for DaemonSockets {
    fn status(&self) -> Result<StatusReport, SourceUnavailable> {
        self.shown(ControlClient::status)
    }

    fn guests(&self) -> Result<GuestsReport, SourceUnavailable> {
        self.shown(ControlClient::guests)
    }

    fn balance(&self) -> Result<BalanceReport, SourceUnavailable> {
        self.shown(ControlClient::balance)
    }
}

/// The JSON of `ksmith status`, `guests` and `balance`.
pub const RENDER: ModelRenderer =
    ModelRenderer { status: show::status::json, guests: guests_json, balance: show::balance::json, schema };

fn guests_json(report: &GuestsReport) -> Value {
    let sort = find(GUEST, "saved_bytes").unwrap_or(&GUEST[0]);
    show::guests::json(report, &GuestOrder::new(None, sort))
}

fn schema(command: &str) -> Option<Value> {
    matches!(command, "status" | "guests" | "balance").then(|| schemas::command_schema(command)).flatten()
}
