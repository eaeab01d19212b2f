// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reports to the front end: warnings about things that do not stop the work, and the progress of long operations.
//!
//! This crate prints nothing. A front end implements [`Observer`], and passes it on as a [`Reporter`].

use crate::host;
use pando_gateway::RefusedDestination;
use pando_image::escaped;
use pando_kernel::End;
use pando_kernel::network::address::Addresses;
use std::fmt;
use std::io;
use std::path::PathBuf;
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
    /// A TAP device is down.
    #[error("the TAP device {0} is down")]
    DeviceDown(String),
    /// A gateway refuses a destination, a name or a query.
    #[error("{program}: the network's rules do not allow {refused}")]
    Refused {
        /// The cell's program.
        program: String,
        /// The gateway's address in the cell's network.
        router: Addresses,
        /// The refused destination, name or query.
        refused: RefusedDestination,
    },
    /// A gateway was lost, and another takes its place.
    #[error("{program}: the gateway was lost: {reason}; connections through it are lost too, and another takes its place")]
    GatewayReplaced {
        /// The cell's program.
        program: String,
        /// Why it was lost.
        reason: String,
    },
    /// A gateway was lost, and none takes its place.
    #[error("{program}: the gateway was lost: {reason}; the cell continues without connections to other networks: {error}")]
    GatewayLost {
        /// The cell's program.
        program: String,
        /// Why it was lost.
        reason: String,
        /// Why there is no other.
        error: io::Error,
    },
    /// A gateway did not end as requested.
    #[error("{program}: the gateway of the cell's network failed: {}", host::plain(error))]
    GatewayFailed {
        /// The cell's program.
        program: String,
        /// The reason.
        error: io::Error,
    },
    /// A capture is not complete.
    #[error("{}: {problem}", escaped(file))]
    Capture {
        /// The file.
        file: PathBuf,
        /// The reason.
        problem: CaptureProblem,
    },
    /// A cell with a restart policy was not started again; there will be another attempt.
    #[error("{cell}: cannot restart it: {reason}")]
    NotRestarted {
        /// The cell's name.
        cell: String,
        /// The reason.
        reason: String,
    },
    /// The host's software has changed, so a built-in template is created again.
    #[error("the host's software has changed: creating template `{0}` again")]
    SoftwareChanged(String),
    /// A training clone could not be run.
    #[error("training clone: {0}")]
    TrainingFailed(String),
    /// A training clone did not succeed.
    #[error("training clone: {0}: the trace until then is used")]
    TrainingEnded(End),
}

/// Why a capture is not complete.
#[derive(Debug, thiserror::Error)]
pub enum CaptureProblem {
    /// The file cannot be written any more.
    #[error("{}: the capture stops, the program continues", host::plain(.0))]
    Stopped(io::Error),
    /// Frames came faster than they could be written.
    #[error("{lost} of {all} frames were lost, because they came faster than they could be written")]
    Lost {
        /// Frames that were lost.
        lost: u64,
        /// All frames.
        all: u64,
    },
    /// The file's end cannot be written.
    #[error("{}", host::plain(.0))]
    Unfinished(io::Error),
}

/// An operation that may take long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LongOperation {
    /// Scans a directory of the host; the count is that of files.
    ScanDirectory,
    /// Scans the host's software; the count is that of files.
    ScanSoftware,
    /// Unites the layers of a container image; there is no count.
    StackLayers,
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
