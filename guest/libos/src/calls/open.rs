// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls that open and close files, and check access.

use pando_rt::clock;
use pando_rt::hypercall::NO_DEADLINE;
use pando_rt::user::read;

use crate::calls::file_operations::{self, CallOperations};
use crate::credentials::Owner;
use crate::credentials::WRITE;
use crate::errno::Errno;
use crate::files::edge::EventTimes;
use crate::files::eventfd::EventCounter;
use crate::files::pipe_file::PipeFile;
use crate::files::regular_file::RegularFile;
use crate::files::status::time;
use crate::files::{OpenFile, OpenName};
use crate::system::System;
use crate::uapi::{
    __O_TMPFILE, AT_EACCESS, AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_NOFOLLOW, CLOSE_RANGE_CLOEXEC, CLOSE_RANGE_UNSHARE, EFD_SEMAPHORE,
    F_SEAL_EXEC, F_SEAL_SEAL, MFD_ALLOW_SEALING, MFD_CLOEXEC, MFD_EXEC, MFD_NOEXEC_SEAL, O_CLOEXEC, O_CREAT, O_DIRECT, O_LARGEFILE,
    O_NONBLOCK, O_RDWR, O_TRUNC, O_WRONLY, RESOLVE_BENEATH, RESOLVE_CACHED, RESOLVE_IN_ROOT, RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS,
    RESOLVE_NO_XDEV,
};
use crate::user::{self, set_words};

/// `open(path, flags, mode)`.
pub fn open(system: &mut System, [path, flags, mode, ..]: [u64; 6]) -> Result<u64, Errno> {
    openat(system, [AT_FDCWD, path, flags, mode, 0, 0])
}

/// `creat(path, mode)`.
pub fn creat(system: &mut System, [path, mode, ..]: [u64; 6]) -> Result<u64, Errno> {
    openat(system, [AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode, 0, 0])
}

/// `openat(directory, path, flags, mode)`.
pub fn openat(system: &mut System, [directory, path, flags, mode, ..]: [u64; 6]) -> Result<u64, Errno> {
    open_at(system, directory, path, u64::from(flags as u32), mode, 0)
}

/// `openat2(directory, path, how, size)`.
pub fn openat2(system: &mut System, [directory, path, how, size, ..]: [u64; 6]) -> Result<u64, Errno> {
    /// Bytes of the first version of `struct open_how`, the only one.
    const SIZE: u64 = 24;
    const KNOWN: u64 = 0o37_777_703 | 0o100_000;
    const RESOLVE: u64 = RESOLVE_NO_XDEV | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH | RESOLVE_IN_ROOT | RESOLVE_CACHED;
    if size < SIZE {
        return Err(Errno::EINVAL);
    }
    let [flags, mode, resolve] = user::words(how)?;
    for index in SIZE..size.min(4096) {
        let mut byte = [0];
        read(how + index, &mut byte)?;
        if byte != [0] {
            return Err(Errno::E2BIG);
        }
    }
    let makes = flags & (O_CREAT | __O_TMPFILE) != 0;
    let both = resolve & RESOLVE_BENEATH != 0 && resolve & RESOLVE_IN_ROOT != 0;
    if flags & !KNOWN != 0 || resolve & !RESOLVE != 0 || both || mode & !0o7777 != 0 || !makes && mode != 0 {
        return Err(Errno::EINVAL);
    }
    open_at(system, directory, path, flags, mode, resolve)
}

fn open_at(system: &mut System, directory: u64, path: u64, flags: u64, mode: u64, resolve: u64) -> Result<u64, Errno> {
    let path = user::path(path)?;
    // After waiting for its other end, a FIFO is open already.
    if let Some(fd) = system.thread.call.done.checked_sub(1) {
        return await_other_end(system, fd);
    }
    // Without a free descriptor, no file is created or truncated.
    system.files.free_from(0)?;
    system.files.controlling = system.controlling();
    let mut file = system.files.open_path(directory, &path, flags, mode, resolve, time(clock::wall()))?;
    let object = file.object;
    file_operations::of(&object).open(system, &mut file, flags)?;
    let waits = file.waits();
    let fd = system.files.insert(file, flags & O_CLOEXEC != 0)?;
    file_operations::of(&object).opened(system, flags);
    if waits {
        system.files.start_to_wait(fd);
        await_other_end(system, fd)
    } else {
        Ok(fd)
    }
}

