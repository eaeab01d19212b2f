// SPDX-License-Identifier: MIT OR Apache-2.0
//! The operator makes templates of running cells: it asks them, and freezes by force those that do not respond.

use pando_abi::layout::VIRTUAL_REGISTERS;
use pando_abi::memory::CURRENT_SPACE;
use pando_abi::virtual_registers::{Control, offset};
use pando_abi::{Event, EventSet, Hypercall, MapFlags, Permissions};
use pando_kernel::RunState;
use pando_kernel::sched::Gatekeeper;
use pando_kernel::{CellId, Config, CpuLimit, End, OperatorError};
use pando_machine::PageCount;
use pando_testing::asm::Register::{R12, R13, R14, Rax, Rbx, Rdi, Rsi};
use pando_testing::asm::{Asm, Condition};
use pando_testing::lab::{DATA, Lab, QUOTA};
use pando_testing::virtual_registers::{application, control, exit, set_control, with_handlers};
use std::ops::ControlFlow;
use std::time::Duration;

/// A flag at which a cell exits.
const FLAG: u64 = DATA;
/// Pages that it writes in turn.
const PAGES: u64 = DATA + 0x1000;
/// Pages that it maps and unmaps.
const CHURN: u64 = 0x4000_0000;
/// A value that it keeps in a vector register.
const KEPT: u64 = 0x0123_4567_89ab_cdef;

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

/// A cell that counts until its flag is set. It writes each count to the next of some pages, runs `between`, and reads the page
/// again. Exits with status 0 if the pages, the registers and a vector register have kept their values.
fn counter(lab: &Lab, between: impl FnOnce(&mut Asm)) -> CellId {
    lab.launch(|asm| {
        let (bad, good) = (asm.label(), asm.label());
        asm.mov_imm(Rax, KEPT).set_xmm0().mov_imm(R12, 0);
        let start = asm.here();
        // The next of 16 pages.
        asm.inc(R12).mov_imm(R13, 15).and(R13, R12).mov_imm(R14, PAGES);
        for _ in 0..12 {
            asm.add(R13, R13);
        }
        asm.add(R14, R13).store(R14, 0, R12).load(Rax, R14, 0).cmp(Rax, R12).jump_if(Condition::NotZero, bad);
        between(asm);
        asm.load(Rax, R14, 0).cmp(Rax, R12).jump_if(Condition::NotZero, bad);
        asm.mov_imm(Rax, KEPT).mov(R13, Rax).get_xmm0().cmp(Rax, R13).jump_if(Condition::NotZero, bad);
        asm.mov_imm(Rbx, FLAG).load(Rax, Rbx, 0).test(Rax, Rax).jump_if(Condition::NotZero, good).jmp(start);
        asm.bind(bad).call_kernel(exit(1)).bind(good).call_kernel(exit(0));
    })
}

/// The message of a call that failed.
fn message(failed: &Result<(), OperatorError>) -> String {
    failed.as_ref().map_or_else(ToString::to_string, |()| "it did not fail".into())
}

/// Freezes a cell by force, and checks that two clones exit with status 0, one after the other.
fn stop(lab: &mut Lab, id: CellId) {
    lab.kernel.force_freeze(id).expect("it was started");
    while !lab.kernel.wait_frozen_for(id, Duration::ZERO).expect("it does not end") {
        assert!(lab.turn(0), "it is never stopped");
    }
    assert_eq!(lab.kernel.is_forced(id), Ok(true));
    for _ in 0..2 {
        let clone = lab.kernel.clone_cell(id, QUOTA).expect("a template can be cloned");
        lab.kernel.write(clone, FLAG, &[1]).expect("it does not run");
        lab.kernel.start(clone).expect("it was not started before");
        assert_eq!(lab.finish(clone).end, End::Exited { status: 0 });
    }
}

