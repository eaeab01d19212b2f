// SPDX-License-Identifier: MIT OR Apache-2.0
//! Progress of long operations: on a terminal, and only if they take long.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use pando_manager::report::Progress;
use std::cell::OnceCell;
use std::time::{Duration, Instant};

/// Faster operations show nothing.
const SHOW_AFTER: Duration = Duration::from_millis(300);

/// A progress line on standard error.
pub(crate) struct ProgressLine {
    what: &'static str,
    bytes: Option<u64>,
    begun: Instant,
    bar: OnceCell<ProgressBar>,
}

impl ProgressLine {
    /// Counts files; their number is unknown.
    pub(crate) fn files(what: &'static str) -> Self {
        ProgressLine::new(what, None)
    }

    /// Counts bytes up to `all`.
    pub(crate) fn bytes(what: &'static str, all: u64) -> Self {
        ProgressLine::new(what, Some(all))
    }

    fn new(what: &'static str, bytes: Option<u64>) -> Self {
        ProgressLine { what, bytes, begun: Instant::now(), bar: OnceCell::new() }
    }

    /// Removes the line from the terminal.
    pub(crate) fn end(&self) {
        if let Some(bar) = self.bar.get() {
            bar.finish_and_clear();
        }
    }

    fn bar(&self) -> ProgressBar {
        let template = match self.bytes {
            None => "{msg} {spinner} {human_pos} files",
            Some(_) => "{msg} [{bar:40}] {bytes} of {total_bytes}, {eta} left",
        };
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        let target = ProgressDrawTarget::stderr();
        ProgressBar::with_draw_target(self.bytes, target).with_style(style.progress_chars("=> ")).with_message(self.what)
    }
}

impl Progress for ProgressLine {
    fn set(&self, done: u64) {
        if self.begun.elapsed() >= SHOW_AFTER {
            self.bar.get_or_init(|| self.bar()).set_position(done);
        }
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.end();
    }
}
