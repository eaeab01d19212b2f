// SPDX-License-Identifier: MIT OR Apache-2.0
//! The messages of FUSE (`linux/fuse.h`), as bytes.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::erofs::Time;
use crate::files::tree::node::Times;

/// Bytes of `struct fuse_in_header`.
pub const IN_HEADER: usize = 40;
/// Bytes of `struct fuse_out_header`.
pub const OUT_HEADER: usize = 16;
/// Bytes of `struct fuse_attr`.
const ATTR: usize = 88;
/// Bytes of `struct fuse_entry_out` before the attributes.
const ENTRY: usize = 40;
/// Bytes of `struct fuse_attr_out` before the attributes.
const ATTR_OUT: usize = 16;
/// Bytes of `struct fuse_dirent` before the name.
const DIRENT: usize = 24;
/// Most bytes of file content in a message: a file server accepts no more.
pub const DATA_MAX: usize = 128 << 10;
/// The handle of a read, or of a synchronisation, for which the server opens the file (not of Linux).
pub const NO_HANDLE: u64 = u64::MAX;
/// The request to report changes by others (not of Linux).
pub const PANDO_WATCH: u32 = 0x5057;
/// The code of a notification of such a change (not of Linux).
pub const PANDO_NOTIFY_CHANGE: i32 = 0x5057;
/// The code of a notification that the server is gone (not of Linux).
pub const PANDO_NOTIFY_END: i32 = 0x5058;

/// Parts of a message's body, as little-endian words and strings.
#[derive(Debug, Default)]
pub struct Body(pub Vec<u8>);

impl Body {
    /// Appends 32-bit words.
    #[must_use]
    pub fn words(mut self, words: &[u32]) -> Body {
        words.iter().for_each(|word| self.0.extend_from_slice(&word.to_le_bytes()));
        self
    }

    /// Appends 64-bit words.
    #[must_use]
    pub fn longs(mut self, longs: &[u64]) -> Body {
        longs.iter().for_each(|long| self.0.extend_from_slice(&long.to_le_bytes()));
        self
    }

    /// Appends bytes.
    #[must_use]
    pub fn bytes(mut self, bytes: &[u8]) -> Body {
        self.0.extend_from_slice(bytes);
        self
    }

    /// Appends a string and its zero byte.
    #[must_use]
    pub fn string(self, text: &[u8]) -> Body {
        self.bytes(text).bytes(&[0])
    }
}

/// A 32-bit word of a message; 0 behind its end.
pub fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_le_bytes)
}

/// A 64-bit word of a message; 0 behind its end.
pub fn long(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes)
}

/// The attributes of a file (`struct fuse_attr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// The inode number on the host.
    pub number: u64,
    /// Bytes.
    pub size: u64,
    /// The times of last access, change of content, and change.
    pub times: Times,
    /// Type and permissions.
    pub mode: u32,
    /// Hard links.
    pub links: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The device number of a device.
    pub device: u32,
}

impl Attributes {
    fn parse(bytes: &[u8]) -> Option<Attributes> {
        let bytes = bytes.get(..ATTR)?;
        let time = |seconds, nanoseconds| Time { seconds: long(bytes, seconds).cast_signed(), nanoseconds: word(bytes, nanoseconds) };
        let (accessed, modified, changed) = (time(24, 48), time(32, 52), time(40, 56));
        Some(Attributes {
            number: long(bytes, 0),
            size: long(bytes, 8),
            times: Times { accessed, modified, changed, born: changed },
            mode: word(bytes, 60),
            links: word(bytes, 64),
            uid: word(bytes, 68),
            gid: word(bytes, 72),
            device: word(bytes, 76),
        })
    }

    /// Parses a `struct fuse_attr_out`.
    #[must_use]
    pub fn of_answer(bytes: &[u8]) -> Option<Attributes> {
        Attributes::parse(bytes.get(ATTR_OUT..)?)
    }
}

/// A file that a name leads to (`struct fuse_entry_out`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerEntry {
    /// The server's number of the inode; 0: none.
    pub nodeid: u64,
    /// Its attributes.
    pub attributes: Attributes,
}

impl ServerEntry {
    /// Bytes of a `struct fuse_entry_out`.
    pub const SIZE: usize = ENTRY + ATTR;

    /// Parses a `struct fuse_entry_out`.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<ServerEntry> {
        Some(ServerEntry { nodeid: long(bytes, 0), attributes: Attributes::parse(bytes.get(ENTRY..)?)? })
    }
}

/// A name in a listing, with its file.
pub type ListedEntry = (Box<[u8]>, ServerEntry);

/// The entries of a listing (`struct fuse_direntplus`), and the offset behind the last of them.
#[must_use]
pub fn listing(bytes: &[u8]) -> (Vec<ListedEntry>, u64) {
    let (mut entries, mut at, mut next) = (Vec::new(), 0, 0);
    while let Some(entry) = bytes.get(at..).and_then(ServerEntry::parse) {
        let dirent = at + ServerEntry::SIZE;
        let length = word(bytes, dirent + 16) as usize;
        let Some(name) = bytes.get(dirent + DIRENT..dirent + DIRENT + length) else { break };
        next = long(bytes, dirent + 8);
        if !matches!(name, b"." | b"..") && entry.nodeid != 0 {
            entries.push((name.into(), entry));
        }
        at = (dirent + DIRENT + length).next_multiple_of(8);
    }
    (entries, next)
}
