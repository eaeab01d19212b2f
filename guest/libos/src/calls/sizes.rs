// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls that change the sizes of files.

use core::ops::Range;

use pando_abi::PAGE_SIZE;
use pando_rt::{clock, registers};

use crate::credentials::WRITE;
use crate::erofs::FileType;
use crate::errno::Errno;
use crate::files::inotify::BY_NAME;
use crate::files::namei::LookupFlags;
use crate::files::status::time;
use crate::files::tree::InodeRef;
use crate::files::tree::content::{Content, SIZE_MAX};
use crate::files::tree::node::NodeId;
use crate::system::System;
use crate::uapi::{AT_FDCWD, CAP_FSETID, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE, FALLOC_FL_ZERO_RANGE, IN_MODIFY};
use crate::user;

/// `truncate(path, length)`.
pub fn truncate(system: &mut System, [path, length, ..]: [u64; 6]) -> Result<u64, Errno> {
    if length.cast_signed() < 0 {
        return Err(Errno::EINVAL);
    }
    let path = user::path(path)?;
    let files = &mut system.files;
    let inode = files.find(AT_FDCWD, &path, LookupFlags::FOLLOW)?;
    match files.status(inode)?.kind() {
        Some(FileType::Directory) => return Err(Errno::EISDIR),
        Some(FileType::Regular) => files.check(inode, WRITE).and_then(|()| files.check_not_running(inode))?,
        _ => return Err(Errno::EINVAL),
    }
    if matches!(inode, InodeRef::Proc(_)) {
        return Ok(0);
    }
    let id = files.tree.copy_up(inode)?;
    files.check_handle(id)?;
    resize(system, id, length)?;
    // A file server closes the file again.
    system.files.write_back();
    system.files.release(inode);
    system.files.notify_at(AT_FDCWD, &path, 0, IN_MODIFY);
    Ok(0)
}

/// `ftruncate(fd, length)`.
pub fn ftruncate(system: &mut System, [fd, length, ..]: [u64; 6]) -> Result<u64, Errno> {
    if length.cast_signed() < 0 {
        return Err(Errno::EINVAL);
    }
    let file = system.files.file(fd)?;
    if !file.writable() {
        return Err(Errno::EINVAL);
    }
    let Some(id) = system.files.truncated_node(fd)? else { return Ok(0) };
    resize(system, id, length)?;
    system.files.notify_open(fd, IN_MODIFY | BY_NAME);
    Ok(0)
}

/// Sets a file's size.
fn resize(system: &mut System, id: NodeId, length: u64) -> Result<(), Errno> {
    check_growth(system, id, length)?;
    let size = system.files.tree.node(id)?.content()?.size();
    change(system, id, &(size.min(length)..size.max(length)), |content| {
        content.check_resize(length)?;
        content.resize(length)
    })
}

/// Checks that the limits permit the process to make a file this large, if it is smaller.
fn check_growth(system: &mut System, id: NodeId, end: u64) -> Result<(), Errno> {
    let size = system.files.tree.node(id)?.content()?.size();
    if end > size && end > system.files.current.file_size_max { Err(system.file_size_error(Errno::EFBIG)) } else { Ok(()) }
}

/// Changes a part of a file's contents, and its times.
fn change(system: &mut System, id: NodeId, part: &Range<u64>, change: impl FnOnce(&mut Content) -> Result<(), Errno>) -> Result<(), Errno> {
    let credentials = system.files.current.credentials.clone();
    system.change_content(id, part, |node| {
        change(node.content_mut()?)?;
        node.touch(time(clock::wall()));
        if !credentials.is_capable(CAP_FSETID) {
            node.owner.remove_privileges(credentials.is_in(node.owner.gid));
        }
        Ok(())
    })
}

/// `fallocate(fd, mode, offset, length)`.
pub fn fallocate(system: &mut System, [fd, mode, offset, length, ..]: [u64; 6]) -> Result<u64, Errno> {
    const KNOWN: u64 = FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE;
    let file = system.files.file(fd)?;
    if offset.cast_signed() < 0 || length.cast_signed() <= 0 {
        return Err(Errno::EINVAL);
    }
    let both = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE;
    if mode & !KNOWN != 0 || mode & both == both || mode & FALLOC_FL_PUNCH_HOLE != 0 && mode & FALLOC_FL_KEEP_SIZE == 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    if !file.writable() {
        return Err(Errno::EBADF);
    }
    file.operations().check_allocate()?;
    let end = offset.checked_add(length).filter(|end| *end <= SIZE_MAX).ok_or(Errno::EFBIG)?;
    let memory = registers::memory();
    if mode & FALLOC_FL_PUNCH_HOLE == 0 && length / PAGE_SIZE > memory.quota.saturating_sub(memory.used) {
        return Err(Errno::ENOSPC);
    }
    let id = system.files.writable_node(fd)?.ok_or(Errno::ENODEV)?;
    if mode & (FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE) == 0 {
        check_growth(system, id, end)?;
    }
    system.files.check_content(InodeRef::Node(id), 0, u64::MAX)?;
    // Only the part that becomes zero is shown: mappings may have other changes that were not taken over yet.
    let size = system.files.tree.node(id)?.content()?.size();
    let zero = if mode & both != 0 { offset.min(size)..end } else { size..end };
    change(system, id, &zero, |content| {
        if mode & both != 0 {
            content.check_write(offset, 1)?;
            content.punch(offset, length)?;
        }
        if mode & FALLOC_FL_PUNCH_HOLE == 0 {
            if mode & FALLOC_FL_KEEP_SIZE == 0 {
                content.check_resize(end.max(content.size()))?;
            }
            content.allocate(offset, length)?;
            if mode & FALLOC_FL_KEEP_SIZE == 0 && end > content.size() {
                content.resize(end)?;
            }
        }
        Ok(())
    })?;
    system.files.notify_open(fd, IN_MODIFY);
    Ok(0)
}
