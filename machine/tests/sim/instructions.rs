// SPDX-License-Identifier: MIT OR Apache-2.0
//! Instructions and exceptions of the software machine.

use crate::bare::{Bare, CODE, DATA, NO_EXECUTE, READ_ONLY, STACK, TABLE};
use pando_machine::{Context, EntryIndex, Exception, Exit, Machine, Nanos, PageCount, Violation};
use pando_testing::asm::{Asm, Condition, Register};
use std::time::Duration;

use Register::*;

fn exception(vector: u8, error: u64, address: u64) -> Exit {
    Exit::Exception(Exception { vector, error, address })
}

/// Runs the program that `build` assembles, followed by a hypercall.
fn run(build: impl FnOnce(&mut Asm) -> &mut Asm) -> (Exit, Context, Bare) {
    let mut asm = Asm::new();
    build(&mut asm).hypercall();
    let mut bare = Bare::new();
    let (exit, context) = bare.run_code(&asm.finish());
    (exit, context, bare)
}

/// The registers of a program that reaches its hypercall.
fn registers(build: impl FnOnce(&mut Asm) -> &mut Asm) -> pando_abi::Registers {
    let (exit, context, _) = run(build);
    assert_eq!(exit, Exit::Hypercall, "at {:#x}", context.registers.rip);
    context.registers
}

#[test]
fn a_hypercall_leaves_past_its_instruction() {
    let (exit, context, _) = run(|asm| asm.nop().pause());
    assert_eq!((exit, context.registers.rip), (Exit::Hypercall, CODE + 5));
}

#[test]
fn every_register_is_itself() {
    let mut bare = Bare::new();
    for (number, register) in Register::ALL.into_iter().enumerate() {
        let mut asm = Asm::new();
        asm.mov_imm(register, 0x1234_5678_9abc_0000 + number as u64).hypercall();
        let (exit, context) = bare.run_code(&asm.finish());
        let r = context.registers;
        let all = [r.rax, r.rcx, r.rdx, r.rbx, r.rsp, r.rbp, r.rsi, r.rdi, r.r8, r.r9, r.r10, r.r11, r.r12, r.r13, r.r14, r.r15];
        assert_eq!((exit, all[number]), (Exit::Hypercall, 0x1234_5678_9abc_0000 + number as u64));
        assert_eq!(all.iter().filter(|value| **value >> 32 == 0x1234_5678).count(), 1);
    }
}

#[test]
fn memory_is_read_and_written_in_words_and_bytes() {
    let r = registers(|asm| {
        asm.mov_imm(R12, DATA).mov_imm(Rax, 0x1122_3344_5566_7788).store(R12, 16, Rax).load(Rbx, R12, 16);
        asm.mov_imm(Rcx, 0xffff).store_byte(R12, 18, Rcx).load(Rdx, R12, 16).load_byte(Rsi, R12, 23);
        asm.store_imm(R12, 0x100, -2).load(Rdi, R12, 0x100).mov(Rbp, R12).load(R8, Rbp, 16)
    });
    assert_eq!((r.rbx, r.rdx, r.rsi, r.rdi), (0x1122_3344_5566_7788, 0x1122_3344_55ff_7788, 0x11, u64::MAX - 1));
    assert_eq!(r.r8, r.rdx);
}

#[test]
fn arithmetic_gives_results_and_flags() {
    let r = registers(|asm| {
        asm.mov_imm(Rax, u64::MAX).mov_imm(Rbx, 2).add(Rax, Rbx);
        asm.mov(Rcx, Rbx).sub(Rcx, Rax).mov(Rdx, Rbx).xor(Rdx, Rax).mov(Rsi, Rbx).or(Rsi, Rax).mov(Rdi, Rbx).and(Rdi, Rax);
        asm.mov_imm(R8, 100).add_imm(R8, 1000).sub_imm(R8, -1).inc(R8).dec(R9)
    });
    assert_eq!((r.rax, r.rcx, r.rdx, r.rsi, r.rdi, r.r8, r.r9), (1, 1, 3, 3, 0, 1102, u64::MAX));
}

