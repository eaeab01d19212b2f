// SPDX-License-Identifier: MIT OR Apache-2.0
//! Directories and links: reading them, and the working directory.

use alloc::vec::Vec;

use pando_rt::user::write;

use crate::erofs::{Entry, FileType, LastLink, Position};
use crate::errno::Errno;
use crate::files::Kind;
use crate::files::names::{CURRENT, Special, special};
use crate::process::Process;
use crate::user;

/// Bytes that `getdents64` returns at most; who asks for more asks again.
const ENTRIES_MAX: u64 = 32 << 10;

/// Appends a `struct linux_dirent64`. `false`: there is no room for it.
fn append(bytes: &mut Vec<u8>, entry: &Entry<'_>, room: usize) -> bool {
    const HEADER: usize = 19;
    let length = (HEADER + entry.name.len() + 1).next_multiple_of(8);
    if bytes.len() + length > room {
        return false;
    }
    let kind = match entry.kind {
        Some(FileType::Fifo) => 1,
        Some(FileType::CharacterDevice) => 2,
        Some(FileType::Directory) => 4,
        Some(FileType::BlockDevice) => 6,
        Some(FileType::Regular) => 8,
        Some(FileType::Symlink) => 10,
        Some(FileType::Socket) => 12,
        None => 0,
    };
    let end = bytes.len() + length;
    bytes.extend(entry.nid.number().to_le_bytes());
    bytes.extend(entry.next.0.to_le_bytes());
    bytes.extend((length as u16).to_le_bytes());
    bytes.push(kind);
    bytes.extend(entry.name);
    bytes.resize(end, 0);
    true
}

/// `getdents64(fd, buffer, length)`.
pub fn getdents64(process: &mut Process, [fd, address, length, ..]: [u64; 6]) -> Result<u64, Errno> {
    let image = process.files.root.image;
    let file = process.files.get(fd)?;
    let Kind::Directory(inode) = file.kind else { return Err(Errno::ENOTDIR) };
    let room = length.min(ENTRIES_MAX) as usize;
    let mut bytes = Vec::new();
    let mut position = file.offset;
    for entry in image.directory(&inode)?.entries(Position(position)) {
        let entry = entry?;
        if !append(&mut bytes, &entry, room) {
            if bytes.is_empty() {
                return Err(Errno::EINVAL);
            }
            break;
        }
        position = entry.next.0;
    }
    write(address, &bytes)?;
    file.offset = position;
    Ok(bytes.len() as u64)
}

/// `getcwd(buffer, size)`.
pub fn getcwd(process: &mut Process, [address, size, ..]: [u64; 6]) -> Result<u64, Errno> {
    let mut path = process.files.path_of(process.files.working_directory)?;
    path.push(0);
    if path.len() as u64 > size {
        return Err(Errno::ERANGE);
    }
    write(address, &path)?;
    Ok(path.len() as u64)
}

/// `chdir(path)`.
pub fn chdir(process: &mut Process, [path, ..]: [u64; 6]) -> Result<u64, Errno> {
    let path = user::path(path)?;
    let inode = process.files.resolve(CURRENT, &path, LastLink::Follow)?;
    if inode.kind != FileType::Directory {
        return Err(Errno::ENOTDIR);
    }
    process.files.working_directory = inode.nid;
    Ok(0)
}

/// `fchdir(fd)`.
pub fn fchdir(process: &mut Process, [fd, ..]: [u64; 6]) -> Result<u64, Errno> {
    let Kind::Directory(inode) = process.files.get(fd)?.kind else { return Err(Errno::ENOTDIR) };
    process.files.working_directory = inode.nid;
    Ok(0)
}

/// `readlink(path, buffer, size)`.
pub fn readlink(process: &mut Process, [path, address, size, ..]: [u64; 6]) -> Result<u64, Errno> {
    readlinkat(process, [CURRENT, path, address, size, 0, 0])
}

/// `readlinkat(directory, path, buffer, size)`.
pub fn readlinkat(process: &mut Process, [directory, path, address, size, ..]: [u64; 6]) -> Result<u64, Errno> {
    if size as i32 <= 0 {
        return Err(Errno::EINVAL);
    }
    let path = user::path(path)?;
    let made_up: Option<Special> = special(&path);
    let target = match made_up {
        Some(made_up) => process.files.special_target(made_up)?.ok_or(Errno::EINVAL)?,
        None => {
            let inode = process.files.resolve(directory, &path, LastLink::Keep)?;
            process.files.root.image.link_target(&inode)?.to_vec()
        }
    };
    let bytes = &target[..target.len().min(size as usize)];
    write(address, bytes)?;
    Ok(bytes.len() as u64)
}

/// `umask(mask)`.
pub fn umask(process: &mut Process, [mask, ..]: [u64; 6]) -> Result<u64, Errno> {
    Ok(core::mem::replace(&mut process.files.umask, mask & 0o777))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::erofs::Nid;

    #[test]
    fn an_entry_is_laid_out_as_linux_does() {
        let entry = Entry { name: b"file", nid: Nid::new(7), kind: Some(FileType::Regular), next: Position(24) };
        let mut bytes = Vec::new();
        assert!(append(&mut bytes, &entry, 24));
        assert_eq!(bytes, [7, 0, 0, 0, 0, 0, 0, 0, 24, 0, 0, 0, 0, 0, 0, 0, 24, 0, 8, b'f', b'i', b'l', b'e', 0]);
        assert!(!append(&mut bytes, &entry, 47), "the second needs 48 bytes in all");
    }
}
