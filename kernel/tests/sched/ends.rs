// SPDX-License-Identifier: MIT OR Apache-2.0
//! The operator ends cells in every state, and learns why cells ended.

use pando_abi::Hypercall;
use pando_kernel::RunState;
use pando_kernel::sched::Gatekeeper;
use pando_kernel::{CellConfig, CellId, Config, End, OperatorError, WrongState};
use pando_machine::PageCount;
use pando_testing::lab::{CODE, DATA, Lab, QUOTA};
use pando_testing::virtual_registers::exit;

/// A gatekeeper that admits no cell.
struct Closed;

impl Gatekeeper for Closed {
    fn enqueue(&mut self, _: CellId) {}

    fn admit(&mut self, _: PageCount) -> Option<CellId> {
        None
    }

    fn awaits_memory(&self) -> bool {
        false
    }
}

fn spinning(lab: &Lab) -> CellId {
    lab.launch(|asm| {
        let again = asm.here();
        asm.jmp(again);
    })
}

/// Ends a cell in the state that `reach` produces, and checks that all its memory comes back.
fn check_end(labs: Vec<Lab>, reach: impl Fn(&mut Lab) -> CellId, wanted: impl Fn(RunState) -> bool) {
    for mut lab in labs {
        let before = lab.kernel.free();
        let id = reach(&mut lab);
        let (state, ..) = lab.kernel.inspect(id).expect("it lives");
        assert!(wanted(state), "{state:?}");
        lab.kernel.end(id, End::Killed).expect("it lives");
        assert_eq!(lab.kernel.inspect(id).map(drop), Err(OperatorError::Ended { cell: id, end: End::Killed }));
        assert_eq!(lab.kernel.end(id, End::Killed), Err(OperatorError::Ended { cell: id, end: End::Killed }));
        assert_eq!(lab.kernel.start(id), Err(OperatorError::Ended { cell: id, end: End::Killed }));
        assert_eq!(lab.kernel.read(id, CODE, &mut [0]), Err(OperatorError::Ended { cell: id, end: End::Killed }));
        assert_eq!(lab.kernel.wait(id).expect("it has ended").end, End::Killed);
        // Its outcome was collected: the identifier is stale.
        assert_eq!(lab.kernel.wait(id).map(drop), Err(OperatorError::NoSuchCell(id)));
        assert_eq!(lab.kernel.read(id, CODE, &mut [0]), Err(OperatorError::NoSuchCell(id)));
        assert_eq!(lab.kernel.wait_frozen(id), Err(OperatorError::NoSuchCell(id)));
        assert!(lab.kernel.collect(id).is_none());
        lab.run_all();
        lab.kernel.free_unused_frames();
        assert_eq!((lab.kernel.free(), lab.kernel.cells()), (before, 0));
    }
}

#[test]
fn a_cell_that_is_being_built_can_be_ended() {
    check_end(Lab::both(), |lab| lab.cell(&[0x90; 8192]), |state| state == RunState::New);
}

#[test]
fn a_cell_that_waits_for_admission_can_be_ended() {
    let config = || Config { gatekeeper: Box::new(Closed), ..Config::default() };
    let reach = |lab: &mut Lab| {
        let id = spinning(lab);
        lab.run_all();
        id
    };
    check_end(Lab::each(PageCount(1 << 14), config), reach, |state| state == RunState::AwaitingAdmission);
}

#[test]
fn a_cell_that_waits_for_its_turn_can_be_ended() {
    let reach = |lab: &mut Lab| {
        let id = spinning(lab);
        lab.turn(0);
        id
    };
    check_end(Lab::both(), reach, |state| state == RunState::Ready);
}

#[test]
fn a_cell_that_idles_can_be_ended() {
    for deadline in [u64::MAX, u64::MAX - 1] {
        let reach = |lab: &mut Lab| {
            let id = lab.launch(|asm| {
                asm.call_kernel(Hypercall::Idle { deadline }).call_kernel(exit(0));
            });
            lab.turn(0);
            id
        };
        check_end(Lab::both(), reach, |state| matches!(state, RunState::Idle { .. }));
    }
}

