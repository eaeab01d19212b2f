// SPDX-License-Identifier: MIT OR Apache-2.0
//! The context contract on KVM, without a kernel: line by line, under attack, and with lines left out.
//!
//! Most attacks are rows of tables: a name, code, allowed outcomes. After each of them a neighbour runs on the same
//! vCPU and checks that its registers and memory are unchanged.
//!
//! All of it runs on every kind of KVM: a few seconds of the emulated machine's time on SVM and on VMX. Deviations of
//! QEMU's and Bochs's CPUs from real ones are noted where a test allows them.
//!
//! `PANDO_TESTS=hardware` chooses sizes for emulated hardware virtualisation, `PANDO_TESTS=all` the long runs; `PANDO_SEED` another seed.

#[path = "../bare/mod.rs"]
mod bare;

mod canary;
mod compatibility;
mod flags;
mod instructions;
mod interruptions;
mod lines;
mod ports;
mod preemption;
mod random;
mod selectors;
mod stacks;
mod transfers;
mod vector;
