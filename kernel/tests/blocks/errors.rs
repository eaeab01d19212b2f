// SPDX-License-Identifier: MIT OR Apache-2.0
//! Blocks that cannot be read: the reader gets an exception, and nothing else is affected.

use crate::cell::{VIEW, add_up, exit_if, noted, sum, viewer};
use pando_abi::layout::{CONSOLE_RINGS, VIRTUAL_REGISTERS};
use pando_abi::limits::MAX_DISKS;
use pando_abi::memory::CURRENT_SPACE;
use pando_abi::registers::UNREADABLE;
use pando_abi::virtual_registers::{Control, offset};
use pando_abi::{DiskIndex, Hypercall, PAGE_SIZE, Permissions, Refusal, SavedContext};
use pando_kernel::{Config, DiskError, DiskId, End, OperatorError};
use pando_machine::PageCount;
use pando_testing::asm::Register::{R13, Rax, Rbx, Rcx, Rdi, Rsp};
use pando_testing::asm::{Asm, Condition};
use pando_testing::disk::TestDisk;
use pando_testing::lab::{CODE, DATA, Lab};
use std::mem::offset_of;

const BLOCKS: u32 = 200;
/// The unreadable block.
const LOST: u32 = 70;
const PLACE: u64 = VIEW + LOST as u64 * PAGE_SIZE;

fn disk() -> std::sync::Arc<TestDisk> {
    let disk = TestDisk::new(BLOCKS);
    disk.lose(LOST, true);
    disk
}

#[test]
fn a_lost_block_ends_a_cell_that_takes_no_exceptions_and_the_report_says_why() {
    for mut lab in Lab::both() {
        let before = lab.kernel.free();
        let disk = disk();
        for (write, tried) in [(false, "reading"), (true, "writing")] {
            let id = viewer(&lab, &disk, BLOCKS.into(), Permissions::READ_WRITE, |asm| {
                asm.mov_imm(Rbx, PLACE + 8);
                if write {
                    asm.store_imm(Rbx, 0, 1)
                } else {
                    asm.load(Rax, Rbx, 0)
                };
            });
            lab.kernel.start(id).expect("it was not started before");
            let End::Fault(report) = lab.finish(id).end else { panic!("it ended otherwise") };
            assert_eq!((report.vector, report.address), (14, PLACE + 8));
            assert_eq!(report.error, UNREADABLE | 4 | u64::from(write) << 1);
            let why = format!("{tried} address {:#x}, a block of a disk that cannot be read", PLACE + 8);
            assert!(report.to_string().contains(&why), "{report}");
        }
        lab.kernel.free_unused_frames();
        assert_eq!(lab.kernel.free(), before);
    }
}

/// Reads all blocks; the handler records each exception and skips the page.
fn tolerant(asm: &mut Asm) {
    let [start, next, done] = std::array::from_fn(|_| asm.label());
    asm.jmp(start);
    let handler = CODE + asm.offset() as u64;
    // The upcall's stack pointer leads to the saved cause, error and address.
    asm.load(Rax, Rsp, 8).mov_imm(Rdi, DATA).store(Rdi, 0, Rax);
    asm.load(Rax, Rsp, 16).store(Rdi, 8, Rax);
    asm.load(Rax, Rdi, 16).inc(Rax).store(Rdi, 16, Rax);
    asm.mov_imm(Rdi, VIRTUAL_REGISTERS).store_imm(Rdi, offset::LEVEL as i32, 1).jmp(next);
    asm.bind(start).mov_imm(Rdi, VIRTUAL_REGISTERS).mov_imm(Rax, handler).store(Rdi, offset_of!(Control, exception_entry) as i32, Rax);
    let saves = VIRTUAL_REGISTERS + (offset::SAVES + SavedContext::WORDS * 8) as u64;
    asm.mov_imm(Rax, saves).store(Rdi, offset_of!(Control, stacks) as i32 + 8, Rax);
    asm.mov_imm(R13, 0).mov_imm(Rbx, VIEW).mov_imm(Rcx, BLOCKS.into());
    let again = asm.here();
    asm.load(Rax, Rbx, 0).add(R13, Rax).bind(next).add_imm(Rbx, PAGE_SIZE as i32).dec(Rcx);
    asm.jump_if(Condition::Zero, done).jmp(again);
    asm.bind(done).mov_imm(Rdi, DATA).store(Rdi, 24, R13).call_kernel(Hypercall::Freeze {});
}

