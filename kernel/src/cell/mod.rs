// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cells: tiny virtual machines. The unit of scheduling, accounting, cloning and destruction.

pub mod call;
pub mod end;
pub mod image;
pub mod registers;
pub mod traffic;
pub mod upcall;

use crate::memory::{AccountId, Frames, SpaceSet};
use call::Operation;
use end::{Counters, End};
use image::CellRecord;
use pando_abi::virtual_registers::Card;
use pando_abi::{Event, EventSet};
use pando_machine::{Context, FrameId, Nanos, PageCount, VectorState};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Identifier of a cell: an index and a generation, so that a stale identifier is recognised. Only the operator knows it; cells
/// have no names for each other.
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

/// Configuration of a new cell.
#[derive(Clone, Debug)]
pub struct CellConfig {
    /// Frames that it may have, tables included.
    pub quota: PageCount,
    /// Its host name, truncated at the abi's limit.
    pub host_name: String,
}

/// The scheduling state of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Being built; not yet started.
    New,
    /// Waits for admission by the gatekeeper.
    Waiting,
    /// Waits for its quantum.
    Ready,
    /// Has a vCPU.
    Running {
        /// Its index.
        vcpu: usize,
    },
    /// Waits for an event or a time.
    Idle {
        /// The time.
        until: Nanos,
    },
    /// Has used its share of the CPU, and waits for the next period.
    Spent {
        /// The time.
        until: Nanos,
    },
    /// Waits for the machine's next flush, which will free memory.
    AwaitingFlush,
    /// Never runs again; a template, if the operator wanted one.
    Frozen,
}

/// The value that the result register receives when the cell is next loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Resumption {
    /// None: the context is complete.
    AsIs,
    /// The pending events: it returns from idling.
    WithEvents,
    /// The generation: it returns from freezing, as a clone.
    WithGeneration,
}

/// A cell's vector state while the cell is on no vCPU (line 7 of the context contract).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Vector {
    /// The cell declared it dead; it gets the initial state.
    Dead,
    /// Saved when the cell left its vCPU.
    Saved(VectorState),
}

/// An instruction that will be retried, and the address that it writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Write {
    pub(crate) instruction: u64,
    pub(crate) address: u64,
    /// The shared page that the vCPU may still read there: held until the write is confirmed.
    pub(crate) replaced: Option<FrameId>,
}

/// A cell's identity.
#[derive(Clone, Debug)]
pub struct CellIdentity {
    /// Incremented at every clone.
    pub generation: u64,
    /// Its number among the clones of its source.
    pub clone_index: u64,
    /// Its host name.
    pub host_name: String,
    /// Its network card.
    pub card: Card,
    /// Whether its virtual registers still show another identity.
    pub stale: bool,
}

/// A cell.
pub struct Cell {
    pub(crate) id: CellId,
    pub(crate) state: State,
    pub(crate) context: Context,
    pub(crate) memory: SpaceSet,
    pub(crate) vector: Vector,
    pub(crate) resumption: Resumption,
    /// An unfinished operation: its next step comes before the cell runs.
    pub(crate) operation: Option<Operation>,
    /// Events that were not yet shown to the cell.
    pub(crate) events: EventSet,
    /// Size of the operator's terminal, if the virtual registers do not show it yet.
    pub(crate) window: Option<[u16; 2]>,
    pub(crate) identity: CellIdentity,
    pub(crate) clones_made: u64,
    /// It, or one that it is a clone of, was frozen by force, or while programs ran that did not notice: its clones' random numbers
    /// may be equal.
    pub(crate) forced: bool,
    /// When it, or the source of a clone, was frozen by force. `None`: it froze by itself, or was not frozen.
    pub(crate) stopped: Option<Nanos>,
    /// The operator has asked it to freeze.
    pub(crate) is_asked: bool,
    /// It must be frozen by force before its next instruction.
    pub(crate) halts: bool,
    /// The template that is trained by this cell.
    pub(crate) trains: Option<CellId>,
    /// Whether the operator knows it as a template: it is then no victim when memory is short.
    pub(crate) is_template: bool,
    /// Why it must end at its next exit.
    pub(crate) doom: Option<End>,
    pub(crate) counters: Counters,
    /// Rest of an interrupted quantum: the cell does not pay for cells that return from idling. Zero: the next quantum is a whole
    /// one.
    pub(crate) rest: Duration,
    /// The vCPU that it ran on last.
    pub(crate) last_vcpu: Option<usize>,
    /// A write whose private page the vCPU may not have seen yet.
    pub(crate) unconfirmed: Option<Write>,
    /// Consecutive faults that the tables rule out: the address, and their number.
    pub(crate) spurious: (u64, u32),
}

impl Cell {
    /// A cell with empty memory.
    pub(crate) fn new(id: CellId, memory: SpaceSet, host_name: String) -> Cell {
        Cell {
            id,
            state: State::New,
            context: Context::default(),
            memory,
            vector: Vector::Dead,
            resumption: Resumption::AsIs,
            operation: None,
            events: EventSet::NONE,
            window: None,
            identity: CellIdentity { generation: 0, clone_index: 0, host_name, card: Card::default(), stale: true },
            clones_made: 0,
            forced: false,
            stopped: None,
            is_asked: false,
            halts: false,
            trains: None,
            is_template: false,
            doom: None,
            counters: Counters::default(),
            rest: Duration::ZERO,
            last_vcpu: None,
            unconfirmed: None,
            spurious: (0, 0),
        }
    }

    /// Releases the page that a write has replaced, once no vCPU can still read it for this cell.
    pub(crate) fn confirm(&mut self, frames: &mut Frames, write: Write) {
        if let Some(frame) = write.replaced {
            frames.release(frame);
        }
    }

    /// Clones the cell: same context and memory, another identity. O(mounts + segments).
    pub(crate) fn clone_as(&mut self, id: CellId, frames: &mut Frames, account: AccountId) -> Cell {
        let memory = self.memory.clone_set(frames, account);
        let carried = CellRecord {
            generation: self.identity.generation + 1,
            clone_index: self.clones_made,
            clones_made: 0,
            // An idle cell was not frozen; it may be a clone of a cell that was.
            stopped: self.stopped.filter(|_| !matches!(self.state, State::Idle { .. })),
            ..self.carried()
        };
        self.clones_made += 1;
        let mut cell = Cell::new(id, memory, String::new());
        cell.carry(carried);
        // An idle cell may have pending requests of its operator.
        cell.withdraw(frames, EventSet::REQUESTS);
        cell.events = cell.events.with(Event::Generation);
        cell
    }

    /// The state of the cell besides its memory, while it does not run.
    pub(crate) fn carried(&self) -> CellRecord {
        CellRecord {
            context: self.context,
            vector: self.vector.clone(),
            resumption: self.resumption,
            events: self.events,
            window: self.window,
            generation: self.identity.generation,
            clone_index: self.identity.clone_index,
            clones_made: self.clones_made,
            forced: self.forced,
            stopped: self.stopped,
            host_name: self.identity.host_name.clone(),
        }
    }

    /// Takes over the state of another cell.
    pub(crate) fn carry(&mut self, carried: CellRecord) {
        let CellRecord { context, vector, resumption, events, window, generation, clone_index, clones_made, forced, stopped, host_name } =
            carried;
        // Its card is plugged in again later, or not at all.
        self.identity = CellIdentity { generation, clone_index, host_name, card: Card::default(), stale: true };
        (self.context, self.vector, self.resumption) = (context, vector, resumption);
        (self.events, self.window, self.clones_made) = (events, window, clones_made);
        (self.forced, self.stopped) = (forced, stopped);
    }
}
