// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operations on a cell's memory, decoded from hypercalls and executed step by step.
//!
//! Decoding makes every check and changes nothing. Execution can then fail only for reasons that depend on the state of memory. An
//! operation is bounded, or works in steps and returns [`OperationProgress::More`], so that none keeps the kernel for long.

use super::virtual_registers::RESERVED_PAGES;
use crate::memory::{Block, CopyAuthority, DecodedEntry, Frames, Lookup, MemoryError, PageSpan, PresentPages, SpaceSet};
use pando_abi::layout::SYSTEM_SLOT;
use pando_abi::limits::MAX_WRITE_BYTES;
use pando_abi::memory::inspected::{self, LARGE, LAZY, RESIDENT, TAKEN};
use pando_abi::memory::{CURRENT_SPACE, counted};
use pando_abi::{BlockAddress, Hypercall, MapFlags, PAGE_SIZE, Permissions, Refusal, SegmentIndex, SpaceIndex};

/// The segment that every space of a cell has from the start.
const SYSTEM_SEGMENT: SegmentIndex = SegmentIndex(0);

/// A checked operation on the memory of its subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MemoryOperation {
    /// Map lazily; the pages are then made present if the flags request it.
    Map {
        /// The range.
        range: PageSpan,
        /// Permissions, size and eagerness.
        flags: MapFlags,
    },
    /// Map blocks of a disk; they are then read if `eager`.
    MapBlocks {
        /// The range.
        range: PageSpan,
        /// The first block.
        block: Block,
        /// Access permissions of the program.
        permissions: Permissions,
        /// Whether to read them at once.
        eager: bool,
    },
    /// Make mapped pages present, step by step.
    Populate {
        /// The remaining range.
        range: PageSpan,
    },
    /// Make mapped blocks present that are in memory, step by step.
    MapResident {
        /// The remaining range.
        range: PageSpan,
        /// The block of its first page.
        block: Block,
    },
    /// Unmap.
    Unmap {
        /// The range.
        range: PageSpan,
    },
    /// Set permissions, step by step.
    Protect {
        /// The remaining range.
        range: PageSpan,
        /// The new permissions.
        permissions: Permissions,
    },
    /// Copy from the running space.
    Write {
        /// The pages to write to.
        range: PageSpan,
        /// Offset in the first of them.
        within: u64,
        /// Source address of the bytes.
        source: u64,
        /// Number of bytes.
        bytes: usize,
    },
    /// Copy to the running space.
    Read {
        /// The pages to read.
        range: PageSpan,
        /// Offset in the first of them.
        within: u64,
        /// Target address of the bytes.
        target: u64,
        /// Number of bytes.
        bytes: usize,
    },
    /// Create a space.
    SpaceCreate,
    /// Clone a space.
    SpaceClone(SpaceIndex),
    /// Continue in another space.
    SpaceSwitch(SpaceIndex),
    /// Destroy a space.
    SpaceDestroy(SpaceIndex),
    /// Create a segment.
    SegmentCreate,
    /// Mount a segment.
    MountSegment {
        /// The segment.
        segment: SegmentIndex,
        /// The space.
        space: SpaceIndex,
        /// The address.
        address: u64,
    },
    /// Destroy a segment.
    SegmentDestroy(SegmentIndex),
    /// Count present pages, step by step.
    Count {
        /// The remaining range.
        range: PageSpan,
        /// The count so far.
        count: PresentPages,
    },
    /// Describe the mapping of an address.
    Inspect {
        /// The space.
        space: SpaceIndex,
        /// The address.
        address: u64,
    },
}

/// How far an operation has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum OperationProgress {
    /// Done, with this result: 0, an index or a set of bits, as a hypercall returns it.
    Done(u64),
    /// The operation now describes the rest; another step follows.
    More,
}

