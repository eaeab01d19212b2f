// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state that the kernel lock protects.

use super::bases::Bases;
use super::cell_table::{CellTable, LiveCell};
use super::error::{OperationError, OperatorError};
use super::holdings::Parent;
use super::ipc::{CellRights, ReleaseQueue};
use super::sleepers::{SleepStage, Sleepers};
use super::trim_schedule::TrimSchedule;
use super::{Config, Shared};
use crate::cell::end::{End, Outcome};
use crate::cell::execution::Resumption;
use crate::cell::run_state::{Requirement, RunState};
use crate::cell::{Cell, CellId};
use crate::device::disk::Disk;
use crate::device::swap::Swap;
use crate::limits::{ALARM_CLEANUP_MIN, EVICTION_STEP};
use crate::memory::{ClockHand, CopyError, DiskId, Frames, Shortage};
use crate::network::Networks;
use crate::sched::{Gatekeeper, OomPolicy, ReadyReason, Scheduler};
use pando_abi::Event;
use pando_machine::{Machine, Nanos, PageCount};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::mem;
use std::sync::{Arc, Weak};

/// A cell that a vCPU runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunningCell {
    /// No other cell was runnable when its quantum began, so it got a long one.
    pub(super) is_alone: bool,
    /// A cell that donates it this time must go on.
    pub(super) must_yield: bool,
}

/// Flushes of the machine's tables: the time of the last one, and the cells that wait for the next.
#[derive(Debug, Default)]
pub(super) struct TlbFlushes {
    pub(super) last: Nanos,
    pub(super) awaited_by: Vec<CellId>,
    pub(super) is_under_way: bool,
    /// Whether the last one failed: the next is then delayed.
    pub(super) has_failed: bool,
}

/// Position of the clock hand that evicts blocks from mappings.
#[derive(Debug, Default)]
struct EvictionCursor {
    /// Slot of the cell.
    slot: usize,
    /// Position in the cell's memory.
    hand: ClockHand,
    /// Number of cells that it has passed since it last found a block.
    cells_passed: usize,
}

/// Notifications of other threads that a change has made necessary: [`Shared::notify`] delivers them.
#[derive(Debug, Default)]
pub(super) struct Notifications {
    /// A cell has ended or frozen: the operator may be waiting for that.
    pub(super) has_stopped_cell: bool,
    /// A cell has become runnable: a vCPU should run it soon.
    pub(super) has_runnable_cell: bool,
    /// A frame has made a cell runnable: an idle vCPU should run it.
    pub(super) has_woken_receiver: bool,
    /// A cell should fall asleep or wake up.
    pub(super) has_sleep_work: bool,
    /// vCPUs whose cells must notice something.
    pub(super) interrupts: Vec<usize>,
}

impl Notifications {
    /// Whether there is any.
    pub(super) fn are_due(&self) -> bool {
        self.has_stopped_cell || self.has_runnable_cell || self.has_woken_receiver || self.has_sleep_work || !self.interrupts.is_empty()
    }
}

/// The kernel's state.
pub(super) struct State {
    /// The state that the ports of new cells lock when they wake a cell.
    pub(super) shared: Weak<Shared>,
    pub(super) frames: Frames,
    /// Indexed by disk; `None` where a disk was removed.
    disks: Vec<Option<Arc<dyn Disk>>>,
    /// Disks that are removed when their last user ends.
    retired_disks: Vec<DiskId>,
    pub(super) networks: Networks,
    pub(super) cells: CellTable,
    /// The memory that cells are clones of.
    pub(super) bases: Bases,
    /// Cells that fall asleep and wake up.
    pub(super) sleepers: Sleepers,
    pub(super) swap: Option<Arc<dyn Swap>>,
    pub(super) keeps_bases: bool,
    /// Exits of cells that have ended.
    pub(super) ended_exits: u64,
    pub(super) scheduler: Box<dyn Scheduler>,
    pub(super) gatekeeper: Box<dyn Gatekeeper>,
    /// When the start phases of admitted cells end at the latest, in order. Entries of phases that ended before remain until then.
    pub(super) start_deadlines: VecDeque<(Nanos, CellId)>,
    oom_policy: Box<dyn OomPolicy>,
    /// Whether cells may idle until a given time.
    pub(super) has_idle_timeouts: bool,
    /// Wake-up times of waiting cells; stale entries are skipped.
    alarms: BinaryHeap<Reverse<(Nanos, CellId)>>,
    pub(super) flushes: TlbFlushes,
    pub(super) trims: TrimSchedule,
    eviction: EvictionCursor,
    /// Children of ended cells, which end in the next housekeeping.
    pub(super) orphans: Vec<CellId>,
    /// Ports, calls and rights to reply that were given up. The other parties are told in the next housekeeping.
    pub(super) released: ReleaseQueue,
    /// Number of ports and calls that were ever made.
    pub(super) serials: u64,
    pub(super) vcpus: Vec<Option<RunningCell>>,
    pub(super) idle_workers: usize,
    pub(super) is_stopping: bool,
    pub(super) notifications: Notifications,
}

