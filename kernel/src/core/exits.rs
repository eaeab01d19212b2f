// SPDX-License-Identifier: MIT OR Apache-2.0
//! Handling of cells' exits. Handlers return the next step; the worker performs it.

use super::cell_table::LiveCell;
use super::error::OperationError;
use super::invoke::Subject;
use super::state::{State, end_for};
use crate::cell::CellId;
use crate::cell::batch::{Batch, BatchCall};
use crate::cell::child_operation::ChildOperation;
use crate::cell::end::End;
use crate::cell::execution::{Resumption, SpuriousFaults, UnconfirmedWrite};
use crate::cell::memory_operation::OperationProgress;
use crate::cell::message_operation::{MessageOperation, MessageStep};
use crate::cell::operation::Operation;
use crate::cell::watch::WatchMask;
use crate::cell::work::Work;
use crate::limits::{FLUSH_WAITS, SPURIOUS_FAULTS, START_TRACE_CPU_MAX};
use crate::memory::{Access, BlockRequest, CopyError, FaultOutcome, MemoryError, Shortage, TakenPage};
use crate::sched::donation::Donation;
use pando_abi::layout::VIRTUAL_REGISTERS;
use pando_abi::registers::UNREADABLE;
use pando_abi::virtual_registers::offset;
use pando_abi::watch::HaltReason;
use pando_abi::{PAGE_SIZE, Refusal};
use pando_machine::{Exception, Exit, Nanos, Root};

/// The worker's next step.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum NextStep {
    /// Continue the cell.
    Resume,
    /// Release the lock briefly, do housekeeping, and return to this cell.
    Again,
    /// Release the lock, read blocks of a disk, and return to this cell's operation.
    Read(BlockRequest),
    /// Take the cell off the vCPU.
    Leave(LeaveReason),
}

/// How a cell leaves its vCPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LeaveReason {
    /// Its quantum is over; its vector state must be saved.
    Preempted,
    /// It yielded the rest of its quantum.
    Relinquished,
    /// It donates CPU time to a child; its vector state must be saved.
    Donating(Donation),
    /// It waits.
    Idle {
        /// At most until this time.
        until: Nanos,
    },
    /// It waits in a call of a port.
    Blocked {
        /// At most until this time.
        until: Nanos,
        /// The cell that goes on instead.
        next: Option<CellId>,
    },
    /// It waits for memory that a flush will free; its vector state must be saved.
    AwaitingFlush,
    /// It waits for memory until an idle cell has fallen asleep; its vector state must be saved.
    AwaitingSwapOut,
    /// It froze itself into a template.
    Frozen {
        /// Its programs will notice that they are cloned.
        is_noticed: bool,
    },
    /// It was frozen by force; its vector state must be saved.
    ForciblyFrozen,
    /// Its parent watches it, or halts it; its vector state must be saved.
    Halted(HaltReason),
    /// It has ended.
    Ended(End),
}

impl LeaveReason {
    /// Whether the cell's vector state must be saved.
    pub(super) fn must_save_vector(&self) -> bool {
        match self {
            LeaveReason::Preempted
            | LeaveReason::Donating(_)
            | LeaveReason::AwaitingFlush
            | LeaveReason::AwaitingSwapOut
            | LeaveReason::ForciblyFrozen
            | LeaveReason::Halted(_) => true,
            LeaveReason::Relinquished
            | LeaveReason::Idle { .. }
            | LeaveReason::Blocked { .. }
            | LeaveReason::Frozen { .. }
            | LeaveReason::Ended(_) => false,
        }
    }
}

/// The state that a vCPU needs to run a cell.
#[derive(Clone, Copy, Debug)]
pub(super) struct VcpuEntry {
    pub(super) root: Root,
    /// When the cell's timer is due.
    pub(super) timer: Nanos,
}

/// The origin of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FaultOrigin {
    /// The exit that the vCPU has just made: the cell retries the instruction.
    Exit,
    /// An earlier exit: the cell has waited meanwhile.
    Pending,
}

pub(super) fn ended(end: End) -> NextStep {
    NextStep::Leave(LeaveReason::Ended(end))
}

