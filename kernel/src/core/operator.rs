// SPDX-License-Identifier: MIT OR Apache-2.0
//! The operator's calls about cells. They build operations, lock the kernel, and wait; [`State::invoke`] does the rest.

use super::Kernel;
use super::cell_table::LiveCell;
use super::error::{OperationError, OperatorError};
use super::invoke::Subject;
use super::state::State;
use super::swap_out::ReclaimAttempts;
use crate::cell::counters::Counters;
use crate::cell::cpu_limit::{CpuLimit, Weight};
use crate::cell::end::{End, Outcome};
use crate::cell::memory_operation::{MemoryOperation, OperationProgress};
use crate::cell::operation::Operation;
use crate::cell::run_state::{Requirement, RunState};
use crate::cell::{Cell, CellConfig, CellId};
use crate::device::console::ConsolePort;
use crate::device::disk::Disk;
use crate::memory::{CopyAuthority, DiskId, Frames, MemoryError, Usage};
use pando_abi::memory::CURRENT_SPACE;
use pando_abi::{BlockAddress, DiskIndex, Event, Hypercall, MapFlags, Permissions, Registers, SegmentIndex};
use pando_machine::{ExecutableBytes, PageCount};
use std::ops::Range;
use std::sync::Arc;

impl Kernel {
    /// Runs an action under the lock. After a shortage it frees memory, for an absent block it reads the block; then it runs the action
    /// again. It converts the error for the operator; `description` is the verb of the message, as in "cannot start cell 7.0".
    pub(super) fn attempt<T>(
        &self,
        description: &'static str,
        mut action: impl FnMut(&mut State) -> Result<T, OperationError>,
    ) -> Result<T, OperatorError> {
        let shared = &*self.shared;
        let (mut buffer, mut attempts) = (Vec::new(), ReclaimAttempts::default());
        let mut state = shared.lock();
        loop {
            let done = action(&mut state);
            state.frames.forget_unreadable();
            let error = match done {
                Ok(done) => {
                    shared.notify(&mut state);
                    return Ok(done);
                }
                Err(error) => error,
            };
            let retried = match error {
                OperationError::Memory(MemoryError::Absent(wanted)) => Some(shared.read_blocks(state, wanted, None, &mut buffer)),
                OperationError::Memory(MemoryError::Shortage(shortage)) => shared.free_memory(state, shortage, &mut attempts),
                OperationError::WrongState { cell, state: RunState::Asleep { until }, requirement }
                    if requirement.is_met_by(RunState::Idle { until }) =>
                {
                    drop(state);
                    shared.wake(cell)?;
                    Some(shared.lock())
                }
                _ => None,
            };
            match retried {
                Some(retried) => state = retried,
                None => return Err(error.for_operator(description)),
            }
        }
    }

    /// Invokes an operation step by step; the lock is free between the steps.
    pub(super) fn invoke(&self, subject: Subject, mut operation: Operation) -> Result<u64, OperatorError> {
        let description = operation.description();
        loop {
            if let OperationProgress::Done(result) = self.attempt(description, |state| state.invoke(subject, &mut operation))? {
                return Ok(result);
            }
        }
    }

    /// Does to a cell at rest what a hypercall about memory would do; decoded and invoked as if the cell had made the call.
    fn operate_on_memory(&self, id: CellId, hypercall: Hypercall) -> Result<u64, OperatorError> {
        let (progress, rest) = self.attempt("change the memory of", |state| {
            let (live, _) = state.require(id, Requirement::AtRest)?;
            let mut operation = Operation::Memory(MemoryOperation::decode(hypercall, &mut live.cell.memory)?);
            Ok((state.invoke(Subject::Cell(id), &mut operation)?, operation))
        })?;
        match progress {
            OperationProgress::Done(result) => Ok(result),
            OperationProgress::More => self.invoke(Subject::Cell(id), rest),
        }
    }

    /// Reads something of a living cell.
    pub(super) fn query<T>(
        &self,
        description: &'static str,
        id: CellId,
        query: impl Fn(&mut LiveCell, &mut Frames) -> T,
    ) -> Result<T, OperatorError> {
        self.attempt(description, |state| {
            let (live, frames) = state.require(id, Requirement::Living)?;
            Ok(query(live, frames))
        })
    }

