// SPDX-License-Identifier: MIT OR Apache-2.0
//! Watching: the events of a cell that halt it for its parent, and how it continues.

use super::Cell;
use super::execution::ExecutionContext;
use super::upcall::level;
use crate::memory::Frames;
use pando_abi::Refusal;
use pando_abi::watch::{HaltReason, mask, resume, state};
use pando_machine::Exception;

/// The trap flag: a debug exception follows the next instruction.
pub(crate) const TRAP_FLAG: u64 = 1 << 8;
/// The vector of debug exceptions.
const DEBUG: u8 = 1;

/// A set of events that halt a cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WatchMask(u64);

impl WatchMask {
    /// Debug and breakpoint exceptions of programs.
    pub(crate) const EXCEPTIONS: WatchMask = WatchMask(mask::EXCEPTIONS);
    /// The instruction `syscall` of programs.
    pub(crate) const SYSCALLS: WatchMask = WatchMask(mask::SYSCALLS);
    /// Reports of the libOS.
    pub(crate) const REPORTS: WatchMask = WatchMask(mask::REPORTS);

    /// Checks an argument of a hypercall.
    ///
    /// # Errors
    /// A bit is not defined.
    pub(crate) fn from_bits(bits: u64) -> Result<WatchMask, Refusal> {
        if bits & !mask::ALL == 0 { Ok(WatchMask(bits)) } else { Err(Refusal::BadArgument) }
    }

    /// Whether it includes all of `other`.
    pub(crate) fn contains(self, other: WatchMask) -> bool {
        self.0 & other.0 == other.0
    }
}

/// How a halted cell continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResumeMode {
    /// As its registers say.
    Continue,
    /// The same, for one instruction of its program.
    Step,
    /// The exception or system call that halted it goes to its libOS.
    Deliver,
}

impl ResumeMode {
    /// Checks an argument of a hypercall.
    ///
    /// # Errors
    /// It is none of the modes.
    pub(crate) fn from_bits(bits: u64) -> Result<ResumeMode, Refusal> {
        match bits {
            resume::CONTINUE => Ok(ResumeMode::Continue),
            resume::STEP => Ok(ResumeMode::Step),
            resume::DELIVER => Ok(ResumeMode::Deliver),
            _ => Err(Refusal::BadArgument),
        }
    }
}

/// A part of the state of a halted cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StateKind {
    /// Why it is halted.
    Reason,
    /// Its context.
    Context,
    /// Its vector state.
    Vector,
    /// The registers of its program.
    Program,
}

impl StateKind {
    /// Checks an argument of a hypercall.
    ///
    /// # Errors
    /// It is none of the kinds.
    pub(crate) fn from_bits(bits: u64) -> Result<StateKind, Refusal> {
        match bits {
            state::REASON => Ok(StateKind::Reason),
            state::CONTEXT => Ok(StateKind::Context),
            state::VECTOR => Ok(StateKind::Vector),
            state::PROGRAM => Ok(StateKind::Program),
            _ => Err(Refusal::BadArgument),
        }
    }
}

/// How a cell is watched.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// The events that halt it.
    pub(crate) mask: WatchMask,
    /// Its parent halts it: it halts before its next instruction.
    pub(crate) must_halt: bool,
    /// It executes a single instruction of its program; no event is delivered before.
    pub(crate) is_stepping: bool,
    /// Why it is halted.
    pub(crate) reason: Option<HaltReason>,
}

impl ExecutionContext {
    /// Whether an event of the program must halt the cell. Events of the libOS itself halt nothing.
    pub(crate) fn is_watched(&self, cell: &mut Cell, frames: &Frames, event: WatchMask) -> bool {
        cell.watch.mask.contains(event) && level(&cell.control(frames), self.context.registers.rip) == 0
    }

    /// The reason for a halt by an exception. After a step the program continues without steps.
    pub(crate) fn halt_reason(&mut self, cell: &mut Cell, exception: Exception) -> HaltReason {
        let Exception { vector, error, address } = exception;
        if vector == DEBUG && std::mem::take(&mut cell.watch.is_stepping) {
            self.context.registers.rflags &= !TRAP_FLAG;
        }
        HaltReason::Exception { vector, error: error.into(), address }
    }
}
