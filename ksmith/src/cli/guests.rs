//! The command `ksmith guests`.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::process::ExitCode;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, StringValueParser, TypedValueParser};
use clap::{Arg, Args, Command};
use ksmith_core::figures::{self, GUEST, GuestGroupProperty, find};
use ksmith_core::filter::FigureFilter;
use ksmith_core::guest::{FindGuestError, Guest, GuestLabelRule, find_all};
use ksmith_core::model::GuestsReport;

use super::source::FallbackSource;
use super::watch::{WatchArgs, WatchOutput, watch};
use super::{CommandFailure, GlobalArgs, naming, patience, print};
use crate::show;
use crate::show::guests::GuestOrder;
use ksmith_host::guests::read_memory;
use ksmith_host::root::Root;
use ksmith_service::config::Config;
use ksmith_service::domains::sharing;

/// Show each guest by name: what it uses, and what merging saves and costs.
///
/// A guest is a virtual machine, a user-mode Linux, a systemd service, a container or any other process with mergeable
/// memory. `saved` adds up to what the host saves; `profit` is saved less KSM's metadata, and negative for a guest that
/// only costs. `private` and `shared` make up its share of the host's memory (PSS). They are expensive to read: on a
/// host with large guests only what can be read quickly is shown, unless --pss asks for all. As root, --by domain also
/// looks up which merged pages guests of different trust domains share now. --by also takes a label from the
/// configuration, such as role ([[guests.label]]).
///
/// --filter takes comparisons of a guest's figures, by key or heading, joined by `and`, `or`, `not` and parentheses:
/// `saved>100MiB and kind=qemu and name~web*`. `~` matches a pattern with * and ?; `-` is an unknown value. Totals
/// below the table remain those of the whole host; notes concern only the guests shown.
#[derive(Debug, Args)]
pub struct GuestsArgs {
    /// Show only these guests, by name, UUID, PID, kind:name or VMID
    #[arg(value_name = "GUEST")]
    guests: Vec<String>,
    /// Group guests into rows by this
    #[arg(long, value_parser = GroupingParser, default_value = EACH, value_name = "WHAT")]
    by: String,
    /// Order by this figure of a guest, by key or heading, the largest first
    #[arg(long, value_parser = keys(), default_value = "saved_bytes", value_name = "FIGURE")]
    sort: String,
    /// Reverse the order of the rows
    #[arg(long)]
    reverse: bool,
    /// Show at most this many rows
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,
    /// Show only the guests that match this expression
    #[arg(long, value_name = "EXPR")]
    filter: Option<String>,
    #[command(flatten)]
    watch: WatchArgs,
    /// Read private and shared memory of all guests, however long that takes
    #[arg(long)]
    pss: bool,
}

/// The value of `--by` for each guest by itself.
const EACH: &str = "guest";

/// A parser of `--by`, which also lets labels pass: the configuration has their names.
#[derive(Debug, Clone, Copy)]
struct GroupingParser;

impl TypedValueParser for GroupingParser {
    type Value = String;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, arg, value)
    }

    /// Returns the labels that guests can be grouped by, from the table of figures.
    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let each = PossibleValue::new(EACH).help("Each guest by itself");
        let labels = figures::labels().map(|figure| PossibleValue::new(figure.field.name).help(figure.field.help));
        Some(Box::new([each].into_iter().chain(labels)))
    }
}

/// Returns the figures that rows can be ordered by, each by its key or its heading.
fn keys() -> PossibleValuesParser {
    let keys = GUEST
        .iter()
        .map(|figure| PossibleValue::new(figure.field.name).help(figure.field.help).aliases(figure.heading));
    keys.collect::<Vec<_>>().into()
}

/// Time budget for reading private and shared memory, without `--pss`.
const PSS_BUDGET: Duration = Duration::from_millis(60);

