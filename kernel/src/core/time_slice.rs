// SPDX-License-Identifier: MIT OR Apache-2.0
//! Time slices: the choice of the next cell for a vCPU, by the scheduler, CPU limits, and donations of CPU time.
//!
//! A cell that donates time to a child waits for a vCPU as before. When the scheduler chooses it, its child's family runs in its place.
//! The time counts as the donor's. Donors may form a chain, because a child may donate to its own child; its length is at most the nesting
//! depth of cells.

use super::state::State;
use crate::cell::CellId;
use crate::cell::run_state::RunState;
use crate::sched::ReadyReason;
use crate::sched::donation::Donation;
use pando_abi::holding::DonationEnd;
use pando_machine::Nanos;
use std::time::Duration;

/// A time slice on a vCPU: the cell that gets it, and its terms.
#[derive(Debug)]
pub(super) struct TimeSlice {
    pub(super) cell: CellId,
    /// The longest time that it may run, by limits and donations.
    pub(super) max: Duration,
    /// Those in whose place it runs, the scheduler's choice first.
    donors: Vec<CellId>,
    /// The cell and its ancestors, which pay for the slice. They are recorded, because one that ends meanwhile does not free those above it
    /// from paying.
    path: Vec<CellId>,
    /// End of the quantum that the cell continues. `None`: it has its own quantum.
    pub(super) chain_end: Option<Nanos>,
}

/// A switch from a cell that waits for an answer, or for the next call, to the cell that it has sent a message to. The scheduler does not
/// choose the cell, so it gets only the rest of a quantum. Each cell is charged for its own time.
#[derive(Clone, Copy, Debug)]
pub(super) struct DirectSwitch {
    /// The cell.
    pub(super) cell: CellId,
    /// The end of the quantum.
    pub(super) until: Nanos,
}

impl State {
    /// Takes a cell to run to which the last one on this vCPU has sent a message, for the rest of that one's quantum. `None`: it is not
    /// runnable here and now, or the time of its limit is used up.
    pub(super) fn pick_after_message(&mut self, switch: DirectSwitch, now: Nanos) -> Option<TimeSlice> {
        let DirectSwitch { cell, until } = switch;
        if now >= until || self.scheduler.is_urgent() || !self.is_ready(cell) || self.expect_living(cell).0.donation.is_some() {
            return None;
        }
        if !self.scheduler.take(cell) {
            return None;
        }
        let mut slice = self.follow_donations(cell, now)?;
        slice.max = slice.max.min(until.since(now));
        slice.path = self.path_of(cell);
        slice.chain_end = Some(until);
        Some(slice)
    }

    /// Takes the next cell to run. Cells that have used the time of their limit wait for the next period.
    pub(super) fn pick(&mut self, now: Nanos, vcpu: usize) -> Option<TimeSlice> {
        loop {
            let cell = self.scheduler.next()?;
            if self.is_ready(cell)
                && let Some(mut slice) = self.follow_donations(cell, now)
            {
                slice.path = self.path_of(slice.cell);
                for donor in &slice.donors {
                    if let Some((live, _)) = self.living(*donor)
                        && let Some(donation) = &mut live.donation
                    {
                        donation.vcpu = Some(vcpu);
                    }
                }
                return Some(slice);
            }
        }
    }

    fn is_ready(&mut self, id: CellId) -> bool {
        self.living(id).is_some_and(|(live, _)| live.execution.run_state() == RunState::Ready)
    }

    /// The turn of a cell that the scheduler has chosen. `None`: it has used the time of its limit.
    fn follow_donations(&mut self, chosen: CellId, now: Nanos) -> Option<TimeSlice> {
        let mut slice = TimeSlice { cell: chosen, max: Duration::MAX, donors: Vec::new(), path: Vec::new(), chain_end: None };
        loop {
            match self.time_left(slice.cell, now) {
                Ok(left) => slice.max = slice.max.min(left),
                Err(until) => {
                    self.expect_living(slice.cell).0.execution.transition(RunState::Throttled { until });
                    self.set_alarm(slice.cell, until);
                    self.end_start_phase(slice.cell);
                    // Another cell of the family may run.
                    slice.cell = slice.donors.pop()?;
                    continue;
                }
            }
            let Some(donation) = self.expect_living(slice.cell).0.donation.as_deref().copied() else { return Some(slice) };
            match self.next_for_donor(slice.cell, donation, now) {
                Ok((next, max)) => {
                    slice.max = slice.max.min(max);
                    slice.donors.push(slice.cell);
                    slice.cell = next;
                }
                Err(end) => {
                    let live = self.expect_living(slice.cell).0;
                    live.donation = None;
                    live.execution.context.registers.rax = end as u64;
                    return Some(slice);
                }
            }
        }
    }

