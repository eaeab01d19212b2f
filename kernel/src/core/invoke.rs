// SPDX-License-Identifier: MIT OR Apache-2.0
//! The one place where operations are invoked, whether they come from a hypercall or from the operator.

use super::cell_table::LiveCell;
use super::error::{OperationError, OperatorError};
use super::holdings::{Cloner, Holding, Parent};
use super::sleepers::Sleep;
use super::state::State;
use crate::cell::cpu_limit::Weight;
use crate::cell::execution::ExecutionContext;
use crate::cell::freeze::FreezeMode;
use crate::cell::memory_operation::OperationProgress;
use crate::cell::operation::Operation;
use crate::cell::run_state::{Requirement, RunState};
use crate::cell::{Cell, CellConfig, CellId};
use crate::device::console::Console;
use crate::limits::MIN_QUOTA;
use crate::memory::{AccountId, Frames, SpaceSet};
use crate::sched::cpu_budget::CpuBudget;
use pando_abi::layout::VIRTUAL_REGISTERS;
use pando_abi::limits::{HOST_NAME_BYTES, MAX_DEPTH};
use pando_abi::{Event, EventSet, Refusal, Registers};
use pando_machine::{Context, PageCount};

/// The cell that an operation is about, and the authority for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    /// The machine: the operator creates a cell.
    Machine,
    /// The calling cell itself, while a vCPU runs it.
    Caller(CellId),
    /// Any cell, for the operator.
    Cell(CellId),
}

/// The identifier and the account that are reserved for a new cell.
struct Reservation {
    id: CellId,
    account: AccountId,
    parent: Option<Parent>,
    /// Number of its ancestors.
    depth: u8,
}

impl State {
    /// Invokes an operation, or its next step. It is bounded, and never waits: the caller waits, and invokes it again.
    ///
    /// # Errors
    /// The step has changed nothing. There is no such cell, its run state does not allow the operation, or its memory does not.
    pub(super) fn invoke(&mut self, subject: Subject, operation: &mut Operation) -> Result<OperationProgress, OperationError> {
        let (id, requirement) = match subject {
            Subject::Machine => {
                let Operation::Create(config) = operation else { return Err(Refusal::NoSuchCall.into()) };
                return self.create(config).map(|id| OperationProgress::Done(id.to_bits()));
            }
            // Its vCPU is here, so nothing else uses its memory.
            Subject::Caller(id) if operation.requirement() == Requirement::AtRest => (id, Requirement::Living),
            Subject::Caller(id) => (id, operation.requirement()),
            Subject::Cell(id) => (id, operation.requirement()),
        };
        let (live, frames) = self.require(id, requirement)?;
        let LiveCell { cell, execution, sleep, .. } = live;
        match operation {
            Operation::Memory(operation) => return Ok(operation.step(&mut cell.memory, frames)?),
            Operation::Create(_) => return Err(Refusal::NoSuchCall.into()),
            Operation::Clone { quota } => return self.clone_cell(id, *quota, None).map(|id| OperationProgress::Done(id.to_bits())),
            Operation::Start => {
                execution.transition(RunState::AwaitingAdmission);
                self.queue_for_admission(id);
                self.forget_own_base(id);
            }
            Operation::End(end) => self.request_end(id, end.clone()),
            Operation::Freeze(FreezeMode::Forced) => self.request_forced_freeze(id),
            Operation::Freeze(FreezeMode::Cooperative) => {
                cell.stop_request.freeze(FreezeMode::Cooperative);
                self.raise_at_once(id, Event::Freeze);
            }
            Operation::Watch(mask) => cell.watch.mask = *mask,
            Operation::Halt => self.request_halt(id),
            Operation::Resume(mode) => {
                // A clone may share the page. Nothing has changed yet, so that this may be tried again.
                cell.memory.make_exclusive(frames, VIRTUAL_REGISTERS)?;
                self.resume(id, *mode);
            }
            Operation::SetState(state) => execution.set_state(cell, frames, state)?,
            Operation::WithdrawFreeze => {
                cell.stop_request.withdraw_freeze();
                // If the event was already shown, it has no effect in the libOS.
                cell.events = cell.events.without(EventSet::NONE.with(Event::Freeze));
                return Ok(OperationProgress::Done((execution.run_state() != RunState::Frozen).into()));
            }
            Operation::Attach { disk, blocks } => {
                let (disk, blocks) = (*disk, *blocks);
                // It may have been removed meanwhile.
                self.disk(disk).ok_or(OperatorError::NoSuchDisk)?;
                let (live, _) = self.require(id, requirement)?;
                return Ok(OperationProgress::Done(live.cell.memory.attach(disk, blocks)?.0.into()));
            }
            Operation::LimitCpu(limit) => live.cpu_budget = Some(Box::new(CpuBudget::new(*limit, frames.machine().now()))),
            Operation::SetWeight(weight) => self.set_weight(id, *weight),
            Operation::LimitMemory(quota) => limit_memory(cell, frames, sleep.as_deref_mut(), *quota)?,
            Operation::LimitCells(cells) => frames.set_cell_quota(cell.memory.account(), *cells),
            Operation::Grant { template } => {
                let name = live.holdings.insert(Holding::Template(*template)).ok_or(Refusal::TooMany)?;
                return Ok(OperationProgress::Done(name.bits()));
            }
            Operation::SetRegisters(registers) => self.set_registers(id, **registers),
            Operation::SetHostName(name) => (cell.identity.host_name, cell.identity.is_stale) = (truncated(name).into(), true),
            Operation::SetWindow(size) => {
                cell.window = Some(*size);
                self.raise_at_once(id, Event::WindowSize);
            }
            Operation::Raise(event) => self.raise_at_once(id, *event),
            Operation::TraceStart(mode) => cell.memory.trace_start(*mode),
            Operation::Train { template } => self.train_by(id, requirement, *template)?,
        }
        Ok(OperationProgress::Done(0))
    }

