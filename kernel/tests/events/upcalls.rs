// SPDX-License-Identifier: MIT OR Apache-2.0
//! Delivery of exceptions and system calls to the libOS, with the whole context, on one of two levels.

use pando_abi::registers::{FIXED_FLAGS, USER_CODE, USER_DATA, cause};
use pando_abi::virtual_registers::Control;
use pando_abi::{Hypercall, Registers, SavedContext};
use pando_kernel::{CellId, End, FaultReport};
use pando_machine::{SUPERVISOR_BASE, Violation};
use pando_testing::asm::Asm;
use pando_testing::asm::Register::{R8, R9, Rax, Rbp, Rbx, Rcx, Rdi};
use pando_testing::lab::{CODE, DATA, Lab, repetitions};
use pando_testing::virtual_registers::{EXCEPTION_ENTRY, STACKS, application, control, exit, saved, set_control, with_handlers};

/// RF, which the CPU sets in the flags that a fault saves.
const RESUME: u64 = 0x1_0000;
/// CF, PF, AF, ZF, SF, DF, OF: all flags that a program can set without an effect on the next instruction.
const FLAGS: u64 = 0xcd5;

/// A way to raise an exception, and the expected report to the libOS.
struct Raise {
    name: &'static str,
    code: fn(&mut Asm) -> &mut Asm,
    cause: u64,
    error: u64,
    address: u64,
    /// Offset of the saved instruction pointer from the start of the code.
    at: u64,
}

static RAISES: [Raise; 10] = [
    Raise { name: "#UD", code: |asm| asm.ud2(), cause: 6, error: 0, address: 0, at: 0 },
    Raise { name: "#BP", code: |asm| asm.int3(), cause: 3, error: 0, address: 0, at: 1 },
    Raise { name: "#GP by hlt", code: |asm| asm.hlt(), cause: 13, error: 0, address: 0, at: 0 },
    Raise { name: "#GP by an address", code: |asm| asm.load(Rax, R8, 0), cause: 13, error: 0, address: 0, at: 0 },
    Raise { name: "#SS by an address", code: |asm| asm.load(Rax, Rbp, 0), cause: 12, error: 0, address: 0, at: 0 },
    Raise { name: "a read of nothing", code: |asm| asm.load(Rax, R9, 8), cause: 14, error: 4, address: 0x7000_0008, at: 0 },
    Raise { name: "a write to nothing", code: |asm| asm.store(R9, 8, Rax), cause: 14, error: 6, address: 0x7000_0008, at: 0 },
    Raise { name: "a write to code", code: |asm| asm.store(Rcx, 0, Rax), cause: 14, error: 7, address: CODE, at: 0 },
    Raise { name: "a read of the kernel's", code: |asm| asm.load(Rax, Rbx, 0), cause: 14, error: 5, address: SUPERVISOR, at: 0 },
    Raise { name: "syscall", code: |asm| asm.syscall(), cause: cause::SYSCALL, error: 0, address: 0, at: 2 },
];

/// The rows, without #SS on an emulated CPU: QEMU's raises #GP in its place.
fn raises() -> impl Iterator<Item = &'static Raise> {
    let emulated = repetitions(0, 1, 1) == 0;
    RAISES.iter().filter(move |raise| !(emulated && raise.cause == 12))
}

/// A supervisor address that is mapped on every machine.
const SUPERVISOR: u64 = SUPERVISOR_BASE + 0x2000;

/// Registers that differ from each other, with an invalid stack pointer, and a non-canonical RBP.
///
/// (With such a stack pointer some nested machines raise #UD for `int3`.)
fn distinct() -> Registers {
    let mut registers = Registers::from_words(std::array::from_fn(|index| 0x0101_0101_0101_0101 * (index as u64 + 0x11)));
    (registers.rip, registers.rflags, registers.rsp, registers.rbp) = (CODE, FLAGS, 0xffff_8000_0000_0000, 1 << 62);
    (registers.r8, registers.r9, registers.rcx, registers.rbx) = (1 << 63, 0x7000_0000, CODE, SUPERVISOR);
    registers
}

fn assembled(code: impl FnOnce(&mut Asm) -> &mut Asm) -> Vec<u8> {
    let mut asm = Asm::new();
    code(&mut asm);
    asm.finish()
}

/// A handler that freezes the cell, so that the test can read it.
fn freezing() -> Vec<u8> {
    assembled(|asm| asm.mov_imm(Rax, 2).hypercall())
}

/// A started cell with this code, these registers and control words; every handler freezes.
fn launch(lab: &Lab, code: &[u8], control: &Control, registers: Registers) -> CellId {
    let id = lab.cell(&with_handlers(code, &freezing(), &[]));
    set_control(lab, id, control);
    lab.kernel.set_registers(id, registers).expect("it is not running");
    lab.kernel.start(id).expect("it was not started before");
    id
}

