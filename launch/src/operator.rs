// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operators, which run cells for a process. The host's process asks its [`Kernel`]; a process in a cell asks the kernel that runs its own
//! cell, by `/dev/cells` ([`NestedCells`](crate::NestedCells)).

use crate::{LaunchError, Root};
use pando_abi::holding::ChildState;
use pando_abi::layout::ARGUMENTS;
use pando_abi::{DescendantRecord, Event, SpaceIndex};
use pando_kernel::{AdmissionCallback, CellId, ConsolePort, Counters, CpuLimit, End, Kernel, Outcome, RunState, WatchCallback, Weight};
use pando_machine::PageCount;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

/// The resources that a living cell uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellUse {
    /// Memory.
    pub memory: PageCount,
    /// CPU time.
    pub cpu: Duration,
    /// VM exits; `None`: the operator does not know them.
    pub exits: Option<u64>,
    /// Whether it runs.
    pub phase: CellPhase,
}

/// Whether a living cell runs, as its operator sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CellPhase {
    /// It is queued for its start: others that were started before come first.
    Queued,
    /// It runs, or waits for something.
    Active,
    /// Its memory is in swap space.
    Asleep,
}

/// The right of a cell to cells of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nesting {
    /// How many descendants it may have at a time.
    pub descendants: NonZeroU32,
    /// The cell that its children are cloned from. It is a root without a program ([`Root::for_nesting`]).
    pub root: CellId,
}

/// A cell below another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Descendant {
    /// Number of levels below the cell whose descendants are listed: 1 for a child.
    pub depth: u32,
    /// Its state.
    pub state: ChildState,
    /// The memory that it uses with its own descendants, and its CPU time without theirs.
    pub usage: CellUse,
    /// Its host name.
    pub name: String,
}

impl From<DescendantRecord> for Descendant {
    fn from(record: DescendantRecord) -> Descendant {
        Descendant {
            depth: record.depth,
            state: record.state,
            usage: CellUse {
                memory: PageCount(record.pages),
                cpu: Duration::from_nanos(record.cpu),
                exits: None,
                phase: CellPhase::Active,
            },
            name: String::from_utf8_lossy(record.name()).into_owned(),
        }
    }
}

/// Runs cells. A front end over this works on a host and in a cell alike.
pub trait Operator: Send + Sync {
    /// Clones a cell that is frozen, idle or not started. The clone is not started. With `nesting` it may have cells of its own.
    ///
    /// # Errors
    /// The source runs, there are too many cells, or there is not enough memory.
    fn clone_cell(&self, source: CellId, memory: PageCount, nesting: Option<Nesting>) -> Result<CellId, LaunchError>;

    /// Makes a clone like [`clone_cell`](Operator::clone_cell), with an argument block. It may be made as late as it is started, and errors
    /// may come then.
    ///
    /// # Errors
    /// The source runs, there are too many cells, or there is not enough memory.
    fn prepare_cell(&self, source: CellId, memory: PageCount, nesting: Option<Nesting>, block: Vec<u8>) -> Result<CellId, LaunchError> {
        let cell = self.clone_cell(source, memory, nesting)?;
        match self.write_arguments(cell, &block) {
            Ok(()) => Ok(cell),
            Err(error) => {
                self.discard(cell);
                Err(error)
            }
        }
    }

    /// Makes the pages that `cell` has written the prefetch set of `template`'s clones: the template is that cell, which has frozen, or a
    /// copy of it. A hint that need not be followed.
    fn set_prefetch_from_writes(&self, _cell: CellId, _template: CellId) {}

    /// Writes the argument block of a cell that has not started.
    ///
    /// # Errors
    /// It was started, or there is not enough memory.
    fn write_arguments(&self, cell: CellId, block: &[u8]) -> Result<(), LaunchError>;

    /// Limits a cell to a part of one vCPU's time.
    ///
    /// # Errors
    /// There is no such living cell.
    fn set_cpu_limit(&self, cell: CellId, limit: CpuLimit) -> Result<(), LaunchError>;

    /// Sets the CPU weight of a cell with its descendants, among its siblings.
    ///
    /// # Errors
    /// There is no such living cell.
    fn set_weight(&self, cell: CellId, weight: Weight) -> Result<(), LaunchError>;

