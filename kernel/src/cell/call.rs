// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operations: pending work of a cell that does not run. Most are hypercalls, decoded into valid operations and then executed step
//! by step.
//!
//! Decoding makes every check and changes nothing; a refusal goes back to the caller. Execution can then fail only for want of
//! memory. An operation is bounded, or works in steps and returns [`CallProgress::More`], so that no call keeps the kernel for long.

use super::Cell;
use super::registers::RESERVED_PAGES;
use crate::memory::copy::CopyAuthority;
use crate::memory::entry::View;
use crate::memory::error::MemoryError;
use crate::memory::prefetch_set::PrefetchBatch;
use crate::memory::spaces::PageSpan;
use crate::memory::tree::Count;
use crate::memory::{Block, Frames};
use pando_abi::layout::SYSTEM_SLOT;
use pando_abi::limits::MAX_WRITE_BYTES;
use pando_abi::memory::inspected::{self, LARGE, LAZY, RESIDENT};
use pando_abi::memory::{CURRENT_SPACE, counted};
use pando_abi::{BlockAddress, Hypercall, MapFlags, PAGE_SIZE, Permissions, Refusal, SegmentIndex, SpaceIndex};
use pando_machine::{Exception, Nanos};

/// The segment that every space of a cell has from the start.
const SYSTEM_SEGMENT: SegmentIndex = SegmentIndex(0);

/// A checked hypercall, or work that a page fault has caused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Resolve a page fault.
    Fault(Exception),
    /// End with a status, or by a signal.
    Exit {
        /// The status.
        status: u8,
        /// The signal, or 0.
        signal: u8,
        /// The address that was accessed.
        address: u64,
        /// The program's instruction pointer.
        instruction: u64,
    },
    /// Wait.
    Idle {
        /// At most until this time.
        until: Nanos,
    },
    /// Become a template.
    Freeze,
    /// Become a template if the operator still requests it.
    FreezeIfAsked {
        /// Programs run in it that do not notice that they are cloned.
        unaware: bool,
    },
    /// Give the vCPU away.
    Relinquish,
    /// Serve the rings.
    Doorbell,
    /// An operation on memory.
    Memory(MemoryCall),
    /// Copy pages that are about to be written.
    Prefetch(PrefetchBatch),
}

/// A checked hypercall about memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemoryCall {
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
    Share {
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
        count: Count,
    },
    /// Describe the mapping of an address.
    Inspect {
        /// The space.
        space: SpaceIndex,
        /// The address.
        address: u64,
    },
}

/// The outcome of one step of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum CallProgress {
    /// Done, with this result.
    Done(u64),
    /// Another step follows.
    More(MemoryCall),
}

impl Cell {
    /// Checks the hypercall in the cell's registers.
    ///
    /// # Errors
    /// The reason for the refusal.
    pub(crate) fn decode(&mut self) -> Result<Operation, Refusal> {
        let call = Hypercall::decode(&self.context.registers).ok_or(Refusal::NoSuchCall)?;
        Ok(match call {
            Hypercall::Exit { status, signal, address, instruction } => {
                let [status, signal] = [status, signal].map(u8::try_from);
                match (status, signal) {
                    (Ok(status), Ok(signal)) => Operation::Exit { status, signal, address, instruction },
                    _ => return Err(Refusal::BadArgument),
                }
            }
            Hypercall::Idle { deadline } => Operation::Idle { until: Nanos(deadline) },
            Hypercall::Freeze {} => Operation::Freeze,
            Hypercall::FreezeIfAsked { unaware: unaware @ 0..=1 } => Operation::FreezeIfAsked { unaware: unaware == 1 },
            Hypercall::FreezeIfAsked { .. } => return Err(Refusal::BadArgument),
            Hypercall::Relinquish {} => Operation::Relinquish,
            Hypercall::Doorbell {} => Operation::Doorbell,
            memory => Operation::Memory(self.decode_memory(memory)?),
        })
    }

