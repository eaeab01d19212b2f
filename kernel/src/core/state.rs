// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state that the kernel lock protects.

use super::{Config, OperatorError};
use crate::cell::end::{End, Outcome};
use crate::cell::{Cell, CellId, Resumption, State as CellState};
use crate::device::card::{Card, CardContext, PeerCells};
use crate::device::console::Console;
use crate::device::disk::Disk;
use crate::limits::{EVICTION_PIECE, FEW_ALARMS, MAX_CELLS};
use crate::memory::copy::CopyError;
use crate::memory::eviction::ClockHand;
use crate::memory::{DiskId, Frames, Shortage, SpaceSet};
use crate::network::{Networks, Owner};
use crate::sched::share::Allowance;
use crate::sched::{Gatekeeper, MemoryPolicy, Reason, Scheduler};
use pando_abi::Event;
use pando_machine::{Machine, Nanos, PageCount};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::iter;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

/// A living cell with its devices.
pub(super) struct LiveCell {
    pub(super) cell: Cell,
    pub(super) console: Console,
    /// The channel to the operator, if the operator has opened it.
    pub(super) channel: Option<Box<Console>>,
    /// The control channel, if the operator has opened it. Clones have none.
    pub(super) control: Option<Box<Console>>,
    /// Its network card, if it has one.
    pub(super) card: Option<Box<Card>>,
    /// Its limit of CPU time; `None`: unlimited.
    pub(super) allowance: Option<Allowance>,
}

impl LiveCell {
    /// Serves the rings of its devices.
    ///
    /// # Errors
    /// No memory for a page of the cell that must be made, or a block of a disk must be read first.
    pub(super) fn serve(&mut self, context: &mut CardContext<'_>) -> Result<(), CopyError> {
        let said = self.console.places().transmit;
        let of_console = iter::once(&mut self.console).chain(self.channel.as_deref_mut()).map(|device| (device, Event::Console));
        for (device, event) in of_console.chain(self.control.as_deref_mut().map(|device| (device, Event::Control))) {
            if device.serve(context.frames, &mut self.cell.memory)? {
                self.cell.events = self.cell.events.with(event);
            }
        }
        if self.console.places().transmit != said {
            self.cell.memory.note_pause();
        }
        if let Some(card) = &mut self.card
            && card.serve(&mut self.cell.memory, context)?
        {
            self.cell.events = self.cell.events.with(Event::Network);
        }
        Ok(())
    }

    /// Takes the output that the cell has posted on its streams and on its control channel.
    fn take_final_output(&mut self, frames: &mut Frames) {
        let LiveCell { cell, console, control, .. } = self;
        iter::once(console).chain(control.as_deref_mut()).for_each(|device| device.take_final_output(frames, &mut cell.memory));
    }

    /// Closes the cell's ports: it writes no more output.
    pub(super) fn close(&self) {
        self.console.port().close();
        self.channel.iter().chain(&self.control).for_each(|channel| channel.port().close());
    }
}

/// A slot for a cell.
enum CellSlot {
    Empty,
    Living(Box<LiveCell>),
    /// Kept until the operator collects the outcome.
    Ended(Box<Outcome>),
}

/// All cells except the one whose rings are served.
struct OtherCells<'a>(&'a mut [(u32, CellSlot)]);

impl PeerCells for OtherCells<'_> {
    fn at_rest(&mut self, owner: &Owner) -> Option<(&mut Card, &mut SpaceSet)> {
        let Owner::Cell(id) = owner else { return None };
        let (_, place) = self.0.get_mut(id.index as usize).filter(|(generation, _)| *generation == id.generation)?;
        let CellSlot::Living(live) = place else { return None };
        let LiveCell { cell, card, .. } = live.as_mut();
        // If a page was just copied for a write, the vCPU may not have seen the copy yet.
        let rests = matches!(cell.state, CellState::Idle { .. } | CellState::Ready | CellState::Spent { .. }) && cell.unconfirmed.is_none();
        card.as_deref_mut().filter(|_| rests).map(|card| (card, &mut cell.memory))
    }
}

/// A cell that a vCPU runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunningCell {
    /// No other cell was runnable when its quantum began, so it got a long one.
    pub(super) alone: bool,
}

