// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operations: the verbs that apply to a cell, as values. And work: what an execution context does before it runs again.
//!
//! An operation has a *subject*: the calling cell itself, or, for the operator, any cell. A hypercall is decoded into work, most of
//! which is an operation on the caller; the operator builds operations. `core` invokes both in one place.

use super::batch::Batch;
use super::child_operation::ChildOperation;
use super::end::End;
use super::freeze::FreezeMode;
use super::memory_operation::MemoryOperation;
use super::run_state::Requirement;
use super::share::Share;
use super::{CellConfig, CellId};
use crate::memory::{DiskId, PrefetchBatch, SpaceSet};
use pando_abi::{Event, Hypercall, Refusal, Registers};
use pando_machine::{Exception, Nanos, PageCount};

/// A verb with its arguments, all of them checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Create a cell with one space that holds only the kernel's own pages. The result is its identifier.
    Create(CellConfig),
    /// Clone the subject. O(mounts + segments). The result is the clone's identifier; the clone is not started.
    Clone {
        /// The clone's quota.
        quota: PageCount,
    },
    /// Start the subject: the gatekeeper decides when it is admitted.
    Start,
    /// End the subject: at once, or at its next exit if it has a vCPU.
    End(End),
    /// Freeze the subject.
    Freeze(FreezeMode),
    /// Withdraw a freeze. The result is 1 if the subject is not frozen yet, otherwise 0.
    WithdrawFreeze,
    /// Change or describe the subject's memory.
    Memory(MemoryOperation),
    /// Change the subject's memory by several calls.
    Batch(Batch),
    /// Attach a disk. The result is its index in the subject.
    Attach {
        /// The disk.
        disk: DiskId,
        /// Number of its blocks.
        blocks: u64,
    },
    /// Limit the subject's share of a vCPU.
    Limit(Share),
    /// Set the subject's memory quota.
    LimitMemory(PageCount),
    /// Set how many descendants the subject may have.
    LimitCells(u32),
    /// Let the subject clone a template. The result is the subject's name for it.
    Grant {
        /// The template.
        template: CellId,
    },
    /// Act on a cell that the subject holds.
    Child(Box<ChildOperation>),
    /// Set the subject's registers; the rest of its context becomes zero.
    SetRegisters(Box<Registers>),
    /// Set the subject's host name.
    SetHostName(String),
    /// Set the size of the subject's terminal.
    SetWindow([u16; 2]),
    /// Raise an event that the subject notices at once, even if it computes.
    Raise(Event),
    /// Record the subject's page accesses until its end, for its template.
    Train {
        /// The template.
        template: CellId,
    },
}

impl Operation {
    /// The result for a calling cell if the present step is refused.
    pub(crate) fn refused(&self, refusal: Refusal) -> u64 {
        match self {
            Operation::Batch(batch) if batch.performed() > 0 => batch.performed(),
            _ => refusal.to_result(),
        }
    }

    /// The verb for messages: "cannot ... cell 7.0".
    pub(crate) fn description(&self) -> &'static str {
        match self {
            Operation::Create(_) => "create",
            Operation::Clone { .. } => "clone",
            Operation::Start => "start",
            Operation::End(_) => "end",
            Operation::Freeze(_) => "freeze",
            Operation::WithdrawFreeze => "withdraw the freeze of",
            Operation::Memory(_) | Operation::Batch(_) => "change the memory of",
            Operation::Attach { .. } => "attach a disk to",
            Operation::Limit(_) => "limit the CPU share of",
            Operation::LimitMemory(_) => "limit the memory of",
            Operation::LimitCells(_) => "limit the descendants of",
            Operation::Grant { .. } => "grant a template to",
            Operation::Child(_) => "act for",
            Operation::SetRegisters(_) => "set the registers of",
            Operation::SetHostName(_) => "name",
            Operation::SetWindow(_) => "resize the terminal of",
            Operation::Raise(_) => "raise an event for",
            Operation::Train { .. } => "train a template with",
        }
    }

    /// The run states of the subject that allow it. A caller may also operate on itself while it runs.
    pub(crate) fn requirement(&self) -> Requirement {
        match self {
            Operation::Clone { .. } => Requirement::Cloneable,
            Operation::Start | Operation::SetHostName(_) | Operation::Train { .. } => Requirement::NotStarted,
            Operation::Freeze(FreezeMode::Forced) => Requirement::Started,
            Operation::Memory(_) | Operation::Batch(_) | Operation::Attach { .. } | Operation::SetRegisters(_) => Requirement::AtRest,
            Operation::Create(_)
            | Operation::End(_)
            | Operation::Freeze(FreezeMode::Cooperative)
            | Operation::WithdrawFreeze
            | Operation::Limit(_)
            | Operation::LimitMemory(_)
            | Operation::LimitCells(_)
            | Operation::Grant { .. }
            | Operation::Child(_)
            | Operation::SetWindow(_)
            | Operation::Raise(_) => Requirement::Living,
        }
    }
}

/// Work that comes before an execution context runs again: the rest of a page fault, or a decoded hypercall.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Resolve a page fault.
    Fault(Exception),
    /// Copy pages that are about to be written.
    Prefetch(PrefetchBatch),
    /// End with a status, or by a signal.
    Exit {
        /// The status.
        status: u8,
        /// The signal, or 0.
        signal: u8,
        /// The address that was accessed.
        address: u64,
        /// The program's instruction pointer.
        instruction: u64,
    },
    /// Wait.
    Idle {
        /// At most until this time.
        until: Nanos,
    },
    /// Become a template.
    Freeze,
    /// Become a template if the operator still requests it.
    FreezeIfAsked {
        /// Programs run in it that do not notice that they are cloned.
        unaware: bool,
    },
    /// Give the vCPU away.
    Relinquish,
    /// Serve the rings.
    Doorbell,
    /// An operation whose subject is the cell itself.
    Operation(Operation),
}

impl Work {
    /// Checks the hypercall in the registers of a context; `memory` is its cell's.
    ///
    /// # Errors
    /// The reason for the refusal.
    pub(crate) fn decode(registers: &Registers, memory: &mut SpaceSet) -> Result<Work, Refusal> {
        let call = Hypercall::decode(registers).ok_or(Refusal::NoSuchCall)?;
        if let Some(operation) = ChildOperation::decode(call)? {
            return Ok(Work::Operation(Operation::Child(Box::new(operation))));
        }
        Ok(match call {
            Hypercall::Exit { status, signal, address, instruction } => {
                let [status, signal] = [status, signal].map(u8::try_from);
                match (status, signal) {
                    (Ok(status), Ok(signal)) => Work::Exit { status, signal, address, instruction },
                    _ => return Err(Refusal::BadArgument),
                }
            }
            Hypercall::Idle { deadline } => Work::Idle { until: Nanos(deadline) },
            Hypercall::Freeze {} => Work::Freeze,
            Hypercall::FreezeIfAsked { unaware: unaware @ 0..=1 } => Work::FreezeIfAsked { unaware: unaware == 1 },
            Hypercall::FreezeIfAsked { .. } => return Err(Refusal::BadArgument),
            Hypercall::Relinquish {} => Work::Relinquish,
            Hypercall::Doorbell {} => Work::Doorbell,
            Hypercall::Batch { address, calls } => Work::Operation(Operation::Batch(Batch::new(address, calls)?)),
            memory_call => Work::Operation(Operation::Memory(MemoryOperation::decode(memory_call, memory)?)),
        })
    }
}
