// SPDX-License-Identifier: MIT OR Apache-2.0
//! What happens at a cell's exits. Handlers say what should happen next; the worker does it.

use super::state::{State, end_for};
use crate::cell::call::{MemoryCall, Operation, Progress};
use crate::cell::end::End;
use crate::cell::{CellId, Resumption, Write};
use crate::limits::SPURIOUS_FAULTS;
use crate::memory::copy::CopyError;
use crate::memory::obstacle::Obstacle;
use crate::memory::{Access, Fault, Shortage, Wanted};
use pando_abi::Refusal;
use pando_abi::layout::VIRTUAL_REGISTERS;
use pando_abi::registers::UNREADABLE;
use pando_abi::virtual_registers::offset;
use pando_machine::{Exception, Exit, Nanos, Root};

/// What the worker does next.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Next {
    /// Run the cell on.
    Resume,
    /// Let go of the lock for a moment, do a piece of the kernel's own duties, and come back to this cell.
    Again,
    /// Let go of the lock, read blocks of a disk, and come back to this cell's operation.
    Read(Wanted),
    /// Take the cell off the vCPU.
    Leave(Leave),
}

/// How a cell leaves its vCPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Leave {
    /// Its quantum is over; its vector state lives.
    Preempted,
    /// It gave the rest of its quantum away.
    Relinquished,
    /// It waits.
    Idle {
        /// Until then at the latest.
        until: Nanos,
    },
    /// It waits for memory that a flush will free; its vector state lives.
    AwaitingFlush,
    /// It is a template now.
    Frozen,
    /// It is a template now, as it stood; its vector state lives.
    Stopped,
    /// It has ended.
    Ended(End),
}

/// What a vCPU needs to run a cell.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) root: Root,
    /// When the cell's timer is due.
    pub(super) timer: Nanos,
}

fn ended(end: End) -> Next {
    Next::Leave(Leave::Ended(end))
}

