// SPDX-License-Identifier: MIT OR Apache-2.0
//! Boot information: the ELF note of an image, the table of volumes, and the block of arguments.
//!
//! An image for cells is a static ELF file. It carries one note of name [`NAME`] and type [`TYPE`] whose description is the
//! interface's version as a little-endian 32-bit number. The kernel's side refuses an image without it, or with another version.
//!
//! The table of volumes at [`crate::layout::VOLUMES`] is a [`VolumesHeader`], then the mount point of each volume, ended by a zero
//! byte. All clones of a root share it.
//!
//! The argument block at [`crate::layout::ARGUMENTS`] is an [`ArgumentsHeader`], then strings, each ended by a zero byte: the program's
//! path, its working directory, the arguments (`argv`, the program's name first), the environment, the path of each export in the cell,
//! each path that is read-only, and the mount point of each live mount. A clone of a program that has frozen itself gets a block of its
//! own, of which only arguments, environment and options are used: the rest is unchanged.

use crate::layout::VOLUME_SLOTS;

/// Name of the note, without its final zero byte.
pub const NAME: &str = "Pando";
/// Type of the note.
pub const TYPE: u32 = 1;

/// The start of the table of volumes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct VolumesHeader {
    /// Number of volumes, and of the strings with their mount points; the first is the root.
    pub volumes: u32,
    /// Bytes of all strings with their zero bytes.
    pub bytes: u32,
    /// Size in bytes of each volume at [`crate::layout::volume`].
    pub volume_bytes: [u64; VOLUME_SLOTS],
}

impl VolumesHeader {
    /// Bytes of the header.
    pub const SIZE: usize = size_of::<VolumesHeader>();

    /// The bytes of the header.
    #[must_use]
    pub fn to_bytes(self) -> [u8; VolumesHeader::SIZE] {
        let mut bytes = [0; VolumesHeader::SIZE];
        let (head, sizes) = bytes.split_at_mut(size_of::<[u32; 2]>());
        for (room, word) in head.chunks_exact_mut(4).zip([self.volumes, self.bytes]) {
            room.copy_from_slice(&word.to_le_bytes());
        }
        for (room, size) in sizes.chunks_exact_mut(8).zip(self.volume_bytes) {
            room.copy_from_slice(&size.to_le_bytes());
        }
        bytes
    }
}

/// The start of the argument block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ArgumentsHeader {
    /// Number of strings, after the path and the directory, that are arguments.
    pub arguments: u32,
    /// Number of strings, after them, that are the environment.
    pub environment: u32,
    /// Bytes of all strings with their zero bytes.
    pub bytes: u32,
    /// Standard streams that are terminals: bit 0 input, bit 1 output, bit 2 errors.
    pub terminals: u32,
    /// Bits of [`options`].
    pub options: u32,
    /// User id of the program.
    pub user: u32,
    /// Group id of the program.
    pub group: u32,
    /// Rows of the terminal, 0 if there is none.
    pub rows: u32,
    /// Columns of the terminal, 0 if there is none.
    pub columns: u32,
    /// Number of exports (see [`crate::channel`]), and of the strings after those of groups, with the paths of the exports in the cell.
    pub exports: u32,
    /// The signal that the operator's request to end becomes, as Linux numbers it; 0: `SIGTERM`.
    pub stop_signal: u32,
    /// Number of paths in the cell below which nothing may be changed, and of the strings after those of exports: mount points of volumes,
    /// or files.
    pub read_only: u32,
    /// Number of supplementary groups of the program, and of the strings after the environment's, with their numbers in decimal.
    pub groups: u32,
    /// Number of live mounts (see [`crate::channel`]), and of the strings after those of read-only paths, with their mount points.
    pub mounts: u32,
    /// Number of directories in the cell that are file systems of their own, as a tmpfs is, and of the last strings, with their paths.
    pub temporary: u32,
}

/// Bits of [`ArgumentsHeader::options`].
pub mod options {
    /// Let every system call trap; patch no code.
    pub const TRAP: u32 = 1;
    /// The operator's terminal is in raw mode: the libOS implements the line discipline. Without it, the terminal
    /// keeps its own, which a program cannot change.
    pub const RAW_TERMINAL: u32 = 2;
    /// Print every system call on the standard error stream.
    pub const TRACE: u32 = 4;
    /// Freeze once the program reports that it is ready: the operator wants a template. Without it, that report has no effect.
    pub const TEMPLATE: u32 = 8;
    /// The cell may have descendants: the libOS shows `/dev/cells`.
    pub const NESTING: u32 = 16;
    /// The cell is debugged: the libOS publishes its [threads](crate::thread_table) and [reports](crate::watch::report) to the parent.
    pub const DEBUG: u32 = 32;
    /// The cell is paged: its parent makes room whenever memory is short, so the quota limits nothing that the libOS allows programs.
    pub const PAGED: u32 = 64;
}

impl ArgumentsHeader {
    /// Bytes of the header.
    pub const SIZE: usize = size_of::<ArgumentsHeader>();

    /// The bytes of the header.
    #[must_use]
    pub fn to_bytes(self) -> [u8; ArgumentsHeader::SIZE] {
        let mut bytes = [0; ArgumentsHeader::SIZE];
        // The length of the list is that of the structure: no field is forgotten.
        let words: [u32; ArgumentsHeader::SIZE / 4] = [
            self.arguments,
            self.environment,
            self.bytes,
            self.terminals,
            self.options,
            self.user,
            self.group,
            self.rows,
            self.columns,
            self.exports,
            self.stop_signal,
            self.read_only,
            self.groups,
            self.mounts,
            self.temporary,
        ];
        for (room, word) in bytes.chunks_exact_mut(4).zip(words) {
            room.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }
}
