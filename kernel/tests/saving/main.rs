// SPDX-License-Identifier: MIT OR Apache-2.0
//! Templates as plain data: exported from one kernel, imported into another, and what hostile images do. On every machine the same.

mod cell;
mod disks;
mod foresight;
mod hostile;
mod round;