    fn decode_memory(&mut self, call: Hypercall) -> Result<MemoryCall, Refusal> {
        Ok(match call {
            Hypercall::Map { space, address, pages, flags } => {
                let flags = MapFlags::from_bits(flags).ok_or(Refusal::BadArgument)?;
                MemoryCall::Map { range: self.own_range(space, address, pages)?, flags }
            }
            Hypercall::MapBlocks { space, address, pages, block, flags } => {
                let flags = MapFlags::from_bits(flags).filter(|flags| !flags.large).ok_or(Refusal::BadArgument)?;
                let range = self.own_range(space, address, pages)?;
                let block = self.memory.blocks(BlockAddress::from_bits(block), pages)?;
                MemoryCall::MapBlocks { range, block, permissions: flags.permissions, eager: flags.eager }
            }
            Hypercall::Populate { space, address, pages } => {
                let space = self.space_index(space)?;
                MemoryCall::Populate { range: self.memory.check(space, address, pages)? }
            }
            Hypercall::Count { space, address, pages } => {
                let space = self.space_index(space)?;
                MemoryCall::Count { range: self.memory.check(space, address, pages)?, count: Count::default() }
            }
            Hypercall::Unmap { space, address, pages } => MemoryCall::Unmap { range: self.own_range(space, address, pages)? },
            Hypercall::Protect { space, address, pages, permissions } => {
                let permissions = Permissions::from_bits(permissions).ok_or(Refusal::BadArgument)?;
                MemoryCall::Protect { range: self.own_range(space, address, pages)?, permissions }
            }
            Hypercall::Write { space, address, source, bytes } => {
                if bytes == 0 || bytes > MAX_WRITE_BYTES {
                    return Err(Refusal::BadArgument);
                }
                let (first, within) = (address & !(PAGE_SIZE - 1), address % PAGE_SIZE);
                let range = self.own_range(space, first, (within + bytes).div_ceil(PAGE_SIZE))?;
                MemoryCall::Write { range, within, source, bytes: bytes as usize }
            }
            Hypercall::SpaceCreate {} => MemoryCall::SpaceCreate,
            Hypercall::SpaceClone { space } => MemoryCall::SpaceClone(self.space_index(space)?),
            Hypercall::SpaceSwitch { space } => MemoryCall::SpaceSwitch(self.space_index(space)?),
            Hypercall::SpaceDestroy { space } => MemoryCall::SpaceDestroy(self.space_index(space)?),
            Hypercall::SegmentCreate {} => MemoryCall::SegmentCreate,
            Hypercall::Share { segment, space, address } => {
                MemoryCall::Share { segment: shareable(segment)?, space: self.space_index(space)?, address }
            }
            Hypercall::SegmentDestroy { segment } => MemoryCall::SegmentDestroy(segment_index(segment)?),
            Hypercall::Inspect { space, address } => MemoryCall::Inspect { space: self.space_index(space)?, address },
            Hypercall::Exit { .. }
            | Hypercall::Idle { .. }
            | Hypercall::Freeze {}
            | Hypercall::FreezeIfAsked { .. }
            | Hypercall::Relinquish {}
            | Hypercall::Doorbell {} => return Err(Refusal::NoSuchCall),
        })
    }

    fn space_index(&self, space: u64) -> Result<SpaceIndex, Refusal> {
        if space == CURRENT_SPACE {
            return Ok(self.memory.current());
        }
        u32::try_from(space).map(SpaceIndex).map_err(|_| Refusal::NoSuchSpace)
    }

    /// Checks a range that the cell may remap: any but the pages that the kernel keeps for the cell.
    fn own_range(&mut self, space: u64, address: u64, pages: u64) -> Result<PageSpan, Refusal> {
        let space = self.space_index(space)?;
        let range = self.memory.check(space, address, pages)?;
        if range.slot == SYSTEM_SLOT && range.pages.start < RESERVED_PAGES {
            return Err(Refusal::ReadOnly);
        }
        Ok(range)
    }

