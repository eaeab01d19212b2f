// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sleep: a cell whose memory left for swap space goes on as if it had only waited.

use crate::cell::template_that_waits;
use pando_abi::Event;
use pando_kernel::{CellId, Config, End, OperatorError, RunState, SleepOutcome, SwapUsage};
use pando_machine::{Nanos, PageCount};
use pando_testing::lab::{Lab, QUOTA};
use pando_testing::swap::{SwapFault, TestSwap};
use std::sync::{Arc, mpsc};

const ARENA: PageCount = PageCount(1 << 16);

/// Labs of both kinds whose cells can sleep.
fn labs() -> Vec<(Lab, Arc<TestSwap>)> {
    let swaps = std::cell::RefCell::new(Vec::new());
    let labs = Lab::each(ARENA, || {
        let swap = Arc::new(TestSwap::default());
        swaps.borrow_mut().push(Arc::clone(&swap));
        Config { swap: Some(swap), ..Config::default() }
    });
    labs.into_iter().zip(swaps.into_inner()).collect()
}

/// A clone of the template, which waits.
fn waiting_clone(lab: &mut Lab, template: CellId) -> CellId {
    let clone = lab.kernel.clone_cell(template, QUOTA).expect("a template can be cloned");
    lab.kernel.start(clone).expect("it was not started before");
    lab.run_all();
    assert_eq!(state(lab, clone), RunState::Idle { until: Nanos::NEVER }, "no check failed");
    clone
}

fn state(lab: &Lab, id: CellId) -> RunState {
    lab.kernel.inspect(id).expect("it lives").0
}

/// Wakes a cell by an event; it then checks its memory.
fn finish(lab: &mut Lab, id: CellId) {
    lab.kernel.raise(id, Event::Console);
    assert_eq!(lab.finish(id).end, End::Exited { status: 0 }, "the number of the check that failed is the status");
}

/// Ends everything, and checks that every frame and every byte of swap space is free.
fn check_empty(lab: &Lab, swap: &TestSwap, cells: &[CellId], before: PageCount) {
    cells.iter().for_each(|id| drop(lab.kernel.end(*id, End::Killed)));
    lab.kernel.free_unused_frames();
    assert_eq!(lab.kernel.free(), before);
    assert_eq!(swap.lengths(), [0_usize; 0]);
    assert_eq!(lab.kernel.swap_usage().map(|usage| usage.records), Some(0));
}

#[test]
fn a_cell_finds_memory_of_every_kind_again() {
    for (mut lab, swap) in labs() {
        let before = lab.kernel.free();
        let (template, _) = template_that_waits(&mut lab);
        let awake = waiting_clone(&mut lab, template);
        let asleep = waiting_clone(&mut lab, template);
        lab.kernel.free_unused_frames();
        let resident = lab.kernel.inspect(asleep).expect("it lives").2.used;
        assert_eq!(lab.kernel.sleep(asleep), Ok(SleepOutcome::Asleep));
        assert_eq!(state(&lab, asleep), RunState::Asleep { until: Nanos::NEVER });
        lab.kernel.free_unused_frames();
        let used = lab.kernel.inspect(asleep).expect("it lives").2.used;
        assert_eq!(used, PageCount(0), "all frames are given back");
        let [length] = swap.lengths()[..] else { panic!("one record") };
        assert!(length < 4096, "{length} bytes for {resident}");
        finish(&mut lab, asleep);
        finish(&mut lab, awake);
        check_empty(&lab, &swap, &[template], before);
    }
}

/// Puts a clone to sleep in each lab.
fn each_sleeper(check: impl Fn(Lab, &TestSwap, CellId)) {
    for (mut lab, swap) in labs() {
        let before = lab.kernel.free();
        let (template, _) = template_that_waits(&mut lab);
        let id = waiting_clone(&mut lab, template);
        lab.kernel.sleep(id).expect("it is idle");
        // Its base stays without the template.
        lab.kernel.end(template, End::Killed).expect("it is frozen");
        lab.kernel.free_unused_frames();
        assert!(lab.kernel.free() < before, "the base is kept");
        check(lab, &swap, id);
    }
}

