// SPDX-License-Identifier: MIT OR Apache-2.0
//! Mappings of blocks: any block at any page, at the cost of some tables, and their treatment by `inspect` and `protect`.

use crate::cell::{VIEW, block, noted, show, viewer, word};
use pando_abi::layout::SLOT_SIZE;
use pando_abi::memory::CURRENT_SPACE;
use pando_abi::memory::inspected::{self, LAZY, RESIDENT};
use pando_abi::{Hypercall, PAGE_SIZE, Permissions};
use pando_kernel::End;
use pando_machine::PageCount;
use pando_testing::asm::Asm;
use pando_testing::asm::Register::{R13, Rax, Rbx, Rdi, Rsi};
use pando_testing::disk::TestDisk;
use pando_testing::lab::{CODE, DATA, Lab};

/// Blocks of the large disk: more than a slot has pages.
const MANY: u32 = 1 << 28;

/// An address in a slot of its own, across the edge of a gigabyte.
const ACROSS: u64 = 9 * SLOT_SIZE + (1 << 30) - 3 * PAGE_SIZE;

#[test]
fn a_whole_slot_is_one_call_and_every_page_its_block() {
    for mut lab in Lab::both() {
        let disk = TestDisk::new(MANY);
        let pages = SLOT_SIZE / PAGE_SIZE;
        let first = 12_345;
        let probes = [0, 1, 511, 512, 513, 262_143, 262_144, 262_145, 70_000_001, pages - 1];
        let mut asm = Asm::new();
        for (index, page) in probes.into_iter().enumerate() {
            asm.mov_imm(Rbx, 9 * SLOT_SIZE + page * PAGE_SIZE + PAGE_SIZE - 8).load(Rax, Rbx, 0);
            asm.mov_imm(Rbx, DATA).store(Rbx, index as i32 * 8, Rax);
        }
        asm.call_kernel(Hypercall::Freeze {});
        let id = lab.cell(&asm.finish());
        let disk_id = lab.kernel.add_disk(disk.clone()).expect("room for a disk");
        lab.kernel.attach(id, disk_id).expect("its first disk");
        let used = |lab: &Lab| lab.kernel.inspect(id).expect("it lives").2.used;
        let before = used(&lab);
        lab.kernel.map_blocks(id, 9 * SLOT_SIZE, PageCount(pages), block(first), Permissions::READ).expect("room for tables");
        assert_eq!(used(&lab), before + PageCount(1), "512 GiB cost a table");
        lab.kernel.start(id).expect("it was not started before");
        lab.run_all();
        for (index, page) in probes.into_iter().enumerate() {
            assert_eq!(noted(&lab, id, index as u64), TestDisk::word(first + page as u32, 1), "page {page}");
        }
    }
}

#[test]
fn a_mapping_over_some_blocks_leaves_their_neighbours() {
    for mut lab in Lab::both() {
        let read_write = Permissions::READ_WRITE.bits();
        let map_blocks = |address, pages, block| Hypercall::MapBlocks { space: CURRENT_SPACE, address, pages, block, flags: read_write };
        let at = |page: u64| ACROSS + page * PAGE_SIZE;
        let inspect = |page: u64| Hypercall::Inspect { space: CURRENT_SPACE, address: at(page) };
        let looks = [0, 1, 2, 3, 4, 5, 599, 600, 1199, 1200];
        let mut asm = Asm::new();
        for call in [
            map_blocks(at(0), 1200, 1000),
            Hypercall::Unmap { space: CURRENT_SPACE, address: at(1), pages: 1 },
            Hypercall::Map { space: CURRENT_SPACE, address: at(3), pages: 1, flags: read_write },
            map_blocks(at(4), 1, 7),
            Hypercall::Protect { space: CURRENT_SPACE, address: at(2), pages: 600, permissions: 1 },
        ] {
            asm.call_kernel(call);
        }
        for (index, page) in looks.into_iter().enumerate() {
            asm.call_kernel(inspect(page)).mov_imm(Rbx, DATA).store(Rbx, index as i32 * 8, Rax);
        }
        asm.mov_imm(Rbx, at(700)).store_imm(Rbx, 0, 1).call_kernel(inspect(700)).mov_imm(Rbx, DATA).store(Rbx, 800, Rax);
        asm.call_kernel(Hypercall::Freeze {});
        let id = lab.cell(&asm.finish());
        show(&lab.kernel, id, &TestDisk::new(5000), 1, Permissions::READ);
        lab.kernel.start(id).expect("it was not started before");
        lab.run_all();
        let absent = |number, permissions: u64| permissions | LAZY | inspected::block(pando_abi::BlockNumber(number));
        let wanted = [
            absent(1000, 3),
            0,
            absent(1002, 1),
            1 | LAZY,
            absent(7, 1),
            absent(1005, 1),
            absent(1599, 1),
            absent(1600, 1),
            absent(2199, 3),
            0,
        ];
        for (index, wanted) in wanted.into_iter().enumerate() {
            assert_eq!(noted(&lab, id, index as u64), wanted, "page {}", looks[index]);
        }
        assert_eq!(noted(&lab, id, 100), 3 | RESIDENT, "a page that was written");
        // The operator sees the same blocks, which are read for it.
        for (page, number) in [(0, 1000), (4, 7), (599, 1599), (600, 1600), (1199, 2199)] {
            assert_eq!(word(&lab, id, at(page)), TestDisk::word(number, 0), "page {page}");
        }
        assert_eq!(word(&lab, id, at(3)), 0);
    }
}