    /// Changes a cell that is being built, or otherwise at rest.
    pub(super) fn change<T>(
        &self,
        description: &'static str,
        id: CellId,
        mut change: impl FnMut(&mut Cell, &mut Frames) -> Result<T, OperationError>,
    ) -> Result<T, OperatorError> {
        self.attempt(description, |state| {
            let (live, frames) = state.require(id, Requirement::AtRest)?;
            change(&mut live.cell, frames)
        })
    }

    /// Creates a cell with one space that holds only the kernel's own pages.
    ///
    /// # Errors
    /// Too many cells, too small a quota, or not enough memory.
    pub fn create(&self, config: CellConfig) -> Result<CellId, OperatorError> {
        self.invoke(Subject::Machine, Operation::Create(config)).map(CellId::from_bits)
    }

    /// Clones a cell that is frozen, idle or not yet started. O(mounts + segments), whatever its size. The clone is not started.
    ///
    /// # Errors
    /// The source runs or waits for its turn, or there are too many cells.
    pub fn clone_cell(&self, source: CellId, quota: PageCount) -> Result<CellId, OperatorError> {
        self.update_prefetch_set(source);
        self.invoke(Subject::Cell(source), Operation::Clone { quota }).map(CellId::from_bits)
    }

    /// Maps memory in a cell's running space; with `eager` in steps, between which the lock is free.
    ///
    /// # Errors
    /// The cell is running, the range is invalid, or there is not enough memory.
    pub fn map(&self, id: CellId, address: u64, pages: PageCount, flags: MapFlags) -> Result<(), OperatorError> {
        self.operate_on_memory(id, Hypercall::Map { space: CURRENT_SPACE, address, pages: pages.0, flags: flags.bits() }).map(drop)
    }

    /// Sets permissions in a cell's running space.
    ///
    /// # Errors
    /// The cell is running, the range is invalid, or there is not enough memory.
    pub fn protect(&self, id: CellId, address: u64, pages: PageCount, permissions: Permissions) -> Result<(), OperatorError> {
        let permissions = permissions.bits();
        self.operate_on_memory(id, Hypercall::Protect { space: CURRENT_SPACE, address, pages: pages.0, permissions }).map(drop)
    }

    /// Adds a disk that can be attached to cells. It stays until it is removed.
    ///
    /// # Errors
    /// There are too many.
    pub fn add_disk(&self, disk: Arc<dyn Disk>) -> Result<DiskId, OperatorError> {
        self.shared.lock().add_disk(disk).ok_or(OperatorError::TooManyDisks)
    }

    /// Removes a disk that no cell uses. O(cells). Its blocks in memory are given up as memory is needed; until then its identifier
    /// is not reused.
    ///
    /// # Errors
    /// There is no such disk, or a cell uses it.
    pub fn remove_disk(&self, disk: DiskId) -> Result<(), OperatorError> {
        self.shared.lock().remove_disk(disk)
    }

    /// Removes a disk at once, or when the last cell that uses it ends. O(cells).
    ///
    /// # Errors
    /// There is no such disk.
    pub fn retire_disk(&self, disk: DiskId) -> Result<(), OperatorError> {
        self.shared.lock().retire_disk(disk)
    }

    /// Number of blocks of a disk; asked without the lock, because a disk is foreign code.
    pub(super) fn blocks_of(&self, disk: DiskId) -> Result<u64, OperatorError> {
        let found = self.shared.lock().disk(disk);
        Ok(found.ok_or(OperatorError::NoSuchDisk)?.blocks())
    }

    /// Attaches a disk, so that the cell and its later clones can map its blocks. Returns the cell's own index of it.
    ///
    /// # Errors
    /// The cell is running, there is no such disk, or the cell has too many.
    pub fn attach(&self, id: CellId, disk: DiskId) -> Result<DiskIndex, OperatorError> {
        let blocks = self.blocks_of(disk)?;
        self.invoke(Subject::Cell(id), Operation::Attach { disk, blocks }).map(|index| DiskIndex(index as u32))
    }

