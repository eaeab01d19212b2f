// SPDX-License-Identifier: MIT OR Apache-2.0
//! Everything that the kernel lock protects.

use super::{Config, OperatorError};
use crate::cell::end::{End, Outcome};
use crate::cell::{Cell, CellId, Resumption, State as CellState};
use crate::device::card::{Card, Means, Neighbours};
use crate::device::console::Console;
use crate::device::disk::Disk;
use crate::limits::{FEW_ALARMS, MAX_CELLS, SWEEP_PIECE};
use crate::memory::copy::CopyError;
use crate::memory::sweep::Hand;
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
pub(super) struct Occupant {
    pub(super) cell: Cell,
    pub(super) console: Console,
    /// A way to the operator itself, if that has opened one.
    pub(super) channel: Option<Box<Console>>,
    /// The control channel, if the operator has opened it. Clones have none.
    pub(super) control: Option<Box<Console>>,
    /// Its network card, if it has one.
    pub(super) card: Option<Box<Card>>,
    /// What it may have of a vCPU's time; `None`: whatever is to be had.
    pub(super) allowance: Option<Allowance>,
}

impl Occupant {
    /// Lets the rings of its devices move what can be moved.
    ///
    /// # Errors
    /// No memory for a page of the cell's that would have to be made, or a block of a disk that must be read first.
    pub(super) fn serve(&mut self, means: &mut Means<'_>) -> Result<(), CopyError> {
        let said = self.console.places().transmit;
        let of_console = iter::once(&mut self.console).chain(self.channel.as_deref_mut()).map(|device| (device, Event::Console));
        for (device, event) in of_console.chain(self.control.as_deref_mut().map(|device| (device, Event::Control))) {
            if device.serve(means.frames, &mut self.cell.memory)? {
                self.cell.events = self.cell.events.with(event);
            }
        }
        if self.console.places().transmit != said {
            self.cell.memory.note_pause();
        }
        if let Some(card) = &mut self.card
            && card.serve(&mut self.cell.memory, means)?
        {
            self.cell.events = self.cell.events.with(Event::Network);
        }
        Ok(())
    }

    /// Takes what it has posted on its streams, and what its jobs have.
    fn take_last_words(&mut self, frames: &mut Frames) {
        let Occupant { cell, console, control, .. } = self;
        iter::once(console).chain(control.as_deref_mut()).for_each(|device| device.take_last_words(frames, &mut cell.memory));
    }

    /// Tells who listens that the cell will say nothing any more.
    pub(super) fn close(&self) {
        self.console.port().close();
        self.channel.iter().chain(&self.control).for_each(|channel| channel.port().close());
    }
}

/// A place for a cell.
enum Place {
    Empty,
    Living(Box<Occupant>),
    /// Until the operator has taken note.
    Ended(Box<Outcome>),
}

/// All cells but the one whose rings are served.
struct Others<'a>(&'a mut [(u32, Place)]);

impl Neighbours for Others<'_> {
    fn at_rest(&mut self, owner: &Owner) -> Option<(&mut Card, &mut SpaceSet)> {
        let Owner::Cell(id) = owner else { return None };
        let (_, place) = self.0.get_mut(id.index as usize).filter(|(generation, _)| *generation == id.generation)?;
        let Place::Living(occupant) = place else { return None };
        let Occupant { cell, card, .. } = occupant.as_mut();
        // Where a page was just copied for a write, the vCPU may still have to see it.
        let rests = matches!(cell.state, CellState::Idle { .. } | CellState::Ready | CellState::Spent { .. }) && cell.unconfirmed.is_none();
        card.as_deref_mut().filter(|_| rests).map(|card| (card, &mut cell.memory))
    }
}

/// What a vCPU runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Running {
    /// Nobody else waited when its quantum began, so it got a long one.
    pub(super) alone: bool,
}

/// Flushes of the machine's tables: when the last one was, and who waits for the next.
#[derive(Debug, Default)]
pub(super) struct Flushes {
    pub(super) last: Nanos,
    pub(super) awaited_by: Vec<CellId>,
    pub(super) under_way: bool,
    /// Whether the last one failed: the next is not tried at once.
    pub(super) failed: bool,
}

/// Where the hand stands that takes blocks out of mappings.
#[derive(Debug, Default)]
struct Sweep {
    /// In whose memory.
    place: usize,
    /// Where in it.
    hand: Hand,
    /// Places that it has passed since it last found something.
    barren: usize,
}

