//! Filters: expressions that select rows of a table of figures.
//!
//! `saved_bytes>100MiB and kind=qemu and not name~web*`. The grammar:
//!
//! ```text
//! filter     = part { "or" part }
//! part       = term { "and" term }
//! term       = "not" term | "(" filter ")" | comparison
//!
//! comparison = figure operator value | figure        (a figure by itself: one of yes or no)
//! figure     = a key or a heading of the table of figures
//!
//! operator   = "=" | "!=" | "<" | "<=" | ">" | ">=" | "~" | "!~"
//! value      = a word, or text in double quotes
//! ```
//!
//! Numbers are compared in base units; bytes may be written as `100MiB`, `1.5G` or `4096`. `~` matches text against a
//! pattern with `*` and `?`. `-` is the unknown value: `domain=-`. An unknown figure is not less, greater or equal to
//! any value and matches no pattern; `!=` and `!~` are the opposites of `=` and `~`.

mod amount;
mod lexer;
mod parser;
mod test;

#[cfg(test)]
mod tests;

use crate::figures::ModelFigure;
use test::FigureTest;

/// A filter over rows of the model `M`.
#[derive(Debug)]
pub struct FigureFilter<M: 'static>(FilterExpression<M>);

#[derive(Debug)]
enum FilterExpression<M: 'static> {
    Compare(&'static ModelFigure<M>, FigureTest),
    Not(Box<FilterExpression<M>>),
    All(Vec<FilterExpression<M>>),
    Any(Vec<FilterExpression<M>>),
}

/// The error of a text that is no filter, with its position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the filter, at character {at}: {why}")]
pub struct FilterError {
    /// The position, counted in characters from 1.
    pub at: usize,
    /// The fault, and what could stand there.
    pub why: String,
}

impl<M> FigureFilter<M> {
    /// Parses a filter over the figures of `table`.
    ///
    /// # Errors
    /// The text is no filter: the error names the position and what is known.
    pub fn parse(text: &str, table: &'static [ModelFigure<M>]) -> Result<Self, FilterError> {
        parser::parse(text, table).map(Self)
    }

    /// Returns true if this row passes the filter.
    pub fn fits(&self, row: &M) -> bool {
        self.0.fits(row)
    }
}

impl<M> FilterExpression<M> {
    fn fits(&self, row: &M) -> bool {
        match self {
            Self::Compare(figure, test) => test.passes(&(figure.read)(row)),
            Self::Not(inner) => !inner.fits(row),
            Self::All(parts) => parts.iter().all(|part| part.fits(row)),
            Self::Any(parts) => parts.iter().any(|part| part.fits(row)),
        }
    }
}
