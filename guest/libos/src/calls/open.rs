// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opening, closing, and asking whether one may.

use pando_rt::clock;
use pando_rt::hypercall::NO_DEADLINE;
use pando_rt::user::read;

use crate::calls::proc;
use crate::credentials::WRITE;
use crate::errno::Errno;
use crate::files::event::Event;
use crate::files::names::{AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW, CURRENT, resolve};
use crate::files::status::time;
use crate::files::tree::node::Owner;
use crate::files::{Kind, OPEN_MAX, OpenFile, OpenName, flag};
use crate::process::Process;
use crate::user::{self, set_words};

/// `open(path, flags, mode)`.
pub fn open(process: &mut Process, [path, flags, mode, ..]: [u64; 6]) -> Result<u64, Errno> {
    openat(process, [CURRENT, path, flags, mode, 0, 0])
}

/// `creat(path, mode)`.
pub fn creat(process: &mut Process, [path, mode, ..]: [u64; 6]) -> Result<u64, Errno> {
    openat(process, [CURRENT, path, flag::CREATE | flag::WRITE_ONLY | flag::TRUNCATE, mode, 0, 0])
}

/// `openat(directory, path, flags, mode)`.
pub fn openat(process: &mut Process, [directory, path, flags, mode, ..]: [u64; 6]) -> Result<u64, Errno> {
    open_at(process, directory, path, u64::from(flags as u32), mode, 0)
}

/// `openat2(directory, path, how, size)`.
pub fn openat2(process: &mut Process, [directory, path, how, size, ..]: [u64; 6]) -> Result<u64, Errno> {
    /// Bytes of the first version of `struct open_how`, which is the only one.
    const SIZE: u64 = 24;
    const KNOWN: u64 = 0o37_777_703 | 0o100_000;
    const RESOLVE: u64 =
        resolve::NO_XDEV | resolve::NO_MAGICLINKS | resolve::NO_SYMLINKS | resolve::BENEATH | resolve::IN_ROOT | resolve::CACHED;
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
    let makes = flags & (flag::CREATE | flag::TEMPORARY) != 0;
    let both = resolve & resolve::BENEATH != 0 && resolve & resolve::IN_ROOT != 0;
    if flags & !KNOWN != 0 || resolve & !RESOLVE != 0 || both || mode & !0o7777 != 0 || !makes && mode != 0 {
        return Err(Errno::EINVAL);
    }
    open_at(process, directory, path, flags, mode, resolve)
}

fn open_at(process: &mut Process, directory: u64, path: u64, flags: u64, mode: u64, resolve: u64) -> Result<u64, Errno> {
    let path = user::path(path)?;
    let mut file = process.files.open_path(directory, &path, flags, mode, resolve, time(clock::wall()))?;
    if let Kind::Text(_, which, text) = &mut file.kind {
        *text = proc::text(process, *which);
    }
    let waits = file.waits();
    let fd = process.files.insert(file, flags & flag::CLOSE_ON_EXEC != 0)?;
    let is_there = |process: &mut Process| process.files.look(fd).is_ok_and(|file| !process.files.awaits_other_end(file)).then_some(());
    if waits && let Err(error) = process.wait(NO_DEADLINE, is_there) {
        process.files.close(fd)?;
        return Err(error);
    }
    Ok(fd)
}

/// `close(fd)`.
pub fn close(process: &mut Process, [fd, ..]: [u64; 6]) -> Result<u64, Errno> {
    process.files.close(fd)?;
    Ok(0)
}

/// `close_range(first, last, flags)`.
pub fn close_range(process: &mut Process, [first, last, flags, ..]: [u64; 6]) -> Result<u64, Errno> {
    const UNSHARE: u64 = 2;
    const ON_EXEC_ONLY: u64 = 4;
    if first as u32 > last as u32 || flags & !(UNSHARE | ON_EXEC_ONLY) != 0 {
        return Err(Errno::EINVAL);
    }
    for fd in u64::from(first as u32)..=u64::from(last as u32).min(OPEN_MAX) {
        // Holes are no error.
        if flags & ON_EXEC_ONLY == 0 {
            let _ = process.files.close(fd);
        } else if let Ok(descriptor) = process.files.descriptor(fd) {
            descriptor.close_on_exec = true;
        }
    }
    Ok(0)
}

/// `access(path, mode)`.
pub fn access(process: &mut Process, [path, mode, ..]: [u64; 6]) -> Result<u64, Errno> {
    faccessat2(process, [CURRENT, path, mode, 0, 0, 0])
}

/// `faccessat(directory, path, mode)`.
pub fn faccessat(process: &mut Process, [directory, path, mode, ..]: [u64; 6]) -> Result<u64, Errno> {
    faccessat2(process, [directory, path, mode, 0, 0, 0])
}

