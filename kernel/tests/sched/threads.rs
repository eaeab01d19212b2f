// SPDX-License-Identifier: MIT OR Apache-2.0
//! vCPU threads: many cells on a few vCPUs, woken by timers and events, ended by the operator.

use pando_abi::layout::VIRTUAL_REGISTERS;
use pando_abi::virtual_registers::offset;
use pando_abi::{Event, Hypercall, MapFlags, Permissions, Registers};
use pando_kernel::RunState;
use pando_kernel::{CellConfig, CellId, Config, End, Kernel};
use pando_machine::kvm::{Kvm, KvmConfig, Omit};
use pando_machine::sim::{Sim, SimConfig};
use pando_machine::{Machine, Nanos, PageCount};
use pando_testing::asm::Register::{R12, R13, Rax, Rbx, Rcx, Rdi, Rsi};
use pando_testing::asm::{Asm, Condition};
use pando_testing::lab::{CODE, DATA, QUOTA, is_kvm_available, repetitions};
use pando_testing::virtual_registers::exit;
use std::sync::Arc;

const ARENA: PageCount = PageCount(1 << 15);

/// A kernel on the real machine, with its vCPUs not started yet.
fn real(vcpus: usize) -> Option<Kernel> {
    let config = KvmConfig { arena: ARENA, vcpus, omit: Omit::NOTHING };
    is_kvm_available().then(|| Kernel::new(Kvm::new(config).expect("KVM is there"), Config::default()))
}

/// A kernel on every machine; with an emulated CPU only on the real one. The software machine's time does not advance while all
/// cells idle.
fn everywhere(vcpus: usize) -> Vec<Kernel> {
    let mut kernels = Vec::new();
    if repetitions(0, 1, 1) > 0 {
        let sim = Sim::new(SimConfig { arena: ARENA, vcpus, ..SimConfig::default() }).expect("memory for the software machine");
        kernels.push(Kernel::new(sim as Arc<dyn Machine>, Config::default()));
    }
    kernels.extend(real(vcpus));
    kernels
}

fn cell(kernel: &Kernel, build: impl FnOnce(&mut Asm)) -> CellId {
    let mut asm = Asm::new();
    build(&mut asm);
    let code = asm.finish();
    let id = kernel.create(CellConfig { quota: QUOTA, host_name: "test".into() }).expect("room for a cell");
    kernel.map(id, CODE, PageCount::covering(code.len() as u64), MapFlags::lazy(Permissions::READ_EXECUTE)).expect("room for its code");
    kernel.write(id, CODE, &code).expect("its code is mapped");
    kernel.map(id, DATA, PageCount(4), MapFlags::lazy(Permissions::READ_WRITE)).expect("room for its data");
    let registers = Registers { rip: CODE, rsp: DATA + 0x4000, ..Registers::default() };
    kernel.set_registers(id, registers).expect("it is not running");
    id
}

#[test]
fn many_cells_woken_by_timers_all_come_to_their_end() {
    let Some(kernel) = real(2) else { return };
    let before = kernel.free();
    kernel.start_vcpus().expect("vCPU threads start");
    let start = kernel.now().0;
    let ids: Vec<_> = (0..u64::from(repetitions(20, 200, 1000)))
        .map(|index| {
            cell(&kernel, |asm| {
                // Each idles twenty times, until its own times, and counts the wake-ups without an event.
                asm.mov_imm(R12, start + index * 37_000).mov_imm(R13, 20);
                let again = asm.here();
                asm.mov_imm(Rcx, 1_000_000 + index * 1000).add(R12, Rcx).mov(Rdi, R12).mov_imm(Rax, 1).hypercall();
                asm.mov_imm(Rbx, DATA).load(Rcx, Rbx, 0).inc(Rcx).add(Rcx, Rax).store(Rbx, 0, Rcx);
                asm.dec(R13).jump_if(Condition::NotZero, again).mov(Rdi, Rcx).mov_imm(Rsi, 0).mov_imm(Rax, 0).hypercall();
            })
        })
        .collect();
    for id in &ids {
        kernel.start(*id).expect("it was not started before");
    }
    for id in ids {
        assert_eq!(kernel.wait(id).expect("it ends").end, End::Exited { status: 20 });
    }
    kernel.free_unused_frames();
    assert_eq!((kernel.free(), kernel.cells()), (before, 0));
}

#[test]
fn many_cells_share_the_vcpus() {
    for kernel in everywhere(2) {
        let before = kernel.free();
        kernel.start_vcpus().expect("vCPU threads start");
        let ids: Vec<_> = (0..100u64)
            .map(|index| {
                cell(&kernel, |asm| {
                    asm.mov_imm(Rcx, 20_000).mov_imm(Rbx, DATA).mov_imm(Rax, index);
                    let again = asm.here();
                    asm.store(Rbx, 0, Rax).load(Rax, Rbx, 0).dec(Rcx).jump_if(Condition::NotZero, again);
                    asm.mov(Rdi, Rax).mov_imm(Rsi, 0).mov_imm(Rax, 0).hypercall();
                })
            })
            .collect();
        for id in &ids {
            kernel.start(*id).expect("it was not started before");
        }
        for (index, id) in ids.into_iter().enumerate() {
            assert_eq!(kernel.wait(id).expect("it ends").end, End::Exited { status: index as u8 });
        }
        kernel.free_unused_frames();
        assert_eq!((kernel.free(), kernel.cells()), (before, 0));
    }
}

