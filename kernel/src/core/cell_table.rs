// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of cells: living cells with their devices, and the outcomes of ended ones.

use super::bases::BaseId;
use super::holdings::{Cloner, Holdings, Parent};
use super::ipc::IpcState;
use super::sleepers::{Idleness, Sleep};
use super::start_phase::StartPhase;
use crate::cell::end::Outcome;
use crate::cell::execution::ExecutionContext;
use crate::cell::run_state::RunState;
use crate::cell::watch::{Watch, WatchCallback};
use crate::cell::work::Work;
use crate::cell::{Cell, CellId};
use crate::device::card::{Card, CardContext, PeerCells};
use crate::device::console::Console;
use crate::limits::MAX_CELLS;
use crate::memory::{CopyError, Frames, SpaceSet};
use crate::network::{Networks, Owner};
use crate::sched::cpu_budget::CpuBudget;
use crate::sched::donation::Donation;
use pando_abi::Event;
use pando_abi::watch::HaltReason;
use pando_machine::Nanos;
use std::iter;
use std::mem;

/// A living cell with its execution context and its devices.
pub(super) struct LiveCell {
    pub(super) cell: Cell,
    pub(super) execution: ExecutionContext,
    pub(super) console: Console,
    /// The channel to the operator, if the operator has opened it.
    pub(super) channel: Option<Box<Console>>,
    /// The control channel, if the operator has opened it. Clones have none.
    pub(super) control: Option<Box<Console>>,
    /// Its network card, if it has one.
    pub(super) card: Option<Box<Card>>,
    /// Its limit of CPU time; `None`: unlimited.
    pub(super) cpu_budget: Option<Box<CpuBudget>>,
    /// The CPU time that it donates. It then waits for a vCPU, which runs the child in its place.
    pub(super) donation: Option<Box<Donation>>,
    /// Its parent; `None`: the operator created it.
    pub(super) parent: Option<Parent>,
    /// The call of a port in which it waits, and answers for it.
    pub(super) ipc: IpcState,
    /// Number of its ancestors.
    pub(super) depth: u8,
    /// The cells and ports that it may name.
    pub(super) holdings: Holdings,
    /// The memory that it is a clone of.
    pub(super) base: Option<BaseId>,
    /// The base of its clones.
    pub(super) clone_base: Option<BaseId>,
    /// How it idles, for the choice of cells that fall asleep.
    pub(super) idleness: Idleness,
    /// Its sleep: only in run state `Asleep`.
    pub(super) sleep: Option<Box<Sleep>>,
    /// Its start phase, until that ends.
    pub(super) start: Option<Box<StartPhase>>,
    /// The operator watches it.
    pub(super) on_halt: Option<WatchCallback>,
}

impl LiveCell {
    /// A cell of the operator with a console and no other device.
    pub(super) fn new(cell: Cell, execution: ExecutionContext, console: Console) -> LiveCell {
        LiveCell {
            cell,
            execution,
            console,
            channel: None,
            control: None,
            card: None,
            cpu_budget: None,
            donation: None,
            parent: None,
            ipc: IpcState::default(),
            depth: 0,
            holdings: Holdings::default(),
            base: None,
            clone_base: None,
            idleness: Idleness::default(),
            sleep: None,
            start: None,
            on_halt: None,
        }
    }

    /// Whether a cell is its parent, and holds it.
    pub(super) fn is_child_of(&self, cell: Option<CellId>) -> bool {
        self.parent.is_some_and(|parent| parent.is_holding && Some(parent.cell) == cell)
    }

    /// Whether its state is complete for a clone: its parent has halted it by request, between two instructions. A halt for another event
    /// does not count: the event may be unfinished, and only a cell above the parent knows it.
    pub(super) fn has_complete_state(&self, cloner: Option<Cloner>) -> bool {
        let Watch { reason, is_stepping, .. } = &self.cell.watch;
        let is_halted = self.execution.run_state() == RunState::Halted;
        let is_by_parent = self.is_child_of(cloner.map(|cloner| cloner.cell)) && reason.as_deref() == Some(&HaltReason::Requested);
        // A page fault is repeated by its instruction. A call is not, and a clone does not have the work on it.
        let is_between_calls = matches!(self.execution.work, None | Some(Work::Fault(_) | Work::Prefetch(_)));
        !is_halted || (!is_stepping && is_between_calls && (is_by_parent || cloner.is_some_and(|cloner| cloner.is_view)))
    }

