// SPDX-License-Identifier: MIT OR Apache-2.0
//! Open files of `/dev/cells`: the holdings that were made through each. `calls::cells_device` makes the calls.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use pando_abi::holding::fact;
use pando_abi::message::MessageResult;
use pando_abi::{HoldingName, Hypercall};
use pando_rt::cells;
use pando_rt::messages::PostedCall;

use super::edge::EventTimes;
use super::file_operations::{FileOperations, OffsetUse, Transfer};
use super::id_table::IdTable;
use super::poll::READING;
use super::tree::InodeRef;
use super::user_copy::read_text;
use super::{Files, OpenFile};
use crate::errno::Errno;
use crate::random::Random;
use crate::wait::{Channel, Tid};

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
    /// The children, ports, references and rights to reply that were made through it.
    holdings: Vec<HoldingName>,
    /// Number of events that were read.
    events_read: u64,
}

/// All open files of `/dev/cells`.
#[derive(Debug, Default)]
pub struct CellsFiles {
    all: IdTable<CellsFileState>,
    /// Calls of ports that threads wait for, with the number of the file.
    posted: BTreeMap<Tid, (usize, PostedCall)>,
    /// Number of events so far.
    events: u64,
    event_times: EventTimes,
}

impl CellsFiles {
    /// Records that the state of a child may have changed.
    pub fn note_event(&mut self) {
        self.events += 1;
        self.event_times.input();
    }

    /// Forgets the holdings: this cell is a clone now, and they are not its own. Only a cell that is restored with its nested cells has
    /// children at once, under the names of before.
    pub fn note_clone(&mut self) {
        let is_child = |name: &HoldingName| cells::call(Hypercall::CellState { cell: name.bits(), fact: fact::STATE }).is_ok();
        for number in 0..self.all.end() {
            if let Some(state) = self.all.get_mut(number) {
                state.holdings.retain(is_child);
            }
        }
        self.posted.values_mut().for_each(|(_, call)| call.note_clone());
        self.note_event();
    }

    /// Whether no open file has the holding: it was given to this cell by the cell around it.
    #[must_use]
    pub fn is_given(&self, name: HoldingName) -> bool {
        let owns = |number| self.all.get(number).is_some_and(|state: &CellsFileState| state.holdings.contains(&name));
        !(0..self.all.end()).any(owns)
    }

    /// The answer to the call that a thread has posted. `None`: the call is not over.
    #[must_use]
    pub fn answer(&self, thread: Tid) -> Option<MessageResult> {
        self.posted.get(&thread).and_then(|(_, call)| call.answer())
    }

    /// Takes the call that a thread has posted. Dropping it withdraws it.
    pub fn take_posted(&mut self, thread: Tid) -> Option<PostedCall> {
        self.posted.remove(&thread).map(|(_, call)| call)
    }
}

impl Files {
    /// Withdraws the calls of threads that have ended, and of the present thread, which has not made one yet.
    pub fn withdraw_left_calls(&mut self, present: Tid) {
        let Files { cells_files, threads, .. } = self;
        let is_living = |thread: Tid| thread != present && threads.iter().any(|(_, number)| *number == thread);
        cells_files.posted.retain(|thread, _| is_living(*thread));
    }
}

impl CellsFile {
    /// Opens the device.
    pub fn open(files: &mut CellsFiles, inode: InodeRef) -> CellsFile {
        let number = files.all.free_from(0);
        files.all.put(number, CellsFileState { holdings: Vec::new(), events_read: files.events });
        CellsFile { inode, number }
    }

    /// Whether calls through this file may name the holding.
    #[must_use]
    pub fn owns(self, files: &CellsFiles, name: HoldingName) -> bool {
        files.all.get(self.number).is_some_and(|state| state.holdings.contains(&name))
    }

    /// Records the call that a thread has posted.
    pub fn add_posted(self, files: &mut CellsFiles, thread: Tid, call: PostedCall) {
        files.posted.insert(thread, (self.number, call));
    }

    /// Records a new holding.
    pub fn add(self, files: &mut CellsFiles, name: HoldingName) {
        if let Some(state) = files.all.get_mut(self.number) {
            state.holdings.push(name);
        }
    }

    /// Records that a holding was dropped or used up.
    pub fn remove(self, files: &mut CellsFiles, name: HoldingName) {
        if let Some(state) = files.all.get_mut(self.number) {
            state.holdings.retain(|held| *held != name);
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

    fn event_times(&self, files: &Files, _file: &OpenFile) -> EventTimes {
        files.cells_files.event_times
    }

    fn release(&self, files: &mut Files, _file: &OpenFile) -> Vec<OpenFile> {
        files.cells_files.posted.retain(|_, (number, _)| *number != self.number);
        let state = files.cells_files.all.take(self.number);
        for name in state.into_iter().flat_map(|state| state.holdings) {
            // A name that is stale after the cell was cloned is refused.
            let _ = cells::call(Hypercall::Drop { holding: name.bits() });
        }
        Vec::new()
    }
}
