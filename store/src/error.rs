// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a template was not saved or loaded.

use pando_kernel::OperatorError;
use std::io;
use std::path::PathBuf;

/// Why a template was not saved or loaded.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The host did not let the file be written; what was at its place before is still there.
    #[error("cannot write the template to {}: {source}", path.display())]
    Write {
        /// Where to.
        path: PathBuf,
        /// What the host says.
        source: io::Error,
    },
    /// The host did not let the file be read.
    #[error("cannot read the template from {}: {source}", path.display())]
    Read {
        /// Where from.
        path: PathBuf,
        /// What the host says.
        source: io::Error,
    },
    /// It is a file of another kind.
    #[error("{} is no saved template", path.display())]
    Other {
        /// Which.
        path: PathBuf,
    },
    /// Another version of this program wrote it.
    #[error("{} was saved in format {found}, and this program reads format {known}: it has to be made anew", path.display())]
    Version {
        /// Which.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The format that is known here.
        known: u32,
    },
    /// Not all of it is as it was written.
    #[error("{} is damaged: {what}; it has to be made anew", path.display())]
    Damaged {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The CPU lacks what programs in the template may have begun to use.
    #[error("the template was started on a CPU with {missing}, which this machine does not have: save it anew here")]
    Cpu {
        /// The names of what is missing.
        missing: String,
    },
    /// The kernel could not export or import it.
    #[error(transparent)]
    Kernel(#[from] OperatorError),
}