impl State {
    pub(super) fn new(shared: Weak<Shared>, machine: Arc<dyn Machine>, config: Config, vcpus: usize) -> State {
        State {
            shared,
            frames: Frames::new(machine, config.rules, config.registry),
            disks: Vec::new(),
            retired_disks: Vec::new(),
            networks: Networks::default(),
            cells: CellTable::default(),
            bases: Bases::default(),
            sleepers: Sleepers::new(config.sleep_after, config.sleeps_when_idle),
            swap: config.swap,
            keeps_bases: config.keeps_bases,
            ended_exits: 0,
            scheduler: config.scheduler,
            gatekeeper: config.gatekeeper,
            start_deadlines: VecDeque::new(),
            oom_policy: config.oom_policy,
            has_idle_timeouts: config.has_idle_timeouts,
            alarms: BinaryHeap::new(),
            flushes: TlbFlushes::default(),
            trims: TrimSchedule::new(config.reclaims_idle_memory),
            eviction: EvictionCursor::default(),
            orphans: Vec::new(),
            released: ReleaseQueue::default(),
            serials: 0,
            vcpus: vec![None; vcpus],
            idle_workers: 0,
            is_stopping: false,
            notifications: Notifications::default(),
        }
    }

    /// Adds a disk. `None`: there are too many.
    pub(super) fn add_disk(&mut self, disk: Arc<dyn Disk>) -> Option<DiskId> {
        let State { disks, frames, .. } = self;
        let is_unused = |index: &usize| {
            disks.get(*index).is_none_or(|disk| disk.is_none() && DiskId::new(*index).is_some_and(|id| !frames.has_blocks_of(id)))
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
        if let Some(user) = self.cells.iter().find(|live| live.cell.memory.uses_disk(id)) {
            return Err(OperatorError::DiskInUse(user.cell.id));
        }
        self.disks[id.index()] = None;
        self.retired_disks.retain(|retired| *retired != id);
        Ok(())
    }

    /// Removes a disk when no cell uses it any more.
    ///
    /// # Errors
    /// There is no such disk.
    pub(super) fn retire_disk(&mut self, id: DiskId) -> Result<(), OperatorError> {
        match self.remove_disk(id) {
            Err(OperatorError::DiskInUse(_)) => {
                if !self.retired_disks.contains(&id) {
                    self.retired_disks.push(id);
                }
                Ok(())
            }
            outcome => outcome,
        }
    }

    /// A living cell and the frames.
    pub(super) fn living(&mut self, id: CellId) -> Option<(&mut LiveCell, &mut Frames)> {
        let State { cells, frames, .. } = self;
        cells.get_mut(id).map(|live| (live, frames))
    }

    /// A living cell whose run state meets a requirement, and the frames.
    ///
    /// # Errors
    /// There is no such living cell, or its run state does not meet the requirement.
    pub(super) fn require(&mut self, id: CellId, requirement: Requirement) -> Result<(&mut LiveCell, &mut Frames), OperationError> {
        let State { cells, frames, .. } = self;
        if let Some(outcome) = cells.outcome(id) {
            return Err(OperationError::Ended { cell: id, end: outcome.end.clone() });
        }
        let live = cells.get_mut(id).ok_or(OperationError::NoSuchCell(id))?;
        let state = live.execution.run_state();
        if requirement.is_met_by(state) { Ok((live, frames)) } else { Err(OperationError::WrongState { cell: id, state, requirement }) }
    }

    /// The living cell with this identifier, and the frames.
    ///
    /// # Panics
    /// There is none. The caller has looked it up under the same lock, or its vCPU runs the cell, which no other vCPU then ends.
    pub(super) fn expect_living(&mut self, id: CellId) -> (&mut LiveCell, &mut Frames) {
        self.living(id).expect("it was looked up under the same lock, or runs on this vCPU")
    }

    /// Makes a cell runnable.
    pub(super) fn make_ready(&mut self, id: CellId, reason: ReadyReason) {
        if let Some((live, _)) = self.living(id) {
            live.execution.transition(RunState::Ready);
            self.scheduler.ready(id, reason);
        }
    }

    /// Raises an event; `true` if that made the cell runnable.
    pub(super) fn raise(&mut self, id: CellId, event: Event) -> bool {
        let Some((live, frames)) = self.living(id) else { return false };
        let state = live.execution.run_state();
        if state == RunState::Frozen {
            // A template receives no events, and the event is not for its clones.
            return false;
        }
        live.cell.events = live.cell.events.with(event);
        if state == RunState::AwaitingAdmission {
            // The end of the input needs no answer.
            let is_needed = event != Event::Console || live.has_input();
            return is_needed && self.expedite(id);
        }
        let (is_idle, is_asleep) = (matches!(state, RunState::Idle { .. }), matches!(state, RunState::Asleep { .. }));
        // The page of a cell that runs is not read.
        let is_noticed = (is_idle || is_asleep || live.donation.is_some()) && live.cell.has_unmasked_events(frames);
        // A call that was received is not interrupted.
        let wakes = is_idle && is_noticed && !live.ipc.wait.as_ref().is_some_and(|wait| wait.awaits_reply());
        if wakes {
            self.interrupt_wait(id);
            self.make_ready(id, ReadyReason::Woken);
        } else if is_asleep && is_noticed {
            self.request_wake(id);
        } else if is_noticed {
            self.recall_donation(id);
        }
        wakes
    }

    /// Serves the rings of a cell that has the vCPU.
    ///
    /// # Errors
    /// No memory for a page of the cell that must be made, or a block of a disk must be read first.
    pub(super) fn serve_rings(&mut self, id: CellId, now: Nanos) -> Result<(), CopyError> {
        let State { cells, frames, networks, .. } = self;
        let served = cells.serve_rings(id, frames, networks, now);
        self.wake_receivers();
        self.notify_parent_of_output(id);
        served
    }

    /// Notifies cells of frames that have arrived for them.
    pub(super) fn wake_receivers(&mut self) {
        for id in self.networks.take_cells_to_notify() {
            self.notifications.has_woken_receiver |= self.raise(id, Event::Network);
        }
    }

    /// Makes a cell wait for an event, at most until `until`.
    pub(super) fn make_idle(&mut self, id: CellId, until: Nanos) {
        let (live, _) = self.expect_living(id);
        live.execution.transition(RunState::Idle { until });
        live.execution.resumption = Resumption::WithEvents;
        if until != Nanos::NEVER {
            self.set_alarm(id, until);
        }
        let now = self.frames.machine().now();
        self.note_idle(id, now);
    }

    pub(super) fn set_alarm(&mut self, id: CellId, until: Nanos) {
        self.alarms.push(Reverse((until, id)));
        // Cells that were woken by an event, or have ended, leave stale alarms; a waiting cell has one valid alarm.
        if self.alarms.len() > 2 * self.cells.slots() + ALARM_CLEANUP_MIN {
            let mut alarms = mem::take(&mut self.alarms);
            alarms.retain(|Reverse((until, id))| self.alarm_reason(*id, *until).is_some());
            self.alarms = alarms;
        }
    }

    /// The reason for which an alarm makes its cell ready; `None`: the alarm is stale.
    fn alarm_reason(&mut self, id: CellId, moment: Nanos) -> Option<ReadyReason> {
        match self.living(id)?.0.execution.run_state() {
            RunState::Idle { until } | RunState::Asleep { until } if until == moment => Some(ReadyReason::Woken),
            RunState::Throttled { until } if until == moment => Some(ReadyReason::Turn),
            RunState::AwaitingMemory if self.living(id)?.0.execution.memory_deadline == Some(moment) => Some(ReadyReason::Turn),
            _ => None,
        }
    }

    /// Wakes the cells whose time has come.
    pub(super) fn expire_alarms(&mut self, now: Nanos) {
        while let Some(Reverse((until, id))) = self.alarms.peek().copied().filter(|Reverse((until, _))| *until <= now) {
            self.alarms.pop();
            match self.alarm_reason(id, until) {
                Some(_) if self.is_asleep(id) => self.request_wake(id),
                Some(reason) => {
                    self.expire_wait(id, now);
                    self.make_ready(id, reason);
                }
                None => {}
            }
        }
    }

    /// Whether a cell is asleep.
    pub(super) fn is_asleep(&mut self, id: CellId) -> bool {
        self.living(id).is_some_and(|(live, _)| matches!(live.execution.run_state(), RunState::Asleep { .. }))
    }

    /// Time of the next valid alarm.
    pub(super) fn next_alarm(&mut self) -> Nanos {
        while let Some(Reverse((until, id))) = self.alarms.peek().copied() {
            if self.alarm_reason(id, until).is_some() {
                return until;
            }
            self.alarms.pop();
        }
        Nanos::NEVER
    }

    /// Ends a cell that is not running elsewhere: its memory goes to the reaper, its outcome is kept for its parent or the operator, and
    /// its children will end.
    pub(super) fn end(&mut self, id: CellId, end: End) {
        self.end_start_phase(id);
        let Some(mut live) = self.cells.remove(id) else { return };
        live.take_final_output(&mut self.frames);
        live.close();
        if let Some(callback) = &live.on_halt {
            callback(Some(&end));
        }
        self.released.push_all(CellRights::take(&mut live));
        let mut cell = live.cell;
        let halt_waiter = cell.watch.halt_waiter.take();
        self.add_training_trace(&mut cell);
        self.orphans.extend(live.holdings.children().map(|(_, child)| child));
        for disk in self.retired_disks.clone().into_iter().filter(|disk| cell.memory.uses_disk(*disk)) {
            // Another cell may use it still.
            let _ = self.remove_disk(disk);
        }
        let account = cell.memory.account();
        let (report, start) = (cell.report(&self.frames), cell.memory.take_start(&mut self.frames));
        let traffic = live.card.map(|card| self.networks.unplug(card.port));
        let outcome = Outcome { end, counters: cell.counters, usage: self.frames.usage(account), report, traffic, start };
        if let Some(write) = live.execution.unconfirmed {
            write.confirm(&mut self.frames);
        }
        cell.memory.release(&mut self.frames);
        self.frames.close_account(account);
        if let (Some(SleepStage::Stored(record)), Some(swap)) = (live.sleep.map(|sleep| sleep.stage), &self.swap) {
            record.discard(&**swap);
        }
        for base in live.base.into_iter().chain(live.clone_base) {
            self.bases.release(base, &mut self.frames);
        }
        self.ended_exits += outcome.counters.exits;
        self.cells.end(id, outcome, live.parent);
        self.scheduler.remove(id);
        self.notifications.has_stopped_cell = true;
        if !self.sleepers.swap_out_waiters.is_empty() {
            self.wake_swap_out_waiters();
        }
        match live.parent {
            Some(Parent { is_holding: false, .. }) => drop(self.forget(id)),
            Some(Parent { cell: parent, .. }) => self.raise_child_event(parent),
            None => {}
        }
        if let Some(halt_waiter) = halt_waiter {
            self.raise_child_event(halt_waiter);
        }
    }

    /// Adds an ended clone's training trace to its template.
    fn add_training_trace(&mut self, cell: &mut Cell) {
        let trace = cell.memory.end_training().zip(cell.trained_template.take());
        if let Some((trace, template)) = trace
            && let Some((live, _)) = self.living(template)
        {
            live.cell.memory.clone_traces.get_or_insert_default().add(trace);
        }
    }

    /// Ends a cell: at once if it is not running, otherwise at its next exit. [`Shared::notify`] then interrupts its vCPU.
    pub(super) fn request_end(&mut self, id: CellId, end: End) {
        let Some((live, _)) = self.living(id) else { return };
        if let RunState::Running { vcpu } = live.execution.run_state() {
            live.cell.stop_request.end(end);
            self.notifications.interrupts.push(vcpu);
        } else {
            self.end(id, end);
        }
    }

    /// Ends every cell.
    pub(super) fn end_all(&mut self) {
        for id in self.cells.ids() {
            self.request_end(id, End::Killed);
        }
    }

    /// The started cell that the policy would end for want of memory: of the cells of the operator, whose use includes that of their
    /// descendants, and then of that family the cell that uses most itself.
    pub(super) fn victim(&mut self) -> Option<CellId> {
        let mut victim = self.largest_of(None)?;
        while let Some(child) = self.largest_of(Some(victim)) {
            if self.own_use(victim) >= self.use_of(child) {
                break;
            }
            victim = child;
        }
        Some(victim)
    }

    /// The cell that the policy would end among the children of a cell, or among the cells of the operator.
    fn largest_of(&mut self, parent: Option<CellId>) -> Option<CellId> {
        let State { cells, frames, oom_policy, .. } = self;
        let siblings =
            cells.iter().filter(|live| live.parent.map(|parent| parent.cell) == parent && !is_oom_exempt(live) && !is_leaving(live));
        oom_policy.victim(&mut siblings.map(|live| (live.cell.id, frames.usage(live.cell.memory.account()).used)))
    }

    /// Number of frames that a cell and its descendants use.
    fn use_of(&mut self, id: CellId) -> u64 {
        self.living(id).map_or(0, |(live, frames)| frames.usage(live.cell.memory.account()).used.0)
    }

    /// Number of frames that a cell uses without its descendants.
    fn own_use(&mut self, id: CellId) -> u64 {
        let children: Vec<CellId> =
            self.living(id).map_or_else(Vec::new, |(live, _)| live.holdings.children().map(|(_, child)| child).collect());
        let of_children: u64 = children.into_iter().map(|child| self.use_of(child)).sum();
        self.use_of(id).saturating_sub(of_children)
    }

    /// Evicts some blocks from the mappings of cells and of their bases, so that the registry can give them up. Skips cells that run on
    /// other vCPUs. `true`: a retry may succeed.
    pub(super) fn evict(&mut self, own: Option<CellId>) -> bool {
        let mut budget = EVICTION_STEP;
        // One round, and once more the cell where it began.
        let slots = self.cells.slots() + self.bases.slots();
        while self.frames.has_mapped_blocks() && self.eviction.cells_passed <= slots {
            if let Some(base) = self.eviction.slot.checked_sub(self.cells.slots()) {
                if self.bases.evict(base, &mut self.frames, &mut self.eviction.hand, &mut budget) {
                    self.eviction.cells_passed = 0;
                    return true;
                }
                if budget == 0 {
                    return true;
                }
            } else if let Some(live) = self.cells.at_mut(self.eviction.slot)
                && (Some(live.cell.id) == own || !matches!(live.execution.run_state(), RunState::Running { .. }))
            {
                if live.cell.memory.evict(&mut self.frames, &mut self.eviction.hand, &mut budget) {
                    self.eviction.cells_passed = 0;
                    return true;
                }
                if budget == 0 {
                    return true;
                }
            }
            let slot = (self.eviction.slot + 1) % slots.max(1);
            self.eviction = EvictionCursor { slot, hand: ClockHand::default(), cells_passed: self.eviction.cells_passed + 1 };
            budget -= 1;
            if budget == 0 {
                return true;
            }
        }
        self.eviction.cells_passed = 0;
        false
    }

    /// Amount of free memory.
    pub(super) fn free(&self) -> PageCount {
        self.frames.free()
    }
}

/// Whether a cell is no victim when memory is short: it is being built, or is a template. A cell that froze without a request is no
/// template.
fn is_oom_exempt(live: &LiveCell) -> bool {
    match live.execution.run_state() {
        RunState::New => live.parent.is_none(),
        RunState::Frozen => live.cell.is_template,
        _ => false,
    }
}

/// Whether a cell falls asleep: it frees its memory, and would not do so earlier if it ended.
fn is_leaving(live: &LiveCell) -> bool {
    live.sleep.as_ref().is_some_and(|sleep| matches!(sleep.stage, SleepStage::SwappingOut))
}

/// The end of a cell that could not get a page.
pub(super) fn end_for(shortage: Shortage) -> End {
    match shortage {
        Shortage::Quota => End::Quota,
        Shortage::Machine => End::MachineFull,
    }
}
