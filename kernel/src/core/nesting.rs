// SPDX-License-Identifier: MIT OR Apache-2.0
//! Nested cells: the operations of a cell on the cells that it holds, and the ends of children.
//!
//! A parent is the operator of its children. So its verbs are applied by [`State::invoke`], which also applies the operator's.

use super::Kernel;
use super::cell_table::LiveCell;
use super::error::{OperationError, OperatorError};
use super::holdings::{Cloner, Holding, Parent};
use super::invoke::Subject;
use super::state::State;
use crate::cell::CellId;
use crate::cell::child_operation::{CallerBytes, CellProperty, ChildLimits, ChildOperation, ChildPort};
use crate::cell::end::{End, Outcome};
use crate::cell::memory_operation::{MemoryOperation, OperationProgress};
use crate::cell::operation::Operation;
use crate::cell::run_state::{Requirement, RunState};
use crate::device::console::{ConsoleOutput, ConsolePort, Stream};
use crate::limits::ORPHANS_STEP;
use crate::memory::{CopyAuthority, Frames, MemoryError};
use pando_abi::holding::{ChildState, ConsoleReadResult};
use pando_abi::{Event, HoldingName, Hypercall, Refusal};
use std::sync::Arc;

impl Kernel {
    /// Lets a cell have `cells` descendants at a time, and clone `template`. Returns the cell's name for the template, which is
    /// [`HoldingName::ROOT`] if it is the first that the cell gets.
    ///
    /// # Errors
    /// There is no such living cell, or it holds too much.
    pub fn allow_children(&self, id: CellId, cells: u32, template: CellId) -> Result<HoldingName, OperatorError> {
        self.invoke(Subject::Cell(id), Operation::LimitCells(cells))?;
        let name = self.invoke(Subject::Cell(id), Operation::Grant { template })?;
        HoldingName::from_bits(name).ok_or(OperatorError::Refused(Refusal::NoSuchHolding))
    }

    /// The children of a cell, with its names for them. O(holdings).
    ///
    /// # Errors
    /// There is no such living cell.
    pub fn children(&self, id: CellId) -> Result<Vec<(HoldingName, CellId)>, OperatorError> {
        self.query("list the children of", id, |live, _| live.holdings.children().collect())
    }
}

impl State {
    /// Acts on a cell that `caller` holds, or takes the next step of that.
    ///
    /// # Errors
    /// The step has changed nothing; earlier steps stay.
    pub(super) fn act_on_holding(&mut self, caller: CellId, operation: &mut ChildOperation) -> Result<OperationProgress, OperationError> {
        let result = match operation {
            ChildOperation::Clone { source, limits } => {
                let held = self.holding(caller, *source)?;
                let (source, is_view) = (held.cell().ok_or(Refusal::NoSuchHolding)?, matches!(held, Holding::View(_)));
                let child = self.clone_cell(source, limits.quota, Some(Cloner { cell: caller, is_view }))?;
                self.add_child_holding(caller, child, limits)?
            }
            ChildOperation::View { cell, name } => self.view_child(caller, *cell, *name)?,
            ChildOperation::Apply { child: name, operation } => {
                let child = self.child(caller, *name)?;
                let is_view = matches!(self.holding(caller, *name)?, Holding::View(_));
                if is_view {
                    self.note_view_halt(caller, child, operation);
                }
                let progress = self.invoke(Subject::Cell(child), operation)?;
                if !is_view {
                    self.note_parent_halt(child, operation);
                }
                if *operation == Operation::Start {
                    // Otherwise the child would wait for the next housekeeping, which may be as far as its parent's quantum.
                    self.notifications.has_runnable_cell |= self.admit_all();
                }
                return Ok(progress);
            }
            ChildOperation::Memory { child, call, started } => {
                let child = self.child(caller, *child)?;
                return self.change_child_memory(caller, child, *call, started);
            }
            ChildOperation::Drop(name) => {
                let (live, _) = self.require(caller, Requirement::Living)?;
                match live.holdings.remove(*name)? {
                    Holding::Child { cell, .. } => self.abandon(cell),
                    Holding::View(_) => {}
                    right => {
                        self.released.push(caller, *name, right);
                        self.release_rights();
                    }
                }
                0
            }
            ChildOperation::State { child, fact } => {
                let child = self.child(caller, *child)?;
                self.child_property(child, *fact)
            }
            ChildOperation::Name { child, name } => {
                let child = self.child(caller, *child)?;
                let name = String::from_utf8(self.read_caller(caller, *name)?).map_err(|_| Refusal::BadArgument)?;
                return self.invoke(Subject::Cell(child), &mut Operation::SetHostName(name));
            }
            ChildOperation::Grant { child, holding, label } => self.grant(caller, *child, *holding, *label)?,
            ChildOperation::StateRead { child, kind, buffer } => self.read_child_state(caller, *child, *kind, *buffer)?,
            ChildOperation::Take(transfer) => self.take_pages(caller, *transfer)?,
            ChildOperation::Give(transfer) => self.give_pages(caller, *transfer)?,
            ChildOperation::ListImage { child, base, position, buffer } => {
                self.list_child_image(caller, (*child, *base), *position, *buffer)?
            }
            ChildOperation::ReadPages(copy) => self.read_child_pages(caller, *copy)?,
            ChildOperation::WritePages(copy) => self.write_child_pages(caller, *copy)?,
            ChildOperation::BuildState { child, kind, bytes } => self.build_child_state(caller, *child, *kind, *bytes)?,
            ChildOperation::BuildMemory { child, bytes, progress } => return self.build_child_memory(caller, *child, *bytes, progress),
            ChildOperation::ListSwapNumbers { child, listing } => return self.list_swap_numbers(caller, *child, listing),
            ChildOperation::StateWrite { child, kind, bytes } => return self.write_child_state(caller, *child, *kind, *bytes),
            ChildOperation::ConsoleRead { port, buffer } => self.read_child_port(caller, *port, *buffer)?.bits(),
            ChildOperation::ConsoleClose { port, stream } => self.close_child_stream(caller, *port, *stream)?,
            ChildOperation::ConsoleWrite { port, bytes } => self.write_child_port(caller, *port, *bytes)?,
        };
        Ok(OperationProgress::Done(result))
    }

