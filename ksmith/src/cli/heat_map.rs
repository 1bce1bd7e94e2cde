//! The pair matrix as a picture: the more two guests share, the darker their cell.

use std::path::Path;

use ksmith_core::units::Bytes;
use ksmith_host::estimate::MatrixReport;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// A failure to write the heat map.
#[derive(Debug, thiserror::Error)]
#[error("can't write the heat map {path}: {why}")]
pub struct HeatMapError {
    path: String,
    why: String,
}

/// Pixels of a cell's side, and of the margin that holds the names.
const CELL: i32 = 72;
const MARGIN: i32 = 180;

/// Beyond this many guests the figures do not fit into the cells of a picture that fits on a screen.
const MOST_LABELLED: usize = 24;

/// Writes the heat map as SVG.
///
/// # Errors
/// The file can't be written.
pub fn write(matrix: &MatrixReport, path: &Path) -> Result<(), HeatMapError> {
    draw(matrix, path).map_err(|why| HeatMapError { path: path.display().to_string(), why: why.to_string() })
}

fn draw(matrix: &MatrixReport, path: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let guests = matrix.guests.len();
    let is_labelled = guests <= MOST_LABELLED;
    let cell = if is_labelled { CELL } else { (CELL * MOST_LABELLED as i32 / guests as i32).max(4) };
    let side = (MARGIN + cell * guests as i32 + 20) as u32;
    let area = SVGBackend::new(path, (side, side)).into_drawing_area();
    area.fill(&WHITE)?;
    let most = matrix.shared_bytes.iter().flatten().copied().max().unwrap_or(0).max(1);
    let font = ("sans-serif", 12).into_font();
    for (row, (name, cells)) in (0..).zip(matrix.guests.iter().zip(&matrix.shared_bytes)) {
        let y = MARGIN + row * cell;
        let short: String = name.chars().take(24).collect();
        if is_labelled {
            let right = font.clone().color(&BLACK).pos(Pos::new(HPos::Right, VPos::Center));
            area.draw(&Text::new(short.clone(), (MARGIN - 8, y + cell / 2), right))?;
            let up = font.transform(FontTransform::Rotate270).color(&BLACK).pos(Pos::new(HPos::Left, VPos::Center));
            area.draw(&Text::new(short, (y + cell / 2, MARGIN - 8), up))?;
        }
        for (column, &bytes) in (0..).zip(cells) {
            let x = MARGIN + column * cell;
            let part = bytes as f64 / most as f64;
            let shade = |from: f64, to: f64| (from + (to - from) * part) as u8;
            let fill = RGBColor(shade(255.0, 8.0), shade(255.0, 48.0), shade(255.0, 107.0));
            area.draw(&Rectangle::new([(x, y), (x + cell - 1, y + cell - 1)], fill.filled()))?;
            if is_labelled {
                let ink = if part > 0.5 { &WHITE } else { &BLACK };
                let centre = font.clone().color(ink).pos(Pos::new(HPos::Center, VPos::Center));
                area.draw(&Text::new(Bytes::from(bytes).to_string(), (x + cell / 2, y + cell / 2), centre))?;
            }
        }
    }
    area.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_picture_names_the_guests_and_their_figures() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("map.svg");
        let matrix = MatrixReport {
            guests: vec!["web<1>".to_owned(), "db".to_owned()],
            shared_bytes: vec![vec![4096, 1 << 30], vec![1 << 30, 0]],
        };
        write(&matrix, &path).unwrap();
        let svg = std::fs::read_to_string(&path).unwrap();
        assert!(svg.starts_with("<svg"));
        assert!(svg.contains("web&lt;1&gt;") && svg.contains("db") && svg.contains("1.00 GiB"));
        // The background and four cells.
        assert_eq!(svg.matches("<rect").count(), 5);
        assert!(
            write(&matrix, Path::new("/nowhere/map.svg")).unwrap_err().to_string().contains("/nowhere/map.svg")
        );
    }
}
