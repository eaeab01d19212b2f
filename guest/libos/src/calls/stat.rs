// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls that read the attributes of files and file systems: the `stat` family, `statx`, `statfs`.

use pando_abi::PAGE_SIZE;
use pando_rt::registers;
use pando_rt::user::write;

use crate::errno::Errno;
use crate::files::namei::LookupFlags;
use crate::files::tree::InodeRef;
use crate::system::System;
use crate::uapi::{
    AT_EMPTY_PATH, AT_FDCWD, AT_NO_AUTOMOUNT, AT_STATX_SYNC_TYPE, AT_SYMLINK_NOFOLLOW, OVERLAYFS_SUPER_MAGIC, PIPEFS_MAGIC,
    PROC_SUPER_MAGIC, STATX__RESERVED, SYSFS_MAGIC,
};
use crate::user;

/// Refuses flags that Linux does not know either.
fn check(flags: u64) -> Result<(), Errno> {
    let supported = AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT;
    if flags as u32 & !(supported as u32) == 0 { Ok(()) } else { Err(Errno::EINVAL) }
}

/// `stat(path, status)`.
pub fn stat(system: &mut System, [path, status, ..]: [u64; 6]) -> Result<u64, Errno> {
    newfstatat(system, [AT_FDCWD, path, status, 0, 0, 0])
}

/// `lstat(path, status)`.
pub fn lstat(system: &mut System, [path, status, ..]: [u64; 6]) -> Result<u64, Errno> {
    newfstatat(system, [AT_FDCWD, path, status, AT_SYMLINK_NOFOLLOW, 0, 0])
}

/// `fstat(fd, status)`.
pub fn fstat(system: &mut System, [fd, status, ..]: [u64; 6]) -> Result<u64, Errno> {
    if let Ok(inode) = system.files.inode(fd) {
        system.files.check_attributes(inode, true)?;
    }
    let file_status = system.files.status_of(system.files.raw_file(fd)?)?;
    write(status, &file_status.to_stat())?;
    Ok(0)
}

/// `newfstatat(directory, path, status, flags)`.
pub fn newfstatat(system: &mut System, [directory, path, status, flags, ..]: [u64; 6]) -> Result<u64, Errno> {
    check(flags)?;
    let inode = system.files.find_at(directory, &user::path(path)?, flags)?;
    system.files.check_attributes(inode, true)?;
    write(status, &system.files.status(inode)?.to_stat())?;
    Ok(0)
}

/// `statx(directory, path, flags, mask, status)`.
pub fn statx(system: &mut System, [directory, path, flags, mask, status, _]: [u64; 6]) -> Result<u64, Errno> {
    check(flags & !AT_STATX_SYNC_TYPE)?;
    if mask & STATX__RESERVED != 0 || flags & AT_STATX_SYNC_TYPE == AT_STATX_SYNC_TYPE {
        return Err(Errno::EINVAL);
    }
    // A null path is an empty one.
    let inode = if path == 0 && flags & AT_EMPTY_PATH != 0 {
        system.files.find_at(directory, b"", flags)?
    } else {
        system.files.find_at(directory, &user::path(path)?, flags)?
    };
    system.files.check_attributes(inode, true)?;
    write(status, &system.files.status(inode)?.to_statx())?;
    Ok(0)
}

/// `statfs(path, status)`.
pub fn statfs(system: &mut System, [path, status, ..]: [u64; 6]) -> Result<u64, Errno> {
    let inode = system.files.find(AT_FDCWD, &user::path(path)?, LookupFlags::FOLLOW)?;
    write_statfs(system, inode, status)
}

/// `fstatfs(fd, status)`.
pub fn fstatfs(system: &mut System, [fd, status, ..]: [u64; 6]) -> Result<u64, Errno> {
    let inode = system.files.inode(fd)?;
    write_statfs(system, inode, status)
}

/// Writes the `struct statfs` of an inode's file system. Everything that can be written is in the cell's memory.
fn write_statfs(system: &System, inode: InodeRef, address: u64) -> Result<u64, Errno> {
    const NAME_MAX: u64 = 255;
    /// `ST_VALID` (the other flags are valid) and `ST_RELATIME`.
    const FLAGS: u64 = 0x20 | 0x1000;
    const ST_RDONLY: u64 = 1;
    let tree = &system.files.tree;
    let (kind, blocks, free, files) = match (inode, tree.volume_of(inode)) {
        (_, Some(volume)) => {
            let memory = registers::memory();
            let image = tree.volume(volume)?.image.size() / PAGE_SIZE;
            let free = memory.quota.saturating_sub(memory.used);
            (OVERLAYFS_SUPER_MAGIC, image + memory.quota, free, free)
        }
        (InodeRef::Proc(entry), _) if entry.is_of_system() => (SYSFS_MAGIC, 0, 0, 0),
        (InodeRef::Proc(_), _) => (PROC_SUPER_MAGIC, 0, 0, 0),
        _ => (PIPEFS_MAGIC, 0, 0, 0),
    };
    let all_files = if files == 0 { 0 } else { files + tree.nodes() as u64 };
    // Type, block size, blocks, free, available, files, free files, id, name length, fragment size, flags.
    let flags = FLAGS | if tree.is_read_only(inode) { ST_RDONLY } else { 0 };
    user::set_words(address, &[kind, PAGE_SIZE, blocks, free, free, all_files, files, 0, NAME_MAX, PAGE_SIZE, flags, 0, 0, 0, 0])?;
    Ok(0)
}
