// SPDX-License-Identifier: MIT OR Apache-2.0
//! The words of memory calls: permissions, flags, indices of spaces and segments, blocks of disks.

/// What a cell may do with a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Permissions(u8);

impl Permissions {
    /// Nothing: every touch is an exception.
    pub const NONE: Permissions = Permissions(0);
    /// Reading.
    pub const READ: Permissions = Permissions(1);
    /// Reading and writing.
    pub const READ_WRITE: Permissions = Permissions(3);
    /// Reading and executing.
    pub const READ_EXECUTE: Permissions = Permissions(5);
    /// Everything.
    pub const ALL: Permissions = Permissions(7);

    /// Permissions from their bits (1 read, 2 write, 4 execute); as on x86-64, writing or executing implies reading. `None`: another bit is set.
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

/// How memory is mapped: permissions (bits 0 to 2) and when it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapFlags {
    /// What the cell may do with it.
    pub permissions: Permissions,
    /// Bit 3: make the pages now rather than when they are touched.
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

    /// Lazily made 4 KiB pages.
    #[must_use]
    pub const fn lazy(permissions: Permissions) -> MapFlags {
        MapFlags { permissions, eager: false, large: false }
    }

    /// Pages made at once.
    #[must_use]
    pub const fn eager(permissions: Permissions) -> MapFlags {
        MapFlags { permissions, eager: true, large: false }
    }
}

/// Name of a space, relative to its cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SpaceIndex(pub u32);

/// Name of a segment, relative to its cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SegmentIndex(pub u32);

/// In place of a space's index: the running space.
pub const CURRENT_SPACE: u64 = u64::MAX;

/// Name of a disk, relative to its cell: the operator attached it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DiskIndex(pub u32);

/// A block of a disk, counted from its start; as long as a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockNumber(pub u32);

impl BlockNumber {
    /// The block `count` further on; wraps, so that whoever walks a range checks its end first.
    #[must_use]
    pub const fn further(self, count: u64) -> BlockNumber {
        BlockNumber(self.0.wrapping_add(count as u32))
    }
}

/// A block of one of a cell's disks, as one register carries it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockAddress {
    /// Which disk: the upper half of the register.
    pub disk: DiskIndex,
    /// Which block of it: the lower half.
    pub block: BlockNumber,
}

impl BlockAddress {
    /// The block that a register names; every value names one.
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

/// What `inspect` says of a page.
pub mod inspected {
    use super::BlockNumber;

    /// It is there.
    pub const RESIDENT: u64 = 1 << 3;
    /// It will be made, or brought in, when it is touched.
    pub const LAZY: u64 = 1 << 4;
    /// It lies, or will lie, in a large page.
    pub const LARGE: u64 = 1 << 5;
    /// Lazy: it will be a block of a disk, whose number stands from bit [`BLOCK_SHIFT`] on.
    pub const BLOCK: u64 = 1 << 6;
    /// Where the block's number stands.
    pub const BLOCK_SHIFT: u32 = 12;

    /// The bits that say which block.
    #[must_use]
    pub const fn block(block: BlockNumber) -> u64 {
        BLOCK | (block.0 as u64) << BLOCK_SHIFT
    }
}

/// What `count` says of pages.
pub mod counted {
    /// Where the number of those stands that nobody else holds.
    const OWN_SHIFT: u32 = 28;

    /// The result: how many are resident, and how many of them nobody else holds. Each is at most [`MAX_PAGES`](crate::limits::MAX_PAGES).
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
