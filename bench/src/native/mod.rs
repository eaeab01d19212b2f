// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the host does natively, for the side of "theirs": all of the crate's unsafe code.

pub(crate) mod cpu;
pub(crate) mod memory;
pub(crate) mod process;
pub(crate) mod times;
pub(crate) mod usage;
mod vm;
