// SPDX-License-Identifier: MIT OR Apache-2.0
//! The context contract on KVM, with nothing above the machine: line by line, under attack, and with lines left out.
//!
//! Most attacks are rows of tables: a name, code, what it may come to. After each of them a neighbour runs on the same vCPU and finds all its
//! registers and memory as they were.
//!
//! All of it runs on every kind of KVM: a few seconds of the emulated machine's time on SVM and on VMX. What QEMU's and Bochs's CPUs do that no CPU
//! does is said where a test allows it.
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
