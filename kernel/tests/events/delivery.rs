// SPDX-License-Identifier: MIT OR Apache-2.0
//! Delivery of events: all at once, and only when the cell may be interrupted.

use pando_abi::layout::VIRTUAL_REGISTERS;
use pando_abi::registers::cause;
use pando_abi::virtual_registers::{Control, offset};
use pando_abi::{Event, Hypercall, Registers};
use pando_kernel::{CellId, End, OperatorError, TurnOutcome};
use pando_testing::asm::Register::{R8, R9, R10, R11, R12, Rax, Rbx, Rcx, Rdi, Rsi};
use pando_testing::asm::{Asm, Condition};
use pando_testing::lab::{CODE, DATA, Lab, STACK_TOP, repetitions};
use pando_testing::virtual_registers::{
    EVENT_ENTRY, EXCEPTION_ENTRY, STACKS, application, control, exit, saved, set_control, with_handlers, words,
};

const PENDING: u64 = VIRTUAL_REGISTERS + offset::PENDING as u64;
const CONSOLE: u64 = 1 << Event::Console as u8;
const TERMINATE: u64 = 1 << Event::Terminate as u8;
/// The doorbell's number.
const DOORBELL: u64 = 13;
const TIMER: u64 = 1 << Event::Timer as u8;

fn assembled(code: impl FnOnce(&mut Asm)) -> Vec<u8> {
    let mut asm = Asm::new();
    code(&mut asm);
    asm.finish()
}

/// Exits with the pending events.
fn exit_with_pending(asm: &mut Asm) {
    asm.mov_imm(Rbx, PENDING).load(Rdi, Rbx, 0).mov_imm(Rsi, 0).mov_imm(Rax, 0).hypercall();
}

fn spin(asm: &mut Asm) {
    let again = asm.here();
    asm.pause().jmp(again);
}

fn freeze(asm: &mut Asm) {
    asm.call_kernel(Hypercall::Freeze {});
}

/// A cell, not yet started, with this program and control words; its event handler freezes.
fn cell(lab: &Lab, program: &[u8], control: &Control) -> CellId {
    let id = lab.cell(&with_handlers(program, &[], &assembled(freeze)));
    set_control(lab, id, control);
    id
}

#[test]
fn events_come_in_one_upcall_with_a_mask() {
    for mut lab in Lab::both() {
        let id = cell(&lab, &assembled(spin), &application());
        let registers = Registers { rip: CODE, rsp: STACK_TOP, rax: 5, rflags: 0x8d5, ..Registers::default() };
        lab.kernel.set_registers(id, registers).expect("it is not running");
        lab.kernel.raise(id, Event::Console);
        lab.kernel.raise(id, Event::Terminate);
        lab.kernel.raise(id, Event::Console);
        lab.kernel.start(id).expect("it was not started before");
        lab.run_all();
        let context = saved(&lab, id, 0);
        assert_eq!((context.cause, context.error, context.address), (cause::EVENTS, CONSOLE | TERMINATE, 0));
        assert_eq!((context.rip, context.rsp, context.rax, context.rflags), (CODE, STACK_TOP, 5, 0xad7));
        let left = control(&lab, id);
        // Requests of the operator are withdrawn when the cell freezes, because they are not for its clones.
        assert_eq!((left.pending, left.level, left.critical), (CONSOLE, 1, 1));
        assert_eq!(lab.kernel.registers(id).expect("it is frozen").rsp, STACKS[0]);
        assert_eq!(lab.kernel.inspect(id).expect("it lives").1.events, 1);
    }
}

#[test]
fn masked_events_wait_and_the_others_come() {
    for mut lab in Lab::both() {
        let id = cell(&lab, &assembled(spin), &Control { mask: CONSOLE, ..application() });
        lab.kernel.raise(id, Event::Console);
        lab.kernel.raise(id, Event::Terminate);
        lab.kernel.start(id).expect("it was not started before");
        lab.run_all();
        assert_eq!(saved(&lab, id, 0).error, TERMINATE);
        assert_eq!(control(&lab, id).pending, CONSOLE);
    }
}

