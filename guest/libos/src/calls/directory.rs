// SPDX-License-Identifier: MIT OR Apache-2.0
//! Directories and links: reading them, and the working directory.

use pando_rt::user::{UserRange, write};

use crate::erofs::FileType;
use crate::errno::Errno;
use crate::files::directory_file::DirectoryFile;
use crate::files::namei::LookupFlags;
use crate::files::tree::{DirectoryEntry, InodeRef, NAME_MAX};
use crate::files::user_copy::deliver;
use crate::system::System;
use crate::uapi::{AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_NOFOLLOW, IN_ACCESS};
use crate::user;

/// Bytes of a `struct linux_dirent64` before the name, and of the longest one.
const HEADER: usize = 19;
const LONGEST: usize = (HEADER + NAME_MAX + 1).next_multiple_of(8);

/// The entry's `d_type`.
const fn number_of(kind: Option<FileType>) -> u8 {
    match kind {
        Some(FileType::Fifo) => 1,
        Some(FileType::CharacterDevice) => 2,
        Some(FileType::Directory) => 4,
        Some(FileType::BlockDevice) => 6,
        Some(FileType::Regular) => 8,
        Some(FileType::Symlink) => 10,
        Some(FileType::Socket) => 12,
        None => 0,
    }
}

/// A `struct linux_dirent64`, and the number of its bytes.
fn entry(listed: &DirectoryEntry<'_>) -> ([u8; LONGEST], usize) {
    let mut bytes = [0; LONGEST];
    let length = (HEADER + listed.name.len() + 1).next_multiple_of(8).min(LONGEST);
    bytes[..8].copy_from_slice(&listed.number.to_le_bytes());
    bytes[8..16].copy_from_slice(&listed.next.to_le_bytes());
    bytes[16..18].copy_from_slice(&(length as u16).to_le_bytes());
    bytes[18] = number_of(listed.kind);
    bytes[HEADER..HEADER + listed.name.len()].copy_from_slice(listed.name);
    (bytes, length)
}

/// A `struct linux_dirent`: the same with the type as the last byte.
fn old_entry(listed: &DirectoryEntry<'_>) -> ([u8; LONGEST], usize) {
    let (mut bytes, _) = entry(listed);
    let length = (HEADER + 1 + listed.name.len()).next_multiple_of(8).min(LONGEST);
    bytes[16..18].copy_from_slice(&(length as u16).to_le_bytes());
    bytes.copy_within(HEADER..LONGEST, HEADER - 1);
    bytes[length - 1] = number_of(listed.kind);
    (bytes, length)
}

/// `getdents64(fd, buffer, length)`.
pub fn getdents64(system: &mut System, [fd, address, length, ..]: [u64; 6]) -> Result<u64, Errno> {
    list(system, fd, address, length, entry)
}

/// `getdents(fd, buffer, length)`.
pub fn getdents(system: &mut System, [fd, address, length, ..]: [u64; 6]) -> Result<u64, Errno> {
    list(system, fd, address, length, old_entry)
}

