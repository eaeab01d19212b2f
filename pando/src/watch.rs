// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ends a cell that takes too long.

use pando_kernel::{CellId, End, Kernel};
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// Ends a cell when its time is up, unless this is dropped before.
pub(crate) struct Watch {
    /// What a drop of it tells the thread.
    _alive: mpsc::Sender<()>,
}

impl Watch {
    /// Starts the watch on a thread of its own.
    pub(crate) fn start(kernel: &Arc<Kernel>, cell: CellId, time: Duration, end: End) -> Watch {
        let (alive, ended) = mpsc::channel();
        let kernel = Arc::clone(kernel);
        std::thread::spawn(move || {
            if ended.recv_timeout(time) == Err(mpsc::RecvTimeoutError::Timeout) {
                // It may have ended this very moment.
                let _ = kernel.end(cell, end);
            }
        });
        Watch { _alive: alive }
    }
}