/// Events become pending without an upcall.
#[test]
fn no_upcall_where_the_libos_does_not_want_one() {
    let inside = Control { exit_path_start: CODE, exit_path_end: CODE + 0x80, ..application() };
    let rows = [
        ("all masked", Control { mask: u64::MAX, ..application() }),
        ("critical", Control { critical: 1, ..application() }),
        ("critical, with an odd value", Control { critical: 1 << 63, ..application() }),
        ("in the libOS", Control { level: 1, ..application() }),
        ("in the libOS, deeper", Control { level: 2, ..application() }),
        ("at no level there is", Control { level: u64::MAX, ..application() }),
        ("in the exit path", inside),
        ("without an entry", Control { event_entry: 0, ..application() }),
    ];
    for mut lab in Lab::both() {
        for (name, control) in &rows {
            let id = cell(&lab, &assembled(exit_with_pending), control);
            lab.kernel.raise(id, Event::Console);
            lab.kernel.start(id).expect("it was not started before");
            let outcome = lab.finish(id);
            assert_eq!((outcome.end, outcome.counters.events), (End::Exited { status: CONSOLE as u8 }, 0), "{name}");
        }
    }
}

#[test]
fn an_event_comes_at_the_first_exit_after_the_mask_is_lifted() {
    let lift: [(&str, Control, i32); 3] = [
        ("mask", Control { mask: u64::MAX, ..application() }, 8),
        ("critical", Control { critical: 1, ..application() }, offset::CRITICAL as i32),
        ("level", Control { level: 1, ..application() }, offset::LEVEL as i32),
    ];
    for mut lab in Lab::both() {
        for (name, control, word) in &lift {
            let program = assembled(|asm| {
                asm.call_kernel(Hypercall::Doorbell {});
                asm.mov_imm(Rbx, VIRTUAL_REGISTERS).store_imm(Rbx, *word, 0);
                asm.call_kernel(Hypercall::Doorbell {}).call_kernel(exit(1));
            });
            let id = cell(&lab, &program, control);
            lab.kernel.raise(id, Event::Console);
            lab.kernel.start(id).expect("it was not started before");
            lab.run_all();
            assert_eq!(saved(&lab, id, 0).error, CONSOLE, "{name}");
            // The interrupted program continues behind its doorbell, with the doorbell's result.
            assert_eq!(saved(&lab, id, 0).rax, 0, "{name}");
        }
    }
}

#[test]
fn a_critical_section_delays_upcalls_and_never_the_kernel() {
    for mut lab in Lab::both() {
        let endless = cell(&lab, &assembled(spin), &Control { critical: 1, mask: u64::MAX, ..application() });
        lab.kernel.raise(endless, Event::Console);
        lab.kernel.start(endless).expect("it was not started before");
        let other = lab.launch(|asm| {
            asm.mov_imm(Rcx, 3);
            let again = asm.here();
            asm.store_imm(pando_testing::asm::Register::Rsp, -8, 3);
            asm.push(Rcx).call_kernel(Hypercall::Relinquish {}).pop(Rcx).dec(Rcx).jump_if(Condition::NotZero, again);
            asm.call_kernel(exit(9));
        });
        assert_eq!(lab.finish(other).end, End::Exited { status: 9 });
        let (_, counters, _) = lab.kernel.inspect(endless).expect("it spins");
        assert!(counters.preemptions > 0);
        assert_eq!(counters.events, 0);
        lab.kernel.end(endless, End::TimedOut).expect("it lives");
        let outcome = lab.finish(endless);
        assert_eq!((outcome.end.to_string(), outcome.counters.events), ("its time limit expired".into(), 0));
    }
}

