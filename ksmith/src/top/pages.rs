//! The pages of text: one guest, decisions, balance, help.

use std::time::Duration;

use ksmith_core::field::FigureType;
use ksmith_core::figures::GUEST;
use ksmith_core::guest::GuestId;
use ksmith_core::printable::{TextPage, TextTone};
use ksmith_core::units::TimeSpan;

use super::app::{GuestDiagnosis, TopApp, TopView};
use super::event::HostSnapshot;
use super::keys::KEYS;
use crate::show::{self, cell};

/// The least columns of a terminal on which a page has two figures in a line.
const TWO_COLUMNS: u16 = 78;

impl TopApp {
    /// Returns the page of the view. The list of guests and the charts are none.
    pub(super) fn page(&self) -> TextPage {
        match self.view {
            TopView::Guests | TopView::Charts => TextPage::new(),
            TopView::Guest(id) => {
                let mut page = self.facts(id);
                page.append(&self.why(id));
                page.append(&glossary());
                page
            }
            TopView::Decisions => self.decisions_page(),
            TopView::Balance => self.balance_page(),
            TopView::Help => help_page(),
        }
    }

    fn now(&self) -> Duration {
        self.sight.as_ref().map_or(Duration::ZERO, |sight| sight.at)
    }

    /// Returns the page with all figures of a guest.
    pub(super) fn facts(&self, id: GuestId) -> TextPage {
        let mut page = TextPage::new();
        match self.guest(id) {
            None => page.toned(TextTone::Warning, format_args!("The guest with PID {} is gone.", id.pid())),
            Some(guest) => {
                page.line(guest.title());
                page.line("");
                let numbers: Vec<String> = GUEST
                    .iter()
                    .filter(|figure| figure.field.holds != FigureType::Text)
                    .map(|figure| {
                        let value = cell(&figure.field, &(figure.read)(guest));
                        format!("{:<24}{value:>12}", figure.field.name)
                    })
                    .collect();
                // Two to a line, where there is room.
                let in_line = if self.size.0 >= TWO_COLUMNS { 2 } else { 1 };
                page.lines(numbers.chunks(in_line).map(|line| line.join("    ")));
                page.line("");
                let texts = GUEST.iter().filter(|figure| figure.field.holds == FigureType::Text);
                for figure in texts {
                    let value = cell(&figure.field, &(figure.read)(guest));
                    page.line(format_args!("{:<24}{value}", figure.field.name));
                }
                let pids: Vec<String> = guest.processes.iter().map(|process| process.pid.to_string()).collect();
                page.line(format_args!("{:<24}{}", "processes", pids.join(", ")));
                for error in &guest.errors {
                    page.partly_toned("", TextTone::Warning, "note", format_args!("  {error}"));
                }
            }
        }
        page.line("");
        page
    }

    /// Returns the page with the diagnosis of a guest's memory, as far as it is known.
    fn why(&self, id: GuestId) -> TextPage {
        let mut page = TextPage::new();
        match &self.explained {
            Some((asked, explanation)) if *asked == id => match explanation {
                GuestDiagnosis::UnderWay(since) => {
                    let seconds = TimeSpan(self.now().saturating_sub(*since));
                    page.line(format_args!("Why it does not merge: the guest is being examined ({seconds}) …"));
                }
                GuestDiagnosis::Known(Ok(explanation)) => {
                    page.line("Why it does not merge:");
                    page.append(explanation);
                }
                GuestDiagnosis::Known(Err(why)) => {
                    page.toned(TextTone::Warning, format_args!("Why it does not merge: {why}"))
                }
            },
            _ => page.toned(TextTone::Faint, "w finds out, mapping by mapping, why its memory does not merge."),
        }
        page
    }

    fn decisions_page(&self) -> TextPage {
        let mut page = TextPage::new();
        page.line("State changes and reasons, the newest first:");
        page.line("");
        let mut is_empty = true;
        for decision in self.decisions.until(self.moment()) {
            is_empty = false;
            let ago = Duration::from_secs_f64((self.moment() - decision.at).max(0.0));
            let ago = format!("{} ago", TimeSpan(Duration::from_secs(ago.as_secs())));
            page.line(format_args!("{ago:>16}  {:<18}  {}", decision.state, decision.reason));
            if let Some(detail) = &decision.detail {
                page.toned(TextTone::Faint, format_args!("{:>16}  {:<18}  {detail}", "", ""));
            }
        }
        if is_empty {
            page.toned(TextTone::Faint, "none: no daemon has answered, and only a daemon decides (ksmith daemon)");
        }
        let notes = self.sight.as_ref().map(HostSnapshot::notes).unwrap_or_default();
        if !notes.is_empty() {
            page.line("");
        }
        for note in notes {
            page.partly_toned("", TextTone::Warning, "note", format_args!("  {note}"));
        }
        page
    }

    fn balance_page(&self) -> TextPage {
        let balance = self.sight.as_ref().and_then(|sight| sight.balance.as_ref());
        balance.map_or_else(
            || {
                let mut page = TextPage::new();
                page.line("No daemon balances memory here.");
                page.line("");
                page.toned(
                    TextTone::Faint,
                    "ksmith balance shows a plan; [balance] enabled = true has a daemon carry it out.",
                );
                page
            },
            |report| show::balance::text(report, Some(usize::from(self.size.0))),
        )
    }
}

/// Returns the meaning of a guest's figures.
fn glossary() -> TextPage {
    let mut page = TextPage::new();
    page.lines(["", "What the figures mean:"]);
    for figure in GUEST {
        page.partly_toned(format_args!("{:<24}", figure.field.name), TextTone::Faint, figure.field.help, "");
    }
    page
}

fn help_page() -> TextPage {
    let mut page = TextPage::new();
    for (key, what) in KEYS {
        page.line(format_args!("{key:<22} {what}"));
    }
    page.lines(["", "An expression compares figures of a guest, by key or heading:"]);
    page.lines(["  saved>100MiB and kind=qemu and not name~web*", ""]);
    page.line("Its words are =, !=, <, <=, >, >=, ~ (a pattern with * and ?), and, or, not, ( ). `-` is an unknown value.");
    let names: Vec<&str> = GUEST.iter().map(|figure| figure.field.name).collect();
    page.line(format_args!("Figures: {}", names.join(", ")));
    page
}