    /// Serves the rings of its devices.
    ///
    /// # Errors
    /// No memory for a page of the cell that must be made, or a block of a disk must be read first.
    fn serve(&mut self, context: &mut CardContext<'_>) -> Result<(), CopyError> {
        let sent = self.console.positions().transmit;
        let of_console = iter::once(&mut self.console).chain(self.channel.as_deref_mut()).map(|device| (device, Event::Console));
        for (device, event) in of_console.chain(self.control.as_deref_mut().map(|device| (device, Event::Control))) {
            if device.serve(context.frames, &mut self.cell.memory)? {
                self.cell.events = self.cell.events.with(event);
            }
        }
        if self.console.positions().transmit != sent {
            self.cell.memory.note_pause();
        }
        if let Some(card) = &mut self.card
            && card.serve(&mut self.cell.memory, context)?
        {
            self.cell.events = self.cell.events.with(Event::Network);
        }
        Ok(())
    }

    /// Takes the output that the cell has posted on its streams and on its control channel.
    pub(super) fn take_final_output(&mut self, frames: &mut Frames) {
        let LiveCell { cell, console, control, .. } = self;
        iter::once(console).chain(control.as_deref_mut()).for_each(|device| device.take_final_output(frames, &mut cell.memory));
    }

    /// Whether it has posted output that is not taken yet.
    pub(super) fn has_posted_output(&mut self, frames: &Frames) -> bool {
        let LiveCell { cell, console, channel, control, card, .. } = self;
        let consoles = iter::once(console).chain(channel.as_deref_mut()).chain(control.as_deref_mut());
        let is_posted = consoles.into_iter().any(|console| console.has_posted_output(frames, &mut cell.memory));
        is_posted || card.as_ref().is_some_and(|card| card.has_posted_frames(frames, &mut cell.memory))
    }

    /// Whether there is input that it has not taken.
    pub(super) fn has_input(&self) -> bool {
        self.console.port().has_input() || self.channel.as_ref().is_some_and(|channel| channel.port().has_input())
    }

    /// Whether its parent has something new to look at: output, room for input, or a first request for it.
    pub(super) fn take_change(&self) -> bool {
        let is_changed = self.console.port().take_change();
        self.control.as_ref().is_some_and(|control| control.port().take_change()) | is_changed
    }

    /// Gives back memory of its ports that holds no bytes.
    pub(super) fn shrink_buffers(&self) {
        self.console.port().shrink();
        self.channel.iter().chain(&self.control).for_each(|channel| channel.port().shrink());
    }

    /// Closes the cell's ports: it writes no more output.
    pub(super) fn close(&self) {
        self.console.port().close();
        self.channel.iter().chain(&self.control).for_each(|channel| channel.port().close());
    }
}

/// A slot for a cell.
enum CellSlot {
    Empty,
    Living(Box<LiveCell>),
    /// Kept until the operator, or the parent, collects the outcome.
    Ended {
        outcome: Box<Outcome>,
        parent: Option<Parent>,
    },
}

/// All cells, by index. Each slot has the generation of its present or next cell.
#[derive(Default)]
pub(super) struct CellTable {
    slots: Vec<(u32, CellSlot)>,
    free: Vec<u32>,
}

