// SPDX-License-Identifier: MIT OR Apache-2.0
//! The software machine, without a kernel: its instructions, and its adversarial behaviour.

mod adversary;
mod against_kvm;
mod bare;
mod instructions;
