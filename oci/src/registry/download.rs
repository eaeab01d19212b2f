// SPDX-License-Identifier: MIT OR Apache-2.0
//! Downloads of layers, which continue where they were interrupted.

use super::{RETRIES, Repository};
use crate::digest::Digest;
use crate::error::{Error, plain};
use crate::scratch::Scratch;
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File};
use std::io::{Read, Seek};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Bytes per copy.
const PIECE: usize = 1 << 16;
/// The free room is checked after this many bytes.
const CHECKED_EVERY: u64 = 16 << 20;

/// A blob that is downloaded to a file of its own. The file stays if the download fails, and the next one continues it.
pub(crate) struct Download {
    path: PathBuf,
    file: File,
    digest: Digest,
    size: u64,
}

impl Download {
    /// Opens the file for a blob, and waits until no other process downloads it.
    pub(crate) fn open(directory: &Path, digest: Digest, size: u64) -> Result<Download, Error> {
        let path = directory.join(format!("{}.part", digest.hex()));
        let failed = Error::write(&path);
        loop {
            let file = File::options().read(true).write(true).create(true).truncate(false).open(&path).map_err(&failed)?;
            flock(&file, FlockOperation::LockExclusive).map_err(|errno| failed(errno.into()))?;
            // Another process may have finished, and removed the file that was opened.
            let is_same = |named: fs::Metadata, opened: fs::Metadata| {
                std::os::unix::fs::MetadataExt::ino(&named) == std::os::unix::fs::MetadataExt::ino(&opened)
            };
            if let (Ok(named), Ok(opened)) = (fs::metadata(&path), file.metadata())
                && is_same(named, opened)
            {
                return Ok(Download { path, file, digest, size });
            }
        }
    }

    /// Downloads what is missing. `progress` receives each number of bytes that arrived, and what was there already.
    pub(crate) fn complete(&self, repository: &Repository, scratch: &Scratch, progress: &dyn Fn(u64)) -> Result<(), Error> {
        let failed = Error::write(&self.path);
        let mut offset = self.file.metadata().map_err(&failed)?.len();
        if offset > self.size {
            self.file.set_len(0).map_err(&failed)?;
            offset = 0;
        }
        progress(offset);
        let (mut retries, mut before) = (0, offset);
        while offset < self.size {
            let problem = match repository.open_blob(self.digest, offset) {
                Ok((stream, continues)) => {
                    if !continues && offset > 0 {
                        // The registry sends all of it again.
                        self.file.set_len(0).map_err(&failed)?;
                        offset = 0;
                    }
                    self.receive(stream, &mut offset, scratch, progress)?
                }
                Err(error) => return Err(error),
            };
            if offset > before {
                (retries, before) = (0, offset);
            }
            if offset < self.size {
                if retries >= RETRIES {
                    return Err(repository.error(format!("layer {}: {problem}", self.digest)));
                }
                repository.wait(&mut retries);
            }
        }
        Ok(())
    }

    /// Writes a stream to the file from an offset on, until it ends or breaks. Returns the reason.
    fn receive(&self, mut stream: impl Read, offset: &mut u64, scratch: &Scratch, progress: &dyn Fn(u64)) -> Result<String, Error> {
        let failed = Error::write(&self.path);
        let mut buffer = vec![0; PIECE];
        let mut checked = u64::MAX;
        loop {
            if checked >= CHECKED_EVERY {
                scratch.check_room(&self.file)?;
                checked = 0;
            }
            // A byte more than is expected shows that there is too much.
            let most = usize::try_from(self.size - *offset + 1).unwrap_or(usize::MAX).min(PIECE);
            let count = match stream.read(&mut buffer[..most]) {
                Ok(0) => return Ok("the connection ended too early".into()),
                Ok(count) => count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Ok(plain(&error)),
            };
            if count as u64 > self.size - *offset {
                self.discard();
                return Err(Error::damaged(&self.digest.to_string(), format!("it has more than {} bytes", self.size)));
            }
            self.file.write_all_at(&buffer[..count], *offset).map_err(&failed)?;
            *offset += count as u64;
            checked += count as u64;
            progress(count as u64);
            if *offset == self.size {
                return Ok(String::new());
            }
        }
    }

    /// The file, from its start.
    pub(crate) fn content(&self) -> Result<&File, Error> {
        (&self.file).rewind().map_err(Error::read(&self.path))?;
        Ok(&self.file)
    }

    /// Removes the file: its content is stored, or is not what it should be.
    pub(crate) fn discard(&self) {
        // A file that cannot be removed is continued or replaced later.
        let _ = fs::remove_file(&self.path);
    }
}
