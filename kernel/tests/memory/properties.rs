// SPDX-License-Identifier: MIT OR Apache-2.0
//! The property itself, on every machine.

use crate::{driver, kvm, seed, sim};
use pando_kernel::memory::Rules;
use pando_machine::kvm::Omit;
use pando_testing::lab::{kvm_is_there, repetitions};

#[test]
fn every_cell_finds_its_memory_as_the_model_says_on_sim() {
    let seed = seed(1);
    let operations = repetitions(1_000, 1_000_000, 20_000_000);
    let tally = driver::run(sim(seed, Rules::ALL_KEPT), seed, operations.into()).unwrap_or_else(|wrong| panic!("{wrong}"));
    println!("{tally:?}");
}

#[test]
fn every_cell_finds_its_memory_as_the_model_says_on_kvm() {
    if !kvm_is_there() {
        return;
    }
    let seed = seed(2);
    let operations = repetitions(1_000, 20_000, 500_000);
    let tally = driver::run(kvm(Rules::ALL_KEPT, Omit::NOTHING), seed, operations.into()).unwrap_or_else(|wrong| panic!("{wrong}"));
    println!("{tally:?}");
}
