//! The command `ksmith status`.

use std::process::ExitCode;

use clap::Args;

use super::source::Source;
use super::watch::{Every, Shown, watch};
use super::{Global, print};
use crate::show;

/// Show KSM's settings and figures, what each process saves, and the state of the daemon.
///
/// A running daemon answers at once; without one ksmith looks itself, for a quarter of a second, so that ksmd's
/// CPU use can be told. `saved` is memory that is not needed because pages are merged; `exposure` is what the
/// host would need if all of that were written to, and `headroom` what it has for that.
#[derive(Debug, Args)]
pub struct StatusArgs {
    #[command(flatten)]
    every: Every,
}

impl StatusArgs {
    pub(super) fn run(&self, global: &Global) -> anyhow::Result<ExitCode> {
        let config = global.load_config()?;
        if let Some(every) = self.every.watch {
            let (mut source, is_json) = (Source::steady(global.root(), config), global.json);
            return watch(every, move || {
                let seen = source.status()?;
                let shown = match is_json {
                    true => Shown::Json(show::status::json(&seen.value)),
                    false => Shown::Page(show::status::text(&seen.value, print::width())),
                };
                Ok((shown, seen.note))
            });
        }
        let status = Source::once(global.root(), config).status()?.value;
        if global.json {
            print::json(&show::status::json(&status))?;
        } else {
            print::page(&show::status::text(&status, print::width()))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
