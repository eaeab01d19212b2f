// SPDX-License-Identifier: MIT OR Apache-2.0
//! What can go wrong between a program and its cell.

use pando_kernel::OperatorError;

/// A program could not be brought into a cell.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The kernel refused something.
    #[error(transparent)]
    Kernel(#[from] OperatorError),
    /// The root image could not be written.
    #[error(transparent)]
    Image(#[from] pando_image::Error),
    /// The libOS that this program carries is damaged, or was built for another interface.
    #[error("the libOS in this build cannot be used: {0}")]
    LibOs(&'static str),
    /// The arguments and the environment do not fit.
    #[error("the arguments and the environment take {given} bytes; a cell takes {most}")]
    ArgumentsTooLong {
        /// What they take.
        given: usize,
        /// What there is room for.
        most: usize,
    },
    /// An argument or a variable holds a zero byte.
    #[error("an argument or an environment variable holds a zero byte")]
    ZeroByte,
    /// The cell has as many jobs as it may have.
    #[error("the cell runs {most} programs beside its first one already: wait for one of them")]
    TooManyJobs {
        /// How many it may have.
        most: usize,
    },
    /// The host has no thread for what has to wait.
    #[error("the host has no thread for the programs of a cell: {0}")]
    Thread(std::io::Error),
    /// There are more volumes than a cell has slots for.
    #[error("{given} volumes are too many: a cell takes {most}")]
    TooManyVolumes {
        /// How many were given.
        given: usize,
        /// How many there may be.
        most: usize,
    },
    /// A volume has more than a slot can show.
    #[error("the image for '{}' is larger than the 512 GiB that a cell can see of one: split it", .0.escape_ascii())]
    VolumeTooLarge(Vec<u8>),
}
