// SPDX-License-Identifier: MIT OR Apache-2.0
//! Templates as plain data: export from one kernel, import into another, and hostile images. The same on every machine.

mod cell;
mod disks;
mod hostile;
mod round;
mod sleeping;
mod training;
mod wakers;
