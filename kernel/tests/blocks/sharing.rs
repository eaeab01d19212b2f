// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sharing of blocks: the second reader finds the blocks of the first, each block is in memory once, and every frame comes back.

use crate::cell::{VIEW, add_up, block, exit_if, noted, show, sum, viewer};
use pando_abi::memory::CURRENT_SPACE;
use pando_abi::{Hypercall, MapFlags, PAGE_SIZE, Permissions};
use pando_kernel::{Config, End, Stream};
use pando_machine::PageCount;
use pando_testing::asm::Asm;
use pando_testing::asm::Register::{R13, Rax, Rbx, Rcx, Rdi};
use pando_testing::disk::TestDisk;
use pando_testing::lab::{DATA, Lab, QUOTA};

const BLOCKS: u32 = 700;

#[test]
fn two_cells_that_read_a_disk_read_each_block_once() {
    for mut lab in Lab::both() {
        let before = lab.kernel.free();
        let disk = TestDisk::new(BLOCKS);
        let disk_id = lab.kernel.add_disk(disk.clone()).expect("room for a disk");
        let mut faults = Vec::new();
        for address in [VIEW, VIEW + 0x5000] {
            let mut asm = Asm::new();
            asm.mov_imm(R13, 0);
            exit_if(add_up(&mut asm, address, BLOCKS.into()), sum(0, BLOCKS));
            let id = lab.cell(&asm.finish());
            lab.kernel.attach(id, disk_id).expect("its first disk");
            lab.kernel.map_blocks(id, address, PageCount(BLOCKS.into()), block(0), Permissions::READ).expect("room for tables");
            lab.kernel.start(id).expect("it was not started before");
            let outcome = lab.finish(id);
            assert_eq!(outcome.end, End::Exited { status: 0 });
            assert!(outcome.usage.peak < PageCount(40), "blocks cost a cell nothing but tables: {:?}", outcome.usage);
            faults.push(outcome.counters.faults);
        }
        assert!(disk.reads().len() == BLOCKS as usize && disk.reads().values().all(|count| *count == 1), "{:?}", disk.reads());
        assert!(faults[0] < 20, "neighbours come along: {faults:?}");
        assert!(faults[1] < 5, "a fault maps all blocks of its table that are in memory: {faults:?}");
        assert_eq!(lab.kernel.registry().used, PageCount(BLOCKS.into()));
        lab.kernel.free_unused_frames();
        assert_eq!((lab.kernel.free(), lab.kernel.registry().used), (before, PageCount(0)));
    }
}

/// Another file's blocks in the same image may be slow, or lost.
#[test]
fn a_block_fault_reads_the_mapped_neighbours_of_its_group() {
    let reads = |touched: u64, mapped: u64, run: Option<u32>| {
        let mut lab = Lab::sim(1, PageCount(1 << 14), 1, Config::default());
        let disk = TestDisk::new(BLOCKS);
        run.into_iter().for_each(|run| disk.split(run));
        let id = viewer(&lab, &disk, mapped, Permissions::READ, |asm| _ = asm.mov_imm(Rbx, VIEW + touched * PAGE_SIZE).load(Rax, Rbx, 0));
        lab.kernel.start(id).expect("it was not started before");
        lab.run_all();
        let read: Vec<u32> = disk.reads().into_keys().collect();
        (read[0], read[read.len() - 1], read.len())
    };
    assert_eq!(reads(75, 700, None), (64, 127, 64));
    assert_eq!(reads(75, 80, None), (64, 79, 16));
    assert_eq!(reads(699, 700, None), (640, 699, 60));
    assert_eq!(reads(75, 700, Some(10)), (70, 79, 10));
    assert_eq!(reads(64, 700, Some(10)), (64, 69, 6));
    assert_eq!(reads(127, 700, Some(10)), (120, 127, 8));
    assert_eq!(reads(75, 700, Some(1)), (75, 75, 1));
    assert_eq!(reads(75, 700, Some(50)), (64, 99, 36));
}

#[test]
fn clones_have_the_disks_and_mappings_of_their_source() {
    for mut lab in Lab::both() {
        let before = lab.kernel.free();
        let disk = TestDisk::new(BLOCKS);
        let template = viewer(&lab, &disk, BLOCKS.into(), Permissions::READ_WRITE, |asm| {
            asm.mov_imm(R13, 0).mov_imm(Rbx, VIEW).store_imm(Rbx, 0, 0);
            add_up(asm, VIEW, 100).call_kernel(Hypercall::Freeze {});
            // In a clone: read the other blocks, and map the disk again by its source's index.
            add_up(asm, VIEW + 100 * PAGE_SIZE, 500);
            let again = Hypercall::MapBlocks { space: CURRENT_SPACE, address: DATA + (1 << 30), pages: 100, block: 600, flags: 1 };
            exit_if(add_up(asm.call_kernel(again), DATA + (1 << 30), 100), sum(1, BLOCKS - 1));
        });
        lab.kernel.start(template).expect("it was not started before");
        lab.run_all();
        for _ in 0..3 {
            let clone = lab.kernel.clone_cell(template, QUOTA).expect("a template can be cloned");
            lab.kernel.start(clone).expect("it was not started before");
            assert_eq!(lab.finish(clone).end, End::Exited { status: 0 });
        }
        assert!(disk.reads().values().all(|count| *count == 1), "{:?}", disk.reads());
        lab.kernel.end(template, End::Killed).expect("it is frozen");
        lab.kernel.free_unused_frames();
        assert_eq!((lab.kernel.free(), lab.kernel.registry().used), (before, PageCount(0)));
    }
}

