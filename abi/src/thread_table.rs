// SPDX-License-Identifier: MIT OR Apache-2.0
//! The thread table: the libOS of a program that is debugged lists its threads and where their registers are saved, for a watching parent.
//!
//! The table is untrusted: the program could change it as any memory of its cell. The kernel does not read it. Its address comes with the
//! report [`START`](crate::watch::report::START), or with [`THREADS`](crate::watch::report::THREADS). The latter also describes the
//! processes: for each a [`ProcessHead`], the words of its auxiliary vector, and the bytes of its program's path, filled up to a word.

/// Version of the layout.
pub const VERSION: u64 = 1;

/// Threads that a table holds at most; others are missing.
pub const MAX_THREADS: usize = 512;

/// Words of a name, whose bytes end with zeros.
pub const NAME_WORDS: usize = 2;

/// The head of the table, which the records follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct TableHead {
    /// [`VERSION`].
    pub version: u64,
    /// The thread whose registers are on the CPU, or in save level 0 of the virtual registers while the libOS runs.
    pub running: u64,
    /// Number of records.
    pub threads: u64,
}

/// A thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ThreadRecord {
    /// Its number.
    pub number: u64,
    /// Its process.
    pub process: u64,
    /// The index of the space that it runs in.
    pub space: u64,
    /// Address of its registers ([`SavedContext`](crate::SavedContext)), which are valid unless it is the running one.
    pub context: u64,
    /// Address of the bases of FS and GS, likewise.
    pub bases: u64,
    /// Address of its vector state (`XSAVE`, standard format), likewise; 0: initial.
    pub vectors: u64,
    /// Bytes of that.
    pub vector_bytes: u64,
    /// Its name.
    pub name: [u64; NAME_WORDS],
}

/// The head of the description of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ProcessHead {
    /// Its number.
    pub number: u64,
    /// Words of its auxiliary vector.
    pub auxiliary: u64,
    /// Bytes of its program's path.
    pub path: u64,
}

/// Words of the head of the description of a process.
pub const PROCESS_WORDS: usize = size_of::<ProcessHead>() / 8;

impl ProcessHead {
    /// Decodes the words of a head.
    #[must_use]
    pub const fn from_words(words: [u64; PROCESS_WORDS]) -> ProcessHead {
        let [number, auxiliary, path] = words;
        ProcessHead { number, auxiliary, path }
    }

    /// The words of the head.
    #[must_use]
    pub const fn to_words(self) -> [u64; PROCESS_WORDS] {
        let ProcessHead { number, auxiliary, path } = self;
        [number, auxiliary, path]
    }
}

/// Words of the head.
pub const HEAD_WORDS: usize = size_of::<TableHead>() / 8;
/// Words of a record.
pub const RECORD_WORDS: usize = size_of::<ThreadRecord>() / 8;

impl TableHead {
    /// Decodes the words of a head.
    #[must_use]
    pub const fn from_words(words: [u64; HEAD_WORDS]) -> TableHead {
        let [version, running, threads] = words;
        TableHead { version, running, threads }
    }
}

impl ThreadRecord {
    /// Decodes the words of a record.
    #[must_use]
    pub const fn from_words(words: [u64; RECORD_WORDS]) -> ThreadRecord {
        let [number, process, space, context, bases, vectors, vector_bytes, first, second] = words;
        ThreadRecord { number, process, space, context, bases, vectors, vector_bytes, name: [first, second] }
    }

    /// The words of the record.
    #[must_use]
    pub const fn to_words(self) -> [u64; RECORD_WORDS] {
        let ThreadRecord { number, process, space, context, bases, vectors, vector_bytes, name: [first, second] } = self;
        [number, process, space, context, bases, vectors, vector_bytes, first, second]
    }

    /// The bytes of its name, with zeros at the end.
    #[must_use]
    pub fn name_bytes(&self) -> [u8; NAME_WORDS * 8] {
        let mut bytes = [0; NAME_WORDS * 8];
        for (bytes, word) in bytes.chunks_exact_mut(8).zip(self.name) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }
}