    /// Sets the host name of a cell that has not started.
    ///
    /// # Errors
    /// There is no such cell, or it was started.
    fn set_host_name(&self, cell: CellId, name: &str) -> Result<(), LaunchError>;

    /// Sets the size of a cell's terminal.
    ///
    /// # Errors
    /// There is no such living cell.
    fn set_window(&self, cell: CellId, rows: u16, columns: u16) -> Result<(), LaunchError>;

    /// Starts a cell.
    ///
    /// # Errors
    /// It was started before.
    fn start(&self, cell: CellId) -> Result<(), LaunchError> {
        self.start_with(cell, None)
    }

    /// Starts a cell. The callback is called once it may run, which may be later: it must not block, nor use the operator.
    ///
    /// # Errors
    /// It was started before.
    fn start_with(&self, cell: CellId, on_admission: Option<AdmissionCallback>) -> Result<(), LaunchError>;

    /// Ends a cell in any state.
    ///
    /// # Errors
    /// There is no such living cell.
    fn end(&self, cell: CellId, end: End) -> Result<(), LaunchError>;

    /// Raises an event for a cell. For one that has ended it has no effect.
    fn raise(&self, cell: CellId, event: Event);

    /// Interrupts a cell's program, as Ctrl-C does.
    ///
    /// # Errors
    /// There is no such living cell.
    fn interrupt(&self, cell: CellId) -> Result<(), LaunchError>;

    /// The operator's end of a cell's console; stays readable after the cell's end.
    ///
    /// # Errors
    /// There is no such living cell.
    fn console(&self, cell: CellId) -> Result<Arc<ConsolePort>, LaunchError>;

    /// The operator's end of a cell's control channel, opened if there is none yet.
    ///
    /// # Errors
    /// There is no such living cell, or it is frozen.
    fn control(&self, cell: CellId) -> Result<Arc<ConsolePort>, LaunchError>;

    /// Makes a cell a template: its program is asked, or it is frozen as it stands with `by_force`.
    ///
    /// # Errors
    /// There is no such living cell, or it was not started.
    fn freeze(&self, cell: CellId, by_force: bool) -> Result<(), LaunchError>;

    /// Withdraws a request to freeze. Returns whether that was in time; `false`: the cell is frozen.
    ///
    /// # Errors
    /// There is no such living cell.
    fn withdraw_freeze(&self, cell: CellId) -> Result<bool, LaunchError>;

    /// Waits until a cell has frozen, or until the time is over. Returns whether it has frozen.
    ///
    /// # Errors
    /// It ended instead.
    fn wait_frozen(&self, cell: CellId, limit: Option<Duration>) -> Result<bool, LaunchError>;

    /// Waits until a cell has ended, and forgets it.
    ///
    /// # Errors
    /// There is no such cell, or it froze instead; then it still exists.
    fn wait(&self, cell: CellId) -> Result<Outcome, LaunchError>;

    /// The resources that a living cell uses. `None`: it has ended.
    fn usage(&self, cell: CellId) -> Option<CellUse>;

    /// The same for each of several cells.
    fn usages(&self, cells: &[CellId]) -> Vec<Option<CellUse>> {
        cells.iter().map(|cell| self.usage(*cell)).collect()
    }

    /// The living descendants of a cell, parents before their children; of many, only some. None: it has ended.
    fn descendants(&self, cell: CellId) -> Vec<Descendant>;

    /// Watches a cell: events of a mask ([`pando_abi::watch::mask`]) halt it from now on. The callback is called at its halts, at times
    /// without a reason, and with its end. It must not block, nor use the operator.
    ///
    /// # Errors
    /// There is no such living cell, or another watcher watches it.
    fn watch(&self, cell: CellId, events: u64, callback: WatchCallback) -> Result<(), LaunchError>;

    /// Chooses other events for a watched cell.
    ///
    /// # Errors
    /// There is no such living cell.
    fn set_watched_events(&self, cell: CellId, events: u64) -> Result<(), LaunchError>;

    /// Ends the watch of a cell. A halted one continues.
    fn unwatch(&self, cell: CellId);

    /// Halts a watched cell, soon.
    ///
    /// # Errors
    /// There is no such living cell, or it is halted.
    fn halt(&self, cell: CellId) -> Result<(), LaunchError>;