#[test]
fn conditions_follow_comparisons() {
    let holds = |condition, left: u64, right: u64| {
        registers(|asm| {
            let skip = asm.label();
            asm.mov_imm(Rax, left).mov_imm(Rbx, right).mov_imm(Rcx, 1);
            asm.cmp(Rax, Rbx).jump_if(condition, skip).mov_imm(Rcx, 0).bind(skip)
        })
        .rcx == 1
    };
    let minus = |value: i64| value as u64;
    assert!(holds(Condition::Zero, 5, 5) && !holds(Condition::Zero, 5, 6));
    assert!(holds(Condition::NotZero, 5, 6) && !holds(Condition::NotZero, 5, 5));
    assert!(holds(Condition::Below, 5, 6) && holds(Condition::Below, 5, minus(-1)) && !holds(Condition::Below, 5, 5));
    assert!(holds(Condition::AboveOrEqual, 5, 5) && !holds(Condition::AboveOrEqual, 5, 6));
    assert!(holds(Condition::BelowOrEqual, 5, 5) && holds(Condition::Above, minus(-1), 5));
    assert!(holds(Condition::Less, minus(-1), 5) && holds(Condition::GreaterOrEqual, 5, minus(-1)));
    assert!(holds(Condition::Less, 1 << 63, 1) && holds(Condition::Overflow, 1 << 63, 1));
    assert!(holds(Condition::Sign, 1, 2) && holds(Condition::Parity, 3, 0) && !holds(Condition::Parity, 1, 0));
}

#[test]
fn loops_calls_and_stacks_work() {
    let r = registers(|asm| {
        let (double, start) = (asm.label(), asm.label());
        asm.jmp(start).bind(double).push(Rbx).add(Rax, Rax).pop(Rbx).ret();
        asm.bind(start).mov_imm(Rax, 1).mov_imm(Rcx, 10);
        let again = asm.here();
        asm.call(double).dec(Rcx).jump_if(Condition::NotZero, again)
    });
    assert_eq!((r.rax, r.rsp), (1024, STACK));
}

#[test]
fn syscall_leaves_past_its_instruction_with_its_registers_set() {
    let (exit, context, _) = run(|asm| asm.mov_imm(Rax, 0).cmp_imm(Rax, 0).syscall());
    let r = context.registers;
    assert_eq!((exit, r.rip, r.rcx, r.r11), (Exit::Syscall, CODE + 16, CODE + 16, r.rflags));
    assert_eq!(r.r11 & 0x247, 0x246);
}

#[test]
fn exceptions_stand_where_the_manual_says() {
    for (code, expect, rip) in [
        (&b"\x0f\x0b"[..], exception(6, 0, 0), CODE),
        (b"\xcc", exception(3, 0, 0), CODE + 1),
        (b"\xcd\x80", exception(13, 0x402, 0), CODE),
        (b"\xf4", exception(13, 0, 0), CODE),
        (b"\xfa", exception(13, 0, 0), CODE),
        (b"\x0f\x22\xd8", exception(13, 0, 0), CODE),
        (b"\x0f\x32", exception(13, 0, 0), CODE),
        (b"\x0f\xa2", exception(13, 0, 0), CODE),
        (b"\xe6\x80", exception(13, 0, 0), CODE),
        (b"\xe4\x80", exception(13, 0, 0), CODE),
        (b"\xee", exception(13, 0, 0), CODE),
        (b"\xf0\x90", exception(6, 0, 0), CODE),
        (b"\x06", exception(6, 0, 0), CODE),
        (&[0x2e; 15], exception(13, 0, 0), CODE),
    ] {
        let (exit, context) = Bare::new().run_code(code);
        assert_eq!((exit, context.registers.rip), (expect, rip), "{code:x?}");
    }
}