/// Flushes of the machine's tables: the time of the last one, and the cells that wait for the next.
#[derive(Debug, Default)]
pub(super) struct TlbFlushes {
    pub(super) last: Nanos,
    pub(super) awaited_by: Vec<CellId>,
    pub(super) under_way: bool,
    /// Whether the last one failed: the next is then delayed.
    pub(super) failed: bool,
}

/// Position of the clock hand that evicts blocks from mappings.
#[derive(Debug, Default)]
struct EvictionCursor {
    /// Index of the cell.
    place: usize,
    /// Position in the cell's memory.
    hand: ClockHand,
    /// Number of cells that it has passed since it last found a block.
    fruitless: usize,
}

/// The kernel's state.
pub(super) struct State {
    pub(super) frames: Frames,
    /// Indexed by disk; `None` where a disk was removed.
    disks: Vec<Option<Arc<dyn Disk>>>,
    pub(super) networks: Networks,
    places: Vec<(u32, CellSlot)>,
    empty: Vec<u32>,
    pub(super) scheduler: Box<dyn Scheduler>,
    pub(super) gatekeeper: Box<dyn Gatekeeper>,
    memory_policy: Box<dyn MemoryPolicy>,
    /// Whether cells may idle until a given time.
    pub(super) idle_timeouts: bool,
    /// Wake-up times of waiting cells; stale entries are skipped.
    alarms: BinaryHeap<Reverse<(Nanos, CellId)>>,
    pub(super) flushes: TlbFlushes,
    eviction: EvictionCursor,
    pub(super) vcpus: Vec<Option<RunningCell>>,
    pub(super) idle_workers: usize,
    pub(super) stopping: bool,
    /// vCPUs whose cells another thread has doomed: to be interrupted once the lock is free.
    pub(super) vcpus_to_interrupt: Vec<usize>,
    /// A cell has ended or frozen since waiters were last notified.
    pub(super) news: bool,
    /// Frames have made cells runnable, and no other vCPU was notified.
    pub(super) woken: bool,
}

impl State {
    pub(super) fn new(machine: Arc<dyn Machine>, config: Config, vcpus: usize) -> State {
        State {
            frames: Frames::new(machine, config.rules, config.registry),
            disks: Vec::new(),
            networks: Networks::default(),
            places: Vec::new(),
            empty: Vec::new(),
            scheduler: config.scheduler,
            gatekeeper: config.gatekeeper,
            memory_policy: config.memory_policy,
            idle_timeouts: config.idle_timeouts,
            alarms: BinaryHeap::new(),
            flushes: TlbFlushes::default(),
            eviction: EvictionCursor::default(),
            vcpus: vec![None; vcpus],
            idle_workers: 0,
            stopping: false,
            vcpus_to_interrupt: Vec::new(),
            news: false,
            woken: false,
        }
    }

    /// Adds a disk. `None`: there are too many.
    pub(super) fn add_disk(&mut self, disk: Arc<dyn Disk>) -> Option<DiskId> {
        let State { disks, frames, .. } = self;
        let is_unused = |index: &usize| {
            disks.get(*index).is_none_or(|disk| disk.is_none() && DiskId::new(*index).is_some_and(|id| !frames.knows_disk(id)))
        };
        let index = (0..=disks.len()).find(is_unused)?;
        let id = DiskId::new(index)?;
        disks.resize(disks.len().max(index + 1), None);
        disks[index] = Some(disk);
        Some(id)
    }

    /// Finds a disk.
    pub(super) fn disk(&self, id: DiskId) -> Option<Arc<dyn Disk>> {
        self.disks.get(id.index())?.clone()
    }

    /// Removes a disk.
    ///
    /// # Errors
    /// There is no such disk, or a cell uses it.
    pub(super) fn remove_disk(&mut self, id: DiskId) -> Result<(), OperatorError> {
        self.disk(id).ok_or(OperatorError::NoSuchDisk)?;
        if self.places.iter().any(|(_, place)| matches!(place, CellSlot::Living(live) if live.cell.memory.uses(id))) {
            return Err(OperatorError::DiskInUse);
        }
        self.disks[id.index()] = None;
        Ok(())
    }

