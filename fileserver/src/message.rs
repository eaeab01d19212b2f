// SPDX-License-Identifier: MIT OR Apache-2.0
//! The checks of a client's messages, and the parts of them that the server reads or sets itself.
//!
//! The constants and layouts are those of `linux/fuse.h`, under their names there.

use fuse_backend_rs::abi::fuse_abi::SetattrValid;
use linux_raw_sys::general::{O_ACCMODE, O_EXCL, O_NOFOLLOW, O_NONBLOCK, RENAME_EXCHANGE, RENAME_NOREPLACE};
use linux_raw_sys::general::{S_IFIFO, S_IFMT, S_IFREG, S_IFSOCK};
use rustix::io::Errno;
use std::ffi::CString;

pub(crate) const FUSE_LOOKUP: u32 = 1;
pub(crate) const FUSE_FORGET: u32 = 2;
const FUSE_GETATTR: u32 = 3;
pub(crate) const FUSE_SETATTR: u32 = 4;
const FUSE_READLINK: u32 = 5;
pub(crate) const FUSE_SYMLINK: u32 = 6;
pub(crate) const FUSE_MKNOD: u32 = 8;
pub(crate) const FUSE_MKDIR: u32 = 9;
pub(crate) const FUSE_UNLINK: u32 = 10;
pub(crate) const FUSE_RMDIR: u32 = 11;
pub(crate) const FUSE_LINK: u32 = 13;
pub(crate) const FUSE_OPEN: u32 = 14;
pub(crate) const FUSE_READ: u32 = 15;
pub(crate) const FUSE_WRITE: u32 = 16;
const FUSE_STATFS: u32 = 17;
pub(crate) const FUSE_RELEASE: u32 = 18;
pub(crate) const FUSE_FSYNC: u32 = 20;
pub(crate) const FUSE_SETXATTR: u32 = 21;
const FUSE_GETXATTR: u32 = 22;
const FUSE_LISTXATTR: u32 = 23;
pub(crate) const FUSE_REMOVEXATTR: u32 = 24;
pub(crate) const FUSE_OPENDIR: u32 = 27;
const FUSE_RELEASEDIR: u32 = 29;
pub(crate) const FUSE_FSYNCDIR: u32 = 30;
pub(crate) const FUSE_CREATE: u32 = 35;
pub(crate) const FUSE_BATCH_FORGET: u32 = 42;
pub(crate) const FUSE_READDIRPLUS: u32 = 44;
pub(crate) const FUSE_RENAME2: u32 = 45;
/// Not of Linux: watches an inode for changes by others, which the server reports as notifications ([`PANDO_NOTIFY_CHANGE`]). The body is
/// the mask of `inotify_add_watch`.
pub const PANDO_WATCH: u32 = 0x5057;
/// Not of Linux: the code of a notification of a change. The body is the inode, the mask and cookie of the event, and the name.
pub const PANDO_NOTIFY_CHANGE: i32 = 0x5057;

/// The handle of reads and synchronisations that open the file for themselves.
pub const NO_HANDLE: u64 = u64::MAX;

/// Set-user-ID and set-group-ID, which would give the server's rights to others.
const SET_ID: u32 = 0o6000;

const FATTR_MODE: u32 = SetattrValid::MODE.bits();
const FATTR_OWNER: u32 = SetattrValid::UID.bits() | SetattrValid::GID.bits();
const FATTR_SIZE: u32 = SetattrValid::SIZE.bits();

/// Bytes of `struct fuse_in_header`.
const HEADER: usize = 40;
/// Bytes of `struct fuse_out_header`.
pub(crate) const OUT_HEADER: usize = 16;
/// Longest name.
const NAME_MAX: usize = 255;

/// The part of `struct fuse_in_header` that the server uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    /// The operation.
    pub opcode: u32,
    /// The number of the request, which its answer has.
    pub unique: u64,
    /// The inode.
    pub nodeid: u64,
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

fn set_word(bytes: &mut [u8], at: usize, value: u32) {
    if let Some(room) = bytes.get_mut(at..at + 4) {
        room.copy_from_slice(&value.to_le_bytes());
    }
}

impl RequestHeader {
    /// Parses the header of a message. `None`: it is no message, or its length is not that of the packet.
    pub fn parse(message: &[u8]) -> Option<RequestHeader> {
        let length = word(message, 0)?;
        let header = RequestHeader { opcode: word(message, 4)?, unique: long(message, 8)?, nodeid: long(message, 16)? };
        (message.len() >= HEADER && length as usize == message.len()).then_some(header)
    }
}

/// Makes a request one of the server's own user: the server changes to no other.
pub(crate) fn clear_credentials(message: &mut [u8]) {
    // uid, gid, pid, and the words behind them.
    if let Some(credentials) = message.get_mut(24..HEADER) {
        credentials.fill(0);
    }
}