#[test]
fn other_uses_of_the_port_end_the_cell() {
    for code in [&b"\xe4\x7e"[..], b"\xe5\x7e", b"\xe7\x7e", b"\xec", b"\xef", b"\x6c", b"\xf3\x6c", b"\x6e", b"\x66\xf3\x6f"] {
        let mut bare = Bare::new();
        let mut context = bare.start(code);
        context.registers.rdx = 0x7e;
        assert_eq!(bare.run(&mut context), Exit::Violation(Violation::Port), "{code:x?}");
    }
    let mut bare = Bare::new();
    let mut context = bare.start(b"\xee");
    context.registers.rdx = 0x7e;
    assert_eq!((bare.run(&mut context), context.registers.rip), (Exit::Hypercall, CODE + 1));
}

#[test]
fn page_fault_error_codes_describe_the_access() {
    let absent = 0x70_0008;
    let (exit, context, mut bare) = run(|asm| asm.mov_imm(Rbx, absent).mov_imm(Rax, 7).store(Rbx, 0, Rax).load(Rcx, Rbx, 0));
    assert_eq!((exit, context.registers.rip, context.fault_address), (exception(14, 6, absent), CODE + 20, absent));
    let frame = bare.frame();
    bare.map(bare.root, absent, frame, TABLE);
    let mut context = context;
    assert_eq!((bare.run(&mut context), context.registers.rcx), (Exit::Hypercall, 7));
    assert_eq!(bare.machine.arena().load(frame, EntryIndex::new(1)), 7);

    assert_eq!(run(|asm| asm.mov_imm(Rbx, absent).load(Rax, Rbx, 0)).0, exception(14, 4, absent));
    assert_eq!(run(|asm| asm.mov_imm(Rbx, absent).jmp_to(Rbx)).0, exception(14, 0x14, absent));
    assert_eq!(run(|asm| asm.mov_imm(Rbx, CODE).store(Rbx, 0, Rax)).0, exception(14, 7, CODE));
    assert_eq!(run(|asm| asm.mov_imm(Rbx, 0xffff_ffff_8000_0000).load(Rax, Rbx, 0)).0, exception(14, 4, 0xffff_ffff_8000_0000));
}

#[test]
fn no_execute_and_supervisor_pages_are_honoured() {
    let mut bare = Bare::new();
    let frame = bare.frame();
    bare.map(bare.root, 0x60_0000, frame, TABLE | NO_EXECUTE);
    bare.map(bare.root, 0x60_1000, frame, TABLE & !4);
    for (register, expect) in [(0x60_0000, exception(14, 0x15, 0x60_0000)), (0x60_1000, exception(14, 0x15, 0x60_1000))] {
        let mut context = bare.start(b"\xff\xe0");
        context.registers.rax = register;
        assert_eq!(bare.run(&mut context), expect);
    }
    let mut context = bare.start(b"\x48\x8b\x18");
    context.registers.rax = 0x60_1000;
    assert_eq!(bare.run(&mut context), exception(14, 5, 0x60_1000));
}

#[test]
fn addresses_that_no_cpu_accepts_are_not_page_faults() {
    let hole = 1 << 47;
    assert_eq!(run(|asm| asm.mov_imm(Rbx, hole).load(Rax, Rbx, 0)).0, exception(13, 0, 0));
    assert_eq!(run(|asm| asm.mov_imm(Rbx, hole).load(Rax, Rbx, -4)).0, exception(14, 4, hole - 4));
    assert_eq!(run(|asm| asm.mov_imm(Rsp, hole + 8).push(Rax)).0, exception(12, 0, 0));
    assert_eq!(run(|asm| asm.mov_imm(Rbp, hole).load(Rax, Rbp, 0)).0, exception(12, 0, 0));
    let (exit, context, _) = run(|asm| asm.mov_imm(Rbx, hole).jmp_to(Rbx));
    assert_eq!((exit, context.registers.rip), (exception(13, 0, 0), CODE + 10));
}

