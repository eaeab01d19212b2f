// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a libOS says to its operator through the channel: which files of an export are to be what from now on.
//!
//! An *export* is a file or directory of the host that the operator lets the cell change; the argument block lists them.
//! The libOS sends records, each a [`Header`] and so many bytes. Records that name something begin with an [`Entry`] and
//! the path, relative to the export, its names separated by single slashes; an empty path is the export itself, if that is a file. What goes wrong with a
//! record is remembered and answered at the next [`Kind::Sync`], whose answer is an [`Answer`].
//!
//! ```text
//! File(entry, path)  Data(offset, bytes)...  Close       a regular file, replaced as a whole
//! Directory(entry, path)                                 a directory, made if it is not there; then its attributes
//! Symlink(entry, path, target)                           a symbolic link, replaced as a whole
//! Remove(entry, path)                                    a file, a link, or an empty directory; nothing there is no error
//! Lost(entry, path)                                      what is there cannot be said; the size is Linux's number of the error
//! Sync                                                   all of it is on the host's disk, says the answer
//! ```

/// The longest path and the longest target of a link, in bytes: Linux's own limit.
pub const MAX_PATH: usize = 4095;
/// The most bytes of a file that one record carries.
pub const MAX_DATA: usize = 256 << 10;
/// The most bytes that follow a header.
pub const MAX_RECORD: usize = if 8 + MAX_DATA > Entry::SIZE + 2 * MAX_PATH { 8 + MAX_DATA } else { Entry::SIZE + 2 * MAX_PATH };

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// A regular file begins: an entry and its path.
    File = 1,
    /// Bytes of it: the offset, eight bytes, then the bytes.
    Data = 2,
    /// It is complete.
    Close = 3,
    /// A directory: an entry and its path.
    Directory = 4,
    /// A symbolic link: an entry, its path, its target.
    Symlink = 5,
    /// Nothing: an entry and its path.
    Remove = 6,
    /// A question: is all that was said so far done?
    Sync = 7,
    /// What a path leads to cannot be said: an entry, whose size is the number of the error, and the path, as far as it fits.
    Lost = 8,
}

impl Kind {
    const ALL: [Kind; 8] = [Kind::File, Kind::Data, Kind::Close, Kind::Directory, Kind::Symlink, Kind::Remove, Kind::Sync, Kind::Lost];
}

/// What every record begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What it is.
    pub kind: Kind,
    /// Bytes that follow, at most [`MAX_RECORD`].
    pub length: u32,
}

impl Header {
    /// Bytes of a header.
    pub const SIZE: usize = 8;

    /// The bytes of the header.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Header::SIZE] {
        (self.kind as u64 | u64::from(self.length) << 32).to_le_bytes()
    }

    /// The header that these bytes are. `None`: no header, or of a record that is too long.
    #[must_use]
    pub fn from_bytes(bytes: [u8; Header::SIZE]) -> Option<Header> {
        let word = u64::from_le_bytes(bytes);
        let kind = Kind::ALL.into_iter().find(|kind| *kind as u32 == word as u32)?;
        let length = (word >> 32) as u32;
        (length as usize <= MAX_RECORD).then_some(Header { kind, length })
    }
}

/// Something in an export, and what it shall be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Which export.
    pub export: u32,
    /// Bytes of the path that follows.
    pub path_length: u32,
    /// Permissions.
    pub permissions: u32,
    /// Nanoseconds of the time of its last change.
    pub modified_nanoseconds: u32,
    /// Seconds of that time, since 1970.
    pub modified_seconds: i64,
    /// Bytes of a regular file.
    pub size: u64,
}

impl Entry {
    /// Bytes of an entry.
    pub const SIZE: usize = 32;

    /// The bytes of the entry.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Entry::SIZE] {
        let words = [
            u64::from(self.export) | u64::from(self.path_length) << 32,
            u64::from(self.permissions) | u64::from(self.modified_nanoseconds) << 32,
            self.modified_seconds.cast_unsigned(),
            self.size,
        ];
        let mut bytes = [0; Entry::SIZE];
        for (room, word) in bytes.chunks_exact_mut(8).zip(words) {
            room.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// The entry that these bytes are.
    #[must_use]
    pub fn from_bytes(bytes: [u8; Entry::SIZE]) -> Entry {
        let mut words = [0; 4];
        for (word, piece) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            let mut eight = [0; 8];
            eight.copy_from_slice(piece);
            *word = u64::from_le_bytes(eight);
        }
        Entry {
            export: words[0] as u32,
            path_length: (words[0] >> 32) as u32,
            permissions: words[1] as u32,
            modified_nanoseconds: (words[1] >> 32) as u32,
            modified_seconds: words[2].cast_signed(),
            size: words[3],
        }
    }
}

/// The answer to [`Kind::Sync`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Linux's number of the first error since the last answer; 0: all was done.
    pub errno: u32,
}

impl Answer {
    /// Bytes of an answer.
    pub const SIZE: usize = 4;

    /// The bytes of the answer.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Answer::SIZE] {
        self.errno.to_le_bytes()
    }

    /// The answer that these bytes are.
    #[must_use]
    pub fn from_bytes(bytes: [u8; Answer::SIZE]) -> Answer {
        Answer { errno: u32::from_le_bytes(bytes) }
    }
}
