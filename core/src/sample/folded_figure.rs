//! The figure of folded memory of one process, of two readers.

use std::time::Duration;

/// Folded memory of a process, with the time of the reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FoldedFigure {
    /// Folded memory.
    pub bytes: u64,
    /// Time since boot of the reading that it goes by.
    pub read_at: Duration,
}

impl FoldedFigure {
    /// Joins the figure of whoever reads the page tables of all processes with that of the folder, in bytes. `None`:
    /// neither has read the process.
    ///
    /// Both know a lower bound: zeros that were there at their first readings count for neither. So the larger one
    /// holds, until the page tables are read again: splits of the folder are among those that this reader notices, and
    /// zeros that were written to since are in an old figure of the folder.
    pub fn join(of_page_tables: Option<Self>, of_folder: Option<Self>) -> Option<u64> {
        match (of_page_tables, of_folder) {
            (Some(read), Some(folder)) if read.read_at <= folder.read_at => Some(read.bytes.max(folder.bytes)),
            (read, folder) => read.or(folder).map(|figure| figure.bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_larger_figure_holds_until_the_page_tables_are_read_again() {
        let figure = |bytes, seconds| Some(FoldedFigure { bytes, read_at: Duration::from_secs(seconds) });
        assert_eq!(FoldedFigure::join(figure(100, 5), figure(0, 9)), Some(100), "the folder's first look");
        assert_eq!(FoldedFigure::join(figure(0, 5), figure(100, 5)), Some(100), "it has just folded");
        assert_eq!(FoldedFigure::join(figure(20, 10), figure(100, 5)), Some(20), "written to since");
        assert_eq!(FoldedFigure::join(None, figure(7, 5)), Some(7));
        assert_eq!(FoldedFigure::join(figure(8, 5), None), Some(8));
        assert_eq!(FoldedFigure::join(None, None), None);
    }
}
