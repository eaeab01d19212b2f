// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sources of file content.

use std::path::{Path, PathBuf};

use rustix::fs::{FileType, OFlags};

use crate::{
    Attributes, Error,
    file_systems::shows_kernel,
    host_stat::{attributes, lstat, open_at},
    version::Version,
};

/// The source of a file's content.
#[derive(Clone, Debug)]
pub enum Source {
    /// Memory.
    Bytes(Vec<u8>),
    /// A file of the host, read when its blocks are.
    Host(HostFile),
}

impl<T: Into<Vec<u8>>> From<T> for Source {
    fn from(bytes: T) -> Self {
        Source::Bytes(bytes.into())
    }
}

impl From<HostFile> for Source {
    fn from(file: HostFile) -> Self {
        Source::Host(file)
    }
}

/// A regular file of the host in its present version; reading it after a change is an error.
#[derive(Clone, Debug)]
pub struct HostFile {
    path: PathBuf,
    attributes: Attributes,
    pub(crate) version: Version,
}

impl HostFile {
    /// The file at `path`, following symbolic links.
    ///
    /// # Errors
    /// [`Error::Host`] if it cannot be read, [`Error::NotAFile`] if it is not a regular file, [`Error::Kernel`] if its content is
    /// generated.
    pub fn new(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let failed = |source| Error::Host { path: path.into(), source };
        let real = path.canonicalize().map_err(failed)?;
        let stat = lstat(&real).map_err(|errno| failed(errno.into()))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(Error::NotAFile(path.into()));
        }
        if shows_kernel(&real).map_err(failed)? {
            return Err(Error::Kernel(path.into()));
        }
        // Opened now, so that an unreadable file is reported at once.
        open_at(&real, OFlags::empty()).map_err(|errno| failed(errno.into()))?;
        Ok(HostFile { path: real, attributes: attributes(&stat), version: Version::of(&stat) })
    }

    /// The file on the host, links resolved.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The attributes that the file has on the host.
    #[must_use]
    pub fn attributes(&self) -> Attributes {
        self.attributes
    }
}