#[test]
fn a_cell_is_stopped_wherever_it_stands_and_its_clones_go_on() {
    for mut lab in Lab::both() {
        let before = lab.kernel.free();
        // Another cell, so that quanta end.
        let neighbour = counter(&lab, |_| ());
        let flags = MapFlags { eager: true, ..MapFlags::lazy(Permissions::READ_WRITE) }.bits();
        for turns in 0..8 {
            // It faults, and is preempted between the steps of calls; each clone writes pages of the template.
            let id = counter(&lab, |asm| {
                asm.call_kernel(Hypercall::Map { space: CURRENT_SPACE, address: CHURN, pages: 600, flags });
                asm.mov_imm(Rbx, CHURN + 599 * 4096).store(Rbx, 0, R12);
                asm.call_kernel(Hypercall::Unmap { space: CURRENT_SPACE, address: CHURN, pages: 600 });
            });
            (0..turns).for_each(|_| _ = lab.turn(0));
            stop(&mut lab, id);
            lab.kernel.end(id, End::Killed).expect("it lives");
            lab.kernel.collect(id);
        }
        lab.kernel.end(neighbour, End::Killed).expect("it lives");
        lab.kernel.collect(neighbour);
        lab.kernel.free_unused_frames();
        assert_eq!(lab.kernel.free(), before);
    }
}

#[test]
fn a_cell_that_waits_is_stopped_at_once() {
    let idle = |asm: &mut Asm| {
        // Idling discards the vector registers.
        asm.call_kernel(Hypercall::Idle { deadline: u64::MAX }).mov_imm(Rax, KEPT).set_xmm0();
    };
    for mut lab in Lab::both() {
        let id = counter(&lab, idle);
        lab.run_all();
        lab.kernel.force_freeze(id).expect("it was started");
        assert_eq!(lab.kernel.inspect(id).map(|(state, ..)| state), Ok(RunState::Frozen));
        // A second freeze has no effect.
        stop(&mut lab, id);
        let refused = format!("cannot start cell {id}: it is frozen; use a cell that was not started, such as a new clone");
        assert_eq!(message(&lab.kernel.start(id)), refused);
    }
    for mut lab in Lab::each(PageCount(1 << 14), || Config { gatekeeper: Box::new(Closed), ..Config::default() }) {
        let id = counter(&lab, |_| ());
        lab.run_all();
        lab.kernel.force_freeze(id).expect("it waits to be let in");
        assert_eq!(lab.kernel.wait_frozen_for(id, Duration::ZERO), Ok(true));
    }
    for mut lab in Lab::both() {
        let id = counter(&lab, |_| ());
        lab.kernel.set_cpu_limit(id, CpuLimit::new(0.05).expect("a part")).expect("it lives");
        while !matches!(lab.kernel.inspect(id).expect("it lives").0, RunState::Throttled { .. }) {
            lab.turn(0);
        }
        stop(&mut lab, id);
    }
}

#[test]
fn a_wait_for_a_cell_that_ignores_the_request_has_a_limit() {
    for mut lab in Lab::both() {
        let spin = |asm: &mut Asm| {
            let again = asm.here();
            asm.jmp(again);
        };
        let id = lab.launch(spin);
        // Inside its libOS for ever.
        lab.kernel.request_freeze(id).expect("it lives");
        (0..5).for_each(|_| _ = lab.turn(0));
        assert_eq!(lab.kernel.wait_frozen_for(id, Duration::from_millis(1)), Ok(false));
        lab.kernel.force_freeze(id).expect("it was started");
        lab.run_all();
        assert_eq!((lab.kernel.wait_frozen_for(id, Duration::ZERO), lab.kernel.is_forced(id)), (Ok(true), Ok(true)));
        // Its clones do not respond either, were not asked, and can be frozen by force as well.
        let clone = lab.kernel.clone_cell(id, QUOTA).expect("a template can be cloned");
        assert_eq!(control(&lab, clone).pending & 1 << Event::Freeze as u64, 0);
        assert_eq!(message(&lab.kernel.force_freeze(clone)), format!("cannot freeze cell {clone}: it is not started; start it first"));
        lab.kernel.start(clone).expect("it was not started before");
        lab.turn(0);
        lab.kernel.force_freeze(clone).expect("it was started");
        lab.run_all();
        assert_eq!(lab.kernel.wait_frozen(clone), Ok(()));
        // If the cell ends instead, the error contains its end.
        let ending = lab.launch(|asm| _ = asm.call_kernel(exit(3)));
        lab.kernel.request_freeze(ending).expect("it lives");
        lab.run_all();
        assert_eq!(lab.kernel.wait_frozen(ending), Err(OperatorError::Ended { cell: ending, end: End::Exited { status: 3 } }));
        assert_eq!(lab.kernel.force_freeze(ending), Err(OperatorError::Ended { cell: ending, end: End::Exited { status: 3 } }));
    }
}

