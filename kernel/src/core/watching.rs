// SPDX-License-Identifier: MIT OR Apache-2.0
//! Halting cells for their parents, which read and write their state, and resuming them.

use super::cell_table::LiveCell;
use super::error::OperationError;
use super::exits::{LeaveReason, NextStep};
use super::holdings::Parent;
use super::invoke::Subject;
use super::state::State;
use crate::cell::CellId;
use crate::cell::child_operation::CallerBytes;
use crate::cell::execution::SavedVector;
use crate::cell::memory_operation::OperationProgress;
use crate::cell::operation::Operation;
use crate::cell::run_state::{Requirement, RunState};
use crate::cell::watch::{CpuState, ResumeMode, StateKind};
use crate::memory::Frames;
use crate::sched::ReadyReason;
use pando_abi::watch::{CONTEXT_WORDS, HaltReason};
use pando_abi::{DescendantRecord, HoldingName, Refusal};
use pando_machine::{Context, Exception, Nanos, VectorState};

const _: () = assert!(CONTEXT_WORDS == Context::WORDS);

impl State {
    /// Halts a started cell: at once if it waits, otherwise when a vCPU has finished its work.
    pub(super) fn request_halt(&mut self, id: CellId) {
        let Some((live, _)) = self.living(id) else { return };
        match live.execution.run_state() {
            RunState::New | RunState::Halted | RunState::Frozen => {}
            RunState::Idle { .. } => self.halt(id, HaltReason::Requested),
            RunState::AwaitingAdmission | RunState::Ready | RunState::Throttled { .. } | RunState::AwaitingMemory => {
                live.cell.watch.must_halt = true;
                self.recall_donation(id);
            }
            RunState::Asleep { .. } => {
                live.cell.watch.must_halt = true;
                self.request_wake(id);
            }
            RunState::Running { vcpu } => {
                live.cell.watch.must_halt = true;
                self.notifications.interrupts.push(vcpu);
            }
        }
    }

    /// Halts a cell that is on no vCPU, and tells its parent.
    pub(super) fn halt(&mut self, id: CellId, reason: HaltReason) {
        self.roll_back_wait(id);
        let Some((live, _)) = self.living(id) else { return };
        live.execution.transition(RunState::Halted);
        let watch = &mut live.cell.watch;
        // Another halt comes before the one with which the cell starts.
        let first = if reason == HaltReason::Requested { watch.first_reason.take() } else { None };
        watch.must_halt = watch.first_reason.is_some();
        watch.reason = Some(first.unwrap_or_else(|| Box::new(reason)));
        let halt_waiter = watch.halt_waiter.take();
        if let Some(callback) = &live.on_halt {
            callback(None);
        }
        if let Some(Parent { cell, is_holding: true, .. }) = live.parent {
            self.raise_child_event(cell);
        }
        if let Some(halt_waiter) = halt_waiter {
            self.raise_child_event(halt_waiter);
        }
    }

    /// Completes the halt of a cell whose work is done.
    pub(super) fn complete_halt(&mut self, id: CellId, now: Nanos) -> NextStep {
        match self.quiesce(id, now) {
            Ok(()) => NextStep::Leave(LeaveReason::Halted(HaltReason::Requested)),
            Err(next) => next,
        }
    }

    /// Lets a halted cell continue.
    pub(super) fn resume(&mut self, id: CellId, mode: ResumeMode) {
        let (live, frames) = self.expect_living(id);
        let reason = live.cell.watch.reason.take();
        live.cell.watch.is_stepping = mode == ResumeMode::Step;
        let prepared = match (mode, reason) {
            (ResumeMode::Step, _) => live.execution.trap_next(&mut live.cell, frames),
            (ResumeMode::Deliver, Some(reason)) => deliver(live, frames, *reason),
            (ResumeMode::Continue | ResumeMode::Deliver, _) => Ok(()),
        };
        match prepared {
            Ok(()) => {
                self.make_ready(id, ReadyReason::Woken);
                self.notifications.has_runnable_cell = true;
            }
            Err(end) => self.end(id, end),
        }
    }

