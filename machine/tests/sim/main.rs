// SPDX-License-Identifier: MIT OR Apache-2.0
//! The software machine, without a kernel: its instructions, and its adversarial behaviour.

mod adversary;
// By path: the crate that the assembler belongs to depends on the kernel, which these tests do without.
mod against_kvm;
#[path = "../../../testing/src/asm.rs"]
#[allow(dead_code, reason = "these tests use a part of it")]
mod asm;
mod bare;
mod instructions;
