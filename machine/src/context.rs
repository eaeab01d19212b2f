// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a vCPU loads, and how it comes back.

use crate::frame::FrameId;
use pando_abi::Registers;
use pando_abi::registers::{FIXED_FLAGS, USER_FLAGS};
use std::fmt;

/// An address space to run in.
///
/// `stamp` tells translations apart (rule 6 of the page-table discipline): a vCPU that last ran the same table with another stamp forgets what it saw.
/// Give a new stamp whenever the table was built anew, or its cell has run on another vCPU since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Root {
    /// The root table.
    pub table: FrameId,
    /// Which life of the table this is.
    pub stamp: u64,
}

/// What the CPU still has to deliver or to hold back for a context: a queued exception, an interrupt shadow. Opaque; a preempted context keeps it.
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

/// Everything that the CPU keeps for a cell, except the vector state.
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
    /// What is still to be delivered.
    pub pending: Pending,
}

impl Context {
    /// A context that starts at `rip` with everything else zero.
    #[must_use]
    pub fn at(rip: u64) -> Context {
        Context { registers: Registers { rip, ..Registers::default() }, ..Context::default() }
    }

    /// The flags as they are loaded: what a cell may set, and what is always set.
    #[must_use]
    pub fn loaded_flags(&self) -> u64 {
        self.registers.rflags & USER_FLAGS | FIXED_FLAGS
    }

    /// Whether an exception that it raised is still to be delivered: that comes next, at its instruction pointer.
    #[must_use]
    pub fn is_raising(&self) -> bool {
        self.pending.exception.is_some()
    }

    /// Whether bases and instruction pointer are ones that a CPU accepts and a cell may have.
    #[must_use]
    pub fn is_loadable(&self) -> bool {
        is_canonical(self.fs_base) && is_canonical(self.gs_base) && self.is_in_user_space()
    }

    /// Whether the instruction pointer is one that a cell may have.
    pub(crate) fn is_in_user_space(&self) -> bool {
        self.registers.rip < 1 << 47
    }
}

/// Whether bits 47 to 63 are all the same, as CPUs with four levels of tables demand.
pub(crate) fn is_canonical(address: u64) -> bool {
    (address as i64) << 16 >> 16 == address as i64
}

/// An exception that the cell raised; the context stands at the instruction as the manual says for the vector.
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

    /// Whether the access was an instruction fetch.
    #[must_use]
    pub fn is_fetch(&self) -> bool {
        self.error & 16 != 0
    }
}

/// Why [`crate::Vcpu::run`] came back.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Exit {
    /// The hypercall instruction; `rip` is past it.
    Hypercall,
    /// The instruction `syscall`; `rip` is past it, `rcx` and `r11` are as it leaves them.
    Syscall,
    /// An exception.
    Exception(Exception),
    /// The deadline, or somebody's interrupt; the cell can go on.
    Interrupted,
    /// The cell did something that no cell may; its context is worth nothing any more.
    Violation(Violation),
}

/// What a cell did that ends it whatever it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// It used the hypercall port other than by `out 0x7e, al`.
    Port,
    /// It left 64-bit code at CPL 3.
    CodeSegment,
    /// An exception came while a stub ran: only a machine gone wrong does that.
    Supervisor {
        /// The exception's vector.
        vector: u8,
    },
    /// It touched memory that no table should reach.
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
            Violation::Supervisor { vector } => write!(f, "raised exception {vector} inside a supervisor stub"),
            Violation::OutsideMemory => f.write_str("touched memory outside its address space"),
            Violation::BadContext => f.write_str("has registers that no CPU accepts"),
            Violation::Machine { reason } => write!(f, "stopped the virtual CPU: {reason}"),
        }
    }
}
