// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state that a vCPU loads, and the reasons why it exits.

use crate::frame::FrameId;
use pando_abi::Registers;
use pando_abi::registers::{FIXED_FLAGS, USER_FLAGS};
use std::fmt;

/// An address space to run in.
///
/// `stamp` distinguishes translations (rule 6 of the page-table discipline). A vCPU that last ran the same table with another
/// stamp flushes its translations. Use a new stamp whenever the table was rebuilt, or its cell has run on another vCPU since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Root {
    /// The root table.
    pub table: FrameId,
    /// The generation of the table.
    pub stamp: u64,
}

/// Pending events of a context: a queued exception, an interrupt shadow. Opaque; a preempted context keeps them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pending {
    pub(crate) exception: Option<QueuedException>,
    pub(crate) interrupt_shadow: u8,
}

/// An exception that was raised and not yet delivered when the context was interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueuedException {
    pub(crate) vector: u8,
    pub(crate) error: Option<u32>,
}

/// Vectors of exceptions that a program at CPL 3 can raise.
const RAISED: u32 = 0b0010_1011_0111_1100_1111_1011;
/// Those of them that push an error code.
const WITH_ERROR: u32 = 0b0010_0010_0111_1100_0000_0000;

/// Layout of `pending` in its word: the shadow, the vector, whether there is an exception and an error code, the code.
impl Pending {
    const EXCEPTION: u64 = 1 << 16;
    const ERROR: u64 = 1 << 17;

    fn to_word(self) -> u64 {
        let exception = self.exception.map_or(0, |QueuedException { vector, error }| {
            let error = error.map_or(0, |code| Pending::ERROR | u64::from(code) << 32);
            Pending::EXCEPTION | u64::from(vector) << 8 | error
        });
        u64::from(self.interrupt_shadow) | exception
    }

    /// `None`: no program can cause this state.
    fn from_word(word: u64) -> Option<Pending> {
        let [interrupt_shadow, vector, ..] = word.to_le_bytes();
        let error = (word & Pending::ERROR != 0).then_some((word >> 32) as u32);
        let exception = (word & Pending::EXCEPTION != 0).then_some(QueuedException { vector, error });
        let pending = Pending { exception, interrupt_shadow };
        let can_be = |set: u32, vector: u8| vector < 32 && set & 1 << vector != 0;
        let is_sound = exception
            .is_none_or(|QueuedException { vector, error }| can_be(RAISED, vector) && can_be(WITH_ERROR, vector) == error.is_some());
        (is_sound && interrupt_shadow <= 3 && pending.to_word() == word).then_some(pending)
    }
}

/// All CPU state of a cell, except the vector state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Context {
    /// General registers, instruction pointer, flags.
    pub registers: Registers,
    /// Base of FS.
    pub fs_base: u64,
    /// Base of GS.
    pub gs_base: u64,
    /// The address of the last page fault.
    pub fault_address: u64,
    /// Pending events.
    pub pending: Pending,
}

impl Context {
    /// A context that starts at `rip` with everything else zero.
    #[must_use]
    pub fn at(rip: u64) -> Context {
        Context { registers: Registers { rip, ..Registers::default() }, ..Context::default() }
    }

    /// The number of words of a context.
    pub const WORDS: usize = Registers::WORDS + 4;

    /// The context as plain words, for [`Context::from_words`].
    #[must_use]
    pub fn to_words(&self) -> [u64; Context::WORDS] {
        let mut words = [0; Context::WORDS];
        let (registers, rest) = words.split_at_mut(Registers::WORDS);
        registers.copy_from_slice(&self.registers.to_words());
        rest.copy_from_slice(&[self.fs_base, self.gs_base, self.fault_address, self.pending.to_word()]);
        words
    }

    /// Decodes a context. `None`: no cell can have it.
    #[must_use]
    pub fn from_words(words: [u64; Context::WORDS]) -> Option<Context> {
        let (registers, rest) = words.split_at(Registers::WORDS);
        let registers = Registers::from_words(registers.try_into().ok()?);
        let [fs_base, gs_base, fault_address, pending] = rest.try_into().ok()?;
        let context = Context { registers, fs_base, gs_base, fault_address, pending: Pending::from_word(pending)? };
        context.is_loadable().then_some(context)
    }

    /// The flags as they are loaded: those that a cell may set, and those that are always set.
    #[must_use]
    pub fn loaded_flags(&self) -> u64 {
        self.registers.rflags & USER_FLAGS | FIXED_FLAGS
    }

    /// Whether an exception is pending: it will be delivered next, at the instruction pointer.
    #[must_use]
    pub fn is_raising(&self) -> bool {
        self.pending.exception.is_some()
    }