impl CellTable {
    /// Reserves an identifier for a new cell. `None`: there are too many.
    pub(super) fn reserve(&mut self) -> Option<CellId> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.slots.len() < MAX_CELLS => {
                self.slots.push((0, CellSlot::Empty));
                self.slots.len() as u32 - 1
            }
            None => return None,
        };
        Some(CellId { index, generation: self.slots[index as usize].0 })
    }

    /// Gives a reserved identifier back.
    pub(super) fn unreserve(&mut self, id: CellId) {
        self.free.push(id.index);
    }

    /// Inserts a cell into its reserved slot.
    pub(super) fn insert(&mut self, live: LiveCell) {
        let index = live.cell.id.index as usize;
        self.slots[index].1 = CellSlot::Living(Box::new(live));
    }

    fn slot(&mut self, id: CellId) -> Option<&mut CellSlot> {
        self.slots.get_mut(id.index as usize).filter(|(generation, _)| *generation == id.generation).map(|(_, slot)| slot)
    }

    /// A living cell.
    pub(super) fn get_mut(&mut self, id: CellId) -> Option<&mut LiveCell> {
        if let Some(CellSlot::Living(live)) = self.slot(id) { Some(live) } else { None }
    }

    /// A living cell, by shared reference.
    pub(super) fn get(&self, id: CellId) -> Option<&LiveCell> {
        match self.slots.get(id.index as usize) {
            Some((generation, CellSlot::Living(live))) if *generation == id.generation => Some(live),
            _ => None,
        }
    }

    /// The living cell in a slot.
    pub(super) fn at_mut(&mut self, index: usize) -> Option<&mut LiveCell> {
        if let Some((_, CellSlot::Living(live))) = self.slots.get_mut(index) { Some(live) } else { None }
    }

    /// The outcome of an ended cell.
    pub(super) fn outcome(&self, id: CellId) -> Option<&Outcome> {
        match self.slots.get(id.index as usize) {
            Some((generation, CellSlot::Ended { outcome, .. })) if *generation == id.generation => Some(outcome),
            _ => None,
        }
    }

    /// Takes a living cell out of the table, for [`CellTable::end`].
    pub(super) fn remove(&mut self, id: CellId) -> Option<Box<LiveCell>> {
        let slot = self.slot(id).filter(|slot| matches!(slot, CellSlot::Living(_)))?;
        if let CellSlot::Living(live) = mem::replace(slot, CellSlot::Empty) { Some(live) } else { None }
    }

    /// Keeps the outcome of a cell that was removed.
    pub(super) fn end(&mut self, id: CellId, outcome: Outcome, parent: Option<Parent>) {
        self.slots[id.index as usize].1 = CellSlot::Ended { outcome: Box::new(outcome), parent };
    }

    /// Takes the outcome of an ended cell, and its parent; its identifier becomes stale.
    pub(super) fn forget(&mut self, id: CellId) -> Option<(Outcome, Option<Parent>)> {
        self.outcome(id)?;
        let (generation, slot) = &mut self.slots[id.index as usize];
        let CellSlot::Ended { outcome, parent } = mem::replace(slot, CellSlot::Empty) else { return None };
        *generation = generation.wrapping_add(1);
        self.free.push(id.index);
        Some((*outcome, parent))
    }

    /// Serves the rings of a living cell.
    ///
    /// # Errors
    /// No memory for a page of the cell that must be made, or a block of a disk must be read first.
    pub(super) fn serve_rings(&mut self, id: CellId, frames: &mut Frames, networks: &mut Networks, now: Nanos) -> Result<(), CopyError> {
        // The cell leaves its slot meanwhile, because its frames may go straight into the memory of other cells.
        let Some(mut live) = self.remove(id) else { return Ok(()) };
        let served = live.serve(&mut CardContext { frames, networks, peers: &mut OtherCells(self), now });
        self.slots[id.index as usize].1 = CellSlot::Living(live);
        served
    }

    /// The living cells.
    pub(super) fn iter(&self) -> impl Iterator<Item = &LiveCell> {
        self.slots.iter().filter_map(|(_, slot)| if let CellSlot::Living(live) = slot { Some(live.as_ref()) } else { None })
    }

    /// The identifiers of all slots in use, and of free ones.
    pub(super) fn ids(&self) -> Vec<CellId> {
        (0..).zip(&self.slots).map(|(index, (generation, _))| CellId { index, generation: *generation }).collect()
    }

    /// Number of slots.
    pub(super) fn slots(&self) -> usize {
        self.slots.len()
    }
}

/// All cells except the one whose rings are served.
struct OtherCells<'a>(&'a mut CellTable);

impl PeerCells for OtherCells<'_> {
    fn find_stopped(&mut self, owner: &Owner) -> Option<(&mut Card, &mut SpaceSet)> {
        let Owner::Cell(id) = owner else { return None };
        let LiveCell { cell, execution, card, .. } = self.0.get_mut(*id)?;
        let is_off_vcpu = matches!(execution.run_state(), RunState::Idle { .. } | RunState::Ready | RunState::Throttled { .. });
        // If a page was just copied for a write, the vCPU may not have seen the copy yet.
        let rests = is_off_vcpu && execution.unconfirmed.is_none();
        card.as_deref_mut().filter(|_| rests).map(|card| (card, &mut cell.memory))
    }
}
