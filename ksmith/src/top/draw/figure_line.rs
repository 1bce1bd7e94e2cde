//! A line of figures: those for which there is room, each in whole.

use std::cmp::Reverse;

use ratatui::text::{Line, Span};

use crate::show::width;

/// Cells between two figures.
const GAP: &str = "  ";

/// A figure of a line, and its importance: the greater one gets room first.
#[derive(Debug, Clone)]
pub(super) struct RankedFigure {
    importance: u8,
    spans: Vec<Span<'static>>,
}

impl RankedFigure {
    /// Returns a figure of these spans.
    pub(super) fn new(importance: u8, spans: impl IntoIterator<Item = Span<'static>>) -> Self {
        Self { importance, spans: spans.into_iter().collect() }
    }

    fn width(&self) -> usize {
        self.spans.iter().map(|span| width(&span.content)).sum()
    }
}

/// Returns the figures that fit into so many columns, in their order. The least important are left out.
pub(super) fn fit_figures(figures: Vec<RankedFigure>, columns: usize) -> Line<'static> {
    let mut room = columns + width(GAP);
    let mut ranked: Vec<(usize, RankedFigure)> = figures.into_iter().enumerate().collect();
    ranked.sort_by_key(|(_, figure)| Reverse(figure.importance));
    ranked.retain(|(_, figure)| {
        let needed = figure.width() + width(GAP);
        let fits = needed <= room;
        room -= if fits { needed } else { 0 };
        fits
    });
    ranked.sort_by_key(|(place, _)| *place);
    let mut spans = Vec::new();
    for (_, figure) in ranked {
        if !spans.is_empty() {
            spans.push(Span::raw(GAP));
        }
        spans.extend(figure.spans);
    }
    Line::from(spans)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fitted(columns: usize) -> String {
        let figures = [(9, "saved 4 B"), (7, "profit 4 B"), (1, "guests 3"), (8, "notes: 4")];
        let figures = figures.map(|(importance, text)| RankedFigure::new(importance, [Span::raw(text)]));
        fit_figures(figures.to_vec(), columns).to_string()
    }

    #[test]
    fn the_least_important_figure_is_left_out_first() {
        assert_eq!(fitted(41), "saved 4 B  profit 4 B  guests 3  notes: 4");
        assert_eq!(fitted(40), "saved 4 B  profit 4 B  notes: 4");
        assert_eq!(fitted(31), "saved 4 B  profit 4 B  notes: 4");
        assert_eq!(fitted(30), "saved 4 B  guests 3  notes: 4", "a shorter one may still fit");
        assert_eq!(fitted(18), "saved 4 B");
        assert_eq!(fitted(8), "notes: 4");
        assert_eq!(fitted(7), "");
    }

    proptest! {
        #[test]
        fn the_line_fits_and_its_figures_are_whole(
            figures in prop::collection::vec((any::<u8>(), "[a-z漢]{1,12}"), 0..8),
            columns in 0_usize..80,
        ) {
            let ranked =
                figures.iter().map(|(importance, text)| RankedFigure::new(*importance, [Span::raw(text.clone())]));
            let line = fit_figures(ranked.collect(), columns).to_string();
            prop_assert!(width(&line) <= columns, "{:?} in {}", line, columns);
            let shown: Vec<&str> = line.split(GAP).filter(|figure| !figure.is_empty()).collect();
            let texts = shown.iter().all(|figure| figures.iter().any(|(_, text)| text == figure));
            prop_assert!(texts, "{:?}", line);
        }
    }
}
