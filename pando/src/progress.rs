// SPDX-License-Identifier: MIT OR Apache-2.0
//! Progress of long operations: on a terminal, and only if they take long.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use pando_manager::report::Progress;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Faster operations show nothing.
const SHOW_AFTER: Duration = Duration::from_millis(300);

/// The unit of a progress line.
#[derive(Clone, Copy, Debug)]
enum Count {
    Files,
    /// Bytes, and all of them if their number is known.
    Bytes(Option<u64>),
}

/// A progress line on standard error.
pub(crate) struct ProgressLine {
    what: &'static str,
    count: Count,
    begun: Instant,
    bar: OnceLock<ProgressBar>,
}

impl ProgressLine {
    /// Counts files; their number is unknown.
    pub(crate) fn files(what: &'static str) -> Self {
        ProgressLine::new(what, Count::Files)
    }

    /// Counts bytes up to `all`.
    pub(crate) fn bytes(what: &'static str, all: u64) -> Self {
        ProgressLine::new(what, Count::Bytes(Some(all)))
    }

    /// Counts bytes; their number is unknown.
    pub(crate) fn some_bytes(what: &'static str) -> Self {
        ProgressLine::new(what, Count::Bytes(None))
    }

    /// Shows a text after the line's name.
    pub(crate) fn detail(&self, text: &str) {
        if let Some(bar) = self.bar.get() {
            bar.set_message(format!("{} {text}", self.what));
        }
    }

    fn new(what: &'static str, count: Count) -> Self {
        ProgressLine { what, count, begun: Instant::now(), bar: OnceLock::new() }
    }

    /// Removes the line from the terminal.
    pub(crate) fn end(&self) {
        if let Some(bar) = self.bar.get() {
            bar.finish_and_clear();
        }
    }

    fn bar(&self) -> ProgressBar {
        let template = match self.count {
            Count::Files => "{msg} {spinner} {human_pos} files",
            Count::Bytes(None) => "{msg} {spinner} {bytes}",
            Count::Bytes(Some(_)) => "{msg} [{bar:40}] {bytes} of {total_bytes}, {eta} left",
        };
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        let target = ProgressDrawTarget::stderr();
        let length = if let Count::Bytes(all) = self.count { all } else { None };
        ProgressBar::with_draw_target(length, target).with_style(style.progress_chars("=> ")).with_message(self.what)
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
