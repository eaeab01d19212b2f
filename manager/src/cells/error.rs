// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of requests to the manager.

use crate::machine::MachineError;
use crate::network::NetworkError;
use crate::template::TemplateError;
use pando_kernel::OperatorError;
use pando_launch::LaunchError;
use pando_machine::PageCount;
use std::io;
use std::path::PathBuf;

/// Why the manager refuses a request.
#[derive(Debug, thiserror::Error)]
pub enum ManagerError {
    /// The cells and templates use all memory.
    #[error("not enough memory: the cells and templates of this service use all of its {0}")]
    MemoryFull(PageCount),
    /// All gateways are in use.
    #[error("all {0} gateways of this service are in use")]
    NoGateway(usize),
    /// The service does not lead clients to cells by name.
    #[error("this service has no address for cells that are reached by name")]
    NoVirtualHosts,
    /// A cell cannot be reached by name and have a network of its own.
    #[error(
        "a cell that is reached by name has no other network: give --publish HOST:CELL instead of --publish PORT, or omit --allow and --network"
    )]
    TwoNetworks,
    /// The templates of running cells keep too many files open.
    #[error("too many open files: the templates of running clones have reached their limit")]
    TooManyFiles,
    /// A service in a cell does not support this.
    #[error(
        "{0}: a service in a cell keeps templates in memory, shows the files of its cell as they were at its start, and has no network: omit this"
    )]
    NotInside(&'static str),
    /// A service in a cell does not have this operation.
    #[error("a service in a cell has no {0}: it does not own the kernel; ask the service outside")]
    UnsupportedInCell(&'static str),
    /// There is no such cell.
    #[error("there is no cell {0}")]
    NoSuchCell(String),
    /// The cell runs no additional program of this number.
    #[error("cell {cell} runs no program {number}: it has ended, or never existed")]
    NoSuchProgram {
        /// The cell.
        cell: u64,
        /// The number.
        number: u32,
    },
    /// A living cell has the requested name.
    #[error("cannot name a cell {name}: {}", .cell.map_or("another one of this name is starting".into(), |cell| format!("cell {cell} has this name")))]
    NameInUse {
        /// The name.
        name: String,
        /// The cell; `None` if it is being started.
        cell: Option<u64>,
    },
    /// The cell has ended.
    #[error("cannot {action} cell {cell}: it has ended")]
    Ended {
        /// The cell.
        cell: u64,
        /// The verb of the request.
        action: &'static str,
    },
    /// The cell's program did not freeze in time, and continues.
    #[error("cannot freeze cell {cell}: its program was not ready within {seconds} seconds, and continues")]
    NotFrozen {
        /// The cell.
        cell: u64,
        /// The time limit.
        seconds: u64,
    },
    /// The cell's programs run without a pause.
    #[error(
        "cannot fork cell {cell}: its programs have not paused within {seconds} seconds; wait until all of them wait for input or time"
    )]
    NotIdle {
        /// The cell.
        cell: u64,
        /// The time limit.
        seconds: u64,
    },
    /// The cell cannot sleep.
    #[error("cannot put cell {cell} to sleep: {reason}")]
    CannotSleep {
        /// The cell.
        cell: u64,
        /// The reason.
        reason: String,
    },
    /// The cell's state does not allow it.
    #[error("cannot {action} cell {cell}: {reason}")]
    NotPossible {
        /// The verb of the request.
        action: &'static str,
        /// The cell.
        cell: u64,
        /// The reason, and what to do.
        reason: &'static str,
    },
    /// A swap file cannot be created.
    #[error("cannot create a swap file in {}: {error}", .directory.display())]
    Swap {
        /// The directory.
        directory: PathBuf,
        /// The host's error.
        error: io::Error,
    },
    /// A template cannot be used.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// A template cannot be created.
    #[error("{error}; its output:\n{output}")]
    Creation {
        /// The reason.
        error: TemplateError,
        /// The last output of its program.
        output: String,
    },
    /// A network or a gateway cannot be created.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// A cell cannot be created.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// The kernel cannot be started.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// A thread cannot be started.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    /// A part of the manager has ended.
    #[error("{0}")]
    Internal(String),
}

impl ManagerError {
    /// An error of a part of the manager that has ended or panicked.
    pub(crate) fn internal(error: impl std::fmt::Display) -> ManagerError {
        ManagerError::Internal(error.to_string())
    }
}

impl From<OperatorError> for ManagerError {
    fn from(error: OperatorError) -> ManagerError {
        LaunchError::from(error).into()
    }
}