/// A cell at level 0 that loops, and freezes at any event; its clones exit with the events that are pending after that.
fn obedient(lab: &Lab) -> CellId {
    let assembled = |build: fn(&mut Asm)| {
        let mut asm = Asm::new();
        build(&mut asm);
        asm.finish()
    };
    let spin = assembled(|asm| {
        let again = asm.here();
        asm.jmp(again);
    });
    let freeze = assembled(|asm| {
        asm.mov_imm(Rbx, VIRTUAL_REGISTERS).store_imm(Rbx, 0, 0).store_imm(Rbx, 4, 0).call_kernel(Hypercall::Freeze {});
        asm.mov_imm(Rbx, VIRTUAL_REGISTERS).load(Rdi, Rbx, 0).mov_imm(Rsi, 0).mov_imm(Rax, 0).hypercall();
    });
    let id = lab.cell(&with_handlers(&spin, &[], &freeze));
    set_control(lab, id, &application());
    lab.kernel.start(id).expect("it was not started before");
    id
}

#[test]
fn a_cell_that_accepts_the_request_freezes_and_its_clones_have_no_request() {
    let generation = 1 << Event::Generation as u64;
    for mut lab in Lab::both() {
        let id = obedient(&lab);
        lab.turn(0);
        lab.kernel.request_freeze(id).expect("it lives");
        // Asked twice, and once more after it has frozen.
        lab.kernel.request_freeze(id).expect("it lives");
        lab.run_all();
        assert_eq!((lab.kernel.wait_frozen(id), lab.kernel.is_forced(id)), (Ok(()), Ok(false)));
        lab.kernel.force_freeze(id).expect("it lives");
        assert_eq!(lab.kernel.is_forced(id), Ok(false));
        lab.kernel.request_freeze(id).expect("it lives");
        let clone = lab.kernel.clone_cell(id, QUOTA).expect("a template can be cloned");
        lab.kernel.start(clone).expect("it was not started before");
        assert_eq!(lab.finish(clone).end, End::Exited { status: generation });
        // A cell that receives the request inside its libOS, and freezes for another reason before it handles the request.
        let id = obedient(&lab);
        lab.kernel.raise(id, Event::Terminate);
        lab.kernel.raise(id, Event::Freeze);
        lab.run_all();
        let clone = lab.kernel.clone_cell(id, QUOTA).expect("a template can be cloned");
        let Control { pending, .. } = control(&lab, clone);
        assert_eq!(pending & EventSet::REQUESTS.0, 0);
    }
}

#[test]
fn requests_to_a_cell_do_not_apply_to_its_clones() {
    for mut lab in Lab::both() {
        // Inside its libOS for ever, so that it handles no events; some of them are shown already.
        let spin = |asm: &mut Asm| {
            let again = asm.here();
            asm.jmp(again);
        };
        let id = lab.launch(spin);
        let wishes = [Event::Terminate, Event::Interrupt, Event::Freeze, Event::Control];
        wishes.into_iter().for_each(|event| lab.kernel.raise(id, event));
        lab.turn(0);
        lab.kernel.force_freeze(id).expect("it was started");
        wishes.into_iter().for_each(|event| lab.kernel.raise(id, event));
        lab.run_all();
        assert_eq!(lab.kernel.wait_frozen_for(id, Duration::ZERO), Ok(true));
        let clone = lab.kernel.clone_cell(id, QUOTA).expect("a template can be cloned");
        lab.kernel.start(clone).expect("it was not started before");
        lab.turn(0);
        lab.kernel.force_freeze(clone).expect("it was started");
        lab.run_all();
        assert_eq!(EventSet(control(&lab, clone).pending), EventSet::NONE.with(Event::Generation));
    }
}