fn list(
    system: &mut System,
    fd: u64,
    address: u64,
    length: u64,
    entry: impl Fn(&DirectoryEntry<'_>) -> ([u8; LONGEST], usize),
) -> Result<u64, Errno> {
    let room = u64::from(length as u32);
    let file = system.files.file(fd)?;
    let DirectoryFile(directory) = file.downcast().ok_or(Errno::ENOTDIR)?;
    let mut position = file.offset;
    let directory = system.files.tree.real_inode(directory);
    system.files.check_listing(directory, position)?;
    // A removed directory has no entries, not even `.`.
    if system.files.status(directory)?.links == 0 {
        return Err(Errno::ENOENT);
    }
    let (mut done, mut failure) = (0, None);
    system.files.list(directory, position, |listed| {
        let (bytes, length) = entry(&listed);
        if done + length as u64 > room {
            failure = Some(Errno::EINVAL);
            return false;
        }
        if write(address.wrapping_add(done), &bytes[..length]).is_err() {
            failure = Some(Errno::EFAULT);
            return false;
        }
        done += length as u64;
        position = listed.next;
        true
    })?;
    if let (0, Some(failure)) = (done, failure) {
        return Err(failure);
    }
    system.files.get(fd)?.offset = position;
    system.files.notify_open(fd, IN_ACCESS);
    Ok(done)
}

/// `getcwd(buffer, size)`.
pub fn getcwd(system: &mut System, [address, size, ..]: [u64; 6]) -> Result<u64, Errno> {
    let path = system.files.path_of(system.files.current.working_directory)?;
    let mut path = path.unwrap_or_else(|| b"(unreachable)/".to_vec());
    path.push(0);
    if path.len() as u64 > size {
        return Err(Errno::ERANGE);
    }
    write(address, &path)?;
    Ok(path.len() as u64)
}

/// `chdir(path)`.
pub fn chdir(system: &mut System, [path, ..]: [u64; 6]) -> Result<u64, Errno> {
    let inode = system.files.find(AT_FDCWD, &user::path(path)?, LookupFlags::FOLLOW)?;
    system.files.change_directory(inode).map(|()| 0)
}

/// `fchdir(fd)`.
pub fn fchdir(system: &mut System, [fd, ..]: [u64; 6]) -> Result<u64, Errno> {
    let inode = system.files.inode(fd)?;
    system.files.change_directory(inode).map(|()| 0)
}

/// `chroot(path)`.
pub fn chroot(system: &mut System, [path, ..]: [u64; 6]) -> Result<u64, Errno> {
    let inode = system.files.find(AT_FDCWD, &user::path(path)?, LookupFlags::FOLLOW)?;
    system.files.change_root(inode).map(|()| 0)
}

/// `readlink(path, buffer, size)`.
pub fn readlink(system: &mut System, [path, address, size, ..]: [u64; 6]) -> Result<u64, Errno> {
    readlinkat(system, [AT_FDCWD, path, address, size, 0, 0])
}

/// `readlinkat(directory, path, buffer, size)`.
pub fn readlinkat(system: &mut System, [directory, path, address, size, ..]: [u64; 6]) -> Result<u64, Errno> {
    if size as i32 <= 0 {
        return Err(Errno::EINVAL);
    }
    let path = user::path(path)?;
    let files = &system.files;
    let inode = match files.find_at(directory, &path, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH)? {
        // Without a path the descriptor itself must be that of a link.
        inode if path.is_empty() && files.status(inode)?.kind() != Some(FileType::Symlink) => return Err(Errno::ENOENT),
        inode => inode,
    };
    let text;
    let target = match inode {
        InodeRef::Proc(link) => {
            text = files.proc_target_text(link)?;
            &text
        }
        InodeRef::Descriptor(_) => return Err(Errno::EINVAL),
        _ => {
            files.check_target(inode)?;
            files.tree.target(inode)?
        }
    };
    let to = UserRange::new(address, (target.len() as u64).min(size))?;
    let done = deliver(to, &target[..to.length() as usize])?;
    if (done as u64) < to.length() { Err(Errno::EFAULT) } else { Ok(to.length()) }
}

/// `umask(mask)`.
pub fn umask(system: &mut System, [mask, ..]: [u64; 6]) -> Result<u64, Errno> {
    Ok(core::mem::replace(&mut system.files.current.umask, mask & 0o777))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_laid_out_as_linux_does() {
        let listed = DirectoryEntry { name: b"file", number: 7, kind: Some(FileType::Regular), next: 24 };
        let (bytes, length) = entry(&listed);
        assert_eq!(bytes[..length], [7, 0, 0, 0, 0, 0, 0, 0, 24, 0, 0, 0, 0, 0, 0, 0, 24, 0, 8, b'f', b'i', b'l', b'e', 0]);
        let (bytes, length) = old_entry(&listed);
        assert_eq!(bytes[..length], [7, 0, 0, 0, 0, 0, 0, 0, 24, 0, 0, 0, 0, 0, 0, 0, 24, 0, b'f', b'i', b'l', b'e', 0, 8]);
    }
}
