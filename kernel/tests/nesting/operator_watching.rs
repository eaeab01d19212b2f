// SPDX-License-Identifier: MIT OR Apache-2.0
//! The operator watches its own cells, by the verbs that a parent has for its children.

use crate::watching::exit;
use pando_abi::holding::ChildState;
use pando_abi::layout::VIRTUAL_REGISTERS;
use pando_abi::watch::{HaltReason, REASON_WORDS, mask, resume, state};
use pando_abi::{Hypercall, Refusal, Registers};
use pando_kernel::{CellId, End, OperatorError};
use pando_testing::asm::Asm;
use pando_testing::asm::Register::{R10, Rax, Rbx, Rdi, Rdx, Rsi};
use pando_testing::lab::{CODE, Lab};
use pando_testing::virtual_registers::{application, set_control, with_handlers};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// A cell of the operator that is watched for exceptions and reports.
struct WatchedProgram {
    lab: Lab,
    cell: CellId,
    halts: Arc<AtomicU32>,
    end: Arc<Mutex<Option<End>>>,
}

impl WatchedProgram {
    fn new(lab: Lab, assemble: impl Fn(&mut Asm)) -> WatchedProgram {
        let (mut code, mut handler, mut events) = (Asm::new(), Asm::new(), Asm::new());
        assemble(&mut code);
        exit(&mut handler, 9);
        exit(&mut events, 8);
        let cell = lab.cell(&with_handlers(&code.finish(), &handler.finish(), &events.finish()));
        set_control(&lab, cell, &pando_abi::virtual_registers::Control { mask: u64::MAX, ..application() });
        let program = WatchedProgram { lab, cell, halts: Arc::default(), end: Arc::default() };
        program.watch().expect("nobody watches it");
        program
    }

    fn watch(&self) -> Result<(), OperatorError> {
        let (halts, end) = (Arc::clone(&self.halts), Arc::clone(&self.end));
        let callback = Box::new(move |ended: Option<&End>| match ended {
            Some(ended) => *end.lock().expect("nobody panics") = Some(ended.clone()),
            None => _ = halts.fetch_add(1, Ordering::Relaxed),
        });
        self.lab.kernel.watch(self.cell, mask::EXCEPTIONS | mask::REPORTS, callback)
    }

    fn run(&mut self) -> ChildState {
        self.lab.run_all();
        self.lab.kernel.cell_state(self.cell)
    }

    fn start(&mut self) -> ChildState {
        self.lab.kernel.start(self.cell).expect("it was not started");
        self.run()
    }

    fn words<const N: usize>(&self, kind: u64) -> [u64; N] {
        let bytes = self.lab.kernel.read_state(self.cell, kind).expect("it is halted");
        std::array::from_fn(|index| u64::from_le_bytes(bytes[index * 8..][..8].try_into().expect("a word")))
    }

    fn ended(&self) -> Option<End> {
        self.end.lock().expect("nobody panics").clone()
    }
}

fn report(asm: &mut Asm) -> &mut Asm {
    asm.call_kernel(Hypercall::Report { kind: 1, first: 2, second: 3, third: 4 })
}

#[test]
fn the_operator_halts_its_cell_at_breakpoints_and_changes_its_state_and_memory() {
    for lab in Lab::both() {
        let mut program = WatchedProgram::new(lab, |asm| _ = exit(asm.mov_imm(Rbx, 5).int3().nop(), 7));
        assert_eq!(program.start(), ChildState::Halted);
        assert_eq!(program.halts.load(Ordering::Relaxed), 1);
        let cell = program.cell;
        let breakpoint = HaltReason::Exception { vector: 3, error: 0, address: 0 };
        assert_eq!(HaltReason::from_words(program.words::<REASON_WORDS>(state::REASON)), Some(breakpoint));
        let registers = Registers::from_words(program.words(state::PROGRAM));
        assert_eq!((registers.rbx, registers.rip), (5, CODE + 11));
        let mut code = [0; 2];
        assert_eq!(program.lab.kernel.read_space(cell, None, CODE + 10, &mut code), Ok(2));
        assert_eq!(code, [0xcc, 0x90]);
        // Another breakpoint, which the program's own byte replaces after it was hit.
        assert_eq!(program.lab.kernel.write_space(cell, None, CODE + 11, &[0xcc]), Ok(()));
        assert_eq!(program.lab.kernel.resume(cell, resume::CONTINUE), Ok(()));
        assert_eq!(program.run(), ChildState::Halted);
        assert_eq!(program.lab.kernel.write_space(cell, None, CODE + 11, &[0x90]), Ok(()));
        let back = Registers { rip: CODE + 11, ..Registers::from_words(program.words(state::PROGRAM)) };
        let bytes: Vec<u8> = back.to_words().into_iter().flat_map(u64::to_le_bytes).collect();
        assert_eq!(program.lab.kernel.write_state(cell, state::PROGRAM, &bytes), Ok(()));
        assert_eq!(program.lab.kernel.resume(cell, resume::CONTINUE), Ok(()));
        assert_eq!(program.run(), ChildState::Exited(7));
        assert_eq!(program.ended(), Some(End::Exited { status: 7 }));
    }
}