#[test]
fn an_access_across_pages_happens_wholly_or_not_at_all() {
    let mut bare = Bare::new();
    let code = b"\x48\x89\x18\x48\x8b\x08\xe6\x7e";
    let mut context = bare.start(code);
    (context.registers.rax, context.registers.rbx) = (DATA + 0xffc, 0x1122_3344_5566_7788);
    assert_eq!(bare.run(&mut context), exception(14, 6, DATA + 0x1000));
    assert_eq!(bare.machine.arena().load(bare.data, EntryIndex::new(511)), 0);
    let next = bare.frame();
    bare.map(bare.root, DATA + 0x1000, next, TABLE);
    assert_eq!((bare.run(&mut context), context.registers.rcx), (Exit::Hypercall, 0x1122_3344_5566_7788));
    assert_eq!(bare.machine.arena().load(next, EntryIndex::new(0)), 0x1122_3344);
}

#[test]
fn code_across_pages_is_fetched_from_both() {
    let mut bare = Bare::new();
    let next = bare.frame();
    let mut context = bare.start(&[]);
    context.registers.rip = CODE + 0xffb;
    bare.machine.arena().write(bare.code, 0xffb, b"\x48\xb8\x01\x02\x03");
    assert_eq!(bare.run(&mut context), exception(14, 0x14, CODE + 0x1000));
    bare.machine.arena().write(next, 0, b"\x04\x05\x06\x07\x08\xe6\x7e");
    bare.map(bare.root, CODE + 0x1000, next, READ_ONLY);
    assert_eq!((bare.run(&mut context), context.registers.rax), (Exit::Hypercall, 0x0807_0605_0403_0201));
}

#[test]
fn single_steps_arrive_one_by_one_and_over_a_hypercall() {
    let mut bare = Bare::new();
    let mut context = bare.start(b"\x90\xe6\x7e\x90");
    context.registers.rflags = 0x100;
    assert_eq!((bare.run(&mut context), context.registers.rip), (exception(1, 0, 0), CODE + 1));
    assert_eq!((bare.run(&mut context), context.registers.rip), (Exit::Hypercall, CODE + 3));
    assert_eq!((bare.run(&mut context), context.registers.rip), (exception(1, 0, 0), CODE + 3));
    assert_eq!((bare.run(&mut context), context.registers.rip), (exception(1, 0, 0), CODE + 4));
}

#[test]
fn accessed_and_dirty_bits_are_set_as_the_cpu_does() {
    let mut bare = Bare::new();
    let frame = bare.frame();
    bare.map(bare.root, 0x60_0000, frame, TABLE & !0x60);
    let leaf = |bare: &mut Bare| bare.entry(0x60_0000, 1) & 0x60;
    let mut context = bare.start(b"\x48\x8b\x18\xe6\x7e\x48\x89\x18\xe6\x7e");
    context.registers.rax = 0x60_0000;
    assert_eq!((bare.run(&mut context), leaf(&mut bare)), (Exit::Hypercall, 0x20));
    assert_eq!((bare.run(&mut context), leaf(&mut bare)), (Exit::Hypercall, 0x60));
}

#[test]
fn large_pages_are_walked() {
    let mut bare = Bare::new();
    bare.map_large(bare.root, 0x4000_0000, pando_machine::HugeFrame(5), TABLE);
    let mut context = bare.start(b"\x48\x89\x18\xe6\x7e");
    (context.registers.rax, context.registers.rbx) = (0x4000_0000 + 7 * 4096 + 8, 42);
    assert_eq!(bare.run(&mut context), Exit::Hypercall);
    assert_eq!(bare.machine.arena().load(pando_machine::FrameId(5 * 512 + 7), EntryIndex::new(1)), 42);
}