#[test]
fn blocks_can_be_code() {
    for mut lab in Lab::both() {
        let mut asm = Asm::new();
        asm.inc(R13).nop().nop().nop().jmp_to(Rbx);
        let words = u64::from_le_bytes(asm.finish().try_into().expect("eight bytes"));
        let disk = TestDisk::with_words(4, move |_| Some([words, 0]));
        let mut asm = Asm::new();
        let back = CODE + 64;
        asm.mov_imm(R13, 8).mov_imm(Rbx, back).mov_imm(Rax, VIEW + PAGE_SIZE).jmp_to(Rax);
        while asm.offset() < 64 {
            asm.nop();
        }
        asm.mov(Rdi, R13).mov_imm(Rsi, 0).mov_imm(Rax, 0).hypercall();
        let id = lab.cell(&asm.finish());
        show(&lab.kernel, id, &disk, 4, Permissions::READ_EXECUTE);
        lab.kernel.start(id).expect("it was not started before");
        assert_eq!(lab.finish(id).end, End::Exited { status: 9 });
    }
}

#[test]
fn a_page_that_is_written_is_the_cells_own_and_the_disk_stays_as_it_is() {
    for mut lab in Lab::both() {
        let disk = TestDisk::new(4);
        let write = |asm: &mut Asm| {
            // One page is read first, the other written at once.
            asm.mov_imm(Rbx, VIEW).load(Rax, Rbx, 0).store_imm(Rbx, 0, 11).store_imm(Rbx, 0x1000, 12).call_kernel(Hypercall::Freeze {});
        };
        let id = viewer(&lab, &disk, 4, Permissions::READ_WRITE, write);
        lab.kernel.start(id).expect("it was not started before");
        lab.run_all();
        let other = viewer(&lab, &disk, 4, Permissions::READ, |asm| _ = asm.nop());
        for (page, own) in [(0, 11), (1, 12)] {
            assert_eq!(word(&lab, id, VIEW + page * PAGE_SIZE), own);
            assert_eq!(
                word(&lab, id, VIEW + page * PAGE_SIZE + 0xff8),
                TestDisk::word(page as u32, 1),
                "the rest of the page is the block's"
            );
            assert_eq!(word(&lab, other, VIEW + page * PAGE_SIZE), TestDisk::word(page as u32, 0));
        }
        assert_eq!(word(&lab, id, VIEW + 2 * PAGE_SIZE), TestDisk::word(2, 0));
        // A write by the operator has the same effect, regardless of the permissions.
        lab.kernel.write(other, VIEW + 3 * PAGE_SIZE, &5_u64.to_le_bytes()).expect("it is mapped");
        assert_eq!((word(&lab, other, VIEW + 3 * PAGE_SIZE), word(&lab, id, VIEW + 3 * PAGE_SIZE)), (5, TestDisk::word(3, 0)));
    }
}
