// SPDX-License-Identifier: MIT OR Apache-2.0
//! Watching: the events of a cell that halt it for its parent, how it continues, and the state that its parent sets.

use super::CellId;
use super::end::End;
use pando_abi::watch::{HaltReason, mask, resume, state};
use pando_abi::{Refusal, Registers};
use pando_machine::{Context, VectorState};

/// Called under the kernel's lock when a watched cell halts, and with its end when it ends: it must not block, nor use the kernel.
pub type WatchCallback = Box<dyn Fn(Option<&End>) + Send>;

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
    /// A need of memory beyond a quota.
    pub(crate) const SHORTAGE: WatchMask = WatchMask(mask::SHORTAGE);

    /// Checks an argument of a hypercall.
    ///
    /// # Errors
    /// A bit is not defined.
    pub(crate) fn from_bits(bits: u64) -> Result<WatchMask, Refusal> {
        if bits & !mask::ALL == 0 { Ok(WatchMask(bits)) } else { Err(Refusal::BadArgument) }
    }

    /// Its bits.
    pub(crate) fn bits(self) -> u64 {
        self.0
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

/// A part of the state of a cell that is halted or was not started.
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
    /// Its descendants from this one on, whether it is halted or not.
    Descendants {
        /// Descendants that are left out.
        first: u32,
    },
    /// The mounts of its spaces from this one on.
    Mounts {
        /// Mounts that are left out.
        first: u32,
    },
    /// The swap numbers in its memory.
    SwapNumbers {
        /// The first of them.
        first: u32,
    },
    /// Of a child that was not started: all of its state but its memory.
    Image,
    /// Of a child that was not started: its spaces and segments.
    Layout,
    /// Of a child that was not started: extents of its memory.
    Extents,
    /// Its holdings from this one on.
    Holdings {
        /// Places that are left out.
        first: u32,
    },
    /// The unread bytes on its console from this one on.
    Console {
        /// Bytes that are left out.
        first: u32,
    },
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
            state::IMAGE => Ok(StateKind::Image),
            state::LAYOUT => Ok(StateKind::Layout),
            state::EXTENTS => Ok(StateKind::Extents),
            // The upper half is a number for these kinds only.
            _ => {
                let first = (bits >> 32) as u32;
                match u64::from(bits as u32) {
                    state::DESCENDANTS => Ok(StateKind::Descendants { first }),
                    state::MOUNTS => Ok(StateKind::Mounts { first }),
                    state::SWAP_NUMBERS => Ok(StateKind::SwapNumbers { first }),
                    state::HOLDINGS => Ok(StateKind::Holdings { first }),
                    state::CONSOLE => Ok(StateKind::Console { first }),
                    _ => Err(Refusal::BadArgument),
                }
            }
        }
    }
}

/// State that a parent sets, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CpuState {
    /// The context.
    Context(Context),
    /// The vector state.
    Vector(VectorState),
    /// The registers of the program.
    Program(Registers),
}

impl CpuState {
    /// Decodes bytes.
    ///
    /// # Errors
    /// No cell can have this state, or no cell can have it set.
    pub(crate) fn decode(kind: StateKind, bytes: &[u8]) -> Result<CpuState, Refusal> {
        let words = || bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect::<Vec<u64>>();
        let state = match kind {
            StateKind::Reason
            | StateKind::Descendants { .. }
            | StateKind::Mounts { .. }
            | StateKind::SwapNumbers { .. }
            | StateKind::Image
            | StateKind::Layout
            | StateKind::Extents
            | StateKind::Holdings { .. }
            | StateKind::Console { .. } => return Err(Refusal::ReadOnly),
            StateKind::Context => words().try_into().ok().and_then(Context::from_words).map(CpuState::Context),
            StateKind::Program => words().try_into().ok().map(|words| CpuState::Program(Registers::from_words(words))),
            StateKind::Vector => {
                let words: Vec<u32> = bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
                VectorState::from_untrusted(&words).map(CpuState::Vector)
            }
        };
        state.ok_or(Refusal::BadArgument)
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
    pub(crate) reason: Option<Box<HaltReason>>,
    /// The reason of the halt with which it starts: it was built from an image of a cell that was halted.
    pub(crate) first_reason: Option<Box<HaltReason>>,
    /// Its parent has halted it, and has not resumed it.
    pub(crate) is_halted_by_parent: bool,
    /// A cell above its parent that waits for its halt.
    pub(crate) halt_waiter: Option<CellId>,
}