    /// A holding of a cell.
    pub(super) fn holding(&mut self, holder: CellId, name: HoldingName) -> Result<&Holding, OperationError> {
        Ok(self.require(holder, Requirement::Living)?.0.holdings.get(name)?)
    }

    /// The child of this name.
    pub(super) fn own_child(&mut self, holder: CellId, name: HoldingName) -> Result<CellId, OperationError> {
        match self.holding(holder, name)? {
            Holding::Child { cell, .. } => Ok(*cell),
            _ => Err(Refusal::NoSuchHolding.into()),
        }
    }

    /// The child of this name, or the cell of a view.
    pub(super) fn child(&mut self, holder: CellId, name: HoldingName) -> Result<CellId, OperationError> {
        match *self.holding(holder, name)? {
            Holding::Child { cell, .. } => Ok(cell),
            // Nobody keeps the outcome for the holder of a view.
            Holding::View(cell) => match self.cells.get(cell).is_some() || self.cells.outcome(cell).is_some() {
                true => Ok(cell),
                false => Err(Refusal::NoSuchHolding.into()),
            },
            _ => Err(Refusal::NoSuchHolding.into()),
        }
    }

    /// The child of this name, and its port. A control channel is opened if it was not.
    fn child_port(&mut self, holder: CellId, port: ChildPort) -> Result<(CellId, Arc<ConsolePort>), OperationError> {
        let name = port.child;
        match self.holding(holder, name)? {
            Holding::Child { cell, console, .. } if !port.is_control => Ok((*cell, Arc::clone(console))),
            Holding::Child { cell, control: Some(control), .. } => Ok((*cell, Arc::clone(control))),
            Holding::Child { cell, control: None, .. } => {
                let cell = *cell;
                let opened = self.control(cell)?;
                if let Some(Holding::Child { control, .. }) = self.expect_living(holder).0.holdings.get_mut(name) {
                    *control = Some(Arc::clone(&opened));
                }
                Ok((cell, opened))
            }
            _ => Err(Refusal::NoSuchHolding.into()),
        }
    }

    /// Lets a child look at a port after a change.
    fn notify_child(&mut self, child: CellId, port: ChildPort) {
        if port.is_control {
            self.raise_at_once(child, Event::Control);
        } else {
            self.notifications.has_runnable_cell |= self.raise(child, Event::Console);
        }
    }

