// SPDX-License-Identifier: MIT OR Apache-2.0
//! The types of memory calls: permissions, flags, indices of spaces and segments, blocks of disks.

/// Access permissions of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Permissions(u8);

impl Permissions {
    /// None: every access is an exception.
    pub const NONE: Permissions = Permissions(0);
    /// Reading.
    pub const READ: Permissions = Permissions(1);
    /// Reading and writing.
    pub const READ_WRITE: Permissions = Permissions(3);
    /// Reading and executing.
    pub const READ_EXECUTE: Permissions = Permissions(5);
    /// Everything.
    pub const ALL: Permissions = Permissions(7);

    /// Decodes permissions (1 read, 2 write, 4 execute). As on x86-64, writing or executing implies reading. `None`: another bit is set.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Option<Permissions> {
        match bits {
            0 => Some(Permissions(0)),
            1..8 => Some(Permissions(bits as u8 | 1)),
            _ => None,
        }
    }

    /// The bits.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0 as u64
    }

    /// Whether reading is allowed.
    #[must_use]
    pub const fn readable(self) -> bool {
        self.0 & 1 != 0
    }

    /// Whether writing is allowed.
    #[must_use]
    pub const fn writable(self) -> bool {
        self.0 & 2 != 0
    }

    /// Whether executing is allowed.
    #[must_use]
    pub const fn executable(self) -> bool {
        self.0 & 4 != 0
    }
}

/// The flags of a mapping: permissions (bits 0 to 2), time of allocation, and page size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapFlags {
    /// The permissions.
    pub permissions: Permissions,
    /// Bit 3: allocate the pages now rather than on first access.
    pub eager: bool,
    /// Bit 4: use 2 MiB pages where the range covers them.
    pub large: bool,
}

impl MapFlags {
    /// Flags from their bits. `None`: an undefined bit is set.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Option<MapFlags> {
        if bits > 0x1f {
            return None;
        }
        match Permissions::from_bits(bits & 7) {
            Some(permissions) => Some(MapFlags { permissions, eager: bits & 8 != 0, large: bits & 16 != 0 }),
            None => None,
        }
    }

    /// The bits.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.permissions.bits() | (self.eager as u64) << 3 | (self.large as u64) << 4
    }

    /// 4 KiB pages, allocated on first access.
    #[must_use]
    pub const fn lazy(permissions: Permissions) -> MapFlags {
        MapFlags { permissions, eager: false, large: false }
    }

    /// Pages that are allocated at once.
    #[must_use]
    pub const fn eager(permissions: Permissions) -> MapFlags {
        MapFlags { permissions, eager: true, large: false }
    }
}

/// Index of a space in its cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SpaceIndex(pub u32);

/// Index of a segment in its cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SegmentIndex(pub u32);

/// In place of a space's index: the running space.
pub const CURRENT_SPACE: u64 = u64::MAX;
/// In place of a space's index, in a `batch`: the space that the batch has made last. Elsewhere no space has this index.
pub const NEWEST_SPACE: u64 = u64::MAX - 1;

/// Index of a disk in its cell; the operator attached it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DiskIndex(pub u32);

/// A block of a disk, counted from its start; as long as a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockNumber(pub u32);

impl BlockNumber {
    /// The block `count` further on. It wraps, so callers check the end of a range first.
    #[must_use]
    pub const fn further(self, count: u64) -> BlockNumber {
        BlockNumber(self.0.wrapping_add(count as u32))
    }
}

/// A block of one of a cell's disks, in one register.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockAddress {
    /// Index of the disk: the upper half of the register.
    pub disk: DiskIndex,
    /// Number of the block: the lower half.
    pub block: BlockNumber,
}

impl BlockAddress {
    /// Decodes a register; every value is valid.
    #[must_use]
    pub const fn from_bits(bits: u64) -> BlockAddress {
        BlockAddress { disk: DiskIndex((bits >> 32) as u32), block: BlockNumber(bits as u32) }
    }

    /// The register's value.
    #[must_use]
    pub const fn bits(self) -> u64 {
        (self.disk.0 as u64) << 32 | self.block.0 as u64
    }
}

/// The bits of `inspect`'s result.
pub mod inspected {
    use super::BlockNumber;

    /// The page is present.
    pub const RESIDENT: u64 = 1 << 3;
    /// The page will be allocated or read on first access.
    pub const LAZY: u64 = 1 << 4;
    /// The page is, or will be, in a large page.
    pub const LARGE: u64 = 1 << 5;
    /// Lazy: the page will be a block of a disk, whose number starts at bit [`BLOCK_SHIFT`].
    pub const BLOCK: u64 = 1 << 6;
    /// The page's content is with the cell's parent, which has taken it.
    pub const TAKEN: u64 = 1 << 7;
    /// First bit of the block's number.
    pub const BLOCK_SHIFT: u32 = 12;

    /// The bits for a block.
    #[must_use]
    pub const fn block(block: BlockNumber) -> u64 {
        BLOCK | (block.0 as u64) << BLOCK_SHIFT
    }
}

/// The result of `take`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakenPages {
    /// Pages between the given address and the first one that was taken; if none was, those that were searched.
    pub skipped: u32,
    /// The number of pages that were taken.
    pub count: u32,
}

impl TakenPages {
    /// The result register.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.skipped as u64 | (self.count as u64) << 32
    }

    /// Decodes a result.
    #[must_use]
    pub const fn from_bits(bits: u64) -> TakenPages {
        TakenPages { skipped: bits as u32, count: (bits >> 32) as u32 }
    }
}

/// The result of `count`.
pub mod counted {
    /// First bit of the number of pages without another holder.
    const OWN_SHIFT: u32 = 28;

    /// The result: the number of resident pages, and of those without another holder. Each is at most
    /// [`MAX_PAGES`](crate::limits::MAX_PAGES).
    #[must_use]
    pub const fn bits(resident: u64, own: u64) -> u64 {
        resident | own << OWN_SHIFT
    }

    /// The two numbers of a result.
    #[must_use]
    pub const fn split(bits: u64) -> (u64, u64) {
        (bits & ((1 << OWN_SHIFT) - 1), bits >> OWN_SHIFT)
    }
}