/// `faccessat2(directory, path, mode, flags)`.
pub fn faccessat2(process: &mut Process, [directory, path, mode, flags, ..]: [u64; 6]) -> Result<u64, Errno> {
    /// Ask for whom the process acts, not who started it.
    const AT_EACCESS: u64 = 0x200;
    if mode & !7 != 0 || flags & !(AT_EACCESS | AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) != 0 {
        return Err(Errno::EINVAL);
    }
    let path = user::path(path)?;
    let files = &process.files;
    let place = files.find_at(directory, &path, flags)?;
    let status = files.status(place)?;
    let who = &files.who;
    let may = if flags & AT_EACCESS != 0 {
        who.may(status.owner(), status.is_directory(), mode)
    } else {
        who.may_really(status.owner(), status.is_directory(), mode)
    };
    // What the libOS makes up cannot be written, whatever its permissions say.
    let made_up = matches!(place, crate::files::tree::Place::Proc(_)) && mode & WRITE != 0;
    if may && !made_up { Ok(0) } else { Err(Errno::EACCES) }
}

/// `pipe(descriptors)`.
pub fn pipe(process: &mut Process, [descriptors, ..]: [u64; 6]) -> Result<u64, Errno> {
    pipe2(process, [descriptors, 0, 0, 0, 0, 0])
}

/// `pipe2(descriptors, flags)`.
pub fn pipe2(process: &mut Process, [descriptors, flags, ..]: [u64; 6]) -> Result<u64, Errno> {
    /// Packets, which are not told apart here.
    const DIRECT: u64 = 0o40_000;
    if flags & !(flag::NON_BLOCKING | flag::CLOSE_ON_EXEC | DIRECT) != 0 {
        return Err(Errno::EINVAL);
    }
    let files = &mut process.files;
    let kept = flags & !flag::CLOSE_ON_EXEC;
    let close_on_exec = flags & flag::CLOSE_ON_EXEC != 0;
    let id = files.pipes.open(None, true, true)?;
    let reader = files.insert(OpenFile::new(Kind::Pipe(id), kept), close_on_exec);
    let writer = OpenFile::new(Kind::Pipe(id), kept | flag::WRITE_ONLY);
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
pub fn eventfd2(process: &mut Process, [count, flags, ..]: [u64; 6]) -> Result<u64, Errno> {
    const ONE_BY_ONE: u64 = 1;
    if flags & !(ONE_BY_ONE | flag::NON_BLOCKING | flag::CLOSE_ON_EXEC) != 0 {
        return Err(Errno::EINVAL);
    }
    let event = Event { count: u64::from(count as u32), one_by_one: flags & ONE_BY_ONE != 0 };
    let file = OpenFile::new(Kind::Event(event), flags & flag::NON_BLOCKING | flag::READ_WRITE);
    process.files.insert(file, flags & flag::CLOSE_ON_EXEC != 0)
}

/// `eventfd(count)`.
pub fn eventfd(process: &mut Process, [count, ..]: [u64; 6]) -> Result<u64, Errno> {
    eventfd2(process, [count, 0, 0, 0, 0, 0])
}

/// `memfd_create(name, flags)`.
pub fn memfd_create(process: &mut Process, [name, flags, ..]: [u64; 6]) -> Result<u64, Errno> {
    const CLOSE_ON_EXEC: u64 = 1;
    const ALLOW_SEALING: u64 = 2;
    const NO_EXECUTE: u64 = 8;
    const EXECUTE: u64 = 16;
    const NAME_MAX: usize = 249;
    let both = flags & NO_EXECUTE != 0 && flags & EXECUTE != 0;
    if flags & !(CLOSE_ON_EXEC | ALLOW_SEALING | NO_EXECUTE | EXECUTE) != 0 || both {
        return Err(Errno::EINVAL);
    }
    let name = user::path(name).map_err(|error| if error == Errno::ENAMETOOLONG { Errno::EINVAL } else { error })?;
    if name.len() > NAME_MAX {
        return Err(Errno::EINVAL);
    }
    let files = &mut process.files;
    let permissions = if flags & NO_EXECUTE != 0 { 0o666 } else { 0o777 };
    let owner = Owner { uid: files.who.user.effective, gid: files.who.group.effective, permissions };
    let root = files.tree.root();
    let id = files.nameless(root, owner, time(clock::wall()))?;
    let mut file = OpenFile::new(Kind::Node(id), flag::READ_WRITE);
    file.name = Some(OpenName { directory: root, name: [b"memfd:", &*name].concat().into() });
    files.insert(file, flags & CLOSE_ON_EXEC != 0)
}
