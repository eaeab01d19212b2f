// SPDX-License-Identifier: MIT OR Apache-2.0
//! Little-endian fields of an on-disk structure.

/// The bytes of a structure that is decoded; each access is checked.
#[derive(Clone, Copy)]
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl Fields<'_> {
    pub(crate) fn u8(self, offset: usize) -> Option<u8> {
        self.0.get(offset).copied()
    }

    pub(crate) fn u16(self, offset: usize) -> Option<u16> {
        self.array(offset).map(u16::from_le_bytes)
    }

    pub(crate) fn u32(self, offset: usize) -> Option<u32> {
        self.array(offset).map(u32::from_le_bytes)
    }

    pub(crate) fn u64(self, offset: usize) -> Option<u64> {
        self.array(offset).map(u64::from_le_bytes)
    }

    pub(crate) fn array<const N: usize>(self, offset: usize) -> Option<[u8; N]> {
        self.0.get(offset..)?.first_chunk().copied()
    }
}

/// Sets a field of a structure that is encoded.
///
/// # Panics
/// If the field lies outside the bytes.
pub(crate) fn put<const N: usize>(bytes: &mut [u8], offset: usize, field: [u8; N]) {
    bytes[offset..][..N].copy_from_slice(&field);
}