    /// Reserves an identifier for a new cell. `None`: there are too many.
    pub(super) fn reserve(&mut self) -> Option<CellId> {
        let index = match self.empty.pop() {
            Some(index) => index,
            None if self.places.len() < MAX_CELLS => {
                self.places.push((0, CellSlot::Empty));
                self.places.len() as u32 - 1
            }
            None => return None,
        };
        Some(CellId { index, generation: self.places[index as usize].0 })
    }

    /// Gives a reserved identifier back.
    pub(super) fn unreserve(&mut self, id: CellId) {
        self.empty.push(id.index);
    }

    /// Inserts a cell into its reserved slot.
    pub(super) fn insert_cell(&mut self, live: LiveCell) {
        let index = live.cell.id.index as usize;
        self.places[index].1 = CellSlot::Living(Box::new(live));
    }

    /// A living cell and the frames.
    pub(super) fn living(&mut self, id: CellId) -> Option<(&mut LiveCell, &mut Frames)> {
        match self.places.get_mut(id.index as usize) {
            Some((generation, CellSlot::Living(live))) if *generation == id.generation => Some((live, &mut self.frames)),
            _ => None,
        }
    }

    /// A living cell that neither runs nor waits for its turn, and the frames.
    ///
    /// # Errors
    /// There is no such living cell, or it runs.
    pub(super) fn at_rest(&mut self, id: CellId) -> Result<(&mut Cell, &mut Frames), OperatorError> {
        if let Some(outcome) = self.outcome(id) {
            return Err(OperatorError::Ended(outcome.end.clone()));
        }
        let (live, frames) = self.living(id).ok_or(OperatorError::NoSuchCell)?;
        match live.cell.state {
            state @ (CellState::Running { .. } | CellState::Ready | CellState::Spent { .. }) => Err(OperatorError::Busy(state)),
            _ => Ok((&mut live.cell, frames)),
        }
    }

    /// The living cell that a vCPU is running.
    ///
    /// # Panics
    /// The cell is gone: only the vCPU that runs a cell may end it.
    pub(super) fn running(&mut self, id: CellId) -> (&mut LiveCell, &mut Frames) {
        self.living(id).expect("a running cell is ended by its own vCPU only")
    }

    /// The outcome of an ended cell.
    pub(super) fn outcome(&self, id: CellId) -> Option<&Outcome> {
        match self.places.get(id.index as usize) {
            Some((generation, CellSlot::Ended(outcome))) if *generation == id.generation => Some(outcome),
            _ => None,
        }
    }

    /// Forgets an ended cell; its identifier becomes stale.
    pub(super) fn forget(&mut self, id: CellId) -> Option<Outcome> {
        self.outcome(id)?;
        let (generation, place) = &mut self.places[id.index as usize];
        let CellSlot::Ended(outcome) = mem::replace(place, CellSlot::Empty) else { return None };
        *generation = generation.wrapping_add(1);
        self.empty.push(id.index);
        Some(*outcome)
    }

    /// Number of living cells.
    pub(super) fn count(&self) -> usize {
        self.places.iter().filter(|(_, place)| matches!(place, CellSlot::Living(_))).count()
    }

    /// Makes a cell runnable.
    pub(super) fn make_ready(&mut self, id: CellId, reason: Reason) {
        if let Some((live, _)) = self.living(id) {
            live.cell.state = CellState::Ready;
            self.scheduler.ready(id, reason);
        }
    }

    /// Takes the next cell to run, and the longest time that it may run. Cells that have used their share wait for the next period.
    pub(super) fn pick(&mut self, now: Nanos) -> Option<(CellId, Duration)> {
        loop {
            let id = self.scheduler.next()?;
            let Some((live, _)) = self.living(id).filter(|(live, _)| live.cell.state == CellState::Ready) else { continue };
            match live.allowance.as_mut().map_or(Ok(Duration::MAX), |allowance| allowance.left(now)) {
                Ok(left) => return Some((id, left)),
                Err(until) => {
                    live.cell.state = CellState::Spent { until };
                    self.set_alarm(id, until);
                }
            }
        }
    }

