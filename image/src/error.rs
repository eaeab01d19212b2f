// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why an image could not be built, or a block of it not be read.

use std::{io, path::PathBuf};

use crate::escape::escaped;

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
    /// A hard link's target is not there, or cannot have another name.
    #[error("cannot add the hard link '{path}' to the image: '{target}' {reason}")]
    HardLink {
        /// The link's path.
        path: String,
        /// What it should stand for.
        target: String,
        /// Why it cannot.
        reason: &'static str,
    },
    /// The host refused a file or directory.
    #[error("cannot read '{}': {source}", escaped(path))]
    Host {
        /// The file on the host.
        path: PathBuf,
        /// What the host said.
        source: io::Error,
    },
    /// The host refused to write a file.
    #[error("cannot write '{}': {source}", escaped(path))]
    Write {
        /// The file on the host.
        path: PathBuf,
        /// What the host said.
        source: io::Error,
    },
    /// A directory or device on the host was given as a file's source.
    #[error("'{}' is not a regular file", escaped(.0))]
    NotAFile(PathBuf),
    /// What was given as a file's source is made up by the host's kernel.
    #[error("cannot read '{}' as a file: it shows the state of the host's kernel, made up whenever it is read; copy what you need to a file", escaped(.0))]
    Kernel(PathBuf),
    /// A file on the host is not what it was when it was added.
    #[error("'{}' changed while the image was built; try again when nothing writes to it", escaped(.0))]
    Changed(PathBuf),
    /// A directory holds more than the caller wants to look at.
    #[error("'{}' holds more than {limit} files and directories", escaped(path))]
    TooMany {
        /// The directory on the host.
        path: PathBuf,
        /// How many were allowed.
        limit: u64,
    },
    /// An archive is damaged, or something that is not understood.
    #[error("cannot read the archive '{}': {problem}", escaped(path))]
    Archive {
        /// The archive on the host.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// A file that should be an image is none, or one that is not understood.
    #[error("'{}' cannot be used as an image: {problem}", escaped(path))]
    NotAnImage {
        /// The file on the host, or the path inside of an image.
        path: PathBuf,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// More names than can be numbered.
    #[error("the image would have more than 4 GiB of names")]
    TooManyNames,
    /// Block numbers do not reach so far.
    #[error("the image would have {blocks} blocks of 4 KiB; the format's limit is 16 TiB")]
    TooLarge {
        /// The blocks that the image would have.
        blocks: u64,
    },
    /// A block of an image could not be read.
    #[error(transparent)]
    Block(BlockError),
}

/// Why blocks of an image could not be read.
#[derive(Debug, thiserror::Error)]
pub enum BlockError {
    /// The image ends before.
    #[error("block {block} of an image that has {blocks}")]
    Outside {
        /// The first block that is not there.
        block: u64,
        /// How many there are.
        blocks: u64,
    },
    /// A file on the host is not what it was when the image was made.
    #[error("'{}' has changed: what it held can no longer be read", escaped(.0))]
    Changed(PathBuf),
    /// The host refused a file.
    #[error("cannot read '{}': {source}", escaped(path))]
    Host {
        /// The file on the host.
        path: PathBuf,
        /// What the host said.
        source: io::Error,
    },
    /// A file with an image was cut or altered.
    #[error("the image is damaged: {0}")]
    Damaged(&'static str),
}

impl From<BlockError> for Error {
    fn from(error: BlockError) -> Self {
        match error {
            BlockError::Changed(path) => Error::Changed(path),
            BlockError::Host { path, source } => Error::Host { path, source },
            other => Error::Block(other),
        }
    }
}