    /// Maps blocks of an attached disk in a cell's running space, from `first` on. They are read on first access.
    ///
    /// # Errors
    /// The cell is running, the range is invalid, the disk has no such blocks, or there is not enough memory for tables.
    pub fn map_blocks(
        &self,
        id: CellId,
        address: u64,
        pages: PageCount,
        first: BlockAddress,
        permissions: Permissions,
    ) -> Result<(), OperatorError> {
        let (block, flags) = (first.bits(), MapFlags::lazy(permissions).bits());
        self.operate_on_memory(id, Hypercall::MapBlocks { space: CURRENT_SPACE, address, pages: pages.0, block, flags }).map(drop)
    }

    /// Creates a segment in a cell and mounts it in all its spaces.
    ///
    /// # Errors
    /// The cell is running, the slot is taken, or there are too many segments.
    pub fn mount_segment(&self, id: CellId, address: u64) -> Result<SegmentIndex, OperatorError> {
        let segment = self.operate_on_memory(id, Hypercall::SegmentCreate {})?;
        for space in self.query("share memory in", id, |live, _| live.cell.memory.space_indices())? {
            self.operate_on_memory(id, Hypercall::SegmentMount { segment, space: space.0.into(), address })?;
        }
        Ok(SegmentIndex(segment as u32))
    }

    /// Copies bytes into a cell, regardless of the cell's own permissions. May wait for a disk.
    ///
    /// # Errors
    /// The cell is running, nothing is mapped there, it cannot be read, or there is not enough memory.
    pub fn write(&self, id: CellId, address: u64, bytes: &[u8]) -> Result<(), OperatorError> {
        self.change("write to", id, |cell, frames| Ok(cell.memory.write(frames, address, bytes, CopyAuthority::Operator)?))
    }

    /// Fills whole pages of a cell with pages of this program's file. A trim replaces those that are still the same by the file's own
    /// pages.
    ///
    /// # Errors
    /// The cell is running, nothing is mapped there, or there is not enough memory.
    ///
    /// # Panics
    /// `address` is not at a page boundary, or the bytes have no such pages.
    pub fn load(&self, id: CellId, address: u64, bytes: &'static ExecutableBytes, pages: Range<u32>) -> Result<(), OperatorError> {
        self.change("load", id, |cell, frames| Ok(cell.memory.load(frames, address, bytes, pages.clone())?))
    }

    /// Copies bytes out of a cell. May wait for a disk.
    ///
    /// # Errors
    /// The cell is running, nothing is mapped there, or it cannot be read.
    pub fn read(&self, id: CellId, address: u64, bytes: &mut [u8]) -> Result<(), OperatorError> {
        self.change("read", id, |cell, frames| Ok(cell.memory.read(frames, address, bytes, CopyAuthority::Operator)?))
    }

    /// Sets a cell's registers; everything else in its context becomes zero.
    ///
    /// # Errors
    /// The cell is running.
    pub fn set_registers(&self, id: CellId, registers: Registers) -> Result<(), OperatorError> {
        self.invoke(Subject::Cell(id), Operation::SetRegisters(Box::new(registers))).map(drop)
    }

    /// A cell's registers.
    ///
    /// # Errors
    /// The cell is running.
    pub fn registers(&self, id: CellId) -> Result<Registers, OperatorError> {
        let registers = |state: &mut State| Ok(state.require(id, Requirement::AtRest)?.0.execution.context.registers);
        self.attempt("read the registers of", registers)
    }

    /// Limits a cell to a part of one vCPU's time, from now on; its later clones inherit the limit.
    ///
    /// # Errors
    /// There is no such living cell.
    pub fn set_cpu_limit(&self, id: CellId, limit: CpuLimit) -> Result<(), OperatorError> {
        self.invoke(Subject::Cell(id), Operation::LimitCpu(limit)).map(drop)
    }

    /// Sets the CPU weight of a cell with its descendants, among the cells of the operator or among its siblings.
    ///
    /// # Errors
    /// There is no such living cell.
    pub fn set_weight(&self, id: CellId, weight: Weight) -> Result<(), OperatorError> {
        self.invoke(Subject::Cell(id), Operation::SetWeight(weight)).map(drop)
    }

    /// Ends a cell in any state.
    ///
    /// # Errors
    /// There is no such living cell.
    pub fn end(&self, id: CellId, end: End) -> Result<(), OperatorError> {
        self.invoke(Subject::Cell(id), Operation::End(end))?;
        // Any free vCPU releases its memory.
        self.shared.work.notify_one();
        Ok(())
    }

