// SPDX-License-Identifier: MIT OR Apache-2.0
//! The property on every machine, and regression tests of failures that it found.

use crate::{driver, kvm, seed, sim};
use pando_abi::layout::SLOT_SIZE;
use pando_abi::memory::CURRENT_SPACE;
use pando_abi::{Hypercall, MapFlags, PAGE_SIZE, Permissions};
use pando_kernel::End;
use pando_kernel::memory::OmittedRules;
use pando_machine::kvm::Omit;
use pando_testing::asm::Register::{Rax, Rbx, Rcx, Rdi, Rsi};
use pando_testing::lab::{Lab, QUOTA, is_kvm_available, repetitions};

#[test]
fn every_cell_finds_its_memory_as_the_model_says_on_sim() {
    let seed = seed(1);
    let operations = repetitions(1_000, 1_000_000, 20_000_000);
    let tally = driver::run(sim(seed, OmittedRules::NONE), seed, operations.into()).unwrap_or_else(|wrong| panic!("{wrong}"));
    println!("{tally:?}");
}

#[test]
fn every_cell_finds_its_memory_as_the_model_says_on_kvm() {
    if !is_kvm_available() {
        return;
    }
    let seed = seed(2);
    let operations = repetitions(1_000, 20_000, 500_000);
    let tally = driver::run(kvm(OmittedRules::NONE, Omit::NOTHING), seed, operations.into()).unwrap_or_else(|wrong| panic!("{wrong}"));
    println!("{tally:?}");
}

#[test]
fn a_seed_is_one_run_on_sim() {
    let run = || driver::run(sim(3, OmittedRules::NONE), 3, 5_000).unwrap_or_else(|wrong| panic!("{wrong}"));
    assert_eq!(run(), run());
}

/// A copy in place was visible at the written address, but not at the page's other address.
#[test]
fn a_page_that_a_space_shows_twice_is_one_page() {
    const HERE: u64 = SLOT_SIZE;
    const THERE: u64 = 2 * SLOT_SIZE;
    let flags = MapFlags::lazy(Permissions::READ_WRITE).bits();
    for mut lab in Lab::both() {
        let template = lab.launch(|asm| {
            asm.call_kernel(Hypercall::SegmentCreate {});
            for address in [HERE, THERE] {
                asm.call_kernel(Hypercall::SegmentMount { segment: 1, space: CURRENT_SPACE, address });
            }
            asm.call_kernel(Hypercall::Map { space: CURRENT_SPACE, address: HERE, pages: 2, flags });
            asm.mov_imm(Rbx, HERE).mov_imm(Rcx, THERE).store_imm(Rbx, 0, 1).store_imm(Rbx, PAGE_SIZE as i32, 1);
            asm.call_kernel(Hypercall::Freeze {});
            // The clone first copies the tables, by writing the page beside; then it reads the page at one address and writes it at
            // the other.
            asm.store_imm(Rbx, PAGE_SIZE as i32, 2).load(Rdi, Rcx, 0).store_imm(Rbx, 0, 3).load(Rdi, Rcx, 0);
            asm.mov_imm(Rsi, 0).mov_imm(Rax, 0).hypercall();
        });
        lab.run_all();
        let clone = lab.kernel.clone_cell(template, QUOTA).expect("a template can be cloned");
        lab.kernel.start(clone).expect("it was not started before");
        assert_eq!(lab.finish(clone).end, End::Exited { status: 3 });
    }
}
