// SPDX-License-Identifier: MIT OR Apache-2.0
//! Table entries: the bits that the CPU reads, and the kernel's data in bits that the CPU ignores.
//!
//! ```text
//! present      bit 0 = 1   As the CPU defines it. Bit 9: the program may write. Bit 10: it may read, and bit 2 is then set.
//!                          A page without bit 2 is a supervisor page, so the cell cannot access it, and its content stays.
//! non-present  bit 0 = 0   All zero: empty.
//!                          Bit 11: lazy zero memory; bit 8: in a large page; address bits all ones.
//!                          Bit 7: a block of a disk; address bits 12 to 43: the number of the first block that the entry spans;
//!                          bits 52 to 62: the disk.
//!                          Bit 6: a page that the cell's parent has taken; address bits 12 to 43: its swap number.
//!                          Bits 9, 10 and 63 as above. Address bits 44 to 51 are ones in all, so that no speculative load
//!                          reaches memory.
//! ```
//! Accessed and dirty are set from the start: a CPU that has to set them takes several times longer for a first access. Only where the
//! kernel tracks accessed blocks, their entries start with the accessed bit clear ([`accessed_blocks`](super::accessed_blocks)).

use crate::memory::block::{Block, DiskId};
use crate::memory::swapped_page::SwapNumber;
use pando_abi::{BlockNumber, Permissions};
use pando_machine::{FrameId, HugeFrame};

const PRESENT: u64 = 1;
const WRITE: u64 = 1 << 1;
const USER: u64 = 1 << 2;
const ACCESSED: u64 = 1 << 5;
const ACCESSED_DIRTY: u64 = ACCESSED | 1 << 6;
const TAKEN: u64 = 1 << 6;
const LARGE: u64 = 1 << 7;
const BLOCK: u64 = 1 << 7;
const LAZY_LARGE: u64 = 1 << 8;
const MAY_WRITE: u64 = 1 << 9;
const MAY_READ: u64 = 1 << 10;
const LAZY: u64 = 1 << 11;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
const NO_EXECUTE: u64 = 1 << 63;
/// Address bits beyond the memory of any machine, and beyond a number of a block or of swap.
const BEYOND_MEMORY: u64 = 0x000f_f000_0000_0000;
const BLOCK_NUMBER: u64 = 0xffff_ffff << NUMBER_SHIFT;
const NUMBER_SHIFT: u32 = 12;
const DISK_SHIFT: u32 = 52;

/// An entry as stored in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry(pub(in crate::memory) u64);

/// The decoded content of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodedEntry {
    /// Nothing is mapped.
    Empty,
    /// Zero memory that is made present on access.
    Lazy {
        /// Access permissions of the program.
        permissions: Permissions,
        /// Whether it becomes 2 MiB pages.
        large: bool,
    },
    /// Blocks of a disk, read on first access.
    Block {
        /// The first block.
        block: Block,
        /// Access permissions of the program.
        permissions: Permissions,
    },
    /// A page that the cell's parent has taken. Always at level 1.
    Taken {
        /// Its swap number.
        number: SwapNumber,
        /// Access permissions of the program.
        permissions: Permissions,
    },
    /// A table of the next level.
    Table {
        /// Its frame.
        table: FrameId,
        /// Whether the link owns it.
        is_owned: bool,
    },
    /// A page: 4 KiB at level 1, 2 MiB at level 2.
    Page {
        /// Its first frame.
        frame: FrameId,
        /// Access permissions of the program.
        permissions: Permissions,
        /// Whether the CPU allows writes.
        writable: bool,
    },
}

const fn permission_bits(permissions: Permissions) -> u64 {
    let write = if permissions.writable() { MAY_WRITE } else { 0 };
    let read = if permissions.readable() { MAY_READ } else { 0 };
    let execute = if permissions.executable() { 0 } else { NO_EXECUTE };
    write | read | execute
}

impl Entry {
    /// The empty entry.
    pub const EMPTY: Entry = Entry(0);