#[test]
fn a_libos_hears_of_a_lost_block_and_its_neighbours_are_there() {
    for mut lab in Lab::both() {
        let disk = disk();
        let id = viewer(&lab, &disk, BLOCKS.into(), Permissions::READ, tolerant);
        lab.kernel.start(id).expect("it was not started before");
        lab.run_all();
        assert_eq!(noted(&lab, id, 0), UNREADABLE | 4);
        assert_eq!((noted(&lab, id, 1), noted(&lab, id, 2)), (PLACE, 1), "one exception, there");
        assert_eq!(noted(&lab, id, 3), sum(0, BLOCKS).wrapping_sub(TestDisk::word(LOST, 0)), "all others were read");
        // Once the block can be read again, the next access succeeds.
        disk.lose(LOST, false);
        let id = viewer(&lab, &disk, BLOCKS.into(), Permissions::READ, |asm| {
            asm.mov_imm(R13, 0);
            exit_if(add_up(asm, VIEW, BLOCKS.into()), sum(0, BLOCKS));
        });
        lab.kernel.start(id).expect("it was not started before");
        assert_eq!(lab.finish(id).end, End::Exited { status: 0 });
    }
}

#[test]
fn populating_passes_lost_blocks_over() {
    for mut lab in Lab::both() {
        let disk = disk();
        for number in [0, 63, 64, 65, 127, BLOCKS - 1] {
            disk.lose(number, true);
        }
        let id = viewer(&lab, &disk, BLOCKS.into(), Permissions::READ, |asm| {
            asm.call_kernel(Hypercall::Populate { space: CURRENT_SPACE, address: VIEW, pages: BLOCKS.into() });
            asm.mov_imm(Rbx, DATA).store(Rbx, 0, Rax);
            for page in 0..u64::from(BLOCKS) {
                asm.call_kernel(Hypercall::Inspect { space: CURRENT_SPACE, address: VIEW + page * PAGE_SIZE });
                asm.mov_imm(Rbx, DATA).store(Rbx, page as i32 * 8 + 8, Rax);
            }
            asm.call_kernel(Hypercall::Freeze {});
        });
        lab.kernel.start(id).expect("it was not started before");
        lab.run_all();
        assert_eq!(noted(&lab, id, 0), 0);
        let absent: Vec<u64> = (0..BLOCKS.into()).filter(|page| noted(&lab, id, page + 1) & 1 << 3 == 0).collect();
        assert_eq!(absent, [0, 63, 64, 65, 70, 127, 199]);
    }
}

#[test]
fn copies_by_the_kernel_fail_at_an_unreadable_block() {
    for mut lab in Lab::both() {
        let disk = disk();
        let id = viewer(&lab, &disk, BLOCKS.into(), Permissions::READ_WRITE, |asm| {
            asm.mov_imm(Rbx, CONSOLE_RINGS).mov_imm(Rax, PLACE - 4).mov_imm(Rdi, 8 | 1 << 32);
            asm.store(Rbx, 16, Rax).store(Rbx, 24, Rdi).mov_imm(Rcx, 1).store(Rbx, 0, Rcx).call_kernel(Hypercall::Doorbell {});
            asm.load(Rax, Rbx, 24).mov_imm(Rbx, DATA).store(Rbx, 0, Rax).call_kernel(Hypercall::Freeze {});
        });
        let failed = Err(OperatorError::Disk(DiskError));
        assert_eq!(lab.kernel.read(id, PLACE, &mut [0; 8]), failed);
        assert_eq!(lab.kernel.write(id, PLACE + 8, &[0; 8]), failed);
        assert_eq!(lab.kernel.read(id, PLACE - 4096, &mut [0; 4096]), Ok(()));
        lab.kernel.start(id).expect("it was not started before");
        lab.run_all();
        assert_eq!(noted(&lab, id, 0) as u32, u32::MAX, "the descriptor was taken as one that leads nowhere");
    }
}

#[test]
fn a_cell_has_so_many_disks_and_no_more() {
    let lab = Lab::sim(1, PageCount(1 << 14), 1, Config::default());
    let id = viewer(&lab, &TestDisk::new(1), 1, Permissions::READ, |asm| _ = asm.nop());
    let add = || lab.kernel.add_disk(TestDisk::new(1)).expect("room for a disk");
    for index in 1..MAX_DISKS {
        assert_eq!(lab.kernel.attach(id, add()), Ok(DiskIndex(index)));
    }
    assert_eq!(lab.kernel.attach(id, add()), Err(OperatorError::Refused(Refusal::TooMany)));
    let added = (0..DiskId::LIMIT).find_map(|_| lab.kernel.add_disk(TestDisk::new(1)).err());
    assert_eq!(added, Some(OperatorError::TooManyDisks));
}
