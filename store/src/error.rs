// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of saving and loading templates.

use pando_kernel::OperatorError;
use std::io;
use std::path::PathBuf;

/// The reason why a template was not saved or loaded.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The host did not let the file be written; an earlier file at its path is unchanged.
    #[error("cannot write the template to {}: {source}", path.display())]
    Write {
        /// The target path.
        path: PathBuf,
        /// The host's error.
        source: io::Error,
    },
    /// The host did not let the file be read.
    #[error("cannot read the template from {}: {source}", path.display())]
    Read {
        /// The path.
        path: PathBuf,
        /// The host's error.
        source: io::Error,
    },
    /// The file is of another kind.
    #[error("{} is not a template that `pando template save` wrote", path.display())]
    Other {
        /// The path.
        path: PathBuf,
    },
    /// Another version of this program wrote it.
    #[error("{} was saved in format {found}, but this program reads format {known}: make the template again", path.display())]
    Version {
        /// The path.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The format that is known here.
        known: u32,
    },
    /// The file differs from what was written.
    #[error("{} is damaged: {what}; make the template again", path.display())]
    Damaged {
        /// The path.
        path: PathBuf,
        /// The damage.
        what: &'static str,
    },
    /// The CPU lacks features that programs in the template may have begun to use.
    #[error("the template was started on a CPU with {missing}, which this machine lacks: make it again here")]
    Cpu {
        /// The names of the missing features.
        missing: String,
    },
    /// The kernel could not export or import it.
    #[error(transparent)]
    Kernel(#[from] OperatorError),
}
