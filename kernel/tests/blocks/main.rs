// SPDX-License-Identifier: MIT OR Apache-2.0
//! Blocks of disks in cells: read once and shared by all, private after a write, given up when memory is short. The same on every
//! machine.

mod cell;
mod errors;
mod mapping;
mod pressure;
mod sharing;
mod starts;
mod trim;
mod waiting;
