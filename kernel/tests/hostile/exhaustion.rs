// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exhaustion of memory in every way: the cell that causes it gets an error or is ended, and the victim cell keeps its memory.

use crate::harness::{ExpectedEnd, Harness, HostileCell};
use ExpectedEnd::{Exits, Quota};
use pando_abi::layout::SLOT_SIZE;
use pando_abi::{Hypercall, MapFlags, Permissions};
use pando_machine::PageCount;
use pando_testing::asm::Condition;
use pando_testing::asm::Register::{R14, R15, Rax, Rbx};
use pando_testing::virtual_registers::exit;

const LAZY: u64 = MapFlags::lazy(Permissions::READ_WRITE).bits();
const LARGE: u64 = LAZY | 16;

#[test]
fn touching_more_than_the_quota_ends_the_cell() {
    for mut harness in Harness::both() {
        // From page to page, and from table to table.
        for (stride, flags) in [(0x1000, LAZY), (0x20_0000, LAZY), (0x4000_0000, LAZY), (0x1000, LARGE), (0x20_0000, LARGE)] {
            let hostile = HostileCell::assembled(format!("touching every {stride:#x} bytes with flags {flags:#x}"), |asm| {
                asm.call_kernel(Hypercall::Map { space: u64::MAX, address: SLOT_SIZE, pages: SLOT_SIZE >> 12, flags });
                asm.mov_imm(Rbx, SLOT_SIZE).mov_imm(R14, stride).mov_imm(R15, SLOT_SIZE / stride);
                let again = asm.here();
                asm.store(Rbx, 0, Rbx).add(Rbx, R14).dec(R15).jump_if(Condition::NotZero, again).call_kernel(exit(0));
            });
            let quota = PageCount(1000);
            let outcome = harness.try_cell(&HostileCell { quota, ..hostile }, &[Quota]);
            assert!(outcome.usage.peak <= quota, "{:?}", outcome.usage);
            assert_eq!(outcome.end.to_string(), "its memory quota is used up");
        }
        harness.close();
    }
}

#[test]
fn an_upcall_to_a_stack_that_cannot_be_paid_ends_the_cell() {
    for mut harness in Harness::both() {
        let hostile = HostileCell::assembled("recursion over lazy memory", |asm| {
            asm.call_kernel(Hypercall::Map { space: u64::MAX, address: SLOT_SIZE, pages: 1 << 20, flags: LAZY });
            asm.mov_imm(pando_testing::asm::Register::Rsp, SLOT_SIZE + (1 << 32));
            let again = asm.here();
            asm.call(again);
        });
        harness.try_cell(&HostileCell { quota: PageCount(700), ..hostile }, &[Quota]);
        harness.close();
    }
}

/// As many spaces, segments and slots as possible, each with a page: no call takes more than the quota.
#[test]
fn everything_that_can_be_made_is_paid_for() {
    let makers: [(&str, Hypercall); 4] = [
        ("spaces", Hypercall::SpaceCreate {}),
        ("clones of spaces", Hypercall::SpaceClone { space: 0 }),
        ("segments", Hypercall::SegmentCreate {}),
        ("eager pages", Hypercall::Map { space: u64::MAX, address: SLOT_SIZE, pages: 400, flags: LAZY | 8 }),
    ];
    for mut harness in Harness::both() {
        for (name, call) in makers {
            let hostile = HostileCell::assembled(format!("making {name} until it is refused"), |asm| {
                // Each new space gets a page.
                let again = asm.here();
                asm.call_kernel(call).mov(R14, Rax).mov(pando_testing::asm::Register::Rdi, Rax);
                asm.mov_imm(pando_testing::asm::Register::Rsi, 2 * SLOT_SIZE).mov_imm(pando_testing::asm::Register::Rdx, 1);
                asm.mov_imm(pando_testing::asm::Register::R10, LAZY | 8).mov_imm(Rax, 3).hypercall();
                asm.inc(R15).cmp_imm(R15, 3000).jump_if(Condition::Below, again).call_kernel(exit(0));
            });
            let quota = PageCount(2000);
            let outcome = harness.try_cell(&HostileCell { quota, ..hostile }, &[Exits(0), Quota]);
            assert!(outcome.usage.peak <= quota, "{name}: {:?}", outcome.usage);
        }
        harness.close();
    }
}
