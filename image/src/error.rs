// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why an image could not be built.

use std::{io, path::PathBuf};

/// Why an image could not be built. Paths inside the image are given with bytes that are not ASCII escaped.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A path inside the image cannot be.
    #[error("cannot add '{path}' to the image: {reason}")]
    Path {
        /// The path.
        path: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The same path was added twice.
    #[error("cannot add '{path}' to the image: it is there already")]
    Duplicate {
        /// The path.
        path: String,
    },
    /// A path leads through a file or a link.
    #[error("cannot add '{path}' to the image: '{ancestor}' is not a directory")]
    NotADirectory {
        /// The path.
        path: String,
        /// The part of it that is no directory.
        ancestor: String,
    },
    /// A symbolic link's target is empty, has a NUL or is too long.
    #[error("cannot add the link '{path}' to the image: its target must have 1 to 4095 bytes and no NUL")]
    Target {
        /// The link's path.
        path: String,
    },
    /// The host refused a file.
    #[error("cannot read '{}'", path.display())]
    Host {
        /// The file on the host.
        path: PathBuf,
        /// What the host said.
        source: io::Error,
    },
    /// A directory or device on the host was given as a file's source.
    #[error("'{}' is not a regular file", .0.display())]
    NotAFile(PathBuf),
    /// A file on the host is not what it was when it was added.
    #[error("'{}' changed while the image was built; try again when nothing writes to it", .0.display())]
    Changed(PathBuf),
    /// Block numbers do not reach so far.
    #[error("the image would have {blocks} blocks of 4 KiB; the format's limit is 16 TiB")]
    TooLarge {
        /// The blocks that the image would have.
        blocks: u64,
    },
}