#[test]
fn one_call_brings_many_blocks_in_and_no_page_of_them_faults() {
    for mut lab in Lab::both() {
        let eager = MapFlags::eager(Permissions::READ).bits();
        for call in [
            Hypercall::Populate { space: CURRENT_SPACE, address: VIEW, pages: 512 },
            Hypercall::MapBlocks { space: CURRENT_SPACE, address: VIEW, pages: 512, block: 0, flags: eager },
        ] {
            let disk = TestDisk::new(BLOCKS);
            let id = viewer(&lab, &disk, BLOCKS.into(), Permissions::READ, |asm| {
                // The program's other memory is accessed first.
                asm.mov_imm(R13, 0).mov_imm(Rbx, DATA).store_imm(Rbx, 0, 0);
                add_up(asm.call_kernel(call), VIEW, 512).mov_imm(Rbx, DATA).store(Rbx, 0, R13).call_kernel(Hypercall::Freeze {});
            });
            lab.kernel.start(id).expect("it was not started before");
            lab.run_all();
            assert_eq!(noted(&lab, id, 0), sum(0, 512));
            // Its code and its data.
            let counters = lab.kernel.inspect(id).expect("it is frozen").1;
            assert!(counters.faults <= 2, "{counters:?}");
            assert!(disk.reads().values().all(|count| *count == 1) && disk.reads().len() == 512, "{:?}", disk.reads());
            lab.kernel.end(id, End::Killed).expect("it is frozen");
        }
    }
}

#[test]
fn populating_makes_zero_memory_between_blocks_too() {
    for mut lab in Lab::both() {
        let disk = TestDisk::new(8);
        let id = viewer(&lab, &disk, 8, Permissions::READ_WRITE, |asm| {
            for call in [
                Hypercall::Map { space: CURRENT_SPACE, address: VIEW + 2 * PAGE_SIZE, pages: 2, flags: 3 },
                Hypercall::Unmap { space: CURRENT_SPACE, address: VIEW + 5 * PAGE_SIZE, pages: 1 },
                Hypercall::Populate { space: CURRENT_SPACE, address: VIEW - PAGE_SIZE, pages: 20 },
            ] {
                asm.call_kernel(call);
            }
            for page in 0..8 {
                asm.call_kernel(Hypercall::Inspect { space: CURRENT_SPACE, address: VIEW + page * PAGE_SIZE });
                asm.mov_imm(Rbx, DATA).store(Rbx, page as i32 * 8, Rax);
            }
            asm.call_kernel(Hypercall::Freeze {});
        });
        lab.kernel.start(id).expect("it was not started before");
        lab.run_all();
        let resident = 3 | 1 << 3;
        let found: Vec<u64> = (0..8).map(|page| noted(&lab, id, page)).collect();
        assert_eq!(found, [resident, resident, resident, resident, resident, 0, resident, resident]);
    }
}

/// The kernel itself reads the blocks that a descriptor names.
#[test]
fn a_cell_transmits_from_disk_pages() {
    for mut lab in Lab::both() {
        let disk = TestDisk::with_words(100, |number| Some([u64::from_le_bytes(*b"Blocks! "), number.into()]));
        let id = lab.launch(|asm| {
            asm.call_kernel(Hypercall::Idle { deadline: u64::MAX });
            let rings = pando_abi::layout::CONSOLE_RINGS;
            asm.mov_imm(Rbx, rings).mov_imm(Rax, VIEW + 10 * PAGE_SIZE).mov_imm(Rdi, (64 * PAGE_SIZE) | (1 << 32));
            asm.store(Rbx, 16, Rax).store(Rbx, 24, Rdi).mov_imm(Rcx, 1).store(Rbx, 0, Rcx).call_kernel(crate::cell::exit(0));
        });
        lab.run_all();
        // Attached late: none of its blocks is in memory when the descriptor is read.
        show(&lab.kernel, id, &disk, 100, Permissions::READ);
        let port = lab.kernel.console(id).expect("it lives");
        lab.kernel.raise(id, pando_abi::Event::Console);
        assert_eq!(lab.finish(id).end, End::Exited { status: 0 });
        let mut said = Vec::new();
        while let Some((stream, bytes)) = port.receive() {
            assert_eq!(stream, Stream::Stdout);
            said.extend(bytes);
        }
        assert_eq!(said.len(), 64 * PAGE_SIZE as usize);
        for (page, number) in said.chunks(PAGE_SIZE as usize).zip(10_u64..) {
            assert!(page.starts_with(b"Blocks! ") && page.ends_with(&number.to_le_bytes()), "block {number}");
        }
    }
}