#[test]
fn a_running_cell_is_ended_from_outside() {
    for kernel in everywhere(1) {
        let before = kernel.free();
        kernel.start_vcpus().expect("a vCPU thread starts");
        for masked in [false, true] {
            let id = cell(&kernel, |asm| {
                if masked {
                    asm.mov_imm(Rbx, VIRTUAL_REGISTERS).store_imm(Rbx, 8, -1).store_imm(Rbx, offset::CRITICAL as i32, -1);
                }
                let again = asm.here();
                asm.jmp(again);
            });
            kernel.start(id).expect("it was not started before");
            while !matches!(kernel.inspect(id).expect("it lives").0, RunState::Running { .. }) {
                std::thread::yield_now();
            }
            kernel.end(id, End::TimedOut).expect("it lives");
            assert_eq!(kernel.wait(id).expect("it ends").end, End::TimedOut);
        }
        kernel.free_unused_frames();
        assert_eq!(kernel.free(), before);
    }
}

#[test]
fn a_cell_is_waited_for_while_it_becomes_a_template() {
    for kernel in everywhere(1) {
        kernel.start_vcpus().expect("a vCPU thread starts");
        let id = cell(&kernel, |asm| {
            asm.call_kernel(Hypercall::Freeze {}).call_kernel(exit(4));
        });
        kernel.start(id).expect("it was not started before");
        assert_eq!(kernel.wait_frozen(id), Ok(()));
        let clones: Vec<_> = (0..20).map(|_| kernel.clone_cell(id, QUOTA).expect("a template can be cloned")).collect();
        for clone in &clones {
            kernel.start(*clone).expect("it was not started before");
        }
        for clone in clones {
            assert_eq!(kernel.wait(clone).expect("it ends").end, End::Exited { status: 4 });
        }
    }
}

#[test]
fn cells_wake_while_others_keep_every_vcpu_busy() {
    for kernel in everywhere(2) {
        kernel.start_vcpus().expect("vCPU threads start");
        let spinners: Vec<_> = (0..3)
            .map(|_| {
                cell(&kernel, |asm| {
                    let again = asm.here();
                    asm.jmp(again);
                })
            })
            .collect();
        let idler = cell(&kernel, |asm| {
            asm.mov_imm(R13, 50);
            let again = asm.here();
            asm.mov_imm(Rbx, VIRTUAL_REGISTERS).store_imm(Rbx, 0, 0).call_kernel(Hypercall::Idle { deadline: u64::MAX });
            asm.dec(R13).jump_if(Condition::NotZero, again).call_kernel(exit(8));
        });
        for id in spinners.iter().chain([&idler]) {
            kernel.start(*id).expect("it was not started before");
        }
        while let Ok((state, ..)) = kernel.inspect(idler) {
            if state == (RunState::Idle { until: Nanos::NEVER }) {
                kernel.raise(idler, Event::Console);
            }
            std::thread::yield_now();
        }
        assert_eq!(kernel.wait(idler).expect("it ends").end, End::Exited { status: 8 });
        for id in spinners {
            kernel.end(id, End::Killed).expect("it spins");
            assert_eq!(kernel.wait(id).expect("it ends").end, End::Killed);
        }
    }
}

#[test]
fn a_kernel_that_is_dropped_ends_every_cell() {
    for kernel in everywhere(2) {
        let machine = Arc::clone(kernel.machine());
        for _ in 0..5 {
            let id = cell(&kernel, |asm| {
                let again = asm.here();
                asm.jmp(again);
            });
            kernel.start(id).expect("it was not started before");
        }
        kernel.start_vcpus().expect("vCPU threads start");
        drop(kernel);
        // Only the test holds the machine: no thread is left.
        assert_eq!(Arc::strong_count(&machine), 1);
    }
}

#[test]
fn an_interrupt_reaches_a_cell_that_computes_alone() {
    let Some(kernel) = real(1) else { return };
    kernel.start_vcpus().expect("vCPU threads start");
    let id = cell(&kernel, |asm| {
        // It polls the pending events, and never leaves the vCPU by itself.
        asm.mov_imm(Rbx, VIRTUAL_REGISTERS);
        let again = asm.here();
        asm.load(Rdi, Rbx, offset::PENDING as i32).cmp_imm(Rdi, 0).jump_if(Condition::Zero, again);
        asm.mov_imm(Rsi, 0).mov_imm(Rax, 0).hypercall();
    });
    kernel.start(id).expect("it was not started before");
    while !matches!(kernel.inspect(id), Ok((RunState::Running { .. }, ..))) {
        std::thread::yield_now();
    }
    kernel.interrupt(id).expect("it lives");
    assert_eq!(kernel.wait(id).expect("it ends").end, End::Exited { status: 1 << Event::Interrupt as u8 });
}
