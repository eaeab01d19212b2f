// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operations of a cell on the cells that it holds, decoded from hypercalls.
//!
//! A cell is the operator of its children: most of these apply an [`Operation`] to a held cell, which the operator could apply as well.

use super::cpu_limit::{CpuLimit, Weight};
use super::end::End;
use super::freeze::FreezeMode;
use super::memory_operation::MemoryOperation;
use super::operation::Operation;
use super::watch::{ResumeMode, StateKind, WatchMask};
use crate::memory::{BuildProgress, SwapNumber, TreeCursor};
use pando_abi::cell_image::RECORD_BYTES;
use pando_abi::holding::{fact, holding_of_space, limit, port, stop};
use pando_abi::limits::{HOST_NAME_BYTES, MAX_CONSOLE_BYTES, MAX_SWAP_PAGES};
use pando_abi::memory::CURRENT_SPACE;
use pando_abi::watch::{CONTEXT_WORDS, VECTOR_BYTES};
use pando_abi::{Event, HoldingName, Hypercall, PAGE_SIZE, Refusal, Registers, SpaceIndex};
use pando_machine::PageCount;

/// The least room for a list: a position and a record.
const LIST_MIN: u64 = 8 + RECORD_BYTES as u64;

/// Bytes in the memory of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallerBytes {
    /// Their address.
    pub(crate) address: u64,
    /// Their number.
    pub(crate) count: usize,
}

/// The limits of a new child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChildLimits {
    /// Frames that it may have, tables included.
    pub(crate) quota: PageCount,
    /// Number of descendants that it may have.
    pub(crate) cells: u32,
}

/// A checked operation of a cell on its holdings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ChildOperation {
    /// Create a child as a clone of a held cell.
    Clone {
        /// The held cell.
        source: HoldingName,
        /// The child's limits.
        limits: ChildLimits,
    },
    /// Apply an operation to a child.
    Apply {
        /// The child.
        child: HoldingName,
        /// The operation.
        operation: Operation,
    },
    /// Change or describe the memory of a child.
    Memory {
        /// The child.
        child: HoldingName,
        /// The call, as the child would make it.
        call: Hypercall,
        /// The checked call, once its first step was tried.
        started: Option<MemoryOperation>,
    },
    /// Give up a holding.
    Drop(HoldingName),
    /// Make a view of a child's child.
    View {
        /// The child, or a view.
        cell: HoldingName,
        /// The name that this cell has for its child.
        name: HoldingName,
    },
    /// Report a fact about a child.
    State {
        /// The child.
        child: HoldingName,
        /// The fact.
        fact: CellProperty,
    },
    /// Set the host name of a child.
    Name {
        /// The child.
        child: HoldingName,
        /// The name.
        name: CallerBytes,
    },
    /// Give a child, or the caller itself, a holding: a template, a reference, or a new reference to a port.
    Grant {
        /// The child. `None`: the caller.
        child: Option<HoldingName>,
        /// The template, the reference or the port.
        holding: HoldingName,
        /// The label of a new reference.
        label: u64,
    },
    /// Copy state of a halted child.
    StateRead {
        /// The child.
        child: HoldingName,
        /// The part of its state.
        kind: StateKind,
        /// The caller's buffer.
        buffer: CallerBytes,
    },
    /// Set state of a halted child.
    StateWrite {
        /// The child.
        child: HoldingName,
        /// The part of its state.
        kind: StateKind,
        /// The state.
        bytes: CallerBytes,
    },
    /// Take pages out of a halted child.
    Take(PageTransfer),
    /// Give pages back to a child that is halted or was not started.
    Give(PageTransfer),
    /// List the swap numbers in a halted child.
    ListSwapNumbers {
        /// The child.
        child: HoldingName,
        /// The list so far.
        listing: SwapListing,
    },
    /// List the memory of a child that was not started.
    ListImage {
        /// The child.
        child: HoldingName,
        /// Another such child, to whose memory the list is the difference.
        base: Option<HoldingName>,
        /// The position in the list.
        position: u64,
        /// The caller's buffer.
        buffer: CallerBytes,
    },
    /// Set the state of a child that was not started, or its spaces and segments.
    BuildState {
        /// The child.
        child: HoldingName,
        /// The part of its state.
        kind: StateKind,
        /// The state.
        bytes: CallerBytes,
    },
    /// Add content to the memory of a child that was not started.
    BuildMemory {
        /// The child.
        child: HoldingName,
        /// The records.
        bytes: CallerBytes,
        /// The progress in them.
        progress: BuildProgress,
    },
    /// Copy pages of a child that was not started.
    ReadPages(PageCopy),
    /// Copy pages to a child that was not started.
    WritePages(PageCopy),
    /// Read output of a child.
    ConsoleRead {
        /// The child's port.
        port: ChildPort,
        /// Memory for the output.
        buffer: CallerBytes,
    },
    /// Close an output stream of a child for reading.
    ConsoleClose {
        /// The child's port.
        port: ChildPort,
        /// The stream's tag.
        stream: u32,
    },
    /// Write to the input of a child, or end it if there are no bytes.
    ConsoleWrite {
        /// The child's port.
        port: ChildPort,
        /// The bytes.
        bytes: CallerBytes,
    },
}