impl MemoryOperation {
    /// Checks a hypercall about `memory`.
    ///
    /// # Errors
    /// The reason for the refusal.
    pub(crate) fn decode(call: Hypercall, memory: &mut SpaceSet) -> Result<MemoryOperation, Refusal> {
        Ok(match call {
            Hypercall::Map { space, address, pages, flags } => {
                let flags = MapFlags::from_bits(flags).ok_or(Refusal::BadArgument)?;
                MemoryOperation::Map { range: changeable(memory, space, address, pages)?, flags }
            }
            Hypercall::MapBlocks { space, address, pages, block, flags } => {
                let flags = MapFlags::from_bits(flags).filter(|flags| !flags.large).ok_or(Refusal::BadArgument)?;
                let range = changeable(memory, space, address, pages)?;
                let block = memory.blocks(BlockAddress::from_bits(block), pages)?;
                MemoryOperation::MapBlocks { range, block, permissions: flags.permissions, eager: flags.eager }
            }
            Hypercall::Populate { space, address, pages } => {
                let space = space_index(memory, space)?;
                MemoryOperation::Populate { range: memory.check(space, address, pages)? }
            }
            Hypercall::Count { space, address, pages } => {
                let space = space_index(memory, space)?;
                MemoryOperation::Count { range: memory.check(space, address, pages)?, count: PresentPages::default() }
            }
            Hypercall::Unmap { space, address, pages } => MemoryOperation::Unmap { range: changeable(memory, space, address, pages)? },
            Hypercall::Protect { space, address, pages, permissions } => {
                let permissions = Permissions::from_bits(permissions).ok_or(Refusal::BadArgument)?;
                MemoryOperation::Protect { range: changeable(memory, space, address, pages)?, permissions }
            }
            Hypercall::Write { space, address, source, bytes } => {
                let (first, within, pages) = pages_around(address, bytes)?;
                let range = changeable(memory, space, first, pages)?;
                MemoryOperation::Write { range, within, source, bytes: bytes as usize }
            }
            Hypercall::Read { space, address, target, bytes } => {
                let (first, within, pages) = pages_around(address, bytes)?;
                let space = space_index(memory, space)?;
                let range = memory.check(space, first, pages)?;
                MemoryOperation::Read { range, within, target, bytes: bytes as usize }
            }
            Hypercall::SpaceCreate {} => MemoryOperation::SpaceCreate,
            Hypercall::SpaceClone { space } => MemoryOperation::SpaceClone(space_index(memory, space)?),
            Hypercall::SpaceSwitch { space } => MemoryOperation::SpaceSwitch(space_index(memory, space)?),
            Hypercall::SpaceDestroy { space } => MemoryOperation::SpaceDestroy(space_index(memory, space)?),
            Hypercall::SegmentCreate {} => MemoryOperation::SegmentCreate,
            Hypercall::SegmentMount { segment, space, address } => {
                MemoryOperation::MountSegment { segment: shareable(segment)?, space: space_index(memory, space)?, address }
            }
            Hypercall::SegmentDestroy { segment } => MemoryOperation::SegmentDestroy(segment_index(segment)?),
            Hypercall::Inspect { space, address } => MemoryOperation::Inspect { space: space_index(memory, space)?, address },
            // Calls that are not about memory.
            _ => return Err(Refusal::NoSuchCall),
        })
    }

    /// Executes the next step.
    ///
    /// # Errors
    /// A refusal that depends on the state of memory, a shortage, or a block that must be read first; the step has changed nothing.
    pub(crate) fn step(&mut self, memory: &mut SpaceSet, frames: &mut Frames) -> Result<OperationProgress, MemoryError> {
        let result = match self {
            MemoryOperation::Map { range, flags } => {
                memory.map(frames, range, *flags)?;
                if flags.eager {
                    return Ok(self.populate_next());
                }
                0
            }
            MemoryOperation::MapBlocks { range, block, permissions, eager } => {
                memory.map_blocks(frames, range, *block, *permissions)?;
                // A file of which nothing was read in advance is read as requested.
                if memory.uses_prefetched_blocks() && frames.has_some_blocks(*block, range.pages.end - range.pages.start) {
                    return Ok(self.map_resident_next());
                }
                if *eager {
                    return Ok(self.populate_next());
                }
                0
            }
            MemoryOperation::Populate { range } => {
                memory.populate_step(frames, range)?;
                return Ok(remaining(range));
            }
            MemoryOperation::MapResident { range, block } => {
                memory.map_resident_step(frames, range, block);
                return Ok(remaining(range));
            }
            MemoryOperation::Unmap { range } => {
                memory.unmap(frames, range)?;
                0
            }
            MemoryOperation::Protect { range, permissions } => {
                memory.protect_step(frames, range, *permissions)?;
                return Ok(remaining(range));
            }
            MemoryOperation::Write { .. } | MemoryOperation::Read { .. } => {
                self.copy(memory, frames)?;
                0
            }
            MemoryOperation::SpaceCreate => u64::from(memory.create_space(frames)?.0),
            MemoryOperation::SpaceClone(space) => u64::from(memory.clone_space(frames, *space)?.0),
            MemoryOperation::SpaceSwitch(space) => {
                memory.switch(*space)?;
                0
            }
            MemoryOperation::SpaceDestroy(space) => {
                memory.destroy_space(frames, *space)?;
                0
            }
            MemoryOperation::SegmentCreate => u64::from(memory.create_segment()?.0),
            MemoryOperation::MountSegment { segment, space, address } => {
                memory.mount_segment(frames, *segment, *space, *address)?;
                0
            }
            MemoryOperation::SegmentDestroy(segment) => {
                memory.destroy_segment(frames, *segment)?;
                0
            }
            MemoryOperation::Count { range, count } => {
                memory.count_step(frames, range, count);
                let result = counted::bits(count.resident, count.exclusive);
                return Ok(if range.pages.is_empty() { OperationProgress::Done(result) } else { OperationProgress::More });
            }
            MemoryOperation::Inspect { space, address } => describe(memory.inspect(frames, *space, *address)?),
        };
        Ok(OperationProgress::Done(result))
    }

