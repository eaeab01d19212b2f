// SPDX-License-Identifier: MIT OR Apache-2.0
//! A job that watches a directory or a file without a process, by an inotify instance of its own.
//!
//! Its output is records ([`pando_abi::control::WATCH`]). The first one, without a path, reports that the watch has begun.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use pando_abi::control::Start;
use pando_rt::clock;

use super::requests::JobRequest;
use crate::credentials::Credentials;
use crate::erofs::FileType;
use crate::errno::Errno;
use crate::files::inotify::InotifyId;
use crate::files::namei::LookupFlags;
use crate::files::{Files, ProcessFiles};
use crate::uapi::{
    AT_FDCWD, IN_ATTRIB, IN_CREATE, IN_DELETE, IN_DELETE_SELF, IN_DONT_FOLLOW, IN_IGNORED, IN_ISDIR, IN_MODIFY, IN_MOVE_SELF,
    IN_MOVED_FROM, IN_MOVED_TO, IN_Q_OVERFLOW, O_NONBLOCK,
};

/// The events that are watched.
const EVENTS: u32 = IN_ATTRIB | IN_CREATE | IN_DELETE | IN_DELETE_SELF | IN_MODIFY | IN_MOVE_SELF | IN_MOVED_FROM | IN_MOVED_TO;
/// The argument of a request to watch the directories below, too.
const RECURSIVE: &[u8] = b"recursive\0";
/// Bytes of events that are read at a time.
const PIECE: usize = 4096;
/// Upper limit on prepared bytes: beyond it, events wait in the queue of the instance, which reports an overflow.
const PREPARED_MAX: usize = 64 << 10;

/// A watch of a job.
#[derive(Debug)]
pub struct WatchTask {
    process_files: ProcessFiles,
    fd: u64,
    /// The paths of the watched files, by the numbers of their watches.
    paths: BTreeMap<i32, Box<[u8]>>,
    is_recursive: bool,
    /// Prepared records, and how many of their bytes have been read.
    bytes: Vec<u8>,
    read: usize,
}

impl WatchTask {
    /// Watches a file or a directory with the requesting user's rights.
    ///
    /// # Errors
    /// Those of looking up paths; `EACCES`, `ENOSPC`.
    pub fn open(files: &mut Files, start: Start, wanted: &JobRequest) -> Result<WatchTask, Errno> {
        let mut process_files = files.new_process_files(Credentials::new(start.user, start.group), clock::wall());
        let fd = files.with_current(&mut process_files, |files| files.create_inotify(O_NONBLOCK, true))?;
        let is_recursive = wanted.arguments.bytes() == RECURSIVE;
        let mut task = WatchTask { process_files, fd, paths: BTreeMap::new(), is_recursive, bytes: Vec::new(), read: 0 };
        match task.add(files, &wanted.path, 0, false) {
            Ok(()) => {
                task.append(0, 0, &[]);
                Ok(task)
            }
            Err(error) => {
                task.close(files);
                Err(error)
            }
        }
    }

    /// Copies the next bytes without advancing. Returns how many; 0: there are none yet.
    ///
    /// # Errors
    /// `EBADF`, `ENOSPC`.
    pub fn peek(&mut self, files: &mut Files, buffer: &mut [u8]) -> Result<usize, Errno> {
        if self.read == self.bytes.len() {
            self.bytes.clear();
            self.read = 0;
            self.take_events(files)?;
        }
        let ready = &self.bytes[self.read..];
        let count = ready.len().min(buffer.len());
        buffer[..count].copy_from_slice(&ready[..count]);
        Ok(count)
    }

    /// Advances by so many bytes.
    pub fn skip(&mut self, bytes: usize) {
        self.read = (self.read + bytes).min(self.bytes.len());
    }

    /// Closes its instance.
    pub fn close(mut self, files: &mut Files) {
        let fd = self.fd;
        // It is open.
        files.with_current(&mut self.process_files, |files| _ = files.close(fd));
    }

    /// Watches a path, and with `is_recursive` the directories below it. `flags`: how the path is followed. If it is a new directory, its
    /// content is reported as created: nothing watched it before.
    fn add(&mut self, files: &mut Files, path: &[u8], flags: u32, is_new: bool) -> Result<(), Errno> {
        let WatchTask { process_files, fd, paths, is_recursive, bytes, .. } = self;
        files.with_current(process_files, |files| {
            let id = files.inotify(*fd)?;
            let number = files.watch(id, path, EVENTS | flags)?;
            // A directory that has moved is watched already.
            let is_unknown = paths.insert(number, path.into()).is_none();
            let records = Some(bytes).filter(|_| is_new && is_unknown);
            if *is_recursive { add_below(files, id, path, paths, records) } else { Ok(()) }
        })
    }