/// The expected context of a save level after `raise` from `registers`.
fn expected(raise: &Raise, registers: &Registers) -> SavedContext {
    let mut expected = *registers;
    expected.rip = CODE + raise.at;
    expected.rflags = registers.rflags | FIXED_FLAGS;
    if raise.cause == cause::SYSCALL {
        (expected.rcx, expected.r11) = (expected.rip, expected.rflags);
    }
    SavedContext::new(&expected, raise.cause, raise.error, raise.address)
}

/// The saved context, without RF and the error code's bit for a present supervisor page: machines differ there.
fn seen(lab: &Lab, id: CellId, level: usize) -> SavedContext {
    let mut context = saved(lab, id, level);
    context.rflags &= !RESUME;
    if context.address == SUPERVISOR {
        context.error |= 1;
    }
    context
}

#[test]
fn an_upcall_saves_every_register_and_why() {
    for mut lab in Lab::both() {
        for raise in raises() {
            let registers = distinct();
            let id = launch(&lab, &assembled(raise.code), &application(), registers);
            lab.run_all();
            assert_eq!(seen(&lab, id, 0), expected(raise, &registers), "{}", raise.name);
            let left = control(&lab, id);
            assert_eq!((left.level, left.critical, left.pending), (1, 1, 0), "{}", raise.name);
            // The handler has its own stack and clean flags; the other registers are unchanged.
            let now = lab.kernel.registers(id).expect("it is frozen");
            let entry = CODE + EXCEPTION_ENTRY as u64;
            let mut wanted = registers;
            (wanted.rip, wanted.rsp, wanted.rflags, wanted.rax) = (entry + freezing().len() as u64, STACKS[0], FIXED_FLAGS, 2);
            if raise.cause == cause::SYSCALL {
                (wanted.rcx, wanted.r11) = (CODE + 2, FLAGS | FIXED_FLAGS);
            }
            assert_eq!(now, wanted, "{}", raise.name);
            assert_eq!(saved(&lab, id, 1), SavedContext::default(), "{}: the other level", raise.name);
        }
    }
}

#[test]
fn the_selectors_are_those_that_iretq_wants() {
    for mut lab in Lab::both() {
        let id = launch(&lab, &assembled(|asm| asm.ud2()), &application(), distinct());
        lab.run_all();
        assert_eq!((saved(&lab, id, 0).cs, saved(&lab, id, 0).ss), (USER_CODE, USER_DATA));
    }
}

#[test]
fn an_exception_of_the_libos_takes_the_second_level() {
    for mut lab in Lab::both() {
        for raise in raises() {
            let registers = distinct();
            let id = launch(&lab, &assembled(raise.code), &Control { level: 1, critical: 1, ..application() }, registers);
            lab.run_all();
            assert_eq!(seen(&lab, id, 1), expected(raise, &registers), "{}", raise.name);
            assert_eq!(saved(&lab, id, 0), SavedContext::default(), "{}: the other level", raise.name);
            assert_eq!(control(&lab, id).level, 2, "{}", raise.name);
            assert_eq!(lab.kernel.registers(id).expect("it is frozen").rsp, STACKS[1], "{}", raise.name);
        }
    }
}

#[test]
fn an_exception_on_the_second_level_ends_the_cell() {
    for mut lab in Lab::both() {
        for raise in raises() {
            for level in [2, 3, u64::MAX] {
                let id = launch(&lab, &assembled(raise.code), &Control { level, critical: 1, ..application() }, distinct());
                let end = lab.finish(id).end;
                let End::DoubleFault(FaultReport { vector, instruction, .. }) = end else { panic!("{}: {end:?}", raise.name) };
                let wanted = if raise.cause == cause::SYSCALL { 6 } else { raise.cause as u8 };
                assert_eq!((vector, instruction), (wanted, CODE + raise.at), "{}", raise.name);
            }
        }
    }
}

#[test]
fn a_fault_inside_the_fault_handler_of_the_fault_handler_ends_the_cell() {
    for mut lab in Lab::both() {
        let code = with_handlers(&assembled(|asm| asm.ud2()), &assembled(|asm| asm.hlt()), &[]);
        let id = lab.cell(&code);
        set_control(&lab, id, &application());
        lab.kernel.start(id).expect("it was not started before");
        let outcome = lab.finish(id);
        let instruction = CODE + EXCEPTION_ENTRY as u64;
        assert_eq!(outcome.end, End::DoubleFault(FaultReport { vector: 13, error: 0, address: 0, instruction }));
        assert_eq!(outcome.counters.exceptions, 2);
        assert_eq!(
            outcome.end.to_string(),
            "general protection fault (instruction at 0x400100, error code 0x0) while its libOS was handling another"
        );
    }
}