    /// Copies the bytes of a write or a read.
    fn copy(&self, memory: &mut SpaceSet, frames: &mut Frames) -> Result<(), MemoryError> {
        match self {
            MemoryOperation::Write { range, within, source, bytes } => {
                let mut copy = vec![0; *bytes];
                memory.read(frames, *source, &mut copy, CopyAuthority::Cell)?;
                memory.write_into(frames, range, *within, &copy)?;
            }
            MemoryOperation::Read { range, within, target, bytes } => {
                let mut copy = vec![0; *bytes];
                memory.read_from(frames, range, *within, &mut copy)?;
                memory.write(frames, *target, &copy, CopyAuthority::Cell)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Goes on by making those of the mapped blocks present that are in memory.
    fn map_resident_next(&mut self) -> OperationProgress {
        if let MemoryOperation::MapBlocks { range, block, .. } = self {
            *self = MemoryOperation::MapResident { range: range.clone(), block: *block };
        }
        OperationProgress::More
    }

    /// Goes on by making the mapped range present.
    fn populate_next(&mut self) -> OperationProgress {
        if let MemoryOperation::Map { range, .. } | MemoryOperation::MapBlocks { range, .. } = self {
            *self = MemoryOperation::Populate { range: range.clone() };
        }
        OperationProgress::More
    }
}

fn space_index(memory: &SpaceSet, space: u64) -> Result<SpaceIndex, Refusal> {
    if space == CURRENT_SPACE {
        return Ok(memory.current());
    }
    u32::try_from(space).map(SpaceIndex).map_err(|_| Refusal::NoSuchSpace)
}

/// The first page of bytes that one call copies, their offset in it, and the number of pages.
fn pages_around(address: u64, bytes: u64) -> Result<(u64, u64, u64), Refusal> {
    if bytes == 0 || bytes > MAX_WRITE_BYTES {
        return Err(Refusal::BadArgument);
    }
    let within = address % PAGE_SIZE;
    Ok((address - within, within, (within + bytes).div_ceil(PAGE_SIZE)))
}

/// Checks a range whose mappings may change: any but the pages that the kernel keeps for the cell.
fn changeable(memory: &mut SpaceSet, space: u64, address: u64, pages: u64) -> Result<PageSpan, Refusal> {
    let space = space_index(memory, space)?;
    let range = memory.check(space, address, pages)?;
    if range.slot == SYSTEM_SLOT && range.pages.start < RESERVED_PAGES {
        return Err(Refusal::ReadOnly);
    }
    Ok(range)
}

fn segment_index(segment: u64) -> Result<SegmentIndex, Refusal> {
    u32::try_from(segment).map(SegmentIndex).map_err(|_| Refusal::NoSuchSegment)
}

/// Checks a segment that may be mounted a second time. The system segment may not: at another address the cell could remap the
/// kernel's pages in it.
fn shareable(segment: u64) -> Result<SegmentIndex, Refusal> {
    segment_index(segment).and_then(|index| if index == SYSTEM_SEGMENT { Err(Refusal::ReadOnly) } else { Ok(index) })
}

/// The progress of an operation after a step, given the rest of its range.
fn remaining(range: &PageSpan) -> OperationProgress {
    if range.pages.is_empty() { OperationProgress::Done(0) } else { OperationProgress::More }
}

/// The result of `inspect`.
fn describe(found: Option<Lookup>) -> u64 {
    let Some(found) = found else { return 0 };
    let permissions = found.permissions().map_or(0, Permissions::bits);
    match found.decoded {
        DecodedEntry::Page { .. } => permissions | RESIDENT | if found.level > 1 { LARGE } else { 0 },
        DecodedEntry::Lazy { large, .. } => permissions | LAZY | if large { LARGE } else { 0 },
        DecodedEntry::Block { block, .. } => permissions | LAZY | inspected::block(block.number),
        DecodedEntry::Taken { .. } => permissions | TAKEN,
        DecodedEntry::Empty | DecodedEntry::Table { .. } => 0,
    }
}
