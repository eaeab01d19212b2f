// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cells below a program while they are halted for a checkpoint.
//!
//! The program's cell is halted first, then each cell after its parent: so no monitor among them sees a halt that is not its own. Each is
//! cloned as a child of the checkpointer's cell, because a clone that never runs needs no place in a family.

use super::image::{MemberRecord, MemberRunState};
use crate::watched_cell::StateAccess;
use crate::watched_child::WatchedChild;
use pando_abi::HoldingName;
use pando_abi::holding::ChildState;
use pando_abi::holding_record::{ChildRecord, HoldingContent, HoldingRecord};
use pando_abi::limits::MAX_CONSOLE_BYTES;
use pando_abi::watch::{HaltReason, resume, state};
use pando_machine::CellsDevice;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{Error, ErrorKind, Result};
use std::time::{Duration, Instant};

/// How long a nested cell may take to halt: it finishes the work of one call. One without CPU time of its own may never do it.
pub(super) const MEMBER_HALT_MAX: Duration = Duration::from_secs(2);
/// Interval between two looks at the state of a nested cell: the device does not report an end to the holder of a view.
pub(super) const STATE_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };

/// A halted cell of a family.
struct Member {
    member_record: MemberRecord,
    /// The program's cell, or a view.
    cell: HoldingName,
    /// Pages that it may use.
    quota: u64,
    /// It was halted for the checkpoint only.
    must_resume: bool,
}

/// A halted family, the program's cell first.
pub(super) struct HaltedFamily<'a> {
    device: &'a CellsDevice,
    members: Vec<Member>,
    until: Option<Instant>,
}

