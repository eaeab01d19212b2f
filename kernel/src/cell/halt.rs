// SPDX-License-Identifier: MIT OR Apache-2.0
//! Halts of watched cells: the events that cause them, and the state that a parent then sets.

use super::Cell;
use super::execution::{ExecutionContext, SavedVector};
use super::upcall::{TRAP_FLAG, level};
use super::watch::{CpuState, WatchMask};
use crate::memory::{CopyError, Frames};
use pando_abi::watch::HaltReason;
use pando_machine::Exception;

/// The vector of debug exceptions.
const DEBUG: u8 = 1;

impl ExecutionContext {
    /// Whether an event of the program must halt the cell. Events of the libOS itself halt nothing.
    pub(crate) fn must_halt_for(&self, cell: &mut Cell, frames: &Frames, event: WatchMask) -> bool {
        cell.watch.mask.contains(event) && level(&cell.control(frames), self.context.registers.rip) == 0
    }

    /// Sets state that a parent has chosen.
    ///
    /// # Errors
    /// The virtual registers could not be written.
    pub(crate) fn set_state(&mut self, cell: &mut Cell, frames: &mut Frames, state: &CpuState) -> Result<(), CopyError> {
        match state {
            CpuState::Context(context) => {
                self.context = *context;
                // An instruction or call that was to be made again is not the one in these registers.
                self.work = None;
            }
            CpuState::Vector(vector) => self.vector = SavedVector::Saved(vector.clone()),
            CpuState::Program(registers) => self.set_program_registers(cell, frames, registers)?,
        }
        Ok(())
    }

    /// The reason for a halt by an exception. After a step the program continues without steps.
    pub(crate) fn halt_reason(&mut self, cell: &mut Cell, exception: Exception) -> HaltReason {
        let Exception { vector, error, address } = exception;
        if vector == DEBUG && std::mem::take(&mut cell.watch.is_stepping) {
            self.context.registers.rflags &= !TRAP_FLAG;
        }
        HaltReason::Exception { vector, error, address }
    }
}
