// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cells that never end by themselves: they are preempted, whatever they mask, and ended by the operator.

use crate::Code;
use crate::harness::{ExpectedEnd, Harness, HostileCell};
use ExpectedEnd::{DoubleFault, Endless, Quota};
use pando_abi::Hypercall;
use pando_abi::layout::{CONSOLE_RINGS, VIRTUAL_REGISTERS};
use pando_abi::virtual_registers::Control;
use pando_testing::asm::Asm;
use pando_testing::asm::Register::{R14, R15, Rax, Rbx, Rcx};
use pando_testing::lab::{CODE, DATA};
use pando_testing::virtual_registers::{EXCEPTION_ENTRY, application, with_handlers};

fn assembled(build: impl FnOnce(&mut Asm)) -> Vec<u8> {
    let mut asm = Asm::new();
    build(&mut asm);
    asm.finish()
}

#[test]
fn endless_loops_are_preempted_whatever_is_masked() {
    let controls = [
        ("nothing", Control::default()),
        ("every event", Control { mask: u64::MAX, ..application() }),
        ("a critical section", Control { critical: u64::MAX, mask: u64::MAX, ..application() }),
        ("level 2", Control { level: 2, critical: 1, ..application() }),
        ("an exit path that is everywhere", Control { exit_path_start: 0, exit_path_end: u64::MAX, ..application() }),
        ("a timer in the past", Control { timer: 0, mask: u64::MAX, ..application() }),
    ];
    let loops: [(&str, Code); 5] = [
        ("a loop", |asm| {
            let again = asm.here();
            asm.jmp(again);
        }),
        ("a loop over memory", |asm| {
            asm.mov_imm(Rbx, DATA);
            let again = asm.here();
            asm.inc(Rax).store(Rbx, 0, Rax).jmp(again);
        }),
        ("a loop that asks for a timer that is past", |asm| {
            asm.mov_imm(Rbx, VIRTUAL_REGISTERS);
            let again = asm.here();
            asm.store_imm(Rbx, pando_abi::virtual_registers::offset::TIMER as i32, 1).jmp(again);
        }),
        ("a loop of bad calls", |asm| {
            let again = asm.here();
            asm.mov_imm(Rax, 1 << 40).hypercall().jmp(again);
        }),
        ("a loop of descriptors that lead nowhere", |asm| {
            asm.mov_imm(Rbx, CONSOLE_RINGS);
            let again = asm.here();
            asm.dec(R14).store(Rbx, 0, R14).store(Rbx, 16, R14).store(Rbx, 24, R14).call_kernel(Hypercall::Doorbell {}).jmp(again);
        }),
    ];
    for mut harness in Harness::both() {
        for (masked, control) in &controls {
            for (name, program) in loops {
                let hostile = HostileCell::assembled(format!("{name} with {masked}"), program);
                harness.try_cell(&HostileCell { control: *control, ..hostile }, &[Endless]);
            }
        }
        harness.close();
    }
}

#[test]
fn exceptions_without_end_are_preempted_too() {
    let handler = assembled(|asm| {
        asm.mov_imm(Rbx, VIRTUAL_REGISTERS).store_imm(Rbx, pando_abi::virtual_registers::offset::LEVEL as i32, 0);
        asm.mov_imm(Rcx, CODE).jmp_to(Rcx);
    });
    let programs: [(&str, Code); 5] = [
        ("ud2", |asm| {
            asm.ud2();
        }),
        ("int3", |asm| {
            asm.int3();
        }),
        ("syscall", |asm| {
            asm.syscall();
        }),
        ("a wild load", |asm| {
            asm.mov_imm(Rbx, 0xdead_0000).load(Rax, Rbx, 0);
        }),
        ("hlt", |asm| {
            asm.hlt();
        }),
    ];
    for mut harness in Harness::both() {
        for (name, program) in programs {
            let code = with_handlers(&assembled(program), &handler, &[]);
            let hostile = HostileCell { control: application(), ..HostileCell::new(format!("{name} for ever"), &code) };
            harness.try_cell(&hostile, &[Endless]);
        }
        harness.close();
    }
}

#[test]
fn a_handler_that_faults_itself_ends_the_cell() {
    for mut harness in Harness::both() {
        for (name, stack) in
            [("a good stack", DATA + 0x8000), ("no stack", 0), ("the supervisor's", 0xffff_ffff_8000_0ff0), ("none", 1 << 63)]
        {
            // The handler's first instruction faults, on each level.
            let handler = assembled(|asm| {
                asm.ud2();
            });
            let code = with_handlers(&assembled(|asm| drop(asm.ud2().clone())), &handler, &[]);
            let control = Control { stacks: [stack; 2], ..application() };
            let hostile = HostileCell { control, ..HostileCell::new(format!("a handler that faults, on {name}"), &code) };
            let outcome = harness.try_cell(&hostile, &[DoubleFault]);
            assert_eq!(outcome.counters.exceptions, 2);
        }
        // An entry that is not mapped, or not executable.
        for entry in [8, DATA, CODE + EXCEPTION_ENTRY as u64 * 0x100, VIRTUAL_REGISTERS] {
            let control = Control { exception_entry: entry, ..application() };
            let hostile =
                HostileCell { control, ..HostileCell::assembled(format!("a handler at {entry:#x}"), |asm| drop(asm.ud2().clone())) };
            harness.try_cell(&hostile, &[DoubleFault]);
        }
        harness.close();
    }
}

/// Maps, accesses, unmaps and protects without end: the cell waits for its own quarantine, and other cells continue.
#[test]
fn churn_hurts_no_other_cell() {
    for mut harness in Harness::both() {
        for quota in [300, 600] {
            let hostile = HostileCell::assembled(format!("churn within {quota} pages"), |asm| {
                asm.mov_imm(R15, 0x2000_0000);
                let again = asm.here();
                for call in [
                    Hypercall::Map { space: u64::MAX, address: 0x2000_0000, pages: 8, flags: 0xb },
                    Hypercall::Protect { space: u64::MAX, address: 0x2000_0000, pages: 8, permissions: 1 },
                    Hypercall::Map { space: u64::MAX, address: 0x7f_0000_0000, pages: 3, flags: 0x3 },
                    Hypercall::SpaceClone { space: 0 },
                    Hypercall::Protect { space: u64::MAX, address: 0x2000_0000, pages: 8, permissions: 3 },
                    Hypercall::Unmap { space: u64::MAX, address: 0x7f_0000_0000, pages: 1 },
                    Hypercall::SpaceDestroy { space: 1 },
                ] {
                    asm.call_kernel(call);
                }
                asm.jmp(again);
            });
            harness.try_cell(&HostileCell { quota: pando_machine::PageCount(quota), ..hostile }, &[Endless, Quota]);
        }
        harness.close();
    }
}
