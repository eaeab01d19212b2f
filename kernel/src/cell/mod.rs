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
use image::Carried;
use pando_abi::virtual_registers::Card;
use pando_abi::{Event, EventSet};
use pando_machine::{Context, FrameId, Nanos, PageCount, VectorState};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Name of a cell: an index and a generation, so that a stale name is recognised. Known to the operator only; cells have no names for each other.
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

/// What a new cell shall be.
#[derive(Clone, Debug)]
pub struct CellConfig {
    /// Frames that it may have, tables included.
    pub quota: PageCount,
    /// Its host name; cut at the abi's limit.
    pub host_name: String,
}

/// What a cell is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Being built; not yet started.
    New,
    /// Waits for the gatekeeper.
    Waiting,
    /// Waits for its quantum.
    Ready,
    /// Has a vCPU.
    Running {
        /// Which.
        vcpu: usize,
    },
    /// Waits for an event or a moment.
    Idle {
        /// The moment.
        until: Nanos,
    },
    /// Has had its share of the CPU, and waits for its next.
    Spent {
        /// The moment.
        until: Nanos,
    },
    /// Waits for the machine's next flush, which will free memory.
    AwaitingFlush,
    /// Never runs again: a template, if the operator wanted one.
    Frozen,
}

/// What the result register receives when the cell is next loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Resumption {
    /// Nothing: the context is complete.
    AsIs,
    /// The pending events: it returns from idling.
    WithEvents,
    /// The generation: it returns from freezing, as a clone.
    WithGeneration,
}

/// Where a cell's vector state is while the cell is on no vCPU (line 7 of the context contract).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Vector {
    /// The cell declared it dead; it gets the initial state.
    Dead,
    /// It was taken off its vCPU with the cell.
    Saved(VectorState),
}

/// An instruction that is to be retried, and the address that it writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Write {
    pub(crate) instruction: u64,
    pub(crate) address: u64,
    /// The shared page that the vCPU may still read there: held until the write is confirmed.
    pub(crate) replaced: Option<FrameId>,
}

/// Who a cell is.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Grows at every clone.
    pub generation: u64,
    /// Which clone of its source this is.
    pub clone_index: u64,
    /// Its host name.
    pub host_name: String,
    /// Its network card.
    pub card: Card,
    /// Whether its virtual registers still show somebody else's.
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
    /// A hypercall that is not finished: its next piece comes before the cell runs.
    pub(crate) operation: Option<Operation>,
    /// Events that have happened while the cell was not looking.
    pub(crate) events: EventSet,
    /// The size of the operator's terminal that the virtual registers do not show yet.
    pub(crate) window: Option<[u16; 2]>,
    pub(crate) identity: Identity,
    pub(crate) clones_made: u64,
    /// It, or one that it is a clone of, was frozen as it stood, or while programs ran that did not notice: nothing promises that clones' random numbers are distinct.
    pub(crate) forced: bool,
    /// When it was frozen as it stood; in a clone when its source was. `None`: that froze by itself, or not at all.
    pub(crate) stopped: Option<Nanos>,
    /// The operator has asked it to freeze.
    pub(crate) is_asked: bool,
    /// It shall freeze as it stands, before its next instruction.
    pub(crate) halts: bool,
    /// The template that learns from what it touches.
    pub(crate) teaches: Option<CellId>,
    /// Whether the operator knows it as a template: frozen, it is then no victim when memory is short.
    pub(crate) is_template: bool,
    /// Why it shall end at its next exit.
    pub(crate) doom: Option<End>,
    pub(crate) counters: Counters,
    /// What is left of a quantum in which it was interrupted: it must not pay for those who come back from idling. Zero: the next is a whole one.
    pub(crate) rest: Duration,
    /// The vCPU that it ran on last.
    pub(crate) last_vcpu: Option<usize>,
    /// A write whose private page the vCPU may not have seen yet: the instruction, and what it touched.
    pub(crate) unconfirmed: Option<Write>,
    /// Faults in a row that the tables say cannot happen, and where.
    pub(crate) spurious: (u64, u32),
}

impl Cell {
    /// A cell with an empty memory.
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
            identity: Identity { generation: 0, clone_index: 0, host_name, card: Card::default(), stale: true },
            clones_made: 0,
            forced: false,
            stopped: None,
            is_asked: false,
            halts: false,
            teaches: None,
            is_template: false,
            doom: None,
            counters: Counters::default(),
            rest: Duration::ZERO,
            last_vcpu: None,
            unconfirmed: None,
            spurious: (0, 0),
        }
    }

    /// Lets go of the page that a write has replaced, once no vCPU can read it any more in the cell's name.
    pub(crate) fn confirm(&mut self, frames: &mut Frames, write: Write) {
        if let Some(frame) = write.replaced {
            frames.release(frame);
        }
    }

    /// A clone: the same context and memory, another identity. O(mounts + segments).
    pub(crate) fn clone_as(&mut self, id: CellId, frames: &mut Frames, account: AccountId) -> Cell {
        let memory = self.memory.clone_set(frames, account);
        let carried = Carried {
            generation: self.identity.generation + 1,
            clone_index: self.clones_made,
            clones_made: 0,
            // One that idles was never stopped; it may be a clone of one that was.
            stopped: self.stopped.filter(|_| !matches!(self.state, State::Idle { .. })),
            ..self.carried()
        };
        self.clones_made += 1;
        let mut cell = Cell::new(id, memory, String::new());
        cell.carry(carried);
        // One that idles may not have looked at what was said to it.
        cell.withdraw(frames, EventSet::WISHES);
        cell.events = cell.events.with(Event::Generation);
        cell
    }

    /// All that the cell is besides its memory, where it stands still.
    pub(crate) fn carried(&self) -> Carried {
        Carried {
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

    /// Becomes what was carried over from elsewhere.
    pub(crate) fn carry(&mut self, carried: Carried) {
        let Carried { context, vector, resumption, events, window, generation, clone_index, clones_made, forced, stopped, host_name } =
            carried;
        // It is plugged in anew, or nowhere.
        self.identity = Identity { generation, clone_index, host_name, card: Card::default(), stale: true };
        (self.context, self.vector, self.resumption) = (context, vector, resumption);
        (self.events, self.window, self.clones_made) = (events, window, clones_made);
        (self.forced, self.stopped) = (forced, stopped);
    }
}
