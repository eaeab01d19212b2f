// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of operations, and the errors that the operator receives.

use crate::cell::CellId;
use crate::cell::end::End;
use crate::cell::run_state::{Requirement, RunState};
use crate::device::disk::DiskError;
use crate::device::swap::SwapError;
use crate::limits::{MAX_CELLS, MAX_NETWORKS, MIN_QUOTA};
use crate::memory::{BadImage, CopyError, MemoryError, Shortage};
use pando_abi::Refusal;
use pando_machine::PageCount;
use std::fmt;

/// Why an operation did nothing. For a hypercall it becomes a refusal or a wait, for the operator an [`OperatorError`].
#[derive(Debug)]
pub(super) enum OperationError {
    /// The memory of the subject: a refusal, a shortage that may pass, or a block that must be read first.
    Memory(MemoryError),
    /// There is no such cell.
    NoSuchCell(CellId),
    /// The subject has ended; its outcome was not taken yet.
    Ended {
        /// The subject.
        cell: CellId,
        /// Its end.
        end: End,
    },
    /// The run state of the subject does not allow the operation.
    WrongState {
        /// The subject.
        cell: CellId,
        /// Its run state.
        state: RunState,
        /// The run states that do.
        requirement: Requirement,
    },
    /// Another cell must leave this vCPU first.
    PeerRuns {
        /// The vCPU.
        vcpu: usize,
    },
    /// Only the operator can do something about it.
    Operator(OperatorError),
}

impl OperationError {
    /// The refusal for a cell that has asked for the operation.
    pub(super) fn to_refusal(&self) -> Refusal {
        match self {
            OperationError::Memory(MemoryError::Refused(refusal)) => *refusal,
            OperationError::Memory(MemoryError::Shortage(Shortage::Quota)) => Refusal::Quota,
            OperationError::Memory(MemoryError::Shortage(Shortage::Machine)) => Refusal::NoMemory,
            OperationError::Memory(MemoryError::Absent(_)) => Refusal::BadAddress,
            OperationError::Memory(MemoryError::Taken(_)) => Refusal::Taken,
            // A child has ended, or a template that the cell holds.
            OperationError::NoSuchCell(_) | OperationError::Ended { .. } => Refusal::NoSuchHolding,
            OperationError::WrongState { .. } | OperationError::PeerRuns { .. } => Refusal::WrongState,
            OperationError::Operator(OperatorError::QuotaTooSmall(_)) => Refusal::BadArgument,
            OperationError::Operator(OperatorError::TooManyCells) => Refusal::TooMany,
            // A cell decodes no operation that can fail in other ways.
            OperationError::Operator(_) => Refusal::NoSuchCall,
        }
    }

    /// The error for the operator; `description` is that of the operation.
    pub(super) fn for_operator(self, description: &'static str) -> OperatorError {
        match self {
            OperationError::Memory(MemoryError::Refused(refusal)) => OperatorError::Refused(refusal),
            OperationError::Memory(MemoryError::Shortage(shortage)) => OperatorError::Shortage(shortage),
            OperationError::Memory(MemoryError::Absent(_)) => OperatorError::Disk(DiskError),
            OperationError::Memory(MemoryError::Taken(_)) => OperatorError::Refused(Refusal::Taken),
            OperationError::NoSuchCell(cell) => OperatorError::NoSuchCell(cell),
            OperationError::Ended { cell, end } => OperatorError::Ended { cell, end },
            OperationError::WrongState { cell, state, requirement } => {
                OperatorError::WrongState(WrongState { description, cell, state, remedy: requirement.remedy(state) })
            }
            // No operation of the operator concerns two cells.
            OperationError::PeerRuns { .. } => OperatorError::Refused(Refusal::WrongState),
            OperationError::Operator(error) => error,
        }
    }
}

impl From<MemoryError> for OperationError {
    fn from(error: MemoryError) -> OperationError {
        OperationError::Memory(error)
    }
}

impl From<Shortage> for OperationError {
    fn from(shortage: Shortage) -> OperationError {
        OperationError::Memory(MemoryError::Shortage(shortage))
    }
}

impl From<Refusal> for OperationError {
    fn from(refusal: Refusal) -> OperationError {
        OperationError::Memory(MemoryError::Refused(refusal))
    }
}

impl From<CopyError> for OperationError {
    fn from(error: CopyError) -> OperationError {
        match error {
            CopyError::Unreadable => OperationError::Operator(OperatorError::Disk(DiskError)),
            error => OperationError::Memory(error.into()),
        }
    }
}

impl From<OperatorError> for OperationError {
    fn from(error: OperatorError) -> OperationError {
        OperationError::Operator(error)
    }
}