/// Pages that move between a child and its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageTransfer {
    /// The child.
    pub(crate) child: HoldingName,
    /// The space; `None`: the one in which the child continues.
    pub(crate) space: Option<SpaceIndex>,
    /// The address in the space.
    pub(crate) address: u64,
    /// The most pages that move.
    pub(crate) pages: u64,
    /// The address of their content in the parent, a page boundary.
    pub(crate) buffer: u64,
    /// The swap number of the first.
    pub(crate) first: SwapNumber,
}

/// Pages that are copied between a child and its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageCopy {
    /// The child.
    pub(crate) child: HoldingName,
    /// The space; `None`: the one in which the child continues.
    pub(crate) space: Option<SpaceIndex>,
    /// The address in the space.
    pub(crate) address: u64,
    /// Number of pages.
    pub(crate) pages: u64,
    /// The address in the parent, a page boundary.
    pub(crate) buffer: u64,
}

/// A list of swap numbers in progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SwapListing {
    /// The number of the first bit.
    pub(crate) first: u32,
    /// The caller's buffer.
    pub(crate) buffer: CallerBytes,
    /// The bitmap so far.
    pub(crate) bitmap: Vec<u8>,
    /// The next entries to look at.
    pub(crate) cursor: TreeCursor,
}

/// A port of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChildPort {
    /// The child.
    pub(crate) child: HoldingName,
    /// It is the control channel, not the console.
    pub(crate) is_control: bool,
}

/// A fact about a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CellProperty {
    /// Its state.
    State,
    /// Its CPU time.
    Cpu,
    /// The pages that it uses.
    Used,
    /// The most pages that it has used.
    Peak,
    /// Its exits.
    Exits,
}