    /// Zero memory, made present on access.
    #[must_use]
    pub const fn lazy(permissions: Permissions, large: bool) -> Entry {
        Entry(LAZY | ADDRESS | permission_bits(permissions) | if large { LAZY_LARGE } else { 0 })
    }

    /// Blocks of a disk, read on first access.
    #[must_use]
    pub const fn block(block: Block, permissions: Permissions) -> Entry {
        let place = (block.number.0 as u64) << NUMBER_SHIFT | (block.disk.index() as u64) << DISK_SHIFT;
        Entry(BLOCK | BEYOND_MEMORY | place | permission_bits(permissions))
    }

    /// A page that the cell's parent has taken.
    #[must_use]
    pub const fn taken(number: SwapNumber, permissions: Permissions) -> Entry {
        Entry(TAKEN | BEYOND_MEMORY | (number.0 as u64) << NUMBER_SHIFT | permission_bits(permissions))
    }

    /// The entry of the page `pages` pages later in a run that begins with this entry: a later block, or the same lazy memory.
    #[must_use]
    pub const fn offset(self, pages: u64) -> Entry {
        if self.0 & (PRESENT | BLOCK) != BLOCK {
            return self;
        }
        let number = (self.0 & BLOCK_NUMBER).wrapping_add(pages << NUMBER_SHIFT) & BLOCK_NUMBER;
        Entry(self.0 & !BLOCK_NUMBER | number)
    }

    /// A link to a table.
    #[must_use]
    pub const fn table(table: FrameId, is_owned: bool) -> Entry {
        Entry(PRESENT | USER | ACCESSED_DIRTY | table.address() | if is_owned { WRITE } else { 0 })
    }

    /// A page; `is_owned`: the program may write at once if its permissions allow writes.
    #[must_use]
    pub const fn page(frame: FrameId, permissions: Permissions, is_owned: bool) -> Entry {
        let user = if permissions.readable() { USER } else { 0 };
        let write = if permissions.writable() && is_owned { WRITE } else { 0 };
        Entry(PRESENT | ACCESSED_DIRTY | frame.address() | permission_bits(permissions) | user | write)
    }

    /// A 2 MiB page.
    #[must_use]
    pub const fn large_page(huge_frame: HugeFrame, permissions: Permissions, is_owned: bool) -> Entry {
        Entry(Entry::page(huge_frame.first(), permissions, is_owned).0 | LARGE)
    }

    /// Decodes the entry, in a table of `level`.
    ///
    /// # Panics
    /// The entry is present and points below the arena: the kernel has stored an invalid entry.
    #[must_use]
    pub fn decode(self, level: u8) -> DecodedEntry {
        if self.0 & PRESENT == 0 {
            let permissions = self.permissions();
            return match (self.0 & LAZY != 0, self.named_block()) {
                (true, _) => DecodedEntry::Lazy { permissions, large: self.0 & LAZY_LARGE != 0 },
                (false, Some(block)) => DecodedEntry::Block { block, permissions },
                (false, None) if self.0 & TAKEN != 0 => {
                    DecodedEntry::Taken { number: SwapNumber((self.0 >> NUMBER_SHIFT) as u32), permissions }
                }
                (false, None) => DecodedEntry::Empty,
            };
        }
        let frame = FrameId::at(self.0 & ADDRESS).expect("entries point into the arena");
        if level > 1 && self.0 & LARGE == 0 {
            DecodedEntry::Table { table: frame, is_owned: self.0 & WRITE != 0 }
        } else {
            DecodedEntry::Page { frame, permissions: self.permissions(), writable: self.0 & WRITE != 0 }
        }
    }

    /// The block that a non-present entry names.
    fn named_block(self) -> Option<Block> {
        let disk = DiskId::new((self.0 >> DISK_SHIFT) as usize % DiskId::LIMIT)?;
        let number = BlockNumber((self.0 >> NUMBER_SHIFT) as u32);
        (self.0 & BLOCK != 0).then_some(Block { disk, number })
    }