    /// Sets the registers of a cell at rest. If it waits in a call to a port, the wait ends.
    fn set_registers(&mut self, id: CellId, registers: Registers) {
        self.roll_back_wait(id);
        self.expect_living(id).0.execution.context = Context { registers, ..Context::default() };
    }

    /// Sets the CPU weight of a cell.
    fn set_weight(&mut self, id: CellId, weight: Weight) {
        let was_empty = self.scheduler.is_empty();
        self.scheduler.set_weight(id, weight);
        if weight.get() == 0 && !self.is_queued(id) {
            // It runs when its parent wants, or never.
            self.end_start_phase(id);
        }
        // The cell, or its family, may have waited with weight 0 while vCPUs were idle.
        self.notifications.has_runnable_cell |= was_empty && !self.scheduler.is_empty();
    }

    /// Records the page accesses of a cell for a template.
    fn train_by(&mut self, id: CellId, requirement: Requirement, template: CellId) -> Result<(), OperationError> {
        self.require(template, Requirement::Living)?;
        let (live, _) = self.require(id, requirement)?;
        live.cell.memory.begin_training();
        live.cell.trained_template = Some(template);
        Ok(())
    }

    fn create(&mut self, config: &CellConfig) -> Result<CellId, OperationError> {
        let reservation = self.reserve(config.quota, None)?;
        let memory = SpaceSet::new(&mut self.frames, reservation.account);
        let mut cell = Cell::new(reservation.id, memory, truncated(&config.host_name));
        if let Err(error) = cell.map_reserved_pages(&mut self.frames) {
            cell.memory.release(&mut self.frames);
            self.release_reservation(&reservation);
            return Err(error.into());
        }
        let console = Console::new(self.waker(reservation.id));
        let execution = ExecutionContext::new();
        Ok(self.insert(reservation, LiveCell::new(cell, execution, console)))
    }

    /// Clones a cell, for a parent or for the operator.
    pub(super) fn clone_cell(&mut self, source: CellId, quota: PageCount, cloner: Option<Cloner>) -> Result<CellId, OperationError> {
        let (live, _) = self.require(source, Requirement::Cloneable)?;
        let parent = cloner.map(|cloner| cloner.cell);
        if !live.has_complete_state(cloner) {
            let state = live.execution.run_state();
            return Err(OperationError::WrongState { cell: source, state, requirement: Requirement::Cloneable });
        }
        // A parent has the pages that it has taken from its own child, for the clone as well. A cell above clones the parent, too.
        let has_view = cloner.is_some_and(|cloner| cloner.is_view);
        if live.cell.memory.had_pages_taken() && !has_view && !live.is_child_of(parent) {
            return Err(Refusal::Taken.into());
        }
        let reservation = self.reserve(quota, parent)?;
        let (wake, wake_channel) = (self.waker(reservation.id), self.waker(reservation.id));
        let (live, frames) = self.expect_living(source);
        // A cell cannot keep its children from being ended when memory is short.
        live.cell.is_template |= parent.is_none() && live.execution.run_state() == RunState::Frozen;
        let (cell, execution) = live.cell.clone_as(&live.execution, reservation.id, frames, reservation.account);
        let console = Console::new(wake).at_positions(live.console.positions());
        let channel = live.channel.as_ref().map(|channel| Box::new(Console::channel(wake_channel).at_positions(channel.positions())));
        let cpu_budget = live.cpu_budget.clone();
        let clone = self.insert(reservation, LiveCell { channel, cpu_budget, ..LiveCell::new(cell, execution, console) });
        // Nested cells do not sleep.
        if parent.is_none() {
            self.set_base(source, clone);
        }
        Ok(clone)
    }

