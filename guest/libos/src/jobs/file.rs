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
use crate::files::change::At;
use crate::files::names::{CURRENT, Last, Name, Way};
use crate::files::status::time;
use crate::files::{Files, Kind, OpenFile, Own, flag};

/// Permissions of a file that is made, without those that the mask takes.
const MODE: u64 = 0o666;

/// Names that are tried for a file that takes another's place: each is taken only for a moment, unless somebody means it.
const NAMES: u32 = 1000;

/// An open regular file, and where in it the job is.
#[derive(Debug)]
pub struct File {
    own: Own,
    path: Vec<u8>,
    fd: u64,
    offset: u64,
    /// What it will be called once it is whole, if it is written: until then it has no name, and whoever reads finds what was there before.
    target: Option<Target>,
}

/// A name in an open directory.
#[derive(Clone, Copy, Debug)]
struct Target {
    directory: u64,
    name: Name,
    /// Something is there.
    replaces: bool,
}

impl File {
    /// Opens a file as a user would who reads it, or who puts another in its place.
    ///
    /// # Errors
    /// Those of `open`; `EINVAL`: it is no regular file.
    pub fn open(files: &mut Files, start: Start, wanted: &Wanted, writes: bool) -> Result<File, Errno> {
        let mut own = files.own_of(Credentials::new(start.user, start.group), clock::wall());
        let opened = files.with_own(&mut own, |files| {
            let root = files.own.root;
            let standing = files.find(CURRENT, &wanted.directory, Way::FOLLOW).and_then(|place| files.change_directory(place));
            let opened = standing.and_then(|()| match writes {
                true => make(files, &wanted.path),
                false => insert_regular(files, CURRENT, &wanted.path, flag::READ_ONLY).map(|fd| (fd, None)),
            });
            files.change_directory(root).and(opened)
        });
        let (fd, target) = opened?;
        Ok(File { own, path: wanted.path.clone(), fd, offset: 0, target })
    }

    /// Whether it is written, not read.
    #[must_use]
    pub fn writes(&self) -> bool {
        self.target.is_some()
    }

    /// Copies what comes next, and keeps its place. Returns how many bytes; 0: it ends here.
    ///
    /// # Errors
    /// `EIO`.
    pub fn peek(&mut self, files: &mut Files, room: &mut [u8]) -> Result<usize, Errno> {
        let (fd, offset) = (self.fd, self.offset);
        files.with_own(&mut self.own, |files| files.fetch(fd, offset, room))
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
        let fd = self.fd;
        let done = files.with_own(&mut self.own, |files| files.put(fd, None, bytes, clock::wall()))?;
        if done == 0 { Err(Errno::ENOSPC) } else { Ok(done) }
    }

    /// Takes its place under its name, if it was written: now it is whole. Nothing of the cell's runs meanwhile.
    ///
    /// # Errors
    /// `EACCES`, `EPERM`, `ENOENT`, `ENOSPC`; `EEXIST`: names for it in the meantime are taken; what was there before is there then.
    pub fn finish(&mut self, files: &mut Files) -> Result<(), Errno> {
        let Some(Target { directory, name, replaces }) = self.target else { return Ok(()) };
        let (now, file) = (time(clock::wall()), At { directory: self.fd, path: &[] });
        files.with_own(&mut self.own, |files| {
            let to = At { directory, path: name.bytes() };
            if !replaces {
                match files.link(file, to, false, true, now) {
                    // Somebody has made one meanwhile.
                    Err(Errno::EEXIST) => {}
                    linked => return linked,
                }
            }
            let fresh = fresh_name(files, directory)?;
            let beside = At { directory, path: fresh.as_bytes() };
            files.link(file, beside, false, true, now)?;
            let moved = files.rename(beside, to, 0, now);
            if moved.is_err() {
                // It was there a moment ago.
                let _ = files.unlink(beside, now);
            }
            moved
        })
    }

    /// Lets go of it.
    pub fn close(mut self, files: &mut Files) {
        let open = self.target.map(|target| target.directory).into_iter().chain([self.fd]);
        // They are open.
        files.with_own(&mut self.own, |files| open.for_each(|fd| _ = files.close(fd)));
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

/// A name that nothing has in an open directory.
fn fresh_name(files: &mut Files, directory: u64) -> Result<String, Errno> {
    for name in (0..NAMES).map(|number| format!(".pando-{number}")) {
        match files.find(directory, name.as_bytes(), Way::KEEP) {
            Ok(_) => {}
            Err(Errno::ENOENT) => return Ok(name),
            Err(error) => return Err(error),
        }
    }
    Err(Errno::EEXIST)
}

/// Makes a file without a name for what a path leads to, like what is there; returns its descriptor too.
fn make(files: &mut Files, path: &[u8]) -> Result<(u64, Option<Target>), Errno> {
    let found = files.walk(CURRENT, path, Way { follow: true, ..Way::KEEP })?;
    let Last::Name(name) = found.last else { return Err(Errno::EISDIR) };
    if found.slash {
        return Err(Errno::EISDIR);
    }
    let now = time(clock::wall());
    let directory = files.insert(OpenFile::new(Kind::Directory(found.directory), flag::READ_ONLY), true)?;
    let made = found.place.map(|place| Ok(files.status(place)?.owner())).transpose().and_then(|owner| {
        if owner.is_some() {
            let there = insert_regular(files, directory, name.bytes(), flag::WRITE_ONLY)?;
            files.close(there)?;
        }
        let file = files.open_path(directory, b".", flag::WRITE_ONLY | flag::TEMPORARY | flag::DIRECTORY, MODE, 0, now)?;
        if let (Kind::Node(id), Some(owner)) = (&file.kind, owner) {
            files.tree.node_mut(*id)?.owner = owner;
        }
        files.insert(file, true)
    });
    match made {
        Ok(fd) => Ok((fd, Some(Target { directory, name, replaces: found.place.is_some() }))),
        Err(error) => {
            files.close(directory)?;
            Err(error)
        }
    }
}

/// Opens a regular file that is there.
fn insert_regular(files: &mut Files, directory: u64, path: &[u8], flags: u64) -> Result<u64, Errno> {
    // Who opens a FIFO does not wait for its other end.
    let file = files.open_path(directory, path, flags | flag::NON_BLOCKING, 0, 0, time(clock::wall()))?;
    let checked = match file.kind {
        Kind::Image(..) | Kind::Node(_) => Ok(()),
        Kind::Directory(_) => Err(Errno::EISDIR),
        _ => Err(Errno::EINVAL),
    };
    let fd = files.insert(file, true)?;
    if checked.is_err() {
        files.close(fd)?;
    }
    checked.map(|()| fd)
}
