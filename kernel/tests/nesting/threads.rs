// SPDX-License-Identifier: MIT OR Apache-2.0
//! Families on two vCPUs: parents make and drop children as fast as they can while these run, exit, fill their memory or make children of
//! their own, and the operator ends the parents in the middle of it.

use crate::actor::EVERY_CALL;
use pando_abi::holding::limit;
use pando_abi::layout::SLOT_SIZE;
use pando_abi::memory::CURRENT_SPACE;
use pando_abi::{HoldingName, Hypercall, MapFlags, Permissions, Registers};
use pando_kernel::{CellConfig, CellId, Config, End, Kernel};
use pando_machine::PageCount;
use pando_machine::kvm::{Kvm, KvmConfig, Omit};
use pando_testing::asm::Register::{R12, R13, R14, R15, Rax, Rbx, Rdi, Rdx, Rsi};
use pando_testing::asm::{Asm, Condition};
use pando_testing::lab::{CODE, DATA, QUOTA, is_kvm_available, repetitions};
use pando_testing::virtual_registers::exit;
use std::time::Duration;

/// Quota of a parent with its family.
const FAMILY: PageCount = PageCount(6000);
/// Where a parent counts the children that it has dropped.
const COUNT: u64 = DATA;
const SHIFT_RDI_LEFT_BY_32: &[u8] = &[0x48, 0xc1, 0xe7, 32];

/// A cell with this code that was not started.
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

fn spinner(asm: &mut Asm) {
    let again = asm.here();
    asm.jmp(again);
}

fn exiting(asm: &mut Asm) {
    asm.call_kernel(exit(3));
}

/// Touches memory until its family has no more.
fn filler(asm: &mut Asm) {
    let flags = MapFlags::lazy(Permissions::READ_WRITE).bits();
    asm.call_kernel(Hypercall::Map { space: CURRENT_SPACE, address: SLOT_SIZE, pages: 1 << 20, flags }).mov_imm(Rbx, SLOT_SIZE);
    let again = asm.here();
    asm.store(Rbx, 0, Rbx).add_imm(Rbx, 0x1000).jmp(again);
}

/// Makes every call about a name that it may not have.
fn guesser(asm: &mut Asm) {
    asm.mov_imm(R12, HoldingName::ROOT.bits());
    let again = asm.here();
    for number in EVERY_CALL {
        asm.mov(Rdi, R12).mov_imm(Rsi, 300).mov_imm(Rdx, 3).mov_imm(Rax, number).hypercall();
    }
    asm.inc(R12).jmp(again);
}

/// Clones its root, starts the clone, looks at it, donates time to it, ends every second one, and drops all; counts them.
fn parent(asm: &mut Asm) {
    asm.mov_imm(R14, COUNT).mov_imm(R15, 0);
    let again = asm.here();
    let (next, drop) = (asm.label(), asm.label());
    asm.call_kernel(Hypercall::CellClone { source: HoldingName::ROOT.bits(), quota: 2000, cells: 3 });
    asm.mov(R12, Rax).cmp_imm(R12, 0).jump_if(Condition::Sign, next);
    for number in [Hypercall::CellRun { cell: 0 }, Hypercall::Relinquish {}, Hypercall::CellState { cell: 0, fact: 0 }] {
        asm.mov(Rdi, R12).mov_imm(Rax, number.encode().0).hypercall();
    }
    // Every second child runs only by donations, and some have ended.
    asm.mov(Rdi, R12).mov_imm(Rsi, limit::CPU_WEIGHT).mov_imm(Rdx, 1).and(Rdx, R15);
    asm.mov_imm(Rax, Hypercall::CellLimit { cell: 0, kind: 0, value: 0 }.encode().0).hypercall();
    asm.mov(Rdi, R12).mov_imm(Rsi, 200_000).mov_imm(Rax, Hypercall::Donate { cell: 0, time: 0 }.encode().0).hypercall();
    // The child may run: then its memory is refused.
    asm.mov(Rdi, R12).raw(SHIFT_RDI_LEFT_BY_32).mov_imm(Rbx, u32::MAX.into()).or(Rdi, Rbx);
    asm.mov_imm(Rsi, SLOT_SIZE).mov_imm(Rdx, 64).mov_imm(Rax, Hypercall::Unmap { space: 0, address: 0, pages: 0 }.encode().0).hypercall();
    asm.inc(R15).mov_imm(R13, 1).and(R13, R15).cmp_imm(R13, 0).jump_if(Condition::NotZero, drop);
    asm.mov(Rdi, R12).mov_imm(Rax, Hypercall::CellEnd { cell: 0 }.encode().0).hypercall();
    asm.bind(drop).mov(Rdi, R12).mov_imm(Rax, Hypercall::Drop { holding: 0 }.encode().0).hypercall();
    asm.bind(next).store(R14, 0, R15).jmp(again);
}

#[test]
fn families_that_churn_on_two_vcpus_leave_nothing_behind() {
    if !is_kvm_available() {
        return;
    }
    let machine = Kvm::new(KvmConfig { arena: PageCount(1 << 16), vcpus: 2, omit: Omit::NOTHING }).expect("KVM is there");
    let kernel = Kernel::new(machine, Config::default());
    let free = kernel.free();
    let roots = [spinner, exiting, filler, guesser].map(|code| cell(&kernel, code));
    let origin = cell(&kernel, parent);
    kernel.start_vcpus().expect("vCPU threads start");
    for _ in 0..repetitions(1, 3, 100) {
        // The last one's children are parents themselves, without a root to clone.
        let parents: Vec<CellId> = roots
            .iter()
            .chain([&origin])
            .map(|root| {
                let id = kernel.clone_cell(origin, FAMILY).expect("room for a parent");
                kernel.allow_children(id, 8, *root).expect("it holds nothing yet");
                kernel.start(id).expect("it was not started");
                id
            })
            .collect();
        // A parent's own counters show that it works: it makes several calls for each child.
        let calls = |id: CellId| kernel.inspect(id).map_or(0, |(_, counters, _)| counters.hypercalls);
        let deadline = kernel.now() + Duration::from_secs(60);
        while parents.iter().any(|id| kernel.inspect(*id).is_ok() && calls(*id) < 400) {
            assert!(kernel.now() < deadline, "a parent makes no progress: {:?}", parents.iter().map(|id| calls(*id)).collect::<Vec<_>>());
            std::thread::yield_now();
        }
        for id in parents {
            // One whose child has filled the family's memory may have ended for want of it.
            let _ = kernel.end(id, End::Killed);
            let end = kernel.wait(id).expect("it ends").end;
            assert!(matches!(end, End::Killed | End::Quota), "{end}");
        }
    }
    for id in roots.into_iter().chain([origin]) {
        kernel.end(id, End::Killed).expect("it was never started");
        kernel.collect(id);
    }
    // The last children end in housekeeping.
    let deadline = kernel.now() + Duration::from_secs(60);
    while kernel.cells() > 0 {
        assert!(kernel.now() < deadline, "{} cells are left", kernel.cells());
        std::thread::yield_now();
    }
    kernel.free_unused_frames();
    assert_eq!(kernel.free(), free);
}
