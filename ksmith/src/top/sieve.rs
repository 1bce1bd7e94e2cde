//! The filter of the list: an expression, or a piece of text.

use std::rc::Rc;

use ksmith_core::figures::{FigureScalar, GUEST};
use ksmith_core::filter::{FigureFilter, FilterError};
use ksmith_core::guest::Guest;

/// A filter of the list of guests.
#[derive(Debug, Clone)]
pub struct GuestFilter {
    /// The filter as it was typed.
    pub text: String,
    expression: Option<Rc<FigureFilter<Guest>>>,
}

impl GuestFilter {
    /// Parses a filter. Text that is no comparison is searched for in every text of a guest.
    ///
    /// # Errors
    /// The text has an operator and is no expression.
    pub fn parse(text: &str) -> Result<Self, FilterError> {
        let expression = match FigureFilter::parse(text, GUEST) {
            Ok(filter) => Some(Rc::new(filter)),
            Err(error) if text.contains(['=', '<', '>', '~', '(', ')']) => return Err(error),
            Err(_) => None,
        };
        Ok(Self { text: text.to_owned(), expression })
    }

    /// Returns true if the guest fits the filter.
    pub fn fits(&self, guest: &Guest) -> bool {
        match &self.expression {
            Some(filter) => filter.fits(guest),
            None => {
                let wanted = self.text.to_lowercase();
                let mut values = GUEST.iter().map(|figure| (figure.read)(guest));
                values
                    .any(|value| matches!(value, FigureScalar::Text(text) if text.to_lowercase().contains(&wanted)))
            }
        }
    }
}
