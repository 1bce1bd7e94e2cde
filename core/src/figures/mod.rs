//! The one table of figures: of the host, processes, guests, domains, pools, policies and controllers.
//!
//! Each row holds a figure's key, unit, kind, help, source and first kernel, and how it is read from the model. Text
//! columns, JSON, `--sort`, `--by`, JSON schemas and docs/reference/figures.md come from the rows. A new figure is one
//! new row.

mod balance;
mod domain;
mod figure;
mod group;
mod guest;
mod host;
mod process;
mod reference;
mod reserved;
mod running;
pub mod schema;
mod value;

pub use balance::{BALANCED_GUEST, POOL, RESIZE};
pub use domain::{DOMAIN, DOMAIN_SHARING};
pub use figure::{FigureRow, ModelFigure, find, insert, object};
pub use group::{GuestGroup, GuestGroupProperty, NONE, across, groups, sorted, summed};
pub use guest::{GUEST, labels};
pub use host::{EFFICIENCY, HOST, HOST_IN_GUESTS, host, rows as host_rows};
pub use process::PROCESS;
pub use reference::reference;
pub use reserved::{METRIC_LABELS, reserved_meaning};
pub use running::{BALANCE, CONTROLLER, HISTORY, POLICY, SKETCH, VERDICT};
pub use value::{FigureScalar, FigureValue};
