// SPDX-License-Identifier: MIT OR Apache-2.0
//! The runtime of programs that live in cells: entry, hypercalls, upcalls, memory, console.
//!
//! This is the guest's only crate with `unsafe`. It turns the virtual architecture of [`pando_abi`] into safe
//! interfaces, so that a libOS is ordinary safe Rust. It is sound for three reasons:
//!
//! - A cell has one vCPU context, so there is one thread.
//! - Memory of the application is only accessed through [`user`], never through references.
//! - Memory calls name only pages that are not the runtime's own ([`memory::PageRange`]).
//!
//! The crate also builds for the host, so that the pure parts of a libOS can be tested there; calls to it are useless
//! there. Code that needs the cell's target (entry, upcalls, heap, panic handler) exists only on it.
#![no_std]

extern crate alloc;

pub mod cells;
pub mod clock;
pub mod console;
pub mod cpuid;
pub mod debug;
pub mod events;
pub mod global;
pub mod hypercall;
pub mod memory;
pub mod messages;
pub mod network;
pub mod registers;
pub mod template;
pub mod thread_base;
pub mod timer;
pub mod user;
pub mod vector;

mod copy;

#[cfg(target_os = "none")]
mod failure;
mod generation;
#[cfg(target_os = "none")]
mod heap;
mod hot;
mod kernel_clock;
pub mod patched;
mod ring;
#[cfg(target_os = "none")]
pub mod start;
#[cfg(target_os = "none")]
pub mod upcall;

pub use pando_abi as abi;
