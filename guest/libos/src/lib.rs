// SPDX-License-Identifier: MIT OR Apache-2.0
//! The library OS: Linux as a library, inside the cell.
//!
//! A program's system calls and exceptions arrive as upcalls ([`upcall`]); the [table of calls](table) leads to one module of
//! [`calls`] for each family. All state is one [`system::System`], made of parts ([`files`], [`memory`], [`signals`], [`random`])
//! that know nothing of it. Hypercalls and instructions of the cell are reached through `pando_rt`; the rest is plain logic that
//! the host tests.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod calls;
pub mod console;
pub mod cpu_time;
pub mod credentials;
pub mod delivery;
pub mod elf;
pub mod erofs;
pub mod errno;
pub mod event_time;
pub mod exceptions;
pub mod files;
pub mod ipc;
pub mod jobs;
pub mod limits;
pub mod loader;
pub mod mapped_files;
pub mod memory;
pub mod network;
pub mod patch;
pub mod pid;
pub mod process;
pub mod random;
pub mod rseq;
pub mod shared;
pub mod signals;
pub mod slack;
pub mod string_list;
pub mod system;
pub mod table;
pub mod terminal;
pub mod thread;
pub mod thread_table;
pub mod timers;
pub mod trace;
pub mod uapi;
pub mod upcall;
pub mod user;
pub mod wait;
