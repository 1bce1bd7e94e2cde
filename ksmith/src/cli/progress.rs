//! The progress bar of `ksmith estimate`.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use ksmith_host::memory::progress::Meter;

use super::print;

/// A bar on the error output, shown only if that is a terminal.
#[derive(Debug)]
pub struct Bar(ProgressBar);

impl Bar {
    /// A bar that shows nothing yet.
    pub fn new() -> Self {
        Self(ProgressBar::hidden())
    }
}

impl Meter for Bar {
    fn begin(&self, bytes: u64, what: &'static str) {
        if !print::is_watched() {
            return;
        }
        let template = "{msg} {bar:30} {binary_bytes} of {binary_total_bytes}, {binary_bytes_per_sec}, {eta} left";
        if let Ok(style) = ProgressStyle::with_template(template) {
            self.0.set_style(style);
        }
        self.0.reset();
        self.0.set_length(bytes);
        self.0.set_message(what);
        self.0.set_draw_target(ProgressDrawTarget::stderr_with_hz(10));
    }

    fn add(&self, bytes: u64) {
        self.0.inc(bytes);
    }

    fn end(&self) {
        self.0.finish_and_clear();
    }
}