    /// Lets a halted cell continue ([`pando_abi::watch::resume`]).
    ///
    /// # Errors
    /// It is not halted.
    fn resume(&self, cell: CellId, how: u64) -> Result<(), LaunchError>;

    /// The state of a cell.
    ///
    /// # Errors
    /// There is no such cell.
    fn cell_state(&self, cell: CellId) -> Result<ChildState, LaunchError>;

    /// Copies state of a halted cell ([`pando_abi::watch::state`]). Returns the number of bytes.
    ///
    /// # Errors
    /// It is not halted.
    fn read_state(&self, cell: CellId, kind: u64, bytes: &mut [u8]) -> Result<usize, LaunchError>;

    /// Sets state of a halted cell.
    ///
    /// # Errors
    /// It is not halted, or no cell can have this state.
    fn write_state(&self, cell: CellId, kind: u64, bytes: &[u8]) -> Result<(), LaunchError>;

    /// Copies bytes out of a space of a halted cell; `None`: the one in which it continues. Returns how many there were before the first
    /// page that has none.
    ///
    /// # Errors
    /// It is not halted.
    fn read_space(&self, cell: CellId, space: Option<u32>, address: u64, bytes: &mut [u8]) -> Result<usize, LaunchError>;

    /// Copies bytes to a space of a halted cell, whatever a program may write there.
    ///
    /// # Errors
    /// It is not halted, or has nothing mapped there.
    fn write_space(&self, cell: CellId, space: Option<u32>, address: u64, bytes: &[u8]) -> Result<(), LaunchError>;

    /// Ends a cell whose outcome nobody will ask for, and forgets it.
    fn discard(&self, cell: CellId);

    /// Discards a root with its disks. Its clones continue, except that they cannot read the disks.
    fn discard_root(&self, root: Root);

    /// Memory that is free for cells.
    fn available(&self) -> PageCount;
}

fn cell_use(state: RunState, counters: &Counters, used: PageCount) -> CellUse {
    let phase = match state {
        RunState::AwaitingAdmission => CellPhase::Queued,
        RunState::Asleep { .. } => CellPhase::Asleep,
        _ => CellPhase::Active,
    };
    CellUse { memory: used, cpu: counters.cpu, exits: Some(counters.exits), phase }
}

impl Operator for Kernel {
    fn clone_cell(&self, source: CellId, memory: PageCount, nesting: Option<Nesting>) -> Result<CellId, LaunchError> {
        let cell = Kernel::clone_cell(self, source, memory)?;
        if let Some(Nesting { descendants, root }) = nesting
            && let Err(error) = self.allow_children(cell, descendants.get(), root)
        {
            self.discard(cell);
            return Err(error.into());
        }
        Ok(cell)
    }

    fn set_prefetch_from_writes(&self, cell: CellId, template: CellId) {
        // A cell that has ended has no clones.
        let _ = Kernel::set_prefetch_from_writes(self, cell, template);
    }

    fn write_arguments(&self, cell: CellId, block: &[u8]) -> Result<(), LaunchError> {
        Ok(self.write(cell, ARGUMENTS, block)?)
    }

    fn set_cpu_limit(&self, cell: CellId, limit: CpuLimit) -> Result<(), LaunchError> {
        Ok(Kernel::set_cpu_limit(self, cell, limit)?)
    }

    fn set_weight(&self, cell: CellId, weight: Weight) -> Result<(), LaunchError> {
        Ok(Kernel::set_weight(self, cell, weight)?)
    }

    fn set_host_name(&self, cell: CellId, name: &str) -> Result<(), LaunchError> {
        Ok(Kernel::set_host_name(self, cell, name)?)
    }

    fn set_window(&self, cell: CellId, rows: u16, columns: u16) -> Result<(), LaunchError> {
        Ok(Kernel::set_window(self, cell, rows, columns)?)
    }

    fn start_with(&self, cell: CellId, on_admission: Option<AdmissionCallback>) -> Result<(), LaunchError> {
        Ok(Kernel::start_with(self, cell, on_admission)?)
    }

    fn end(&self, cell: CellId, end: End) -> Result<(), LaunchError> {
        Ok(Kernel::end(self, cell, end)?)
    }

    fn raise(&self, cell: CellId, event: Event) {
        Kernel::raise(self, cell, event);
    }

    fn interrupt(&self, cell: CellId) -> Result<(), LaunchError> {
        Ok(Kernel::interrupt(self, cell)?)
    }

