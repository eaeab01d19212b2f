// SPDX-License-Identifier: MIT OR Apache-2.0
//! Handling of cells' exits. Handlers return the next step; the worker performs it.

use super::state::{State, end_for};
use crate::cell::call::{CallProgress, MemoryCall, Operation};
use crate::cell::end::End;
use crate::cell::{CellId, Resumption, Write};
use crate::limits::SPURIOUS_FAULTS;
use crate::memory::copy::CopyError;
use crate::memory::error::MemoryError;
use crate::memory::{Access, BlockRequest, Fault, Shortage};
use pando_abi::Refusal;
use pando_abi::layout::VIRTUAL_REGISTERS;
use pando_abi::registers::UNREADABLE;
use pando_abi::virtual_registers::offset;
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
    /// It waits.
    Idle {
        /// At most until this time.
        until: Nanos,
    },
    /// It waits for memory that a flush will free; its vector state must be saved.
    AwaitingFlush,
    /// It froze itself into a template.
    Frozen,
    /// It was frozen by force; its vector state must be saved.
    Stopped,
    /// It has ended.
    Ended(End),
}

/// The state that a vCPU needs to run a cell.
#[derive(Clone, Copy, Debug)]
pub(super) struct VcpuEntry {
    pub(super) root: Root,
    /// When the cell's timer is due.
    pub(super) timer: Nanos,
}

fn ended(end: End) -> NextStep {
    NextStep::Leave(LeaveReason::Ended(end))
}

impl State {
    /// Prepares a cell for entry: its unfinished operation, identity, devices, events and root.
    pub(super) fn prepare(&mut self, id: CellId, now: Nanos) -> Result<VcpuEntry, NextStep> {
        let (live, frames) = self.running(id);
        if let Some(end) = live.cell.doom.take() {
            return Err(ended(end));
        }
        let own = live.cell.memory.own(frames, VIRTUAL_REGISTERS);
        let identified = own.and_then(|()| live.cell.refresh_identity(frames));
        match identified {
            Ok(()) => {}
            Err(error) => return Err(self.delayed(id, error)),
        }
        // A resolved fault may lead to a prefetch of pages.
        while let Some(operation) = self.running(id).0.cell.operation.take() {
            if self.running(id).0.cell.halts && matches!(operation, Operation::Prefetch(_)) {
                // The freeze may need the memory that the prefetch would take.
                continue;
            }
            match self.perform(id, operation, now) {
                NextStep::Resume => {}
                next => return Err(next),
            }
        }
        if self.running(id).0.cell.halts {
            return Err(self.halt(id, now));
        }
        if self.running(id).0.cell.unconfirmed.is_some() {
            return self.entry(id, now);
        }
        if let Err(error) = self.serve_rings(id, now) {
            return Err(self.delayed(id, error));
        }
        let (live, frames) = self.running(id);
        let cell = &mut live.cell;
        cell.show_events(frames, now).map_err(ended)?;
        // The result of a wait is set before an upcall, which saves it with the other registers.
        match std::mem::replace(&mut cell.resumption, Resumption::AsIs) {
            Resumption::AsIs => {}
            Resumption::WithEvents => cell.context.registers.rax = cell.control(frames).pending,
            Resumption::WithGeneration => cell.context.registers.rax = cell.identity.generation,
        }
        cell.deliver_events(frames).map_err(ended)?;
        self.entry(id, now)
    }

    /// The root and the timer for the vCPU.
    fn entry(&mut self, id: CellId, now: Nanos) -> Result<VcpuEntry, NextStep> {
        let (live, frames) = self.running(id);
        let cell = &mut live.cell;
        // A timer that is due and was not delivered waits for the next exit.
        let timer = Some(Nanos(cell.control(frames).timer)).filter(|timer| *timer > now).unwrap_or(Nanos::NEVER);
        let root = match cell.memory.root(frames) {
            Ok(root) => root,
            Err(shortage) => return Err(self.short(id, shortage)),
        };
        Ok(VcpuEntry { root, timer })
    }

    /// Handles an exit of a cell whose context is back in place.
    pub(super) fn handle(&mut self, id: CellId, exit: Exit, now: Nanos, quantum_end: Nanos) -> NextStep {
        let (live, frames) = self.running(id);
        let cell = &mut live.cell;
        cell.counters.exits += 1;
        if let Some(write) = cell.unconfirmed.take() {
            // The write was retried if the instruction pointer has moved, or if the cell made a call. Otherwise it may not have
            // been, and no other code may see the old page.
            let stands = write.instruction == cell.context.registers.rip;
            if stands
                && matches!(exit, Exit::Interrupted | Exit::Exception(_))
                && let Err(shortage) = cell.memory.renew(frames, write.address)
            {
                // Checked again after the remedy: until then only the write may be retried.
                cell.unconfirmed = Some(write);
                return self.short(id, shortage);
            }
            cell.confirm(frames, write);
        }
        if !matches!(exit, Exit::Exception(_) | Exit::Interrupted) {
            cell.spurious = (0, 0);
        }
        match exit {
            Exit::Hypercall => self.hypercall(id, now),
            Exit::Syscall => cell.raise_syscall(frames).map_or_else(ended, |()| NextStep::Resume),
            Exit::Exception(exception) => self.exception(id, exception),
            Exit::Interrupted => self.interrupted(now, quantum_end),
            Exit::Violation(violation) => ended(End::Violation(violation)),
        }
    }

