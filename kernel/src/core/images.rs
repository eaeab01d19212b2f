// SPDX-License-Identifier: MIT OR Apache-2.0
//! Images of children: a parent reads all state of a child that was not started, such as a clone of a halted one, and builds a child from
//! it.
//!
//! The parent may be any program. So an image is untrusted: it is checked as one from a file is, and costs only the child's memory.

use super::error::OperationError;
use super::nesting::child_memory_error;
use super::state::State;
use crate::cell::CellId;
use crate::cell::child_operation::{CallerBytes, PageCopy};
use crate::cell::image::{CellRecord, CellStateImage};
use crate::cell::memory_operation::OperationProgress;
use crate::cell::run_state::Requirement;
use crate::cell::virtual_registers::RESERVED_PAGES;
use crate::cell::watch::StateKind;
use crate::device::console::Console;
use crate::memory::{BuildProgress, CopyAuthority, MemoryLayout, copy_pages, list_image};
use pando_abi::cell_image::RECORD_BYTES;
use pando_abi::{HoldingName, Refusal};
use std::mem;

impl State {
    /// Copies the state of a child that was not started, or its spaces and segments, into its parent. Returns the number of bytes.
    pub(super) fn read_child_image(
        &mut self,
        caller: CellId,
        child: CellId,
        kind: StateKind,
        buffer: CallerBytes,
    ) -> Result<u64, OperationError> {
        let (live, frames) = self.require(child, Requirement::NotStarted)?;
        let bytes = match kind {
            StateKind::Layout => MemoryLayout::encode(&live.cell.memory),
            _ => {
                let state = CellStateImage {
                    record: CellRecord::of(&live.cell, &live.execution),
                    console: live.console.positions(),
                    reserved: live.cell.copy_reserved_pages(frames)?,
                };
                state.encode().ok_or(Refusal::TooMany)?
            }
        };
        // A part of it would be worth nothing.
        if bytes.len() > buffer.count {
            return Err(Refusal::TooMany.into());
        }
        self.write_caller(caller, buffer.address, &bytes)?;
        Ok(bytes.len() as u64)
    }

    /// Copies records of the memory of a child that was not started into its parent. Returns the number of bytes.
    pub(super) fn list_child_image(
        &mut self,
        caller: CellId,
        (child, base): (HoldingName, Option<HoldingName>),
        position: u64,
        buffer: CallerBytes,
    ) -> Result<u64, OperationError> {
        let child = self.child(caller, child)?;
        let base = base.map(|base| self.child(caller, base)).transpose()?;
        for cell in [Some(child), base].into_iter().flatten() {
            self.require(cell, Requirement::NotStarted)?;
        }
        let State { cells, frames, .. } = self;
        let memory = &cells.get(child).ok_or(Refusal::NoSuchHolding)?.cell.memory;
        let base = base.and_then(|base| cells.get(base)).map(|live| &live.cell.memory);
        let most = (buffer.count - 8) / RECORD_BYTES;
        let (records, next) = list_image(frames, memory, base, (position, most), RESERVED_PAGES);
        let words = records.iter().flat_map(|record| record.to_words());
        let bytes: Vec<u8> = [next].into_iter().chain(words).flat_map(u64::to_le_bytes).collect();
        self.write_caller(caller, buffer.address, &bytes)?;
        Ok(bytes.len() as u64)
    }

    /// Copies pages of a child that was not started into its parent.
    pub(super) fn read_child_pages(&mut self, caller: CellId, copy: PageCopy) -> Result<u64, OperationError> {
        let PageCopy { child, space, address, pages, buffer } = copy;
        let child = self.child(caller, child)?;
        self.require(child, Requirement::NotStarted)?;
        // Before the lookup of the content: making room may reclaim a block that it lies in.
        let (live, frames) = self.require(caller, Requirement::Living)?;
        let memory = &mut live.cell.memory;
        let target = memory.check(memory.current(), buffer, pages)?;
        let targets = memory.writable_pages(frames, &target, CopyAuthority::Cell)?;
        let (live, frames) = self.require(child, Requirement::NotStarted)?;
        let memory = &mut live.cell.memory;
        let source = memory.check(space.unwrap_or(memory.current()), address, pages)?;
        let sources = memory.readable_pages(frames, &source, CopyAuthority::Operator).map_err(child_memory_error)?;
        copy_pages(frames, &sources, &targets);
        Ok(0)
    }