impl<'a> HaltedFamily<'a> {
    /// Halts all cells below a halted one. `until`: the time at which all are halted, or continue.
    ///
    /// # Errors
    /// A cell is in a state, or holds something, that an image cannot contain.
    pub(super) fn halt(device: &'a CellsDevice, program: HoldingName, quota: u64, until: Option<Instant>) -> Result<HaltedFamily<'a>> {
        let mut family = HaltedFamily { device, members: Vec::new(), until };
        let member_record = MemberRecord { path: Vec::new(), state: MemberRunState::Started, holdings: Vec::new(), console: Vec::new() };
        family.members.push(Member { member_record, cell: program, quota, must_resume: false });
        let mut next = 0;
        while next < family.members.len() {
            family.halt_children(next)?;
            next += 1;
        }
        Ok(family)
    }

    /// Halts the children of a member, and adds them.
    fn halt_children(&mut self, index: usize) -> Result<()> {
        let Member { cell, member_record, .. } = &self.members[index];
        let (cell, path) = (*cell, member_record.path.clone());
        let records = self.device.holdings(cell)?;
        for record in &records {
            match record.content {
                HoldingContent::Nothing | HoldingContent::Root => {}
                HoldingContent::Child(child) => self.halt_child(cell, &path, record.name, &child)?,
                HoldingContent::Other => return Err(cannot_checkpoint("holds a port, a reference or a cell that was given to it")),
            }
        }
        self.members[index].member_record.holdings = records.into_iter().map(HoldingRecord::to_words).collect();
        Ok(())
    }

    fn halt_child(&mut self, parent: HoldingName, path: &[u64], name: HoldingName, record: &ChildRecord) -> Result<()> {
        if record.has_control {
            return Err(cannot_checkpoint("runs programs of `pando exec`"));
        }
        if record.weight == 0 {
            // After a restore it would have to run before its parent does.
            return Err(cannot_checkpoint("has CPU time from its parent only"));
        }
        let path = path.iter().copied().chain([name.bits()]).collect();
        let member_record = MemberRecord { path, state: MemberRunState::New, holdings: Vec::new(), console: Vec::new() };
        let cell = self.device.view(parent, name)?;
        // From now on it is given up with the others.
        self.members.push(Member { member_record, cell, quota: record.quota, must_resume: false });
        let mut is_requested = false;
        let halted = self.halt_cell(cell, record, &mut is_requested);
        if halted.is_err() && is_requested && !record.is_halted_by_parent {
            self.withdraw_halt(cell);
        }
        let (state, must_resume) = halted?;
        if let Some(member) = self.members.last_mut() {
            (member.member_record.state, member.must_resume) = (state, must_resume);
        }
        let console = self.console(cell)?;
        if let Some(member) = self.members.last_mut() {
            member.member_record.console = console;
        }
        Ok(())
    }

    /// Takes back a halt that was requested here. A cell that another event has halted stays so for its parent.
    fn withdraw_halt(&self, cell: HoldingName) {
        let reason = WatchedChild { device: self.device, name: cell }.reason_if_halted();
        if !matches!(reason, Ok(Some(reason)) if reason != HaltReason::Requested) {
            // It is an error for a cell that runs, whose halt is withdrawn all the same.
            let _ = self.device.resume(cell, resume::CONTINUE);
        }
    }

    /// Halts a nested cell, whose parent is halted. `is_requested`: a halt was requested. Returns its state, and whether it must be
    /// resumed.
    fn halt_cell(&self, cell: HoldingName, record: &ChildRecord, is_requested: &mut bool) -> Result<(MemberRunState, bool)> {
        let began = Instant::now();
        loop {
            self.device.forget_events()?;
            match self.device.state(cell)? {
                ChildState::New => return Ok((MemberRunState::New, false)),
                ChildState::Halted => break,
                ChildState::Frozen => return Err(cannot_checkpoint("is a template")),
                ChildState::Started { .. } => {}
                // A moment later its parent has noticed it.
                _ => return Err(Error::new(ErrorKind::WouldBlock, cannot_checkpoint("has ended, and its parent still holds it"))),
            }
            if !*is_requested {
                self.device.halt(cell)?;
                *is_requested = true;
                continue;
            }
            if began.elapsed() > MEMBER_HALT_MAX || self.until.is_some_and(|until| until <= Instant::now()) {
                return Err(cannot_checkpoint("did not halt in time"));
            }
            // An interrupted wait looks again, too.
            let _ = poll(&mut [PollFd::new(self.device, PollFlags::IN)], Some(&STATE_INTERVAL));
        }
        let reason = WatchedChild { device: self.device, name: cell }.reason()?;
        let is_own = *is_requested && reason == HaltReason::Requested && !record.is_halted_by_parent;
        Ok(if is_own { (MemberRunState::Started, true) } else { (MemberRunState::Halted(reason.to_words()), false) })
    }

    /// The unread bytes on a cell's console.
    fn console(&self, cell: HoldingName) -> Result<Vec<Vec<u8>>> {
        let (mut parts, mut skipped) = (Vec::new(), 0_u64);
        loop {
            let mut bytes = vec![0; MAX_CONSOLE_BYTES as usize];
            let count = self.device.read_state(cell, state::CONSOLE | skipped << 32, &mut bytes)?;
            bytes.truncate(count);
            let streams = bytes.first_chunk().map_or(0, |count| u64::from_le_bytes(*count));
            // The first part has more than bytes of streams.
            if streams > 0 || parts.is_empty() {
                parts.push(bytes);
            }
            if streams == 0 {
                return Ok(parts);
            }
            skipped += streams;
        }
    }

    /// Clones all cells. The clones are children of this process's cell.
    ///
    /// # Errors
    /// There are too many cells, or there is not enough memory.
    pub(super) fn clone_cells(&self) -> Result<Vec<(MemberRecord, HoldingName)>> {
        let mut clones: Vec<(MemberRecord, HoldingName)> = Vec::new();
        for Member { member_record, cell, quota, .. } in &self.members {
            match self.device.clone_cell(*cell, *quota, 0) {
                Ok(clone) => clones.push((member_record.clone(), clone)),
                Err(error) => {
                    for (_, clone) in clones {
                        let _ = self.device.give_up(clone);
                    }
                    return Err(error);
                }
            }
        }
        Ok(clones)
    }
}

impl Drop for HaltedFamily<'_> {
    /// Lets all nested cells continue, children before their parents. The program's cell stays halted.
    fn drop(&mut self) {
        for Member { cell, must_resume, .. } in self.members.drain(..).skip(1).rev() {
            if must_resume {
                // It may have been ended by the operator.
                let _ = self.device.resume(cell, resume::CONTINUE);
            }
            let _ = self.device.give_up(cell);
        }
    }
}

fn cannot_checkpoint(reason: &str) -> Error {
    Error::other(format!("a nested cell of the program {reason}"))
}
