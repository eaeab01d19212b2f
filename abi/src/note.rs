// SPDX-License-Identifier: MIT OR Apache-2.0
//! What travels beside code: the note in a cell's image, and the block of arguments.
//!
//! An image for cells is a static ELF file. It carries one note of name [`NAME`] and type [`TYPE`] whose description is the interface's version
//! as a little-endian 32-bit number; the kernel's side refuses an image without it, or with another version.
//!
//! The argument block at [`crate::layout::ARGUMENTS`] is an [`ArgumentsHeader`], then the strings, each ended by a zero byte: the program's path, its working directory, the
//! arguments (the first is the program's name as it will see it), the environment, where each volume is mounted, and where each export stands.
//! A clone of a program that has frozen itself is given a block of its own, of which arguments, environment and options count: the rest is as it was.

use crate::layout::VOLUME_SLOTS;

/// Name of the note, without its final zero byte.
pub const NAME: &str = "Pando";
/// Type of the note.
pub const TYPE: u32 = 1;

/// What stands at the start of the argument block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ArgumentsHeader {
    /// How many strings, after the path and the directory, are arguments.
    pub arguments: u32,
    /// How many strings, after them, are the environment.
    pub environment: u32,
    /// How many volumes there are, and strings after those that say where; the first is the root.
    pub volumes: u32,
    /// Bytes of all strings with their zero bytes.
    pub bytes: u32,
    /// Which standard streams are terminals: bit 0 input, bit 1 output, bit 2 errors.
    pub terminals: u32,
    /// Bits of [`options`].
    pub options: u32,
    /// The user that the program is.
    pub user: u32,
    /// Its group.
    pub group: u32,
    /// Rows of the terminal, 0 if there is none.
    pub rows: u32,
    /// Columns of the terminal, 0 if there is none.
    pub columns: u32,
    /// How many exports there are (see [`crate::channel`]), and strings after those of volumes that say where each stands in the cell.
    pub exports: u32,
    /// Nothing yet: 0.
    pub reserved: u32,
    /// Bytes of each volume, which lies at [`crate::layout::volume`].
    pub volume_bytes: [u64; VOLUME_SLOTS],
}

/// Bits of [`ArgumentsHeader::options`].
pub mod options {
    /// Let every system call trap; patch nothing.
    pub const TRAP: u32 = 1;
    /// The operator's terminal passes every key on as it was typed and shows every byte as it was written: the line discipline is the libOS's. Without it the
    /// terminal keeps its own, which a program cannot change.
    pub const RAW_TERMINAL: u32 = 2;
    /// Print every system call on the standard error stream.
    pub const TRACE: u32 = 4;
    /// Freeze once the program says that it is ready: the operator wants a template. Without it saying so changes nothing.
    pub const TEMPLATE: u32 = 8;
}

impl ArgumentsHeader {
    /// Bytes of the header.
    pub const SIZE: usize = size_of::<ArgumentsHeader>();

    /// The bytes of the header.
    #[must_use]
    pub fn to_bytes(self) -> [u8; ArgumentsHeader::SIZE] {
        let mut bytes = [0; ArgumentsHeader::SIZE];
        let ArgumentsHeader {
            arguments,
            environment,
            volumes,
            bytes: strings,
            terminals,
            options,
            user,
            group,
            rows,
            columns,
            exports,
            reserved,
            ..
        } = self;
        let words = [arguments, environment, volumes, strings, terminals, options, user, group, rows, columns, exports, reserved];
        let (head, sizes) = bytes.split_at_mut(size_of_val(&words));
        for (room, word) in head.chunks_exact_mut(4).zip(words) {
            room.copy_from_slice(&word.to_le_bytes());
        }
        for (room, size) in sizes.chunks_exact_mut(8).zip(self.volume_bytes) {
            room.copy_from_slice(&size.to_le_bytes());
        }
        bytes
    }
}
