// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operations: what a cell waits for while it does not run. Mostly hypercalls: decoded into operations that are known to be sound, then invoked piece by piece.
//!
//! Decoding makes every check and changes nothing; a refusal goes back to the caller. Invoking can then fail for want of memory only. An operation is bounded, or works in pieces and
//! comes back as [`Progress::More`], so that no call keeps the kernel for long.

use super::Cell;
use super::registers::KEPT_PAGES;
use crate::memory::copy::Behalf;
use crate::memory::entry::View;
use crate::memory::expected::Burst;
use crate::memory::obstacle::Obstacle;
use crate::memory::spaces::Stretch;
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

/// A hypercall that was checked, or what a page fault has led to.
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
        /// What was touched.
        address: u64,
        /// Where the program stood.
        instruction: u64,
    },
    /// Wait.
    Idle {
        /// Until then at the latest.
        until: Nanos,
    },
    /// Become a template.
    Freeze,
    /// Become a template if the operator still wants it.
    FreezeIfAsked {
        /// Programs run in it that do not notice.
        unaware: bool,
    },
    /// Give the vCPU away.
    Relinquish,
    /// Look at the rings.
    Doorbell,
    /// Something with memory.
    Memory(MemoryCall),
    /// Copy pages that are about to be written.
    Foresee(Burst),
}

/// A hypercall about memory that was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemoryCall {
    /// Map lazily; the pages are made afterwards if the flags say so.
    Map {
        /// Where.
        range: Stretch,
        /// How.
        flags: MapFlags,
    },
    /// Map blocks of a disk; they are brought in afterwards if `eager`.
    MapBlocks {
        /// Where.
        range: Stretch,
        /// The first.
        block: Block,
        /// What the program may do.
        permissions: Permissions,
        /// When.
        eager: bool,
    },
    /// Make what was mapped, piece by piece.
    Populate {
        /// What is left.
        range: Stretch,
    },
    /// Unmap.
    Unmap {
        /// Where.
        range: Stretch,
    },
    /// Set permissions, piece by piece.
    Protect {
        /// What is left.
        range: Stretch,
        /// To what.
        permissions: Permissions,
    },
    /// Copy from the running space.
    Write {
        /// The pages written to.
        range: Stretch,
        /// Where in the first of them.
        within: u64,
        /// Where the bytes come from.
        source: u64,
        /// How many.
        bytes: usize,
    },
    /// Make a space.
    SpaceCreate,
    /// Clone a space.
    SpaceClone(SpaceIndex),
    /// Run on in another space.
    SpaceSwitch(SpaceIndex),
    /// Destroy a space.
    SpaceDestroy(SpaceIndex),
    /// Make a segment.
    SegmentCreate,
    /// Mount a segment.
    Share {
        /// Which.
        segment: SegmentIndex,
        /// In which space.
        space: SpaceIndex,
        /// Where.
        address: u64,
    },
    /// Destroy a segment.
    SegmentDestroy(SegmentIndex),
    /// Count what is present, piece by piece.
    Count {
        /// What is left.
        range: Stretch,
        /// What was counted before.
        count: Count,
    },
    /// Say what lies somewhere.
    Inspect {
        /// In which space.
        space: SpaceIndex,
        /// Where.
        address: u64,
    },
}

/// How far an operation got.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Progress {
    /// Done, with this result.
    Done(u64),
    /// Another piece follows.
    More(MemoryCall),
}

impl Cell {
    /// Checks a hypercall that the cell's registers hold.
    ///
    /// # Errors
    /// Why it is refused.
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

    /// A range that the cell may remap: anything but what the kernel keeps there for it.
    fn own_range(&mut self, space: u64, address: u64, pages: u64) -> Result<Stretch, Refusal> {
        let space = self.space_index(space)?;
        let range = self.memory.check(space, address, pages)?;
        if range.slot == SYSTEM_SLOT && range.pages.start < KEPT_PAGES {
            return Err(Refusal::ReadOnly);
        }
        Ok(range)
    }

    /// Does the next piece of a call about memory.
    ///
    /// # Errors
    /// A refusal that only the state of memory decides, or a shortage; nothing has changed then.
    pub(crate) fn invoke(&mut self, frames: &mut Frames, call: &MemoryCall) -> Result<Progress, Obstacle> {
        let memory = &mut self.memory;
        let result = match call {
            MemoryCall::Map { range, flags } => {
                memory.map(frames, range, *flags)?;
                if flags.eager {
                    return Ok(Progress::More(MemoryCall::Populate { range: range.clone() }));
                }
                0
            }
            MemoryCall::MapBlocks { range, block, permissions, eager } => {
                memory.map_blocks(frames, range, *block, *permissions)?;
                if *eager {
                    return Ok(Progress::More(MemoryCall::Populate { range: range.clone() }));
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
                memory.read(frames, *source, &mut copy, Behalf::Cell)?;
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
                    return Ok(Progress::More(MemoryCall::Count { range: left, count }));
                }
                counted::bits(count.resident, count.own)
            }
            MemoryCall::Inspect { space, address } => describe(memory.inspect(frames, *space, *address)?),
        };
        Ok(Progress::Done(result))
    }
}

fn segment_index(segment: u64) -> Result<SegmentIndex, Refusal> {
    u32::try_from(segment).map(SegmentIndex).map_err(|_| Refusal::NoSuchSegment)
}

/// A segment that may be mounted a second time. The system segment may not: elsewhere the kernel's pages in it would be the cell's to remap.
fn shareable(segment: u64) -> Result<SegmentIndex, Refusal> {
    segment_index(segment).and_then(|index| if index == SYSTEM_SEGMENT { Err(Refusal::ReadOnly) } else { Ok(index) })
}

/// What follows when a piece is done.
fn rest(left: Stretch, call: impl FnOnce(Stretch) -> MemoryCall) -> Progress {
    if left.pages.is_empty() { Progress::Done(0) } else { Progress::More(call(left)) }
}

/// The result of `inspect`.
fn describe(found: Option<crate::memory::tree::Found>) -> u64 {
    let Some(found) = found else { return 0 };
    let permissions = found.permissions().map_or(0, Permissions::bits);
    match found.view {
        View::Page { .. } => permissions | RESIDENT | if found.level > 1 { LARGE } else { 0 },
        View::Lazy { large, .. } => permissions | LAZY | if large { LARGE } else { 0 },
        View::Block { block, .. } => permissions | LAZY | inspected::block(block.number),
        View::Empty | View::Table { .. } => 0,
    }
}
