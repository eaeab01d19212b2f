// SPDX-License-Identifier: MIT OR Apache-2.0
//! Progress of long operations: on a terminal, and only if they take long.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::cell::OnceCell;
use std::time::{Duration, Instant};

/// Faster operations show nothing.
const PATIENCE: Duration = Duration::from_millis(300);

/// A progress line on standard error.
pub(crate) struct Progress {
    what: &'static str,
    bytes: Option<u64>,
    begun: Instant,
    bar: OnceCell<ProgressBar>,
}

impl Progress {
    /// Counts files; their number is unknown.
    pub(crate) fn files(what: &'static str) -> Self {
        Progress::new(what, None)
    }

    /// Shows nothing.
    pub(crate) fn silent() -> Self {
        let progress = Progress::files("");
        progress.bar.get_or_init(ProgressBar::hidden);
        progress
    }

    /// Counts bytes up to `all`.
    pub(crate) fn bytes(what: &'static str, all: u64) -> Self {
        Progress::new(what, Some(all))
    }

    fn new(what: &'static str, bytes: Option<u64>) -> Self {
        Progress { what, bytes, begun: Instant::now(), bar: OnceCell::new() }
    }

    /// Updates the count.
    pub(crate) fn set(&self, done: u64) {
        if self.begun.elapsed() >= PATIENCE {
            self.bar.get_or_init(|| self.bar()).set_position(done);
        }
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

impl Drop for Progress {
    fn drop(&mut self) {
        self.end();
    }
}
