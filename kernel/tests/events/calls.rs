// SPDX-License-Identifier: MIT OR Apache-2.0
//! Long calls work in steps: the cell is preempted in the middle, other cells run, and nothing is lost.

use pando_abi::memory::CURRENT_SPACE;
use pando_abi::{Hypercall, MapFlags, Permissions};
use pando_kernel::RunState;
use pando_kernel::{CellId, Config, End};
use pando_machine::PageCount;
use pando_testing::asm::Condition;
use pando_testing::asm::Register::{R14, R15, Rax, Rbx, Rdi, Rsi};
use pando_testing::lab::{DATA, Lab, repetitions};
use pando_testing::virtual_registers::exit;

/// Address of the long mapping.
const LONG: u64 = 0x1_0000_0000;

/// Pages of the long mapping: 256 MiB, 32 on an emulated CPU.
fn pages() -> u64 {
    u64::from(repetitions(1 << 13, 1 << 16, 1 << 16))
}

fn labs() -> Vec<Lab> {
    Lab::each(PageCount(pages() * 3 / 2 + (1 << 14)), Config::default)
}

/// A cell that counts in memory for ever.
fn counter(lab: &Lab) -> CellId {
    lab.launch(|asm| {
        asm.mov_imm(Rbx, DATA);
        let again = asm.here();
        asm.inc(Rax).store(Rbx, 0, Rax).jmp(again);
    })
}

/// Maps, writes, protects, reads and unmaps every page, in a cell with enough quota; exits with 0 if all checks succeed.
fn worker(lab: &Lab) -> CellId {
    let pages = pages();
    let mut asm = pando_testing::asm::Asm::new();
    let failed = asm.label();
    let call = |asm: &mut pando_testing::asm::Asm, call| {
        asm.call_kernel(call).mov_imm(Rdi, 1).cmp_imm(Rax, 0).jump_if(Condition::NotZero, failed);
    };
    let flags = MapFlags::eager(Permissions::READ_WRITE).bits();
    call(&mut asm, Hypercall::Map { space: CURRENT_SPACE, address: LONG, pages, flags });
    // Every page is present and zero; each gets its number.
    asm.mov_imm(R14, LONG).mov_imm(R15, pages);
    let again = asm.here();
    asm.mov_imm(Rdi, 2).load(Rax, R14, 0).cmp_imm(Rax, 0).jump_if(Condition::NotZero, failed);
    asm.store(R14, 0, R15).add_imm(R14, 0x1000).dec(R15).jump_if(Condition::NotZero, again);
    call(&mut asm, Hypercall::Protect { space: CURRENT_SPACE, address: LONG, pages, permissions: Permissions::READ.bits() });
    asm.mov_imm(R14, LONG).mov_imm(R15, pages);
    let again = asm.here();
    asm.mov_imm(Rdi, 3).load(Rax, R14, 0).cmp(Rax, R15).jump_if(Condition::NotZero, failed);
    asm.add_imm(R14, 0x1000).dec(R15).jump_if(Condition::NotZero, again);
    call(&mut asm, Hypercall::Unmap { space: CURRENT_SPACE, address: LONG, pages });
    asm.call_kernel(exit(0)).bind(failed).mov_imm(Rsi, 0).mov_imm(Rax, 0).hypercall();
    let id = lab.cell_with(&asm.finish(), PageCount(pages + (1 << 13)));
    lab.kernel.start(id).expect("it was not started before");
    id
}

#[test]
fn long_calls_are_preempted_in_the_middle_without_harm() {
    for mut lab in labs() {
        let before = lab.kernel.free();
        let id = worker(&lab);
        let neighbour = counter(&lab);
        // The quantum ends during the call: pages are present that the cell has not accessed.
        let mut seen = (0, 0);
        while lab.kernel.inspect(id).is_ok_and(|(_, counters, _)| counters.hypercalls <= 1) {
            lab.turn(0);
            if lab.kernel.inspect(id).is_ok_and(|(state, ..)| state == RunState::Ready) {
                seen.0 += 1;
            }
            let (_, counters, _) = lab.kernel.inspect(neighbour).expect("it counts");
            seen.1 = counters.preemptions;
        }
        if lab.sim.is_none() {
            assert!(seen.0 > 1 && seen.1 > 0, "the first call was not preempted: {seen:?}");
        }
        assert_eq!(lab.finish(id).end, End::Exited { status: 0 });
        lab.kernel.end(neighbour, End::Killed).expect("it counts");
        lab.kernel.free_unused_frames();
        assert_eq!(lab.kernel.free(), before);
    }
}

#[test]
fn a_cell_can_be_ended_in_the_middle_of_a_call() {
    for mut lab in labs() {
        let before = lab.kernel.free();
        for turns in 1..4 {
            let id = worker(&lab);
            let neighbour = counter(&lab);
            for _ in 0..turns {
                lab.turn(0);
            }
            // On the software machine the call takes no time; the cell may have exited already.
            if lab.kernel.end(id, End::Killed).is_ok() {
                assert_eq!(lab.finish(id).end, End::Killed);
            }
            lab.kernel.end(neighbour, End::Killed).expect("it counts");
        }
        lab.kernel.free_unused_frames();
        assert_eq!(lab.kernel.free(), before);
    }
}
