//! Guests in order, and summed up by a label.

use std::collections::BTreeMap;

use super::{DOMAIN_SHARING, FigureRow, FigureScalar, GUEST, ModelFigure};
use crate::field::{FigureType, FigureUnit};
use crate::guest::Guest;
use crate::model::GuestsReport;

/// Several guests of one label, summed up.
#[derive(Debug, Clone, PartialEq)]
pub struct GuestGroup {
    /// The label, or `-` for guests without one.
    pub name: String,
    /// The number of guests.
    pub guests: u64,
    /// Merged memory that other domains map too, where that was looked up.
    pub across_bytes: Option<u64>,
    /// The sums, in the order of [`summed`].
    pub sums: Vec<FigureScalar>,
}

/// The name of the group of guests without a label.
pub const NONE: &str = "-";

/// Returns the figures of a guest that can be summed up.
pub fn summed() -> impl Iterator<Item = &'static ModelFigure<Guest>> {
    GUEST.iter().filter(|figure| {
        figure.field.unit == FigureUnit::Bytes
            && matches!(figure.field.holds, FigureType::Unsigned | FigureType::Signed)
    })
}

/// Returns the row of [`GuestGroup::across_bytes`].
pub fn across() -> Option<FigureRow> {
    DOMAIN_SHARING.iter().map(ModelFigure::row).find(|row| row.field.name == "across_bytes")
}

/// Sorts the guests by a figure, those of equal value by name.
pub fn sorted<'a>(report: &'a GuestsReport, by: &ModelFigure<Guest>) -> Vec<&'a Guest> {
    let mut guests: Vec<(FigureScalar, &Guest)> =
        report.guests.iter().map(|guest| ((by.read)(guest), guest)).collect();
    guests.sort_by(|(a, one), (b, other)| a.order(b).then_with(|| one.name.cmp(&other.name)));
    guests.into_iter().map(|(_, guest)| guest).collect()
}

/// The property by which guests are grouped.
#[derive(Debug, Clone)]
pub enum GuestGroupProperty {
    /// A figure of [`labels`](super::labels).
    Figure(&'static ModelFigure<Guest>),
    /// A label of the configuration, by its name.
    Label(String),
}

impl GuestGroupProperty {
    /// Returns the name of the property.
    pub fn name(&self) -> &str {
        match self {
            Self::Figure(figure) => figure.field.name,
            Self::Label(name) => name,
        }
    }

    /// Returns true if groups are trust domains.
    pub fn is_domain(&self) -> bool {
        matches!(self, Self::Figure(figure) if figure.field.name == "domain")
    }

    fn value(&self, guest: &Guest) -> Option<String> {
        match self {
            Self::Figure(figure) => match (figure.read)(guest) {
                FigureScalar::Text(name) => Some(name),
                _ => None,
            },
            Self::Label(name) => guest.labels.get(name).cloned(),
        }
    }
}

/// Sums up the guests by a property, in the order of a figure's sums; by name where it has none.
pub fn groups(report: &GuestsReport, grouping: &GuestGroupProperty, by: &ModelFigure<Guest>) -> Vec<GuestGroup> {
    let mut groups: BTreeMap<String, GuestGroup> = BTreeMap::new();
    let sharing = report.sharing.as_ref().filter(|_| grouping.is_domain());
    for guest in &report.guests {
        let name = grouping.value(guest).unwrap_or_else(|| NONE.to_owned());
        let values = summed().map(|figure| (figure.read)(guest));
        match groups.get_mut(&name) {
            Some(group) => {
                group.guests += 1;
                group.sums = group.sums.iter().zip(values).map(|(sum, value)| sum.plus(&value)).collect();
            }
            None => {
                let across_bytes = sharing.map(|sharing| sharing.across(guest.domain.as_deref()));
                let group = GuestGroup { name: name.clone(), guests: 1, across_bytes, sums: values.collect() };
                groups.insert(name, group);
            }
        }
    }
    let mut groups: Vec<GuestGroup> = groups.into_values().collect();
    if let Some(place) = summed().position(|figure| figure.field.name == by.field.name) {
        // Stable: groups of equal sums stay in the order of their names.
        groups.sort_by(|a, b| match (a.sums.get(place), b.sums.get(place)) {
            (Some(a), Some(b)) => a.order(b),
            _ => std::cmp::Ordering::Equal,
        });
    }
    groups
}