impl State {
    /// Prepares a cell for entry: its unfinished work, identity, devices, events and root.
    pub(super) fn prepare(&mut self, id: CellId, now: Nanos) -> Result<VcpuEntry, NextStep> {
        let (LiveCell { cell, .. }, frames) = self.expect_living(id);
        if let Some(end) = cell.stop_request.take_end() {
            return Err(ended(end));
        }
        let own = cell.memory.make_exclusive(frames, VIRTUAL_REGISTERS);
        let identified = own.and_then(|()| cell.refresh_identity(frames));
        match identified {
            Ok(()) => {}
            Err(error) => return Err(self.after_failed_copy(id, error)),
        }
        let must_freeze = cell.stop_request.is_forced_freeze();
        // A resolved fault may lead to a prefetch of pages.
        while let Some(work) = self.expect_living(id).0.execution.work.take() {
            if must_freeze && matches!(work, Work::Prefetch(_)) {
                // The freeze may need the memory that the prefetch would take.
                continue;
            }
            match self.perform(id, work, now) {
                NextStep::Resume => {}
                next => return Err(next),
            }
        }
        if must_freeze {
            return Err(self.complete_forced_freeze(id, now));
        }
        if self.expect_living(id).0.cell.watch.must_halt {
            return Err(self.complete_halt(id, now));
        }
        if self.expect_living(id).0.execution.unconfirmed.is_some() {
            return self.entry(id, now);
        }
        if let Err(error) = self.serve_rings(id, now) {
            return Err(self.after_failed_copy(id, error));
        }
        self.write_answers(id)?;
        let (LiveCell { cell, execution, .. }, frames) = self.expect_living(id);
        cell.publish_events(frames, now).map_err(ended)?;
        // The result of a wait is set before an upcall, which saves it with the other registers.
        match std::mem::replace(&mut execution.resumption, Resumption::AsIs) {
            Resumption::AsIs => {}
            Resumption::WithEvents => execution.context.registers.rax = cell.control(frames).pending,
            Resumption::WithGeneration => execution.context.registers.rax = cell.identity.generation,
        }
        execution.deliver_events(cell, frames).map_err(ended)?;
        self.entry(id, now)
    }

    /// The root and the timer for the vCPU.
    fn entry(&mut self, id: CellId, now: Nanos) -> Result<VcpuEntry, NextStep> {
        let (live, frames) = self.expect_living(id);
        let cell = &mut live.cell;
        // A timer that is due and was not delivered waits for the next exit.
        let timer = Some(Nanos(cell.control(frames).timer)).filter(|timer| *timer > now).unwrap_or(Nanos::NEVER);
        let root = match cell.memory.root(frames) {
            Ok(root) => root,
            Err(shortage) => return Err(self.after_shortage(id, shortage)),
        };
        Ok(VcpuEntry { root, timer })
    }

    /// Handles an exit of a cell whose context is back in place.
    pub(super) fn handle(&mut self, id: CellId, exit: Exit, now: Nanos, quantum_end: Nanos) -> NextStep {
        let (LiveCell { cell, execution, .. }, frames) = self.expect_living(id);
        cell.counters.exits += 1;
        if cell.counters.cpu > START_TRACE_CPU_MAX {
            cell.memory.end_start(frames);
        }
        execution.flush_waits = 0;
        // It has gone on since it last waited for memory.
        execution.memory_deadline = None;
        if let Some(write) = execution.unconfirmed {
            // The write was retried if the instruction pointer has moved, or if the cell made a call. Otherwise it may not have
            // been, and no other code may see the old page.
            let stands = write.instruction == execution.context.registers.rip;
            if stands
                && matches!(exit, Exit::Interrupted | Exit::Exception(_))
                && let Err(shortage) = cell.memory.renew_path_beyond_quota(frames, write.address)
            {
                // Checked again after the remedy: until then only the write may be retried.
                return self.after_shortage(id, shortage);
            }
            execution.unconfirmed = None;
            write.confirm(frames);
        }
        if !matches!(exit, Exit::Exception(_) | Exit::Interrupted) {
            execution.spurious = SpuriousFaults::default();
        }
        match exit {
            Exit::Hypercall => self.hypercall(id, now),
            Exit::Syscall if execution.must_halt_for(cell, frames, WatchMask::SYSCALLS) => {
                NextStep::Leave(LeaveReason::Halted(HaltReason::Syscall))
            }
            Exit::Syscall => execution.raise_syscall(cell, frames).map_or_else(ended, |()| NextStep::Resume),
            Exit::Exception(exception) => self.exception(id, exception, FaultOrigin::Exit),
            Exit::Interrupted => {
                cell.counters.interruptions += 1;
                self.interrupted(now, quantum_end)
            }
            Exit::Violation(violation) => ended(End::Violation(violation)),
        }
    }

