// SPDX-License-Identifier: MIT OR Apache-2.0
//! Open files of `/dev/cells`: the children that were made through each. `calls::cells_device` makes the calls.

use alloc::vec::Vec;

use pando_abi::{HoldingName, Hypercall};
use pando_rt::cells;

use super::edge::Pulse;
use super::file_operations::{FileOperations, OffsetUse, Transfer};
use super::id_table::IdTable;
use super::poll::READING;
use super::tree::InodeRef;
use super::user_copy::read_text;
use super::{Files, OpenFile};
use crate::errno::Errno;
use crate::random::Random;
use crate::wait::Channel;

/// Device number of `/dev/cells`, in the range for local use.
pub const CELLS: (u32, u32) = (10, 241);

/// An open `/dev/cells`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellsFile {
    /// The inode by which it was opened.
    inode: InodeRef,
    /// Its number in the table.
    number: usize,
}

/// The state of an open `/dev/cells`.
#[derive(Debug, Default)]
struct CellsFileState {
    /// The children that were made through it.
    children: Vec<HoldingName>,
    /// Number of events that were read.
    events_read: u64,
}

/// All open files of `/dev/cells`.
#[derive(Debug, Default)]
pub struct CellsFiles {
    all: IdTable<CellsFileState>,
    /// Number of events so far.
    events: u64,
    pulse: Pulse,
}

impl CellsFiles {
    /// Records that the state of a child may have changed.
    pub fn note_event(&mut self) {
        self.events += 1;
        self.pulse.input();
    }

    /// Forgets the children: this cell is a clone now, and they are not its own.
    pub fn note_clone(&mut self) {
        for number in 0..self.all.end() {
            if let Some(state) = self.all.get_mut(number) {
                state.children.clear();
            }
        }
        self.note_event();
    }
}

impl CellsFile {
    /// Opens the device.
    pub fn open(files: &mut CellsFiles, inode: InodeRef) -> CellsFile {
        let number = files.all.free_from(0);
        files.all.put(number, CellsFileState { children: Vec::new(), events_read: files.events });
        CellsFile { inode, number }
    }

    /// Whether calls through this file may name the holding.
    #[must_use]
    pub fn owns(self, files: &CellsFiles, name: HoldingName) -> bool {
        files.all.get(self.number).is_some_and(|state| state.children.contains(&name))
    }

    /// Records a new child.
    pub fn add(self, files: &mut CellsFiles, name: HoldingName) {
        if let Some(state) = files.all.get_mut(self.number) {
            state.children.push(name);
        }
    }

    /// Records that a child was dropped.
    pub fn remove(self, files: &mut CellsFiles, name: HoldingName) {
        if let Some(state) = files.all.get_mut(self.number) {
            state.children.retain(|held| *held != name);
        }
    }
}

impl FileOperations for CellsFile {
    fn inode(&self, files: &Files) -> Option<InodeRef> {
        Some(files.tree.real_inode(self.inode))
    }

    fn offset_use(&self) -> OffsetUse {
        OffsetUse::Ignored
    }

    /// Returns the number of events since the last read.
    fn read(&self, files: &mut Files, transfer: Transfer<'_>, _random: &mut Random) -> Result<u64, Errno> {
        let events = files.cells_files.events;
        let state = files.cells_files.all.get_mut(self.number).ok_or(Errno::EBADF)?;
        if state.events_read == events {
            return Err(Errno::EAGAIN);
        }
        if transfer.ranges.iter().map(|range| range.length()).sum::<u64>() < size_of::<u64>() as u64 {
            return Err(Errno::EINVAL);
        }
        let done = read_text(&(events - state.events_read).to_le_bytes(), 0, transfer.ranges)?;
        state.events_read = events;
        Ok(done)
    }

    fn poll(&self, files: &Files, _file: &OpenFile) -> u16 {
        let is_new = files.cells_files.all.get(self.number).is_some_and(|state| state.events_read < files.cells_files.events);
        if is_new { READING } else { 0 }
    }

    fn add_channels(&self, _files: &Files, _number: usize, channels: &mut Vec<Channel>) {
        channels.push(Channel::Cells);
    }

    fn pulse(&self, files: &Files, _file: &OpenFile) -> Pulse {
        files.cells_files.pulse
    }

    fn release(&self, files: &mut Files, _file: &OpenFile) -> Vec<OpenFile> {
        let state = files.cells_files.all.take(self.number);
        for name in state.into_iter().flat_map(|state| state.children) {
            // A name that is stale after the cell was cloned is refused.
            let _ = cells::call(Hypercall::Drop { holding: name.bits() });
        }
        Vec::new()
    }
}