impl CallOperations for RegularFile {
    fn open(&self, system: &mut System, _file: &mut OpenFile, flags: u64) -> Result<(), Errno> {
        match self {
            RegularFile::Node(node) if flags & O_TRUNC != 0 => system.show_change(*node, &(0..0)),
            _ => Ok(()),
        }
    }
}

/// Waits until an opened FIFO has a process at its other end. Other files do not wait.
fn await_other_end(system: &mut System, fd: u64) -> Result<u64, Errno> {
    let is_there = |system: &mut System| system.files.raw_file(fd).is_ok_and(|file| !system.files.awaits_other_end(file)).then_some(());
    if is_there(system).is_some() {
        return Ok(fd);
    }
    let channels = system.files.channels(fd);
    match system.wait(&channels, NO_DEADLINE, is_there) {
        Err(Errno::WAITS) => {
            system.thread.call.done = fd + 1;
            Err(Errno::WAITS)
        }
        Err(error) => {
            system.files.close(fd)?;
            Err(error)
        }
        Ok(_) => Ok(fd),
    }
}

/// `close(fd)`.
pub fn close(system: &mut System, [fd, ..]: [u64; 6]) -> Result<u64, Errno> {
    let written = system.files.await_writes(fd);
    if written == Err(Errno::QUEUED) {
        return Err(Errno::QUEUED);
    }
    system.files.close(fd)?;
    written.map(|()| 0)
}

/// `close_range(first, last, flags)`.
pub fn close_range(system: &mut System, [first, last, flags, ..]: [u64; 6]) -> Result<u64, Errno> {
    if first as u32 > last as u32 || flags & !(CLOSE_RANGE_UNSHARE | CLOSE_RANGE_CLOEXEC) != 0 {
        return Err(Errno::EINVAL);
    }
    let end = system.files.descriptors_end().min(u64::from(last as u32) + 1);
    for fd in u64::from(first as u32)..end {
        // Numbers that are not open are no error.
        if flags & CLOSE_RANGE_CLOEXEC == 0 {
            let _ = system.files.close(fd);
        } else if let Ok(descriptor) = system.files.descriptor(fd) {
            descriptor.close_on_exec = true;
        }
    }
    Ok(0)
}

/// `access(path, mode)`.
pub fn access(system: &mut System, [path, mode, ..]: [u64; 6]) -> Result<u64, Errno> {
    faccessat2(system, [AT_FDCWD, path, mode, 0, 0, 0])
}

/// `faccessat(directory, path, mode)`.
pub fn faccessat(system: &mut System, [directory, path, mode, ..]: [u64; 6]) -> Result<u64, Errno> {
    faccessat2(system, [directory, path, mode, 0, 0, 0])
}

/// `faccessat2(directory, path, mode, flags)`.
pub fn faccessat2(system: &mut System, [directory, path, mode, flags, ..]: [u64; 6]) -> Result<u64, Errno> {
    if mode & !7 != 0 || flags & !(AT_EACCESS | AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) != 0 {
        return Err(Errno::EINVAL);
    }
    let path = user::path(path)?;
    let files = &system.files;
    let inode = files.find_at(directory, &path, flags)?;
    let status = files.status(inode)?;
    let credentials = &files.current.credentials;
    let may = if flags & AT_EACCESS != 0 {
        credentials.may(status.owner(), status.is_directory(), mode)
    } else {
        credentials.may_really(status.owner(), status.is_directory(), mode)
    };
    // Files that the libOS generates are not writable, regardless of their permissions.
    let anonymous_device = matches!(inode, crate::files::tree::InodeRef::Proc(entry) if !entry.is_writable()) && mode & WRITE != 0;
    if !may || anonymous_device {
        return Err(Errno::EACCES);
    }
    let is_of_volume = matches!(status.kind(), Some(crate::erofs::FileType::Regular | crate::erofs::FileType::Directory));
    if mode & WRITE != 0 && is_of_volume && files.tree.is_read_only(inode) { Err(Errno::EROFS) } else { Ok(0) }
}

