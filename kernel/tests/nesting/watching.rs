// SPDX-License-Identifier: MIT OR Apache-2.0
//! Halting children: watched events, the state of a halted child, and its continuation.

use crate::actor::{BYTES, QUOTA, call, call_beside, clone_root, close, start, start_child, template, waits};
use pando_abi::holding::ChildState;
use pando_abi::virtual_registers::Control;
use pando_abi::watch::{CONTEXT_WORDS, HaltReason, REASON_WORDS, mask, resume, state};
use pando_abi::{Event, HoldingName, Hypercall, Refusal, Registers};
use pando_kernel::{CellId, RunState};
use pando_machine::PageCount;
use pando_testing::asm::Asm;
use pando_testing::asm::Register::{R10, Rax, Rbx, Rdi, Rdx, Rsi};
use pando_testing::lab::{CODE, Lab, seeds};
use pando_testing::virtual_registers::{application, set_control, with_handlers, words};

/// The trap flag.
const TRAP_FLAG: u64 = 1 << 8;

pub fn exit(asm: &mut Asm, status: u64) -> &mut Asm {
    asm.call_kernel(Hypercall::Exit { status, signal: 0, address: 0, instruction: 0 })
}

/// A family: an operator's cell that watches its child, a program with a libOS.
pub struct Family {
    pub lab: Lab,
    free: PageCount,
    templates: [CellId; 2],
    pub parent: CellId,
    pub name: HoldingName,
    pub child: CellId,
}

impl Family {
    /// A program whose libOS exits with status 9 at every exception and system call, and masks all events.
    pub fn new(lab: Lab, mask: u64, assemble: impl Fn(&mut Asm)) -> Family {
        let handle = |handler: &mut Asm| _ = exit(handler, 9);
        Family::with_libos(lab, mask, assemble, (handle, u64::MAX))
    }

    /// A program whose libOS has this handler of exceptions, masks these events, and exits with status 8 at others.
    pub fn with_libos(mut lab: Lab, mask: u64, assemble: impl Fn(&mut Asm), (handle, masked): (impl Fn(&mut Asm), u64)) -> Family {
        let free = lab.kernel.free();
        let (mut code, mut handler, mut events) = (Asm::new(), Asm::new(), Asm::new());
        assemble(&mut code);
        handle(&mut handler);
        exit(&mut events, 8);
        let program = lab.cell(&with_handlers(&code.finish(), &handler.finish(), &events.finish()));
        set_control(&lab, program, &Control { mask: masked, ..application() });
        let root = template(&lab);
        let parent = lab.kernel.clone_cell(root, PageCount(2000)).expect("room");
        assert_eq!(lab.kernel.allow_children(parent, 3, program), Ok(HoldingName::ROOT));
        lab.kernel.start(parent).expect("it was not started");
        lab.run_all();
        let (name, child) = clone_root(&mut lab, parent, PageCount(300), 0).expect("room");
        let mut family = Family { lab, free, templates: [root, program], parent, name, child };
        assert_eq!(family.call(Hypercall::CellWatch { cell: name.bits(), mask }), Ok(0));
        family
    }

    /// The templates of the parent and of the child.
    pub fn templates(&self) -> [CellId; 2] {
        self.templates
    }

    pub fn call(&mut self, wanted: Hypercall) -> Result<u64, Refusal> {
        call(&mut self.lab, self.parent, wanted)
    }

    /// Runs the child until it halts or ends.
    pub fn run(&mut self) -> Option<ChildState> {
        self.call(Hypercall::CellRun { cell: self.name.bits() }).expect("it was not started");
        self.state()
    }

    pub fn resume(&mut self, how: u64) -> Option<ChildState> {
        self.call(Hypercall::CellResume { cell: self.name.bits(), how }).expect("it is halted");
        self.state()
    }

    pub fn state(&mut self) -> Option<ChildState> {
        self.call(Hypercall::CellState { cell: self.name.bits(), fact: 0 }).ok().and_then(ChildState::from_bits)
    }

    pub fn read<const N: usize>(&mut self, kind: u64) -> [u64; N] {
        let read = Hypercall::StateRead { cell: self.name.bits(), kind, address: BYTES, bytes: N as u64 * 8 };
        assert_eq!(self.call(read), Ok(N as u64 * 8));
        words(&self.lab, self.parent, BYTES)
    }

    pub fn write(&mut self, kind: u64, words: &[u64]) -> Result<u64, Refusal> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.lab.kernel.write(self.parent, BYTES, &bytes).expect("it waits");
        self.call(Hypercall::StateWrite { cell: self.name.bits(), kind, address: BYTES, bytes: bytes.len() as u64 })
    }

    pub fn reason(&mut self) -> Option<HaltReason> {
        HaltReason::from_words(self.read::<REASON_WORDS>(state::REASON))
    }

    pub fn registers(&mut self) -> Registers {
        Registers::from_words(self.read(state::PROGRAM))
    }

    pub fn close(mut self) {
        let [root, program] = self.templates;
        close(&mut self.lab, &[self.parent, root, program], self.free);
    }
}

