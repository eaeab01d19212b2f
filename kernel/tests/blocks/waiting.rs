// SPDX-License-Identifier: MIT OR Apache-2.0
//! A slow disk delays only the cells that wait for it.

use crate::cell::{VIEW, add_up, exit, exit_if, show, sum};
use pando_abi::{Hypercall, MapFlags, Permissions, Registers};
use pando_kernel::{CellConfig, CellId, Config, End, Kernel, OperatorError};
use pando_machine::kvm::{Kvm, KvmConfig, Omit};
use pando_machine::sim::{Sim, SimConfig};
use pando_machine::{Machine, PageCount};
use pando_testing::asm::Register::{R13, Rbx, Rcx};
use pando_testing::asm::{Asm, Condition};
use pando_testing::disk::TestDisk;
use pando_testing::lab::{CODE, DATA, QUOTA, is_kvm_available};
use std::iter;
use std::sync::Arc;

const ARENA: PageCount = PageCount(1 << 14);
const BLOCKS: u32 = 300;

fn kernels(vcpus: usize) -> Vec<Kernel> {
    let sim = Sim::new(SimConfig { arena: ARENA, vcpus, ..SimConfig::default() }).expect("memory for the software machine");
    iter::once(start(sim)).chain(on_kvm(vcpus)).collect()
}

/// A kernel on KVM, where time passes by itself.
fn on_kvm(vcpus: usize) -> Option<Kernel> {
    is_kvm_available().then(|| start(Kvm::new(KvmConfig { arena: ARENA, vcpus, omit: Omit::NOTHING }).expect("KVM is there")))
}

fn start(machine: Arc<dyn Machine>) -> Kernel {
    let kernel = Kernel::new(machine, Config::default());
    kernel.start_vcpus().expect("vCPU threads start");
    kernel
}

fn cell(kernel: &Kernel, build: impl FnOnce(&mut Asm)) -> CellId {
    let mut asm = Asm::new();
    build(&mut asm);
    let code = asm.finish();
    let id = kernel.create(CellConfig { quota: QUOTA, host_name: "test".into() }).expect("room for a cell");
    kernel.map(id, CODE, PageCount::covering(code.len() as u64), MapFlags::lazy(Permissions::READ_EXECUTE)).expect("room for its code");
    kernel.write(id, CODE, &code).expect("its code is mapped");
    kernel.map(id, DATA, PageCount(4), MapFlags::lazy(Permissions::READ_WRITE)).expect("room for its data");
    kernel.set_registers(id, Registers { rip: CODE, rsp: DATA + 0x4000, ..Registers::default() }).expect("it is not running");
    id
}

fn reader(kernel: &Kernel, disk: &Arc<TestDisk>) -> CellId {
    let id = cell(kernel, |asm| {
        asm.mov_imm(R13, 0);
        exit_if(add_up(asm, VIEW, BLOCKS.into()), sum(0, BLOCKS));
    });
    show(kernel, id, disk, BLOCKS.into(), Permissions::READ);
    id
}

#[test]
fn another_cell_runs_to_its_end_while_one_waits_for_the_disk() {
    for kernel in kernels(2) {
        let before = kernel.free();
        let disk = TestDisk::new(BLOCKS);
        disk.hold(true);
        let waits = reader(&kernel, &disk);
        kernel.start(waits).expect("it was not started before");
        disk.wait_for_reader();
        // The other vCPU, the operator and the console continue: the kernel's lock is free.
        for status in 0..20 {
            let runs = cell(&kernel, |asm| {
                asm.call_kernel(Hypercall::Relinquish {}).call_kernel(exit(status));
            });
            kernel.start(runs).expect("it was not started before");
            assert_eq!(kernel.wait(runs).expect("it ends").end, End::Exited { status: status as u8 });
        }
        assert!(matches!(kernel.read(waits, DATA, &mut [0]), Err(OperatorError::WrongState(_))));
        disk.hold(false);
        assert_eq!(kernel.wait(waits).expect("it ends").end, End::Exited { status: 0 });
        kernel.free_unused_frames();
        assert_eq!((kernel.free(), kernel.registry().used), (before, PageCount(0)));
    }
}