/// The kernel's state.
pub(super) struct State {
    pub(super) frames: Frames,
    /// In order of their names, where they were not removed.
    disks: Vec<Option<Arc<dyn Disk>>>,
    pub(super) networks: Networks,
    places: Vec<(u32, Place)>,
    empty: Vec<u32>,
    pub(super) scheduler: Box<dyn Scheduler>,
    pub(super) gatekeeper: Box<dyn Gatekeeper>,
    memory_policy: Box<dyn MemoryPolicy>,
    /// Whether cells may idle until a moment.
    pub(super) idle_timeouts: bool,
    /// When waiting cells want to be woken; entries of cells that no longer wait so are skipped.
    alarms: BinaryHeap<Reverse<(Nanos, CellId)>>,
    pub(super) flushes: Flushes,
    sweep: Sweep,
    pub(super) vcpus: Vec<Option<Running>>,
    pub(super) idle_workers: usize,
    pub(super) stopping: bool,
    /// vCPUs whose cells were doomed from another: to be interrupted once the lock is free.
    pub(super) condemned: Vec<usize>,
    /// Cells that ended since somebody last looked, so that waiters are told.
    pub(super) news: bool,
    /// Cells became runnable because of frames, and no other vCPU was told.
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
            flushes: Flushes::default(),
            sweep: Sweep::default(),
            vcpus: vec![None; vcpus],
            idle_workers: 0,
            stopping: false,
            condemned: Vec::new(),
            news: false,
            woken: false,
        }
    }

    /// A name for a disk. `None`: there are too many.
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

    /// The disk of this name.
    pub(super) fn disk(&self, id: DiskId) -> Option<Arc<dyn Disk>> {
        self.disks.get(id.index())?.clone()
    }

    /// Removes a disk.
    ///
    /// # Errors
    /// There is none of this name, or a cell has it.
    pub(super) fn remove_disk(&mut self, id: DiskId) -> Result<(), OperatorError> {
        self.disk(id).ok_or(OperatorError::NoSuchDisk)?;
        if self.places.iter().any(|(_, place)| matches!(place, Place::Living(occupant) if occupant.cell.memory.uses(id))) {
            return Err(OperatorError::DiskInUse);
        }
        self.disks[id.index()] = None;
        Ok(())
    }

    /// A name for a new cell. `None`: there are too many.
    pub(super) fn reserve(&mut self) -> Option<CellId> {
        let index = match self.empty.pop() {
            Some(index) => index,
            None if self.places.len() < MAX_CELLS => {
                self.places.push((0, Place::Empty));
                self.places.len() as u32 - 1
            }
            None => return None,
        };
        Some(CellId { index, generation: self.places[index as usize].0 })
    }

    /// Gives a reserved name back.
    pub(super) fn unreserve(&mut self, id: CellId) {
        self.empty.push(id.index);
    }

    /// Puts a cell where its name was reserved.
    pub(super) fn settle_in(&mut self, occupant: Occupant) {
        let index = occupant.cell.id.index as usize;
        self.places[index].1 = Place::Living(Box::new(occupant));
    }

    /// A living cell and the frames.
    pub(super) fn living(&mut self, id: CellId) -> Option<(&mut Occupant, &mut Frames)> {
        match self.places.get_mut(id.index as usize) {
            Some((generation, Place::Living(occupant))) if *generation == id.generation => Some((occupant, &mut self.frames)),
            _ => None,
        }
    }

    /// A living cell that neither runs nor waits for its turn, and the frames.
    ///
    /// # Errors
    /// There is none of this name, or it runs.
    pub(super) fn at_rest(&mut self, id: CellId) -> Result<(&mut Cell, &mut Frames), OperatorError> {
        if let Some(outcome) = self.outcome(id) {
            return Err(OperatorError::Ended(outcome.end.clone()));
        }
        let (occupant, frames) = self.living(id).ok_or(OperatorError::NoSuchCell)?;
        match occupant.cell.state {
            state @ (CellState::Running { .. } | CellState::Ready | CellState::Spent { .. }) => Err(OperatorError::Busy(state)),
            _ => Ok((&mut occupant.cell, frames)),
        }
    }

    /// The living cell that a vCPU is running.
    ///
    /// # Panics
    /// It is gone: only the vCPU that runs a cell may end it.
    pub(super) fn running(&mut self, id: CellId) -> (&mut Occupant, &mut Frames) {
        self.living(id).expect("a running cell is ended by its own vCPU only")
    }

    /// What is left of an ended cell.
    pub(super) fn outcome(&self, id: CellId) -> Option<&Outcome> {
        match self.places.get(id.index as usize) {
            Some((generation, Place::Ended(outcome))) if *generation == id.generation => Some(outcome),
            _ => None,
        }
    }

    /// Forgets an ended cell; its name becomes stale.
    pub(super) fn forget(&mut self, id: CellId) -> Option<Outcome> {
        self.outcome(id)?;
        let (generation, place) = &mut self.places[id.index as usize];
        let Place::Ended(outcome) = mem::replace(place, Place::Empty) else { return None };
        *generation = generation.wrapping_add(1);
        self.empty.push(id.index);
        Some(*outcome)
    }

    /// How many cells live.
    pub(super) fn count(&self) -> usize {
        self.places.iter().filter(|(_, place)| matches!(place, Place::Living(_))).count()
    }

    /// Makes a cell runnable.
    pub(super) fn make_ready(&mut self, id: CellId, reason: Reason) {
        if let Some((occupant, _)) = self.living(id) {
            occupant.cell.state = CellState::Ready;
            self.scheduler.ready(id, reason);
        }
    }

    /// Takes the cell that runs next, and how long it may at most. Cells that have had their share wait for their next.
    pub(super) fn pick(&mut self, now: Nanos) -> Option<(CellId, Duration)> {
        loop {
            let id = self.scheduler.next()?;
            let Some((occupant, _)) = self.living(id).filter(|(occupant, _)| occupant.cell.state == CellState::Ready) else { continue };
            match occupant.allowance.as_mut().map_or(Ok(Duration::MAX), |allowance| allowance.left(now)) {
                Ok(left) => return Some((id, left)),
                Err(until) => {
                    occupant.cell.state = CellState::Spent { until };
                    self.set_alarm(id, until);
                }
            }
        }
    }

    /// Takes note of time that a cell had on a vCPU, if it is still there.
    pub(super) fn charge(&mut self, id: CellId, time: Duration) {
        if let Some((Occupant { allowance: Some(allowance), .. }, _)) = self.living(id) {
            allowance.spend(time);
        }
    }

    /// Notes an event; `true` if that made the cell runnable.
    pub(super) fn raise(&mut self, id: CellId, event: Event) -> bool {
        let Some((occupant, frames)) = self.living(id) else { return false };
        let cell = &mut occupant.cell;
        if cell.state == CellState::Frozen {
            // A template hears nothing, and its clones are others.
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
    /// No memory for a page of the cell's that would have to be made, or a block of a disk that must be read first.
    pub(super) fn serve_rings(&mut self, id: CellId, now: Nanos) -> Result<(), CopyError> {
        let State { places, frames, networks, .. } = self;
        let index = id.index as usize;
        let own = places.get_mut(index).filter(|(generation, place)| *generation == id.generation && matches!(place, Place::Living(_)));
        // It leaves its place meanwhile, because what it sends may go straight into others' memory.
        let Some(Place::Living(mut occupant)) = own.map(|(_, place)| mem::replace(place, Place::Empty)) else { return Ok(()) };
        let served = occupant.serve(&mut Means { frames, networks, neighbours: &mut Others(places), now });
        self.places[index].1 = Place::Living(occupant);
        self.wake_receivers();
        served
    }

    /// Tells cells of frames that have arrived for them.
    pub(super) fn wake_receivers(&mut self) {
        for id in self.networks.take_woken() {
            self.woken |= self.raise(id, Event::Network);
        }
    }

    /// Lets a cell wait until an event or `until`.
    pub(super) fn make_idle(&mut self, id: CellId, until: Nanos) {
        let (occupant, _) = self.running(id);
        occupant.cell.state = CellState::Idle { until };
        occupant.cell.resumption = Resumption::WithEvents;
        if until != Nanos::NEVER {
            self.set_alarm(id, until);
        }
    }

    fn set_alarm(&mut self, id: CellId, until: Nanos) {
        self.alarms.push(Reverse((until, id)));
        // Cells that were woken otherwise, or ended, leave theirs behind; a cell that still waits has one.
        if self.alarms.len() > 2 * self.places.len() + FEW_ALARMS {
            let mut alarms = mem::take(&mut self.alarms);
            alarms.retain(|Reverse((until, id))| self.awaits(*id, *until).is_some());
            self.alarms = alarms;
        }
    }

    /// Whether an alarm is still somebody's, and how they come back when it rings.
    fn awaits(&mut self, id: CellId, moment: Nanos) -> Option<Reason> {
        match self.living(id)?.0.cell.state {
            CellState::Idle { until } if until == moment => Some(Reason::Woken),
            CellState::Spent { until } if until == moment => Some(Reason::Turn),
            _ => None,
        }
    }

    /// Wakes whoever's time has come.
    pub(super) fn ring_alarms(&mut self, now: Nanos) {
        while let Some(Reverse((until, id))) = self.alarms.peek().copied().filter(|Reverse((until, _))| *until <= now) {
            self.alarms.pop();
            if let Some(reason) = self.awaits(id, until) {
                self.make_ready(id, reason);
            }
        }
    }

    /// When the next alarm rings for somebody.
    pub(super) fn next_alarm(&mut self) -> Nanos {
        while let Some(Reverse((until, id))) = self.alarms.peek().copied() {
            if self.awaits(id, until).is_some() {
                return until;
            }
            self.alarms.pop();
        }
        Nanos::NEVER
    }

    /// Ends a cell that is not running elsewhere: its memory goes to the reaper, its story stays until the operator has heard it.
    pub(super) fn end(&mut self, id: CellId, end: End) {
        let Some((generation, place)) = self.places.get_mut(id.index as usize) else { return };
        if *generation != id.generation || !matches!(place, Place::Living(_)) {
            return;
        }
        let Place::Living(mut occupant) = mem::replace(place, Place::Empty) else { return };
        occupant.take_last_words(&mut self.frames);
        occupant.close();
        let mut cell = occupant.cell;
        self.learn(&mut cell);
        let account = cell.memory.account();
        let report = cell.report(&self.frames);
        let traffic = occupant.card.map(|card| self.networks.unplug(card.port));
        let outcome = Outcome { end, counters: cell.counters, usage: self.frames.usage(account), report, traffic };
        if let Some(write) = cell.unconfirmed.take() {
            cell.confirm(&mut self.frames, write);
        }
        cell.memory.release(&mut self.frames);
        self.frames.close_account(account);
        self.places[id.index as usize].1 = Place::Ended(Box::new(outcome));
        self.news = true;
    }

    /// Tells a template what a clone has touched that was to teach it.
    fn learn(&mut self, cell: &mut Cell) {
        let lesson = cell.memory.end_lesson().zip(cell.teaches.take());
        if let Some((lesson, template)) = lesson
            && let Some((occupant, _)) = self.living(template)
        {
            occupant.cell.memory.lessons.add(lesson);
        }
    }

    /// Asks for a cell's end: at once if it is not running, at its next exit otherwise. Says which vCPU to interrupt.
    pub(super) fn doom(&mut self, id: CellId, end: End) -> Option<usize> {
        let (occupant, _) = self.living(id)?;
        if let CellState::Running { vcpu } = occupant.cell.state {
            occupant.cell.doom.get_or_insert(end);
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

    /// The cell that the policy would end for want of memory: one that was started.
    pub(super) fn victim(&mut self) -> Option<CellId> {
        let State { places, frames, memory_policy, .. } = self;
        let mut cells = places.iter().filter_map(|(_, place)| match place {
            Place::Living(occupant) if !is_kept(&occupant.cell) => {
                Some((occupant.cell.id, frames.usage(occupant.cell.memory.account()).used))
            }
            _ => None,
        });
        memory_policy.victim(&mut cells)
    }

    /// Takes some blocks out of the mappings of cells that do not run, or run on the caller's vCPU, so that the registry can give them up. `true`: it is worth trying again.
    pub(super) fn sweep(&mut self, own: Option<CellId>) -> bool {
        let mut budget = SWEEP_PIECE;
        // A round, and once more the cell where it began.
        while self.frames.blocks_are_mapped() && self.sweep.barren <= self.places.len() {
            let place = self.places.get_mut(self.sweep.place).map(|(_, place)| place);
            if let Some(Place::Living(occupant)) = place
                && (Some(occupant.cell.id) == own || !matches!(occupant.cell.state, CellState::Running { .. }))
            {
                if occupant.cell.memory.sweep(&mut self.frames, &mut self.sweep.hand, &mut budget) {
                    self.sweep.barren = 0;
                    return true;
                }
                if budget == 0 {
                    return true;
                }
            }
            let place = (self.sweep.place + 1) % self.places.len().max(1);
            self.sweep = Sweep { place, hand: Hand::default(), barren: self.sweep.barren + 1 };
            budget -= 1;
            if budget == 0 {
                return true;
            }
        }
        self.sweep.barren = 0;
        false
    }

    /// How much memory is free.
    pub(super) fn free(&self) -> PageCount {
        self.frames.free()
    }
}

/// Whether a cell stays when memory is short: what the operator is building, and its templates. A cell that froze unasked is not one.
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