#[test]
fn a_base_outlives_its_template_as_long_as_a_cell_sleeps() {
    each_sleeper(|mut lab, swap, id| {
        // Other cells reuse what is free.
        let (other, _) = template_that_waits(&mut lab);
        let clone = waiting_clone(&mut lab, other);
        finish(&mut lab, id);
        finish(&mut lab, clone);
        lab.kernel.end(other, End::Killed).expect("it is frozen");
        lab.kernel.free_unused_frames();
        assert_eq!((swap.lengths().len(), lab.kernel.swap_usage().map(|usage| usage.used)), (0, Some(0)));
    });
}

#[test]
fn masked_events_and_operators_do_not_run_a_sleeper() {
    each_sleeper(|mut lab, _, id| {
        let asleep = RunState::Asleep { until: Nanos::NEVER };
        lab.kernel.sleep(id).expect("it sleeps already");
        lab.run_all();
        assert_eq!(state(&lab, id), asleep);
        // Its memory is needed, so it wakes up, and waits as before.
        assert_eq!(lab.kernel.registers(id).map(|registers| registers.rip > 0), Ok(true));
        assert_eq!(state(&lab, id), RunState::Idle { until: Nanos::NEVER });
        lab.kernel.sleep(id).expect("it is idle");
        lab.kernel.wake(id).expect("it is asleep");
        lab.kernel.wake(id).expect("it is awake");
        lab.run_all();
        assert_eq!(state(&lab, id), RunState::Idle { until: Nanos::NEVER });
        // A clone of a sleeper wakes it up, and has the same base.
        lab.kernel.sleep(id).expect("it is idle");
        let clone = lab.kernel.clone_cell(id, QUOTA).expect("an idle cell can be cloned");
        lab.kernel.sleep(id).expect("it is idle");
        lab.kernel.end(clone, End::Killed).expect("it lives");
        finish(&mut lab, id);
        let counters = lab.kernel.sleep_counters();
        assert_eq!((counters.sleeps, counters.wakes, counters.restore_failures), (4, 4, 0));
    });
}

#[test]
fn a_sleeper_can_be_frozen_and_ended() {
    each_sleeper(|mut lab, swap, id| {
        lab.kernel.force_freeze(id).expect("it was started");
        lab.run_all();
        lab.kernel.wait_frozen(id).expect("it woke up for it");
        assert!(matches!(lab.kernel.sleep(id), Err(OperatorError::CannotSleep { .. })), "a template does not sleep");
        assert_eq!(swap.lengths(), [0_usize; 0]);
        lab.kernel.end(id, End::Killed).expect("it is frozen");
    });
    each_sleeper(|lab, swap, id| {
        lab.kernel.end(id, End::Killed).expect("it sleeps");
        assert_eq!(swap.lengths(), [0_usize; 0], "its record is gone at once");
        assert_eq!(lab.kernel.wait(id).expect("it has ended").end, End::Killed);
    });
}

#[test]
fn an_event_that_comes_meanwhile_leaves_a_cell_awake() {
    for (mut lab, swap) in labs() {
        let before = lab.kernel.free();
        let (template, _) = template_that_waits(&mut lab);
        for is_ended in [false, true] {
            let id = waiting_clone(&mut lab, template);
            let kernel = &lab.kernel;
            std::thread::scope(|scope| {
                let (put, is_put) = mpsc::channel();
                let (done, is_done) = mpsc::channel();
                swap.before_put(move || {
                    put.send(()).expect("it waits");
                    is_done.recv().expect("it answers");
                });
                scope.spawn(move || {
                    is_put.recv().expect("a record is put");
                    match is_ended {
                        true => kernel.end(id, End::Killed).expect("it lives"),
                        false => kernel.raise(id, Event::Console),
                    }
                    done.send(()).expect("it waits");
                });
                assert_eq!(kernel.sleep(id), Ok(SleepOutcome::Interrupted));
            });
            assert_eq!(swap.lengths(), [0_usize; 0]);
            if !is_ended {
                assert_eq!(lab.kernel.sleep_counters().interrupted, 1);
                assert_eq!(lab.finish(id).end, End::Exited { status: 0 });
            }
        }
        check_empty(&lab, &swap, &[template], before);
    }
}

