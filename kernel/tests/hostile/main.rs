// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hostile cells, with a victim cell on the same vCPU that checks its whole state all the time and must find no change.
//!
//! Each hostile cell ends with a clear message, or is refused with an error. Afterwards an ordinary cell still works, every frame
//! is free again, and fresh memory is zero. `PANDO_TESTS=hardware` chooses sizes for emulated hardware virtualisation,
//! `PANDO_TESTS=all` the long runs; `PANDO_SEED` chooses another seed.

mod exhaustion;
mod harness;
mod hypercalls;
mod instructions;
mod loops;
mod memory;
mod pages;
mod random;
mod transfers;
mod vectors;
mod victim;

/// Assembles a program.
type Code = fn(&mut pando_testing::asm::Asm);
