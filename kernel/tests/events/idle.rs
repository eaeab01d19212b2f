// SPDX-License-Identifier: MIT OR Apache-2.0
//! Idling until an unmasked event or a deadline; no event is lost between reading the mask and the call.

use pando_abi::layout::VIRTUAL_REGISTERS;
use pando_abi::virtual_registers::{Control, offset};
use pando_abi::{Event, Hypercall};
use pando_kernel::RunState;
use pando_kernel::{CellId, End};
use pando_machine::Nanos;
use pando_testing::asm::Asm;
use pando_testing::asm::Register::{Rax, Rbx, Rdi, Rsi};
use pando_testing::lab::{Lab, is_kvm_available};
use pando_testing::virtual_registers::{application, control, exit, set_control};
use std::time::Duration;

const CONSOLE: u8 = 1 << Event::Console as u8;
const TERMINATE: u8 = 1 << Event::Terminate as u8;
const TIMER: u8 = 1 << Event::Timer as u8;

/// Control words of an idle libOS: its own code runs, and nothing is masked.
fn libos() -> Control {
    Control { level: 1, critical: 1, ..application() }
}

/// Idles until `deadline`, then exits with the result of idling.
fn idle_and_tell(asm: &mut Asm, deadline: u64) {
    asm.call_kernel(Hypercall::Idle { deadline }).mov(Rdi, Rax).mov_imm(Rsi, 0).mov_imm(Rax, 0).hypercall();
}

/// A started cell that idles until `deadline` and exits with the result.
fn idler(lab: &Lab, control: &Control, deadline: u64) -> CellId {
    let mut asm = Asm::new();
    idle_and_tell(&mut asm, deadline);
    let id = lab.cell(&asm.finish());
    set_control(lab, id, control);
    lab.kernel.start(id).expect("it was not started before");
    id
}

fn state(lab: &Lab, id: CellId) -> RunState {
    lab.kernel.inspect(id).expect("it lives").0
}

#[test]
fn an_event_ends_idling_and_is_its_result() {
    for mut lab in Lab::both() {
        let id = idler(&lab, &libos(), u64::MAX);
        lab.run_all();
        assert_eq!(state(&lab, id), RunState::Idle { until: Nanos::NEVER });
        lab.kernel.raise(id, Event::Console);
        lab.kernel.raise(id, Event::Terminate);
        assert_eq!(lab.finish(id).end, End::Exited { status: CONSOLE | TERMINATE });
    }
}

#[test]
fn a_masked_event_does_not_end_idling_but_is_reported_afterwards() {
    for mut lab in Lab::both() {
        let id = idler(&lab, &Control { mask: u64::from(CONSOLE), ..libos() }, u64::MAX);
        lab.run_all();
        lab.kernel.raise(id, Event::Console);
        lab.run_all();
        assert_eq!(state(&lab, id), RunState::Idle { until: Nanos::NEVER });
        lab.kernel.raise(id, Event::Terminate);
        assert_eq!(lab.finish(id).end, End::Exited { status: CONSOLE | TERMINATE });
    }
}

#[test]
fn idling_ends_at_its_deadline_with_nothing() {
    for mut lab in Lab::both() {
        let deadline = lab.kernel.now() + Duration::from_millis(4);
        let id = idler(&lab, &libos(), deadline.0);
        assert_eq!(lab.finish(id).end, End::Exited { status: 0 });
        assert!(lab.kernel.now() >= deadline);
    }
}

#[test]
fn a_deadline_that_is_past_gives_the_vcpu_back_at_once() {
    for mut lab in Lab::both() {
        for deadline in [0, 1, lab.kernel.now().0] {
            let id = idler(&lab, &libos(), deadline);
            assert_eq!(lab.finish(id).end, End::Exited { status: 0 });
        }
    }
}

/// If an event comes between the libOS's reading of the mask and its call, the call returns at once.
#[test]
fn no_event_is_lost_between_the_look_and_the_call() {
    for mut lab in Lab::both() {
        for already in [false, true] {
            let control = Control { pending: u64::from(already) * u64::from(CONSOLE), ..libos() };
            let id = idler(&lab, &control, u64::MAX);
            if !already {
                lab.kernel.raise(id, Event::Console);
            }
            assert_eq!(lab.finish(id).end, End::Exited { status: CONSOLE });
        }
    }
}

#[test]
fn the_timer_register_ends_idling_and_idling_says_so() {
    for mut lab in Lab::both() {
        let due = lab.kernel.now() + Duration::from_millis(4);
        let id = idler(&lab, &Control { timer: due.0, ..libos() }, u64::MAX);
        assert_eq!(lab.finish(id).end, End::Exited { status: TIMER });
        assert!(lab.kernel.now() >= due);
        // Due before the call.
        let id = idler(&lab, &Control { timer: 1, ..libos() }, u64::MAX);
        assert_eq!(lab.finish(id).end, End::Exited { status: TIMER });
    }
}