#[test]
fn a_cell_stays_awake_if_swap_space_is_full_or_fails() {
    for (mut lab, swap) in labs() {
        let before = lab.kernel.free();
        let (template, _) = template_that_waits(&mut lab);
        let id = waiting_clone(&mut lab, template);
        for (fault, words) in [(SwapFault::Full, "the swap space is full"), (SwapFault::Write, "the disk of the test fails")] {
            swap.fail(fault);
            let error = lab.kernel.sleep(id).expect_err("it has no room").to_string();
            assert_eq!(error, format!("cannot put cell {id} to sleep: {words}"));
            assert_eq!(state(&lab, id), RunState::Idle { until: Nanos::NEVER });
        }
        assert_eq!((lab.kernel.sleep_counters().refused, lab.kernel.sleep_counters().sleeps), (2, 0));
        finish(&mut lab, id);
        check_empty(&lab, &swap, &[template], before);
    }
}

#[test]
fn a_cell_ends_if_its_memory_cannot_be_read() {
    for (mut lab, swap) in labs() {
        let before = lab.kernel.free();
        let (template, _) = template_that_waits(&mut lab);
        let other = waiting_clone(&mut lab, template);
        let faults = [
            (SwapFault::Read, "the disk of the test fails"),
            (SwapFault::Damaged, "its record in the swap space is damaged"),
            (SwapFault::Short(100), "the record of a sleeping cell is damaged"),
        ];
        for (fault, words) in faults {
            swap.fail(SwapFault::None);
            let id = waiting_clone(&mut lab, template);
            lab.kernel.sleep(id).expect("it is idle");
            swap.fail(fault);
            lab.kernel.raise(id, Event::Console);
            let words = format!("the memory of the sleeping cell could not be restored: {words}");
            lab.run_all();
            assert_eq!(lab.kernel.wait(id).expect("it has ended").end, End::Host(words));
        }
        swap.fail(SwapFault::None);
        lab.kernel.sleep(other).expect("it is idle");
        finish(&mut lab, other);
        check_empty(&lab, &swap, &[template], before);
    }
}

/// Swap space has checksums; the kernel does not rely on them for the sake of others.
#[test]
fn a_wrong_record_harms_its_cell_alone() {
    let (mut lab, swap) = labs().swap_remove(0);
    let before = lab.kernel.free();
    let (template, _) = template_that_waits(&mut lab);
    let other = waiting_clone(&mut lab, template);
    let mut random = fastrand::Rng::with_seed(1);
    for _ in 0..pando_testing::lab::repetitions(10, 100, 3000) {
        let id = waiting_clone(&mut lab, template);
        lab.kernel.sleep(id).expect("it is idle");
        let at = random.usize(..);
        swap.fail(if random.u8(..8) == 0 { SwapFault::Short(at) } else { SwapFault::FlippedByte(at) });
        let _ = lab.kernel.wake(id);
        swap.fail(SwapFault::None);
        let _ = lab.kernel.end(id, End::Killed);
        let _ = lab.kernel.collect(id);
    }
    finish(&mut lab, other);
    check_empty(&lab, &swap, &[template], before);
}

#[test]
fn a_sleeper_wakes_up_for_its_alarm() {
    use pando_abi::Hypercall;
    use pando_testing::asm::Register::{Rax, Rdi, Rsi};
    for (mut lab, _) in labs() {
        let deadline = lab.kernel.now() + std::time::Duration::from_millis(300);
        let id = lab.launch(|asm| {
            asm.call_kernel(Hypercall::Idle { deadline: deadline.0 }).mov(Rdi, Rax).mov_imm(Rsi, 0).mov_imm(Rax, 0).hypercall();
        });
        while !matches!(state(&lab, id), RunState::Idle { .. }) {
            lab.turn(0);
        }
        // It is no clone, so its base is empty.
        lab.kernel.sleep(id).expect("it is idle");
        assert_eq!(state(&lab, id), RunState::Asleep { until: deadline });
        assert_eq!(lab.finish(id).end, End::Exited { status: 0 });
        assert!(lab.kernel.now() >= deadline);
    }
}

#[test]
fn without_swap_space_no_cell_sleeps() {
    for mut lab in Lab::both() {
        let (template, _) = template_that_waits(&mut lab);
        let id = waiting_clone(&mut lab, template);
        let error = lab.kernel.sleep(id).expect_err("there is nowhere to go");
        assert_eq!(error, OperatorError::CannotSleep { cell: id, reason: "there is no swap space" });
        assert_eq!(lab.kernel.swap_usage(), None::<SwapUsage>);
        finish(&mut lab, id);
    }
}