    /// Raises an event for a cell, which notices it at its next exit.
    pub fn raise(&self, id: CellId, event: Event) {
        self.shared.raise(id, event);
    }

    /// Interrupts a cell's program at once, as Ctrl-C does: even a program that computes receives the event now, not at its next
    /// exit.
    ///
    /// # Errors
    /// There is no such living cell.
    pub fn interrupt(&self, id: CellId) -> Result<(), OperatorError> {
        self.invoke(Subject::Cell(id), Operation::Raise(Event::Interrupt)).map(drop)
    }

    /// Sets the host name of a cell that has not started, truncated to [`pando_abi::limits::HOST_NAME_BYTES`]. Its clones inherit
    /// it.
    ///
    /// # Errors
    /// There is no such cell, or it was started.
    pub fn set_host_name(&self, id: CellId, name: &str) -> Result<(), OperatorError> {
        self.invoke(Subject::Cell(id), Operation::SetHostName(name.into())).map(drop)
    }

    /// Sets the size of a cell's terminal, at once.
    ///
    /// # Errors
    /// There is no such living cell.
    pub fn set_window(&self, id: CellId, rows: u16, columns: u16) -> Result<(), OperatorError> {
        self.invoke(Subject::Cell(id), Operation::SetWindow([rows, columns])).map(drop)
    }

    /// Waits until a cell has ended, and forgets it: its identifier is stale from then on.
    ///
    /// # Errors
    /// There is no such cell, or it froze instead; then it still exists.
    pub fn wait(&self, id: CellId) -> Result<Outcome, OperatorError> {
        let mut state = self.shared.lock();
        loop {
            if let Some(outcome) = state.forget(id) {
                return Ok(outcome);
            }
            match state.living(id) {
                None => return Err(OperatorError::NoSuchCell(id)),
                Some((live, _)) if live.execution.run_state() == RunState::Frozen => return Err(OperatorError::Froze),
                Some(_) => {}
            }
            state = self.shared.changed.wait(state).expect("a kernel whose lock was poisoned must not go on");
        }
    }

    /// Takes the outcome of an ended cell, and forgets the cell; `None` while it lives.
    pub fn collect(&self, id: CellId) -> Option<Outcome> {
        self.shared.lock().forget(id)
    }

    /// A living cell's run state, counters and memory use.
    ///
    /// # Errors
    /// There is no such living cell.
    pub fn inspect(&self, id: CellId) -> Result<(RunState, Counters, Usage), OperatorError> {
        self.query("inspect", id, |live, frames| {
            (live.execution.run_state(), live.cell.counters.clone(), frames.usage(live.cell.memory.account()))
        })
    }

    /// The same for several cells at one moment, so only for a limited number. `None`: there is no such living cell.
    #[must_use]
    pub fn inspect_all(&self, ids: &[CellId]) -> Vec<Option<(RunState, Counters, Usage)>> {
        let mut inspected = Vec::with_capacity(ids.len());
        let mut state = self.shared.lock();
        inspected.extend(ids.iter().map(|id| {
            let (live, frames) = state.living(*id)?;
            Some((live.execution.run_state(), live.cell.counters.clone(), frames.usage(live.cell.memory.account())))
        }));
        inspected
    }

    /// Number of living cells.
    #[must_use]
    pub fn cells(&self) -> usize {
        self.shared.lock().cells.iter().count()
    }

    /// Memory use and quota of the blocks of disks.
    #[must_use]
    pub fn registry(&self) -> Usage {
        self.shared.lock().frames.registry()
    }

    /// Number of free frames.
    #[must_use]
    pub fn free(&self) -> PageCount {
        self.shared.lock().free()
    }

    /// Frees every unneeded frame: finishes all releasing, gives up blocks that no cell maps, and flushes the machine. For tests
    /// and measurements: takes milliseconds.
    pub fn free_unused_frames(&self) {
        let mut state = self.shared.make_room(self.shared.lock());
        state.frames.reclaim_all();
    }

    /// Bytes that the kernel keeps for each cell besides its frames.
    #[must_use]
    pub fn metadata_bytes() -> usize {
        size_of::<LiveCell>() + size_of::<ConsolePort>()
    }
}
