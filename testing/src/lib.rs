// SPDX-License-Identifier: MIT OR Apache-2.0
//! Code that the tests of several crates share.

pub use pando_packages::{are_installed, host_program};

pub mod asm;
pub mod compile;
pub mod disk;
pub mod lab;
pub mod model;
pub mod mutate;
