// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cells: tiny virtual machines. The unit of scheduling, accounting, cloning and destruction.
//!
//! A [`Cell`] holds resources; an [`ExecutionContext`] is what runs for it.

pub(crate) mod batch;
pub(crate) mod child_operation;
pub mod counters;
pub mod cpu_limit;
pub mod end;
pub mod execution;
pub(crate) mod freeze;
pub(crate) mod halt;
pub mod image;
pub(crate) mod memory_operation;
pub(crate) mod message_operation;
pub(crate) mod operation;
pub mod run_state;
pub mod traffic;
pub mod upcall;
pub mod virtual_registers;
pub(crate) mod watch;
pub(crate) mod work;

use crate::memory::{AccountId, Frames, SpaceSet};
use counters::Counters;
use execution::ExecutionContext;
use freeze::{FreezeHistory, StopRequest};
use image::CellRecord;
use pando_abi::virtual_registers::Card;
use pando_abi::{Event, EventSet, HoldingName};
use pando_machine::PageCount;
use run_state::RunState;
use virtual_registers::SleepingRegisters;
use watch::Watch;

/// Identifier of a cell: an index and a generation, so that a stale identifier is recognised. Only the operator knows it; cells
/// name only the cells that they hold ([`pando_abi::holding`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CellId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl std::fmt::Display for CellId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.index, self.generation)
    }
}

impl From<HoldingName> for CellId {
    /// The identifier by which an operator knows a cell that it holds: a program that is the operator of its cell's children.
    fn from(name: HoldingName) -> CellId {
        CellId { index: name.index() as u32, generation: name.generation() }
    }
}

impl CellId {
    /// An identifier that no cell of a kernel and no holding has: for a cell that its operator has not made yet.
    #[must_use]
    pub fn placeholder(number: u32) -> CellId {
        CellId { index: number, generation: 0 }
    }

    /// The name of the holding that this is the identifier of. `None`: it is that of a cell that its operator has not made yet.
    #[must_use]
    pub fn holding(self) -> Option<HoldingName> {
        (self.generation > 0).then(|| HoldingName::new(self.index, self.generation))
    }

    /// The identifier as the result of an operation.
    pub(crate) fn to_bits(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    /// The identifier that an operation has returned.
    pub(crate) fn from_bits(bits: u64) -> CellId {
        CellId { index: bits as u32, generation: (bits >> 32) as u32 }
    }
}

/// Configuration of a new cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellConfig {
    /// Frames that it may have, tables included.
    pub quota: PageCount,
    /// Its host name, truncated at the abi's limit.
    pub host_name: String,
}

/// A cell's identity.
#[derive(Clone, Debug)]
pub struct CellIdentity {
    /// Incremented at every clone.
    pub generation: u64,
    /// Its number among the clones of its source.
    pub clone_index: u64,
    /// Its host name.
    pub host_name: Box<str>,
    /// Its network card, if it has one.
    pub card: Option<Box<Card>>,
    /// Whether its virtual registers still show another identity.
    pub is_stale: bool,
}

/// A cell: what it has, but not what runs.
pub struct Cell {
    pub(crate) id: CellId,
    pub(crate) memory: SpaceSet,
    pub(crate) identity: CellIdentity,
    /// Events that its virtual registers do not show yet.
    pub(crate) events: EventSet,
    /// Size of the operator's terminal, if the virtual registers do not show it yet.
    pub(crate) window: Option<[u16; 2]>,
    /// A request of the operator to freeze or to end.
    pub(crate) stop_request: StopRequest,
    pub(crate) freeze_history: FreezeHistory,
    /// The events that halt it for its parent. Clones are not watched.
    pub(crate) watch: Watch,
    pub(crate) clones_made: u64,
    /// Whether the operator knows it as a template: it is then no victim when memory is short.
    pub(crate) is_template: bool,
    /// The template that is trained by this cell.
    pub(crate) trained_template: Option<CellId>,
    pub(crate) counters: Counters,
    /// While the cell is asleep: the parts of its virtual registers that others read.
    pub(crate) sleeping_registers: Option<Box<SleepingRegisters>>,
}

impl Cell {
    /// A cell with this memory.
    pub(crate) fn new(id: CellId, memory: SpaceSet, host_name: String) -> Cell {
        Cell {
            id,
            memory,
            identity: CellIdentity { generation: 0, clone_index: 0, host_name: host_name.into(), card: None, is_stale: true },
            events: EventSet::NONE,
            window: None,
            stop_request: StopRequest::None,
            freeze_history: FreezeHistory::Noticed,
            watch: Watch::default(),
            clones_made: 0,
            is_template: false,
            trained_template: None,
            counters: Counters::default(),
            sleeping_registers: None,
        }
    }

    /// Clones the cell with its execution context: same CPU state and memory, another identity. O(mounts + segments).
    pub(crate) fn clone_as(
        &mut self,
        execution: &ExecutionContext,
        id: CellId,
        frames: &mut Frames,
        account: AccountId,
    ) -> (Cell, ExecutionContext) {
        let memory = self.memory.clone_set(frames, account);
        let record = CellRecord::of(self, execution);
        // An idle cell was not frozen; it may be a clone of a cell that was.
        let freeze_history = match execution.run_state() {
            RunState::Idle { .. } => self.freeze_history.after_running(),
            // It continues elsewhere at this time.
            RunState::Halted => self.freeze_history.after_forced_freeze(frames.machine().now(), true),
            _ => self.freeze_history,
        };
        let record = CellRecord {
            generation: self.identity.generation + 1,
            clone_index: self.clones_made,
            clones_made: 0,
            freeze_history,
            ..record
        };
        self.clones_made += 1;
        let mut cell = Cell::new(id, memory, String::new());
        let execution = record.restore(&mut cell);
        // An idle cell may have pending requests of its operator.
        cell.withdraw(frames, EventSet::REQUESTS);
        cell.events = cell.events.with(Event::Generation);
        (cell, execution)
    }
}

#[cfg(test)]
mod tests {
    use super::CellId;
    use pando_abi::HoldingName;
    use pando_abi::limits::MAX_HOLDINGS;

    #[test]
    fn only_made_cells_have_a_name() {
        let name = HoldingName::new(5, 1);
        assert_eq!(CellId::from(name).holding(), Some(name));
        // In the bits of a name, this number would be a generation.
        assert_eq!(CellId::placeholder(MAX_HOLDINGS as u32 + 5).holding(), None);
    }
}
