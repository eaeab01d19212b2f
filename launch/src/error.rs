// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of launching programs.

use pando_kernel::OperatorError;
use std::io::ErrorKind;

/// An error of launching a program in a cell.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The kernel refused a request.
    #[error(transparent)]
    Kernel(#[from] OperatorError),
    /// The kernel that runs this process's own cell refused a request about a nested cell.
    #[error(transparent)]
    Nested(std::io::Error),
    /// The root image could not be written.
    #[error(transparent)]
    Image(#[from] pando_image::Error),
    /// The embedded libOS is damaged, or was built for another interface version.
    #[error("the libOS in this build cannot be used: {0}")]
    LibOs(&'static str),
    /// The arguments and the environment are too long.
    #[error("the arguments and the environment have {given} bytes; the limit is {most}: pass less of the environment")]
    ArgumentsTooLong {
        /// Their size.
        given: usize,
        /// The limit.
        most: usize,
    },
    /// An argument or a variable contains a zero byte.
    #[error("an argument or an environment variable contains a zero byte")]
    ZeroByte,
    /// The cell has the maximal number of jobs.
    #[error("the cell already runs {most} additional programs: wait until one of them ends")]
    TooManyJobs {
        /// The limit.
        most: usize,
    },
    /// The cell has ended or is frozen.
    #[error("cannot start another program in the cell: it has ended, or it is a template; use another cell")]
    CellEnded,
    /// A thread cannot be started.
    #[error("cannot start a thread for the programs of a cell: {0}")]
    Thread(std::io::Error),
    /// There are more volumes than a cell has slots for.
    #[error("cannot mount {given} volumes: the limit is {most}")]
    TooManyVolumes {
        /// The number of volumes.
        given: usize,
        /// The limit.
        most: usize,
    },
    /// The mount points of the volumes are too long.
    #[error(
        "the mount points of the volumes have {given} bytes; the limit is {most}: pass less of the environment: mount them at shorter paths"
    )]
    MountPointsTooLong {
        /// Their size.
        given: usize,
        /// The limit.
        most: usize,
    },
    /// A volume is larger than a slot.
    #[error("the image for '{}' exceeds the limit of 512 GiB: split it", .0.escape_ascii())]
    VolumeTooLarge(Vec<u8>),
}

impl LaunchError {
    /// Whether the state of the cell did not allow the request: it may allow it later.
    #[must_use]
    pub fn is_wrong_state(&self) -> bool {
        match self {
            LaunchError::Kernel(error) => matches!(error, OperatorError::WrongState(_)),
            LaunchError::Nested(error) => error.kind() == ErrorKind::WouldBlock,
            _ => false,
        }
    }
}