/// A cell with two processes, one a fork of the other, that has changed much. Its clone shares that, and differs little from its base.
#[test]
fn a_clone_of_an_idle_cell_has_a_base_of_its_own() {
    use pando_abi::layout::VIRTUAL_REGISTERS;
    use pando_abi::{Hypercall, MapFlags, Permissions};
    use pando_testing::asm::Condition;
    use pando_testing::asm::Register::{R15, Rbx};
    const PAGES: u64 = 300;
    for (mut lab, swap) in labs() {
        let before = lab.kernel.free();
        let flags = MapFlags::lazy(Permissions::READ_WRITE).bits();
        let template = lab.launch(|asm| {
            asm.call_kernel(Hypercall::Map { space: u64::MAX, address: 1 << 32, pages: PAGES, flags });
            asm.call_kernel(Hypercall::Freeze {});
            asm.call_kernel(Hypercall::SpaceClone { space: 0 }).call_kernel(Hypercall::SpaceSwitch { space: 1 });
            asm.mov_imm(Rbx, 1 << 32).mov_imm(R15, PAGES);
            let next = asm.here();
            asm.store(Rbx, 0, R15).add_imm(Rbx, 4096).dec(R15).jump_if(Condition::NotZero, next);
            asm.call_kernel(Hypercall::SpaceClone { space: 1 });
            let idle = asm.here();
            asm.mov_imm(Rbx, VIRTUAL_REGISTERS).store_imm(Rbx, 0, 0).call_kernel(Hypercall::Idle { deadline: u64::MAX }).jmp(idle);
        });
        lab.run_all();
        let source = waiting_clone(&mut lab, template);
        let clone = lab.kernel.clone_cell(source, QUOTA).expect("it is idle");
        lab.kernel.start(clone).expect("it was not started before");
        lab.run_all();
        lab.kernel.sleep(source).expect("it is idle");
        let [of_source] = swap.lengths()[..] else { panic!("one record") };
        assert!(of_source > PAGES as usize * 64 && of_source < PAGES as usize * 80, "{of_source}");
        lab.kernel.wake(source).expect("it sleeps");
        lab.kernel.sleep(clone).expect("it is idle");
        let [of_clone] = swap.lengths()[..] else { panic!("one record") };
        assert!(of_clone < of_source / 16, "{of_clone} {of_source}");
        // Its base stays as it is while the source changes.
        lab.kernel.write(source, 1 << 32, &[7]).expect("it is idle");
        let mut byte = [0];
        lab.kernel.read(clone, 1 << 32, &mut byte).expect("it wakes up");
        assert_eq!(byte, [(PAGES % 256) as u8]);
        check_empty(&lab, &swap, &[template, source, clone], before);
    }
}

/// Canaries: what happens if a base is released while a cell sleeps, and if the slot of a record is not freed.
#[test]
fn the_tests_notice_a_base_that_is_released_early_and_a_slot_that_is_not_freed() {
    let swap = Arc::new(TestSwap::default());
    let config = Config { swap: Some(Arc::clone(&swap) as _), keeps_bases: false, ..Config::default() };
    let mut lab = Lab::sim(1, ARENA, 1, config);
    let (template, _) = template_that_waits(&mut lab);
    let id = waiting_clone(&mut lab, template);
    lab.kernel.sleep(id).expect("it is idle");
    lab.kernel.end(template, End::Killed).expect("it is frozen");
    lab.kernel.raise(id, Event::Console);
    lab.run_all();
    assert_ne!(lab.kernel.wait(id).expect("it has ended").end, End::Exited { status: 0 });

    let (mut lab, swap) = labs().swap_remove(0);
    let (template, _) = template_that_waits(&mut lab);
    let id = waiting_clone(&mut lab, template);
    lab.kernel.sleep(id).expect("it is idle");
    swap.fail(SwapFault::Leak);
    finish(&mut lab, id);
    assert_ne!(lab.kernel.swap_usage(), Some(SwapUsage { size: u64::MAX, ..SwapUsage::default() }));
}
