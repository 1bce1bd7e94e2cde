//! Made-up models, and what is shown of them.

mod answers;
mod balance;
mod guests;
mod hostile;
pub(crate) mod models;
mod schemas;
mod status;
mod trimmed;
