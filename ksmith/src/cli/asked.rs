//! Figures from a running daemon: by its read-only socket, or by the control socket where this user may.

use std::path::PathBuf;

use ksmith_core::figures::{GUEST, find};
use ksmith_core::model::{BalanceReport, GuestsReport, Status};
use ksmith_serve::{Render, Source, Unavailable};
use ksmith_service::config::Config;
use ksmith_service::control::{Client, ClientError};
use serde_json::Value;

use crate::show;
use crate::show::guests::Order;
use crate::show::schemas;

/// A daemon, by its sockets.
#[derive(Debug, Clone)]
pub struct Daemon {
    sockets: Vec<PathBuf>,
}

impl Daemon {
    /// Returns the sockets of the daemon with this configuration.
    pub fn of(config: &Config) -> Self {
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
    pub fn ask<T>(&self, ask: impl Fn(&mut Client) -> Result<T, ClientError>) -> Result<Option<T>, ClientError> {
        match self.connect() {
            Ok(mut client) => ask(&mut client).map(Some),
            Err(errors) => errors.into_iter().find(|error| !error.is_absent()).map_or(Ok(None), Err),
        }
    }

    fn connect(&self) -> Result<Client, Vec<ClientError>> {
        let mut errors = Vec::new();
        for path in &self.sockets {
            match Client::connect(path) {
                Ok(client) => return Ok(client),
                Err(error) => errors.push(error),
            }
        }
        Err(errors)
    }

    fn shown<T>(&self, ask: impl Fn(&mut Client) -> Result<T, ClientError>) -> Result<T, Unavailable> {
        let mut client = self.connect().map_err(|errors| {
            let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
            Unavailable(format!(
                "{}: start the daemon (`systemctl start ksmith`), or add this user to the group in [view]",
                errors.join("; ")
            ))
        })?;
        ask(&mut client).map_err(|error| Unavailable(error.to_string()))
    }
}

impl Source for Daemon {
    fn status(&self) -> Result<Status, Unavailable> {
        self.shown(Client::status)
    }

    fn guests(&self) -> Result<GuestsReport, Unavailable> {
        self.shown(Client::guests)
    }

    fn balance(&self) -> Result<BalanceReport, Unavailable> {
        self.shown(Client::balance)
    }
}

/// The JSON of `ksmith status`, `guests` and `balance`.
pub const RENDER: Render =
    Render { status: show::status::json, guests: guests_json, balance: show::balance::json, schema };

fn guests_json(report: &GuestsReport) -> Value {
    let sort = find(GUEST, "saved_bytes").unwrap_or(&GUEST[0]);
    show::guests::json(report, Order::new(None, sort))
}

fn schema(command: &str) -> Option<Value> {
    matches!(command, "status" | "guests" | "balance").then(|| schemas::of(command)).flatten()
}