    /// Whether the bases and the instruction pointer are valid for a CPU and allowed for a cell.
    #[must_use]
    pub fn is_loadable(&self) -> bool {
        is_canonical(self.fs_base) && is_canonical(self.gs_base) && self.is_in_user_space()
    }

    /// Whether the instruction pointer is in user space.
    pub(crate) fn is_in_user_space(&self) -> bool {
        self.registers.rip < 1 << 47
    }
}

/// Whether bits 47 to 63 are all the same, as CPUs with four levels of tables demand.
pub(crate) fn is_canonical(address: u64) -> bool {
    (address as i64) << 16 >> 16 == address as i64
}

/// An exception that the cell raised. The instruction pointer is where the manual says for the vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exception {
    /// 0 to 31.
    pub vector: u8,
    /// The error code; 0 where the vector has none.
    pub error: u64,
    /// The address that a page fault touched; 0 for others.
    pub address: u64,
}

/// Bits of a page fault's error code (Intel SDM volume 3, 4.7).
impl Exception {
    /// The page fault's vector.
    pub const PAGE_FAULT: u8 = 14;

    /// Whether the access was a write.
    #[must_use]
    pub fn is_write(&self) -> bool {
        self.error & 2 != 0
    }

    /// Whether it serves debuggers: a debug exception, or a breakpoint.
    #[must_use]
    pub fn is_of_debugging(&self) -> bool {
        matches!(self.vector, 1 | 3)
    }

    /// Whether the access was an instruction fetch.
    #[must_use]
    pub fn is_fetch(&self) -> bool {
        self.error & 16 != 0
    }
}

/// The reason why [`crate::Vcpu::run`] returned.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Exit {
    /// The hypercall instruction; `rip` is past it.
    Hypercall,
    /// The instruction `syscall`; `rip` is past it, `rcx` and `r11` are as it leaves them.
    Syscall,
    /// An exception.
    Exception(Exception),
    /// The deadline has passed, or an [`crate::Interrupter`] was used; the cell can go on.
    Interrupted,
    /// The cell did something that no cell may; its context is no longer usable.
    Violation(Violation),
}

/// A fatal action of a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// It used the hypercall port other than by `out 0x7e, al`.
    Port,
    /// It left 64-bit code, and stayed at CPL 3.
    CodeSegment,
    /// It executed `syscall` outside 64-bit code, and reached CPL 0 at a stub or an unmapped page.
    CompatibilitySyscall,
    /// An exception was raised inside a stub: only a broken machine does that.
    Supervisor {
        /// The exception's vector.
        vector: u8,
    },
    /// It accessed memory outside the VM.
    OutsideMemory,
    /// Its context holds addresses that no CPU accepts.
    BadContext,
    /// The machine stopped in a way that cannot be resumed.
    Machine {
        /// KVM's name for the reason, or the error.
        reason: String,
    },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::Port => f.write_str("used the hypercall port in a way that is not a hypercall"),
            Violation::CodeSegment => f.write_str("left 64-bit user code"),
            Violation::CompatibilitySyscall => f.write_str("executed `syscall` outside 64-bit code"),
            Violation::Supervisor { vector } => write!(f, "raised exception {vector} inside a supervisor stub"),
            Violation::OutsideMemory => f.write_str("touched memory outside its address space"),
            Violation::BadContext => f.write_str("has registers that no CPU accepts"),
            Violation::Machine { reason } => write!(f, "stopped the virtual CPU: {reason}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Context, Pending, QueuedException};

    #[test]
    fn a_context_reads_as_it_was_written() {
        for exception in [None, Some((1, None)), Some((14, Some(7))), Some((13, Some(u32::MAX)))] {
            let exception = exception.map(|(vector, error)| QueuedException { vector, error });
            let pending = Pending { exception, interrupt_shadow: 1 };
            let context = Context { fs_base: !0, gs_base: 2, fault_address: 3, pending, ..Context::at(0x1234) };
            assert_eq!(Context::from_words(context.to_words()), Some(context));
        }
    }

    #[test]
    fn no_context_is_made_that_a_cell_cannot_have() {
        let word = |index: usize, value: u64| {
            let mut words = Context::at(0).to_words();
            words[index] = value;
            Context::from_words(words)
        };
        let rip = Context::WORDS - 6;
        assert!(word(rip, (1 << 47) - 1).is_some() && word(rip, 1 << 47).is_none());
        assert!(word(Context::WORDS - 4, 1 << 47).is_none() && word(Context::WORDS - 3, 1 << 63).is_none());
        // A double fault, a surplus error code, a missing one, an invalid vector, stray bits.
        for pending in [1 << 16 | 8 << 8, 3 << 16 | 6 << 8, 1 << 16 | 14 << 8, 1 << 16 | 40 << 8, 1 << 20, 14 << 8, 4] {
            assert_eq!(word(Context::WORDS - 1, pending), None, "{pending:#x}");
        }
    }
}