/// `pipe(descriptors)`.
pub fn pipe(system: &mut System, [descriptors, ..]: [u64; 6]) -> Result<u64, Errno> {
    pipe2(system, [descriptors, 0, 0, 0, 0, 0])
}

/// `pipe2(descriptors, flags)`.
pub fn pipe2(system: &mut System, [descriptors, flags, ..]: [u64; 6]) -> Result<u64, Errno> {
    if flags & !(O_NONBLOCK | O_CLOEXEC | O_DIRECT) != 0 {
        return Err(Errno::EINVAL);
    }
    let files = &mut system.files;
    let status_flags = flags & !O_CLOEXEC;
    let close_on_exec = flags & O_CLOEXEC != 0;
    let id = files.pipes.open(None, true, true)?;
    let reader = files.insert(OpenFile::new(PipeFile::new(id), status_flags), close_on_exec);
    let writer = OpenFile::new(PipeFile::new(id), status_flags | O_WRONLY);
    let reader = match reader {
        Ok(reader) => reader,
        Err(error) => {
            files.pipes.close(id, false, true);
            return Err(error);
        }
    };
    let pair = files.insert(writer, close_on_exec).map(|writer| (reader, writer));
    let written = pair.and_then(|(reader, writer)| set_words(descriptors, &[reader | writer << 32]));
    if written.is_err() {
        files.close(reader)?;
        if let Ok((_, writer)) = pair {
            files.close(writer)?;
        }
    }
    written.map(|()| 0)
}

/// `eventfd2(count, flags)`.
pub fn eventfd2(system: &mut System, [count, flags, ..]: [u64; 6]) -> Result<u64, Errno> {
    if flags & !(EFD_SEMAPHORE | O_NONBLOCK | O_CLOEXEC) != 0 {
        return Err(Errno::EINVAL);
    }
    let event = EventCounter { count: u64::from(count as u32), one_by_one: flags & EFD_SEMAPHORE != 0, event_times: EventTimes::default() };
    let file = OpenFile::new(event, flags & O_NONBLOCK | O_RDWR);
    system.files.insert(file, flags & O_CLOEXEC != 0)
}

/// `eventfd(count)`.
pub fn eventfd(system: &mut System, [count, ..]: [u64; 6]) -> Result<u64, Errno> {
    eventfd2(system, [count, 0, 0, 0, 0, 0])
}

/// `memfd_create(name, flags)`.
pub fn memfd_create(system: &mut System, [name, flags, ..]: [u64; 6]) -> Result<u64, Errno> {
    const NAME_MAX: usize = 249;
    let both = flags & MFD_NOEXEC_SEAL != 0 && flags & MFD_EXEC != 0;
    if flags & !(MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL | MFD_EXEC) != 0 || both {
        return Err(Errno::EINVAL);
    }
    let name = user::path(name).map_err(|error| if error == Errno::ENAMETOOLONG { Errno::EINVAL } else { error })?;
    if name.len() > NAME_MAX {
        return Err(Errno::EINVAL);
    }
    let files = &mut system.files;
    let permissions = if flags & MFD_NOEXEC_SEAL != 0 { 0o666 } else { 0o777 };
    let owner = Owner { uid: files.current.credentials.user.file, gid: files.current.credentials.group.file, permissions };
    let root = files.tree.root();
    let id = files.nameless(root, owner, time(clock::wall()))?;
    files.tree.node_mut(id)?.content_mut()?.seals = Some(match flags {
        flags if flags & MFD_NOEXEC_SEAL != 0 => F_SEAL_EXEC,
        flags if flags & MFD_ALLOW_SEALING != 0 => 0,
        _ => F_SEAL_SEAL,
    });
    let mut file = OpenFile::new(RegularFile::Node(id), O_RDWR | O_LARGEFILE);
    file.name = Some(OpenName { directory: root, name: [b"memfd:", &*name].concat().into() });
    files.insert(file, flags & MFD_CLOEXEC != 0)
}
