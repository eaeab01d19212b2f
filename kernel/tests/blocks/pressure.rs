// SPDX-License-Identifier: MIT OR Apache-2.0
//! Eviction of blocks: for other blocks when the registry is full, for the memory of cells when the machine is.

use crate::cell::{VIEW, add_up, exit_if, sum, viewer};
use pando_abi::memory::CURRENT_SPACE;
use pando_abi::{Hypercall, MapFlags, PAGE_SIZE, Permissions};
use pando_kernel::{Config, End};
use pando_machine::PageCount;
use pando_machine::kvm::Omit;
use pando_testing::asm::Register::{R13, R14, R15, Rax};
use pando_testing::asm::{Asm, Condition};
use pando_testing::disk::TestDisk;
use pando_testing::lab::{DATA, Lab, QUOTA, is_kvm_available};

/// Quota of the registry.
const REGISTRY: PageCount = PageCount(256);
/// Blocks of the disk: several times the quota.
const BLOCKS: u32 = 1500;

fn labs(arena: PageCount) -> Vec<Lab> {
    let config = || Config { registry: REGISTRY, ..Config::default() };
    let mut labs = vec![Lab::sim(1, arena, 1, config())];
    if is_kvm_available() {
        labs.push(Lab::kvm(arena, 1, config(), Omit::NOTHING));
    }
    labs
}

/// Reads all blocks `rounds` times, and exits with 0 if their sum is right.
fn reader(rounds: u64) -> impl Fn(&mut Asm) {
    move |asm| {
        asm.mov_imm(R13, 0).mov_imm(R14, rounds);
        let again = asm.here();
        add_up(asm, VIEW, BLOCKS.into()).dec(R14).jump_if(Condition::NotZero, again);
        exit_if(asm, sum(0, BLOCKS).wrapping_mul(rounds));
    }
}

#[test]
fn a_cell_reads_more_than_the_registry_holds() {
    for mut lab in labs(PageCount(1 << 14)) {
        let before = lab.kernel.free();
        let disk = TestDisk::new(BLOCKS);
        let id = viewer(&lab, &disk, BLOCKS.into(), Permissions::READ, reader(3));
        lab.kernel.start(id).expect("it was not started before");
        let outcome = lab.finish(id);
        assert_eq!(outcome.end, End::Exited { status: 0 });
        assert!(lab.kernel.registry().peak <= REGISTRY, "{:?}", lab.kernel.registry());
        assert!(disk.reads().values().all(|count| (1..=4).contains(count)), "{:?}", disk.reads());
        lab.kernel.free_unused_frames();
        assert_eq!((lab.kernel.free(), lab.kernel.registry().used), (before, PageCount(0)));
    }
}

#[test]
fn blocks_that_waiting_cells_map_are_evicted_and_read_again_on_access() {
    for mut lab in labs(PageCount(1 << 14)) {
        let before = lab.kernel.free();
        let disk = TestDisk::new(BLOCKS);
        let waiter = viewer(&lab, &disk, BLOCKS.into(), Permissions::READ_WRITE, |asm| {
            // One page is its own, and must stay.
            asm.mov_imm(R13, 0);
            add_up(asm, VIEW, 200).mov_imm(R15, VIEW + 5 * PAGE_SIZE).store_imm(R15, 0, 77);
            asm.call_kernel(Hypercall::Idle { deadline: u64::MAX });
            let wanted = sum(0, 200).wrapping_mul(2).wrapping_sub(TestDisk::word(5, 0)).wrapping_add(77);
            exit_if(add_up(asm, VIEW, 200), wanted);
        });
        lab.kernel.start(waiter).expect("it was not started before");
        lab.run_all();
        // A clone shares the tables; both must give up the blocks.
        let clone = lab.kernel.clone_cell(waiter, QUOTA).expect("an idle cell can be cloned");
        lab.kernel.start(clone).expect("it was not started before");
        let id = viewer(&lab, &disk, BLOCKS.into(), Permissions::READ, reader(1));
        lab.kernel.start(id).expect("it was not started before");
        assert_eq!(lab.finish(id).end, End::Exited { status: 0 });
        lab.kernel.raise(waiter, pando_abi::Event::Console);
        lab.kernel.raise(clone, pando_abi::Event::Console);
        assert_eq!(lab.finish(waiter).end, End::Exited { status: 0 });
        assert_eq!(lab.finish(clone).end, End::Exited { status: 0 });
        assert!(lab.kernel.registry().peak <= REGISTRY);
        lab.kernel.free_unused_frames();
        assert_eq!((lab.kernel.free(), lab.kernel.registry().used), (before, PageCount(0)));
    }
}

#[test]
fn unmapped_blocks_make_way_for_the_memory_of_cells() {
    for mut lab in labs(PageCount(1 << 12)) {
        let before = lab.kernel.free();
        let disk = TestDisk::new(BLOCKS);
        let first = viewer(&lab, &disk, 200, Permissions::READ, |asm| {
            asm.mov_imm(R13, 0);
            exit_if(add_up(asm, VIEW, 200), sum(0, 200));
        });
        lab.kernel.start(first).expect("it was not started before");
        assert_eq!(lab.finish(first).end, End::Exited { status: 0 });
        // Until a flush, the tables of an ended cell belong to no account.
        let tables = before.0 - lab.kernel.free().0 - lab.kernel.registry().used.0;
        assert_eq!(lab.kernel.registry().used, PageCount(200));
        let pages = before.0 - 100 - tables;
        let mut asm = Asm::new();
        let flags = MapFlags::eager(Permissions::READ_WRITE).bits();
        asm.call_kernel(Hypercall::Map { space: CURRENT_SPACE, address: 1 << 39, pages, flags }).mov(R13, Rax);
        exit_if(&mut asm, 0);
        let greedy = lab.cell_with(&asm.finish(), before);
        lab.kernel.start(greedy).expect("it was not started before");
        assert_eq!(lab.finish(greedy).end, End::Exited { status: 0 });
        assert!(lab.kernel.registry().used < PageCount(100), "{:?}", lab.kernel.registry());
        lab.kernel.free_unused_frames();
        assert_eq!((lab.kernel.free(), lab.kernel.registry().used), (before, PageCount(0)));
    }
}

#[test]
fn a_registry_without_room_ends_only_its_reader() {
    let mut lab = Lab::sim(1, PageCount(1 << 12), 1, Config { registry: PageCount(0), ..Config::default() });
    let before = lab.kernel.free();
    let idle = |asm: &mut Asm| _ = asm.call_kernel(Hypercall::Idle { deadline: u64::MAX });
    let other = lab.launch(idle);
    let id = viewer(&lab, &TestDisk::new(10), 10, Permissions::READ, |asm| _ = add_up(asm, VIEW, 1));
    lab.kernel.write(id, DATA + 10 * PAGE_SIZE, &[1; 5 * PAGE_SIZE as usize]).expect("it has room");
    lab.kernel.start(id).expect("it was not started before");
    lab.run_all();
    assert_eq!(lab.kernel.collect(id).expect("it has ended").end, End::MachineFull);
    lab.kernel.end(other, End::Killed).expect("it idles still");
    lab.kernel.free_unused_frames();
    assert_eq!(lab.kernel.free(), before);
}