    /// Takes the next cell that runs in place of a donor, and the longest time that it may run.
    ///
    /// # Errors
    /// The donation has ended.
    fn next_for_donor(&mut self, donor: CellId, donation: Donation, now: Nanos) -> Result<(CellId, Duration), DonationEnd> {
        match self.living(donation.child).map(|(live, _)| live.execution.run_state()) {
            None => return Err(DonationEnd::Ended),
            Some(RunState::New | RunState::Halted | RunState::Frozen) => return Err(DonationEnd::Stopped),
            Some(_) if donation.left.is_zero() => return Err(DonationEnd::TimeOver),
            Some(_) => {}
        }
        let (live, frames) = self.expect_living(donor);
        let timer = live.cell.idles_until(frames, Nanos::NEVER);
        // The rest of the donor's quantum, or a new one.
        let rest = Some(live.execution.quantum_left).filter(|rest| !rest.is_zero()).unwrap_or(Duration::MAX);
        let must_stop = live.cell.stop_request.is_forced_freeze() || live.cell.watch.must_halt;
        if must_stop || timer <= now || live.cell.has_unmasked_events(frames) {
            return Err(DonationEnd::Event);
        }
        loop {
            let cell = self.scheduler.next_of_family(donation.child).ok_or(DonationEnd::Idle)?;
            if self.is_ready(cell) {
                return Ok((cell, rest.min(donation.left).min(timer.since(now))));
            }
        }
    }

    /// How long a cell may run now: as long as its own limit and those of its ancestors allow.
    ///
    /// # Errors
    /// The time of a limit is used up; the cell may run again at the returned time.
    fn time_left(&mut self, id: CellId, now: Nanos) -> Result<Duration, Nanos> {
        let mut left = Ok(Duration::MAX);
        let mut next = Some(id);
        while let Some((live, _)) = next.and_then(|id| self.living(id)) {
            next = live.parent.map(|parent| parent.cell);
            let Some(cpu_budget) = &mut live.cpu_budget else { continue };
            left = match (left, cpu_budget.left(now)) {
                (Ok(left), Ok(own)) => Ok(left.min(own)),
                (Err(until), Err(own)) => Err(until.max(own)),
                (Err(until), Ok(_)) | (Ok(_), Err(until)) => Err(until),
            };
        }
        left
    }

    /// A cell and its ancestors, up to the cell of the operator.
    fn path_of(&mut self, id: CellId) -> Vec<CellId> {
        let mut path = Vec::new();
        let mut next = Some(id);
        while let Some((live, _)) = next.and_then(|id| self.living(id)) {
            if path.is_empty() {
                path.reserve_exact(usize::from(live.depth) + 1);
            }
            path.push(live.cell.id);
            next = live.parent.map(|parent| parent.cell);
        }
        path
    }

    /// Charges the CPU limits of a cell and its ancestors for a turn, and the schedule.
    pub(super) fn charge(&mut self, slice: &TimeSlice, time: Duration) {
        for id in &slice.path {
            if let Some((live, _)) = self.living(*id)
                && let Some(cpu_budget) = &mut live.cpu_budget
            {
                cpu_budget.spend(time);
            }
        }
        self.charge_schedule(slice, time);
    }

    /// Charges the members of the scheduling tree in whose place a cell ran. A donor pays for its child and for the child's place in the
    /// donor's family.
    fn charge_schedule(&mut self, slice: &TimeSlice, time: Duration) {
        let mut path = &slice.path[..];
        for donor in slice.donors.iter().rev() {
            let (below, above) = split_at_donor(path, *donor);
            if let [payer, ..] = path {
                self.scheduler.charge(*payer, below, time);
            }
            path = above;
        }
        if let [payer, ..] = path {
            self.scheduler.charge(*payer, path, time);
        }
    }

    /// Charges a cell for time that it has given up. Donors do not pay for that: the time is still theirs.
    pub(super) fn charge_given_up(&mut self, slice: &TimeSlice, time: Duration) {
        let members = slice.donors.last().map_or(&slice.path[..], |donor| split_at_donor(&slice.path, *donor).0);
        self.scheduler.charge(slice.cell, members, time);
    }

    /// Makes a cell runnable that has left its vCPU in the middle of its quantum, or at the end.
    pub(super) fn make_ready_after_quantum(&mut self, id: CellId) {
        let is_over = self.expect_living(id).0.execution.quantum_left.is_zero();
        self.make_ready(id, if is_over { ReadyReason::Turn } else { ReadyReason::Interrupted });
    }

    /// Lets the donors of a turn wait for their next one.
    pub(super) fn resume_donors(&mut self, slice: &TimeSlice, time: Duration) {
        for donor in slice.donors.iter().rev() {
            // It may have been ended meanwhile.
            let Some((live, _)) = self.living(*donor) else { continue };
            let rest = &mut live.execution.quantum_left;
            *rest = rest.saturating_sub(time);
            let reason = if rest.is_zero() { ReadyReason::Turn } else { ReadyReason::Interrupted };
            if let Some(donation) = &mut live.donation {
                donation.left = donation.left.saturating_sub(time);
                donation.vcpu = None;
            }
            self.scheduler.ready(*donor, reason);
        }
    }

    /// Ends the turn that runs in place of a cell, if there is one: the cell has something to do.
    pub(super) fn recall_donation(&mut self, id: CellId) {
        if let Some((live, _)) = self.living(id)
            && let Some(vcpu) = live.donation.as_ref().and_then(|donation| donation.vcpu)
        {
            self.request_yield(vcpu);
        }
    }

    /// Takes the cell that a vCPU runs off it soon.
    pub(super) fn request_yield(&mut self, vcpu: usize) {
        if let Some(running) = &mut self.vcpus[vcpu] {
            running.must_yield = true;
            self.notifications.interrupts.push(vcpu);
        }
    }
}

/// The members of a path below a donor's child, and the path from the donor on.
fn split_at_donor(path: &[CellId], donor: CellId) -> (&[CellId], &[CellId]) {
    let index = path.iter().position(|id| *id == donor).unwrap_or(0);
    (&path[..index.saturating_sub(1)], &path[index..])
}
