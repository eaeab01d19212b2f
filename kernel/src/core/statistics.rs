// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers about all cells, for the operator.

use super::Kernel;
use super::sleepers::SleepCounters;
use std::collections::BTreeMap;

/// Numbers about all cells of a kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Living cells by the [word](crate::RunState::word) for their run state.
    pub states: BTreeMap<&'static str, u64>,
    /// Sleeping cells that should wake up.
    pub waking: u64,
    /// Sleeps so far.
    pub sleeps: SleepCounters,
    /// Exits of all cells so far.
    pub exits: u64,
    /// Tables that wait for a flush of the machine.
    pub quarantined: u64,
}

impl Kernel {
    /// Numbers about all cells. O(cells).
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let state = self.shared.lock();
        let mut statistics = Statistics {
            waking: state.sleepers.wake_count() as u64,
            sleeps: state.sleepers.counters,
            exits: state.ended_exits,
            quarantined: state.frames.quarantined() as u64,
            ..Statistics::default()
        };
        for live in state.cells.iter() {
            *statistics.states.entry(live.execution.run_state().word()).or_default() += 1;
            statistics.exits += live.cell.counters.exits;
        }
        statistics
    }
}
