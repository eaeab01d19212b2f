// SPDX-License-Identifier: MIT OR Apache-2.0
//! Real programs through the command line: what `pando run` prints is held, byte for byte, against what the host prints.
//!
//! [`case`] is the one boundary: a program with its arguments and its input, run natively and in a cell. `PANDO_TESTS=all` takes the long runs.
#![forbid(unsafe_code)]

mod busybox;
mod case;
mod commands;
mod compile;
mod data;
mod deaths;
mod options;
mod overlay;
mod patched;
mod programs;
mod refusals;
mod signals;
mod streams;
mod terminal;
