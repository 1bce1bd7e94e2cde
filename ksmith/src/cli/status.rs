//! The command `ksmith status`.

use std::process::ExitCode;

use clap::Args;
use ksmith_core::model::StatusReport;
use ksmith_core::printable::TextPage;

use super::source::FallbackSource;
use super::watch::{WatchArgs, WatchOutput, watch};
use super::{GlobalArgs, print};
use crate::show;

/// Show KSM's settings and figures, what each process saves, and the state of the daemon.
///
/// A running daemon answers at once. Without one ksmith itself watches for a quarter of a second, to measure ksmd's CPU
/// use. `saved` is memory that is not needed because pages are merged; `exposure` is what the host would need if guests
/// wrote to all of it, and `headroom` what it has for that.
#[derive(Debug, Args)]
pub struct StatusArgs {
    #[command(flatten)]
    watch: WatchArgs,
}

impl StatusArgs {
    pub(super) fn run(&self, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
        let config = global.load_config_to_read()?;
        if let Some(every) = self.watch.every {
            let (mut source, is_json) =
                (FallbackSource::steady(global.root(), config).watching(every), global.json);
            let text = text_of(global);
            return watch(every, move || {
                let seen = source.status()?;
                let shown = match is_json {
                    true => WatchOutput::Json(show::status::json(&seen.value)),
                    false => WatchOutput::Page(text(&seen.value, print::width())),
                };
                Ok((shown, seen.note))
            });
        }
        let status = FallbackSource::once(global.root(), config).status()?.value;
        let page = || text_of(global)(&status, print::width());
        print::answer(global.json, || show::status::json(&status), page)
    }
}

/// Returns the form of the text: `-v` adds the arithmetic behind the policy's reason.
fn text_of(global: &GlobalArgs) -> fn(&StatusReport, Option<usize>) -> TextPage {
    if global.verbose > 0 { show::status::detailed_text } else { show::status::text }
}
