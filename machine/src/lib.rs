// SPDX-License-Identifier: MIT OR Apache-2.0
//! The hardware as Pando's kernel sees it: physical memory (the *arena*), vCPUs, time and randomness.
//!
//! This crate is where the host's `unsafe` lives, behind one safe interface: [`Machine`] and [`Vcpu`]. It knows page tables as the CPU does and
//! nothing of cells. Two backends: [`kvm`] is the real one; [`sim`] interprets a small subset of x86-64 over the same page tables, deterministically,
//! and keeps stale translations for as long as any real machine might.
//!
//! # The context contract
//! One vCPU runs many cells that must not feel each other. Whatever a cell does, [`Vcpu::run`] returns, and:
//! 1. Nothing that the cell started is left to be completed in the context that is loaded next.
//! 2. The cell's code runs at CPL 3, and in 64-bit mode. On a host that is itself a VM, on a CPU of AMD's, KVM runs cells on the host's own descriptors:
//!    there a cell can enter 32-bit code. It ends at that code's first hypercall, exception or interruption. `syscall` in 32-bit code reaches CPL 0 there, at the
//!    lower half of [`COMPATIBILITY_ENTRY`], where no cell can map a page ([`pando_abi::layout::USER_START`]); SMEP, which every host must have, would stop it too.
//! 3. No frame of an exception is pushed where the cell's stack pointer says.
//! 4. A [`Context`] never names a supervisor address as its own instruction pointer.
//! 5. A [`Context`] is everything that the CPU keeps for a cell, except the vector state; loading writes all of it.
//! 6. A context is rebuilt when it is loaded: flags are masked, bases must be canonical, selectors and control registers are never taken. DS, ES, FS and GS
//!    hold the null selector at every entry, whatever any cell has loaded into them.
//! 7. Vector state stays where the last cell left it: whoever loads another cell saves and loads it ([`Vcpu::save_vector`], [`Vcpu::load_vector`]).
//! 8. An exit that the CPU cannot resume from is [`Exit::Violation`]; the vCPU is then as new.
//! 9. The arena is private memory that no child process and no core dump sees.

mod arena;
mod clock;
mod context;
mod error;
mod frame;
pub mod kvm;
mod namespaces;
mod retry;
pub mod sim;
mod tap;
mod vector;

pub use arena::{Arena, EntryIndex};
pub use clock::Nanos;
pub use context::{Context, Exception, Exit, Pending, Root, Violation};
pub use error::HostError;
pub use frame::{FRAME_SIZE, FRAMES_PER_STRETCH, FrameId, PHYSICAL_BASE, PageCount, Stretch};
pub use namespaces::leave_namespaces;
pub use pando_abi::virtual_registers::Time;
pub use tap::{TapDevice, TapError, open_tap};
pub use vector::VectorState;

use std::sync::Arc;

/// The entry of a root table that belongs to the machine: the CPU's descriptor tables and stubs lie there, out of the cells' reach.
pub const SUPERVISOR_SLOT: usize = 511;

/// Where they start. The lower halves of these addresses are below [`pando_abi::layout::USER_START`], where no cell has memory.
pub const SUPERVISOR_BASE: u64 = 0xffff_ffff_0000_0000;

/// Where `syscall` from 32-bit code goes. Nested on a CPU of AMD's, KVM drops the upper half of this address (line 2).
pub const COMPATIBILITY_ENTRY: u64 = kvm::COMPATIBILITY_ENTRY;

/// Hardware that cells can run on.
///
/// Shared by all threads. Page tables in the arena are edited by the kernel under the page-table discipline (see the kernel's `memory`); the machine
/// promises to see what the discipline lets it count on.
pub trait Machine: Send + Sync {
    /// Physical memory.
    fn arena(&self) -> &Arena;

    /// Makes sure that cells can reach a stretch; needed before the first of its frames is handed out, in whatever order. O(1) but where the machine grows:
    /// then a millisecond a gigabyte.
    ///
    /// # Errors
    /// The host refused.
    ///
    /// # Panics
    /// The arena has no such stretch.
    fn provide(&self, stretch: Stretch) -> Result<(), HostError>;

    /// How many vCPUs there are.
    fn vcpus(&self) -> usize;

    /// Takes vCPU `index`, which only one owner may have, for the calling thread.
    ///
    /// # Errors
    /// The host could not make it ready.
    ///
    /// # Panics
    /// There is no such vCPU, or it was taken before.
    fn take_vcpu(&self, index: usize) -> Result<Box<dyn Vcpu>, HostError>;

    /// What every root table must hold in its entry [`SUPERVISOR_SLOT`].
    fn supervisor_entry(&self) -> u64;

    /// Drops everything that the machine remembers about page tables, so that frames that were tables may become other tables (rule 3 of the
    /// page-table discipline). Milliseconds under shadow paging: per thousands of tables, never per table. vCPUs may run meanwhile.
    ///
    /// # Errors
    /// The host refused.
    fn flush_tables(&self) -> Result<(), HostError>;

    /// The machine's clock.
    fn now(&self) -> Nanos;

    /// How a cell reads the clock from its TSC, and what it means.
    fn clock(&self) -> Time;

    /// Fills `bytes` with random bytes that no cell can predict (on `sim`: from the seed).
    fn entropy(&self, bytes: &mut [u8]);

    /// What `cpuid` answers in a cell, for machines on which the instruction faults.
    fn cpuid(&self) -> Vec<pando_abi::cpuid::Entry>;
}

/// One virtual CPU: loads a context, runs it, and says why it stopped.
pub trait Vcpu: Send {
    /// Runs `context` in the address space of `root` until it leaves, or the clock reaches `deadline`, or somebody interrupts.
    ///
    /// The root's table and all it reaches must follow the page-table discipline. Costs one exit of the machine.
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
    /// Makes the present or the next [`Vcpu::run`] return [`Exit::Interrupted`] soon.
    fn interrupt(&self);
}