#[test]
fn on_its_way_out_the_libos_counts_as_running() {
    for mut lab in Lab::both() {
        // The exception is at the first instruction. The exit range of the libOS begins there, contains it, ends there, or misses it.
        for (start, end, level) in [(0, 2, 1), (0, 1, 1), (-8, 8, 1), (-8, 0, 0), (1, 8, 0), (0, 0, 0)] {
            let place = |offset: i64| CODE.wrapping_add_signed(offset);
            let control = Control { exit_path_start: place(start), exit_path_end: place(end), ..application() };
            let id = launch(&lab, &assembled(|asm| asm.ud2()), &control, distinct());
            lab.run_all();
            assert_eq!(seen(&lab, id, level), expected(&RAISES[0], &distinct()), "exit path from {start} to {end}");
            assert_eq!(pando_testing::virtual_registers::control(&lab, id).level, level as u64 + 1);
        }
    }
}

#[test]
fn without_an_entry_an_exception_ends_the_cell() {
    for mut lab in Lab::both() {
        for raise in raises() {
            let id = launch(&lab, &assembled(raise.code), &Control { exception_entry: 0, ..application() }, distinct());
            let end = lab.finish(id).end;
            let End::Fault(FaultReport { vector, instruction, .. }) = end else { panic!("{}: {end:?}", raise.name) };
            let wanted = if raise.cause == cause::SYSCALL { 6 } else { raise.cause as u8 };
            assert_eq!((vector, instruction), (wanted, CODE + raise.at), "{}", raise.name);
        }
    }
}

#[test]
fn an_entry_that_no_cpu_accepts_ends_the_cell() {
    for mut lab in Lab::both() {
        for entry in [1 << 47, 1 << 63, SUPERVISOR, u64::MAX] {
            let id = launch(&lab, &assembled(|asm| asm.ud2()), &Control { exception_entry: entry, ..application() }, distinct());
            assert_eq!(lab.finish(id).end, End::Violation(Violation::BadContext), "{entry:#x}");
        }
    }
}

#[test]
fn a_libos_can_mend_and_go_on_where_the_program_stood() {
    for mut lab in Lab::both() {
        // A thousand invalid instructions; the libOS counts each and continues behind it.
        let program = assembled(|asm| {
            asm.mov_imm(Rcx, 1000);
            let again = asm.here();
            asm.ud2().dec(Rcx).jump_if(pando_testing::asm::Condition::NotZero, again);
            asm.mov_imm(Rbx, DATA)
                .load(Rdi, Rbx, 0)
                .sub_imm(Rdi, 993)
                .mov_imm(Rax, 0)
                .mov_imm(pando_testing::asm::Register::Rsi, 0)
                .hypercall()
        });
        let at = pando_abi::virtual_registers::offset::SAVES as i32;
        let rip = at + SavedContext::NAMES.iter().position(|name| *name == "rip").expect("it is saved") as i32 * 8;
        let handler = assembled(|asm| {
            asm.mov_imm(Rbx, DATA).load(Rax, Rbx, 0).inc(Rax).store(Rbx, 0, Rax);
            asm.mov_imm(Rbx, pando_abi::layout::VIRTUAL_REGISTERS).load(Rax, Rbx, rip).add_imm(Rax, 2);
            asm.store_imm(Rbx, pando_abi::virtual_registers::offset::LEVEL as i32, 0);
            asm.store_imm(Rbx, pando_abi::virtual_registers::offset::CRITICAL as i32, 0);
            asm.jmp_to(Rax)
        });
        let id = lab.cell(&with_handlers(&program, &handler, &[]));
        set_control(&lab, id, &application());
        lab.kernel.start(id).expect("it was not started before");
        let outcome = lab.finish(id);
        assert_eq!(outcome.end, End::Exited { status: 7 });
        assert_eq!(outcome.counters.exceptions, 1000);
    }
}

#[test]
fn an_upcall_that_the_quota_cannot_pay_ends_the_cell_clearly() {
    for mut lab in Lab::both() {
        // The quota is used up before the exception.
        let mut asm = Asm::new();
        let map = Hypercall::Map { space: u64::MAX, address: 0x2000_0000, pages: 1 << 14, flags: 0xb };
        asm.call_kernel(map).ud2().call_kernel(exit(1));
        let id = lab.cell_with(&with_handlers(&asm.finish(), &freezing(), &[]), pando_machine::PageCount(512));
        set_control(&lab, id, &application());
        lab.kernel.start(id).expect("it was not started before");
        lab.run_all();
        // The virtual registers were made the cell's own before it ran: the upcall needs no memory.
        assert_eq!(saved(&lab, id, 0).cause, 6);
    }
}
