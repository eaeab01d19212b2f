// SPDX-License-Identifier: MIT OR Apache-2.0
//! Preemption at random points around exceptions and system calls (lines 4 and 5): a context is restored exactly, and so is the next one.

use crate::assemble;
use crate::bare::pair::Pair;
use crate::bare::{CODE, DATA, size};
use pando_machine::{Context, Exception, Exit, Machine, SUPERVISOR_BASE};
use std::time::Duration;

/// One round of the program below: its events, in order. `skip` is the length of the instruction at the context's instruction pointer.
const ROUND: [(&str, u8, u64); 8] = [
    ("#UD", 6, 2),
    ("syscall", SYSCALL, 0),
    ("#DE", 0, 2),
    ("#BP", 3, 0),
    ("#PF by a write", 14, 7),
    ("hypercall", HYPERCALL, 0),
    ("#GP", 13, 1),
    ("#PF by a read", 14, 7),
];
/// Stands for `syscall` in [`ROUND`].
const SYSCALL: u8 = 100;
/// Stands for the hypercall.
const HYPERCALL: u8 = 101;

/// A loop that raises all of [`ROUND`] and counts in eight registers between.
fn program() -> &'static [u8] {
    assemble!(
        "44:",
        "inc r8",
        "ud2",
        "inc r9",
        "syscall",
        "inc r10",
        "div ebp",
        "inc r12",
        "int3",
        "inc r13",
        "mov [0x700008], eax",
        "inc r14",
        "out 0x7e, al",
        "inc rbx",
        "hlt",
        "inc rsi",
        "mov eax, [0x700010]",
        "inc rdi",
        "jmp 44b",
    )
}

/// A random deadline: from before the start to a few instructions after it.
fn short(random: &mut fastrand::Rng, longest: u64) -> Duration {
    Duration::from_nanos(random.u64(0..longest))
}

/// The events of a run of the program.
#[derive(Default)]
struct Seen {
    events: usize,
    interruptions: usize,
}

fn check_event(exit: &Exit, context: &mut Context, seen: &mut Seen, at: &str) {
    let (name, kind, skip) = ROUND[seen.events % ROUND.len()];
    let fits = match exit {
        Exit::Hypercall => kind == HYPERCALL,
        Exit::Syscall => kind == SYSCALL,
        Exit::Exception(Exception { vector, .. }) => kind == *vector,
        _ => false,
    };
    assert!(fits, "{at}: {exit:?} at {:#x} where {name} was due", context.registers.rip);
    if let Exit::Exception(Exception { vector: 14, error, address }) = exit {
        let wanted = if name.ends_with("write") { (6, 0x70_0008) } else { (4, 0x70_0010) };
        assert_eq!((*error, *address), wanted, "{at}: {name}");
    }
    if kind == SYSCALL {
        assert_eq!(context.registers.rcx, context.registers.rip, "{at}: the return address of syscall");
    }
    context.registers.rip += skip;
    seen.events += 1;
}

/// Checks every counter of the program after `events` events.
fn check_counters(context: &Context, events: usize, at: &str) {
    let r = &context.registers;
    let counters = [r.r8, r.r9, r.r10, r.r12, r.r13, r.r14, r.rbx, r.rsi, r.rdi];
    let rounds = (events / ROUND.len()) as u64;
    let done = events % ROUND.len();
    for (index, counter) in counters.into_iter().enumerate().take(8) {
        // Between the event and its increment, one more or one less is as exact.
        let least = rounds + u64::from(index < done);
        assert!((least..=least + u64::from(index == done)).contains(&counter), "{at}: counter {index} is {counter} after {events} events");
    }
}