    fn permissions(self) -> Permissions {
        let read = u64::from(self.0 & MAY_READ != 0);
        let write = u64::from(self.0 & MAY_WRITE != 0) << 1;
        let execute = u64::from(self.0 & NO_EXECUTE == 0) << 2;
        // A page without read permission may not be accessed at all.
        if read == 0 { Permissions::NONE } else { Permissions::from_bits(read | write | execute).unwrap_or_default() }
    }

    /// Whether the CPU may use the entry.
    #[must_use]
    pub const fn is_present(self) -> bool {
        self.0 & PRESENT != 0
    }

    /// The same entry as a sealed link or a shared page: without the write bit.
    #[must_use]
    pub const fn sealed(self) -> Entry {
        if self.is_present() { Entry(self.0 & !WRITE) } else { self }
    }

    /// The same page, not accessed yet.
    #[must_use]
    pub const fn unaccessed(self) -> Entry {
        Entry(self.0 & !ACCESSED)
    }

    /// Whether the CPU may have accessed the page or table of a present entry.
    #[must_use]
    pub const fn is_accessed(self) -> bool {
        self.0 & ACCESSED != 0
    }

    /// Whether this entry is `old` with the write bit set; the CPU may have accessed either.
    #[must_use]
    pub const fn only_adds_write(self, old: Entry) -> bool {
        self.0 & !ACCESSED == (old.0 | WRITE) & !ACCESSED
    }

    /// Whether two pages differ only in frame, write bit and accessed bit, so they have the same permissions and size.
    #[must_use]
    pub const fn only_changes_frame(self, old: Entry) -> bool {
        const SAME: u64 = !(ADDRESS | WRITE | ACCESSED);
        self.0 & SAME == old.0 & SAME
    }
}

#[cfg(test)]
mod tests {
    use super::{DecodedEntry, Entry};
    use crate::memory::block::{Block, DiskId};
    use pando_abi::{BlockNumber, Permissions};
    use pando_machine::{FrameId, HugeFrame};

    #[test]
    fn every_kind_reads_as_it_was_written() {
        for bits in 0..8 {
            let permissions = Permissions::from_bits(bits).expect("three bits");
            for flag in [false, true] {
                let frame = FrameId(513);
                assert_eq!(Entry::lazy(permissions, flag).decode(2), DecodedEntry::Lazy { permissions, large: flag });
                let page = DecodedEntry::Page { frame, permissions, writable: flag && permissions.writable() };
                assert_eq!(Entry::page(frame, permissions, flag).decode(1), page);
                let huge_frame = HugeFrame(3);
                let large = DecodedEntry::Page { frame: huge_frame.first(), permissions, writable: flag && permissions.writable() };
                assert_eq!(Entry::large_page(huge_frame, permissions, flag).decode(2), large);
                assert_eq!(Entry::table(frame, flag).decode(3), DecodedEntry::Table { table: frame, is_owned: flag });
            }
        }
        assert_eq!(Entry::EMPTY.decode(3), DecodedEntry::Empty);
    }

    #[test]
    fn an_entry_names_any_block_of_any_disk_and_the_next_ones() {
        for disk in [0, 1, 1234, DiskId::LIMIT - 1].map(|index| DiskId::new(index).expect("a disk")) {
            for number in [0, 1, 0x8000_0000, u32::MAX].map(BlockNumber) {
                for permissions in (0..8).filter_map(Permissions::from_bits) {
                    let entry = Entry::block(Block { disk, number }, permissions);
                    assert!(!entry.is_present() && entry.0 >> 44 & 0xff == 0xff, "{entry:x?} leads nowhere");
                    assert_eq!(entry.decode(1), DecodedEntry::Block { block: Block { disk, number }, permissions });
                    let next = Block { disk, number: number.further(512) };
                    assert_eq!(entry.offset(512), Entry::block(next, permissions));
                }
            }
        }
        assert_eq!(DiskId::new(DiskId::LIMIT), None);
        for other in [Entry::EMPTY, Entry::lazy(Permissions::ALL, true), Entry::large_page(HugeFrame(3), Permissions::ALL, true)] {
            assert_eq!(other.offset(7), other);
        }
    }
}