    fn interrupted(&mut self, now: Nanos, quantum_end: Nanos) -> NextStep {
        self.expire_alarms(now);
        self.networks.advance(now);
        self.wake_receivers();
        // Its quantum is over, or it was alone on the vCPU and now other cells are runnable.
        if now >= quantum_end || !self.scheduler.is_empty() || self.is_stopping {
            return NextStep::Leave(LeaveReason::Preempted);
        }
        if self.next_housekeeping() <= now { NextStep::Again } else { NextStep::Resume }
    }

    fn exception(&mut self, id: CellId, mut exception: Exception, origin: FaultOrigin) -> NextStep {
        let (LiveCell { cell, execution, .. }, frames) = self.expect_living(id);
        if origin == FaultOrigin::Pending && execution.unconfirmed.is_some() {
            // The fault was resolved, but there was no memory for fresh tables.
            return self.confirm_pending_write(id, exception);
        }
        if exception.vector == Exception::PAGE_FAULT {
            let access = match (exception.is_fetch(), exception.is_write()) {
                (true, _) => Access::Execute,
                (_, true) => Access::Write,
                _ => Access::Read,
            };
            let resolved = cell.memory.resolve(frames, exception.address, access);
            if matches!(resolved, Ok(FaultOutcome::Absent(_)) | Err(_)) {
                execution.work = Some(Work::Fault(exception));
            }
            match resolved {
                Ok(
                    resolved @ (FaultOutcome::Allocated | FaultOutcome::Mapped | FaultOutcome::Copied { .. } | FaultOutcome::CopiedCluster),
                ) => {
                    if let FaultOutcome::Copied { replaced } = resolved {
                        let instruction = execution.context.registers.rip;
                        execution.unconfirmed = Some(UnconfirmedWrite { instruction, address: exception.address, replaced });
                    }
                    if access == Access::Write {
                        execution.work = cell.memory.prefetch_batch_after(exception.address).map(Work::Prefetch);
                    }
                    cell.counters.count_fault(resolved);
                    execution.spurious = SpuriousFaults::default();
                    if origin == FaultOrigin::Pending {
                        return self.confirm_pending_write(id, exception);
                    }
                    return NextStep::Resume;
                }
                Ok(FaultOutcome::Spurious) => return self.spurious(id, exception.address),
                Ok(FaultOutcome::Absent(wanted)) => return NextStep::Read(wanted),
                Ok(FaultOutcome::Taken(number)) => {
                    let page = TakenPage { space: cell.memory.current(), address: exception.address & !(PAGE_SIZE - 1), number };
                    return self.halt_for_page(id, page);
                }
                Ok(FaultOutcome::Unreadable) => exception.error |= UNREADABLE,
                Ok(FaultOutcome::Refused) => {}
                Err(shortage) => return self.after_shortage(id, shortage),
            }
        }
        execution.spurious = SpuriousFaults::default();
        if exception.is_of_debugging() && execution.must_halt_for(cell, frames, WatchMask::EXCEPTIONS) {
            return NextStep::Leave(LeaveReason::Halted(execution.halt_reason(cell, exception)));
        }
        execution.raise(cell, frames, exception).map_or_else(ended, |()| NextStep::Resume)
    }

