// SPDX-License-Identifier: MIT OR Apache-2.0
//! Handlers of system calls, a module for each family: they take arguments apart, and ask the parts of the process.

pub mod attributes;
pub mod control;
pub mod directory;
pub mod identity;
pub mod input_output;
pub mod memory;
pub mod names;
pub mod open;
pub mod poll;
pub mod proc;
pub mod random;
pub mod signals;
pub mod sizes;
pub mod stat;
pub mod terminal;
pub mod threads;
pub mod time;
pub mod timers;
pub mod users;
pub mod xattr;
