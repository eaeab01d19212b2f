// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operations: the verbs that apply to a cell, as values.
//!
//! An operation has a *subject*: the calling cell itself, a child of it, or, for the operator, any cell. Hypercalls are decoded into
//! operations; the operator builds them. `core` invokes all in one place.

use super::cpu_limit::{CpuLimit, Weight};
use super::end::End;
use super::freeze::FreezeMode;
use super::memory_operation::MemoryOperation;
use super::run_state::Requirement;
use super::watch::{CpuState, ResumeMode, WatchMask};
use super::{CellConfig, CellId};
use crate::memory::{DiskId, StartMode};
use pando_abi::{Event, Registers};
use pando_machine::PageCount;

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
    /// Choose the events that halt the subject.
    Watch(WatchMask),
    /// Halt the subject until it is resumed.
    Halt,
    /// Let the subject continue after a halt.
    Resume(ResumeMode),
    /// Set a part of the subject's state.
    SetState(Box<CpuState>),
    /// Withdraw a freeze. The result is 1 if the subject is not frozen yet, otherwise 0.
    WithdrawFreeze,
    /// Change or describe the subject's memory.
    Memory(MemoryOperation),
    /// Attach a disk. The result is its index in the subject.
    Attach {
        /// The disk.
        disk: DiskId,
        /// Number of its blocks.
        blocks: u64,
    },
    /// Limit the time of a vCPU that the subject gets.
    LimitCpu(CpuLimit),
    /// Set the subject's CPU weight.
    SetWeight(Weight),
    /// Set the subject's memory quota.
    LimitMemory(PageCount),
    /// Set how many descendants the subject may have.
    LimitCells(u32),
    /// Let the subject clone a template. The result is the subject's name for it.
    Grant {
        /// The template.
        template: CellId,
    },
    /// Set the subject's registers; the rest of its context becomes zero.
    SetRegisters(Box<Registers>),
    /// Set the subject's host name.
    SetHostName(String),
    /// Set the size of the subject's terminal.
    SetWindow([u16; 2]),
    /// Raise an event that the subject notices at once, even if it computes.
    Raise(Event),
    /// Trace which blocks of its disks the subject accesses at its start.
    TraceStart(StartMode),
    /// Record the subject's page accesses until its end, for its template.
    Train {
        /// The template.
        template: CellId,
    },
}

impl Operation {
    /// The verb for messages: "cannot ... cell 7.0".
    pub(crate) fn description(&self) -> &'static str {
        match self {
            Operation::Create(_) => "create",
            Operation::Clone { .. } => "clone",
            Operation::Start => "start",
            Operation::End(_) => "end",
            Operation::Freeze(_) => "freeze",
            Operation::Watch(_) => "watch",
            Operation::Halt => "halt",
            Operation::Resume(_) => "resume",
            Operation::SetState(_) => "set the state of",
            Operation::WithdrawFreeze => "withdraw the freeze of",
            Operation::Memory(_) => "change the memory of",
            Operation::Attach { .. } => "attach a disk to",
            Operation::LimitCpu(_) => "limit the CPU time of",
            Operation::SetWeight(_) => "set the CPU weight of",
            Operation::LimitMemory(_) => "limit the memory of",
            Operation::LimitCells(_) => "limit the descendants of",
            Operation::Grant { .. } => "grant a template to",
            Operation::SetRegisters(_) => "set the registers of",
            Operation::SetHostName(_) => "name",
            Operation::SetWindow(_) => "resize the terminal of",
            Operation::Raise(_) => "raise an event for",
            Operation::TraceStart(_) => "trace the start of",
            Operation::Train { .. } => "train a template with",
        }
    }

    /// The run states of the subject that allow it. A caller may also operate on itself while it runs.
    pub(crate) fn requirement(&self) -> Requirement {
        match self {
            Operation::Clone { .. } => Requirement::Cloneable,
            Operation::Start | Operation::SetHostName(_) | Operation::TraceStart(_) | Operation::Train { .. } => Requirement::NotStarted,
            Operation::Freeze(FreezeMode::Forced) => Requirement::Started,
            Operation::Halt => Requirement::Active,
            Operation::Resume(_) | Operation::SetState(_) => Requirement::Halted,
            Operation::Memory(_) | Operation::Attach { .. } | Operation::SetRegisters(_) => Requirement::AtRest,
            Operation::Create(_)
            | Operation::End(_)
            | Operation::Freeze(FreezeMode::Cooperative)
            | Operation::Watch(_)
            | Operation::WithdrawFreeze
            | Operation::LimitCpu(_)
            | Operation::SetWeight(_)
            | Operation::LimitMemory(_)
            | Operation::LimitCells(_)
            | Operation::Grant { .. }
            | Operation::SetWindow(_)
            | Operation::Raise(_) => Requirement::Living,
        }
    }
}
