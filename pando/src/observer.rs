// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shows the manager's warnings and progress on standard error.

use crate::progress::ProgressLine;
use crate::{diagnostics, messages};
use pando_manager::report::{LongOperation, Observer, Progress, Reporter, Warning};
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Shows reports on standard error.
#[derive(Debug, Default)]
pub(crate) struct TerminalObserver {
    /// Messages that wait until the program has ended, because it owns the terminal.
    deferred: Option<Mutex<Vec<String>>>,
}

/// A handle to an observer that shows reports on standard error.
pub(crate) fn reporter() -> Reporter {
    Reporter::new(Arc::new(TerminalObserver::default()))
}

impl TerminalObserver {
    /// An observer. If the program owns the terminal, refused destinations are shown only when [`flush`](TerminalObserver::flush) is
    /// called.
    pub(crate) fn deferring(owns_terminal: bool) -> Arc<TerminalObserver> {
        Arc::new(TerminalObserver { deferred: owns_terminal.then(Mutex::default) })
    }

    /// Shows the deferred messages.
    pub(crate) fn flush(&self) {
        for message in self.deferred.iter().flat_map(|deferred| mem::take(&mut *lock(deferred))) {
            diagnostics::print_error(&message);
        }
    }
}

fn lock(deferred: &Mutex<Vec<String>>) -> MutexGuard<'_, Vec<String>> {
    deferred.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Observer for TerminalObserver {
    fn warn(&self, warning: Warning) {
        let Some(message) = messages::warning(&warning) else { return };
        match (&self.deferred, &warning) {
            (Some(deferred), Warning::Refused { .. }) => lock(deferred).push(message),
            (_, Warning::SoftwareChanged(_)) => diagnostics::print_notice(&message),
            _ => diagnostics::print_error(&message),
        }
    }

    fn progress(&self, operation: LongOperation) -> Box<dyn Progress> {
        Box::new(match operation {
            LongOperation::ScanDirectory => ProgressLine::files("looking"),
            LongOperation::CheckTemplate { bytes } => ProgressLine::bytes("checking", bytes),
            LongOperation::StackLayers => ProgressLine::files("stacking layers"),
            LongOperation::ScanSoftware => ProgressLine::files("looking at the host's software"),
        })
    }
}
