// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a file's data comes from.

use std::{
    fs::{self, File},
    io::{self, Read},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use crate::{
    Attributes, Error, Time,
    layout::{PIECE_SIZE, Sink},
};

/// Where a file's data comes from.
#[derive(Clone, Debug)]
pub enum Source {
    /// Memory.
    Bytes(Vec<u8>),
    /// A file of the host, read when the image is written.
    Host(HostFile),
}

impl Default for Source {
    /// No data.
    fn default() -> Self {
        Source::Bytes(Vec::new())
    }
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

impl Source {
    /// The data's size in bytes.
    pub fn size(&self) -> u64 {
        match self {
            Source::Bytes(bytes) => bytes.len() as u64,
            Source::Host(file) => file.version.size,
        }
    }

    /// Hands the data to `sink` in pieces that fit into `buffer`, each with its offset in the data.
    pub(crate) fn read<E: From<Error>>(&self, buffer: &mut [u8], sink: &mut Sink<'_, E>) -> Result<(), E> {
        match self {
            Source::Bytes(bytes) => {
                (0..).step_by(PIECE_SIZE).zip(bytes.chunks(PIECE_SIZE)).try_for_each(|(offset, piece)| sink(offset, piece))
            }
            Source::Host(file) => file.read(buffer, sink),
        }
    }
}

/// A regular file of the host as it was when it was looked at; if it has changed when it is read, that is an error.
#[derive(Clone, Debug)]
pub struct HostFile {
    path: PathBuf,
    attributes: Attributes,
    version: Version,
}

/// What tells one content of a host file from another without reading it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Version {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Version {
    fn of(metadata: &fs::Metadata) -> Self {
        Version {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

impl HostFile {
    /// Looks at the file that `path` names, through symbolic links.
    ///
    /// # Errors
    /// [`Error::Host`] if it cannot be looked at, [`Error::NotAFile`] if it is not a regular file.
    pub fn new(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let metadata = fs::metadata(path).map_err(|source| Error::Host { path: path.into(), source })?;
        if !metadata.is_file() {
            return Err(Error::NotAFile(path.into()));
        }
        let modified = Time { seconds: metadata.mtime(), nanoseconds: metadata.mtime_nsec() as u32 };
        let permissions = (metadata.mode() & 0o7777) as u16;
        let attributes = Attributes { permissions, uid: metadata.uid(), gid: metadata.gid(), modified };
        Ok(HostFile { path: path.into(), attributes, version: Version::of(&metadata) })
    }

    /// The file on the host.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The attributes that the file has on the host.
    pub fn attributes(&self) -> Attributes {
        self.attributes
    }

    fn read<E: From<Error>>(&self, buffer: &mut [u8], sink: &mut Sink<'_, E>) -> Result<(), E> {
        let mut file = File::open(&self.path).map_err(|error| self.host_error(error))?;
        self.check(&file)?;
        let mut offset = 0;
        while offset < self.version.size {
            let rest = usize::try_from(self.version.size - offset).unwrap_or(usize::MAX);
            let length = rest.min(buffer.len());
            let piece = &mut buffer[..length];
            file.read_exact(piece).map_err(|error| self.host_error(error))?;
            sink(offset, piece)?;
            offset += piece.len() as u64;
        }
        // Whoever wrote to it meanwhile has moved its times: what was read is one content and not a mixture.
        Ok(self.check(&file)?)
    }

    fn check(&self, file: &File) -> Result<(), Error> {
        let metadata = file.metadata().map_err(|error| self.host_error(error))?;
        if Version::of(&metadata) == self.version { Ok(()) } else { Err(Error::Changed(self.path.clone())) }
    }

    fn host_error(&self, source: io::Error) -> Error {
        match source.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::NotFound => Error::Changed(self.path.clone()),
            _ => Error::Host { path: self.path.clone(), source },
        }
    }
}