#[test]
fn a_masked_timer_does_not_end_idling() {
    for mut lab in Lab::both() {
        let timer = lab.kernel.now() + Duration::from_millis(1);
        // Long enough for the slowest machine to reach the call.
        let deadline = lab.kernel.now() + Duration::from_secs(1);
        let id = idler(&lab, &Control { timer: timer.0, mask: u64::from(TIMER), ..libos() }, deadline.0);
        lab.turn(0);
        assert_eq!(state(&lab, id), RunState::Idle { until: deadline });
        // The timer has expired meanwhile, and is pending.
        assert_eq!(lab.finish(id).end, End::Exited { status: TIMER });
    }
}

#[test]
fn a_cell_that_idles_outside_its_libos_gets_the_upcall_with_the_result_saved() {
    for mut lab in Lab::both() {
        let mut asm = Asm::new();
        asm.call_kernel(Hypercall::Idle { deadline: u64::MAX });
        let program = asm.finish();
        let mut asm = Asm::new();
        asm.call_kernel(Hypercall::Freeze {});
        let id = lab.cell(&pando_testing::virtual_registers::with_handlers(&program, &[], &asm.finish()));
        set_control(&lab, id, &application());
        lab.kernel.start(id).expect("it was not started before");
        lab.run_all();
        lab.kernel.raise(id, Event::Console);
        lab.run_all();
        let saved = pando_testing::virtual_registers::saved(&lab, id, 0);
        assert_eq!((saved.rax, saved.error), (u64::from(CONSOLE), u64::from(CONSOLE)));
        assert_eq!(control(&lab, id).level, 1);
    }
}

#[test]
fn a_clone_of_an_idle_cell_wakes_by_itself() {
    for mut lab in Lab::both() {
        let id = idler(&lab, &libos(), u64::MAX);
        lab.run_all();
        let clone = lab.kernel.clone_cell(id, pando_testing::lab::QUOTA).expect("an idle cell can be cloned");
        lab.kernel.start(clone).expect("it was not started before");
        assert_eq!(lab.finish(clone).end, End::Exited { status: 1 << Event::Generation as u8 });
        assert_eq!(state(&lab, id), RunState::Idle { until: Nanos::NEVER });
        lab.kernel.raise(id, Event::Console);
        assert_eq!(lab.finish(id).end, End::Exited { status: CONSOLE });
    }
}

/// Hundreds of events from another thread: the cell counts each wake-up, and misses none that it waits for.
#[test]
fn events_from_other_threads_reach_a_cell_that_idles_and_wakes() {
    const EVENTS: u64 = 500;
    if !is_kvm_available() {
        return;
    }
    let machine = pando_machine::kvm::Kvm::new(pando_machine::kvm::KvmConfig {
        arena: pando_machine::PageCount(1 << 14),
        vcpus: 1,

        omit: pando_machine::kvm::Omit::NOTHING,
    });
    let kernel = pando_kernel::Kernel::new(machine.expect("KVM is there"), pando_kernel::Config::default());
    let mut asm = Asm::new();
    // Exits when it is asked to terminate; acknowledges other events and idles again.
    asm.mov_imm(Rbx, VIRTUAL_REGISTERS);
    let again = asm.here();
    asm.store_imm(Rbx, offset::PENDING as i32, 0).call_kernel(Hypercall::Idle { deadline: u64::MAX });
    asm.mov_imm(Rbx, VIRTUAL_REGISTERS).cmp_imm(Rax, i32::from(CONSOLE)).jump_if(pando_testing::asm::Condition::Zero, again);
    asm.call_kernel(exit(5));
    let code = asm.finish();
    let id = build(&kernel, &code);
    kernel.start_vcpus().expect("vCPU threads start");
    kernel.start(id).expect("it was not started before");
    for _ in 0..EVENTS {
        kernel.raise(id, Event::Console);
        while kernel.inspect(id).expect("it lives").0 != (RunState::Idle { until: Nanos::NEVER }) {
            std::thread::yield_now();
        }
    }
    kernel.raise(id, Event::Terminate);
    assert_eq!(kernel.wait(id).expect("it ends").end, End::Exited { status: 5 });
}

/// A cell with `code` on a kernel of this test.
fn build(kernel: &pando_kernel::Kernel, code: &[u8]) -> CellId {
    use pando_abi::{MapFlags, Permissions, Registers};
    use pando_testing::lab::{CODE, QUOTA};
    let id = kernel.create(pando_kernel::CellConfig { quota: QUOTA, host_name: "test".into() }).expect("room for a cell");
    let flags = MapFlags::lazy(Permissions::READ_EXECUTE);
    kernel.map(id, CODE, pando_machine::PageCount(1), flags).expect("room for its code");
    kernel.write(id, CODE, code).expect("its code is mapped");
    kernel.set_registers(id, Registers { rip: CODE, ..Registers::default() }).expect("it is not running");
    id
}