#[test]
fn requests_to_an_idle_cell_do_not_apply_to_its_clones() {
    let wishes = [Event::Terminate, Event::Interrupt, Event::Freeze, Event::Control, Event::Debug];
    for mut lab in Lab::both() {
        // It wakes once, handles no events, and idles again.
        let id = lab.launch(|asm| {
            asm.mov_imm(Rbx, VIRTUAL_REGISTERS).mov_imm(Rax, EventSet::REQUESTS.0).store(Rbx, 8, Rax);
            let again = asm.here();
            asm.call_kernel(Hypercall::Idle { deadline: u64::MAX }).mov_imm(Rbx, VIRTUAL_REGISTERS).mov_imm(Rax, u64::MAX);
            asm.store(Rbx, 8, Rax).jmp(again);
        });
        lab.run_all();
        wishes.into_iter().for_each(|event| lab.kernel.raise(id, event));
        lab.kernel.raise(id, Event::WindowSize);
        lab.run_all();
        let shown = EventSet::REQUESTS.with(Event::WindowSize);
        assert_eq!(EventSet(control(&lab, id).pending), shown, "it has been shown them");
        wishes.into_iter().for_each(|event| lab.kernel.raise(id, event));
        let clone = lab.kernel.clone_cell(id, QUOTA).expect("one that idles can be cloned");
        lab.kernel.start(clone).expect("it was not started before");
        lab.turn(0);
        assert_eq!(EventSet(control(&lab, clone).pending), EventSet::NONE.with(Event::WindowSize).with(Event::Generation));
        assert_eq!(EventSet(control(&lab, id).pending), shown, "its source keeps them");
    }
}

#[test]
fn a_template_that_was_stopped_says_so_for_ever() {
    for mut lab in Lab::both() {
        let forced = obedient(&lab);
        lab.turn(0);
        lab.kernel.force_freeze(forced).expect("it was started");
        lab.run_all();
        lab.kernel.wait_frozen(forced).expect("it was stopped");
        // A clone of it that freezes by itself is marked, too.
        let clone = lab.kernel.clone_cell(forced, QUOTA).expect("a template can be cloned");
        lab.kernel.start(clone).expect("it was not started before");
        lab.run_all();
        lab.kernel.wait_frozen(clone).expect("it hears that it is a clone");
        let image = lab.kernel.export(clone, &mut |_, _| ControlFlow::Continue(())).expect("it is a template");
        assert_eq!((image.is_forced(), lab.kernel.is_forced(clone)), (true, Ok(true)));
        let own = obedient(&lab);
        lab.kernel.request_freeze(own).expect("it lives");
        lab.run_all();
        let image = lab.kernel.export(own, &mut |_, _| ControlFlow::Continue(())).expect("it is a template");
        assert!(!image.is_forced());
    }
}

#[test]
fn a_clone_that_is_stopped_before_it_runs_stands_where_its_source_stood() {
    for mut lab in Lab::both() {
        let freeze = |lab: &mut Lab, id: CellId| {
            lab.kernel.force_freeze(id).expect("it was started");
            lab.run_all();
            assert_eq!(lab.kernel.wait_frozen_for(id, Duration::ZERO), Ok(true));
            if let Some(sim) = &lab.sim {
                sim.advance_to(lab.kernel.now() + Duration::from_secs(1));
            }
            let clone = lab.kernel.clone_cell(id, QUOTA).expect("a template can be cloned");
            lab.kernel.start(clone).expect("it was not started before");
            clone
        };
        let stopped = |lab: &Lab, id: CellId| {
            let mut word = [0; 8];
            lab.kernel.read(id, VIRTUAL_REGISTERS + offset::SOURCE_FROZEN_AT as u64, &mut word).expect("it is a template");
            u64::from_le_bytes(word)
        };
        let source = counter(&lab, |_| ());
        lab.turn(0);
        // The first clone has not run before it is frozen; the next has.
        let first = freeze(&mut lab, source);
        let second = freeze(&mut lab, first);
        lab.turn(0);
        let third = freeze(&mut lab, second);
        let last = freeze(&mut lab, third);
        lab.kernel.end(last, End::Killed).expect("it lives");
        let shown = [first, second, third].map(|id| stopped(&lab, id));
        assert!(shown[0] == shown[1] && shown[1] < shown[2] && shown[0] > 0, "{shown:?}");
    }
}

