// SPDX-License-Identifier: MIT OR Apache-2.0
//! Blocks of disks in cells: read once and shared by all, private where they are written, given up when memory is short. On every machine the same.

mod cell;
mod errors;
mod mapping;
mod pressure;
mod sharing;
mod waiting;