#[test]
fn the_timer_register_interrupts_a_program_and_is_then_off() {
    for mut lab in Lab::both() {
        let id = cell(&lab, &assembled(spin), &application());
        let due = lab.kernel.now() + std::time::Duration::from_millis(3);
        set_control(&lab, id, &Control { timer: due.0, ..application() });
        lab.kernel.start(id).expect("it was not started before");
        lab.run_all();
        assert!(lab.kernel.now() >= due);
        assert_eq!((saved(&lab, id, 0).cause, saved(&lab, id, 0).error), (cause::EVENTS, TIMER));
        assert_eq!((control(&lab, id).timer, control(&lab, id).pending), (u64::MAX, TIMER));
    }
}

#[test]
fn a_timer_that_is_past_comes_at_once_and_once() {
    for mut lab in Lab::both() {
        // The handler counts, acknowledges and returns; the program makes some hypercalls and exits with the count.
        let program = assembled(|asm| {
            asm.mov_imm(Rax, DOORBELL).hypercall().mov_imm(Rax, DOORBELL).hypercall().mov_imm(Rax, DOORBELL).hypercall();
            asm.mov_imm(Rbx, DATA).load(Rdi, Rbx, 0).mov_imm(Rsi, 0).mov_imm(Rax, 0).hypercall();
        });
        let rip = offset::SAVES as i32 + pando_abi::SavedContext::NAMES.iter().position(|name| *name == "rip").expect("saved") as i32 * 8;
        let handler = assembled(|asm| {
            asm.mov_imm(Rbx, DATA).load(Rcx, Rbx, 0).inc(Rcx).store(Rbx, 0, Rcx);
            asm.mov_imm(Rbx, VIRTUAL_REGISTERS).load(Rcx, Rbx, rip).store_imm(Rbx, offset::PENDING as i32, 0);
            asm.store_imm(Rbx, offset::LEVEL as i32, 0).store_imm(Rbx, offset::CRITICAL as i32, 0).jmp_to(Rcx);
        });
        for timer in [0, 1] {
            let id = lab.cell(&with_handlers(&program[..], &[], &handler));
            set_control(&lab, id, &Control { timer, event_entry: CODE + EVENT_ENTRY as u64, ..application() });
            lab.kernel.start(id).expect("it was not started before");
            let outcome = lab.finish(id);
            assert_eq!((outcome.end, outcome.counters.events), (End::Exited { status: 1 }, 1), "timer {timer}");
        }
    }
}

#[test]
fn an_entry_for_events_that_no_cpu_accepts_ends_the_cell() {
    for mut lab in Lab::both() {
        let id = cell(&lab, &assembled(spin), &Control { event_entry: 1 << 63, ..application() });
        lab.kernel.raise(id, Event::Console);
        lab.kernel.start(id).expect("it was not started before");
        assert_eq!(lab.finish(id).end, End::Violation(pando_machine::Violation::BadContext));
    }
}

#[test]
fn a_cell_that_overwrites_its_virtual_registers_affects_no_other_cell() {
    for mut lab in Lab::both() {
        let before = lab.kernel.free();
        // For every word of the virtual registers, a cell overwrites it with an arbitrary value, and then makes calls and faults.
        for word in 0..512 {
            for value in [0, -1, 0x1234_5678] {
                let id = lab.launch(|asm| {
                    asm.mov_imm(Rbx, VIRTUAL_REGISTERS).store_imm(Rbx, word * 8, value);
                    asm.call_kernel(Hypercall::Doorbell {}).call_kernel(Hypercall::Relinquish {}).ud2();
                });
                let end = lab.finish(id).end;
                let ended = matches!(end, End::Fault(_) | End::DoubleFault(_) | End::Violation(pando_machine::Violation::BadContext));
                assert!(ended, "word {word} holds {value:#x}: {end}");
            }
        }
        lab.kernel.free_unused_frames();
        assert_eq!(lab.kernel.free(), before);
    }
}

#[test]
fn an_event_for_a_running_cell_is_not_lost() {
    for mut lab in Lab::both() {
        let id = cell(&lab, &assembled(spin), &application());
        lab.kernel.start(id).expect("it was not started before");
        // A second cell, so that quanta end; the event comes while the first waits for its next quantum.
        let spinner = lab.launch(spin);
        lab.turn(0);
        lab.kernel.raise(id, Event::Terminate);
        while lab.kernel.inspect(id).expect("it lives").0 != pando_kernel::RunState::Frozen {
            lab.turn(0);
        }
        assert_eq!(saved(&lab, id, 0).error, TERMINATE);
        lab.kernel.end(spinner, End::Killed).expect("it lives");
    }
}