    /// Makes the copy of a fault that was resolved later visible to all CPUs. The cell was off its vCPU meanwhile, and its parent may have
    /// changed the registers or the code: the instruction that is executed next need not be the write.
    fn confirm_pending_write(&mut self, id: CellId, fault: Exception) -> NextStep {
        let (LiveCell { cell, execution, .. }, frames) = self.expect_living(id);
        let Some(write) = execution.unconfirmed else { return NextStep::Resume };
        if let Err(shortage) = cell.memory.renew_path_beyond_quota(frames, write.address) {
            // Nothing of the cell may be executed before.
            execution.work = Some(Work::Fault(fault));
            return self.after_shortage(id, shortage);
        }
        execution.unconfirmed = None;
        write.confirm(frames);
        NextStep::Resume
    }

    /// Handles a fault that the tables rule out: the vCPU had not seen an edit yet. A second one in a row leads to a new
    /// stamp, too many end the cell.
    fn spurious(&mut self, id: CellId, address: u64) -> NextStep {
        let (live, frames) = self.expect_living(id);
        let count = live.execution.spurious.note(address);
        live.cell.counters.spurious_faults += 1;
        if count > SPURIOUS_FAULTS {
            return ended(End::Stuck { address });
        }
        if count > 1 {
            live.cell.memory.restamp(frames);
        }
        NextStep::Resume
    }

    fn hypercall(&mut self, id: CellId, now: Nanos) -> NextStep {
        let (LiveCell { cell, execution, .. }, _) = self.expect_living(id);
        cell.counters.count_hypercall(&execution.context.registers);
        match Work::decode(&execution.context.registers, &mut cell.memory) {
            Ok(work) => self.perform(id, work, now),
            Err(refusal) => {
                execution.context.registers.rax = refusal.to_result();
                NextStep::Resume
            }
        }
    }

    /// Performs work, or its next step.
    fn perform(&mut self, id: CellId, work: Work, now: Nanos) -> NextStep {
        match work {
            Work::Fault(exception) => self.exception(id, exception, FaultOrigin::Pending),
            // Output before the end is this cell's.
            Work::Exit { status, signal, address, instruction } => match self.serve_rings(id, now) {
                Ok(()) => ended(match signal {
                    0 => End::Exited { status },
                    signal => End::Signalled { signal, address, instruction },
                }),
                Err(error) => self.postpone(id, work, error),
            },
            Work::Idle { until } => self.idle(id, until, now),
            Work::FreezeIfAsked { .. } if !self.expect_living(id).0.cell.stop_request.wants_freeze() => {
                self.expect_living(id).0.execution.resumption = Resumption::WithGeneration;
                NextStep::Resume
            }
            // Output before the freeze belongs to this cell, not to its clones.
            Work::Freeze | Work::FreezeIfAsked { .. } => match self.serve_rings(id, now) {
                Ok(()) => {
                    self.expect_living(id).0.execution.resumption = Resumption::WithGeneration;
                    NextStep::Leave(LeaveReason::Frozen { is_noticed: work != Work::FreezeIfAsked { unaware: true } })
                }
                Err(error) => self.postpone(id, work, error),
            },
            Work::Relinquish => {
                self.expect_living(id).0.execution.context.registers.rax = 0;
                NextStep::Leave(LeaveReason::Relinquished)
            }
            // The rings are served before the cell is entered again.
            Work::Doorbell => {
                self.expect_living(id).0.execution.context.registers.rax = 0;
                NextStep::Resume
            }
            Work::Report(arguments) => {
                let live = self.expect_living(id).0;
                let is_watched = live.cell.watch.mask.contains(WatchMask::REPORTS);
                live.execution.context.registers.rax = if is_watched { 0 } else { Refusal::WrongState.to_result() };
                match is_watched {
                    true => NextStep::Leave(LeaveReason::Halted(HaltReason::Report(arguments))),
                    false => NextStep::Resume,
                }
            }
            Work::Donate { child, time } => match self.own_child(id, child) {
                Ok(child) => NextStep::Leave(LeaveReason::Donating(Donation::new(child, time))),
                Err(error) => self.finish_operation(id, error.to_refusal().to_result()),
            },
            Work::Operation(operation) => self.operate(id, operation),
            Work::Child(operation) => self.operate_on_child(id, operation),
            Work::Message(operation) => self.operate_on_port(id, operation, now),
            Work::Batch(mut batch) => {
                let progress = self.step_batch(id, &mut batch);
                self.after_step(id, Work::Batch(batch), progress)
            }
            Work::Prefetch(mut batch) => {
                let (live, frames) = self.expect_living(id);
                live.cell.memory.copy_prefetched(frames, &mut batch);
                if batch.is_empty() {
                    return NextStep::Resume;
                }
                live.execution.work = Some(Work::Prefetch(batch));
                NextStep::Again
            }
        }
    }

