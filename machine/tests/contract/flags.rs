// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flags (line 6), and the two with an effect after their instruction: TF and the shadow of `mov ss` (lines 3 and 5).

use crate::assemble;
use crate::bare::pair::{Attack, BareOutcome, Pair, wild_stacks};
use crate::bare::{Bare, CODE, DATA, is_nested, size};
use BareOutcome::{Calls, Continues, Fault, Syscall};
use pando_abi::registers::{FIXED_FLAGS, USER_FLAGS};
use pando_machine::{Exit, Machine};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// TF.
const STEP: u64 = 0x100;
/// RF, which `pushfq` never shows.
const RESUME: u64 = 0x1_0000;
/// NT, which a cell may set and no context restores.
const NESTED_TASK: u64 = 0x4000;
/// IOPL, VM, VIF, VIP: with one of them, a cell could affect others.
const NOBODYS: u64 = 0x3000 | 1 << 17 | 1 << 19 | 1 << 20;

#[test]
fn a_context_brings_only_the_flags_of_a_cell() {
    let mut pair = Pair::new();
    let code = assemble!("pushfq", "pop rax");
    for bit in 0..64 {
        let flags = 1u64 << bit;
        let allowed = if flags == STEP { Fault(1) } else { Continues };
        let mut context = pair.start(code);
        context.registers.rflags = flags;
        let left = pair.attack_from(&Attack::new(&format!("flag {bit} in a context"), code, &[allowed]), context);
        if flags != STEP {
            assert_eq!(left.registers.rax, flags & USER_FLAGS & !RESUME | FIXED_FLAGS, "flag {bit}, seen from inside");
            assert_eq!(left.registers.rflags & !RESUME, flags & USER_FLAGS & !RESUME | FIXED_FLAGS, "flag {bit}, seen from outside");
        }
    }
}

#[test]
fn an_interrupted_context_holds_its_own_flags_only() {
    let mut bare = Bare::new();
    let (machine, over) = (Arc::clone(&bare.machine), Arc::new(AtomicBool::new(false)));
    let flushing = thread::spawn({
        let over = Arc::clone(&over);
        // The program's next fetch faults in KVM, over and over.
        move || {
            while !over.load(Ordering::Relaxed) {
                machine.flush_tables().expect("KVM takes and gives back a slot");
            }
        }
    });
    let mut context = bare.start(assemble!("2:", "pause", "jmp 2b"));
    for round in 0..size::choose(20, 3_000, 50_000) {
        let deadline = bare.machine.now() + Duration::from_micros(100);
        let exit = bare.run_until(&mut context, deadline);
        assert_eq!((exit, context.registers.rflags), (Exit::Interrupted, FIXED_FLAGS), "round {round}");
    }
    over.store(true, Ordering::Relaxed);
    flushing.join().expect("the host flushes");
}

#[test]
fn popfq_gives_a_cell_no_flag_that_is_not_its_own() {
    let mut pair = Pair::new();
    let code = assemble!("push rax", "popfq", "pushfq", "pop rbx");
    for bit in 0..64 {
        let flags = 1u64 << bit;
        let allowed: &[BareOutcome] = if flags == STEP { &[Fault(1)] } else { &[Continues, Fault(13)] };
        let mut context = pair.start(code);
        context.registers.rax = flags;
        let left = pair.attack_from(&Attack::new(&format!("popfq of flag {bit}"), code, allowed), context);
        let seen = left.registers.rflags | left.registers.rbx;
        assert_eq!(seen & NOBODYS, 0, "popfq of flag {bit}");
        assert_eq!(seen & !(USER_FLAGS | FIXED_FLAGS | NESTED_TASK), 0, "popfq of flag {bit}");
        assert_eq!(left.registers.rflags & 0x200, 0x200, "popfq of flag {bit} switched interrupts off");
    }
}

#[test]
fn the_nested_task_flag_makes_only_ones_own_iretq_fault() {
    let mut pair = Pair::new();
    let code = assemble!("push 0x4000", "popfq", "iretq");
    pair.attack(&Attack::new("iretq with NT", code, &[Fault(13)]));
}