impl State {
    /// Makes a cell ready to be entered: its unfinished call, its identity, its devices, its events, its root.
    pub(super) fn prepare(&mut self, id: CellId, now: Nanos) -> Result<Entry, Next> {
        let (occupant, frames) = self.running(id);
        if let Some(end) = occupant.cell.doom.take() {
            return Err(ended(end));
        }
        let own = occupant.cell.memory.own(frames, VIRTUAL_REGISTERS);
        let identified = own.and_then(|()| occupant.cell.refresh_identity(frames));
        match identified {
            Ok(()) => {}
            Err(error) => return Err(self.delayed(id, error)),
        }
        // A fault that was resolved may lead to pages that are to be copied.
        while let Some(operation) = self.running(id).0.cell.operation.take() {
            if self.running(id).0.cell.halts && matches!(operation, Operation::Foresee(_)) {
                // What that would take may be what stopping takes.
                continue;
            }
            match self.perform(id, operation, now) {
                Next::Resume => {}
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
        let (occupant, frames) = self.running(id);
        let cell = &mut occupant.cell;
        cell.show_events(frames, now).map_err(ended)?;
        // Returning from a wait comes before an upcall, which saves the result with the rest.
        match std::mem::replace(&mut cell.resumption, Resumption::AsIs) {
            Resumption::AsIs => {}
            Resumption::WithEvents => cell.context.registers.rax = cell.control(frames).pending,
            Resumption::WithGeneration => cell.context.registers.rax = cell.identity.generation,
        }
        cell.deliver_events(frames).map_err(ended)?;
        self.entry(id, now)
    }

    /// What the vCPU is given.
    fn entry(&mut self, id: CellId, now: Nanos) -> Result<Entry, Next> {
        let (occupant, frames) = self.running(id);
        let cell = &mut occupant.cell;
        // A timer that is due and was not delivered waits for the next exit.
        let timer = Some(Nanos(cell.control(frames).timer)).filter(|timer| *timer > now).unwrap_or(Nanos::NEVER);
        let root = match cell.memory.root(frames) {
            Ok(root) => root,
            Err(shortage) => return Err(self.short(id, shortage)),
        };
        Ok(Entry { root, timer })
    }

    /// Handles an exit of a cell whose context is back in place.
    pub(super) fn handle(&mut self, id: CellId, exit: Exit, now: Nanos, quantum_end: Nanos) -> Next {
        let (occupant, frames) = self.running(id);
        let cell = &mut occupant.cell;
        cell.counters.exits += 1;
        if let Some(write) = cell.unconfirmed.take() {
            // An instruction that the cell has left behind has been retried, and so has whatever led to a call. One where it still stands may not have been: whatever runs next
            // must not see the old page.
            let stands = write.instruction == cell.context.registers.rip;
            if stands
                && matches!(exit, Exit::Interrupted | Exit::Exception(_))
                && let Err(shortage) = cell.memory.renew(frames, write.address)
            {
                // Asked again after the remedy: until then the write alone may go on.
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
            Exit::Syscall => cell.raise_syscall(frames).map_or_else(ended, |()| Next::Resume),
            Exit::Exception(exception) => self.exception(id, exception),
            Exit::Interrupted => self.interrupted(now, quantum_end),
            Exit::Violation(violation) => ended(End::Violation(violation)),
        }
    }

    fn interrupted(&mut self, now: Nanos, quantum_end: Nanos) -> Next {
        self.ring_alarms(now);
        self.networks.advance(now);
        self.wake_receivers();
        // Either its time is up, or it had the vCPU to itself and now others wait.
        if now >= quantum_end || !self.scheduler.is_empty() || self.stopping {
            return Next::Leave(Leave::Preempted);
        }
        if self.next_duty() <= now { Next::Again } else { Next::Resume }
    }

    fn exception(&mut self, id: CellId, mut exception: Exception) -> Next {
        let (occupant, frames) = self.running(id);
        let cell = &mut occupant.cell;
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
                        cell.operation = cell.memory.expected_after(exception.address).map(Operation::Foresee);
                    }
                    cell.counters.faults += 1;
                    cell.spurious = (0, 0);
                    return Next::Resume;
                }
                Ok(Fault::Spurious) => return self.spurious(id, exception.address),
                Ok(Fault::Absent(wanted)) => return Next::Read(wanted),
                Ok(Fault::Unreadable) => exception.error |= UNREADABLE,
                Ok(Fault::Refused) => {}
                Err(shortage) => return self.short(id, shortage),
            }
        }
        cell.spurious = (0, 0);
        cell.raise(frames, exception).map_or_else(ended, |()| Next::Resume)
    }

    /// A fault that the tables say cannot happen: the vCPU had not seen them yet. A few in a row are met with a new stamp, too many with the cell's end.
    fn spurious(&mut self, id: CellId, address: u64) -> Next {
        let (occupant, frames) = self.running(id);
        let cell = &mut occupant.cell;
        let count = if cell.spurious.0 == address { cell.spurious.1 + 1 } else { 1 };
        cell.spurious = (address, count);
        if count > SPURIOUS_FAULTS {
            return ended(End::Stuck { address });
        }
        if count > 1 {
            cell.memory.restamp(frames);
        }
        Next::Resume
    }

    fn hypercall(&mut self, id: CellId, now: Nanos) -> Next {
        let (occupant, _) = self.running(id);
        let cell = &mut occupant.cell;
        cell.counters.hypercalls += 1;
        match cell.decode() {
            Ok(operation) => self.perform(id, operation, now),
            Err(refusal) => {
                cell.context.registers.rax = refusal.to_result();
                Next::Resume
            }
        }
    }

    /// Performs an operation, or its next piece.
    fn perform(&mut self, id: CellId, operation: Operation, now: Nanos) -> Next {
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
                Next::Resume
            }
            // What it has said before is its own, not that of its clones.
            Operation::Freeze | Operation::FreezeIfAsked { .. } => match self.serve_rings(id, now) {
                Ok(()) => {
                    let cell = &mut self.running(id).0.cell;
                    cell.resumption = Resumption::WithGeneration;
                    cell.forced |= operation == Operation::FreezeIfAsked { unaware: true };
                    Next::Leave(Leave::Frozen)
                }
                Err(error) => {
                    self.running(id).0.cell.operation = Some(operation);
                    self.delayed(id, error)
                }
            },
            Operation::Relinquish => {
                self.running(id).0.cell.context.registers.rax = 0;
                Next::Leave(Leave::Relinquished)
            }
            // The rings are looked at before the cell is entered again.
            Operation::Doorbell => {
                self.running(id).0.cell.context.registers.rax = 0;
                Next::Resume
            }
            Operation::Memory(call) => self.memory_call(id, call),
            Operation::Foresee(mut burst) => {
                let (occupant, frames) = self.running(id);
                occupant.cell.memory.own_expected(frames, &mut burst);
                if burst.is_empty() {
                    return Next::Resume;
                }
                occupant.cell.operation = Some(Operation::Foresee(burst));
                Next::Again
            }
        }
    }

    fn idle(&mut self, id: CellId, until: Nanos, now: Nanos) -> Next {
        if let Err(error) = self.serve_rings(id, now) {
            self.running(id).0.cell.operation = Some(Operation::Idle { until });
            return self.delayed(id, error);
        }
        let (occupant, frames) = self.running(id);
        let cell = &mut occupant.cell;
        cell.memory.note_pause();
        let until = cell.idles_until(frames, until);
        if until <= now || cell.has_unmasked_events(frames) {
            cell.resumption = Resumption::WithEvents;
            // It declared its vector state dead; it goes on as if it had waited.
            return Next::Resume;
        }
        if until != Nanos::NEVER && !self.idle_timeouts {
            self.running(id).0.cell.resumption = Resumption::WithEvents;
            return Next::Leave(Leave::Relinquished);
        }
        Next::Leave(Leave::Idle { until })
    }

    fn memory_call(&mut self, id: CellId, call: MemoryCall) -> Next {
        let (occupant, frames) = self.running(id);
        let cell = &mut occupant.cell;
        match cell.invoke(frames, &call) {
            Ok(Progress::Done(result)) => {
                cell.context.registers.rax = result;
                let usage = frames.usage(cell.memory.account());
                // The page was made the cell's own before it was entered.
                let _ = cell.set_word(frames, offset::MEMORY + 8, usage.used.0);
                Next::Resume
            }
            Ok(Progress::More(rest)) => {
                cell.operation = Some(Operation::Memory(rest));
                Next::Again
            }
            Err(Obstacle::Refused(refusal)) => {
                cell.context.registers.rax = refusal.to_result();
                Next::Resume
            }
            Err(Obstacle::Absent(wanted)) => {
                cell.operation = Some(Operation::Memory(call));
                Next::Read(wanted)
            }
            Err(Obstacle::Short(shortage)) => match self.remedy(id, shortage) {
                Some(next) => {
                    self.running(id).0.cell.operation = Some(Operation::Memory(call));
                    next
                }
                None => {
                    let refusal = if shortage == Shortage::Quota { Refusal::Quota } else { Refusal::NoMemory };
                    self.running(id).0.cell.context.registers.rax = refusal.to_result();
                    Next::Resume
                }
            },
        }
    }

    /// What may mend a shortage: memory that is being released, blocks that cells map, or tables that wait for a flush. `None`: nothing will.
    fn remedy(&mut self, id: CellId, shortage: Shortage) -> Option<Next> {
        if self.frames.has_garbage() || (shortage == Shortage::Machine && self.sweep(Some(id))) {
            return Some(Next::Again);
        }
        let (occupant, frames) = self.running(id);
        let retired = frames.usage(occupant.cell.memory.account()).retired.0;
        let waits = match shortage {
            Shortage::Quota => retired > 0,
            Shortage::Machine => frames.quarantined() > 0,
        };
        waits.then_some(Next::Leave(Leave::AwaitingFlush))
    }

    /// The kernel could not copy what it must before the cell goes on.
    pub(super) fn delayed(&mut self, id: CellId, error: CopyError) -> Next {
        match error {
            CopyError::Absent(wanted) => Next::Read(wanted),
            CopyError::Shortage(shortage) => self.short(id, shortage),
            CopyError::Refused | CopyError::Unreadable => ended(End::Host("a cell lost the pages that the kernel keeps for it".into())),
        }
    }

    /// A page that the cell cannot go on without could not be had.
    pub(super) fn short(&mut self, id: CellId, shortage: Shortage) -> Next {
        if let Some(next) = self.remedy(id, shortage) {
            return next;
        }
        if shortage == Shortage::Quota {
            return ended(end_for(shortage));
        }
        match self.victim() {
            Some(victim) if victim != id => {
                let running = self.doom(victim, End::MachineFull);
                self.condemned.extend(running);
                Next::Again
            }
            _ => ended(end_for(shortage)),
        }
    }
}