    /// Keeps work that the kernel could not do because a copy failed.
    fn postpone(&mut self, id: CellId, work: Work, error: CopyError) -> NextStep {
        self.expect_living(id).0.execution.work = Some(work);
        self.after_failed_copy(id, error)
    }

    fn idle(&mut self, id: CellId, until: Nanos, now: Nanos) -> NextStep {
        if let Err(error) = self.serve_rings(id, now) {
            return self.postpone(id, Work::Idle { until }, error);
        }
        let has_idle_timeouts = self.has_idle_timeouts;
        let (LiveCell { cell, execution, .. }, frames) = self.expect_living(id);
        cell.memory.note_pause();
        let until = cell.idles_until(frames, until);
        if until == Nanos::NEVER {
            cell.memory.end_start(frames);
        }
        if until <= now || cell.has_unmasked_events(frames) {
            execution.resumption = Resumption::WithEvents;
            // It declared its vector state dead; it continues as if it had waited.
            return NextStep::Resume;
        }
        if until != Nanos::NEVER && !has_idle_timeouts {
            execution.resumption = Resumption::WithEvents;
            return NextStep::Leave(LeaveReason::Relinquished);
        }
        NextStep::Leave(LeaveReason::Idle { until })
    }

    /// Invokes an operation of a cell on itself, or its next step.
    fn operate(&mut self, id: CellId, mut operation: Operation) -> NextStep {
        let progress = self.invoke(Subject::Caller(id), &mut operation);
        self.after_step(id, Work::Operation(operation), progress)
    }

    /// Invokes an operation of a cell on one that it holds, or its next step.
    fn operate_on_child(&mut self, id: CellId, mut operation: Box<ChildOperation>) -> NextStep {
        let progress = self.act_on_holding(id, &mut operation);
        self.after_step(id, Work::Child(operation), progress)
    }

    /// Performs the next step of a call of a port.
    fn operate_on_port(&mut self, id: CellId, mut operation: MessageOperation, now: Nanos) -> NextStep {
        // Its output should not wait with it.
        if let Err(error) = self.serve_rings(id, now) {
            return self.postpone(id, Work::Message(operation), error);
        }
        let progress = match self.step_message(id, &mut operation, now) {
            Ok(MessageStep::Wait { until, next }) => return NextStep::Leave(LeaveReason::Blocked { until, next }),
            Ok(MessageStep::Done(result)) => Ok(OperationProgress::Done(result)),
            Ok(MessageStep::More) => Ok(OperationProgress::More),
            Err(error) => Err(error),
        };
        self.after_step(id, Work::Message(operation), progress)
    }

    /// Performs the next step of a batch.
    fn step_batch(&mut self, id: CellId, batch: &mut Batch) -> Result<OperationProgress, OperationError> {
        let (live, frames) = self.expect_living(id);
        let memory = &mut live.cell.memory;
        let progress = match batch.current(memory, frames)? {
            BatchCall::Memory(operation) => operation.step(memory, frames)?,
            BatchCall::Child(operation) => self.act_on_holding(id, operation)?,
        };
        Ok(batch.after_step(progress))
    }

