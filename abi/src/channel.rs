// SPDX-License-Identifier: MIT OR Apache-2.0
//! The export protocol: the messages from a libOS to its operator about changed files of an export.
//!
//! An *export* is a file or directory of the host that the operator lets the cell change; the argument block lists
//! them. The libOS sends records, each a [`Header`] and a payload. Records that name a file begin with an [`ExportedFile`]
//! and the path relative to the export, its names separated by single slashes. An empty path is the export itself, if
//! that is a file. The first error is remembered and reported in the [`Answer`] to the next [`Kind::Sync`].
//!
//! ```text
//! File(entry, path)  Data(offset, bytes)...  Close       a regular file, replaced as a whole
//! Directory(entry, path)                                 a directory, made if it does not exist; then its attributes
//! Symlink(entry, path, target)                           a symbolic link, replaced as a whole
//! Remove(entry, path)                                    a file, a link, or an empty directory; a missing one is no error
//! Lost(entry, path)                                      the content cannot be sent; the size is Linux's errno
//! Sync                                                   answered once everything is on the host's disk
//! Message(mount, bytes)                                  a message of FUSE for the file server of a live mount
//! ```
//!
//! The operator sends messages, each with the index of its mount in four bytes before it: those of the file servers, which begin with a
//! `fuse_out_header` and so with their length, and answers to [`Kind::Sync`] in the same form ([`Answer`]).

/// Maximum length of a path and of a link's target, in bytes: Linux's own limit.
pub const MAX_PATH: usize = 4095;
/// Maximum number of file bytes in one record.
pub const MAX_DATA: usize = 256 << 10;
/// Maximum number of bytes after a header.
pub const MAX_RECORD: usize =
    if 8 + MAX_DATA > ExportedFile::SIZE + 2 * MAX_PATH { 8 + MAX_DATA } else { ExportedFile::SIZE + 2 * MAX_PATH };

/// The type of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// Begins a regular file: an entry and its path.
    File = 1,
    /// Bytes of it: the offset, eight bytes, then the bytes.
    Data = 2,
    /// Completes it.
    Close = 3,
    /// A directory: an entry and its path.
    Directory = 4,
    /// A symbolic link: an entry, its path, its target.
    Symlink = 5,
    /// A removal: an entry and its path.
    Remove = 6,
    /// A request to be answered once all earlier records are done.
    Sync = 7,
    /// A file whose content cannot be sent: an entry, whose size is the errno, and the path, as far as it fits.
    Lost = 8,
    /// A message for a file server: the index of the mount, four bytes, then the message.
    Message = 9,
}

impl Kind {
    const ALL: [Kind; 9] =
        [Kind::File, Kind::Data, Kind::Close, Kind::Directory, Kind::Symlink, Kind::Remove, Kind::Sync, Kind::Lost, Kind::Message];
}

/// The header of every record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The type.
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

    /// Decodes a header. `None`: invalid, or the record is too long.
    #[must_use]
    pub fn from_bytes(bytes: [u8; Header::SIZE]) -> Option<Header> {
        let word = u64::from_le_bytes(bytes);
        let kind = Kind::ALL.into_iter().find(|kind| *kind as u32 == word as u32)?;
        let length = (word >> 32) as u32;
        (length as usize <= MAX_RECORD).then_some(Header { kind, length })
    }
}

/// A file of an export, with its new attributes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExportedFile {
    /// Index of the export.
    pub export: u32,
    /// Bytes of the path that follows.
    pub path_length: u32,
    /// Permissions.
    pub permissions: u32,
    /// Nanoseconds of the modification time.
    pub modified_nanoseconds: u32,
    /// Seconds of the modification time, since 1970.
    pub modified_seconds: i64,
    /// Bytes of a regular file.
    pub size: u64,
}

impl ExportedFile {
    /// Bytes of an entry.
    pub const SIZE: usize = 32;

    /// The bytes of the entry.
    #[must_use]
    pub fn to_bytes(self) -> [u8; ExportedFile::SIZE] {
        let words = [
            u64::from(self.export) | u64::from(self.path_length) << 32,
            u64::from(self.permissions) | u64::from(self.modified_nanoseconds) << 32,
            self.modified_seconds.cast_unsigned(),
            self.size,
        ];
        let mut bytes = [0; ExportedFile::SIZE];
        for (room, word) in bytes.chunks_exact_mut(8).zip(words) {
            room.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Decodes an entry.
    #[must_use]
    pub fn from_bytes(bytes: [u8; ExportedFile::SIZE]) -> ExportedFile {
        let mut words = [0; 4];
        for (word, piece) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            let mut eight = [0; 8];
            eight.copy_from_slice(piece);
            *word = u64::from_le_bytes(eight);
        }
        ExportedFile {
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
    /// Linux's errno of the first error since the last answer; 0 on success.
    pub errno: u32,
}

impl Answer {
    /// Bytes of an answer: the index of no mount, and a `fuse_out_header`.
    pub const SIZE: usize = 20;
    /// The index that no mount has.
    pub const NO_MOUNT: u32 = u32::MAX;

    /// The bytes of the answer.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Answer::SIZE] {
        let mut bytes = [0; Answer::SIZE];
        for (room, word) in bytes.chunks_exact_mut(4).zip([Answer::NO_MOUNT, 16, self.errno]) {
            room.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Decodes an answer.
    #[must_use]
    pub fn from_bytes(bytes: [u8; Answer::SIZE]) -> Answer {
        Answer { errno: u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]) }
    }
}