impl GuestsArgs {
    pub(super) fn run(&self, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
        let config = global.load_config_to_read()?;
        let root = global.root();
        let sort = find(GUEST, &self.sort).ok_or_else(|| CommandFailure::usage("there is no such figure"))?;
        let filter = self.filter.as_deref().map(|text| FigureFilter::parse(text, GUEST)).transpose();
        let filter = filter.map_err(|error| CommandFailure::usage(error.to_string()))?;
        let limit = self.limit.and_then(|limit| usize::try_from(limit).ok());
        let by = self.grouping(&config)?;
        let order = GuestOrder { by, reverse: self.reverse, limit, ..GuestOrder::new(None, sort) };
        let reading = ReportCompletion {
            names: self.guests.clone(),
            is_whole: self.pss,
            looks_up_sharing: self.by == "domain",
            filter,
        };
        if reading.looks_up_sharing && self.watch.every.is_none() {
            patience::watch();
        }
        let is_json = global.json;
        let show = move |report: GuestsReport, filtered_from: Option<usize>| {
            let order = GuestOrder { filtered_from, ..order.clone() };
            match is_json {
                true => WatchOutput::Json(show::guests::json(&report, &order)),
                false => WatchOutput::Page(show::guests::text(&report, &order, print::width())),
            }
        };
        if let Some(every) = self.watch.every {
            let mut source = FallbackSource::steady(root.clone(), config.clone()).watching(every);
            let mut is_first = true;
            return watch(every, move || {
                let seen = source.guests()?;
                let must_exist = std::mem::take(&mut is_first);
                let (report, before) = reading.complete(&root, &config, seen.value, must_exist)?;
                Ok((show(report, before), seen.note))
            });
        }
        let report = FallbackSource::once(root.clone(), config.clone()).guests()?.value;
        let (report, before) = reading.complete(&root, &config, report, true)?;
        match show(report, before) {
            WatchOutput::Json(json) => print::json(&json)?,
            WatchOutput::Page(page) => print::page(&page)?,
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Returns the property that makes a row; `None` for each guest by itself.
    fn grouping(&self, config: &Config) -> Result<Option<GuestGroupProperty>, CommandFailure> {
        if self.by == EACH {
            return Ok(None);
        }
        if let Some(figure) = figures::labels().find(|figure| figure.field.name == self.by) {
            return Ok(Some(GuestGroupProperty::Figure(figure)));
        }
        let own: BTreeSet<&str> = config.guests.label.iter().map(GuestLabelRule::label).collect();
        if own.contains(self.by.as_str()) {
            return Ok(Some(GuestGroupProperty::Label(self.by.clone())));
        }
        let names = [EACH].into_iter().chain(figures::labels().map(|figure| figure.field.name)).chain(own);
        let names: Vec<&str> = names.collect();
        let by = &self.by;
        let why = format!(
            "--by {by}: there is no such property; there are: {} ([[guests.label]] adds labels)",
            names.join(", ")
        );
        Err(CommandFailure::usage(why))
    }
}

/// Options for completing a report: the guests to keep, the memory to read, the sharing to look up, and the filter.
struct ReportCompletion {
    /// Names of the guests to keep; all if there is none.
    names: Vec<String>,
    is_whole: bool,
    looks_up_sharing: bool,
    filter: Option<FigureFilter<Guest>>,
}

impl ReportCompletion {
    /// Removes the guests that are not named.
    ///
    /// # Errors
    /// No guest has one of the names, and each `must_exist`.
    fn select(&self, root: &Root, guests: &mut Vec<Guest>, must_exist: bool) -> Result<(), CommandFailure> {
        if self.names.is_empty() {
            return Ok(());
        }
        let mut named = BTreeSet::new();
        for name in &self.names {
            let found = find_all(guests.iter(), name);
            if found.is_empty() && must_exist {
                let known = guests.iter().map(|guest| guest.name.as_str());
                return Err(naming::not_found(root, FindGuestError::unknown(name, known)));
            }
            named.extend(found.into_iter().map(Guest::id));
        }
        guests.retain(|guest| named.contains(&guest.id()));
        Ok(())
    }

    /// Adds memory and the sharing of domains to a report, and removes the guests that are not named or do not fit the
    /// filter. Returns the report, and the number of guests before the filter, if there is one.
    ///
    /// # Errors
    /// See [`select`](Self::select).
    fn complete(
        &self,
        root: &Root,
        config: &Config,
        mut report: GuestsReport,
        must_exist: bool,
    ) -> Result<(GuestsReport, Option<usize>), CommandFailure> {
        self.select(root, &mut report.guests, must_exist)?;
        let budget = if self.is_whole { None } else { Some(PSS_BUDGET) };
        report.errors.extend(read_memory(root, &mut report.guests, budget));
        if self.looks_up_sharing {
            match sharing(root, &config.domains, &report.guests) {
                Ok(sharing) => report.sharing = Some(sharing),
                Err(why) => report.errors.push(why.to_string()),
            }
        }
        let before = self.filter.as_ref().map(|filter| {
            let before = report.guests.len();
            report.guests.retain(|guest| filter.fits(guest));
            before
        });
        Ok((report, before))
    }
}