    /// Executes the next step of a call about memory.
    ///
    /// # Errors
    /// A refusal that depends on the state of memory, or a shortage; nothing has changed.
    pub(crate) fn invoke(&mut self, frames: &mut Frames, call: &MemoryCall) -> Result<CallProgress, MemoryError> {
        let memory = &mut self.memory;
        let result = match call {
            MemoryCall::Map { range, flags } => {
                memory.map(frames, range, *flags)?;
                if flags.eager {
                    return Ok(CallProgress::More(MemoryCall::Populate { range: range.clone() }));
                }
                0
            }
            MemoryCall::MapBlocks { range, block, permissions, eager } => {
                memory.map_blocks(frames, range, *block, *permissions)?;
                if *eager {
                    return Ok(CallProgress::More(MemoryCall::Populate { range: range.clone() }));
                }
                0
            }
            MemoryCall::Populate { range } => {
                let mut left = range.clone();
                memory.touch_piece(frames, &mut left)?;
                return Ok(rest(left, |range| MemoryCall::Populate { range }));
            }
            MemoryCall::Unmap { range } => {
                memory.unmap(frames, range)?;
                0
            }
            MemoryCall::Protect { range, permissions } => {
                let mut left = range.clone();
                memory.protect_piece(frames, &mut left, *permissions)?;
                return Ok(rest(left, |range| MemoryCall::Protect { range, permissions: *permissions }));
            }
            MemoryCall::Write { range, within, source, bytes } => {
                let mut copy = vec![0; *bytes];
                memory.read(frames, *source, &mut copy, CopyAuthority::Cell)?;
                memory.write_into(frames, range, *within, &copy)?;
                0
            }
            MemoryCall::SpaceCreate => u64::from(memory.create_space(frames)?.0),
            MemoryCall::SpaceClone(space) => u64::from(memory.clone_space(frames, *space)?.0),
            MemoryCall::SpaceSwitch(space) => {
                memory.switch(*space)?;
                0
            }
            MemoryCall::SpaceDestroy(space) => {
                memory.destroy_space(frames, *space)?;
                0
            }
            MemoryCall::SegmentCreate => u64::from(memory.create_segment()?.0),
            MemoryCall::Share { segment, space, address } => {
                memory.share(frames, *segment, *space, *address)?;
                0
            }
            MemoryCall::SegmentDestroy(segment) => {
                memory.destroy_segment(frames, *segment)?;
                0
            }
            MemoryCall::Count { range, count } => {
                let (mut left, mut count) = (range.clone(), *count);
                memory.count_piece(frames, &mut left, &mut count);
                if !left.pages.is_empty() {
                    return Ok(CallProgress::More(MemoryCall::Count { range: left, count }));
                }
                counted::bits(count.resident, count.own)
            }
            MemoryCall::Inspect { space, address } => describe(memory.inspect(frames, *space, *address)?),
        };
        Ok(CallProgress::Done(result))
    }
}

fn segment_index(segment: u64) -> Result<SegmentIndex, Refusal> {
    u32::try_from(segment).map(SegmentIndex).map_err(|_| Refusal::NoSuchSegment)
}

/// Checks a segment that may be mounted a second time. The system segment may not: at another address the cell could remap the
/// kernel's pages in it.
fn shareable(segment: u64) -> Result<SegmentIndex, Refusal> {
    segment_index(segment).and_then(|index| if index == SYSTEM_SEGMENT { Err(Refusal::ReadOnly) } else { Ok(index) })
}

/// The progress after a step.
fn rest(left: PageSpan, call: impl FnOnce(PageSpan) -> MemoryCall) -> CallProgress {
    if left.pages.is_empty() { CallProgress::Done(0) } else { CallProgress::More(call(left)) }
}

/// The result of `inspect`.
fn describe(found: Option<crate::memory::tree::Lookup>) -> u64 {
    let Some(found) = found else { return 0 };
    let permissions = found.permissions().map_or(0, Permissions::bits);
    match found.view {
        View::Page { .. } => permissions | RESIDENT | if found.level > 1 { LARGE } else { 0 },
        View::Lazy { large, .. } => permissions | LAZY | if large { LARGE } else { 0 },
        View::Block { block, .. } => permissions | LAZY | inspected::block(block.number),
        View::Empty | View::Table { .. } => 0,
    }
}