/// The handle of a read, or of a synchronisation.
pub(crate) fn handle(message: &[u8]) -> u64 {
    long(message, HEADER).unwrap_or_default()
}

/// Sets the handle of a read or of a synchronisation, and for a read the flags with which it was opened.
pub(crate) fn set_handle(message: &mut [u8], handle: u64, flags: u32) {
    if let Some(room) = message.get_mut(HEADER..HEADER + 8) {
        room.copy_from_slice(&handle.to_le_bytes());
    }
    set_word(message, HEADER + 32, flags);
}

/// The end of a write in the file.
pub(crate) fn write_end(message: &[u8]) -> Option<u64> {
    Some(long(message, HEADER + 8)?.saturating_add(word(message, HEADER + 16)?.into()))
}

/// The size that a `FUSE_SETATTR` sets.
pub(crate) fn new_size(message: &[u8]) -> Option<u64> {
    if word(message, HEADER)? & FATTR_SIZE == 0 { None } else { long(message, HEADER + 16) }
}

/// The target directory and the flags of a `FUSE_RENAME2`.
pub(crate) fn rename_target(message: &[u8]) -> Option<(u64, u32)> {
    Some((long(message, HEADER)?, word(message, HEADER + 8)?))
}

/// The value and the flags of a `FUSE_SETXATTR` for this name.
pub(crate) fn xattr_value<'a>(message: &'a [u8], name: &CString) -> Option<(&'a [u8], u32)> {
    let size = word(message, HEADER)? as usize;
    let value = message.get(HEADER + 8 + name.as_bytes_with_nul().len()..)?;
    (value.len() == size).then_some((value, word(message, HEADER + 4)?))
}

/// The mask of a `PANDO_WATCH`.
pub(crate) fn watch_mask(message: &[u8]) -> u32 {
    word(message, HEADER).unwrap_or_default()
}

/// Whether an operation changes files.
pub(crate) fn is_change(opcode: u32) -> bool {
    matches!(
        opcode,
        FUSE_SETATTR
            | FUSE_SYMLINK
            | FUSE_MKNOD
            | FUSE_MKDIR
            | FUSE_UNLINK
            | FUSE_RMDIR
            | FUSE_LINK
            | FUSE_WRITE
            | FUSE_SETXATTR
            | FUSE_REMOVEXATTR
            | FUSE_CREATE
            | FUSE_RENAME2
    )
}

/// The bytes of a request's fixed structure, before its strings, and the number of strings. `None`: the server has no such operation.
fn layout(opcode: u32) -> Option<(usize, usize)> {
    Some(match opcode {
        FUSE_LOOKUP | FUSE_UNLINK | FUSE_RMDIR | FUSE_REMOVEXATTR => (0, 1),
        FUSE_FORGET => (8, 0),
        FUSE_GETATTR => (16, 0),
        FUSE_SETATTR => (88, 0),
        FUSE_READLINK | FUSE_STATFS => (0, 0),
        FUSE_SYMLINK => (0, 2),
        FUSE_MKNOD => (16, 1),
        FUSE_MKDIR => (8, 1),
        FUSE_LINK => (8, 1),
        FUSE_OPEN | FUSE_OPENDIR => (8, 0),
        FUSE_READ | FUSE_READDIRPLUS => (40, 0),
        FUSE_WRITE => (40, 0),
        FUSE_RELEASE | FUSE_RELEASEDIR => (24, 0),
        FUSE_FSYNC | FUSE_FSYNCDIR => (16, 0),
        FUSE_SETXATTR | FUSE_GETXATTR => (8, 1),
        FUSE_LISTXATTR => (8, 0),
        FUSE_CREATE => (16, 1),
        FUSE_BATCH_FORGET => (8, 0),
        FUSE_RENAME2 => (16, 2),
        PANDO_WATCH => (4, 0),
        _ => return None,
    })
}

/// The names in a request.
pub(crate) fn names(header: &RequestHeader, message: &[u8]) -> Vec<Vec<u8>> {
    let Some((fixed, strings)) = layout(header.opcode) else { return Vec::new() };
    let rest = message.get(HEADER + fixed..).unwrap_or_default();
    rest.split(|byte| *byte == 0).take(strings).map(Vec::from).collect()
}

