// SPDX-License-Identifier: MIT OR Apache-2.0
//! A file that a job reads or writes itself, with no process and no program: the operator's way to files of the cell.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use pando_abi::control::Start;
use pando_rt::clock;

use super::orders::Wanted;
use crate::credentials::Credentials;
use crate::errno::Errno;
use crate::files::names::{CURRENT, Way};
use crate::files::status::time;
use crate::files::{Files, Kind, Own, flag};

/// The descriptor of the file.
const FD: u64 = 0;
/// Permissions of a file that is made, without those that the mask takes.
const MODE: u64 = 0o666;

/// An open regular file, and where in it the job is.
#[derive(Debug)]
pub struct File {
    own: Own,
    path: Vec<u8>,
    offset: u64,
    /// It is written, not read.
    pub writes: bool,
}

impl File {
    /// Opens a file as a user would; one that is written is made, or emptied.
    ///
    /// # Errors
    /// Those of `open`; `EINVAL`: it is no regular file.
    pub fn open(files: &mut Files, start: Start, wanted: &Wanted, writes: bool) -> Result<File, Errno> {
        let own = files.own_of(Credentials::new(start.user, start.group), clock::wall());
        let mut file = File { own, path: wanted.path.clone(), offset: 0, writes };
        let opened = files.with_own(&mut file.own, |files| {
            let root = files.own.root;
            let standing = files.find(CURRENT, &wanted.directory, Way::FOLLOW).and_then(|place| files.change_directory(place));
            let opened = standing.and_then(|()| open(files, &wanted.path, writes));
            files.change_directory(root).and(opened)
        });
        opened.map(|()| file)
    }

    /// Copies what comes next, and keeps its place. Returns how many bytes; 0: it ends here.
    ///
    /// # Errors
    /// `EIO`.
    pub fn peek(&mut self, files: &mut Files, room: &mut [u8]) -> Result<usize, Errno> {
        let offset = self.offset;
        files.with_own(&mut self.own, |files| files.fetch(FD, offset, room))
    }

    /// Goes on behind so many bytes.
    pub fn skip(&mut self, bytes: usize) {
        self.offset += bytes as u64;
    }

    /// Writes bytes at its end. Returns how many.
    ///
    /// # Errors
    /// `ENOSPC`, `EFBIG`, `EIO`.
    pub fn write(&mut self, files: &mut Files, bytes: &[u8]) -> Result<usize, Errno> {
        let done = files.with_own(&mut self.own, |files| files.put(FD, None, bytes, clock::wall()))?;
        if done == 0 { Err(Errno::ENOSPC) } else { Ok(done) }
    }

    /// Lets go of it.
    pub fn close(mut self, files: &mut Files) {
        // It is open.
        let _ = files.with_own(&mut self.own, |files| files.close(FD));
    }

    /// What is said of an error.
    #[must_use]
    pub fn complaint(&self, error: Errno) -> Vec<u8> {
        complaint(&self.path, error)
    }
}

/// What is said of an error with a path.
#[must_use]
pub fn complaint(path: &[u8], error: Errno) -> Vec<u8> {
    format!("pando: {}: {}\n", String::from_utf8_lossy(path), error.text()).into_bytes()
}

fn open(files: &mut Files, path: &[u8], writes: bool) -> Result<(), Errno> {
    let flags = if writes { flag::WRITE_ONLY | flag::CREATE | flag::TRUNCATE } else { flag::READ_ONLY };
    // Who opens a FIFO does not wait for its other end.
    let file = files.open_path(CURRENT, path, flags | flag::NON_BLOCKING, MODE, 0, time(clock::wall()))?;
    let checked = match file.kind {
        Kind::Image(..) | Kind::Node(_) => Ok(()),
        Kind::Directory(_) => Err(Errno::EISDIR),
        _ => Err(Errno::EINVAL),
    };
    let fd = files.insert(file, true)?;
    if checked.is_err() {
        files.close(fd)?;
    }
    checked
}
