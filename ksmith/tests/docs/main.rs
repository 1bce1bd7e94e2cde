//! Holds the documentation to what is there: links lead somewhere, commands are run or parsed, what is generated is
//! fresh, and the pages for users stay short.
//!
//! `KSMITH_WRITE=1 cargo test -p ksmith --test docs` writes the generated pages instead of comparing them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test ends by panicking")]

mod alert_files;
mod budget;
mod commands;
mod doctor_page;
mod exit_page;
mod generated;
mod json_page;
mod links;
mod log_page;
mod message_style;
mod page;
#[path = "../cli/platform_hosts.rs"]
mod platform_hosts;
mod running;
mod screens;
mod settings_file;
mod stable;
mod summary_page;