    /// Gives a new child its limits, and its parent a holding of it. Returns the name.
    fn add_child_holding(&mut self, holder: CellId, child: CellId, limits: &ChildLimits) -> Result<u64, OperationError> {
        let holding = self.new_child_holding(child, limits.cells);
        let name = self.expect_living(holder).0.holdings.insert(holding);
        // There was room when the child's place was reserved.
        Ok(name.ok_or(Refusal::TooMany)?.bits())
    }

    /// Limits the descendants of a new child. Returns a holding of it.
    pub(super) fn new_child_holding(&mut self, child: CellId, cells: u32) -> Holding {
        let (live, frames) = self.expect_living(child);
        frames.set_cell_quota(live.cell.memory.account(), cells);
        Holding::Child { cell: child, console: Arc::clone(live.console.port()), control: None }
    }

    /// Executes the next step of a call about the memory of a child.
    fn change_child_memory(
        &mut self,
        caller: CellId,
        child: CellId,
        call: Hypercall,
        started: &mut Option<MemoryOperation>,
    ) -> Result<OperationProgress, OperationError> {
        let (live, frames) = self.require(child, Requirement::AtRest)?;
        let operation = match started {
            Some(started) => started,
            None => started.insert(MemoryOperation::decode(call, &mut live.cell.memory)?),
        };
        // The bytes go to the caller, or come from it.
        if let MemoryOperation::Read { range, within, target, bytes } = operation {
            let (range, within, target) = (range.clone(), *within, *target);
            let mut copy = vec![0; *bytes];
            live.cell.memory.read_from(frames, &range, within, &mut copy).map_err(child_memory_error)?;
            self.write_caller(caller, target, &copy)?;
            return Ok(OperationProgress::Done(0));
        }
        if let MemoryOperation::Write { range, within, source, bytes } = operation {
            let bytes = self.read_caller(caller, CallerBytes { address: *source, count: *bytes })?;
            let (live, frames) = self.require(child, Requirement::AtRest)?;
            live.cell.memory.write_into(frames, range, *within, &bytes).map_err(child_memory_error)?;
            return Ok(OperationProgress::Done(0));
        }
        let (live, frames) = self.require(child, Requirement::AtRest)?;
        Ok(operation.step(&mut live.cell.memory, frames).map_err(child_memory_error)?)
    }

    /// Copies bytes into the caller.
    pub(super) fn write_caller(&mut self, caller: CellId, address: u64, bytes: &[u8]) -> Result<(), OperationError> {
        let (live, frames) = self.require(caller, Requirement::Living)?;
        Ok(live.cell.memory.write(frames, address, bytes, CopyAuthority::Cell)?)
    }

    /// Copies bytes out of the caller.
    pub(super) fn read_caller(&mut self, caller: CellId, CallerBytes { address, count }: CallerBytes) -> Result<Vec<u8>, OperationError> {
        let mut bytes = vec![0; count];
        let (live, frames) = self.require(caller, Requirement::Living)?;
        live.cell.memory.read(frames, address, &mut bytes, CopyAuthority::Cell)?;
        Ok(bytes)
    }

    /// Copies output of a child into its parent.
    fn read_child_port(&mut self, caller: CellId, from: ChildPort, buffer: CallerBytes) -> Result<ConsoleReadResult, OperationError> {
        let (child, port) = self.child_port(caller, from)?;
        let (stream, bytes) = match port.peek(buffer.count) {
            ConsoleOutput::Bytes(stream, bytes) => (stream, bytes),
            ConsoleOutput::Nothing => return Ok(ConsoleReadResult::Nothing),
            ConsoleOutput::End => return Ok(ConsoleReadResult::End),
        };
        self.write_caller(caller, buffer.address, &bytes)?;
        // Only now: after an error the call is made again.
        if port.consume(bytes.len()) {
            self.notify_child(child, from);
        }
        Ok(ConsoleReadResult::Bytes { count: bytes.len() as u32, stream: stream.tag() })
    }

    /// Closes an output stream of a child for reading.
    fn close_child_stream(&mut self, caller: CellId, from: ChildPort, stream: u32) -> Result<u64, OperationError> {
        let stream = Stream::from_tag(stream).ok_or(Refusal::BadArgument)?;
        let (child, port) = self.child_port(caller, from)?;
        port.drop_stream(stream);
        self.notify_child(child, from);
        Ok(0)
    }