    /// Appends the events that wait.
    fn take_events(&mut self, files: &mut Files) -> Result<(), Errno> {
        while self.bytes.len() < PREPARED_MAX {
            let fd = self.fd;
            let events = files.with_current(&mut self.process_files, |files| {
                let id = files.inotify(fd)?;
                files.inotifies.get_mut(id)?.take(PIECE)
            });
            let events = match events {
                Ok(events) => events,
                Err(Errno::EAGAIN) => return Ok(()),
                Err(error) => return Err(error),
            };
            let mut rest = &events[..];
            while let Some((head, behind)) = rest.split_first_chunk::<16>() {
                let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
                let (watch, mask, cookie, length) = (word(0) as i32, word(4), word(8), word(12) as usize);
                let (name, behind) = behind.split_at_checked(length).ok_or(Errno::EIO)?;
                let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
                self.report(files, (watch, mask, cookie), name);
                rest = behind;
            }
        }
        Ok(())
    }

    /// Appends an event, and watches a new directory.
    fn report(&mut self, files: &mut Files, (watch, mask, cookie): (i32, u32, u32), name: &[u8]) {
        if mask & IN_IGNORED != 0 {
            self.paths.remove(&watch);
            return;
        }
        let Some(directory) = self.paths.get(&watch) else {
            if mask & IN_Q_OVERFLOW != 0 {
                self.append(mask, cookie, &[]);
            }
            return;
        };
        let path = join(directory, name);
        self.append(mask, cookie, &path);
        if self.is_recursive && mask & IN_ISDIR != 0 && mask & (IN_CREATE | IN_MOVED_TO) != 0 {
            match self.add(files, &path, IN_DONT_FOLLOW, true) {
                // It may have been removed meanwhile, or may not be read.
                Ok(()) | Err(Errno::ENOENT | Errno::ENOTDIR | Errno::EACCES) => {}
                // Its events are lost.
                Err(_) => self.append(IN_Q_OVERFLOW, 0, &[]),
            }
        }
    }

    /// Appends a record.
    fn append(&mut self, mask: u32, cookie: u32, path: &[u8]) {
        append(&mut self.bytes, mask, cookie, path);
    }
}

/// Appends a record.
fn append(bytes: &mut Vec<u8>, mask: u32, cookie: u32, path: &[u8]) {
    for word in [mask, cookie, path.len() as u32] {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes.extend_from_slice(path);
}

/// Watches the directories below a directory. Those that cannot be read are left out. Appends a record of each file that it finds to
/// `records`; if these become too many, the last one is an overflow.
fn add_below(
    files: &mut Files,
    id: InotifyId,
    path: &[u8],
    paths: &mut BTreeMap<i32, Box<[u8]>>,
    mut records: Option<&mut Vec<u8>>,
) -> Result<(), Errno> {
    let mut pending: Vec<Vec<u8>> = alloc::vec![path.to_vec()];
    while let Some(directory) = pending.pop() {
        let Ok(inode) = files.find(AT_FDCWD, &directory, LookupFlags::FOLLOW) else { continue };
        let mut below = Vec::new();
        let listed = files.tree.list(inode, 0, |entry| {
            if matches!(entry.name, b"." | b"..") {
                return true;
            }
            let (path, is_directory) = (join(&directory, entry.name), entry.kind == Some(FileType::Directory));
            if let Some(bytes) = records.take() {
                append(bytes, if is_directory { IN_CREATE | IN_ISDIR } else { IN_CREATE }, 0, &path);
                if bytes.len() < PREPARED_MAX {
                    records = Some(bytes);
                } else {
                    append(bytes, IN_Q_OVERFLOW, 0, &[]);
                }
            }
            if is_directory {
                below.push(path);
            }
            true
        });
        if listed.is_err() {
            // It is no directory.
            continue;
        }
        for path in below {
            match files.watch(id, &path, EVENTS | IN_DONT_FOLLOW) {
                Ok(number) => {
                    paths.insert(number, path.clone().into());
                    pending.push(path);
                }
                Err(Errno::ENOSPC) => return Err(Errno::ENOSPC),
                Err(_) => {}
            }
        }
    }
    Ok(())
}

/// The path of a name in a directory.
fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    match (directory, name) {
        (_, []) => directory.to_vec(),
        (b"/", _) => [b"/", name].concat(),
        _ => [directory, b"/", name].concat(),
    }
}
