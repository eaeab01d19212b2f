// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pages that a parent takes from its halted child and gives back.

use crate::watching::Family;
use pando_abi::holding::ChildState;
use pando_abi::memory::TakenPages;
use pando_abi::watch::{HaltReason, mask, resume};
use pando_abi::{Hypercall, PAGE_SIZE, Refusal};
use pando_testing::asm::Asm;
use pando_testing::asm::Register::{R10, R14, Rax, Rbx, Rdi, Rdx, Rsi};
use pando_testing::lab::{DATA, Lab};

/// The parent's memory for the content of pages.
pub const BUFFER: u64 = DATA + 0x1_0000;
/// Pages of the child with a word each.
pub const PAGES: u64 = 4;
/// The first of them.
pub const FIRST: u64 = DATA + 0x4000;

/// Writes 1, 2, 3 and 4 to pages, halts at a breakpoint, and exits with the sum.
pub fn sum_after_a_halt(asm: &mut Asm) {
    asm.mov_imm(Rbx, FIRST);
    for page in 0..PAGES {
        asm.store_imm(Rbx, (page * PAGE_SIZE) as i32, page as i32 + 1);
    }
    asm.int3().nop().mov_imm(R14, 0);
    for page in 0..PAGES {
        asm.load(Rax, Rbx, (page * PAGE_SIZE) as i32).add(R14, Rax);
    }
    asm.mov(Rdi, R14).mov_imm(Rax, 0).mov_imm(Rsi, 0).mov_imm(Rdx, 0).mov_imm(R10, 0).hypercall();
}

impl Family {
    pub fn take(&mut self, address: u64, pages: u64, swap: u64) -> Result<TakenPages, Refusal> {
        let space = self.name.current_space();
        self.call(Hypercall::Take { space, address, pages, buffer: BUFFER, swap }).map(TakenPages::from_bits)
    }

    pub fn give(&mut self, address: u64, pages: u64, swap: u64) -> Result<u64, Refusal> {
        let space = self.name.current_space();
        self.call(Hypercall::Give { space, address, pages, buffer: BUFFER, swap })
    }

    /// The reason for a halt at a page that was taken.
    pub fn taken(&self, address: u64, number: u32) -> Option<HaltReason> {
        Some(HaltReason::Taken { space: 0, address, number })
    }
}

#[test]
fn a_child_waits_for_pages_that_were_taken() {
    for lab in Lab::both() {
        let mut family = Family::new(lab, mask::EXCEPTIONS, sum_after_a_halt);
        assert_eq!(family.run(), Some(ChildState::Halted));
        assert_eq!(family.take(FIRST, PAGES, 7), Ok(TakenPages { skipped: 0, count: PAGES as u32 }));
        // The parent has the content, and the child pays for nothing.
        let mut bytes = [0; 8];
        family.lab.kernel.read(family.parent, BUFFER + PAGE_SIZE, &mut bytes).expect("it waits");
        assert_eq!(u64::from_le_bytes(bytes), 2);
        assert_eq!(family.resume(resume::CONTINUE), Some(ChildState::Halted));
        assert_eq!(family.reason(), family.taken(FIRST, 7));
        assert_eq!(family.resume(resume::CONTINUE), Some(ChildState::Halted), "it needs the page still");
        // The first two now, the others when they are needed.
        assert_eq!(family.give(FIRST, 2, 7), Ok(2));
        assert_eq!(family.give(FIRST, 2, 7), Ok(0), "they are there");
        assert_eq!(family.resume(resume::CONTINUE), Some(ChildState::Halted));
        assert_eq!(family.reason(), family.taken(FIRST + 2 * PAGE_SIZE, 9));
        family.lab.kernel.write(family.parent, BUFFER, &30_u64.to_le_bytes()).expect("it waits");
        family.lab.kernel.write(family.parent, BUFFER + PAGE_SIZE, &40_u64.to_le_bytes()).expect("it waits");
        assert_eq!(family.give(FIRST + 2 * PAGE_SIZE, 2, 9), Ok(2));
        assert_eq!(family.resume(resume::CONTINUE), Some(ChildState::Exited(1 + 2 + 30 + 40)));
        family.close();
    }
}