    fn interrupted(&mut self, now: Nanos, quantum_end: Nanos) -> NextStep {
        self.ring_alarms(now);
        self.networks.advance(now);
        self.wake_receivers();
        // Its quantum is over, or it was alone on the vCPU and now other cells are runnable.
        if now >= quantum_end || !self.scheduler.is_empty() || self.stopping {
            return NextStep::Leave(LeaveReason::Preempted);
        }
        if self.next_duty() <= now { NextStep::Again } else { NextStep::Resume }
    }

    fn exception(&mut self, id: CellId, mut exception: Exception) -> NextStep {
        let (live, frames) = self.running(id);
        let cell = &mut live.cell;
        if exception.vector == Exception::PAGE_FAULT {
            let access = match (exception.is_fetch(), exception.is_write()) {
                (true, _) => Access::Execute,
                (_, true) => Access::Write,
                _ => Access::Read,
            };
            let resolved = cell.memory.resolve(frames, exception.address, access);
            if matches!(resolved, Ok(Fault::Absent(_)) | Err(_)) {
                cell.operation = Some(Operation::Fault(exception));
            }
            match resolved {
                Ok(resolved @ (Fault::Resolved | Fault::Copied { .. })) => {
                    if let Fault::Copied { replaced } = resolved {
                        let instruction = cell.context.registers.rip;
                        cell.unconfirmed = Some(Write { instruction, address: exception.address, replaced });
                    }
                    if access == Access::Write {
                        cell.operation = cell.memory.expected_after(exception.address).map(Operation::Prefetch);
                    }
                    cell.counters.faults += 1;
                    cell.spurious = (0, 0);
                    return NextStep::Resume;
                }
                Ok(Fault::Spurious) => return self.spurious(id, exception.address),
                Ok(Fault::Absent(wanted)) => return NextStep::Read(wanted),
                Ok(Fault::Unreadable) => exception.error |= UNREADABLE,
                Ok(Fault::Refused) => {}
                Err(shortage) => return self.short(id, shortage),
            }
        }
        cell.spurious = (0, 0);
        cell.raise(frames, exception).map_or_else(ended, |()| NextStep::Resume)
    }

    /// Handles a fault that the tables rule out: the vCPU had not seen an edit yet. A second one in a row leads to a new
    /// stamp, too many end the cell.
    fn spurious(&mut self, id: CellId, address: u64) -> NextStep {
        let (live, frames) = self.running(id);
        let cell = &mut live.cell;
        let count = if cell.spurious.0 == address { cell.spurious.1 + 1 } else { 1 };
        cell.spurious = (address, count);
        if count > SPURIOUS_FAULTS {
            return ended(End::Stuck { address });
        }
        if count > 1 {
            cell.memory.restamp(frames);
        }
        NextStep::Resume
    }

    fn hypercall(&mut self, id: CellId, now: Nanos) -> NextStep {
        let (live, _) = self.running(id);
        let cell = &mut live.cell;
        cell.counters.hypercalls += 1;
        match cell.decode() {
            Ok(operation) => self.perform(id, operation, now),
            Err(refusal) => {
                cell.context.registers.rax = refusal.to_result();
                NextStep::Resume
            }
        }
    }

    /// Performs an operation, or its next step.
    fn perform(&mut self, id: CellId, operation: Operation, now: Nanos) -> NextStep {
        match operation {
            Operation::Fault(exception) => self.exception(id, exception),
            Operation::Exit { status, signal, address, instruction } => match self.serve_rings(id, now) {
                Ok(()) => ended(match signal {
                    0 => End::Exited { status },
                    signal => End::Signalled { signal, address, instruction },
                }),
                Err(error) => {
                    self.running(id).0.cell.operation = Some(Operation::Exit { status, signal, address, instruction });
                    self.delayed(id, error)
                }
            },
            Operation::Idle { until } => self.idle(id, until, now),
            Operation::FreezeIfAsked { .. } if !self.running(id).0.cell.is_asked => {
                self.running(id).0.cell.resumption = Resumption::WithGeneration;
                NextStep::Resume
            }
            // Output before the freeze belongs to this cell, not to its clones.
            Operation::Freeze | Operation::FreezeIfAsked { .. } => match self.serve_rings(id, now) {
                Ok(()) => {
                    let cell = &mut self.running(id).0.cell;
                    cell.resumption = Resumption::WithGeneration;
                    cell.forced |= operation == Operation::FreezeIfAsked { unaware: true };
                    NextStep::Leave(LeaveReason::Frozen)
                }
                Err(error) => {
                    self.running(id).0.cell.operation = Some(operation);
                    self.delayed(id, error)
                }
            },
            Operation::Relinquish => {
                self.running(id).0.cell.context.registers.rax = 0;
                NextStep::Leave(LeaveReason::Relinquished)
            }
            // The rings are served before the cell is entered again.
            Operation::Doorbell => {
                self.running(id).0.cell.context.registers.rax = 0;
                NextStep::Resume
            }
            Operation::Memory(call) => self.memory_call(id, call),
            Operation::Prefetch(mut batch) => {
                let (live, frames) = self.running(id);
                live.cell.memory.copy_prefetched(frames, &mut batch);
                if batch.is_empty() {
                    return NextStep::Resume;
                }
                live.cell.operation = Some(Operation::Prefetch(batch));
                NextStep::Again
            }
        }
    }

