// SPDX-License-Identifier: MIT OR Apache-2.0
//! The CPUID table: the results of the instruction, for machines on which it faults at CPL 3.
//!
//! A page-aligned list of entries; the first whose `leaf` is [`END`] ends it.

/// Marks the end of the table.
pub const END: u32 = u32::MAX;

/// One result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Entry {
    /// The value of `eax`.
    pub leaf: u32,
    /// The value of `ecx`, if `indexed`.
    pub subleaf: u32,
    /// 1 if the result depends on `ecx`.
    pub indexed: u32,
    /// The result, in the order `eax`, `ebx`, `ecx`, `edx`.
    pub answer: [u32; 4],
}

impl Entry {
    /// Bytes of an entry.
    pub const SIZE: usize = size_of::<Entry>();

    /// The bytes of the entry.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Entry::SIZE] {
        let [a, b, c, d] = self.answer;
        let mut bytes = [0; Entry::SIZE];
        for (room, word) in bytes.chunks_exact_mut(4).zip([self.leaf, self.subleaf, self.indexed, a, b, c, d]) {
            room.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Decodes the bytes of an entry.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; Entry::SIZE]) -> Entry {
        let mut words = [0; Entry::SIZE / 4];
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<4>().0) {
            *word = u32::from_le_bytes(*bytes);
        }
        let [leaf, subleaf, indexed, a, b, c, d] = words;
        Entry { leaf, subleaf, indexed, answer: [a, b, c, d] }
    }
}
