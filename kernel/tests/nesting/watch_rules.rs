// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rules that keep watching safe, one by one: a kernel that leaves one out fails its test here or in `watching.rs`.

use crate::watching::{Family, exception, exit};
use pando_abi::holding::ChildState;
use pando_abi::registers::{FIXED_FLAGS, USER_FLAGS};
use pando_abi::watch::{CONTEXT_WORDS, mask, resume, state};
use pando_abi::{Event, EventSet, Hypercall, Refusal, Registers};
use pando_testing::asm::Asm;
use pando_testing::asm::Register::{Rax, Rbx};
use pando_testing::lab::Lab;

/// An address at which nothing is mapped.
const NOTHING: u64 = 0x5000_0000;

fn breakpoint_and_exit(asm: &mut Asm) {
    exit(asm.int3().nop(), 7);
}

/// The rule: only flags that a program may set are set.
#[test]
fn flags_that_no_program_may_set_are_left_out() {
    for lab in Lab::both() {
        let mut family = Family::new(lab, mask::EXCEPTIONS, breakpoint_and_exit);
        assert_eq!(family.run(), Some(ChildState::Halted));
        let registers = Registers { rflags: u64::MAX, ..family.registers() };
        assert_eq!(family.write(state::PROGRAM, &registers.to_words()), Ok(0));
        assert_eq!(family.registers().rflags, USER_FLAGS | FIXED_FLAGS);
        family.close();
    }
}

/// The rule: a context passes the checks of an image's.
#[test]
fn a_context_that_no_cell_can_have_is_refused() {
    for lab in Lab::both() {
        let mut family = Family::new(lab, mask::EXCEPTIONS, breakpoint_and_exit);
        assert_eq!(family.run(), Some(ChildState::Halted));
        let good = family.read::<CONTEXT_WORDS>(state::CONTEXT);
        let instruction = Registers { rip: 1 << 47, ..family.registers() }.to_words();
        let outside: Vec<u64> = instruction.into_iter().chain(good[Registers::WORDS..].iter().copied()).collect();
        let mut with_base = good;
        with_base[Registers::WORDS] = 1 << 63;
        for bad in [&outside[..], &with_base] {
            assert_eq!(family.write(state::CONTEXT, bad), Err(Refusal::BadArgument));
        }
        assert_eq!(family.read::<CONTEXT_WORDS>(state::CONTEXT), good, "nothing has changed");
        assert_eq!(family.resume(resume::CONTINUE), Some(ChildState::Exited(7)));
        family.close();
    }
}

/// The rule: exceptions of the libOS itself halt nothing, so that it maps files and serves the program while it is watched.
#[test]
fn exceptions_of_the_libos_halt_nothing() {
    for lab in Lab::both() {
        let handle = |handler: &mut Asm| _ = exit(handler.int3(), 9);
        let program = |asm: &mut Asm| _ = exit(asm.syscall(), 7);
        let mut family = Family::with_libos(lab, mask::EXCEPTIONS, program, (handle, u64::MAX));
        // Its handler of exceptions causes one each time.
        assert_eq!(family.run(), Some(ChildState::Failed));
        family.close();
    }
}

/// The rule: page faults and other exceptions are the libOS's, however much is watched.
#[test]
fn page_faults_go_to_the_libos() {
    for lab in Lab::both() {
        let mut family = Family::new(lab, mask::ALL, |asm| {
            exit(asm.mov_imm(Rbx, NOTHING).load(Rax, Rbx, 0), 7);
        });
        assert_eq!(family.run(), Some(ChildState::Exited(9)));
        family.close();
    }
}

/// The rule: no event is delivered before a step is over.
#[test]
fn events_wait_for_the_end_of_a_step() {
    for lab in Lab::both() {
        let handle = |handler: &mut Asm| _ = exit(handler, 9);
        // A clone has the event of its generation from the beginning.
        let masked = EventSet::NONE.with(Event::Generation).0;
        let mut family = Family::with_libos(lab, mask::EXCEPTIONS, breakpoint_and_exit, (handle, masked));
        assert_eq!(family.run(), Some(ChildState::Halted));
        let raise = Hypercall::CellRaise { cell: family.name.bits(), event: Event::Interrupt as u64, value: 0 };
        assert_eq!(family.call(raise), Ok(0));
        let stopped = family.registers().rip;
        assert_eq!(family.resume(resume::STEP), Some(ChildState::Halted));
        assert_eq!((family.reason(), family.registers().rip), (exception(1), stopped + 1));
        assert_eq!(family.resume(resume::CONTINUE), Some(ChildState::Exited(8)));
        family.close();
    }
}

/// The rule: clones of a watched cell are not watched. Nobody would resume them.
#[test]
fn clones_of_a_watched_cell_are_not_watched() {
    for lab in Lab::both() {
        let mut family = Family::new(lab, mask::ALL, breakpoint_and_exit);
        let source = family.name.bits();
        let clone = family.call(Hypercall::CellClone { source, quota: 300, cells: 0 }).expect("it may have three");
        assert_eq!(family.call(Hypercall::CellRun { cell: clone }), Ok(0));
        let end = family.call(Hypercall::CellState { cell: clone, fact: 0 }).ok().and_then(ChildState::from_bits);
        assert_eq!(end, Some(ChildState::Exited(9)));
        family.close();
    }
}

/// The rule: state is read and written only while a cell is halted.
#[test]
fn state_of_a_cell_that_is_not_halted_is_out_of_reach() {
    for lab in Lab::both() {
        let mut family = Family::new(lab, mask::EXCEPTIONS, breakpoint_and_exit);
        let cell = family.name.bits();
        let words = [0; Registers::WORDS];
        assert_eq!(family.write(state::PROGRAM, &words), Err(Refusal::WrongState));
        let read = Hypercall::StateRead { cell, kind: state::PROGRAM, address: crate::actor::BYTES, bytes: 8 };
        assert_eq!(family.call(read), Err(Refusal::WrongState));
        assert_eq!(family.run(), Some(ChildState::Halted));
        assert_eq!(family.call(read), Ok(8));
        assert_eq!(family.resume(resume::CONTINUE), Some(ChildState::Exited(7)));
        assert_eq!(family.write(state::PROGRAM, &words), Err(Refusal::NoSuchHolding));
        family.close();
    }
}
