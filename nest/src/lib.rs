// SPDX-License-Identifier: MIT OR Apache-2.0
//! Monitors of nested cells: ordinary programs that run in the cell around them, and act on them through `/dev/cells`.
//!
//! The [`debugger`] serves the remote protocol of gdb for the program of a child. The [`tracer`] refuses system calls of a child by rules.
#![forbid(unsafe_code)]

pub mod debugger;
mod input;
mod output;
mod signal;
mod threads;
pub mod tracer;
mod watched_child;