/// Instructions after the shadow or with the single step.
fn followers() -> [(&'static str, &'static [u8]); 12] {
    [
        ("syscall", assemble!("syscall")),
        ("int3", assemble!("int3")),
        ("int 3", assemble!(".byte 0xcd, 3")),
        ("int1", assemble!(".byte 0xf1")),
        ("int 0x80", assemble!("int 0x80")),
        ("hypercall", assemble!("out 0x7e, al")),
        ("in", assemble!("in al, 0x7e")),
        ("ud2", assemble!("ud2")),
        ("cpuid", assemble!("cpuid")),
        ("sysenter", assemble!("sysenter")),
        ("a page fault", assemble!("mov eax, [0]")),
        ("another mov ss", assemble!("mov ss, ecx", "syscall")),
    ]
}

#[test]
fn single_steps_and_stack_shadows_stay_with_their_context() {
    let mut pair = Pair::new();
    let stacks = [vec![DATA + 0xf00], wild_stacks()].concat();
    let before = [
        ("alone", assemble!("nop")),
        ("after mov ss", assemble!("mov ss, ecx")),
        ("after popfq", assemble!("mov rsp, rdi", "push rdx", "popfq", "mov rsp, rsi")),
        ("after popfq and mov ss", assemble!("mov rsp, rdi", "push rdx", "popfq", "mov rsp, rsi", "mov ss, ecx")),
    ];
    for (place, first) in before {
        for (name, second) in followers() {
            for rsp in size::choose(&stacks[..4], &stacks[..], &stacks[..]) {
                for flags in [0, STEP] {
                    let code = [first, second].concat();
                    let mut context = pair.start(&code);
                    (context.registers.rsp, context.registers.rsi, context.registers.rflags) = (*rsp, *rsp, flags);
                    (context.registers.rcx, context.registers.rdx, context.registers.rdi) = (0x23, STEP, DATA + 0xf00);
                    follow(&mut pair, context, &format!("{name} {place}, stack {rsp:#x}, flags {flags:#x}"));
                }
            }
        }
    }
}

/// Lets the attacker continue a few times after handleable exits; the neighbour checks itself after each turn.
fn follow(pair: &mut Pair, mut context: pando_machine::Context, name: &str) {
    for turn in 0..12 {
        let name = format!("{name}, turn {turn}");
        match pair.turn(&mut context, Duration::from_millis(50), &name) {
            Exit::Exception(exception) if exception.vector != 1 => return,
            Exit::Violation(violation) => return assert!(crate::bare::pair::is_clear(&violation), "{name}: {violation}"),
            Exit::Exception(_) | Exit::Hypercall | Exit::Syscall | Exit::Interrupted => {}
        }
        if context.registers.rip > CODE + 0x40 {
            return;
        }
    }
}

#[test]
fn an_interrupted_single_step_is_not_lost() {
    let mut pair = Pair::new();
    let code = assemble!("nop", "nop", "nop", "nop", "syscall", "nop", "nop");
    // Once without steps, so that everything is mapped: Bochs reports a step too many over a fault of the host's.
    pair.attack(&Attack::new("without steps", code, &[Syscall]));
    let mut context = pair.start(code);
    context.registers.rflags = STEP;
    for step in 1..=4 {
        let attack = Attack::new(&format!("step {step}"), code, &[Fault(1)]);
        context = pair.attack_from(&attack, context);
        assert_eq!(context.registers.rip, CODE + step);
    }
}

#[test]
fn a_step_over_a_hypercall_comes_right_behind_it() {
    let mut pair = Pair::new();
    let code = assemble!("out 0x7e, al", "nop", "nop", "nop");
    pair.attack(&Attack::new("without steps", code, &[Calls]));
    let mut context = pair.start(code);
    context.registers.rflags = STEP;
    let context = pair.attack_from(&Attack::new("the hypercall", code, &[Calls]), context);
    assert_eq!(context.registers.rip, CODE + 2);
    let context = pair.attack_from(&Attack::new("the step", code, &[Fault(1)]), context);
    // Nested, KVM delays the step to the next instruction.
    let late = u64::from(is_nested());
    assert_eq!(context.registers.rip, CODE + 2 + late);
    let context = pair.attack_from(&Attack::new("the next step", code, &[Fault(1)]), context);
    assert_eq!(context.registers.rip, CODE + 3 + late);
}
