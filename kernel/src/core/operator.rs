// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the operator can do with cells: build, start, clone, watch, end.

use super::state::{Occupant, State};
use super::{Kernel, Shared};
use crate::cell::end::{Counters, End, Outcome};
use crate::cell::{Cell, CellConfig, CellId, State as CellState};
use crate::device::console::{Console, ConsolePort};
use crate::device::disk::{Disk, DiskError};
use crate::limits::MIN_QUOTA;
use crate::memory::copy::{Behalf, CopyError};
use crate::memory::obstacle::Obstacle;
use crate::memory::{BadImage, DiskId, Frames, Shortage, SpaceSet, Usage};
use crate::sched::Share;
use crate::sched::share::Allowance;
use pando_abi::limits::HOST_NAME_BYTES;
use pando_abi::{BlockAddress, DiskIndex, Event, MapFlags, Permissions, Refusal, Registers, SegmentIndex};
use pando_machine::{Context, PageCount};
use std::sync::{Arc, Weak};

/// Why the operator's wish could not be granted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OperatorError {
    /// The name is stale, or was never given.
    #[error("there is no such cell (any more)")]
    NoSuchCell,
    /// The cell is not in a state for this.
    #[error("the cell is {0:?}, which is no state for this")]
    Busy(CellState),
    /// The cell has ended.
    #[error("the cell has ended: {0}")]
    Ended(End),
    /// The cell will not end by itself.
    #[error("the program has frozen itself into a template, which never ends: nobody asked it to")]
    Froze,
    /// The kernel has as many cells as it can name.
    #[error("there are too many cells")]
    TooManyCells,
    /// A cell needs more to exist at all.
    #[error("{0} is too little memory for a cell: it needs at least {least}", least = PageCount(MIN_QUOTA))]
    QuotaTooSmall(PageCount),
    /// The range, the space or the segment is not one.
    #[error("{}", .0.cause().trim())]
    Refused(Refusal),
    /// There is not enough memory.
    #[error(transparent)]
    Short(#[from] Shortage),
    /// The memory is a block of a disk that cannot be read.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The kernel has as many networks as it can name.
    #[error("there are too many networks")]
    TooManyNetworks,
    /// A network has this name already.
    #[error("there is a network called {0:?} already: choose another name, or plug into that one")]
    NameTaken(String),
    /// Somebody is plugged into the network.
    #[error("the network is in use: a cell or a station is plugged into it, or somebody listens")]
    NetworkInUse,
    /// The name was never given, or all the network's addresses are.
    #[error("there is no such network, or no address is left in it")]
    NoAddress,
    /// The cell has a network card.
    #[error("the cell has a network card already")]
    PluggedIn,
    /// The kernel has as many disks as it can name.
    #[error("there are too many disks")]
    TooManyDisks,
    /// The name was never given, or the disk was removed.
    #[error("there is no such disk")]
    NoSuchDisk,
    /// A cell has the disk.
    #[error("the disk is in use: a cell has it")]
    DiskInUse,
    /// An image of a cell is none.
    #[error("no cell can be made of this: {0}")]
    Image(#[from] BadImage),
    /// An image of a cell needs other disks.
    #[error("the cell needs {wanted} disks, and {given} were given")]
    OtherDisks {
        /// How many it needs.
        wanted: usize,
        /// How many there are.
        given: usize,
    },
    /// A disk is not the one that an image of a cell needs.
    #[error("disk {index} is not the one that the cell needs: that has {wanted} blocks, and this {blocks}")]
    OtherDisk {
        /// Which, by the cell's own name.
        index: usize,
        /// How many blocks the right one has.
        wanted: u64,
        /// How many this one has.
        blocks: u64,
    },
    /// Whoever took the bytes of an export's pages wanted no more of them.
    #[error("the export was stopped")]
    Stopped,
}

impl From<Obstacle> for OperatorError {
    fn from(obstacle: Obstacle) -> OperatorError {
        match obstacle {
            Obstacle::Refused(refusal) => OperatorError::Refused(refusal),
            Obstacle::Short(shortage) => OperatorError::Short(shortage),
            Obstacle::Absent(_) => OperatorError::Disk(DiskError),
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

/// What wakes a cell when its console's host side has done something.
pub(super) fn waker(shared: &Arc<Shared>, id: CellId) -> Box<dyn Fn() + Send + Sync> {
    let shared: Weak<Shared> = Arc::downgrade(shared);
    Box::new(move || {
        if let Some(shared) = shared.upgrade() {
            shared.raise(id, Event::Console);
        }
    })
}

impl Kernel {
    /// Makes a cell with one space that holds the kernel's own pages, and nothing that runs yet.
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
            if let Err(obstacle) = cell.lay_out(frames) {
                cell.memory.release(frames);
                frames.close_account(account);
                state.unreserve(id);
                return Err(obstacle.into());
            }
            state.settle_in(Occupant {
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

    /// Does something that takes memory; again, if there was not enough, after what can be freed has been.
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

    /// Clones a cell that is frozen, idle or not yet started. O(mounts + segments), whatever its size. The clone does not run yet.
    ///
    /// # Errors
    /// The source runs or waits for its turn, or there are too many cells.
    pub fn clone_cell(&self, source: CellId, quota: PageCount) -> Result<CellId, OperatorError> {
        if quota.0 < MIN_QUOTA {
            return Err(OperatorError::QuotaTooSmall(quota));
        }
        self.weigh_lessons(source);
        let mut state = self.shared.lock();
        let source_state = state.living(source).map(|(occupant, _)| occupant.cell.state).ok_or(OperatorError::NoSuchCell)?;
        if !matches!(source_state, CellState::Frozen | CellState::New | CellState::Idle { .. }) {
            return Err(OperatorError::Busy(source_state));
        }
        let id = state.reserve().ok_or(OperatorError::TooManyCells)?;
        let account = state.frames.open_account(quota);
        let (occupant, frames) = state.living(source).ok_or(OperatorError::NoSuchCell)?;
        occupant.cell.is_template |= source_state == CellState::Frozen;
        let cell = occupant.cell.clone_as(id, frames, account);
        let console = Console::new(waker(&self.shared, id)).at_places(occupant.console.places());
        let channel =
            occupant.channel.as_ref().map(|channel| Box::new(Console::channel(waker(&self.shared, id)).at_places(channel.places())));
        let allowance = occupant.allowance;
        state.settle_in(Occupant { cell, console, channel, control: None, card: None, allowance });
        Ok(id)
    }

    /// Does something with a cell that is being built, or otherwise not running.
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

    /// Copies bytes into or out of a cell that is not running; reads the blocks of disks that this takes.
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

    /// Maps memory in a cell's running space; with `eager` in pieces, between which others have the kernel.
    ///
    /// # Errors
    /// The cell is running, the range is none, or there is not enough memory.
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
    /// The cell is running, the range is none, or there is not enough memory.
    pub fn protect(&self, id: CellId, address: u64, pages: PageCount, permissions: Permissions) -> Result<(), OperatorError> {
        let mut range = self.build(id, |cell, _| Ok(cell.memory.check(cell.memory.current(), address, pages.0)?))?;
        while !range.pages.is_empty() {
            self.build(id, |cell, frames| Ok(cell.memory.protect_piece(frames, &mut range, permissions)?))?;
        }
        Ok(())
    }

    /// Adds a disk for cells to be attached to. It stays until it is removed.
    ///
    /// # Errors
    /// There are too many.
    pub fn add_disk(&self, disk: Arc<dyn Disk>) -> Result<DiskId, OperatorError> {
        self.shared.lock().add_disk(disk).ok_or(OperatorError::TooManyDisks)
    }

    /// Removes a disk that no cell has. O(cells). What was read of it goes as memory is needed, and until then its name is not given to another.
    ///
    /// # Errors
    /// There is no such disk, or a cell has it.
    pub fn remove_disk(&self, disk: DiskId) -> Result<(), OperatorError> {
        self.shared.lock().remove_disk(disk)
    }

    /// How many blocks a disk has; asked without the lock, for it is somebody else's code.
    pub(super) fn blocks_of(&self, disk: DiskId) -> Result<u64, OperatorError> {
        let found = self.shared.lock().disk(disk);
        Ok(found.ok_or(OperatorError::NoSuchDisk)?.blocks())
    }

    /// Lets a cell, and whatever is cloned from it later, map blocks of a disk. Returns the cell's own name for it.
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

    /// Maps blocks of an attached disk in a cell's running space, from `first` on. They are brought in when they are touched.
    ///
    /// # Errors
    /// The cell is running, the range is none, the disk has no such blocks, or there is not enough memory for tables.
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

    /// Makes a segment in a cell and mounts it in all its spaces.
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

    /// Copies bytes into a cell, whatever the cell itself may do with that memory. May wait for a disk.
    ///
    /// # Errors
    /// The cell is running, nothing is mapped there, it cannot be read, or there is not enough memory.
    pub fn write(&self, id: CellId, address: u64, bytes: &[u8]) -> Result<(), OperatorError> {
        self.copy(id, |cell, frames| cell.memory.write(frames, address, bytes, Behalf::Operator))
    }

    /// Copies bytes out of a cell. May wait for a disk.
    ///
    /// # Errors
    /// The cell is running, nothing is mapped there, or it cannot be read.
    pub fn read(&self, id: CellId, address: u64, bytes: &mut [u8]) -> Result<(), OperatorError> {
        self.copy(id, |cell, frames| cell.memory.read(frames, address, bytes, Behalf::Operator))
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

    /// Starts a cell that was built or cloned: the gatekeeper decides when it is let in. O(1) and, of a clone, a copy of each page that it is expected to write first ([`Kernel::teach`]).
    ///
    /// # Errors
    /// It was started before, or is a template.
    pub fn start(&self, id: CellId) -> Result<(), OperatorError> {
        // Whoever has ended meanwhile is nobody to be started.
        let gone = |error| if let OperatorError::Ended(_) = error { OperatorError::NoSuchCell } else { error };
        self.copy_expected(id).map_err(gone)?;
        let mut state = self.shared.lock();
        let (occupant, _) = state.living(id).ok_or(OperatorError::NoSuchCell)?;
        if occupant.cell.state != CellState::New {
            return Err(OperatorError::Busy(occupant.cell.state));
        }
        occupant.cell.state = CellState::Waiting;
        state.gatekeeper.ask(id);
        let state = self.shared.duties(state);
        self.shared.announce(&state);
        Ok(())
    }

    /// Limits a cell to a share of one vCPU's time, from now on; its later clones inherit that.
    ///
    /// # Errors
    /// There is no such living cell.
    pub fn set_share(&self, id: CellId, share: Share) -> Result<(), OperatorError> {
        let now = self.now();
        let mut state = self.shared.lock();
        let (occupant, _) = state.living(id).ok_or(OperatorError::NoSuchCell)?;
        occupant.allowance = Some(Allowance::new(share, now));
        Ok(())
    }

    /// Ends a cell, wherever it is.
    ///
    /// # Errors
    /// There is no such living cell.
    pub fn end(&self, id: CellId, end: End) -> Result<(), OperatorError> {
        let mut state = self.shared.lock();
        if state.living(id).is_none() {
            return Err(OperatorError::NoSuchCell);
        }
        let running = state.doom(id, end);
        state.condemned.extend(running);
        self.shared.tell(&mut state);
        // Its memory is released by whichever vCPU is free.
        self.shared.work.notify_one();
        Ok(())
    }

    /// Makes an event happen to a cell.
    pub fn raise(&self, id: CellId, event: Event) {
        self.shared.raise(id, event);
    }

    /// Interrupts a cell's program, as Ctrl-C does, at once: even one that computes hears of it now, not at its next exit.
    ///
    /// # Errors
    /// There is no such living cell.
    pub fn interrupt(&self, id: CellId) -> Result<(), OperatorError> {
        self.call(id, Event::Interrupt, |_| {})
    }

    /// Gives a cell that has not started a host name, of which as much is taken as fits ([`pando_abi::limits::HOST_NAME_BYTES`]). Its clones inherit it.
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

    /// Tells a cell the size of its terminal, at once.
    ///
    /// # Errors
    /// There is no such living cell.
    pub fn set_window(&self, id: CellId, rows: u16, columns: u16) -> Result<(), OperatorError> {
        self.call(id, Event::WindowSize, |cell| cell.window = Some([rows, columns]))
    }

    /// Makes an event happen to a cell after `change`, and the cell look.
    pub(super) fn call(&self, id: CellId, event: Event, change: impl FnOnce(&mut Cell)) -> Result<(), OperatorError> {
        self.shared.call(id, event, change)
    }

    /// Waits until a cell has ended, and forgets it: its name is stale from then on.
    ///
    /// # Errors
    /// There is no such cell, or it froze instead; then it is still there.
    pub fn wait(&self, id: CellId) -> Result<Outcome, OperatorError> {
        let mut state = self.shared.lock();
        loop {
            if let Some(outcome) = state.forget(id) {
                return Ok(outcome);
            }
            match state.living(id) {
                None => return Err(OperatorError::NoSuchCell),
                Some((occupant, _)) if occupant.cell.state == CellState::Frozen => return Err(OperatorError::Froze),
                Some(_) => {}
            }
            state = self.shared.changed.wait(state).expect("a kernel whose lock was poisoned must not go on");
        }
    }

    /// What an ended cell came to, and forgets it; `None` while it lives.
    pub fn collect(&self, id: CellId) -> Option<Outcome> {
        self.shared.lock().forget(id)
    }

    /// The host's end of a cell's console; stays readable after the cell's end.
    ///
    /// # Errors
    /// There is no such living cell.
    pub fn console(&self, id: CellId) -> Result<Arc<ConsolePort>, OperatorError> {
        let mut state = self.shared.lock();
        let (occupant, _) = state.living(id).ok_or(OperatorError::NoSuchCell)?;
        Ok(Arc::clone(occupant.console.port()))
    }

    /// The operator's end of a channel to a cell, which is opened if there is none yet: what the libOS says to the operator itself, and its answers.
    /// A clone of a cell that has one has one of its own, in which nothing of its source's comes: who clones a cell that may be waiting for an answer says so with [`ConsolePort::close_input`].
    ///
    /// # Errors
    /// There is no such living cell.
    pub fn channel(&self, id: CellId) -> Result<Arc<ConsolePort>, OperatorError> {
        let mut state = self.shared.lock();
        let (occupant, _) = state.living(id).ok_or(OperatorError::NoSuchCell)?;
        let channel = occupant.channel.get_or_insert_with(|| Box::new(Console::channel(waker(&self.shared, id))));
        Ok(Arc::clone(channel.port()))
    }

    /// The operator's end of a cell's control channel, which is opened if it is not: orders to its libOS, and what that reports ([`pando_abi::control`]). Clones have none of their source's.
    ///
    /// # Errors
    /// There is no such living cell, or it is frozen.
    pub fn control(&self, id: CellId) -> Result<Arc<ConsolePort>, OperatorError> {
        let mut state = self.shared.lock();
        let (occupant, _) = state.living(id).ok_or(OperatorError::NoSuchCell)?;
        if occupant.cell.state == CellState::Frozen {
            return Err(OperatorError::Busy(CellState::Frozen));
        }
        if let Some(control) = &occupant.control {
            return Ok(Arc::clone(control.port()));
        }
        let shared = Arc::downgrade(&self.shared);
        let wake = move || {
            if let Some(shared) = shared.upgrade() {
                // One that is gone hears nothing.
                let _ = shared.call(id, Event::Control, |_| {});
            }
        };
        let control = occupant.control.insert(Box::new(Console::control(Box::new(wake.clone()))));
        let port = Arc::clone(control.port());
        drop(state);
        // The rings are made ready when it looks.
        wake();
        Ok(port)
    }

    /// What a living cell is doing, what it did and what memory it has.
    ///
    /// # Errors
    /// There is no such living cell.
    pub fn inspect(&self, id: CellId) -> Result<(CellState, Counters, Usage), OperatorError> {
        let mut state = self.shared.lock();
        let (occupant, frames) = state.living(id).ok_or(OperatorError::NoSuchCell)?;
        Ok((occupant.cell.state, occupant.cell.counters, frames.usage(occupant.cell.memory.account())))
    }

    /// How many cells live.
    #[must_use]
    pub fn cells(&self) -> usize {
        self.shared.lock().count()
    }

    /// What blocks of disks take, and may take.
    #[must_use]
    pub fn registry(&self) -> Usage {
        self.shared.lock().frames.registry()
    }

    /// How many frames are free.
    #[must_use]
    pub fn free(&self) -> PageCount {
        self.shared.lock().free()
    }

    /// Finishes all releasing, gives up blocks that nobody maps, and flushes the machine, so that every frame that nobody needs is free. For tests and measurements: milliseconds.
    pub fn settle(&self) {
        let mut state = self.shared.make_room(self.shared.lock());
        state.frames.give_up_all();
    }

    /// Bytes that the kernel keeps for each cell besides its frames.
    #[must_use]
    pub fn metadata_bytes() -> usize {
        size_of::<Occupant>() + size_of::<ConsolePort>()
    }
}

/// As much of a host name as fits.
fn fitting(name: &str) -> String {
    name[..name.floor_char_boundary(HOST_NAME_BYTES)].into()
}
