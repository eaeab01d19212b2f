// SPDX-License-Identifier: MIT OR Apache-2.0
//! Devices: the interfaces of a cell beyond its memory. They start initialised; there is nothing to probe.

pub(crate) mod card;
pub mod console;
pub mod disk;
pub(crate) mod ring;
pub mod swap;
