// SPDX-License-Identifier: MIT OR Apache-2.0
//! A file that a job reads or writes itself, without a process or program: the operator's access to files of the cell.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use pando_abi::control::Start;
use pando_rt::clock;

use super::requests::JobRequest;
use crate::credentials::Credentials;
use crate::errno::Errno;
use crate::files::change::PathAt;
use crate::files::directory_file::DirectoryFile;
use crate::files::namei::{LastComponent, LookupFlags, Name};
use crate::files::regular_file::RegularFile;
use crate::files::status::time;
use crate::files::{Files, OpenFile, ProcessFiles};
use crate::uapi::{__O_TMPFILE, AT_FDCWD, O_DIRECTORY, O_NONBLOCK, O_RDONLY, O_WRONLY};

/// Permissions of a new file, before the umask.
const MODE: u64 = 0o666;

/// How many temporary names are tried for a file that replaces another. Each is used only for a moment, so collisions are rare unless
/// deliberate.
const NAMES: u32 = 1000;

/// An open regular file, and the job's position in it.
#[derive(Debug)]
pub struct File {
    process_files: ProcessFiles,
    path: Vec<u8>,
    fd: u64,
    offset: u64,
    /// The name that a written file gets once it is complete. Until then it has no name, and readers find the previous file.
    target: Option<Target>,
}

/// A name in an open directory.
#[derive(Clone, Copy, Debug)]
struct Target {
    directory: u64,
    name: Name,
    /// Whether a file of this name exists.
    replaces: bool,
}

impl File {
    /// Opens a file with the requesting user's rights, to read it or to replace it.
    ///
    /// # Errors
    /// Those of `open`; `EINVAL`: it is no regular file.
    pub fn open(files: &mut Files, start: Start, wanted: &JobRequest, writes: bool) -> Result<File, Errno> {
        let mut process_files = files.new_process_files(Credentials::new(start.user, start.group), clock::wall());
        let opened = files.with_current(&mut process_files, |files| {
            let root = files.current.root;
            let standing = files.find(AT_FDCWD, &wanted.directory, LookupFlags::FOLLOW).and_then(|inode| files.change_directory(inode));
            let opened = standing.and_then(|()| match writes {
                true => make(files, &wanted.path),
                false => insert_regular(files, AT_FDCWD, &wanted.path, O_RDONLY).map(|fd| (fd, None)),
            });
            files.change_directory(root).and(opened)
        });
        let (fd, target) = opened?;
        Ok(File { process_files, path: wanted.path.clone(), fd, offset: 0, target })
    }

    /// Whether it is written rather than read.
    #[must_use]
    pub fn writes(&self) -> bool {
        self.target.is_some()
    }

    /// Copies the next bytes without advancing. Returns how many; 0: end of file.
    ///
    /// # Errors
    /// `EIO`.
    pub fn peek(&mut self, files: &mut Files, buffer: &mut [u8]) -> Result<usize, Errno> {
        let (fd, offset) = (self.fd, self.offset);
        files.with_current(&mut self.process_files, |files| files.kernel_read(fd, offset, buffer))
    }

    /// Advances by so many bytes.
    pub fn skip(&mut self, bytes: usize) {
        self.offset += bytes as u64;
    }

    /// Appends bytes. Returns how many were written.
    ///
    /// # Errors
    /// `ENOSPC`, `EFBIG`, `EIO`.
    pub fn write(&mut self, files: &mut Files, bytes: &[u8]) -> Result<usize, Errno> {
        let fd = self.fd;
        let done = files.with_current(&mut self.process_files, |files| files.kernel_write(fd, None, bytes, clock::wall()))?;
        if done == 0 { Err(Errno::ENOSPC) } else { Ok(done) }
    }

