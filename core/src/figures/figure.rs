//! A row of the table: the description of a figure, and the function that reads it from its model.

use serde_json::{Map, Value as Json, json};

use super::FigureScalar;
use crate::field::FigureDescription;

/// One figure of the model `M`.
#[derive(Debug)]
pub struct ModelFigure<M: 'static> {
    /// The description of the figure.
    pub field: FigureDescription,
    /// The heading of its column in tables of text. `None`: it is not shown there.
    pub heading: Option<&'static str>,
    /// The importance of its column: a terminal that is too narrow for all drops the least important first.
    pub importance: u8,
    /// Reads it from the model.
    pub read: fn(&M) -> FigureScalar,
}

/// A figure without its model, for lists, documents and schemas.
#[derive(Debug, Clone, Copy)]
pub struct FigureRow {
    /// The description of the figure.
    pub field: FigureDescription,
    /// The heading of its column in tables of text.
    pub heading: Option<&'static str>,
}

impl<M> ModelFigure<M> {
    /// Returns the figure without its model.
    pub const fn row(&self) -> FigureRow {
        FigureRow { field: self.field, heading: self.heading }
    }
}

/// Finds the figure called `name`, by its key or its heading.
pub fn find<M>(table: &'static [ModelFigure<M>], name: &str) -> Option<&'static ModelFigure<M>> {
    let is_called = |figure: &&ModelFigure<M>| figure.field.name == name || figure.heading == Some(name);
    table.iter().find(is_called)
}

/// Adds a value to a JSON object. Each dot in the key is a step into an object.
pub fn insert(object: &mut Map<String, Json>, key: &str, value: Json) {
    match key.split_once('.') {
        None => {
            object.insert(key.to_owned(), value);
        }
        Some((outer, rest)) => {
            if let Json::Object(inner) = object.entry(outer).or_insert_with(|| json!({})) {
                insert(inner, rest, value);
            }
        }
    }
}

/// Returns the figures of a model as a JSON object.
pub fn object<M>(table: &[ModelFigure<M>], model: &M) -> Map<String, Json> {
    let mut whole = Map::new();
    for figure in table {
        insert(&mut whole, figure.field.name, json!((figure.read)(model)));
    }
    whole
}

/// Makes a table of figures. A row: key, heading and importance in square brackets (if it is a column), type, unit,
/// kind, first kernel, source, help, and the reading.
macro_rules! figures {
    ($(#[$doc:meta])* $table:ident of $model:ty {$(
        $key:literal $([$heading:literal $importance:literal])?: $held:ty, $unit:ident $kind:ident ($major:literal $minor:literal),
        $source:literal, $help:literal, |$it:ident| $read:expr;
    )*}) => {
        $(#[$doc])*
        pub const $table: &[$crate::figures::ModelFigure<$model>] = &[$($crate::figures::ModelFigure {
            field: $crate::field::FigureDescription {
                name: $key,
                unit: $crate::field::FigureUnit::$unit,
                kind: $crate::field::FigureKind::$kind,
                holds: <$held as $crate::figures::FigureValue>::HOLDS,
                help: $help,
                source: $source,
                since: $crate::field::KernelVersion::new($major, $minor),
            },
            importance: 0 $(+ $importance)?,
            heading: { let heading: &[&'static str] = &[$($heading)?]; heading.first().copied() },
            read: |$it: &$model| $crate::figures::FigureScalar::from(Option::<$held>::from($read)),
        },)*];
    };
}
pub(super) use figures;