#[test]
fn vector_state_stays_until_it_is_loaded() {
    let mut bare = Bare::new();
    let mut context = bare.start(b"\x66\x48\x0f\x6e\xc0\xe6\x7e");
    context.registers.rax = 0x1234_5678_9abc_def0;
    assert_eq!(bare.run(&mut context), Exit::Hypercall);
    let read = |bare: &mut Bare| bare.run_code(b"\x66\x48\x0f\x7e\xc0\xe6\x7e").1.registers.rax;
    assert_eq!(read(&mut bare), 0x1234_5678_9abc_def0);
    let saved = bare.vcpu.save_vector().expect("nothing can fail");
    bare.vcpu.load_vector(None).expect("the initial state");
    assert_eq!(read(&mut bare), 0);
    bare.vcpu.load_vector(Some(&saved)).expect("a state that was saved");
    assert_eq!(read(&mut bare), 0x1234_5678_9abc_def0);
}

#[test]
fn an_endless_loop_is_interrupted_by_the_clock_and_by_others() {
    let mut bare = Bare::new();
    let mut context = bare.start(b"\xeb\xfe");
    let deadline = bare.machine.now() + Duration::from_micros(50);
    assert_eq!(bare.run_until(&mut context, deadline), Exit::Interrupted);
    assert!(bare.machine.now() >= deadline);
    bare.vcpu.interrupter().interrupt();
    assert_eq!(bare.run_until(&mut context, Nanos::NEVER), Exit::Interrupted);
    bare.machine.advance_to(Nanos(1 << 40));
    assert!(bare.machine.now() >= Nanos(1 << 40));
}

#[test]
fn the_tsc_tells_the_machine_s_time() {
    let (_, context, bare) = run(|asm| asm.rdtsc());
    let clock = bare.machine.clock();
    let tsc = context.registers.rdx << 32 | context.registers.rax;
    let nanos = (u128::from(tsc - clock.tsc_base) * u128::from(clock.scale)) >> 32;
    assert!((1..=u128::from(bare.machine.now().0)).contains(&nanos), "{nanos}");
}

#[test]
fn contexts_and_roots_that_cannot_be_loaded_are_refused() {
    let mut bare = Bare::new();
    assert_eq!(bare.run(&mut Context::at(1 << 47)), Exit::Violation(Violation::BadContext));
    bare.machine.arena().store(bare.root, EntryIndex::new(511), 0);
    assert!(matches!(bare.run_code(b"\x90").0, Exit::Violation(Violation::Machine { .. })));
}

#[test]
fn the_same_seed_is_the_same_randomness() {
    let draw = |seed| {
        let config = pando_machine::sim::SimConfig { arena: PageCount(1024), seed, ..Default::default() };
        let mut bytes = [0; 20];
        pando_machine::sim::Sim::new(config).expect("a small arena").entropy(&mut bytes);
        bytes
    };
    assert_eq!(draw(1), draw(1));
    assert_ne!(draw(1), draw(2));
}

#[test]
fn random_bytes_reach_nothing_but_their_own_pages() {
    let mut rng = fastrand::Rng::with_seed(1);
    let mut bare = Bare::new();
    let beyond: Vec<_> = (0..8).map(|_| bare.frame()).collect();
    for _ in 0..100_000 {
        let mut code = [0; 64];
        rng.fill(&mut code);
        let mut context = bare.start(&code);
        let mut words = context.registers.to_words();
        words.fill_with(|| if rng.bool() { rng.u64(..) } else { DATA + rng.u64(..4096) });
        context.registers = pando_abi::Registers::from_words(words);
        context.registers.rip = CODE + rng.u64(..64);
        let deadline = bare.machine.now() + Duration::from_micros(5);
        let _ = bare.run_until(&mut context, deadline);
    }
    for frame in beyond {
        for index in 0..512 {
            assert_eq!(bare.machine.arena().load(frame, EntryIndex::new(index)), 0);
        }
    }
    assert_eq!(bare.machine.breaches(), []);
}
