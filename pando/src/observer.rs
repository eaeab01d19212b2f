// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shows the manager's warnings and progress on standard error.

use crate::diagnostics;
use crate::progress::ProgressLine;
use pando_manager::report::{LongOperation, Observer, Progress, Reporter, Warning};
use std::sync::Arc;

/// Shows reports on standard error.
#[derive(Debug, Default)]
pub(crate) struct TerminalObserver(());

/// A handle to an observer that shows reports on standard error.
pub(crate) fn reporter() -> Reporter {
    Reporter::new(Arc::new(TerminalObserver::default()))
}

impl Observer for TerminalObserver {
    fn warn(&self, warning: Warning) {
        diagnostics::problem(&warning);
    }

    fn progress(&self, operation: LongOperation) -> Box<dyn Progress> {
        Box::new(match operation {
            LongOperation::ScanDirectory => ProgressLine::files("looking"),
            LongOperation::CheckTemplate { bytes } => ProgressLine::bytes("checking", bytes),
            LongOperation::ScanSoftware => ProgressLine::files("looking at the host's software"),
        })
    }
}