impl ChildOperation {
    /// Checks a hypercall. `None`: it is not about a held cell.
    ///
    /// # Errors
    /// The reason for the refusal.
    pub(crate) fn decode(call: Hypercall) -> Result<Option<ChildOperation>, Refusal> {
        let apply = |cell, operation| Ok(ChildOperation::Apply { child: holding(cell)?, operation });
        Ok(Some(match call {
            Hypercall::CellClone { source, quota, cells } => {
                ChildOperation::Clone { source: holding(source)?, limits: limits(quota, cells)? }
            }
            Hypercall::CellRun { cell } => apply(cell, Operation::Start)?,
            Hypercall::CellStop { cell, how: stop::ASK } => apply(cell, Operation::Freeze(FreezeMode::Cooperative))?,
            Hypercall::CellStop { cell, how: stop::FORCE } => apply(cell, Operation::Freeze(FreezeMode::Forced))?,
            Hypercall::CellStop { cell, how: stop::HALT } => apply(cell, Operation::Halt)?,
            Hypercall::CellStop { cell, how: stop::WITHDRAW } => apply(cell, Operation::WithdrawFreeze)?,
            Hypercall::CellStop { .. } => return Err(Refusal::BadArgument),
            Hypercall::CellWatch { cell, mask } => apply(cell, Operation::Watch(WatchMask::from_bits(mask)?))?,
            Hypercall::CellResume { cell, how } => apply(cell, Operation::Resume(ResumeMode::from_bits(how)?))?,
            Hypercall::StateRead { bytes: 0, .. } => return Err(Refusal::BadArgument),
            Hypercall::StateRead { cell, kind, address, bytes } => {
                state_read(cell, kind, caller_bytes(address, bytes, MAX_CONSOLE_BYTES)?)?
            }
            Hypercall::Take { space, address, pages, buffer, swap } => ChildOperation::Take(transfer(space, address, pages, buffer, swap)?),
            Hypercall::Give { space, address, pages, buffer, swap } => ChildOperation::Give(transfer(space, address, pages, buffer, swap)?),
            Hypercall::StateWrite { cell, kind, address, bytes } => state_write(cell, kind, address, bytes)?,
            Hypercall::ImageList { cell, base, position, address, bytes } => {
                if bytes < LIST_MIN {
                    return Err(Refusal::BadArgument);
                }
                let base = if base == 0 { None } else { Some(holding(base)?) };
                ChildOperation::ListImage {
                    child: holding(cell)?,
                    base,
                    position,
                    buffer: caller_bytes(address, bytes, MAX_CONSOLE_BYTES)?,
                }
            }
            Hypercall::PagesRead { space, address, pages, buffer } => ChildOperation::ReadPages(page_copy(space, address, pages, buffer)?),
            Hypercall::PagesWrite { space, address, pages, buffer } => {
                ChildOperation::WritePages(page_copy(space, address, pages, buffer)?)
            }
            Hypercall::CellChild { cell, name } => ChildOperation::View { cell: holding(cell)?, name: holding(name)? },
            Hypercall::CellEnd { cell } => apply(cell, Operation::End(End::Killed))?,
            Hypercall::CellLimit { cell, kind, value } => apply(cell, decode_limit(kind, value)?)?,
            Hypercall::CellRaise { cell, event, value } => apply(cell, decode_raise(event, value)?)?,
            Hypercall::Drop { holding: name } => ChildOperation::Drop(holding(name)?),
            Hypercall::CellState { cell, fact } => ChildOperation::State { child: holding(cell)?, fact: decode_property(fact)? },
            Hypercall::CellName { cell, address, bytes } => {
                ChildOperation::Name { child: holding(cell)?, name: caller_bytes(address, bytes, HOST_NAME_BYTES as u64)? }
            }
            Hypercall::Grant { cell, holding: name, label } => {
                let child = if cell == 0 { None } else { Some(holding(cell)?) };
                ChildOperation::Grant { child, holding: holding(name)?, label }
            }
            Hypercall::ConsoleRead { cell, address: tag, bytes: 0, port } => {
                let stream = u32::try_from(tag).map_err(|_| Refusal::BadArgument)?;
                ChildOperation::ConsoleClose { port: child_port(cell, port)?, stream }
            }
            Hypercall::ConsoleRead { cell, address, bytes, port } => {
                ChildOperation::ConsoleRead { port: child_port(cell, port)?, buffer: caller_bytes(address, bytes, MAX_CONSOLE_BYTES)? }
            }
            Hypercall::ConsoleWrite { cell, address, bytes, port } => {
                ChildOperation::ConsoleWrite { port: child_port(cell, port)?, bytes: caller_bytes(address, bytes, MAX_CONSOLE_BYTES)? }
            }
            memory_call => return of_child_memory(memory_call),
        }))
    }
}

/// A call about the memory of a child: the upper half of its space names the child.
fn of_child_memory(call: Hypercall) -> Result<Option<ChildOperation>, Refusal> {
    let Some(space) = call.space() else { return Ok(None) };
    let Some(bits) = holding_of_space(space) else { return Ok(None) };
    let child = holding(bits)?;
    // A segment of the caller cannot be mounted in a child.
    if matches!(call, Hypercall::SegmentMount { .. }) {
        return Err(Refusal::BadArgument);
    }
    let own = if space as u32 == u32::MAX { CURRENT_SPACE } else { u64::from(space as u32) };
    Ok(Some(ChildOperation::Memory { child, call: call.with_space(own), started: None }))
}

fn state_read(cell: u64, kind: u64, buffer: CallerBytes) -> Result<ChildOperation, Refusal> {
    let (child, kind) = (holding(cell)?, StateKind::from_bits(kind)?);
    Ok(match kind {
        StateKind::SwapNumbers { first } => ChildOperation::ListSwapNumbers {
            child,
            listing: SwapListing { first, buffer, bitmap: Vec::new(), cursor: TreeCursor::default() },
        },
        kind => ChildOperation::StateRead { child, kind, buffer },
    })
}