pub fn exception(vector: u8) -> Option<HaltReason> {
    Some(HaltReason::Exception { vector, error: 0, address: 0 })
}

#[test]
fn a_watched_program_halts_at_breakpoints_and_goes_on_by_steps() {
    for lab in Lab::both() {
        let mut family = Family::new(lab, mask::EXCEPTIONS, |asm| {
            exit(asm.mov_imm(Rbx, 5).int3().mov_imm(Rbx, 6).nop(), 7);
        });
        assert_eq!(family.run(), Some(ChildState::Halted));
        assert_eq!(family.reason(), exception(3));
        let stopped = family.registers();
        assert_eq!((stopped.rbx, stopped.rip), (5, CODE + 11));
        // The program's code, which the parent reads in the child's space.
        let read = Hypercall::Read { space: family.name.current_space(), address: CODE + 10, target: BYTES, bytes: 3 };
        assert_eq!(family.call(read), Ok(0));
        let [code] = words(&family.lab, family.parent, BYTES);
        assert_eq!(code & 0xff_ffff, 0xbb_48cc);
        assert_eq!(family.resume(resume::STEP), Some(ChildState::Halted));
        assert_eq!(family.reason(), exception(1));
        let stepped = family.registers();
        assert_eq!((stepped.rbx, stepped.rip, stepped.rflags & TRAP_FLAG), (6, CODE + 21, 0));
        assert_eq!(family.resume(resume::STEP), Some(ChildState::Halted));
        assert_eq!(family.registers().rip, CODE + 22);
        assert_eq!(family.resume(resume::CONTINUE), Some(ChildState::Exited(7)));
        family.close();
    }
}

#[test]
fn the_libos_gets_what_its_parent_passes_on() {
    for lab in Lab::both() {
        let mut family = Family::new(lab, mask::EXCEPTIONS, |asm| {
            exit(asm.int3(), 7);
        });
        assert_eq!(family.run(), Some(ChildState::Halted));
        assert_eq!(family.resume(resume::DELIVER), Some(ChildState::Exited(9)));
        family.close();
    }
    // Without a watch nothing halts it.
    for lab in Lab::both() {
        let mut family = Family::new(lab, mask::SYSCALLS, |asm| {
            exit(asm.int3(), 7);
        });
        assert_eq!(family.run(), Some(ChildState::Exited(9)));
        family.close();
    }
}

/// A program that exits with the result of its system call.
fn exit_with_result(asm: &mut Asm) {
    asm.mov_imm(Rax, 39).syscall().mov(Rdi, Rax).mov_imm(Rax, 0).mov_imm(Rsi, 0).mov_imm(Rdx, 0).mov_imm(R10, 0).hypercall();
}

#[test]
fn a_parent_answers_system_calls_or_passes_them_on() {
    for how in [resume::CONTINUE, resume::DELIVER] {
        for lab in Lab::both() {
            let mut family = Family::new(lab, mask::SYSCALLS, exit_with_result);
            assert_eq!(family.run(), Some(ChildState::Halted));
            assert_eq!(family.reason(), Some(HaltReason::Syscall));
            let registers = family.registers();
            assert_eq!((registers.rax, registers.rip), (39, CODE + 12));
            if how == resume::CONTINUE {
                let answered = Registers { rax: 42, ..registers };
                assert_eq!(family.write(state::PROGRAM, &answered.to_words()), Ok(0));
            }
            let end = if how == resume::CONTINUE { 42 } else { 9 };
            assert_eq!(family.resume(how), Some(ChildState::Exited(end)));
            family.close();
        }
    }
}

#[test]
fn reports_halt_only_if_they_are_watched() {
    let report = |asm: &mut Asm| {
        asm.call_kernel(Hypercall::Report { kind: 1, first: 2, second: 3, third: 4 }).mov(Rbx, Rax);
        exit(asm, 7);
    };
    for lab in Lab::both() {
        let mut family = Family::new(lab, mask::REPORTS, report);
        assert_eq!(family.run(), Some(ChildState::Halted));
        assert_eq!(family.reason(), Some(HaltReason::Report([1, 2, 3, 4])));
        assert_eq!(family.registers().rax, 0);
        assert_eq!(family.resume(resume::CONTINUE), Some(ChildState::Exited(7)));
        family.close();
    }
    for lab in Lab::both() {
        let mut family = Family::new(lab, 0, report);
        assert_eq!(family.run(), Some(ChildState::Exited(7)));
        family.close();
    }
}