    /// Charges a cell for time on a vCPU, if it still lives.
    pub(super) fn charge(&mut self, id: CellId, time: Duration) {
        if let Some((LiveCell { allowance: Some(allowance), .. }, _)) = self.living(id) {
            allowance.spend(time);
        }
    }

    /// Raises an event; `true` if that made the cell runnable.
    pub(super) fn raise(&mut self, id: CellId, event: Event) -> bool {
        let Some((live, frames)) = self.living(id) else { return false };
        let cell = &mut live.cell;
        if cell.state == CellState::Frozen {
            // A template receives no events, and the event is not for its clones.
            return false;
        }
        cell.events = cell.events.with(event);
        let wakes = matches!(cell.state, CellState::Idle { .. }) && cell.has_unmasked_events(frames);
        if wakes {
            self.make_ready(id, Reason::Woken);
        }
        wakes
    }

    /// Serves the rings of a cell that has the vCPU.
    ///
    /// # Errors
    /// No memory for a page of the cell that must be made, or a block of a disk must be read first.
    pub(super) fn serve_rings(&mut self, id: CellId, now: Nanos) -> Result<(), CopyError> {
        let State { places, frames, networks, .. } = self;
        let index = id.index as usize;
        let own = places.get_mut(index).filter(|(generation, place)| *generation == id.generation && matches!(place, CellSlot::Living(_)));
        // The cell leaves its slot meanwhile, because its frames may go straight into the memory of other cells.
        let Some(CellSlot::Living(mut live)) = own.map(|(_, place)| mem::replace(place, CellSlot::Empty)) else { return Ok(()) };
        let served = live.serve(&mut CardContext { frames, networks, peers: &mut OtherCells(places), now });
        self.places[index].1 = CellSlot::Living(live);
        self.wake_receivers();
        served
    }

    /// Notifies cells of frames that have arrived for them.
    pub(super) fn wake_receivers(&mut self) {
        for id in self.networks.take_woken() {
            self.woken |= self.raise(id, Event::Network);
        }
    }

    /// Makes a cell wait for an event, at most until `until`.
    pub(super) fn make_idle(&mut self, id: CellId, until: Nanos) {
        let (live, _) = self.running(id);
        live.cell.state = CellState::Idle { until };
        live.cell.resumption = Resumption::WithEvents;
        if until != Nanos::NEVER {
            self.set_alarm(id, until);
        }
    }

    fn set_alarm(&mut self, id: CellId, until: Nanos) {
        self.alarms.push(Reverse((until, id)));
        // Cells that were woken by an event, or have ended, leave stale alarms; a waiting cell has one valid alarm.
        if self.alarms.len() > 2 * self.places.len() + FEW_ALARMS {
            let mut alarms = mem::take(&mut self.alarms);
            alarms.retain(|Reverse((until, id))| self.awaits(*id, *until).is_some());
            self.alarms = alarms;
        }
    }

    /// The reason for which an alarm makes its cell ready; `None`: the alarm is stale.
    fn awaits(&mut self, id: CellId, moment: Nanos) -> Option<Reason> {
        match self.living(id)?.0.cell.state {
            CellState::Idle { until } if until == moment => Some(Reason::Woken),
            CellState::Spent { until } if until == moment => Some(Reason::Turn),
            _ => None,
        }
    }

    /// Wakes the cells whose time has come.
    pub(super) fn ring_alarms(&mut self, now: Nanos) {
        while let Some(Reverse((until, id))) = self.alarms.peek().copied().filter(|Reverse((until, _))| *until <= now) {
            self.alarms.pop();
            if let Some(reason) = self.awaits(id, until) {
                self.make_ready(id, reason);
            }
        }
    }

    /// Time of the next valid alarm.
    pub(super) fn next_alarm(&mut self) -> Nanos {
        while let Some(Reverse((until, id))) = self.alarms.peek().copied() {
            if self.awaits(id, until).is_some() {
                return until;
            }
            self.alarms.pop();
        }
        Nanos::NEVER
    }