fn state_write(cell: u64, kind: u64, address: u64, bytes: u64) -> Result<ChildOperation, Refusal> {
    let kind = StateKind::from_bits(kind)?;
    let wanted = match kind {
        StateKind::Descendants { .. } | StateKind::Mounts { .. } | StateKind::SwapNumbers { .. } => return Err(Refusal::ReadOnly),
        StateKind::Context => CONTEXT_WORDS * 8,
        StateKind::Vector => VECTOR_BYTES,
        StateKind::Program => Registers::WORDS * 8,
        StateKind::Reason | StateKind::Holdings { first: 0 } | StateKind::Console { first: 0 } => {
            let (child, bytes) = (holding(cell)?, caller_bytes(address, bytes, MAX_CONSOLE_BYTES)?);
            return Ok(ChildOperation::BuildState { child, kind, bytes });
        }
        StateKind::Holdings { .. } | StateKind::Console { .. } => return Err(Refusal::BadArgument),
        StateKind::Image | StateKind::Layout | StateKind::Extents => {
            let (child, bytes) = (holding(cell)?, caller_bytes(address, bytes, MAX_CONSOLE_BYTES)?);
            return Ok(match kind {
                StateKind::Extents => ChildOperation::BuildMemory { child, bytes, progress: BuildProgress::default() },
                kind => ChildOperation::BuildState { child, kind, bytes },
            });
        }
    };
    if bytes != wanted as u64 {
        return Err(Refusal::BadArgument);
    }
    Ok(ChildOperation::StateWrite { child: holding(cell)?, kind, bytes: CallerBytes { address, count: wanted } })
}

/// A copy of pages between the caller and a child, whose space is named.
fn page_copy(space: u64, address: u64, pages: u64, buffer: u64) -> Result<PageCopy, Refusal> {
    let PageTransfer { child, space, address, pages, buffer, .. } = transfer(space, address, pages, buffer, 0)?;
    Ok(PageCopy { child, space, address, pages, buffer })
}

/// A transfer of pages between the caller and a child, whose space is named.
fn transfer(space: u64, address: u64, pages: u64, buffer: u64, swap: u64) -> Result<PageTransfer, Refusal> {
    let child = holding(holding_of_space(space).ok_or(Refusal::NoSuchHolding)?)?;
    let first = u32::try_from(swap).map_err(|_| Refusal::BadArgument)?;
    // The last number fits as well.
    if !(1..=MAX_SWAP_PAGES).contains(&pages) || u64::from(u32::MAX - first) < pages - 1 {
        return Err(Refusal::BadArgument);
    }
    if !buffer.is_multiple_of(PAGE_SIZE) {
        return Err(Refusal::BadAddress);
    }
    let space = Some(space as u32).filter(|space| *space != u32::MAX).map(SpaceIndex);
    Ok(PageTransfer { child, space, address, pages, buffer, first: SwapNumber(first) })
}

fn holding(bits: u64) -> Result<HoldingName, Refusal> {
    HoldingName::from_bits(bits).ok_or(Refusal::NoSuchHolding)
}

fn child_port(cell: u64, port: u64) -> Result<ChildPort, Refusal> {
    let child = holding(cell)?;
    match port {
        port::CONSOLE => Ok(ChildPort { child, is_control: false }),
        port::CONTROL => Ok(ChildPort { child, is_control: true }),
        _ => Err(Refusal::BadArgument),
    }
}

fn decode_property(fact: u64) -> Result<CellProperty, Refusal> {
    match fact {
        fact::STATE => Ok(CellProperty::State),
        fact::CPU => Ok(CellProperty::Cpu),
        fact::USED => Ok(CellProperty::Used),
        fact::PEAK => Ok(CellProperty::Peak),
        fact::EXITS => Ok(CellProperty::Exits),
        _ => Err(Refusal::BadArgument),
    }
}

fn limits(quota: u64, cells: u64) -> Result<ChildLimits, Refusal> {
    let cells = u32::try_from(cells).map_err(|_| Refusal::BadArgument)?;
    Ok(ChildLimits { quota: memory_quota(quota), cells })
}

/// A quota in pages; no machine has more frames than 32 bits number.
fn memory_quota(pages: u64) -> PageCount {
    PageCount(pages.min(u32::MAX.into()))
}

fn caller_bytes(address: u64, bytes: u64, max: u64) -> Result<CallerBytes, Refusal> {
    if bytes > max { Err(Refusal::BadArgument) } else { Ok(CallerBytes { address, count: bytes as usize }) }
}

fn decode_limit(kind: u64, value: u64) -> Result<Operation, Refusal> {
    match kind {
        limit::MEMORY => Ok(Operation::LimitMemory(memory_quota(value))),
        limit::CELLS => Ok(Operation::LimitCells(u32::try_from(value).map_err(|_| Refusal::BadArgument)?)),
        limit::CPU => {
            let thousandths = u32::try_from(value).map_err(|_| Refusal::BadArgument)?;
            CpuLimit::new(f64::from(thousandths) / 1000.0).map(Operation::LimitCpu).ok_or(Refusal::BadArgument)
        }
        limit::CPU_WEIGHT => Weight::new(value).map(Operation::SetWeight).ok_or(Refusal::BadArgument),
        _ => Err(Refusal::BadArgument),
    }
}