    /// Copies pages of a parent to its child that was not started.
    pub(super) fn write_child_pages(&mut self, caller: CellId, copy: PageCopy) -> Result<u64, OperationError> {
        let PageCopy { child, space, address, pages, buffer } = copy;
        let child = self.child(caller, child)?;
        let (live, frames) = self.require(child, Requirement::NotStarted)?;
        let memory = &mut live.cell.memory;
        let target = memory.check(space.unwrap_or(memory.current()), address, pages)?;
        // As above.
        let targets = memory.writable_pages(frames, &target, CopyAuthority::Operator).map_err(child_memory_error)?;
        let (live, frames) = self.require(caller, Requirement::Living)?;
        let memory = &mut live.cell.memory;
        let source = memory.check(memory.current(), buffer, pages)?;
        let sources = memory.readable_pages(frames, &source, CopyAuthority::Cell)?;
        copy_pages(frames, &sources, &targets);
        Ok(0)
    }

    /// Sets the state of a child that was not started, or its spaces and segments.
    pub(super) fn build_child_state(
        &mut self,
        caller: CellId,
        child: HoldingName,
        kind: StateKind,
        bytes: CallerBytes,
    ) -> Result<u64, OperationError> {
        let child = self.child(caller, child)?;
        self.require(child, Requirement::NotStarted)?;
        let bytes = self.read_caller(caller, bytes)?;
        match kind {
            StateKind::Layout => return self.build_layout(child, &MemoryLayout::decode(&bytes, RESERVED_PAGES)?),
            StateKind::Reason => return self.build_halt(child, &bytes),
            StateKind::Holdings { .. } => return self.build_holdings(caller, child, &bytes),
            StateKind::Console { .. } => return self.build_console(child, &bytes),
            _ => {}
        }
        let state = CellStateImage::decode(&bytes).ok_or(Refusal::BadArgument)?;
        let (live, frames) = self.require(child, Requirement::NotStarted)?;
        live.cell.restore_reserved_pages(frames, &state.reserved)?;
        let wake = self.waker(child);
        let (live, _) = self.require(child, Requirement::NotStarted)?;
        let console = mem::replace(&mut live.console, Console::new(wake));
        live.console = console.at_positions(state.console);
        live.execution = state.record.restore(&mut live.cell);
        Ok(0)
    }

    /// Replaces the memory of a child that was not started by spaces and segments without content.
    fn build_layout(&mut self, child: CellId, layout: &MemoryLayout) -> Result<u64, OperationError> {
        let (live, frames) = self.require(child, Requirement::NotStarted)?;
        let cell = &mut live.cell;
        let fresh = cell.memory.new_for_same_account(frames);
        let old = mem::replace(&mut cell.memory, fresh);
        if let Err(error) = cell.map_reserved_pages(frames) {
            mem::replace(&mut cell.memory, old).release(frames);
            return Err(error.into());
        }
        layout.build(frames, &mut cell.memory);
        old.release(frames);
        Ok(0)
    }

    /// Adds some content to the memory of a child that was not started.
    pub(super) fn build_child_memory(
        &mut self,
        caller: CellId,
        child: HoldingName,
        bytes: CallerBytes,
        progress: &mut BuildProgress,
    ) -> Result<OperationProgress, OperationError> {
        let child = self.child(caller, child)?;
        self.require(child, Requirement::NotStarted)?;
        let records = self.read_caller(caller, bytes)?;
        let (live, frames) = self.require(child, Requirement::NotStarted)?;
        let is_complete = live.cell.memory.build_step(frames, &records, progress, RESERVED_PAGES)?;
        Ok(if is_complete { OperationProgress::Done(0) } else { OperationProgress::More })
    }
}
