// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reports to the front end: warnings about things that do not stop the work, and the progress of long operations.
//!
//! This crate prints nothing. A front end implements [`Observer`], and passes it on as a [`Reporter`].

use pando_kernel::End;
use std::fmt;
use std::sync::Arc;

/// A problem that does not stop the work.
#[derive(Debug, thiserror::Error)]
pub enum Warning {
    /// A file of the host that a cell sees has changed and cannot be read as it was.
    #[error("{0}; the next start scans the host again")]
    FileChanged(String),
    /// An installation prefix has too many files to be shown.
    #[error("{0}: only the program itself is shown")]
    PrefixTooLarge(String),
    /// A training clone could not be run.
    #[error("training clone: {0}")]
    TrainingFailed(String),
    /// A training clone did not succeed.
    #[error("training clone: {0}: the trace until then is used")]
    TrainingEnded(End),
}

/// An operation that may take long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LongOperation {
    /// Scans a directory of the host; the count is that of files.
    ScanDirectory,
    /// Scans the host's software; the count is that of files.
    ScanSoftware,
    /// Checks a template's file; the count is that of bytes.
    CheckTemplate {
        /// All bytes.
        bytes: u64,
    },
}

/// Receives reports.
pub trait Observer: Send + Sync {
    /// Receives a warning, from any thread.
    fn warn(&self, warning: Warning);

    /// Begins to show the progress of an operation, which ends when the returned value is dropped.
    fn progress(&self, operation: LongOperation) -> Box<dyn Progress>;
}

/// The progress of an operation.
pub trait Progress {
    /// Updates the count.
    fn set(&self, done: u64);
}

/// A handle to the front end's observer. The default one discards all reports.
#[derive(Clone)]
pub struct Reporter(Arc<dyn Observer>);

impl Reporter {
    /// A handle to an observer.
    pub fn new(observer: Arc<dyn Observer>) -> Reporter {
        Reporter(observer)
    }

    /// Reports a warning.
    pub fn warn(&self, warning: Warning) {
        self.0.warn(warning);
    }

    /// Begins to show the progress of an operation.
    pub fn progress(&self, operation: LongOperation) -> Box<dyn Progress> {
        self.0.progress(operation)
    }
}

impl Default for Reporter {
    fn default() -> Reporter {
        Reporter::new(Arc::new(SilentObserver))
    }
}

impl fmt::Debug for Reporter {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Reporter")
    }
}

/// Discards all reports.
struct SilentObserver;

impl Observer for SilentObserver {
    fn warn(&self, _: Warning) {}

    fn progress(&self, _: LongOperation) -> Box<dyn Progress> {
        Box::new(SilentObserver)
    }
}

impl Progress for SilentObserver {
    fn set(&self, _: u64) {}
}