    /// Copies state of a halted child into its parent. Returns the number of bytes.
    pub(super) fn read_child_state(
        &mut self,
        caller: CellId,
        child: HoldingName,
        kind: StateKind,
        buffer: CallerBytes,
    ) -> Result<u64, OperationError> {
        let child = self.child(caller, child)?;
        match kind {
            StateKind::Descendants { first } => return self.read_descendants(caller, child, first, buffer),
            StateKind::Mounts { first } => return self.read_mounts(caller, child, first, buffer),
            StateKind::Image | StateKind::Layout => return self.read_child_image(caller, child, kind, buffer),
            StateKind::Holdings { first } => return self.read_holdings(caller, child, first, buffer),
            StateKind::Console { first } => return self.read_console_state(caller, child, first, buffer),
            // They cannot be read.
            StateKind::Extents | StateKind::SwapNumbers { .. } => return Err(Refusal::BadArgument.into()),
            StateKind::Reason | StateKind::Context | StateKind::Program | StateKind::Vector => {}
        }
        let mut bytes = self.cpu_state(child, kind)?;
        bytes.truncate(buffer.count);
        self.write_caller(caller, buffer.address, &bytes)?;
        Ok(bytes.len() as u64)
    }

    /// The reason for the halt of a cell, or a part of the state of its CPU.
    pub(super) fn cpu_state(&mut self, id: CellId, kind: StateKind) -> Result<Vec<u8>, OperationError> {
        let (LiveCell { cell, execution, .. }, frames) = self.require(id, Requirement::Halted)?;
        Ok(match (kind, &execution.vector) {
            (StateKind::Reason, _) => cell.watch.reason.as_ref().map_or_else(Vec::new, |reason| to_bytes(&reason.to_words())),
            (StateKind::Context, _) => to_bytes(&execution.context.to_words()),
            (StateKind::Program, _) => to_bytes(&execution.program_registers(cell, frames)?.to_words()),
            (StateKind::Vector, SavedVector::Saved(saved)) => saved.words().iter().flat_map(|word| word.to_le_bytes()).collect(),
            (StateKind::Vector, SavedVector::Dead) => VectorState::initial().words().iter().flat_map(|word| word.to_le_bytes()).collect(),
            // They are no state of the CPU.
            _ => return Err(Refusal::BadArgument.into()),
        })
    }

    /// Copies records of the descendants of a child, after the `first`, into its parent. Returns the number of bytes.
    fn read_descendants(&mut self, caller: CellId, child: CellId, first: u32, buffer: CallerBytes) -> Result<u64, OperationError> {
        self.require(child, Requirement::Living)?;
        let first = first as usize;
        let count = buffer.count / DescendantRecord::SIZE;
        let listed = self.descendants(child, first.saturating_add(count));
        let bytes: Vec<u8> = listed.iter().skip(first).flat_map(DescendantRecord::to_bytes).collect();
        self.write_caller(caller, buffer.address, &bytes)?;
        Ok(bytes.len() as u64)
    }

    /// Sets state of a halted child from bytes of its parent, which pass the checks of an image's.
    pub(super) fn write_child_state(
        &mut self,
        caller: CellId,
        child: HoldingName,
        kind: StateKind,
        bytes: CallerBytes,
    ) -> Result<OperationProgress, OperationError> {
        let child = self.child(caller, child)?;
        self.require(child, Requirement::Halted)?;
        let bytes = self.read_caller(caller, bytes)?;
        let mut operation = Operation::SetState(Box::new(CpuState::decode(kind, &bytes)?));
        self.invoke(Subject::Cell(child), &mut operation)
    }
}

/// Delivers the event that has halted a cell to its libOS.
fn deliver(live: &mut LiveCell, frames: &mut Frames, reason: HaltReason) -> Result<(), crate::cell::end::End> {
    let LiveCell { cell, execution, .. } = live;
    match reason {
        HaltReason::Exception { vector, error, address } => execution.raise(cell, frames, Exception { vector, error, address }),
        HaltReason::Syscall => execution.raise_syscall(cell, frames),
        HaltReason::Requested | HaltReason::Report(_) | HaltReason::Taken { .. } | HaltReason::Shortage => Ok(()),
    }
}

fn to_bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}
