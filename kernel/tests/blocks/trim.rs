// SPDX-License-Identifier: MIT OR Apache-2.0
//! Trims evict the blocks of idle cells, which read them again.

use crate::cell::{VIEW, add_up, exit_if, show, sum};
use pando_abi::{Event, Hypercall, MapFlags, PAGE_SIZE, Permissions, Registers};
use pando_kernel::{CellConfig, Config, End, Kernel};
use pando_machine::PageCount;
use pando_machine::kvm::{Kvm, KvmConfig, Omit};
use pando_testing::asm::Asm;
use pando_testing::asm::Register::{R13, R15};
use pando_testing::disk::TestDisk;
use pando_testing::lab::{CODE, QUOTA};
use pando_testing::needs_kvm;
use std::thread;
use std::time::{Duration, Instant};

const BLOCKS: u32 = 200;
/// Far longer than the time after which an idle kernel trims its memory.
const WAIT_MAX: Duration = Duration::from_secs(60);

#[test]
fn an_idle_kernel_gives_up_blocks_and_cells_read_them_again() {
    needs_kvm!();
    let machine = Kvm::new(KvmConfig { arena: PageCount(1 << 14), vcpus: 2, omit: Omit::NOTHING }).expect("KVM is there");
    let kernel = Kernel::new(machine, Config { reclaims_idle_memory: true, ..Config::default() });
    kernel.start_vcpus().expect("vCPU threads start");
    let before = kernel.free();
    let mut asm = Asm::new();
    // One page is its own, and must stay.
    asm.mov_imm(R13, 0);
    add_up(&mut asm, VIEW, BLOCKS.into()).mov_imm(R15, VIEW + 5 * PAGE_SIZE).store_imm(R15, 0, 77);
    asm.call_kernel(Hypercall::Idle { deadline: u64::MAX });
    let wanted = sum(0, BLOCKS).wrapping_mul(2).wrapping_sub(TestDisk::word(5, 0)).wrapping_add(77);
    exit_if(add_up(&mut asm, VIEW, BLOCKS.into()), wanted);
    let code = asm.finish();
    let cell = kernel.create(CellConfig { quota: QUOTA, host_name: "test".into() }).expect("room for a cell");
    kernel.map(cell, CODE, PageCount::covering(code.len() as u64), MapFlags::lazy(Permissions::READ_EXECUTE)).expect("room for its code");
    kernel.write(cell, CODE, &code).expect("its code is mapped");
    kernel.set_registers(cell, Registers { rip: CODE, ..Registers::default() }).expect("it is not running");
    let disk = TestDisk::new(BLOCKS);
    show(&kernel, cell, &disk, BLOCKS.into(), Permissions::READ_WRITE);
    // A clone shares the tables.
    let clone = kernel.clone_cell(cell, QUOTA).expect("it does not run");
    for id in [cell, clone] {
        kernel.start(id).expect("it was not started before");
    }
    let start = Instant::now();
    while disk.reads().len() < BLOCKS as usize || kernel.registry().used > PageCount(0) {
        assert!(start.elapsed() < WAIT_MAX, "{:?}", kernel.registry());
        thread::sleep(Duration::from_millis(20));
    }
    for id in [cell, clone] {
        kernel.raise(id, Event::Console);
        assert_eq!(kernel.wait(id).expect("it ends").end, End::Exited { status: 0 });
    }
    assert!(disk.reads().values().any(|count| *count > 1), "blocks were read again");
    // Another vCPU may still be giving memory back.
    while (kernel.free(), kernel.registry().used) != (before, PageCount(0)) {
        assert!(start.elapsed() < WAIT_MAX, "{:?} free, {before:?} before; {:?}", kernel.free(), kernel.registry());
        kernel.free_unused_frames();
        thread::sleep(Duration::from_millis(20));
    }
}
