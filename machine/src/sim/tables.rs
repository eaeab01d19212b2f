// SPDX-License-Identifier: MIT OR Apache-2.0
//! Page tables as the CPU reads them (Intel SDM volume 3, 4.5): entries, permissions, the walk, accessed and dirty bits.

use crate::{Arena, EntryIndex, FrameId};
use std::sync::atomic::{AtomicU64, Ordering};

pub(super) const PRESENT: u64 = 1;
pub(super) const WRITABLE: u64 = 1 << 1;
const USER: u64 = 1 << 2;
pub(super) const ACCESSED: u64 = 1 << 5;
pub(super) const DIRTY: u64 = 1 << 6;
const LARGE: u64 = 1 << 7;
const NO_EXECUTE: u64 = 1 << 63;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
/// In the entry of a large page, where 4 KiB entries have the lowest address bit.
const LARGE_PAT: u64 = 1 << 12;

/// The level of a root table.
pub(super) const ROOT_LEVEL: u8 = 4;

/// A kind of access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write,
    Fetch,
}

/// Permissions of entries: writing, user privilege, execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Access(u8);

impl Access {
    const WRITE: u8 = 1;
    const USER: u8 = 2;
    const EXECUTE: u8 = 4;

    pub(super) const ALL: Access = Access(7);

    /// The permissions of one entry by itself.
    pub(super) fn of(entry: u64) -> Access {
        let bit = |set: bool, bit: u8| if set { bit } else { 0 };
        Access(bit(entry & WRITABLE != 0, Self::WRITE) | bit(entry & USER != 0, Self::USER) | bit(entry & NO_EXECUTE == 0, Self::EXECUTE))
    }

    /// The permissions that both allow.
    pub(super) fn and(self, other: Access) -> Access {
        Access(self.0 & other.0)
    }

    pub(super) fn permits(self, kind: Kind) -> bool {
        let needed = match kind {
            Kind::Read => Self::USER,
            Kind::Write => Self::USER | Self::WRITE,
            Kind::Fetch => Self::USER | Self::EXECUTE,
        };
        self.0 & needed == needed
    }

    /// Whether this allows something that `other` does not.
    pub(super) fn exceeds(self, other: Access) -> bool {
        self.0 & !other.0 != 0
    }

    pub(super) fn bits(self) -> u8 {
        self.0
    }
}

/// The target of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryTarget {
    /// Not present.
    Absent,
    /// Present with reserved bits set.
    Reserved,
    /// A table or page that is not in the arena.
    Outside,
    /// The table of the next level.
    Table(FrameId),
    /// A page, by its first frame.
    Page(FrameId),
}

impl EntryTarget {
    /// The target of `entry` of a table of `level`.
    pub(super) fn of(arena: &Arena, entry: u64, level: u8) -> EntryTarget {
        if entry & PRESENT == 0 {
            return EntryTarget::Absent;
        }
        let is_page = level == 1 || entry & LARGE != 0;
        if is_page && level == ROOT_LEVEL {
            return EntryTarget::Reserved;
        }
        let address = if is_page && level > 1 { entry & ADDRESS & !LARGE_PAT } else { entry & ADDRESS };
        let frames = if is_page { pages_at(level) } else { 1 };
        if address & (frames * 4096 - 1) != 0 {
            return EntryTarget::Reserved;
        }
        match FrameId::at(address) {
            Some(frame) if u64::from(frame.0) + frames <= u64::from(arena.frames()) => {
                if is_page {
                    EntryTarget::Page(frame)
                } else {
                    EntryTarget::Table(frame)
                }
            }
            _ => EntryTarget::Outside,
        }
    }
}

/// The number of 4 KiB pages that one entry of a table of `level` maps.
fn pages_at(level: u8) -> u64 {
    1 << (9 * u32::from(level - 1))
}

/// The frame of `address` in a page of `level` that starts at frame `first`.
pub(super) fn frame_in(first: FrameId, level: u8, address: u64) -> FrameId {
    // The remainder is below 2^18: a page of level 3 has no more frames.
    first.offset((address >> 12 & (pages_at(level) - 1)) as u32)
}

/// The reason why a walk reached no page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WalkError {
    Absent,
    Reserved,
    /// This entry points outside the arena.
    Outside(u64),
}

/// A walk that reached a page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path {
    /// The tables passed, each with the entry read from it; the first is the root.
    steps: [(FrameId, u64); ROOT_LEVEL as usize],
    /// The level of the table whose entry is the page.
    pub(super) level: u8,
    /// The page's first frame.
    pub(super) first: FrameId,
    /// The permissions that all entries on the path allow.
    pub(super) access: Access,
}

impl Path {
    /// The table passed at `level` and the entry read from it.
    pub(super) fn step(&self, level: u8) -> (FrameId, u64) {
        self.steps[usize::from(ROOT_LEVEL - level)]
    }
}

/// Walks the current tables below `root`.
pub(super) fn walk(arena: &Arena, root: FrameId, address: u64) -> Result<Path, WalkError> {
    let mut path = Path { steps: [(root, 0); ROOT_LEVEL as usize], level: ROOT_LEVEL, first: root, access: Access::ALL };
    let mut table = root;
    loop {
        let level = path.level;
        let entry = arena.load(table, EntryIndex::of(address, level));
        path.steps[usize::from(ROOT_LEVEL - level)] = (table, entry);
        path.access = path.access.and(Access::of(entry));
        match EntryTarget::of(arena, entry, level) {
            EntryTarget::Absent => return Err(WalkError::Absent),
            EntryTarget::Reserved => return Err(WalkError::Reserved),
            EntryTarget::Outside => return Err(WalkError::Outside(entry)),
            EntryTarget::Table(next) => table = next,
            EntryTarget::Page(first) => {
                path.first = first;
                return Ok(path);
            }
        }
        // A table is never named by an entry of level 1, so this stays above 0.
        path.level -= 1;
    }
}

/// Sets the accessed bits on a path, and for a write the dirty bit of its leaf, each only if the entry is unchanged.
///
/// Returns the leaf's entry after that; `None`: an entry has changed meanwhile, so walk again.
pub(super) fn mark(arena: &Arena, path: &Path, address: u64, kind: Kind) -> Option<u64> {
    let mut marked = 0;
    for level in (path.level..=ROOT_LEVEL).rev() {
        let (table, entry) = path.step(level);
        let dirty = if level == path.level && kind == Kind::Write { DIRTY } else { 0 };
        marked = entry | ACCESSED | dirty;
        if marked != entry {
            word(arena, table, EntryIndex::of(address, level))
                .compare_exchange(entry, marked, Ordering::Relaxed, Ordering::Relaxed)
                .ok()?;
        }
    }
    Some(marked)
}

/// An entry as an atomic word: the CPU updates it in place while the kernel may store to it.
fn word(arena: &Arena, table: FrameId, index: EntryIndex) -> &AtomicU64 {
    assert!(table.0 < arena.frames(), "frame {} is outside the arena", table.0);
    let address = arena.host_address() + (u64::from(table.0) << 12) + index.get() as u64 * 8;
    // SAFETY: in bounds of the arena's mapping (checked: the index is below 512), which lives as long as `arena`; aligned to 8, as the
    // base is to a page; the arena's words are only ever accessed as atomics or by raw copies, which it tells its callers to expect.
    unsafe { AtomicU64::from_ptr(address as *mut u64) }
}
