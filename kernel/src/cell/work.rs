// SPDX-License-Identifier: MIT OR Apache-2.0
//! Work: what an execution context does before it runs again. Hypercalls are decoded into it.

use super::batch::Batch;
use super::child_operation::ChildOperation;
use super::memory_operation::MemoryOperation;
use super::message_operation::MessageOperation;
use super::operation::Operation;
use crate::memory::{PrefetchBatch, SpaceSet};
use pando_abi::{HoldingName, Hypercall, Refusal, Registers};
use pando_machine::{Exception, Nanos};
use std::time::Duration;

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
        /// It runs programs that are not told of the clone: their random numbers may repeat.
        unaware: bool,
    },
    /// Give the vCPU away.
    Relinquish,
    /// Serve the rings.
    Doorbell,
    /// Halt for a parent that watches for it, with these arguments.
    Report([u64; 4]),
    /// Run a child with its descendants in place of the cell.
    Donate {
        /// The child.
        child: HoldingName,
        /// The most CPU time that they may use.
        time: Duration,
    },
    /// An operation whose subject is the cell itself.
    Operation(Operation),
    /// An operation on a cell that this one holds.
    Child(Box<ChildOperation>),
    /// A call of a port.
    Message(MessageOperation),
    /// Several operations on the cell itself and on those that it holds.
    Batch(Batch),
}

impl Work {
    /// The result for the calling cell if the present step is refused.
    pub(crate) fn refusal_result(&self, refusal: Refusal) -> u64 {
        match self {
            Work::Batch(batch) if batch.performed() > 0 => batch.result(),
            _ => refusal.to_result(),
        }
    }

    /// Checks the hypercall in the registers of a context; `memory` is its cell's.
    ///
    /// # Errors
    /// The reason for the refusal.
    pub(crate) fn decode(registers: &Registers, memory: &mut SpaceSet) -> Result<Work, Refusal> {
        let call = Hypercall::decode(registers).ok_or(Refusal::NoSuchCall)?;
        if let Some(operation) = ChildOperation::decode(call)? {
            return Ok(Work::Child(Box::new(operation)));
        }
        if let Some(operation) = MessageOperation::decode(call)? {
            return Ok(Work::Message(operation));
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
            Hypercall::Report { kind, first, second, third } => Work::Report([kind, first, second, third]),
            Hypercall::Donate { time: 0, .. } => return Err(Refusal::BadArgument),
            Hypercall::Donate { cell, time } => {
                Work::Donate { child: HoldingName::from_bits(cell).ok_or(Refusal::NoSuchHolding)?, time: Duration::from_nanos(time) }
            }
            Hypercall::Batch { address, calls } => Work::Batch(Batch::new(address, calls)?),
            memory_call => Work::Operation(Operation::Memory(MemoryOperation::decode(memory_call, memory)?)),
        })
    }
}
