// SPDX-License-Identifier: MIT OR Apache-2.0
//! Restarts of cells that have ended, by their policies. A restarted cell has the name of the ended one and a new number.

use super::spec::{CloneSpec, EndReason};
use super::{ManagedCell, Manager};
use crate::report::Warning;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// The delay before the first restart. Each further one takes twice as long.
const DELAY_MIN: Duration = Duration::from_millis(100);
/// The longest delay.
const DELAY_MAX: Duration = Duration::from_secs(60);
/// A cell that ran for this time has started well: the delay is again the shortest.
const STARTED_WELL: Duration = Duration::from_secs(10);

/// Restarts a cell by its policy until a client ends it. `spec` is that of the cell, as it was requested.
pub(super) async fn supervise(manager: Arc<Manager>, mut cell: Arc<ManagedCell>, spec: CloneSpec) {
    // Its input came from a client that is gone.
    let mut spec = CloneSpec { name: Some(cell.name()), input_ends: true, ..spec };
    let mut delay = DELAY_MIN;
    loop {
        let outcome = cell.ended().await;
        // A client has ended it, or it lives on as a template.
        let is_over = cell.is_stopped() || matches!(outcome.reason, EndReason::Killed | EndReason::Frozen);
        if is_over || !spec.restart.wants(outcome.exit_status, spec.restarts) {
            return;
        }
        if outcome.time >= STARTED_WELL {
            delay = DELAY_MIN;
        }
        sleep(delay).await;
        delay = (delay * 2).min(DELAY_MAX);
        // It may have been stopped or removed meanwhile.
        if cell.is_stopped() || manager.cell(cell.id()).is_err() {
            return;
        }
        spec.restarts = spec.restarts.saturating_add(1);
        match manager.start_once(spec.clone()).await {
            Ok(started) => cell = started.release(),
            Err(error) => manager.environment().reporter.warn(Warning::NotRestarted { cell: cell.name(), reason: error.to_string() }),
        }
    }
}
