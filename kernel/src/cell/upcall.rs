// SPDX-License-Identifier: MIT OR Apache-2.0
//! Upcalls: delivery of exceptions and events to a libOS.

use super::Cell;
use super::end::{End, FaultReport};
use super::execution::ExecutionContext;
use crate::memory::{CopyError, Frames};
use pando_abi::registers::{FIXED_FLAGS, USER_FLAGS, cause};
use pando_abi::virtual_registers::{Control, offset};
use pando_abi::{Event, EventSet, Registers, SavedContext};
use pando_machine::{Exception, Nanos};

/// The vector of an invalid opcode.
const INVALID_OPCODE: u8 = 6;

/// The trap flag: a debug exception follows the next instruction.
pub(crate) const TRAP_FLAG: u64 = 1 << 8;

/// An entry into the libOS, and what it is told.
struct Upcall {
    entry: u64,
    cause: u64,
    error: u64,
    address: u64,
}

impl ExecutionContext {
    /// Delivers an exception to the libOS.
    ///
    /// # Errors
    /// The cell ends: the libOS has no handler, this is its third exception in a row, or there is no memory to save the context.
    pub(crate) fn raise(&mut self, cell: &mut Cell, frames: &mut Frames, exception: Exception) -> Result<(), End> {
        self.raise_as(cell, frames, u64::from(exception.vector), exception)?;
        cell.counters.exceptions += 1;
        Ok(())
    }

    /// Delivers a system call to the libOS. Without a handler, `syscall` is an invalid opcode.
    ///
    /// # Errors
    /// As for an exception.
    pub(crate) fn raise_syscall(&mut self, cell: &mut Cell, frames: &mut Frames) -> Result<(), End> {
        self.raise_as(cell, frames, cause::SYSCALL, Exception { vector: INVALID_OPCODE, error: 0, address: 0 })?;
        cell.counters.syscalls += 1;
        Ok(())
    }

    fn raise_as(&mut self, cell: &mut Cell, frames: &mut Frames, cause: u64, exception: Exception) -> Result<(), End> {
        let control = cell.control(frames);
        let Exception { vector, error, address } = exception;
        let report = FaultReport { vector, error, address, instruction: self.context.registers.rip };
        if control.exception_entry == 0 {
            return Err(End::Fault(report));
        }
        if level(&control, self.context.registers.rip) >= 2 {
            return Err(End::DoubleFault(report));
        }
        // The saved flags go on stepping. Events must come again before that, as the libOS may run other threads.
        cell.watch.is_stepping = false;
        self.enter(cell, frames, &control, Upcall { entry: control.exception_entry, cause, error, address })
    }

    /// Makes a debug exception follow the next instruction of the program.
    ///
    /// # Errors
    /// The virtual registers could not be written: the cell ends.
    pub(crate) fn trap_next(&mut self, cell: &mut Cell, frames: &mut Frames) -> Result<(), End> {
        if level(&cell.control(frames), self.context.registers.rip) == 0 {
            self.context.registers.rflags |= TRAP_FLAG;
            return Ok(());
        }
        // The libOS runs: the program's flags are on level 0.
        let mut registers = self.program_registers(cell, frames).map_err(end_of)?;
        registers.rflags |= TRAP_FLAG;
        self.set_program_registers(cell, frames, &registers).map_err(end_of)
    }

    /// The registers of the program: while the libOS runs, they are on save level 0.
    ///
    /// # Errors
    /// The virtual registers could not be read.
    pub(crate) fn program_registers(&self, cell: &mut Cell, frames: &Frames) -> Result<Registers, CopyError> {
        if level(&cell.control(frames), self.context.registers.rip) == 0 {
            return Ok(self.context.registers);
        }
        Ok(cell.saved_context(frames)?.registers())
    }

    /// Sets the registers of the program; flags that no program may set are left out.
    ///
    /// # Errors
    /// The virtual registers could not be written.
    pub(crate) fn set_program_registers(&mut self, cell: &mut Cell, frames: &mut Frames, registers: &Registers) -> Result<(), CopyError> {
        let registers = Registers { rflags: registers.rflags & USER_FLAGS | FIXED_FLAGS, ..*registers };
        if level(&cell.control(frames), self.context.registers.rip) == 0 {
            self.context.registers = registers;
            return Ok(());
        }
        let SavedContext { cause, error, address, .. } = cell.saved_context(frames)?;
        let saved = SavedContext::new(&registers, cause, error, address);
        cell.set_words(frames, offset::SAVES, &saved.to_words())
    }

