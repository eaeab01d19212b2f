// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies of streams in temporary files, with bounds.

use crate::error::{Error, plain};
use crate::limits::{DECOMPRESSED_MAX, FREE_MIN};
use rustix::fs::fstatvfs;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Bytes per copy.
const PIECE: usize = 1 << 16;
/// The free room is checked after this many pieces.
const CHECKED_EVERY: usize = 256;

/// Where temporary files are, and how large one may become.
#[derive(Clone, Debug)]
pub(crate) struct Scratch {
    directory: PathBuf,
    /// Maximal bytes of a file.
    pub(crate) max: u64,
    /// Bytes that stay free on its file system.
    pub(crate) free_min: u64,
}

impl Scratch {
    pub(crate) fn new(directory: &Path) -> Scratch {
        Scratch { directory: directory.into(), max: DECOMPRESSED_MAX, free_min: FREE_MIN }
    }

    /// The directory of temporary files.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Copies a stream to a nameless file. Pieces of zeros become holes. `name` stands in errors; `progress` receives the bytes so far.
    pub(crate) fn copy(&self, name: &str, stream: &mut dyn Read, progress: &mut dyn FnMut(u64)) -> Result<File, Error> {
        let failed = Error::write(&self.directory);
        let file = tempfile::tempfile_in(&self.directory).map_err(&failed)?;
        let (mut buffer, mut length) = (vec![0; PIECE], 0_u64);
        for number in 0_usize.. {
            if number.is_multiple_of(CHECKED_EVERY) {
                self.check_room(&file)?;
            }
            let count = read_full(stream, &mut buffer).map_err(|error| Error::damaged(name, plain(&error)))?;
            if count == 0 {
                break;
            }
            if length + count as u64 > self.max {
                return Err(Error::damaged(name, format!("it has more than {} bytes when it is decompressed", self.max)));
            }
            if buffer[..count].iter().any(|byte| *byte != 0) {
                file.write_all_at(&buffer[..count], length).map_err(&failed)?;
            }
            length += count as u64;
            progress(length);
        }
        file.set_len(length).map_err(&failed)?;
        Ok(file)
    }

    /// Refuses to fill the host's disk.
    pub(crate) fn check_room(&self, file: &File) -> Result<(), Error> {
        self.room(file).map_err(Error::write(&self.directory))
    }

    /// The same, with the host's error.
    pub(crate) fn room(&self, file: &File) -> io::Result<()> {
        let status = fstatvfs(file)?;
        if status.f_bavail.saturating_mul(status.f_frsize) < self.free_min {
            return Err(io::Error::other(format!("less than {} MiB would be left on its file system", self.free_min >> 20)));
        }
        Ok(())
    }
}

/// Reads until the buffer is full or the stream ends.
fn read_full(stream: &mut dyn Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match stream.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