#[test]
fn an_interrupt_and_a_window_reach_a_cell_that_waits() {
    for mut lab in Lab::both() {
        let id = cell(&lab, &assembled(spin), &application());
        lab.kernel.set_window(id, 1, 2).expect("it lives");
        lab.kernel.set_window(id, 50, u16::MAX).expect("it lives");
        lab.kernel.interrupt(id).expect("it lives");
        lab.kernel.start(id).expect("it was not started before");
        lab.run_all();
        assert_eq!(saved(&lab, id, 0).error, 1 << Event::Interrupt as u8 | 1 << Event::WindowSize as u8);
        assert_eq!(words(&lab, id, VIRTUAL_REGISTERS + offset::WINDOW as u64), [50, u64::from(u16::MAX)]);
        lab.kernel.end(id, End::Killed).expect("it lives");
        assert_eq!(lab.kernel.interrupt(id), Err(OperatorError::Ended { cell: id, end: End::Killed }));
        assert_eq!(lab.kernel.set_window(id, 1, 1), Err(OperatorError::Ended { cell: id, end: End::Killed }));
    }
}

/// `cpuid`: on some machines it causes an exception that KVM queues, so an exit can come between the instruction and its exception.
const CPUID: &[u8] = &[0x0f, 0xa2];

#[test]
fn an_exception_that_is_on_its_way_comes_before_an_event() {
    let rip = offset::SAVES as i32 + pando_abi::SavedContext::NAMES.iter().position(|name| *name == "rip").expect("saved") as i32 * 8;
    let program = assembled(|asm| {
        asm.mov_imm(R12, repetitions(200, 3_000, 100_000).into());
        let again = asm.here();
        asm.raw(CPUID).dec(R12).jump_if(Condition::NotZero, again).call_kernel(exit(0));
    });
    // Returns behind the instruction, unless the event handler raised the exception.
    let exceptions = assembled(|asm| {
        let nested = asm.label();
        asm.mov_imm(R8, VIRTUAL_REGISTERS).load(R9, R8, offset::LEVEL as i32).cmp_imm(R9, 1).jump_if(Condition::NotZero, nested);
        asm.load(R9, R8, rip).add_imm(R9, CPUID.len() as i32);
        asm.store_imm(R8, offset::LEVEL as i32, 0).store_imm(R8, offset::CRITICAL as i32, 0).jmp_to(R9);
        asm.bind(nested).call_kernel(exit(1));
    });
    let events = assembled(|asm| {
        asm.mov_imm(R10, VIRTUAL_REGISTERS).load(R11, R10, rip).store_imm(R10, offset::PENDING as i32, 0);
        asm.store_imm(R10, offset::LEVEL as i32, 0).store_imm(R10, offset::CRITICAL as i32, 0).jmp_to(R11);
    });
    for mut lab in Lab::both() {
        let code = with_handlers(&program, &exceptions, &events);
        let handlers = CODE + EXCEPTION_ENTRY as u64;
        let id = lab.cell(&code);
        set_control(&lab, id, &Control { exit_path_start: handlers, exit_path_end: CODE + code.len() as u64, ..application() });
        lab.kernel.start(id).expect("it was not started before");
        let Lab { kernel, workers, .. } = &mut lab;
        let kernel = &*kernel;
        let outcome = std::thread::scope(|scope| {
            scope.spawn(|| while kernel.inspect(id).is_ok() && workers[0].turn() == TurnOutcome::Ran {});
            loop {
                if let Some(outcome) = kernel.collect(id) {
                    break outcome;
                }
                // It may have ended meanwhile.
                let _ = kernel.interrupt(id);
            }
        });
        assert_eq!(outcome.end, End::Exited { status: 0 }, "after {} events", outcome.counters.events);
    }
}
