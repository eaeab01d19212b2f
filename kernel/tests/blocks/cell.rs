// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cells that read blocks and record results.

use pando_abi::{BlockAddress, BlockNumber, DiskIndex, Hypercall, PAGE_SIZE, Permissions};
use pando_kernel::{CellId, Kernel};
use pando_machine::PageCount;
use pando_testing::asm::Register::{R12, R13, Rax, Rbx, Rcx};
use pando_testing::asm::{Asm, Condition};
use pando_testing::disk::TestDisk;
use pando_testing::lab::{DATA, Lab};
use std::sync::Arc;

/// Address at which tests map blocks.
pub const VIEW: u64 = 0x4000_0000;

/// A block of a cell's first disk.
pub const fn block(number: u32) -> BlockAddress {
    BlockAddress { disk: DiskIndex(0), block: BlockNumber(number) }
}

/// The call that ends a cell.
pub const fn exit(status: u64) -> Hypercall {
    Hypercall::Exit { status, signal: 0, address: 0, instruction: 0 }
}

/// Adds the first words of `pages` pages from `address` on to R13.
pub fn add_up(asm: &mut Asm, address: u64, pages: u64) -> &mut Asm {
    asm.mov_imm(Rbx, address).mov_imm(Rcx, pages);
    let again = asm.here();
    asm.load(Rax, Rbx, 0).add(R13, Rax).add_imm(Rbx, PAGE_SIZE as i32).dec(Rcx).jump_if(Condition::NotZero, again)
}

/// The sum of the first words of `count` blocks.
pub fn sum(first: u32, count: u32) -> u64 {
    (first..first + count).map(|number| TestDisk::word(number, 0)).fold(0, u64::wrapping_add)
}

/// Exits with 0 if R13 holds `wanted`, else with 1.
pub fn exit_if(asm: &mut Asm, wanted: u64) -> &mut Asm {
    let right = asm.label();
    asm.mov_imm(R12, wanted).cmp(R13, R12).jump_if(Condition::Zero, right).call_kernel(exit(1));
    asm.bind(right).call_kernel(exit(0))
}

/// A cell with this code and `count` blocks of a disk at [`VIEW`], not yet started.
pub fn viewer(lab: &Lab, disk: &Arc<TestDisk>, count: u64, permissions: Permissions, build: impl FnOnce(&mut Asm)) -> CellId {
    let mut asm = Asm::new();
    build(&mut asm);
    let id = lab.cell(&asm.finish());
    show(&lab.kernel, id, disk, count, permissions);
    id
}

/// Attaches a disk and maps its first blocks.
pub fn show(kernel: &Kernel, id: CellId, disk: &Arc<TestDisk>, count: u64, permissions: Permissions) {
    let disk = kernel.add_disk(Arc::clone(disk) as Arc<_>).expect("room for a disk");
    assert_eq!(kernel.attach(id, disk), Ok(DiskIndex(0)));
    kernel.map_blocks(id, VIEW, PageCount(count), block(0), permissions).expect("room for tables");
}

/// A word of a cell's memory.
pub fn word(lab: &Lab, id: CellId, address: u64) -> u64 {
    let mut bytes = [0; 8];
    lab.kernel.read(id, address, &mut bytes).expect("the word is mapped");
    u64::from_le_bytes(bytes)
}

/// Word `index` of a cell's recorded results.
pub fn noted(lab: &Lab, id: CellId, index: u64) -> u64 {
    word(lab, id, DATA + index * 8)
}