    /// Ends a cell that is not running elsewhere: its memory goes to the reaper, its outcome is kept for the operator.
    pub(super) fn end(&mut self, id: CellId, end: End) {
        let Some((generation, place)) = self.places.get_mut(id.index as usize) else { return };
        if *generation != id.generation || !matches!(place, CellSlot::Living(_)) {
            return;
        }
        let CellSlot::Living(mut live) = mem::replace(place, CellSlot::Empty) else { return };
        live.take_final_output(&mut self.frames);
        live.close();
        let mut cell = live.cell;
        self.learn(&mut cell);
        let account = cell.memory.account();
        let report = cell.report(&self.frames);
        let traffic = live.card.map(|card| self.networks.unplug(card.port));
        let outcome = Outcome { end, counters: cell.counters, usage: self.frames.usage(account), report, traffic };
        if let Some(write) = cell.unconfirmed.take() {
            cell.confirm(&mut self.frames, write);
        }
        cell.memory.release(&mut self.frames);
        self.frames.close_account(account);
        self.places[id.index as usize].1 = CellSlot::Ended(Box::new(outcome));
        self.news = true;
    }

    /// Adds an ended clone's training trace to its template.
    fn learn(&mut self, cell: &mut Cell) {
        let trace = cell.memory.end_training().zip(cell.trains.take());
        if let Some((trace, template)) = trace
            && let Some((live, _)) = self.living(template)
        {
            live.cell.memory.traces.add(trace);
        }
    }

    /// Ends a cell at once if it is not running, otherwise at its next exit. Returns the vCPU to interrupt.
    pub(super) fn doom(&mut self, id: CellId, end: End) -> Option<usize> {
        let (live, _) = self.living(id)?;
        if let CellState::Running { vcpu } = live.cell.state {
            live.cell.doom.get_or_insert(end);
            return Some(vcpu);
        }
        self.end(id, end);
        None
    }

    /// Ends every cell that is not running, and dooms the rest.
    pub(super) fn end_all(&mut self) {
        for index in 0..self.places.len() {
            let id = CellId { index: index as u32, generation: self.places[index].0 };
            self.doom(id, End::Killed);
        }
    }

    /// The started cell that the policy would end for want of memory.
    pub(super) fn victim(&mut self) -> Option<CellId> {
        let State { places, frames, memory_policy, .. } = self;
        let mut cells = places.iter().filter_map(|(_, place)| match place {
            CellSlot::Living(live) if !is_kept(&live.cell) => Some((live.cell.id, frames.usage(live.cell.memory.account()).used)),
            _ => None,
        });
        memory_policy.victim(&mut cells)
    }

    /// Evicts some blocks from the mappings of cells, so that the registry can give them up. Skips cells that run on other vCPUs.
    /// `true`: a retry may succeed.
    pub(super) fn evict(&mut self, own: Option<CellId>) -> bool {
        let mut budget = EVICTION_PIECE;
        // One round, and once more the cell where it began.
        while self.frames.blocks_are_mapped() && self.eviction.fruitless <= self.places.len() {
            let place = self.places.get_mut(self.eviction.place).map(|(_, place)| place);
            if let Some(CellSlot::Living(live)) = place
                && (Some(live.cell.id) == own || !matches!(live.cell.state, CellState::Running { .. }))
            {
                if live.cell.memory.evict(&mut self.frames, &mut self.eviction.hand, &mut budget) {
                    self.eviction.fruitless = 0;
                    return true;
                }
                if budget == 0 {
                    return true;
                }
            }
            let place = (self.eviction.place + 1) % self.places.len().max(1);
            self.eviction = EvictionCursor { place, hand: ClockHand::default(), fruitless: self.eviction.fruitless + 1 };
            budget -= 1;
            if budget == 0 {
                return true;
            }
        }
        self.eviction.fruitless = 0;
        false
    }

    /// Amount of free memory.
    pub(super) fn free(&self) -> PageCount {
        self.frames.free()
    }
}

/// Whether a cell is no victim when memory is short: it is being built, or is a template. A cell that froze unasked is no template.
fn is_kept(cell: &Cell) -> bool {
    match cell.state {
        CellState::New => true,
        CellState::Frozen => cell.is_template,
        _ => false,
    }
}

/// The end of a cell that could not get a page.
pub(super) fn end_for(shortage: Shortage) -> End {
    match shortage {
        Shortage::Quota => End::Quota,
        Shortage::Machine => End::MachineFull,
    }
}