#[test]
fn contexts_come_back_exactly_when_interrupted_anywhere() {
    let mut pair = Pair::new();
    let mut random = fastrand::Rng::with_seed(size::seed());
    let mut context = pair.start(program());
    (context.registers.rsp, context.fs_base, context.gs_base) = (SUPERVISOR_BASE + 0x9800, 0x1111_2222_3000, 0x4444_5555_6000);
    context.registers.rflags = 0x20_0000;
    let bases = (context.fs_base, context.gs_base);
    let mut seen = Seen::default();
    let mut longest = 60_000;
    for turn in 0..size::choose(500, 6_000, 200_000) {
        let at = format!("seed {}, turn {turn}", size::seed());
        if random.bool() {
            pair.bare.slow_down();
        }
        let exit = pair.turn(&mut context, short(&mut random, longest), &at);
        assert_eq!((context.fs_base, context.gs_base), bases, "{at}");
        assert_eq!(context.registers.rsp, SUPERVISOR_BASE + 0x9800, "{at}");
        assert!((CODE..CODE + 0x100).contains(&context.registers.rip), "{at}: at {:#x}", context.registers.rip);
        // Adapts to the machine's speed, so that half of the turns are interrupted.
        if exit == Exit::Interrupted {
            seen.interruptions += 1;
            longest += longest / 16;
        } else {
            check_event(&exit, &mut context, &mut seen, &at);
            longest -= longest / 16;
        }
        longest = longest.clamp(1_000, 50_000_000);
        check_counters(&context, seen.events, &at);
    }
    assert!(seen.events > 100 && seen.interruptions > 100, "{} events, {} interruptions", seen.events, seen.interruptions);
}

#[test]
fn single_steps_are_neither_lost_nor_doubled_by_interruptions() {
    let mut pair = Pair::new();
    let mut random = fastrand::Rng::with_seed(size::seed());
    let code = assemble!("44:", ".fill 200, 1, 0x90", "jmp 44b");
    // Once without steps, so that everything is mapped: Bochs reports a step too many over a fault of the host's.
    let mut plain = pair.start(code);
    assert_eq!(pair.turn(&mut plain, Duration::from_millis(20), "without steps"), Exit::Interrupted);
    let mut context = pair.start(code);
    context.registers.rflags = 0x100;
    let (mut steps, mut longest) = (0u64, 60_000);
    for turn in 0..size::choose(400, 4_000, 100_000) {
        let at = format!("seed {}, turn {turn}", size::seed());
        match pair.turn(&mut context, short(&mut random, longest), &at) {
            Exit::Interrupted => longest += longest / 16,
            Exit::Exception(Exception { vector: 1, .. }) => {
                steps += 1;
                longest -= longest / 16;
                assert_eq!(context.registers.rip, CODE + steps % 201, "{at}: step {steps}");
            }
            exit => panic!("{at}: {exit:?}"),
        }
        longest = longest.clamp(1_000, 50_000_000);
    }
    assert!(steps > 100, "{steps} steps");
}

#[test]
fn an_interrupter_stops_a_loop_from_another_thread() {
    let mut pair = Pair::new();
    for round in 0..size::choose(5, 50, 500) {
        let mut context = pair.start(assemble!("44: jmp 44b"));
        let interrupter = pair.bare.vcpu.interrupter();
        let thread = std::thread::spawn(move || interrupter.interrupt());
        let exit = pair.bare.run(&mut context);
        thread.join().expect("the other thread only sends a signal");
        assert_eq!((exit, context.registers.rip), (Exit::Interrupted, CODE), "round {round}");
        pair.after(&Exit::Interrupted, &context, "an interrupter");
    }
}

/// The very first run of a vCPU with a deadline that has passed: the signal comes before the vCPU is ever entered.
#[test]
fn a_deadline_that_has_passed_is_not_missed() {
    for _ in 0..size::choose(3, 40, 200) {
        let mut pair = crate::bare::Bare::new();
        let mut context = pair.start(assemble!("44: jmp 44b"));
        let now = pair.machine.now();
        assert_eq!(pair.run_until(&mut context, now), Exit::Interrupted);
        assert_eq!(pair.run_until(&mut context, pando_machine::Nanos(0)), Exit::Interrupted);
        assert_eq!((context.registers.rip, context.registers.rsp), (CODE, DATA + 0xf00));
    }
}
