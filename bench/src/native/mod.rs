// SPDX-License-Identifier: MIT OR Apache-2.0
//! Native operations of the host, for the references: all of the crate's unsafe code.

pub(crate) mod cpu;
pub(crate) mod files;
pub(crate) mod memory;
pub(crate) mod process;
pub(crate) mod times;
pub(crate) mod usage;
mod vm;