/// A cell that after each event yields its turn, and then freezes if the request is still valid. It records the result, and the
/// number of attempts.
fn polite(lab: &Lab, unaware: u64) -> CellId {
    lab.launch(|asm| {
        let again = asm.here();
        asm.call_kernel(Hypercall::Idle { deadline: u64::MAX }).mov_imm(Rbx, VIRTUAL_REGISTERS).store_imm(Rbx, 0, 0);
        asm.call_kernel(Hypercall::Relinquish {}).call_kernel(Hypercall::FreezeIfAsked { unaware }).mov_imm(Rbx, DATA).store(Rbx, 0, Rax);
        asm.load(Rax, Rbx, 8).inc(Rax).store(Rbx, 8, Rax).jmp(again);
    })
}

/// The last generation that the cell received, and how often it received one.
fn told(lab: &Lab, id: CellId) -> [u64; 2] {
    [0, 8].map(|offset| {
        let mut word = [0; 8];
        lab.kernel.read(id, DATA + offset, &mut word).expect("it waits");
        u64::from_le_bytes(word)
    })
}

#[test]
fn a_wish_that_is_withdrawn_is_not_granted() {
    for mut lab in Lab::both() {
        let id = polite(&lab, 0);
        lab.run_all();
        // The event was shown already.
        lab.kernel.request_freeze(id).expect("it lives");
        lab.turn(0);
        assert_eq!(lab.kernel.withdraw_freeze(id), Ok(true));
        lab.run_all();
        assert_eq!(told(&lab, id), [0, 1]);
        // The event was not shown yet.
        lab.kernel.request_freeze(id).expect("it lives");
        assert_eq!(lab.kernel.withdraw_freeze(id), Ok(true));
        lab.run_all();
        assert_eq!(told(&lab, id), [0, 2]);
        // The event without a request, then a request.
        lab.kernel.raise(id, Event::Freeze);
        lab.run_all();
        assert_eq!((told(&lab, id), lab.kernel.wait_frozen_for(id, Duration::ZERO)), ([0, 3], Ok(false)));
        lab.kernel.request_freeze(id).expect("it lives");
        lab.run_all();
        assert_eq!((lab.kernel.withdraw_freeze(id), lab.kernel.wait_frozen(id), lab.kernel.is_forced(id)), (Ok(false), Ok(()), Ok(false)));
        // The request was to its source.
        let clone = lab.kernel.clone_cell(id, QUOTA).expect("a template can be cloned");
        lab.kernel.start(clone).expect("it was not started before");
        lab.run_all();
        assert_eq!((told(&lab, clone), lab.kernel.wait_frozen_for(clone, Duration::ZERO)), ([1, 5], Ok(false)));
        lab.kernel.end(clone, End::Killed).expect("it lives");
        assert_eq!(lab.kernel.withdraw_freeze(clone), Err(OperatorError::Ended { cell: clone, end: End::Killed }));
    }
}

#[test]
fn a_cell_says_of_its_clones_that_programs_in_them_do_not_notice() {
    for mut lab in Lab::both() {
        for (unaware, forced) in [(0, false), (1, true)] {
            let id = polite(&lab, unaware);
            lab.kernel.request_freeze(id).expect("it lives");
            lab.run_all();
            assert_eq!((lab.kernel.wait_frozen(id), lab.kernel.is_forced(id)), (Ok(()), Ok(forced)));
            let clone = lab.kernel.clone_cell(id, QUOTA).expect("a template can be cloned");
            assert_eq!(lab.kernel.is_forced(clone), Ok(forced));
        }
        // Other values are refused, and the cell continues.
        let id = polite(&lab, 2);
        lab.kernel.request_freeze(id).expect("it lives");
        lab.run_all();
        assert_eq!((lab.kernel.wait_frozen_for(id, Duration::ZERO), told(&lab, id)[1]), (Ok(false), 1));
    }
}

#[test]
fn a_cell_that_is_not_to_be_stopped_any_more_goes_on() {
    for mut lab in Lab::both() {
        let id = counter(&lab, |_| ());
        lab.kernel.force_freeze(id).expect("it was started");
        assert_eq!(lab.kernel.withdraw_freeze(id), Ok(true));
        lab.turn(0);
        assert_eq!((lab.kernel.wait_frozen_for(id, Duration::ZERO), lab.kernel.is_forced(id)), (Ok(false), Ok(false)));
        stop(&mut lab, id);
    }
}