    /// Reserves an identifier and an account for a new cell.
    ///
    /// # Errors
    /// There are too many cells, or the parent may have no more, or the quota is too small.
    fn reserve(&mut self, quota: PageCount, parent: Option<CellId>) -> Result<Reservation, OperationError> {
        check_quota(quota)?;
        let (mut payer, mut depth) = (None, 0);
        if let Some(parent) = parent {
            let (live, frames) = self.require(parent, Requirement::Living)?;
            depth = live.depth + 1;
            if depth > MAX_DEPTH || !live.holdings.has_room() {
                return Err(Refusal::TooMany.into());
            }
            let account = live.cell.memory.account();
            if !frames.charge_cell(account) {
                return Err(Refusal::NoMoreCells.into());
            }
            payer = Some(Parent { cell: parent, account, is_holding: true });
        }
        let Some(id) = self.cells.reserve() else {
            if let Some(Parent { account, .. }) = payer {
                self.frames.discharge_cell(account);
            }
            return Err(OperatorError::TooManyCells.into());
        };
        let account = self.frames.open_account(quota, payer.map(|parent| parent.account));
        Ok(Reservation { id, account, parent: payer, depth })
    }

    /// Gives up what was reserved for a cell that could not be made.
    fn release_reservation(&mut self, reservation: &Reservation) {
        self.frames.close_account(reservation.account);
        self.cells.unreserve(reservation.id);
        if let Some(Parent { account, .. }) = reservation.parent {
            self.frames.discharge_cell(account);
        }
    }

    /// Adds a new cell to the table.
    fn insert(&mut self, reservation: Reservation, mut live: LiveCell) -> CellId {
        (live.parent, live.depth) = (reservation.parent, reservation.depth);
        self.scheduler.add(reservation.id, reservation.parent.map(|parent| parent.cell));
        self.cells.insert(live);
        reservation.id
    }

    /// Raises an event that a cell notices at once, even if it computes.
    pub(super) fn raise_at_once(&mut self, id: CellId, event: Event) {
        if let Some((live, _)) = self.living(id)
            && let RunState::Running { vcpu } = live.execution.run_state()
        {
            // The vCPU shows pending events before it enters the cell again, whatever the interrupt hits.
            self.notifications.interrupts.push(vcpu);
        }
        self.notifications.has_runnable_cell |= self.raise(id, event);
    }
}

fn limit_memory(cell: &mut Cell, frames: &mut Frames, sleep: Option<&mut Sleep>, quota: PageCount) -> Result<(), OperationError> {
    check_quota(quota)?;
    let account = cell.memory.account();
    let used = frames.usage(account).used;
    // From a cell above its quota, not even a block that others need could be taken. A sleeping one gets back what it had.
    if quota < sleep.as_ref().map_or(used, |sleep| used.max(sleep.used)) {
        return Err(Refusal::Quota.into());
    }
    match sleep.and_then(|sleep| sleep.quota.as_mut()) {
        // The quota is exceeded while it wakes up, and applies afterwards.
        Some(later) => *later = quota,
        None => frames.set_quota(account, quota),
    }
    // Its virtual registers show the quota.
    cell.identity.is_stale = true;
    Ok(())
}

fn check_quota(quota: PageCount) -> Result<(), OperatorError> {
    if quota.0 < MIN_QUOTA { Err(OperatorError::QuotaTooSmall(quota)) } else { Ok(()) }
}

/// A host name, truncated to its maximum length.
fn truncated(name: &str) -> String {
    name[..name.floor_char_boundary(HOST_NAME_BYTES)].into()
}
