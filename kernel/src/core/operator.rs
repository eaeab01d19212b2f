// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operator calls about cells: build, start, clone, inspect, end.

use super::state::{LiveCell, State};
use super::{Kernel, Shared};
use crate::cell::end::{Counters, End, Outcome};
use crate::cell::{Cell, CellConfig, CellId, State as CellState};
use crate::device::console::{Console, ConsolePort};
use crate::device::disk::{Disk, DiskError};
use crate::limits::MIN_QUOTA;
use crate::memory::copy::{CopyAuthority, CopyError};
use crate::memory::error::MemoryError;
use crate::memory::{BadImage, DiskId, Frames, Shortage, SpaceSet, Usage};
use crate::sched::Share;
use crate::sched::share::Allowance;
use pando_abi::limits::HOST_NAME_BYTES;
use pando_abi::{BlockAddress, DiskIndex, Event, MapFlags, Permissions, Refusal, Registers, SegmentIndex};
use pando_machine::{Context, PageCount};
use std::sync::{Arc, Weak};

/// Why an operator's call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OperatorError {
    /// The identifier is stale or invalid.
    #[error("no such cell: it was never created, or it has ended")]
    NoSuchCell,
    /// The state of the cell does not allow the call.
    #[error("the state of the cell does not allow this: it is {0:?}")]
    Busy(CellState),
    /// The cell has ended.
    #[error("the cell has ended: {0}")]
    Ended(End),
    /// The cell has frozen, so it will not end by itself.
    #[error("the program has frozen itself into a template without a request, and will not exit")]
    Froze,
    /// The kernel has the maximum number of cells.
    #[error("there are too many cells")]
    TooManyCells,
    /// The quota is below the minimum.
    #[error("{0} is too little memory for a cell: it needs at least {least}", least = PageCount(MIN_QUOTA))]
    QuotaTooSmall(PageCount),
    /// The range, the space or the segment is invalid.
    #[error("{}", .0.cause().trim())]
    Refused(Refusal),
    /// There is not enough memory.
    #[error(transparent)]
    Short(#[from] Shortage),
    /// The memory is a block of a disk that cannot be read.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The kernel has the maximum number of networks.
    #[error("there are too many networks")]
    TooManyNetworks,
    /// A network has this name already.
    #[error("there is a network called {0:?} already: choose another name, or plug into that one")]
    NameTaken(String),
    /// A port or a listener of the network is in use.
    #[error("the network is in use: first end its cells, and drop its host ports and listeners")]
    NetworkInUse,
    /// There is no such network, or all its addresses are in use.
    #[error("there is no such network, or it has no free address")]
    NoAddress,
    /// The cell has a network card.
    #[error("the cell has a network card already")]
    PluggedIn,
    /// The kernel has the maximum number of disks.
    #[error("there are too many disks")]
    TooManyDisks,
    /// The disk was never added, or was removed.
    #[error("there is no such disk")]
    NoSuchDisk,
    /// A cell uses the disk.
    #[error("the disk is in use by a cell: end the cell first")]
    DiskInUse,
    /// The image of a cell is invalid.
    #[error("the image of the cell is invalid: {0}")]
    Image(#[from] BadImage),
    /// The image of a cell needs another number of disks.
    #[error("the cell needs {wanted} disks, but {given} were given")]
    OtherDisks {
        /// Number of disks that it needs.
        wanted: usize,
        /// Number of disks that were given.
        given: usize,
    },
    /// A disk is not the one that an image of a cell needs.
    #[error("disk {index} is not the one that the cell needs: it has {blocks} blocks instead of {wanted}")]
    OtherDisk {
        /// Its index in the cell.
        index: usize,
        /// Number of blocks of the right disk.
        wanted: u64,
        /// Number of blocks of this disk.
        blocks: u64,
    },
    /// The sink of an export has stopped it.
    #[error("the export was stopped")]
    Stopped,
}

impl From<MemoryError> for OperatorError {
    fn from(error: MemoryError) -> OperatorError {
        match error {
            MemoryError::Refused(refusal) => OperatorError::Refused(refusal),
            MemoryError::Short(shortage) => OperatorError::Short(shortage),
            MemoryError::Absent(_) => OperatorError::Disk(DiskError),
        }
    }
}

impl From<Refusal> for OperatorError {
    fn from(refusal: Refusal) -> OperatorError {
        OperatorError::Refused(refusal)
    }
}

impl From<CopyError> for OperatorError {
    fn from(error: CopyError) -> OperatorError {
        match error {
            CopyError::Refused => OperatorError::Refused(Refusal::BadAddress),
            CopyError::Shortage(shortage) => OperatorError::Short(shortage),
            CopyError::Absent(_) | CopyError::Unreadable => OperatorError::Disk(DiskError),
        }
    }
}

/// Returns a function that wakes a cell after the host's side of its console has changed.
pub(super) fn waker(shared: &Arc<Shared>, id: CellId) -> Box<dyn Fn() + Send + Sync> {
    let shared: Weak<Shared> = Arc::downgrade(shared);
    Box::new(move || {
        if let Some(shared) = shared.upgrade() {
            shared.raise(id, Event::Console);
        }
    })
}

impl Kernel {
    /// Creates a cell with one space that holds only the kernel's own pages.
    ///
    /// # Errors
    /// Too many cells, too small a quota, or not enough memory.
    pub fn create(&self, config: CellConfig) -> Result<CellId, OperatorError> {
        if config.quota.0 < MIN_QUOTA {
            return Err(OperatorError::QuotaTooSmall(config.quota));
        }
        self.with_room(|state| {
            let id = state.reserve().ok_or(OperatorError::TooManyCells)?;
            let frames = &mut state.frames;
            let account = frames.open_account(config.quota);
            let memory = SpaceSet::new(frames, account);
            let mut cell = Cell::new(id, memory, fitting(&config.host_name));
            if let Err(error) = cell.lay_out(frames) {
                cell.memory.release(frames);
                frames.close_account(account);
                state.unreserve(id);
                return Err(error.into());
            }
            state.insert_cell(LiveCell {
                cell,
                console: Console::new(waker(&self.shared, id)),
                channel: None,
                control: None,
                card: None,
                allowance: None,
            });
            Ok(id)
        })
    }

    /// Runs an action that takes memory; after a shortage, frees what can be freed and runs it again.
    pub(super) fn with_room<T>(&self, mut action: impl FnMut(&mut State) -> Result<T, OperatorError>) -> Result<T, OperatorError> {
        let mut state = self.shared.lock();
        let mut flushed = false;
        loop {
            let done = action(&mut state);
            let Err(OperatorError::Short(shortage)) = done else { return done };
            match self.shared.relieve(state, shortage, &mut flushed) {
                Some(relieved) => state = relieved,
                None => return done,
            }
        }
    }

    /// Clones a cell that is frozen, idle or not yet started. O(mounts + segments), whatever its size. The clone is not started.
    ///
    /// # Errors
    /// The source runs or waits for its turn, or there are too many cells.
    pub fn clone_cell(&self, source: CellId, quota: PageCount) -> Result<CellId, OperatorError> {
        if quota.0 < MIN_QUOTA {
            return Err(OperatorError::QuotaTooSmall(quota));
        }
        self.update_prefetch_set(source);
        let mut state = self.shared.lock();
        let source_state = state.living(source).map(|(live, _)| live.cell.state).ok_or(OperatorError::NoSuchCell)?;
        if !matches!(source_state, CellState::Frozen | CellState::New | CellState::Idle { .. }) {
            return Err(OperatorError::Busy(source_state));
        }
        let id = state.reserve().ok_or(OperatorError::TooManyCells)?;
        let account = state.frames.open_account(quota);
        let (live, frames) = state.living(source).ok_or(OperatorError::NoSuchCell)?;
        live.cell.is_template |= source_state == CellState::Frozen;
        let cell = live.cell.clone_as(id, frames, account);
        let console = Console::new(waker(&self.shared, id)).at_places(live.console.places());
        let channel = live.channel.as_ref().map(|channel| Box::new(Console::channel(waker(&self.shared, id)).at_places(channel.places())));
        let allowance = live.allowance;
        state.insert_cell(LiveCell { cell, console, channel, control: None, card: None, allowance });
        Ok(id)
    }

    /// Runs an action on a cell that is being built, or otherwise not running.
    pub(super) fn build<T>(
        &self,
        id: CellId,
        mut action: impl FnMut(&mut Cell, &mut Frames) -> Result<T, OperatorError>,
    ) -> Result<T, OperatorError> {
        self.with_room(|state| {
            let (cell, frames) = state.at_rest(id)?;
            action(cell, frames)
        })
    }

    /// Copies bytes into or out of a cell that is not running; reads the blocks of disks that this needs.
    pub(super) fn copy(
        &self,
        id: CellId,
        mut action: impl FnMut(&mut Cell, &mut Frames) -> Result<(), CopyError>,
    ) -> Result<(), OperatorError> {
        let mut buffer = Vec::new();
        let mut flushed = false;
        let mut state = self.shared.lock();
        loop {
            let (cell, frames) = state.at_rest(id)?;
            let copied = action(cell, frames);
            frames.forget_unreadable();
            let relieved = match copied {
                Err(CopyError::Absent(wanted)) => Some(self.shared.bring_in(state, wanted, &mut buffer)),
                Err(CopyError::Shortage(shortage)) => self.shared.relieve(state, shortage, &mut flushed),
                _ => None,
            };
            match relieved {
                Some(relieved) => state = relieved,
                None => return Ok(copied?),
            }
        }
    }

    /// Maps memory in a cell's running space; with `eager` in steps, between which the lock is free.
    ///
    /// # Errors
    /// The cell is running, the range is invalid, or there is not enough memory.
    pub fn map(&self, id: CellId, address: u64, pages: PageCount, flags: MapFlags) -> Result<(), OperatorError> {
        let mut range = self.build(id, |cell, frames| {
            let range = cell.memory.check(cell.memory.current(), address, pages.0)?;
            cell.memory.map(frames, &range, flags)?;
            Ok(range)
        })?;
        while flags.eager && !range.pages.is_empty() {
            self.build(id, |cell, frames| Ok(cell.memory.touch_piece(frames, &mut range)?))?;
        }
        Ok(())
    }

    /// Sets permissions in a cell's running space.
    ///
    /// # Errors
    /// The cell is running, the range is invalid, or there is not enough memory.
    pub fn protect(&self, id: CellId, address: u64, pages: PageCount, permissions: Permissions) -> Result<(), OperatorError> {
        let mut range = self.build(id, |cell, _| Ok(cell.memory.check(cell.memory.current(), address, pages.0)?))?;
        while !range.pages.is_empty() {
            self.build(id, |cell, frames| Ok(cell.memory.protect_piece(frames, &mut range, permissions)?))?;
        }
        Ok(())
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
        self.with_room(|state| {
            // It may have been removed meanwhile.
            state.disk(disk).ok_or(OperatorError::NoSuchDisk)?;
            Ok(state.at_rest(id)?.0.memory.attach(disk, blocks)?)
        })
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
        self.build(id, |cell, frames| {
            let range = cell.memory.check(cell.memory.current(), address, pages.0)?;
            let block = cell.memory.blocks(first, pages.0)?;
            Ok(cell.memory.map_blocks(frames, &range, block, permissions)?)
        })
    }

    /// Creates a segment in a cell and mounts it in all its spaces.
    ///
    /// # Errors
    /// The cell is running, the slot is taken, or there are too many segments.
    pub fn mount_segment(&self, id: CellId, address: u64) -> Result<SegmentIndex, OperatorError> {
        self.build(id, |cell, frames| {
            let segment = cell.memory.create_segment()?;
            for space in cell.memory.indices() {
                cell.memory.share(frames, segment, space, address)?;
            }
            Ok(segment)
        })
    }

    /// Copies bytes into a cell, regardless of the cell's own permissions. May wait for a disk.
    ///
    /// # Errors
    /// The cell is running, nothing is mapped there, it cannot be read, or there is not enough memory.
    pub fn write(&self, id: CellId, address: u64, bytes: &[u8]) -> Result<(), OperatorError> {
        self.copy(id, |cell, frames| cell.memory.write(frames, address, bytes, CopyAuthority::Operator))
    }

    /// Copies bytes out of a cell. May wait for a disk.
    ///
    /// # Errors
    /// The cell is running, nothing is mapped there, or it cannot be read.
    pub fn read(&self, id: CellId, address: u64, bytes: &mut [u8]) -> Result<(), OperatorError> {
        self.copy(id, |cell, frames| cell.memory.read(frames, address, bytes, CopyAuthority::Operator))
    }

    /// Sets a cell's registers; everything else in its context becomes zero.
    ///
    /// # Errors
    /// The cell is running.
    pub fn set_registers(&self, id: CellId, registers: Registers) -> Result<(), OperatorError> {
        self.build(id, |cell, _| {
            cell.context = Context { registers, ..Context::default() };
            Ok(())
        })
    }

    /// A cell's registers.
    ///
    /// # Errors
    /// The cell is running.
    pub fn registers(&self, id: CellId) -> Result<Registers, OperatorError> {
        self.build(id, |cell, _| Ok(cell.context.registers))
    }

    /// Starts a cell that was built or cloned: the gatekeeper decides when it is admitted. O(1), and for a clone the copies of its
    /// first prefetch batch ([`Kernel::train`]).
    ///
    /// # Errors
    /// It was started before, or is a template.
    pub fn start(&self, id: CellId) -> Result<(), OperatorError> {
        // A cell that has ended meanwhile cannot be started.
        let gone = |error| if let OperatorError::Ended(_) = error { OperatorError::NoSuchCell } else { error };
        self.copy_expected(id).map_err(gone)?;
        let mut state = self.shared.lock();
        let (live, _) = state.living(id).ok_or(OperatorError::NoSuchCell)?;
        if live.cell.state != CellState::New {
            return Err(OperatorError::Busy(live.cell.state));
        }
        live.cell.state = CellState::Waiting;
        state.gatekeeper.ask(id);
        let state = self.shared.housekeeping(state);
        self.shared.announce(&state);
        Ok(())
    }

    /// Limits a cell to a share of one vCPU's time, from now on; its later clones inherit the limit.
    ///
    /// # Errors
    /// There is no such living cell.
    pub fn set_share(&self, id: CellId, share: Share) -> Result<(), OperatorError> {
        let now = self.now();
        let mut state = self.shared.lock();
        let (live, _) = state.living(id).ok_or(OperatorError::NoSuchCell)?;
        live.allowance = Some(Allowance::new(share, now));
        Ok(())
    }

    /// Ends a cell in any state.
    ///
    /// # Errors
    /// There is no such living cell.
    pub fn end(&self, id: CellId, end: End) -> Result<(), OperatorError> {
        let mut state = self.shared.lock();
        if state.living(id).is_none() {
            return Err(OperatorError::NoSuchCell);
        }
        let running = state.doom(id, end);
        state.vcpus_to_interrupt.extend(running);
        self.shared.notify_operator(&mut state);
        // Any free vCPU releases its memory.
        self.shared.work.notify_one();
        Ok(())
    }

    /// Raises an event for a cell.
    pub fn raise(&self, id: CellId, event: Event) {
        self.shared.raise(id, event);
    }

    /// Interrupts a cell's program at once, as Ctrl-C does: even a program that computes receives the event now, not at its next
    /// exit.
    ///
    /// # Errors
    /// There is no such living cell.
    pub fn interrupt(&self, id: CellId) -> Result<(), OperatorError> {
        self.call(id, Event::Interrupt, |_| {})
    }

    /// Sets the host name of a cell that has not started, truncated to [`pando_abi::limits::HOST_NAME_BYTES`]. Its clones inherit
    /// it.
    ///
    /// # Errors
    /// There is no such cell, or it was started.
    pub fn set_host_name(&self, id: CellId, name: &str) -> Result<(), OperatorError> {
        let mut state = self.shared.lock();
        let (cell, _) = state.at_rest(id)?;
        if cell.state != CellState::New {
            return Err(OperatorError::Busy(cell.state));
        }
        (cell.identity.host_name, cell.identity.stale) = (fitting(name), true);
        Ok(())
    }

    /// Sets the size of a cell's terminal, at once.
    ///
    /// # Errors
    /// There is no such living cell.
    pub fn set_window(&self, id: CellId, rows: u16, columns: u16) -> Result<(), OperatorError> {
        self.call(id, Event::WindowSize, |cell| cell.window = Some([rows, columns]))
    }

    /// Raises an event for a cell after `change`, and makes the cell notice it at once.
    pub(super) fn call(&self, id: CellId, event: Event, change: impl FnOnce(&mut Cell)) -> Result<(), OperatorError> {
        self.shared.call(id, event, change)
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
                None => return Err(OperatorError::NoSuchCell),
                Some((live, _)) if live.cell.state == CellState::Frozen => return Err(OperatorError::Froze),
                Some(_) => {}
            }
            state = self.shared.changed.wait(state).expect("a kernel whose lock was poisoned must not go on");
        }
    }

    /// Takes the outcome of an ended cell, and forgets the cell; `None` while it lives.
    pub fn collect(&self, id: CellId) -> Option<Outcome> {
        self.shared.lock().forget(id)
    }

    /// The host's end of a cell's console; stays readable after the cell's end.
    ///
    /// # Errors
    /// There is no such living cell.
    pub fn console(&self, id: CellId) -> Result<Arc<ConsolePort>, OperatorError> {
        let mut state = self.shared.lock();
        let (live, _) = state.living(id).ok_or(OperatorError::NoSuchCell)?;
        Ok(Arc::clone(live.console.port()))
    }

    /// The operator's end of a channel to a cell, opened if there is none yet. It carries the libOS's own messages to the operator,
    /// and the answers. A clone has its own channel, which receives nothing from its source's. If a cell may be waiting for an
    /// answer when it is cloned, end the clone's input with [`ConsolePort::close_input`].
    ///
    /// # Errors
    /// There is no such living cell.
    pub fn channel(&self, id: CellId) -> Result<Arc<ConsolePort>, OperatorError> {
        let mut state = self.shared.lock();
        let (live, _) = state.living(id).ok_or(OperatorError::NoSuchCell)?;
        let channel = live.channel.get_or_insert_with(|| Box::new(Console::channel(waker(&self.shared, id))));
        Ok(Arc::clone(channel.port()))
    }

    /// The operator's end of a cell's control channel, opened if there is none yet: requests to its libOS, and its reports
    /// ([`pando_abi::control`]). Clones do not inherit it.
    ///
    /// # Errors
    /// There is no such living cell, or it is frozen.
    pub fn control(&self, id: CellId) -> Result<Arc<ConsolePort>, OperatorError> {
        let mut state = self.shared.lock();
        let (live, _) = state.living(id).ok_or(OperatorError::NoSuchCell)?;
        if live.cell.state == CellState::Frozen {
            return Err(OperatorError::Busy(CellState::Frozen));
        }
        if let Some(control) = &live.control {
            return Ok(Arc::clone(control.port()));
        }
        let shared = Arc::downgrade(&self.shared);
        let wake = move || {
            if let Some(shared) = shared.upgrade() {
                // A cell that is gone receives nothing.
                let _ = shared.call(id, Event::Control, |_| {});
            }
        };
        let control = live.control.insert(Box::new(Console::control(Box::new(wake.clone()))));
        let port = Arc::clone(control.port());
        drop(state);
        // The rings are initialised when the kernel next serves them.
        wake();
        Ok(port)
    }

    /// A living cell's state, counters and memory use.
    ///
    /// # Errors
    /// There is no such living cell.
    pub fn inspect(&self, id: CellId) -> Result<(CellState, Counters, Usage), OperatorError> {
        let mut state = self.shared.lock();
        let (live, frames) = state.living(id).ok_or(OperatorError::NoSuchCell)?;
        Ok((live.cell.state, live.cell.counters, frames.usage(live.cell.memory.account())))
    }

    /// Number of living cells.
    #[must_use]
    pub fn cells(&self) -> usize {
        self.shared.lock().count()
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
    pub fn settle(&self) {
        let mut state = self.shared.make_room(self.shared.lock());
        state.frames.give_up_all();
    }

    /// Bytes that the kernel keeps for each cell besides its frames.
    #[must_use]
    pub fn metadata_bytes() -> usize {
        size_of::<LiveCell>() + size_of::<ConsolePort>()
    }
}

/// Truncates a host name to its maximum length.
fn fitting(name: &str) -> String {
    name[..name.floor_char_boundary(HOST_NAME_BYTES)].into()
}