/// The rule: a cell has one watcher.
#[test]
fn a_second_watcher_is_refused() {
    for lab in Lab::both() {
        let mut program = WatchedProgram::new(lab, |asm| _ = exit(asm.int3(), 7));
        assert_eq!(program.watch(), Err(OperatorError::Watched(program.cell)));
        assert_eq!(program.start(), ChildState::Halted);
        program.lab.kernel.unwatch(program.cell);
        assert_eq!(program.run(), ChildState::Exited(7), "it goes on without a watcher");
    }
}

/// The rule: a cell without a watcher does not halt, because nobody would resume it.
#[test]
fn a_halt_is_forgotten_with_the_watcher() {
    for lab in Lab::both() {
        let mut program = WatchedProgram::new(lab, |asm| _ = exit(asm.int3(), 7));
        program.lab.kernel.start(program.cell).expect("it was not started");
        program.lab.kernel.halt(program.cell).expect("it was started");
        program.lab.kernel.unwatch(program.cell);
        assert_eq!(program.run(), ChildState::Exited(9), "its libOS gets the exception");
        assert_eq!((program.halts.load(Ordering::Relaxed), program.ended()), (0, None));
    }
}

/// The rule: only a halted cell is read and written, and not the pages whose content the kernel has checked.
#[test]
fn the_memory_of_a_cell_that_runs_and_pages_of_the_kernel_are_refused() {
    for lab in Lab::both() {
        let mut program = WatchedProgram::new(lab, |asm| _ = exit(asm.int3().nop(), 7));
        let cell = program.cell;
        let is_refused = |result: Result<usize, OperatorError>| matches!(result, Err(OperatorError::WrongState(_)));
        assert!(is_refused(program.lab.kernel.read_space(cell, None, CODE, &mut [0])));
        assert!(is_refused(program.lab.kernel.write_space(cell, None, CODE, &[0]).map(|()| 0)));
        assert!(is_refused(program.lab.kernel.read_state(cell, state::PROGRAM).map(|bytes| bytes.len())));
        assert_eq!(program.start(), ChildState::Halted);
        assert_eq!(program.lab.kernel.write_space(cell, None, VIRTUAL_REGISTERS, &[0]), Err(OperatorError::Refused(Refusal::ReadOnly)));
        assert_eq!(program.lab.kernel.read_space(cell, Some(pando_abi::SpaceIndex(99)), CODE, &mut [0]), Ok(0), "there is no such space");
        assert_eq!(program.lab.kernel.read_space(cell, None, u64::MAX, &mut [0; 2]), Ok(0));
        let invalid = program.lab.kernel.write_state(cell, state::CONTEXT, &[0xff; 8]);
        assert_eq!(invalid, Err(OperatorError::Refused(Refusal::BadArgument)));
        assert_eq!(program.lab.kernel.resume(cell, resume::CONTINUE), Ok(()));
        assert_eq!(program.run(), ChildState::Exited(7));
    }
}

/// The rule: a libOS learns from a refused report that nobody watches.
#[test]
fn a_report_halts_a_watched_cell_and_is_refused_otherwise() {
    for lab in Lab::both() {
        let mut program = WatchedProgram::new(lab, |asm| {
            report(asm);
            report(asm);
            // The status is the refusal, negated.
            let (number, _) = Hypercall::Exit { status: 0, signal: 0, address: 0, instruction: 0 }.encode();
            asm.mov_imm(Rdi, 0).sub(Rdi, Rax).mov_imm(Rsi, 0).mov_imm(Rdx, 0).mov_imm(R10, 0).mov_imm(Rax, number).hypercall();
        });
        assert_eq!(program.start(), ChildState::Halted);
        assert_eq!(HaltReason::from_words(program.words::<REASON_WORDS>(state::REASON)), Some(HaltReason::Report([1, 2, 3, 4])));
        program.lab.kernel.unwatch(program.cell);
        assert_eq!(program.run(), ChildState::Exited(Refusal::WrongState as u8));
    }
}