    /// Sends bytes of a parent to the input of its child. Returns their number.
    fn write_child_port(&mut self, caller: CellId, to: ChildPort, bytes: CallerBytes) -> Result<u64, OperationError> {
        let (child, port) = self.child_port(caller, to)?;
        let bytes = if bytes.count == 0 { Vec::new() } else { self.read_caller(caller, bytes)? };
        let count = port.append_input(&bytes);
        self.notify_child(child, to);
        Ok(count as u64)
    }

    /// A fact about a child, living or ended.
    fn child_property(&mut self, child: CellId, fact: CellProperty) -> u64 {
        if fact == CellProperty::State {
            return self.child_state(child).bits();
        }
        let ended = self.cells.outcome(child).map(|outcome| (outcome.counters.clone(), outcome.usage));
        let of_living =
            |(live, frames): (&mut LiveCell, &mut Frames)| (live.cell.counters.clone(), frames.usage(live.cell.memory.account()));
        let Some((counters, usage)) = ended.or_else(|| self.living(child).map(of_living)) else { return 0 };
        match fact {
            CellProperty::State => 0,
            CellProperty::Cpu => u64::try_from(counters.cpu.as_nanos()).unwrap_or(u64::MAX >> 1),
            CellProperty::Used => usage.used.0,
            CellProperty::Peak => usage.peak.0,
            CellProperty::Exits => counters.exits,
        }
    }

    /// The state of a child, as its parent sees it.
    pub(super) fn child_state(&mut self, child: CellId) -> ChildState {
        match self.cells.outcome(child) {
            Some(outcome) => outcome.end.child_state(),
            None => self.living(child).map_or(ChildState::Killed, |(live, _)| living_state(live)),
        }
    }

    /// Ends a child that its parent does not hold any more.
    pub(super) fn abandon(&mut self, child: CellId) {
        if let Some(LiveCell { parent, .. }) = self.cells.get_mut(child) {
            *parent = parent.map(|parent| Parent { is_holding: false, ..parent });
            self.request_end(child, End::Killed);
        } else {
            self.forget(child);
        }
    }

    /// Ends some of the children of ended cells. Their own children follow in later calls.
    pub(super) fn end_orphans(&mut self) {
        for _ in 0..ORPHANS_STEP {
            let Some(orphan) = self.orphans.pop() else { return };
            self.abandon(orphan);
        }
    }

    /// Takes the outcome of an ended cell; its identifier becomes stale.
    pub(super) fn forget(&mut self, id: CellId) -> Option<Outcome> {
        let (outcome, parent) = self.cells.forget(id)?;
        if let Some(Parent { account, .. }) = parent {
            self.frames.discharge_cell(account);
        }
        Some(outcome)
    }

    /// Tells a parent that its child has written output, asked for input or taken some, frozen or ended.
    pub(super) fn raise_child_event(&mut self, parent: CellId) {
        self.notifications.has_runnable_cell |= self.raise(parent, Event::Child);
    }

    /// Tells the parent of a cell, if it has one, about output that has become readable, or room for input.
    pub(super) fn notify_parent_of_output(&mut self, id: CellId) {
        let Some((live, _)) = self.living(id) else { return };
        if let Some(Parent { cell, is_holding: true, .. }) = live.parent
            && live.take_change()
        {
            self.raise_child_event(cell);
        }
    }
}

/// The error of a parent's access to the memory of a child. The parent itself has the pages that were taken.
pub(super) fn child_memory_error(error: impl Into<MemoryError>) -> MemoryError {
    match error.into() {
        MemoryError::Taken(_) => Refusal::Taken.into(),
        other => other,
    }
}

pub(super) fn living_state(live: &LiveCell) -> ChildState {
    match live.execution.run_state() {
        RunState::New => ChildState::New,
        RunState::Frozen => ChildState::Frozen,
        RunState::Halted => ChildState::Halted,
        RunState::AwaitingAdmission
        | RunState::Ready
        | RunState::Running { .. }
        | RunState::Idle { .. }
        | RunState::Asleep { .. }
        | RunState::Throttled { .. }
        | RunState::AwaitingMemory => ChildState::Started { wants_input: live.console.port().is_input_requested() },
    }
}
