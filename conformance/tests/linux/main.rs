// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs compared with Linux: their output and exit status in a cell are those on the host, byte for byte.
//!
//! [`case`] is the common interface: a program with its arguments and its input, run natively and in a cell.
//! `PANDO_TESTS=all` adds the long runs.
#![forbid(unsafe_code)]

#[macro_use]
#[path = "fixture/parts.rs"]
mod parts;
#[path = "fixture/case.rs"]
mod case;
#[path = "fixture/chroot.rs"]
mod chroot;
#[path = "fixture/comparison.rs"]
mod comparison;
#[path = "fixture/compile.rs"]
mod compile;
#[path = "fixture/data.rs"]
mod data;
#[path = "fixture/data_sets.rs"]
mod data_sets;
mod debian;
mod files;
mod ipc;
mod languages;
mod memory;
mod processes;
mod shells;
mod signals;
mod sockets;
mod suites;
mod system_calls;
mod terminals;
mod time;

/// The command line under test.
const PANDO: &str = env!("CARGO_BIN_EXE_pando-under-test");
