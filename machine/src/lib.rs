// SPDX-License-Identifier: MIT OR Apache-2.0
//! The hardware as Pando's kernel sees it: physical memory (the *arena*), vCPUs, time and randomness.
//!
//! This crate holds the host's `unsafe` code behind one safe interface: [`Machine`] and [`Vcpu`]. It knows page tables as
//! the CPU does and nothing of cells. There are two backends. [`kvm`] is the real one. [`sim`] interprets a small subset of
//! x86-64 over the same page tables, deterministically, and keeps stale translations for as long as any real machine might.
//!
//! # The context contract
//! One vCPU runs many cells that must not affect each other. For any behaviour of a cell, [`Vcpu::run`] returns, and:
//! 1. Nothing that the cell started remains to be completed in the context that is loaded next.
//! 2. The cell's code runs at CPL 3, and in 64-bit mode. On a host that is itself a VM, on an AMD CPU, KVM runs cells on
//!    the host's own descriptors: there a cell can enter 32-bit code. It ends at that code's first hypercall, exception
//!    or interruption. `syscall` in 32-bit code reaches CPL 0 there, at the lower half of [`COMPATIBILITY_ENTRY`], where
//!    no cell can map a page ([`pando_abi::layout::USER_START`]); SMEP, which every host must have, would stop it too.
//! 3. No exception frame is pushed at the cell's stack pointer.
//! 4. A [`Context`] never names a supervisor address as its own instruction pointer.
//! 5. A [`Context`] is all CPU state of a cell, except the vector state; loading writes all of it.
//! 6. A context is rebuilt when it is loaded: flags are masked, bases must be canonical, selectors and control registers
//!    are never taken. DS, ES, FS and GS hold the null selector at every entry, even if a cell has loaded others.
//! 7. Vector state stays as the last cell left it: the caller saves and loads it when it switches cells
//!    ([`Vcpu::save_vector`], [`Vcpu::load_vector`]).
//! 8. An exit that the CPU cannot resume from is [`Exit::Violation`]; the vCPU is then reset.
//! 9. The arena is private memory that no child process and no core dump sees.

mod arena;
mod cells_device;
mod clock;
mod context;
mod error;
mod executable;
mod frame;
mod frame_ring;
pub mod kvm;
mod namespaces;
mod process;
mod retry;
pub mod sim;
mod tap;
mod vector;

pub use arena::{Arena, EntryIndex};
pub use cells_device::{CellsDevice, ConsoleRead, NewChild, PageBuffer};
pub use clock::Nanos;
pub use context::{Context, Exception, Exit, Pending, Root, Violation};
pub use error::HostError;
pub use executable::ExecutableBytes;
pub use frame::{FRAME_SIZE, FRAMES_PER_HUGE_FRAME, FrameId, HugeFrame, PHYSICAL_BASE, PageCount};
pub use frame_ring::{RingError, RingFlags, RingFrame, RingOwner, RingPeer, create_rings};
pub use namespaces::unshare_namespaces;
pub use pando_abi::virtual_registers::Time;
pub use process::{fork, trim_heap};
pub use tap::{TapDevice, TapError, open_tap};
pub use vector::VectorState;

use std::sync::Arc;

/// The entry of a root table that belongs to the machine: the CPU's descriptor tables and stubs lie there, out of the cells' reach.
pub const SUPERVISOR_SLOT: usize = 511;

/// The start of the supervisor area. The lower halves of its addresses are below [`pando_abi::layout::USER_START`],
/// where no cell has memory.
pub const SUPERVISOR_BASE: u64 = 0xffff_ffff_0000_0000;

/// The entry point of `syscall` from 32-bit code. Nested on an AMD CPU, KVM drops the upper half of this address (line 2).
pub const COMPATIBILITY_ENTRY: u64 = kvm::COMPATIBILITY_ENTRY;

/// Hardware that cells can run on.
///
/// All threads share it. The kernel edits page tables in the arena under the page-table discipline (see the kernel's
/// `memory`); the machine guarantees the behaviour that the discipline relies on.
pub trait Machine: Send + Sync {
    /// Physical memory.
    fn arena(&self) -> &Arena;

    /// Ensures that cells can access a huge frame. It is called before the first of its frames is handed out, in any
    /// order. O(1), except where the machine grows: then a millisecond per gigabyte.
    ///
    /// # Errors
    /// The host refused.
    ///
    /// # Panics
    /// The arena has no such huge frame.
    fn provide(&self, huge_frame: HugeFrame) -> Result<(), HostError>;

    /// The number of vCPUs.
    fn vcpus(&self) -> usize;

    /// Takes vCPU `index`, which can have only one owner, for the calling thread.
    ///
    /// # Errors
    /// The host could not prepare it.
    ///
    /// # Panics
    /// There is no such vCPU, or it was taken before.
    fn take_vcpu(&self, index: usize) -> Result<Box<dyn Vcpu>, HostError>;

    /// The value that every root table must hold in its entry [`SUPERVISOR_SLOT`].
    fn supervisor_entry(&self) -> u64;

    /// Drops all cached page tables, so that frames that were tables may become other tables (rule 3 of the page-table discipline).
    /// It takes milliseconds under shadow paging: call it per thousands of tables, never per table. vCPUs may run meanwhile.
    ///
    /// # Errors
    /// The host refused.
    fn flush_tables(&self) -> Result<(), HostError>;

    /// The machine's clock.
    fn now(&self) -> Nanos;

    /// The parameters with which a cell computes the clock from its TSC.
    fn clock(&self) -> Time;

    /// Fills `bytes` with random bytes that no cell can predict (on `sim`: from the seed).
    fn entropy(&self, bytes: &mut [u8]);

    /// The CPUID of cells, for machines on which the instruction faults.
    fn cpuid(&self) -> Vec<pando_abi::cpuid::Entry>;
}

/// One virtual CPU: loads a context, runs it, and returns why it stopped.
pub trait Vcpu: Send {
    /// Runs `context` in the address space of `root` until it exits, the clock reaches `deadline`, or an [`Interrupter`] is used.
    ///
    /// The root's table and all it reaches must follow the page-table discipline. The cost is one exit of the machine.
    fn run(&mut self, root: Root, context: &mut Context, deadline: Nanos) -> Exit;

    /// Copies the vector, x87 and MXCSR state that the last cell left.
    ///
    /// # Errors
    /// The host refused.
    fn save_vector(&mut self) -> Result<VectorState, HostError>;

    /// Loads a vector state; `None` loads the initial one.
    ///
    /// # Errors
    /// The host refused, or the state is not one that a CPU can hold.
    fn load_vector(&mut self, state: Option<&VectorState>) -> Result<(), HostError>;

    /// A handle with which other threads interrupt [`Vcpu::run`].
    fn interrupter(&self) -> Arc<dyn Interrupter>;
}

/// Interrupts a vCPU from any thread.
pub trait Interrupter: Send + Sync {
    /// Makes the current or the next [`Vcpu::run`] return [`Exit::Interrupted`] soon.
    fn interrupt(&self);
}