    fn console(&self, cell: CellId) -> Result<Arc<ConsolePort>, LaunchError> {
        Ok(Kernel::console(self, cell)?)
    }

    fn control(&self, cell: CellId) -> Result<Arc<ConsolePort>, LaunchError> {
        Ok(Kernel::control(self, cell)?)
    }

    fn freeze(&self, cell: CellId, by_force: bool) -> Result<(), LaunchError> {
        Ok(if by_force { self.force_freeze(cell) } else { self.request_freeze(cell) }?)
    }

    fn withdraw_freeze(&self, cell: CellId) -> Result<bool, LaunchError> {
        Ok(Kernel::withdraw_freeze(self, cell)?)
    }

    fn wait_frozen(&self, cell: CellId, limit: Option<Duration>) -> Result<bool, LaunchError> {
        match limit {
            Some(limit) => Ok(self.wait_frozen_for(cell, limit)?),
            None => Ok(Kernel::wait_frozen(self, cell).map(|()| true)?),
        }
    }

    fn wait(&self, cell: CellId) -> Result<Outcome, LaunchError> {
        Ok(Kernel::wait(self, cell)?)
    }

    fn usage(&self, cell: CellId) -> Option<CellUse> {
        self.inspect(cell).ok().map(|(state, counters, usage)| cell_use(state, &counters, usage.used))
    }

    fn usages(&self, cells: &[CellId]) -> Vec<Option<CellUse>> {
        let each = self.inspect_all(cells).into_iter();
        each.map(|cell| cell.map(|(state, counters, usage)| cell_use(state, &counters, usage.used))).collect()
    }

    fn descendants(&self, cell: CellId) -> Vec<Descendant> {
        Kernel::descendants(self, cell).unwrap_or_default().into_iter().map(Descendant::from).collect()
    }

    fn watch(&self, cell: CellId, events: u64, callback: WatchCallback) -> Result<(), LaunchError> {
        Ok(Kernel::watch(self, cell, events, callback)?)
    }

    fn set_watched_events(&self, cell: CellId, events: u64) -> Result<(), LaunchError> {
        Ok(Kernel::set_watched_events(self, cell, events)?)
    }

    fn unwatch(&self, cell: CellId) {
        Kernel::unwatch(self, cell);
    }

    fn halt(&self, cell: CellId) -> Result<(), LaunchError> {
        Ok(Kernel::halt(self, cell)?)
    }

    fn resume(&self, cell: CellId, how: u64) -> Result<(), LaunchError> {
        Ok(Kernel::resume(self, cell, how)?)
    }

    fn cell_state(&self, cell: CellId) -> Result<ChildState, LaunchError> {
        Ok(Kernel::cell_state(self, cell))
    }

    fn read_state(&self, cell: CellId, kind: u64, bytes: &mut [u8]) -> Result<usize, LaunchError> {
        let state = Kernel::read_state(self, cell, kind)?;
        let count = state.len().min(bytes.len());
        bytes[..count].copy_from_slice(&state[..count]);
        Ok(count)
    }

    fn write_state(&self, cell: CellId, kind: u64, bytes: &[u8]) -> Result<(), LaunchError> {
        Ok(Kernel::write_state(self, cell, kind, bytes)?)
    }

    fn read_space(&self, cell: CellId, space: Option<u32>, address: u64, bytes: &mut [u8]) -> Result<usize, LaunchError> {
        Ok(Kernel::read_space(self, cell, space.map(SpaceIndex), address, bytes)?)
    }

    fn write_space(&self, cell: CellId, space: Option<u32>, address: u64, bytes: &[u8]) -> Result<(), LaunchError> {
        Ok(Kernel::write_space(self, cell, space.map(SpaceIndex), address, bytes)?)
    }

    fn discard(&self, cell: CellId) {
        // It may have ended, and its outcome may have been taken.
        let _ = Kernel::end(self, cell, End::Killed);
        let _ = self.collect(cell);
    }

    fn discard_root(&self, root: Root) {
        for disk in root.clear(self) {
            // A nested cell below a clone may live for a moment. Nothing else has removed the disk.
            let _ = self.retire_disk(disk);
        }
    }

    fn available(&self) -> PageCount {
        // Cached blocks are evicted for cells.
        self.free() + self.registry().used
    }
}
