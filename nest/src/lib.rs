// SPDX-License-Identifier: MIT OR Apache-2.0
//! Monitors of nested cells: ordinary programs that run in the cell around them, and act on them through `/dev/cells`.
//!
//! The [`debugger`] serves the remote protocol of gdb for the program of a child. The [`tracer`] refuses system calls of a child by rules.
//! The [`pager`] moves pages of a child to a swap file, so that it uses less memory than its program needs. The [`checkpointer`] writes the
//! state of a child to files at intervals, and restores it.
#![forbid(unsafe_code)]

pub mod checkpointer;
pub mod debugger;
mod input;
mod output;
pub mod pager;
mod signal;
mod streams;
mod threads;
pub mod tracer;
mod watched_cell;
mod watched_child;

pub use watched_cell::WatchedCell;