#[test]
fn a_template_can_be_ended_while_clones_of_it_live() {
    for mut lab in Lab::both() {
        let before = lab.kernel.free();
        let template = lab.launch(|asm| {
            asm.mov_imm(pando_testing::asm::Register::Rbx, DATA).store_imm(pando_testing::asm::Register::Rbx, 0, 5);
            asm.call_kernel(Hypercall::Freeze {}).mov_imm(pando_testing::asm::Register::Rbx, DATA);
            asm.load(pando_testing::asm::Register::Rdi, pando_testing::asm::Register::Rbx, 0);
            asm.mov_imm(pando_testing::asm::Register::Rsi, 0).mov_imm(pando_testing::asm::Register::Rax, 0).hypercall();
        });
        lab.run_all();
        let clones: Vec<_> = (0..3).map(|_| lab.kernel.clone_cell(template, QUOTA).expect("a template can be cloned")).collect();
        lab.kernel.end(template, End::Killed).expect("it lives");
        lab.kernel.free_unused_frames();
        for clone in clones {
            lab.kernel.start(clone).expect("it was not started before");
            assert_eq!(lab.finish(clone).end, End::Exited { status: 5 });
        }
        lab.kernel.collect(template);
        lab.kernel.free_unused_frames();
        assert_eq!(lab.kernel.free(), before);
    }
}

#[test]
fn an_operation_is_refused_in_the_wrong_run_state() {
    for mut lab in Lab::both() {
        let ready = spinning(&lab);
        lab.turn(0);
        let busy = |error: &OperatorError| matches!(error, OperatorError::WrongState(WrongState { state: RunState::Ready, .. }));
        assert!(lab.kernel.start(ready).is_err_and(|error| busy(&error)));
        assert!(lab.kernel.clone_cell(ready, QUOTA).is_err_and(|error| busy(&error)));
        assert!(lab.kernel.read(ready, DATA, &mut [0]).is_err_and(|error| busy(&error)));
        assert!(lab.kernel.write(ready, DATA, &[0]).is_err_and(|error| busy(&error)));
        assert!(lab.kernel.registers(ready).is_err_and(|error| busy(&error)));
        lab.kernel.end(ready, End::Killed).expect("it lives");
        let template = lab.launch(|asm| {
            asm.call_kernel(Hypercall::Freeze {});
        });
        lab.run_all();
        let frozen = |error: &OperatorError| matches!(error, OperatorError::WrongState(WrongState { state: RunState::Frozen, .. }));
        assert!(lab.kernel.start(template).is_err_and(|error| frozen(&error)));
        assert_eq!(lab.kernel.wait_frozen(template), Ok(()));
        let small = lab.kernel.create(CellConfig { quota: PageCount(10), host_name: String::new() });
        assert_eq!(small, Err(OperatorError::QuotaTooSmall(PageCount(10))));
        assert_eq!(lab.kernel.clone_cell(template, PageCount(1)), Err(OperatorError::QuotaTooSmall(PageCount(1))));
    }
}

#[test]
fn a_cell_that_ends_instead_of_freezing_says_why() {
    for mut lab in Lab::both() {
        let id = lab.launch(|asm| {
            asm.call_kernel(exit(9));
        });
        lab.run_all();
        assert_eq!(lab.kernel.wait_frozen(id), Err(OperatorError::Ended { cell: id, end: End::Exited { status: 9 } }));
        assert_eq!(lab.kernel.collect(id).map(|outcome| outcome.end), Some(End::Exited { status: 9 }));
    }
}

#[test]
fn a_signal_that_ended_the_program_is_reported_with_its_address() {
    for mut lab in Lab::both() {
        let id = lab.launch(|asm| {
            asm.call_kernel(Hypercall::Exit { status: 1, signal: 11, address: 0x1234, instruction: 0x40_1000 });
        });
        let end = lab.finish(id).end;
        assert_eq!(end, End::Signalled { signal: 11, address: 0x1234, instruction: 0x40_1000 });
        assert_eq!(end.to_string(), "ended by SIGSEGV (segmentation fault): touched address 0x1234 (instruction at 0x401000)");
    }
}

#[test]
fn the_report_contains_the_counts_of_the_libos() {
    for mut lab in Lab::both() {
        use pando_abi::layout::VIRTUAL_REGISTERS;
        use pando_abi::virtual_registers::{MissingCall, offset};
        use pando_testing::asm::Register::Rbx;
        let id = lab.launch(|asm| {
            asm.mov_imm(Rbx, VIRTUAL_REGISTERS).store_imm(Rbx, offset::REPORT as i32, 100).store_imm(Rbx, offset::REPORT as i32 + 8, 3);
            asm.store_imm(Rbx, offset::MISSING as i32 + 8, 321).store_imm(Rbx, offset::MISSING as i32 + 12, 3).call_kernel(exit(0));
        });
        let outcome = lab.finish(id);
        assert_eq!(
            (outcome.report.calls, outcome.report.missing_calls, outcome.report.missing[1]),
            (100, 3, MissingCall { number: 321, count: 3 })
        );
        assert_eq!(outcome.counters.hypercalls, 1);
        assert!(outcome.usage.peak >= outcome.usage.used && outcome.usage.used.0 > 0);
    }
}
