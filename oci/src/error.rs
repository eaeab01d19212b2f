// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of container images.

use crate::Digest;
use pando_image::escaped;
use std::io;
use std::path::{Path, PathBuf};

/// An error of loading, finding or removing a container image.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The host refuses to read a file.
    #[error("cannot read {}: {}", escaped(path), plain(source))]
    Read {
        /// The file.
        path: PathBuf,
        /// The host's error.
        source: io::Error,
    },
    /// The host refuses to write a file.
    #[error("cannot write {}: {}", escaped(path), plain(source))]
    Write {
        /// The file.
        path: PathBuf,
        /// The host's error.
        source: io::Error,
    },
    /// A file or directory is no container image.
    #[error("{} is not a container image: {}", escaped(path), escaped(found))]
    NotAnImage {
        /// The file.
        path: PathBuf,
        /// The content that was found instead.
        found: String,
    },
    /// A container image is damaged, or hostile.
    #[error("cannot load {}: {}", escaped(origin), escaped(problem))]
    Damaged {
        /// The archive, directory or reference.
        origin: String,
        /// The reason.
        problem: String,
    },
    /// A container image needs what Pando does not have.
    #[error("cannot load {}: {}", escaped(origin), escaped(problem))]
    Unsupported {
        /// The archive, directory or reference.
        origin: String,
        /// The reason.
        problem: String,
    },
    /// Content does not have its digest.
    #[error("cannot load {}: {} has the digest {found} instead of {expected}", escaped(origin), escaped(part))]
    Mismatch {
        /// The archive, directory or reference.
        origin: String,
        /// The part of it.
        part: String,
        /// The digest that it should have.
        expected: Digest,
        /// The digest that it has.
        found: Digest,
    },
    /// A registry cannot be reached, or refuses.
    #[error("cannot pull {}: {}", escaped(name), escaped(problem))]
    Registry {
        /// The image's name.
        name: String,
        /// The reason.
        problem: String,
    },
    /// There is no such image in the store.
    #[error("there is no image `{}`", escaped(.0))]
    Missing(String),
    /// An abbreviated ID belongs to several images.
    #[error("several images have an ID that begins with `{0}`")]
    Ambiguous(String),
    /// A name is not valid.
    #[error("`{}` is not a valid image name: {reason}", escaped(name))]
    Name {
        /// The name.
        name: String,
        /// The reason.
        reason: String,
    },
    /// An image has several names, so its ID does not say which to remove.
    #[error("image {} has several names ({})", .id, escaped(names.join(", ")))]
    SeveralNames {
        /// The abbreviated ID.
        id: String,
        /// The names.
        names: Vec<String>,
    },
    /// An image is in use.
    #[error("image `{}` is in use: {user}", escaped(name))]
    InUse {
        /// The image, as it was named.
        name: String,
        /// The user.
        user: String,
    },
    /// Another process loads an image.
    #[error("another process loads an image at present")]
    Busy,
    /// The layers of an image cannot be read or made.
    #[error(transparent)]
    Image(#[from] pando_image::Error),
}

impl Error {
    pub(crate) fn read(path: &Path) -> impl Fn(io::Error) -> Error + use<> {
        let path = path.to_path_buf();
        move |source| Error::Read { path: path.clone(), source }
    }

    pub(crate) fn write(path: &Path) -> impl Fn(io::Error) -> Error + use<> {
        let path = path.to_path_buf();
        move |source| Error::Write { path: path.clone(), source }
    }

    pub(crate) fn damaged(origin: &str, problem: impl Into<String>) -> Error {
        Error::Damaged { origin: origin.into(), problem: problem.into() }
    }

    pub(crate) fn unsupported(origin: &str, problem: impl Into<String>) -> Error {
        Error::Unsupported { origin: origin.into(), problem: problem.into() }
    }
}

/// The error's text without its number.
pub(crate) fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    match text.split_once(" (os error") {
        Some((text, _)) => text.to_lowercase(),
        None => text,
    }
}
