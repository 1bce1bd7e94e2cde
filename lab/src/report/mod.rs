//! The report of an experiment: one HTML file without references to other files.

mod files;
mod html;
mod plots;

pub use files::{ReportWriteError, write};
pub use html::{escape, head, page};
pub use plots::line_plot;

/// Colours of the competitors, in the order of the command line. They follow Okabe and Ito (2008) and differ for
/// any colour vision; the last ones are darker tones of the first.
const COLOURS: [(u8, u8, u8); 12] = [
    (213, 94, 0),
    (0, 114, 178),
    (0, 158, 115),
    (204, 121, 167),
    (230, 159, 0),
    (86, 180, 233),
    (120, 94, 40),
    (90, 40, 110),
    (130, 30, 30),
    (0, 0, 0),
    (150, 150, 150),
    (60, 100, 20),
];

fn colour(place: usize) -> (u8, u8, u8) {
    COLOURS.get(place % COLOURS.len()).copied().unwrap_or_default()
}

/// An error of drawing a plot.
#[derive(Debug, thiserror::Error)]
#[error("can't draw {plot} of {scenario}: {why}")]
pub struct ReportError {
    plot: &'static str,
    scenario: String,
    why: String,
}

#[cfg(test)]
mod tests;