/// Memory that a cell fills first, so that it has little left.
const HOARD: u64 = 0x5000_0000;

/// A cell that fills `pages` pages, then writes a block, and exits with 0 if it reads back the written word.
fn hoarder(kernel: &Kernel, disk: &Arc<TestDisk>, pages: u64) -> CellId {
    let id = cell(kernel, |asm| {
        asm.mov_imm(Rbx, HOARD).mov_imm(Rcx, pages);
        let again = asm.here();
        asm.store(Rbx, 0, Rcx).add_imm(Rbx, 0x1000).dec(Rcx).jump_if(Condition::NotZero, again);
        asm.mov_imm(Rbx, VIEW).store_imm(Rbx, 0, 7).load(R13, Rbx, 0);
        exit_if(asm, 7);
    });
    kernel.map(id, HOARD, QUOTA, MapFlags::lazy(Permissions::READ_WRITE)).expect("room for it");
    show(kernel, id, disk, BLOCKS.into(), Permissions::READ_WRITE);
    // A clone has no tables of its own yet, so that the write takes as many frames as possible.
    let clone = kernel.clone_cell(id, QUOTA).expect("it does not run");
    kernel.end(id, End::Killed).expect("it lives");
    kernel.start(clone).expect("it was not started before");
    clone
}

#[test]
fn a_cell_is_stopped_however_little_memory_it_has_left() {
    let Some(kernel) = on_kvm(1) else { return };
    let mut stopped = 0;
    for pages in QUOTA.0 - 60.. {
        let unhurried = hoarder(&kernel, &TestDisk::new(BLOCKS), pages);
        match kernel.wait(unhurried).expect("it ends").end {
            End::Quota => break,
            end => assert_eq!(end, End::Exited { status: 0 }),
        }
        let disk = TestDisk::new(BLOCKS);
        disk.hold(true);
        let id = hoarder(&kernel, &disk, pages);
        disk.wait_for_reader();
        // It has written nothing yet.
        kernel.force_freeze(id).expect("it was started");
        disk.hold(false);
        assert_eq!(kernel.wait_frozen(id), Ok(()), "{pages} pages");
        let clone = kernel.clone_cell(id, QUOTA).expect("it is a template");
        kernel.start(clone).expect("it was not started before");
        assert_eq!(kernel.wait(clone).expect("it ends").end, End::Exited { status: 0 });
        kernel.end(id, End::Killed).expect("it lives");
        kernel.collect(id);
        stopped += 1;
    }
    assert!(stopped > 0, "it has too little memory from the start");
}

#[test]
fn a_cell_that_is_ended_while_it_waits_leaves_nothing_behind() {
    for kernel in kernels(1) {
        let before = kernel.free();
        let disk = TestDisk::new(BLOCKS);
        disk.hold(true);
        let waits = reader(&kernel, &disk);
        kernel.start(waits).expect("it was not started before");
        disk.wait_for_reader();
        kernel.end(waits, End::Killed).expect("it lives");
        disk.hold(false);
        assert_eq!(kernel.wait(waits).expect("it ends").end, End::Killed);
        kernel.free_unused_frames();
        assert_eq!((kernel.free(), kernel.registry().used), (before, PageCount(0)));
    }
}

#[test]
fn many_cells_on_two_vcpus_read_the_same_blocks_of_one_disk() {
    for kernel in kernels(2) {
        let before = kernel.free();
        let disk = TestDisk::new(BLOCKS);
        let readers: Vec<CellId> = (0..20).map(|_| reader(&kernel, &disk)).collect();
        for id in &readers {
            kernel.start(*id).expect("it was not started before");
        }
        for id in readers {
            assert_eq!(kernel.wait(id).expect("it ends").end, End::Exited { status: 0 });
        }
        kernel.free_unused_frames();
        assert_eq!((kernel.free(), kernel.registry().used), (before, PageCount(0)));
    }
}