/// Checks a request, and takes from it what the server does not do for a cell: other owners, set-user-ID bits, flags of open files.
///
/// # Errors
/// The number of the error for the client.
pub(crate) fn check(header: &RequestHeader, message: &mut [u8], is_read_only: bool) -> Result<(), Errno> {
    let (fixed, strings) = layout(header.opcode).ok_or(Errno::NOSYS)?;
    let body = message.get(HEADER + fixed..).ok_or(Errno::INVAL)?;
    if body.iter().filter(|byte| **byte == 0).count() < strings || strings > 0 && body.is_empty() {
        return Err(Errno::INVAL);
    }
    if is_read_only && is_change(header.opcode) {
        return Err(Errno::ROFS);
    }
    check_names(header, message)?;
    match header.opcode {
        FUSE_OPEN => {
            let access = word(message, HEADER).ok_or(Errno::INVAL)? & O_ACCMODE;
            if is_read_only && access != 0 {
                return Err(Errno::ROFS);
            }
            // Never with O_TRUNC, O_PATH or O_ASYNC; a FIFO or device is not opened at all.
            set_word(message, HEADER, access | O_NONBLOCK);
            set_word(message, HEADER + 4, 0);
        }
        FUSE_CREATE => {
            let flags = word(message, HEADER).ok_or(Errno::INVAL)?;
            set_word(message, HEADER, flags & (O_ACCMODE | O_EXCL) | O_NOFOLLOW | O_NONBLOCK);
            clear_set_id(message, HEADER + 4);
            set_word(message, HEADER + 12, 0);
        }
        FUSE_OPENDIR => set_word(message, HEADER, 0),
        FUSE_MKDIR => clear_set_id(message, HEADER),
        FUSE_MKNOD => {
            let kind = word(message, HEADER).ok_or(Errno::INVAL)? & S_IFMT;
            if !matches!(kind, 0 | S_IFREG | S_IFIFO | S_IFSOCK) {
                return Err(Errno::PERM);
            }
            clear_set_id(message, HEADER);
        }
        FUSE_SETATTR => {
            let valid = word(message, HEADER).ok_or(Errno::INVAL)?;
            set_word(message, HEADER, valid & !FATTR_OWNER);
            if valid & FATTR_MODE != 0 {
                clear_set_id(message, HEADER + 68);
            }
        }
        FUSE_RENAME2 if word(message, HEADER + 8).ok_or(Errno::INVAL)? & !(RENAME_NOREPLACE | RENAME_EXCHANGE) != 0 => {
            return Err(Errno::INVAL);
        }
        FUSE_WRITE => {
            let size = word(message, HEADER + 16).ok_or(Errno::INVAL)? as usize;
            if message.len() != HEADER + fixed + size {
                return Err(Errno::INVAL);
            }
            set_word(message, HEADER + 20, 0);
            let flags = word(message, HEADER + 32).ok_or(Errno::INVAL)?;
            set_word(message, HEADER + 32, flags & O_ACCMODE | O_NONBLOCK);
        }
        FUSE_READ | FUSE_READDIRPLUS => {
            if word(message, HEADER + 16).ok_or(Errno::INVAL)? as usize > crate::DATA_MAX {
                return Err(Errno::INVAL);
            }
            let flags = word(message, HEADER + 32).ok_or(Errno::INVAL)?;
            set_word(message, HEADER + 32, flags & O_ACCMODE | O_NONBLOCK);
        }
        _ => {}
    }
    Ok(())
}

/// Checks the names in a request: each is one component, and neither `.` nor `..`. Only attributes of users are served.
fn check_names(header: &RequestHeader, message: &[u8]) -> Result<(), Errno> {
    let names = names(header, message);
    match header.opcode {
        FUSE_SETXATTR | FUSE_GETXATTR | FUSE_REMOVEXATTR => {
            return if names.iter().all(|name| name.starts_with(b"user.")) { Ok(()) } else { Err(Errno::OPNOTSUPP) };
        }
        _ => {}
    }
    // The second string of a link is its target, which the server never follows.
    let count = if header.opcode == FUSE_SYMLINK { 1 } else { names.len() };
    let is_component =
        |name: &Vec<u8>| !name.is_empty() && name.len() <= NAME_MAX && !name.contains(&b'/') && *name != b"." && *name != b"..";
    if names.iter().take(count).all(is_component) { Ok(()) } else { Err(Errno::INVAL) }
}

fn clear_set_id(message: &mut [u8], at: usize) {
    if let Some(mode) = word(message, at) {
        set_word(message, at, mode & !SET_ID);
    }
}

/// An answer without data.
pub(crate) fn answer(unique: u64, error: Option<Errno>) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&16_u32.to_le_bytes());
    bytes[4..8].copy_from_slice(&(-error.map_or(0, Errno::raw_os_error)).to_le_bytes());
    bytes[8..].copy_from_slice(&unique.to_le_bytes());
    bytes
}

/// The notification of a change.
pub(crate) fn change(inode: u64, mask: u32, cookie: u32, name: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(32 + name.len());
    bytes.extend(((32 + name.len()) as u32).to_le_bytes());
    bytes.extend(PANDO_NOTIFY_CHANGE.to_le_bytes());
    bytes.extend(0_u64.to_le_bytes());
    bytes.extend(inode.to_le_bytes());
    bytes.extend(mask.to_le_bytes());
    bytes.extend(cookie.to_le_bytes());
    bytes.extend(name);
    bytes
}