/// An operation that the run state of its subject does not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongState {
    description: &'static str,
    /// The cell.
    pub cell: CellId,
    /// Its run state.
    pub state: RunState,
    remedy: &'static str,
}

impl fmt::Display for WrongState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WrongState { description, cell, state, remedy } = self;
        write!(f, "cannot {description} cell {cell}: it is {state}; {remedy}")
    }
}

/// Why an operator's call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OperatorError {
    /// The identifier is stale or invalid.
    #[error("there is no cell {0}: it was never created, or its outcome was already taken")]
    NoSuchCell(CellId),
    /// The run state of the cell does not allow the call.
    #[error("{0}")]
    WrongState(WrongState),
    /// The cell has ended, and its outcome was not taken yet.
    #[error("cell {cell} has ended ({end}); use another cell")]
    Ended {
        /// The cell.
        cell: CellId,
        /// Its end.
        end: End,
    },
    /// The cell has frozen, so it will not end by itself.
    #[error("the program has frozen itself into a template without a request, and will not exit: end the cell")]
    Froze,
    /// The kernel has the maximum number of cells.
    #[error("cannot create another cell: there are {MAX_CELLS} already; end some of them first")]
    TooManyCells,
    /// The quota is below the minimum.
    #[error("cannot create a cell with a memory quota of {0}: it needs at least {least}", least = PageCount(MIN_QUOTA))]
    QuotaTooSmall(PageCount),
    /// The arguments are invalid, or a limit of the cell is reached.
    #[error("the call about the cell was refused: {}", .0.cause().trim())]
    Refused(Refusal),
    /// There is not enough memory.
    #[error("{0}: {remedy}", remedy = remedy_of(*.0))]
    Shortage(Shortage),
    /// The memory is a block of a disk that cannot be read.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The kernel has the maximum number of networks.
    #[error("cannot add another network: there are {MAX_NETWORKS} already; remove some of them first")]
    TooManyNetworks,
    /// A network has this name already.
    #[error("there is a network called {0:?} already: choose another name, or plug into that one")]
    NameTaken(String),
    /// A port or a capture of the network is in use.
    #[error("cannot remove the network: it is in use; first end its cells, and drop its host ports and captures")]
    NetworkInUse,
    /// There is no such network, or all its addresses are in use.
    #[error("cannot plug into the network: it was removed, or all its addresses are in use; end some cells, or add another network")]
    NoAddress,
    /// The cell has a network card.
    #[error("cannot plug cell {0} into a network: it has a network card already; plug a clone instead")]
    PluggedIn(CellId),
    /// The kernel has the maximum number of disks.
    #[error("cannot add another disk: the kernel has its maximum already; remove some of them first")]
    TooManyDisks,
    /// The disk was never added, or was removed.
    #[error("there is no such disk: it was never added, or it was removed")]
    NoSuchDisk,
    /// A cell uses the disk.
    #[error("cannot remove the disk: cell {0} uses it; end the cell first")]
    DiskInUse(CellId),
    /// The image of a cell is invalid.
    #[error("cannot import the cell: its image is invalid: {0}; export it again")]
    Image(#[from] BadImage),
    /// The image of a cell needs another number of disks.
    #[error("cannot import the cell: it needs {wanted} disks, but {given} were given")]
    WrongDiskCount {
        /// Number of disks that it needs.
        wanted: usize,
        /// Number of disks that were given.
        given: usize,
    },
    /// A disk is not the one that an image of a cell needs.
    #[error("cannot import the cell: disk {index} has {blocks} blocks, but the cell needs the one with {wanted}")]
    WrongDisk {
        /// Its index in the cell.
        index: usize,
        /// Number of blocks of the right disk.
        wanted: u64,
        /// Number of blocks of this disk.
        blocks: u64,
    },
    /// The cell cannot sleep.
    #[error("cannot put cell {cell} to sleep: {reason}")]
    CannotSleep {
        /// The cell.
        cell: CellId,
        /// The reason.
        reason: &'static str,
    },
    /// Swap space does not take the memory of a cell.
    #[error("cannot put cell {cell} to sleep: {error}")]
    Swap {
        /// The cell.
        cell: CellId,
        /// The failure.
        error: SwapError,
    },
    /// Another watcher watches the cell.
    #[error("cannot watch cell {0}: another debugger has it; detach that one first")]
    Watched(CellId),
    /// The sink of an export has stopped it.
    #[error("the export was stopped by its receiver")]
    Stopped,
}

/// The operator's remedy for a shortage.
fn remedy_of(shortage: Shortage) -> &'static str {
    match shortage {
        Shortage::Quota => "give the cell a larger one",
        Shortage::Machine => "end other cells, or start with more memory",
    }
}
