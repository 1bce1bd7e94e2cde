//! The bar of the host's memory: used, exposed, and left, with its legend.

use ksmith_core::printable::TextTone;
use ksmith_core::units::Bytes;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::super::app::TopApp;
use super::super::figures::HeaderFigures;
use crate::show::width;

/// The part of the headroom from which on the exposure is a warning.
const NEAR: f64 = 0.8;

/// The name before the bar.
const NAME: &str = "memory ";

/// The parts of the bar, in the order in which they stand.
const PARTS: [&str; 4] = ["█", "▒", "!", "░"];

/// Sizes of the parts: used memory, exposure that the headroom covers, exposure beyond it, and headroom that is left.
fn part_bytes(figures: &HeaderFigures) -> [u64; 4] {
    let headroom = figures.headroom_bytes.unwrap_or(0);
    let exposure = figures.exposure_bytes.unwrap_or(0);
    let covered = exposure.min(headroom);
    [figures.used_bytes.unwrap_or(0), covered, exposure - covered, headroom - covered]
}

/// Divides so many cells by the sizes of parts. Each part that is there has a cell.
fn share_cells(parts: [u64; 4], cells: usize) -> [usize; 4] {
    let there = parts.iter().filter(|part| **part > 0).count();
    let sum = parts.iter().map(|part| u128::from(*part)).sum::<u128>().max(1);
    let rest = cells.saturating_sub(there) as u128;
    let (mut before, mut given) = (0_u128, 0_usize);
    parts.map(|part| {
        if part == 0 {
            return 0;
        }
        before += u128::from(part);
        let end = usize::try_from(before * rest / sum).unwrap_or(usize::MAX);
        let shared = end - given;
        given = end;
        shared + 1
    })
}

impl TopApp {
    /// Returns the tone of the exposure: good, a warning near the headroom, a problem beyond it.
    fn exposure_tone(figures: &HeaderFigures) -> TextTone {
        match figures.exposed_part() {
            Some(part) if part > 1.0 => TextTone::Problem,
            Some(part) if part > NEAR => TextTone::Warning,
            _ => TextTone::Good,
        }
    }

    /// Returns the bar, over so many columns.
    pub(super) fn memory_bar(&self, figures: &HeaderFigures, columns: usize) -> Line<'static> {
        let parts = part_bytes(figures);
        if parts == [0; 4] {
            return Line::from("memory unknown: /proc/meminfo can't be read");
        }
        let size = figures.total_bytes.map_or(String::new(), |total| format!(" of {}", Bytes::from(total)));
        let cells = share_cells(parts, columns.saturating_sub(width(NAME) + width(&size)));
        let styles = self.part_styles(figures);
        let bar = PARTS
            .iter()
            .zip(cells)
            .zip(styles)
            .map(|((part, cells), style)| Span::styled(part.repeat(cells), style));
        Line::from([Span::raw(NAME)].into_iter().chain(bar).chain([Span::raw(size)]).collect::<Vec<_>>())
    }

    /// Returns the legend of the bar, with the sizes of its parts.
    pub(super) fn memory_legend(&self, figures: &HeaderFigures) -> Line<'static> {
        let bytes = |bytes: Option<u64>| bytes.map_or("-".to_owned(), |bytes| Bytes::from(bytes).to_string());
        let [used, covered, over, left] = self.part_styles(figures);
        let is_over = figures.exposed_part().is_some_and(|part| part > 1.0);
        let (sign, style, relation) = if is_over { ("! ", over, " OVER ") } else { ("▒ ", covered, "  ") };
        Line::from(vec![
            Span::styled("█ ", used),
            Span::raw(format!("used {}  ", bytes(figures.used_bytes))),
            Span::styled(sign, style),
            Span::styled(format!("exposure {}{relation}", bytes(figures.exposure_bytes)), style),
            Span::styled("░ ", left),
            Span::raw(format!("headroom {}", bytes(figures.headroom_bytes))),
        ])
    }

    /// Returns the styles of the parts.
    fn part_styles(&self, figures: &HeaderFigures) -> [Style; 4] {
        let exposure = self.style(Self::exposure_tone(figures));
        [Style::new(), exposure, self.style(TextTone::Problem), self.style(TextTone::Faint)]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GIB: u64 = 1 << 30;

    fn bar(used: u64, exposure: u64, headroom: u64, columns: usize) -> String {
        let figures = HeaderFigures {
            total_bytes: Some(8 * GIB),
            used_bytes: Some(used),
            exposure_bytes: Some(exposure),
            headroom_bytes: Some(headroom),
            ..HeaderFigures::default()
        };
        TopApp::new((80, 24), false).memory_bar(&figures, columns).to_string()
    }

    #[test]
    fn used_exposed_and_left_memory_stand_one_after_the_other() {
        assert_eq!(bar(4 * GIB, 2 * GIB, 4 * GIB, 35), "memory ███████▒▒▒▒░░░░░ of 8.00 GiB");
        assert_eq!(bar(4 * GIB, 0, 4 * GIB, 34), "memory ███████░░░░░░░░ of 8.00 GiB");
    }

    #[test]
    fn exposure_beyond_the_headroom_is_told_from_what_is_covered() {
        assert_eq!(bar(4 * GIB, 6 * GIB, 2 * GIB, 34), "memory █████▒▒▒▒!!!!!! of 8.00 GiB");
        assert_eq!(bar(7 * GIB, 1, GIB, 34), "memory ███████████▒░░░ of 8.00 GiB", "a small part has a cell too");
    }

    #[test]
    fn a_host_that_tells_nothing_has_no_bar() {
        let bar = TopApp::new((80, 24), false).memory_bar(&HeaderFigures::default(), 60).to_string();
        assert_eq!(bar, "memory unknown: /proc/meminfo can't be read");
    }

    proptest! {
        #[test]
        fn the_bar_fills_its_cells(parts: [u64; 4], cells in 4_usize..300) {
            let shared = share_cells(parts, cells);
            let has_any = parts.iter().any(|part| *part > 0);
            prop_assert_eq!(shared.iter().sum::<usize>(), if has_any { cells } else { 0 });
            prop_assert!(parts.iter().zip(shared).all(|(part, cells)| (*part > 0) == (cells > 0)));
        }
    }
}
