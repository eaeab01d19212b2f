// SPDX-License-Identifier: MIT OR Apache-2.0
//! What travels beside code: the note in a cell's image, and the block of arguments.
//!
//! An image for cells is a static ELF file. It carries one note of name [`NAME`] and type [`TYPE`] whose description is the interface's version
//! as a little-endian 32-bit number; the kernel's side refuses an image without it, or with another version.
//!
//! The argument block at [`crate::layout::ARGUMENTS`] is an [`ArgumentsHeader`], then the strings, each ended by a zero byte: the program's path in the root
//! image, its working directory there, the arguments (the first is the program's name as it will see it), the environment.

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
    /// Bytes of all strings with their zero bytes.
    pub bytes: u32,
    /// Which standard streams are terminals: bit 0 input, bit 1 output, bit 2 errors.
    pub terminals: u32,
    /// Bytes of the root image that lies at [`crate::layout::ROOT_IMAGE`].
    pub image_bytes: u64,
}

impl ArgumentsHeader {
    /// Bytes of the header.
    pub const SIZE: usize = size_of::<ArgumentsHeader>();

    /// The bytes of the header.
    #[must_use]
    pub fn to_bytes(self) -> [u8; ArgumentsHeader::SIZE] {
        let mut bytes = [0; ArgumentsHeader::SIZE];
        for (room, word) in bytes.chunks_exact_mut(4).zip([self.arguments, self.environment, self.bytes, self.terminals]) {
            room.copy_from_slice(&word.to_le_bytes());
        }
        bytes[16..].copy_from_slice(&self.image_bytes.to_le_bytes());
        bytes
    }
}
