// SPDX-License-Identifier: MIT OR Apache-2.0
//! The library OS: Linux as a library, inside the cell.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod erofs;
