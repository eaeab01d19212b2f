// SPDX-License-Identifier: MIT OR Apache-2.0
//! How far long work has come: on a terminal, and only if it takes long enough to wonder.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::cell::OnceCell;
use std::time::{Duration, Instant};

/// Work that is done sooner shows nothing.
const PATIENCE: Duration = Duration::from_millis(300);

/// A line on standard error that says how far something has come.
pub(crate) struct Progress {
    what: &'static str,
    bytes: Option<u64>,
    begun: Instant,
    bar: OnceCell<ProgressBar>,
}

impl Progress {
    /// Counts files, of which nobody knows how many there are.
    pub(crate) fn files(what: &'static str) -> Self {
        Progress::new(what, None)
    }

    /// Says nothing.
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

    /// So many are done.
    pub(crate) fn set(&self, done: u64) {
        if self.begun.elapsed() >= PATIENCE {
            self.bar.get_or_init(|| self.bar()).set_position(done);
        }
    }

    /// All is done: nothing of it stays on the terminal.
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
