// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hostile cells, with a neighbour on the same vCPU that checks all it has, all the time, and feels nothing.
//!
//! Each ends with a reason that a person understands or is refused with an error; afterwards an honest cell still works, every frame comes back, and fresh memory is
//! zero. `PANDO_TESTS=hardware` chooses sizes for emulated hardware virtualisation, `PANDO_TESTS=all` the long runs; `PANDO_SEED` another seed.

#[path = "../events/cell.rs"]
#[allow(dead_code)]
mod cell;

mod court;
mod exhaustion;
mod hypercalls;
mod instructions;
mod loops;
mod memory;
mod neighbour;
mod pages;
mod random;
mod transfers;
mod vectors;

/// Writes a program.
type Code = fn(&mut pando_testing::asm::Asm);
