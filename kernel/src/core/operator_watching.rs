// SPDX-License-Identifier: MIT OR Apache-2.0
//! The operator's calls about watched cells: it watches, halts and resumes them, and reads and writes their state and memory.
//!
//! They are the verbs that a parent has for its children.

use super::Kernel;
use super::error::{OperationError, OperatorError};
use super::invoke::Subject;
use crate::cell::CellId;
use crate::cell::operation::Operation;
use crate::cell::run_state::Requirement;
use crate::cell::virtual_registers::RESERVED_PAGES;
use crate::cell::watch::{CpuState, ResumeMode, StateKind, WatchCallback, WatchMask};
use crate::memory::{PageSpan, SpaceSet};
use pando_abi::holding::ChildState;
use pando_abi::layout::SYSTEM_SLOT;
use pando_abi::{PAGE_SIZE, Refusal, SpaceIndex};

impl Kernel {
    /// Watches a cell: events of a mask ([`pando_abi::watch::mask`]) halt it from now on.
    ///
    /// # Errors
    /// There is no such living cell, it is frozen, another watcher watches it, or the mask is invalid.
    pub fn watch(&self, id: CellId, events: u64, callback: WatchCallback) -> Result<(), OperatorError> {
        let (mask, mut callback) = (WatchMask::from_bits(events).map_err(OperatorError::Refused)?, Some(callback));
        self.attempt("watch", |state| {
            let (live, _) = state.require(id, Requirement::NotFrozen)?;
            if live.on_halt.is_some() {
                return Err(OperatorError::Watched(id).into());
            }
            live.cell.watch.mask = mask;
            live.on_halt = callback.take();
            Ok(())
        })
    }

    /// Chooses other events for a watched cell.
    ///
    /// # Errors
    /// There is no such living cell, or the mask is invalid.
    pub fn set_watched_events(&self, id: CellId, events: u64) -> Result<(), OperatorError> {
        let mask = WatchMask::from_bits(events).map_err(OperatorError::Refused)?;
        self.invoke(Subject::Cell(id), Operation::Watch(mask)).map(drop)
    }

    /// Ends the watch of a cell. A halted one continues. Without effect on one that has ended.
    pub fn unwatch(&self, id: CellId) {
        let watched = self.attempt("unwatch", |state| {
            let (live, _) = state.require(id, Requirement::Living)?;
            live.cell.watch.mask = WatchMask::default();
            live.cell.watch.must_halt = false;
            Ok(live.on_halt.take().is_some())
        });
        if watched == Ok(true) {
            // It may not be halted.
            let _ = self.invoke(Subject::Cell(id), Operation::Resume(ResumeMode::Continue));
        }
    }

    /// Halts a watched cell: its state can be read once its callback was called. It may end instead.
    ///
    /// # Errors
    /// There is no such living cell, it was not started, or it is halted or frozen.
    pub fn halt(&self, id: CellId) -> Result<(), OperatorError> {
        self.invoke(Subject::Cell(id), Operation::Halt).map(drop)
    }

    /// Lets a halted cell continue ([`pando_abi::watch::resume`]).
    ///
    /// # Errors
    /// It is not halted, or `how` is invalid.
    pub fn resume(&self, id: CellId, how: u64) -> Result<(), OperatorError> {
        let mode = ResumeMode::from_bits(how).map_err(OperatorError::Refused)?;
        self.invoke(Subject::Cell(id), Operation::Resume(mode)).map(drop)
    }

    /// The state of a cell, as a parent sees that of a child.
    #[must_use]
    pub fn cell_state(&self, id: CellId) -> ChildState {
        self.shared.lock().child_state(id)
    }

    /// The reason for the halt of a cell, or a part of the state of its CPU ([`pando_abi::watch::state`]).
    ///
    /// # Errors
    /// It is not halted, or there is no such part.
    pub fn read_state(&self, id: CellId, kind: u64) -> Result<Vec<u8>, OperatorError> {
        let kind = StateKind::from_bits(kind).map_err(OperatorError::Refused)?;
        self.attempt("read the state of", |state| state.cpu_state(id, kind))
    }

    /// Sets a part of the state of the CPU of a halted cell.
    ///
    /// # Errors
    /// It is not halted, or no cell can have this state.
    pub fn write_state(&self, id: CellId, kind: u64, bytes: &[u8]) -> Result<(), OperatorError> {
        let kind = StateKind::from_bits(kind).map_err(OperatorError::Refused)?;
        let state = CpuState::decode(kind, bytes).map_err(OperatorError::Refused)?;
        self.invoke(Subject::Cell(id), Operation::SetState(Box::new(state))).map(drop)
    }

    /// Copies bytes out of a space of a halted cell; `None`: the one in which it continues. Returns how many there were before the first
    /// page that has none. May wait for a disk.
    ///
    /// # Errors
    /// It is not halted.
    pub fn read_space(&self, id: CellId, space: Option<SpaceIndex>, address: u64, bytes: &mut [u8]) -> Result<usize, OperatorError> {
        let mut done = 0;
        while done < bytes.len() {
            let rest = &mut bytes[done..];
            let (address, count) = first_step(address.wrapping_add(done as u64), rest.len());
            let read = self.attempt("read", |state| {
                let (live, frames) = state.require(id, Requirement::Halted)?;
                let span = page_span(&mut live.cell.memory, space, address)?;
                Ok(live.cell.memory.read_from(frames, &span, address % PAGE_SIZE, &mut rest[..count])?)
            });
            match read {
                Ok(()) => done += count,
                Err(error @ (OperatorError::WrongState(_) | OperatorError::Ended { .. } | OperatorError::NoSuchCell(_))) => {
                    return Err(error);
                }
                // Nothing is mapped there, or it cannot be read.
                Err(_) => break,
            }
        }
        Ok(done)
    }

    /// Copies bytes to a space of a halted cell, whatever a program may write there.
    ///
    /// # Errors
    /// It is not halted, nothing is mapped there, or there is not enough memory for copies of shared pages.
    pub fn write_space(&self, id: CellId, space: Option<SpaceIndex>, address: u64, bytes: &[u8]) -> Result<(), OperatorError> {
        let mut done = 0;
        while done < bytes.len() {
            let rest = &bytes[done..];
            let (address, count) = first_step(address.wrapping_add(done as u64), rest.len());
            self.attempt("write to", |state| {
                let (live, frames) = state.require(id, Requirement::Halted)?;
                let span = page_span(&mut live.cell.memory, space, address)?;
                // The kernel's own pages have checked content only.
                if span.slot == SYSTEM_SLOT && span.pages.start < RESERVED_PAGES {
                    return Err(Refusal::ReadOnly.into());
                }
                Ok(live.cell.memory.write_into(frames, &span, address % PAGE_SIZE, &rest[..count])?)
            })?;
            done += count;
        }
        Ok(())
    }
}

/// The part of a range of bytes that lies in its first page: its address and its length.
fn first_step(address: u64, count: usize) -> (u64, usize) {
    (address, count.min((PAGE_SIZE - address % PAGE_SIZE) as usize))
}

/// The page of an address in a space.
fn page_span(memory: &mut SpaceSet, space: Option<SpaceIndex>, address: u64) -> Result<PageSpan, OperationError> {
    let space = space.unwrap_or_else(|| memory.current());
    Ok(memory.check(space, address - address % PAGE_SIZE, 1)?)
}