#[test]
fn a_child_that_computes_is_halted_and_goes_on() {
    for lab in Lab::both() {
        let mut family = Family::new(lab, 0, |asm| {
            let again = asm.here();
            asm.inc(Rbx).jmp(again);
        });
        let cell = family.name.bits();
        let Family { lab, parent, child, .. } = &mut family;
        assert_eq!(call_beside(lab, *parent, Hypercall::CellRun { cell }), Ok(0));
        for _ in 0..3 {
            for _ in 0..3 {
                lab.turn(0);
            }
            assert_eq!(call_beside(lab, *parent, Hypercall::CellStop { cell, how: 2 }), Ok(0));
            lab.run_all();
            assert_eq!(lab.kernel.inspect(*child).map(|(state, ..)| state), Ok(RunState::Halted));
            for refused in [Hypercall::CellStop { cell, how: 1 }, Hypercall::CellStop { cell, how: 2 }, Hypercall::CellRun { cell }] {
                assert_eq!(call(lab, *parent, refused), Err(Refusal::WrongState), "{refused:?}");
            }
            // Events wait until it is resumed.
            let raise = Hypercall::CellRaise { cell, event: Event::Interrupt as u64, value: 0 };
            assert_eq!(call(lab, *parent, raise), Ok(0));
            assert_eq!(call_beside(lab, *parent, Hypercall::CellResume { cell, how: resume::CONTINUE }), Ok(0));
            assert_eq!(call_beside(lab, *parent, Hypercall::CellResume { cell, how: 0 }), Err(Refusal::WrongState));
            assert_eq!(
                call_beside(lab, *parent, Hypercall::StateRead { cell, kind: 1, address: BYTES, bytes: 8 }),
                Err(Refusal::WrongState)
            );
        }
        assert_eq!(call_beside(lab, *parent, Hypercall::CellStop { cell, how: 2 }), Ok(0));
        family.close();
    }
}

#[test]
fn a_child_that_waits_is_halted_at_once() {
    for mut lab in Lab::both() {
        let free = lab.kernel.free();
        let root = template(&lab);
        let parent = start(&mut lab, root, QUOTA, 1);
        let (name, child) = start_child(&mut lab, parent, PageCount(300), 0).expect("room");
        let cell = name.bits();
        assert_eq!(call(&mut lab, parent, Hypercall::CellStop { cell, how: 2 }), Ok(0));
        assert_eq!(lab.kernel.inspect(child).map(|(state, ..)| state), Ok(RunState::Halted));
        // An event does not wake it.
        let raise = Hypercall::CellRaise { cell, event: Event::Interrupt as u64, value: 0 };
        assert_eq!(call(&mut lab, parent, raise), Ok(0));
        assert_eq!(lab.kernel.inspect(child).map(|(state, ..)| state), Ok(RunState::Halted));
        assert_eq!(call(&mut lab, parent, Hypercall::CellResume { cell, how: resume::CONTINUE }), Ok(0));
        assert!(waits(&lab, child));
        assert_eq!(call(&mut lab, parent, Hypercall::CellStop { cell, how: 2 }), Ok(0));
        assert_eq!(call(&mut lab, parent, Hypercall::CellEnd { cell }), Ok(0));
        assert_eq!(call(&mut lab, parent, Hypercall::CellResume { cell, how: 0 }), Err(Refusal::NoSuchHolding));
        close(&mut lab, &[parent, root], free);
    }
}

/// Arbitrary state either is refused or harms the child alone.
#[test]
fn arbitrary_state_harms_only_the_child() {
    for seed in seeds(2, 8, 400) {
        for lab in Lab::both() {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut family = Family::new(lab, mask::ALL, |asm| {
                exit(asm.int3(), 7);
            });
            assert_eq!(family.run(), Some(ChildState::Halted));
            let context = family.read::<CONTEXT_WORDS>(state::CONTEXT);
            for _ in 0..20 {
                let mut words = context;
                for _ in 0..random.u8(1..4) {
                    words[random.usize(0..CONTEXT_WORDS)] = random.u64(..) >> random.u32(0..64);
                }
                let written = family.write(state::CONTEXT, &words);
                assert!(matches!(written, Ok(0) | Err(Refusal::BadArgument)), "{written:?} for {words:x?}");
                let registers: Vec<u64> = (0..Registers::WORDS).map(|_| random.u64(..)).collect();
                if random.bool() {
                    let written = family.write(state::PROGRAM, &registers);
                    assert!(matches!(written, Ok(0) | Err(Refusal::BadArgument)), "{written:?} for {registers:x?}");
                }
                let vector: Vec<u64> = (0..64).map(|_| random.u64(..)).collect();
                assert_eq!(family.write(state::VECTOR, &vector), Err(Refusal::BadArgument), "it is too short");
            }
            // With any state it ends or halts again.
            for _ in 0..3 {
                let how = random.u64(0..3);
                let cell = family.name.bits();
                let _ = call_beside(&mut family.lab, family.parent, Hypercall::CellResume { cell, how });
                for _ in 0..10 {
                    family.lab.turn(0);
                }
            }
            let cell = family.name.bits();
            let _ = call_beside(&mut family.lab, family.parent, Hypercall::CellEnd { cell });
            assert!(waits(&family.lab, family.parent));
            family.close();
        }
    }
}