fn decode_raise(event: u64, value: u64) -> Result<Operation, Refusal> {
    const TERMINATE: u64 = Event::Terminate as u64;
    const INTERRUPT: u64 = Event::Interrupt as u64;
    const WINDOW_SIZE: u64 = Event::WindowSize as u64;
    const DEBUG: u64 = Event::Debug as u64;
    match event {
        TERMINATE => Ok(Operation::Raise(Event::Terminate)),
        INTERRUPT => Ok(Operation::Raise(Event::Interrupt)),
        DEBUG => Ok(Operation::Raise(Event::Debug)),
        WINDOW_SIZE => Ok(Operation::SetWindow([(value >> 16) as u16, value as u16])),
        _ => Err(Refusal::BadArgument),
    }
}

#[cfg(test)]
mod tests {
    use super::ChildOperation;
    use pando_abi::memory::CURRENT_SPACE;
    use pando_abi::{HoldingName, Hypercall, Refusal};

    #[test]
    fn the_upper_half_of_a_space_names_a_child() {
        let unmap = |space| ChildOperation::decode(Hypercall::Unmap { space, address: 0, pages: 1 });
        assert_eq!((unmap(CURRENT_SPACE), unmap(3)), (Ok(None), Ok(None)));
        let child = HoldingName::new(2, 1);
        for (space, own) in [(child.space(5), 5), (child.current_space(), CURRENT_SPACE)] {
            let call = Hypercall::Unmap { space: own, address: 0, pages: 1 };
            assert_eq!(unmap(space), Ok(Some(ChildOperation::Memory { child, call, started: None })));
        }
        assert_eq!(unmap(1 << 32), Err(Refusal::NoSuchHolding));
        let mount = Hypercall::SegmentMount { segment: 1, space: child.space(0), address: 0 };
        assert_eq!(ChildOperation::decode(mount), Err(Refusal::BadArgument));
    }

    #[test]
    fn arguments_that_no_call_allows_are_refused() {
        let (cell, bad) = (HoldingName::ROOT.bits(), Err(Refusal::BadArgument));
        for call in [
            Hypercall::CellStop { cell, how: 4 },
            Hypercall::CellWatch { cell, mask: 16 },
            Hypercall::CellResume { cell, how: 3 },
            Hypercall::StateRead { cell, kind: 12, address: 0, bytes: 8 },
            Hypercall::StateRead { cell, kind: 0, address: 0, bytes: 0 },
            Hypercall::StateWrite { cell, kind: 1, address: 0, bytes: 8 },
            Hypercall::StateRead { cell, kind: 7 | 1 << 32, address: 0, bytes: 8 },
            Hypercall::StateWrite { cell, kind: 9, address: 0, bytes: 65537 },
            Hypercall::ImageList { cell, base: 0, position: 0, address: 0, bytes: 39 },
            Hypercall::ImageList { cell, base: 0, position: 0, address: 0, bytes: 65537 },
            Hypercall::CellState { cell, fact: 5 },
            Hypercall::CellLimit { cell, kind: 4, value: 1 },
            Hypercall::CellLimit { cell, kind: 3, value: 10_001 },
            Hypercall::CellLimit { cell, kind: 2, value: 0 },
            Hypercall::CellLimit { cell, kind: 2, value: 1001 },
            Hypercall::CellRaise { cell, event: 0, value: 0 },
            Hypercall::CellClone { source: cell, quota: 1 << 20, cells: 1 << 32 },
            Hypercall::CellName { cell, address: 0, bytes: 65 },
            Hypercall::ConsoleRead { cell, address: 1 << 32, bytes: 0, port: 0 },
            Hypercall::ConsoleRead { cell, address: 0, bytes: 1, port: 2 },
            Hypercall::ConsoleWrite { cell, address: 0, bytes: 65537, port: 0 },
        ] {
            assert_eq!(ChildOperation::decode(call), bad, "{call:?}");
        }
        let listed = Hypercall::StateWrite { cell, kind: 4, address: 0, bytes: 8 };
        assert_eq!(ChildOperation::decode(listed), Err(Refusal::ReadOnly));
        assert_eq!(ChildOperation::decode(Hypercall::CellRun { cell: 0 }), Err(Refusal::NoSuchHolding));
    }
}