    /// Makes the upcall for pending events, if the cell may be interrupted.
    ///
    /// # Errors
    /// There is no memory to save the context: the cell ends.
    pub(crate) fn deliver_events(&mut self, cell: &mut Cell, frames: &mut Frames) -> Result<(), End> {
        let control = cell.control(frames);
        let deliverable = control.pending & !control.mask;
        // An exception that the CPU is about to raise belongs to the interrupted instruction, and comes first.
        let interruptible = !cell.watch.is_stepping
            && control.critical == 0
            && level(&control, self.context.registers.rip) == 0
            && !self.context.is_raising();
        if deliverable != 0 && interruptible && control.event_entry != 0 {
            cell.counters.events += 1;
            let upcall = Upcall { entry: control.event_entry, cause: cause::EVENTS, error: deliverable, address: 0 };
            self.enter(cell, frames, &control, upcall)?;
        }
        Ok(())
    }

    /// Saves the context and enters the libOS.
    fn enter(&mut self, cell: &mut Cell, frames: &mut Frames, control: &Control, upcall: Upcall) -> Result<(), End> {
        let Upcall { entry, cause, error, address } = upcall;
        let rflags = self.context.loaded_flags();
        let registers = &mut self.context.registers;
        registers.rflags = rflags;
        let below = level(control, registers.rip) as usize;
        let saved = SavedContext::new(registers, cause, error, address);
        registers.rip = entry;
        registers.rsp = control.stacks[below];
        // A libOS expects entry with single-stepping off and the direction flag clear.
        registers.rflags = 0;
        let place = offset::SAVES + below * SavedContext::WORDS * 8;
        cell.set_words(frames, place, &saved.to_words()).map_err(end_of)?;
        cell.set_words(frames, offset::CRITICAL, &[1, below as u64 + 1]).map_err(end_of)?;
        if !self.context.is_loadable() {
            return Err(End::Violation(pando_machine::Violation::BadContext));
        }
        Ok(())
    }
}

impl Cell {
    /// Writes pending state into the virtual registers: the timer event if it is due, the new window size, and the events since the
    /// last call.
    ///
    /// # Errors
    /// There is no memory to write it: the cell ends.
    pub(crate) fn publish_events(&mut self, frames: &mut Frames, now: Nanos) -> Result<(), End> {
        let control = self.control(frames);
        if Nanos(control.timer) <= now {
            self.events = self.events.with(Event::Timer);
            self.set_word(frames, offset::TIMER, u64::MAX).map_err(end_of)?;
        }
        if let Some(size) = self.window.take() {
            self.set_words(frames, offset::WINDOW, &size.map(u64::from)).map_err(end_of)?;
        }
        if !self.events.is_empty() {
            self.set_word(frames, offset::PENDING, control.pending | self.events.0).map_err(end_of)?;
            self.events = EventSet::NONE;
        }
        Ok(())
    }

    /// Withdraws events that were not delivered.
    pub(crate) fn withdraw(&mut self, frames: &mut Frames, events: EventSet) {
        self.events = self.events.without(events);
        let (pending, _) = self.shown_events(frames);
        if pending != pending.without(events) {
            // If the cell was entered, the page is its own. Otherwise the events stay pending, without effect.
            let _ = self.set_word(frames, offset::PENDING, pending.without(events).0);
        }
    }

    /// Whether an unmasked event is pending, so that idling would end at once.
    pub(crate) fn has_unmasked_events(&mut self, frames: &Frames) -> bool {
        let (pending, mask) = self.shown_events(frames);
        (pending.0 | self.events.0) & !mask.0 != 0
    }

    /// When idling ends if no event comes: at `deadline`, or when the timer is due, unless that event is masked.
    pub(crate) fn idles_until(&mut self, frames: &Frames, deadline: Nanos) -> Nanos {
        let control = self.control(frames);
        if EventSet(control.mask).contains(Event::Timer) { deadline } else { deadline.min(Nanos(control.timer)) }
    }
}

/// The libOS's nesting level: its own value, but at least 1 while it is leaving.
pub(crate) fn level(control: &Control, rip: u64) -> u64 {
    control.level.max(u64::from(control.is_in_exit_path(rip)))
}

/// The end of a cell whose virtual registers could not be written.
pub(crate) fn end_of(error: CopyError) -> End {
    match error {
        CopyError::Shortage(crate::memory::Shortage::Machine) => End::MachineFull,
        // The page is the cell's own, and none of its calls can remap it.
        CopyError::Shortage(crate::memory::Shortage::Quota)
        | CopyError::Refused
        | CopyError::Absent(_)
        | CopyError::Taken(_)
        | CopyError::Unreadable => End::Quota,
    }
}

const _: () = assert!(offset::LEVEL == offset::CRITICAL + 8, "`enter` writes both words at once");