    /// Gives a written file its name, now that it is complete. None of the cell's processes runs meanwhile.
    ///
    /// # Errors
    /// `EACCES`, `EPERM`, `ENOENT`, `ENOSPC`; `EEXIST`: all temporary names are in use. On errors the previous file stays.
    pub fn finish(&mut self, files: &mut Files) -> Result<(), Errno> {
        let Some(Target { directory, name, replaces }) = self.target else { return Ok(()) };
        let (now, file) = (time(clock::wall()), PathAt { directory: self.fd, path: &[] });
        files.with_current(&mut self.process_files, |files| {
            let to = PathAt { directory, path: name.bytes() };
            if !replaces {
                match files.link(file, to, false, true, now) {
                    // A process has created one meanwhile.
                    Err(Errno::EEXIST) => {}
                    linked => return linked,
                }
            }
            let fresh = fresh_name(files, directory)?;
            let beside = PathAt { directory, path: fresh.as_bytes() };
            files.link(file, beside, false, true, now)?;
            let moved = files.rename(beside, to, 0, now);
            if moved.is_err() {
                // It existed a moment ago.
                let _ = files.unlink(beside, now);
            }
            moved
        })
    }

    /// Closes it.
    pub fn close(mut self, files: &mut Files) {
        let open = self.target.map(|target| target.directory).into_iter().chain([self.fd]);
        // These descriptors are open.
        files.with_current(&mut self.process_files, |files| open.for_each(|fd| _ = files.close(fd)));
    }

    /// The message for an error.
    #[must_use]
    pub fn error_message(&self, error: Errno) -> Vec<u8> {
        error_message(&self.path, error)
    }
}

/// The message for an error with a path.
#[must_use]
pub fn error_message(path: &[u8], error: Errno) -> Vec<u8> {
    format!("pando: {}: {}\n", String::from_utf8_lossy(path), error.text()).into_bytes()
}

/// An unused name in an open directory.
fn fresh_name(files: &mut Files, directory: u64) -> Result<String, Errno> {
    for name in (0..NAMES).map(|number| format!(".pando-{number}")) {
        match files.find(directory, name.as_bytes(), LookupFlags::KEEP) {
            Ok(_) => {}
            Err(Errno::ENOENT) => return Ok(name),
            Err(error) => return Err(error),
        }
    }
    Err(Errno::EEXIST)
}

/// Creates an unnamed file that will replace the one at a path, with its attributes; also returns its descriptor.
fn make(files: &mut Files, path: &[u8]) -> Result<(u64, Option<Target>), Errno> {
    let found = files.walk(AT_FDCWD, path, LookupFlags { follow: true, ..LookupFlags::KEEP })?;
    let LastComponent::Name(name) = found.last else { return Err(Errno::EISDIR) };
    if found.slash {
        return Err(Errno::EISDIR);
    }
    let now = time(clock::wall());
    let directory = files.insert(OpenFile::new(DirectoryFile(found.directory), O_RDONLY), true)?;
    let inserted = found.inode.map(|inode| Ok(files.status(inode)?.owner())).transpose().and_then(|owner| {
        if owner.is_some() {
            let there = insert_regular(files, directory, name.bytes(), O_WRONLY)?;
            files.close(there)?;
        }
        let file = files.open_path(directory, b".", O_WRONLY | __O_TMPFILE | O_DIRECTORY, MODE, 0, now)?;
        if let (Some(RegularFile::Node(id)), Some(owner)) = (file.downcast(), owner) {
            files.tree.node_mut(id)?.owner = owner;
        }
        files.insert(file, true)
    });
    match inserted {
        Ok(fd) => Ok((fd, Some(Target { directory, name, replaces: found.inode.is_some() }))),
        Err(error) => {
            files.close(directory)?;
            Err(error)
        }
    }
}

/// Opens an existing regular file.
fn insert_regular(files: &mut Files, directory: u64, path: &[u8], flags: u64) -> Result<u64, Errno> {
    // Opening a FIFO must not wait for its other end.
    let file = files.open_path(directory, path, flags | O_NONBLOCK, 0, 0, time(clock::wall()))?;
    let checked = file.operations().check_copy_range();
    let fd = files.insert(file, true)?;
    if checked.is_err() {
        files.close(fd)?;
    }
    checked.map(|()| fd)
}