    /// Goes on after a step of an operation that a cell has asked for; `work` is the rest of it.
    fn after_step(&mut self, id: CellId, work: Work, progress: Result<OperationProgress, OperationError>) -> NextStep {
        match progress {
            Ok(OperationProgress::Done(result)) => self.finish_operation(id, result),
            Ok(OperationProgress::More) => {
                self.expect_living(id).0.execution.work = Some(work);
                NextStep::Again
            }
            Err(OperationError::Memory(MemoryError::Absent(wanted))) => {
                self.expect_living(id).0.execution.work = Some(work);
                NextStep::Read(wanted)
            }
            Err(OperationError::Memory(MemoryError::Taken(page))) => {
                self.expect_living(id).0.execution.work = Some(work);
                self.halt_for_page(id, page)
            }
            Err(OperationError::Memory(MemoryError::Shortage(Shortage::Quota))) if self.halts_for_shortage(id, &work) => {
                self.expect_living(id).0.execution.work = Some(work);
                self.halt_unfinished(id, HaltReason::Shortage)
            }
            Err(OperationError::PeerRuns { vcpu }) => {
                self.expect_living(id).0.execution.work = Some(work);
                self.request_yield(vcpu);
                NextStep::Again
            }
            Err(error @ OperationError::Memory(MemoryError::Shortage(shortage))) => match self.remedy(id, shortage) {
                Some(next) => {
                    self.expect_living(id).0.execution.work = Some(work);
                    next
                }
                None => self.finish_operation(id, work.refusal_result(error.to_refusal())),
            },
            Err(error) => self.finish_operation(id, work.refusal_result(error.to_refusal())),
        }
    }

    /// Returns the result of an operation to a cell.
    fn finish_operation(&mut self, id: CellId, result: u64) -> NextStep {
        let (LiveCell { cell, execution, .. }, frames) = self.expect_living(id);
        execution.context.registers.rax = result;
        let usage = frames.usage(cell.memory.account());
        // The page was made the cell's own before the cell was entered.
        let _ = cell.set_word(frames, offset::MEMORY + 8, usage.used.0);
        NextStep::Resume
    }

    /// Finds a remedy for a shortage: garbage, blocks that cells map, tables that wait for a flush, or idle cells that can sleep. `None`:
    /// there is none.
    fn remedy(&mut self, id: CellId, shortage: Shortage) -> Option<NextStep> {
        let is_machine = shortage == Shortage::Machine;
        if self.frames.has_garbage() || !self.orphans.is_empty() || (is_machine && (self.frames.reclaim_deficit() || self.evict(Some(id))))
        {
            return Some(NextStep::Again);
        }
        let has_quarantined_tables = self.has_quarantined_tables();
        let (live, frames) = self.expect_living(id);
        // Tables of other cells may retire again and again.
        let may_wait = live.execution.flush_waits < FLUSH_WAITS;
        let waits = match shortage {
            Shortage::Quota => may_wait && frames.has_retired(live.cell.memory.account()),
            Shortage::Machine => may_wait && has_quarantined_tables,
        };
        live.execution.flush_waits += u32::from(waits);
        if waits {
            return Some(NextStep::Leave(LeaveReason::AwaitingFlush));
        }
        let can_wait = shortage == Shortage::Machine && self.try_wait_for_swap_out(id);
        can_wait.then_some(NextStep::Leave(LeaveReason::AwaitingSwapOut))
    }

    /// Handles the failure of a copy that the kernel must make before the cell can continue.
    pub(super) fn after_failed_copy(&mut self, id: CellId, error: CopyError) -> NextStep {
        match error {
            CopyError::Absent(wanted) => NextStep::Read(wanted),
            CopyError::Shortage(shortage) => self.after_shortage(id, shortage),
            CopyError::Taken(page) => self.halt_for_page(id, page),
            CopyError::Refused | CopyError::Unreadable => ended(End::Host("the kernel's pages in the cell are not mapped".into())),
        }
    }

    /// Handles a shortage of a page that the cell needs to continue.
    pub(super) fn after_shortage(&mut self, id: CellId, shortage: Shortage) -> NextStep {
        if shortage == Shortage::Quota && self.is_watched_for_shortage(id) {
            return self.halt_unfinished(id, HaltReason::Shortage);
        }
        if let Some(next) = self.remedy(id, shortage) {
            return next;
        }
        if shortage == Shortage::Quota {
            return ended(end_for(shortage));
        }
        match self.victim() {
            Some(victim) if victim != id => {
                self.request_end(victim, End::MachineFull);
                NextStep::Again
            }
            _ => ended(end_for(shortage)),
        }
    }
}