    fn idle(&mut self, id: CellId, until: Nanos, now: Nanos) -> NextStep {
        if let Err(error) = self.serve_rings(id, now) {
            self.running(id).0.cell.operation = Some(Operation::Idle { until });
            return self.delayed(id, error);
        }
        let (live, frames) = self.running(id);
        let cell = &mut live.cell;
        cell.memory.note_pause();
        let until = cell.idles_until(frames, until);
        if until <= now || cell.has_unmasked_events(frames) {
            cell.resumption = Resumption::WithEvents;
            // It declared its vector state dead; it continues as if it had waited.
            return NextStep::Resume;
        }
        if until != Nanos::NEVER && !self.idle_timeouts {
            self.running(id).0.cell.resumption = Resumption::WithEvents;
            return NextStep::Leave(LeaveReason::Relinquished);
        }
        NextStep::Leave(LeaveReason::Idle { until })
    }

    fn memory_call(&mut self, id: CellId, call: MemoryCall) -> NextStep {
        let (live, frames) = self.running(id);
        let cell = &mut live.cell;
        match cell.invoke(frames, &call) {
            Ok(CallProgress::Done(result)) => {
                cell.context.registers.rax = result;
                let usage = frames.usage(cell.memory.account());
                // The page was made the cell's own before the cell was entered.
                let _ = cell.set_word(frames, offset::MEMORY + 8, usage.used.0);
                NextStep::Resume
            }
            Ok(CallProgress::More(rest)) => {
                cell.operation = Some(Operation::Memory(rest));
                NextStep::Again
            }
            Err(MemoryError::Refused(refusal)) => {
                cell.context.registers.rax = refusal.to_result();
                NextStep::Resume
            }
            Err(MemoryError::Absent(wanted)) => {
                cell.operation = Some(Operation::Memory(call));
                NextStep::Read(wanted)
            }
            Err(MemoryError::Short(shortage)) => match self.remedy(id, shortage) {
                Some(next) => {
                    self.running(id).0.cell.operation = Some(Operation::Memory(call));
                    next
                }
                None => {
                    let refusal = if shortage == Shortage::Quota { Refusal::Quota } else { Refusal::NoMemory };
                    self.running(id).0.cell.context.registers.rax = refusal.to_result();
                    NextStep::Resume
                }
            },
        }
    }

    /// Finds a remedy for a shortage: garbage, blocks that cells map, or tables that wait for a flush. `None`: there is none.
    fn remedy(&mut self, id: CellId, shortage: Shortage) -> Option<NextStep> {
        if self.frames.has_garbage() || (shortage == Shortage::Machine && self.evict(Some(id))) {
            return Some(NextStep::Again);
        }
        let (live, frames) = self.running(id);
        let retired = frames.usage(live.cell.memory.account()).retired.0;
        let waits = match shortage {
            Shortage::Quota => retired > 0,
            Shortage::Machine => frames.quarantined() > 0,
        };
        waits.then_some(NextStep::Leave(LeaveReason::AwaitingFlush))
    }

    /// Handles the failure of a copy that the kernel must make before the cell can continue.
    pub(super) fn delayed(&mut self, id: CellId, error: CopyError) -> NextStep {
        match error {
            CopyError::Absent(wanted) => NextStep::Read(wanted),
            CopyError::Shortage(shortage) => self.short(id, shortage),
            CopyError::Refused | CopyError::Unreadable => ended(End::Host("the kernel's pages in the cell are not mapped".into())),
        }
    }

    /// Handles a shortage of a page that the cell needs to continue.
    pub(super) fn short(&mut self, id: CellId, shortage: Shortage) -> NextStep {
        if let Some(next) = self.remedy(id, shortage) {
            return next;
        }
        if shortage == Shortage::Quota {
            return ended(end_for(shortage));
        }
        match self.victim() {
            Some(victim) if victim != id => {
                let running = self.doom(victim, End::MachineFull);
                self.vcpus_to_interrupt.extend(running);
                NextStep::Again
            }
            _ => ended(end_for(shortage)),
        }
    }
}
