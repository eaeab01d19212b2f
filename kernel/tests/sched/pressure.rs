// SPDX-License-Identifier: MIT OR Apache-2.0
//! When the machine is out of memory, the OOM policy chooses the victim.

use pando_abi::layout::{SLOT_SIZE, VIRTUAL_REGISTERS};
use pando_abi::{Event, Hypercall, MapFlags, Permissions};
use pando_kernel::RunState;
use pando_kernel::sched::OomPolicy;
use pando_kernel::{CellId, Config, End, OperatorError};
use pando_machine::PageCount;
use pando_testing::asm::Register::{R15, Rbx};
use pando_testing::asm::{Asm, Condition};
use pando_testing::lab::Lab;
use pando_testing::swap::TestSwap;
use pando_testing::virtual_registers::exit;
use std::sync::Arc;

const ARENA: PageCount = PageCount(1 << 13);

/// A started cell that writes `pages` pages, one by one, and exits with 0.
fn toucher(lab: &Lab, pages: u64) -> CellId {
    let mut asm = Asm::new();
    let flags = MapFlags::lazy(Permissions::READ_WRITE).bits();
    asm.call_kernel(Hypercall::Map { space: u64::MAX, address: SLOT_SIZE, pages, flags }).mov_imm(Rbx, SLOT_SIZE).mov_imm(R15, pages);
    let again = asm.here();
    asm.store(Rbx, 0, R15).add_imm(Rbx, 0x1000).dec(R15).jump_if(Condition::NotZero, again).call_kernel(exit(0));
    let id = lab.cell_with(&asm.finish(), ARENA);
    lab.kernel.start(id).expect("it was not started before");
    id
}

/// A cell that takes `pages` pages and then makes the call `then`, which does not return.
fn hoarder(lab: &mut Lab, pages: u64, then: Hypercall) -> CellId {
    let mut asm = Asm::new();
    let flags = MapFlags::eager(Permissions::READ_WRITE).bits();
    asm.call_kernel(Hypercall::Map { space: u64::MAX, address: SLOT_SIZE, pages, flags }).call_kernel(then);
    let id = lab.cell_with(&asm.finish(), ARENA);
    lab.kernel.start(id).expect("it was not started before");
    lab.run_all();
    id
}

const IDLE: Hypercall = Hypercall::Idle { deadline: u64::MAX };

#[test]
fn the_largest_cell_is_ended_and_the_others_continue() {
    for mut lab in Lab::each(ARENA, Config::default) {
        let before = lab.kernel.free();
        // An idle cell with much memory, one that wants more than is left, and a small one.
        let hoarder = hoarder(&mut lab, before.0 / 2, IDLE);
        let small = toucher(&lab, 100);
        let wants = toucher(&lab, before.0 * 2 / 3);
        assert_eq!(lab.finish(small).end, End::Exited { status: 0 });
        // It has less than the hoarder when the machine is full, and gets the hoarder's memory.
        assert_eq!(lab.finish(wants).end, End::Exited { status: 0 });
        let end = lab.kernel.collect(hoarder).expect("it was ended").end;
        assert_eq!(end, End::MachineFull);
        assert_eq!(end.to_string(), "the machine is out of memory, and this cell used the most memory");
        lab.kernel.free_unused_frames();
        assert_eq!(lab.kernel.free(), before);
    }
}

#[test]
fn a_cell_that_needs_more_than_the_machine_has_ends() {
    for mut lab in Lab::each(ARENA, Config::default) {
        let before = lab.kernel.free();
        let small = toucher(&lab, 100);
        let wants = toucher(&lab, before.0 * 2);
        assert_eq!(lab.finish(wants).end, End::MachineFull);
        assert_eq!(lab.finish(small).end, End::Exited { status: 0 });
        lab.kernel.free_unused_frames();
        assert_eq!(lab.kernel.free(), before);
    }
}

#[test]
fn an_idle_cell_falls_asleep_before_one_ends() {
    for mut lab in Lab::each(ARENA, || Config { swap: Some(Arc::new(TestSwap::default())), ..Config::default() }) {
        let before = lab.kernel.free();
        let hoarders = [(); 2].map(|()| hoarder(&mut lab, before.0 / 4, IDLE));
        // It needs the memory of both.
        let wants = toucher(&lab, before.0 * 4 / 5);
        assert_eq!(lab.finish(wants).end, End::Exited { status: 0 });
        assert_eq!(lab.kernel.sleep_counters().pressure_sleeps, 2);
        for hoarder in hoarders {
            assert!(matches!(lab.kernel.inspect(hoarder).expect("it lives").0, RunState::Asleep { .. }));
            assert_eq!(lab.kernel.read(hoarder, SLOT_SIZE, &mut [0]), Ok(()), "its memory comes back");
            lab.kernel.end(hoarder, End::Killed).expect("it lives");
        }
        lab.kernel.free_unused_frames();
        assert_eq!(lab.kernel.free(), before);
    }
}

#[test]
fn an_operator_and_a_cell_that_wakes_up_get_the_memory_of_idle_cells() {
    for mut lab in Lab::each(ARENA, || Config { swap: Some(Arc::new(TestSwap::default())), ..Config::default() }) {
        let before = lab.kernel.free();
        let pages = before.0 / 2;
        let [first, second] = [(); 2].map(|()| {
            let id = hoarder(&mut lab, pages, IDLE);
            // Pages of zeros need no frames when the cell wakes up.
            (0..pages).for_each(|page| lab.kernel.write(id, SLOT_SIZE + page * 4096, &[1]).expect("it idles"));
            id
        });
        let is_asleep = |id| matches!(lab.kernel.inspect(id).expect("it lives").0, RunState::Asleep { .. });
        assert_eq!((is_asleep(first), is_asleep(second)), (true, false), "the first has idled longer");
        lab.kernel.wake(first).expect("it lives");
        assert_eq!((is_asleep(first), is_asleep(second)), (false, true));
        let free = lab.kernel.free();
        // On KVM, more time than that may pass meanwhile.
        assert!(lab.sim.is_none() || !lab.kernel.make_available(before), "one has just woken up");
        assert!(lab.kernel.make_available(free));
        [first, second].into_iter().for_each(|id| lab.kernel.end(id, End::Killed).expect("it lives"));
        assert!(lab.kernel.make_available(before));
    }
}

#[test]
fn cells_that_have_run_since_they_were_queued_fall_asleep_before_one_ends() {
    // More than one search looks at.
    const CELLS: usize = 80;
    for mut lab in Lab::each(ARENA, || Config { swap: Some(Arc::new(TestSwap::default())), ..Config::default() }) {
        let before = lab.kernel.free();
        let mut asm = Asm::new();
        let flags = MapFlags::eager(Permissions::READ_WRITE).bits();
        asm.call_kernel(Hypercall::Map { space: u64::MAX, address: SLOT_SIZE, pages: 40, flags });
        let again = asm.here();
        // Nothing is masked, and nothing pending.
        asm.mov_imm(Rbx, VIRTUAL_REGISTERS).store_imm(Rbx, 0, 0).call_kernel(IDLE).jmp(again);
        let code = asm.finish();
        let cells: Vec<CellId> = (0..CELLS).map(|_| lab.cell_with(&code, PageCount(300))).collect();
        cells.iter().for_each(|id| lab.kernel.start(*id).expect("it was not started before"));
        lab.run_all();
        cells.iter().for_each(|id| lab.kernel.raise(*id, Event::Interrupt));
        lab.run_all();
        let wants = toucher(&lab, lab.kernel.free().0 + 1000);
        assert_eq!(lab.finish(wants).end, End::Exited { status: 0 });
        for id in cells {
            assert!(lab.kernel.inspect(id).is_ok(), "it lives");
            lab.kernel.end(id, End::Killed).expect("it lives");
        }
        lab.kernel.free_unused_frames();
        assert_eq!(lab.kernel.free(), before);
    }
}

#[test]
fn a_clone_that_copies_a_page_waits_for_all_tables_that_it_needs() {
    for deficit in 0..24 {
        for mut lab in Lab::each(ARENA, || Config { swap: Some(Arc::new(TestSwap::default())), ..Config::default() }) {
            let before = lab.kernel.free();
            let mut asm = Asm::new();
            let flags = MapFlags::eager(Permissions::READ_WRITE).bits();
            asm.call_kernel(Hypercall::Map { space: u64::MAX, address: SLOT_SIZE, pages: 512, flags }).call_kernel(Hypercall::Freeze {});
            asm.mov_imm(Rbx, SLOT_SIZE);
            for page in 0..4 {
                asm.store(Rbx, page * 0x10000, Rbx);
            }
            asm.call_kernel(exit(0));
            let template = lab.cell_with(&asm.finish(), ARENA);
            lab.kernel.start(template).expect("it was not started before");
            lab.run_all();
            // Each frees a few pages when it falls asleep.
            let idle: Vec<CellId> = (0..20).map(|_| hoarder(&mut lab, 1, IDLE)).collect();
            let clone = lab.kernel.clone_cell(template, PageCount(300)).expect("a template can be cloned");
            lab.kernel.start(clone).expect("it was not started before");
            lab.kernel.withhold(lab.kernel.free() + PageCount(deficit));
            assert_eq!(lab.finish(clone).end, End::Exited { status: 0 }, "with a deficit of {deficit} pages");
            lab.kernel.withhold(PageCount(0));
            idle.into_iter().chain([template]).for_each(|id| lab.kernel.end(id, End::Killed).expect("it lives"));
            lab.kernel.free_unused_frames();
            assert_eq!(lab.kernel.free(), before);
        }
    }
}

#[test]
fn cells_are_admitted_when_enough_idle_ones_have_fallen_asleep() {
    for mut lab in Lab::each(ARENA, || Config { swap: Some(Arc::new(TestSwap::default())), ..Config::default() }) {
        // One of them does not free enough.
        let idle: Vec<CellId> = (0..20).map(|_| hoarder(&mut lab, 1, IDLE)).collect();
        lab.kernel.free_unused_frames();
        lab.kernel.withhold(lab.kernel.free());
        let waits = toucher(&lab, 1);
        assert_eq!(lab.finish(waits).end, End::Exited { status: 0 });
        let is_asleep = |id: &&CellId| matches!(lab.kernel.inspect(**id).expect("it lives").0, RunState::Asleep { .. });
        assert!(idle.iter().filter(is_asleep).count() > 1);
    }
}

#[test]
fn cells_are_admitted_although_a_search_for_idle_ones_takes_many_steps() {
    for mut lab in Lab::each(ARENA, || Config { swap: Some(Arc::new(TestSwap::default())), ..Config::default() }) {
        let mut asm = Asm::new();
        let again = asm.here();
        asm.mov_imm(Rbx, VIRTUAL_REGISTERS).store_imm(Rbx, 0, 0).call_kernel(IDLE).jmp(again);
        let code = asm.finish();
        let cells: Vec<CellId> = (0..300).map(|_| lab.cell_with(&code, PageCount(300))).collect();
        cells.iter().for_each(|id| lab.kernel.start(*id).expect("it was not started before"));
        lab.run_all();
        // Their places in the queue are not valid any more.
        cells.iter().for_each(|id| lab.kernel.raise(*id, Event::Interrupt));
        lab.run_all();
        let waits = lab.cell_with(&code, PageCount(300));
        lab.kernel.free_unused_frames();
        lab.kernel.withhold(lab.kernel.free());
        lab.kernel.start(waits).expect("it was not started before");
        lab.run_all();
        assert!(matches!(lab.kernel.inspect(waits).expect("it lives").0, RunState::Idle { .. }));
    }
}

#[test]
fn cells_are_admitted_when_an_idle_one_can_sleep_again() {
    for mut lab in Lab::each(ARENA, || Config { swap: Some(Arc::new(TestSwap::default())), ..Config::default() }) {
        let mut asm = Asm::new();
        let flags = MapFlags::eager(Permissions::READ_WRITE).bits();
        asm.call_kernel(Hypercall::Map { space: u64::MAX, address: SLOT_SIZE, pages: 200, flags });
        asm.mov_imm(Rbx, VIRTUAL_REGISTERS).store_imm(Rbx, 8, -1).call_kernel(IDLE);
        let idle = lab.cell_with(&asm.finish(), PageCount(500));
        lab.kernel.start(idle).expect("it was not started before");
        lab.run_all();
        let waits = lab.cell_with(b"\xf4", PageCount(300));
        lab.kernel.free_unused_frames();
        // An event waits for the idle cell, which was masked when it came.
        lab.kernel.raise(idle, Event::Console);
        lab.kernel.write(idle, VIRTUAL_REGISTERS + 8, &0_u64.to_le_bytes()).expect("it is mapped");
        lab.kernel.withhold(lab.kernel.free());
        lab.kernel.start(waits).expect("it was not started before");
        assert!(lab.turn(0) && matches!(lab.kernel.inspect(waits).expect("it lives").0, RunState::AwaitingAdmission));
        lab.kernel.write(idle, VIRTUAL_REGISTERS + 8, &u64::MAX.to_le_bytes()).expect("it is mapped");
        lab.finish(waits);
    }
}

#[test]
fn an_operator_does_not_wait_for_a_cell_that_nobody_puts_to_sleep_meanwhile() {
    for mut lab in Lab::each(ARENA, || Config { swap: Some(Arc::new(TestSwap::default())), ..Config::default() }) {
        let idle = hoarder(&mut lab, 200, IDLE);
        let [waits, built] = [(); 2].map(|()| lab.cell_with(b"\xf4", PageCount(300)));
        lab.kernel.free_unused_frames();
        lab.kernel.withhold(lab.kernel.free());
        // This chooses the idle cell, which the next turn would put to sleep.
        lab.kernel.start(waits).expect("it was not started before");
        let flags = MapFlags::eager(Permissions::READ_WRITE);
        assert!(lab.kernel.map(built, SLOT_SIZE, PageCount(1), flags).is_err(), "there is no other");
        lab.finish(waits);
        assert!(matches!(lab.kernel.inspect(idle).expect("it lives").0, RunState::Asleep { .. }));
    }
}

#[test]
fn idle_cells_fall_asleep_while_cells_use_more_than_their_limit() {
    for mut lab in Lab::each(ARENA, || Config { swap: Some(Arc::new(TestSwap::default())), ..Config::default() }) {
        let before = lab.kernel.free();
        let idle: Vec<CellId> = (0..8).map(|_| hoarder(&mut lab, 200, IDLE)).collect();
        for id in &idle {
            // Pages of zeros need no frames when the cell wakes up.
            (0..200).for_each(|page| lab.kernel.write(*id, SLOT_SIZE + page * 4096, &[1]).expect("it idles"));
        }
        let asleep = |lab: &Lab| -> Vec<bool> {
            let is_asleep = |id| matches!(lab.kernel.inspect(id).expect("it lives").0, RunState::Asleep { .. });
            idle.iter().map(|id| is_asleep(*id)).collect()
        };
        lab.kernel.free_unused_frames();
        let limit = PageCount(lab.kernel.used_by_cells().0 - 500);
        lab.kernel.limit_resident(limit);
        lab.run_all();
        assert_eq!(asleep(&lab), [true, true, true, false, false, false, false, false]);
        // A cell that wakes up takes the place of another one.
        lab.kernel.wake(idle[0]).expect("it lives");
        lab.run_all();
        assert_eq!(asleep(&lab), [false, true, true, true, false, false, false, false]);
        // One that has just woken up is spared, since the memory is there.
        idle[4..].iter().for_each(|id| lab.kernel.end(*id, End::Killed).expect("it lives"));
        lab.kernel.limit_resident(PageCount(0));
        lab.run_all();
        let state = lab.kernel.inspect(idle[0]).expect("it lives").0;
        // On KVM, more time than that may have passed.
        assert!(lab.sim.is_none() || matches!(state, RunState::Idle { .. }), "{state:?}");
        idle[..4].iter().for_each(|id| lab.kernel.end(*id, End::Killed).expect("it lives"));
        lab.kernel.free_unused_frames();
        assert_eq!(lab.kernel.free(), before);
    }
}

#[test]
fn withheld_memory_is_taken_from_idle_cells_and_not_allocated() {
    for mut lab in Lab::each(ARENA, || Config { swap: Some(Arc::new(TestSwap::default())), ..Config::default() }) {
        let (before, used) = (lab.kernel.free(), lab.kernel.used());
        let [first, second] = [(); 2].map(|()| hoarder(&mut lab, before.0 / 4, IDLE));
        let is_asleep = |id| matches!(lab.kernel.inspect(id).expect("it lives").0, RunState::Asleep { .. });
        // More than is free: the cells keep what they have, until they sleep.
        lab.kernel.withhold(PageCount(before.0 * 4 / 5));
        assert_eq!((lab.kernel.free(), is_asleep(first), is_asleep(second)), (PageCount(0), false, false));
        assert!(lab.kernel.make_available(PageCount(1)));
        lab.kernel.give_back_unused();
        assert!(is_asleep(first) && is_asleep(second));
        assert!(lab.kernel.used() < PageCount(used.0 + before.0 / 5));
        // Neither a cell nor the operator gets withheld memory.
        let wants = toucher(&lab, before.0 / 2);
        assert!(matches!(lab.finish(wants).end, End::MachineFull | End::Quota), "it needs more than it may have");
        assert!(!lab.kernel.make_available(PageCount(before.0 / 2)));
        lab.kernel.withhold(PageCount(0));
        let wants = toucher(&lab, before.0 / 2);
        assert_eq!(lab.finish(wants).end, End::Exited { status: 0 });
        for hoarder in [first, second] {
            assert_eq!(lab.kernel.read(hoarder, SLOT_SIZE, &mut [0]), Ok(()), "its memory comes back");
            lab.kernel.end(hoarder, End::Killed).expect("it lives");
        }
        lab.kernel.free_unused_frames();
        assert_eq!(lab.kernel.free(), before);
    }
}

#[test]
fn idle_cells_that_cannot_sleep_hide_no_other_cell() {
    // Fewer and more than one step of a search looks at.
    for stuck in [40, 100] {
        for mut lab in Lab::each(ARENA, || Config { swap: Some(Arc::new(TestSwap::default())), ..Config::default() }) {
            let before = lab.kernel.free();
            let mut asm = Asm::new();
            asm.mov_imm(Rbx, VIRTUAL_REGISTERS).store_imm(Rbx, 8, -1).call_kernel(IDLE);
            let code = asm.finish();
            let mut cells: Vec<CellId> = (0..stuck).map(|_| lab.cell_with(&code, PageCount(300))).collect();
            cells.iter().for_each(|id| lab.kernel.start(*id).expect("it was not started before"));
            lab.run_all();
            for id in &cells {
                // An event waits for it, which was masked when it came.
                lab.kernel.raise(*id, Event::Console);
                lab.kernel.write(*id, VIRTUAL_REGISTERS + 8, &0_u64.to_le_bytes()).expect("it is mapped");
            }
            let idle = hoarder(&mut lab, 500, IDLE);
            let free = lab.kernel.free();
            assert!(lab.kernel.make_available(PageCount(free.0 + 300)));
            assert!(matches!(lab.kernel.inspect(idle).expect("it lives").0, RunState::Asleep { .. }));
            for _ in 0..10 {
                assert!(!lab.kernel.make_available(before), "no other can sleep");
            }
            let wants = toucher(&lab, before.0);
            assert_eq!(lab.finish(wants).end, End::MachineFull);
            cells.push(idle);
            cells.into_iter().for_each(|id| lab.kernel.end(id, End::Killed).expect("it lives"));
            lab.kernel.free_unused_frames();
            assert_eq!(lab.kernel.free(), before);
        }
    }
}

/// A policy without victims.
struct NoVictim;

impl OomPolicy for NoVictim {
    fn victim(&mut self, _: &mut dyn Iterator<Item = (CellId, PageCount)>) -> Option<CellId> {
        None
    }
}

#[test]
fn without_a_victim_the_requesting_cell_ends() {
    for mut lab in Lab::each(ARENA, || Config { oom_policy: Box::new(NoVictim), ..Config::default() }) {
        let before = lab.kernel.free();
        let hoarder = hoarder(&mut lab, before.0 / 2, IDLE);
        let wants = toucher(&lab, before.0 * 2 / 3);
        assert_eq!(lab.finish(wants).end, End::MachineFull);
        lab.kernel.end(hoarder, End::Killed).expect("it lives");
        lab.kernel.free_unused_frames();
        assert_eq!(lab.kernel.free(), before);
    }
}

#[test]
fn templates_are_never_victims() {
    for mut lab in Lab::each(ARENA, Config::default) {
        let free = lab.kernel.free();
        let template = hoarder(&mut lab, free.0 / 2, Hypercall::Freeze {});
        assert_eq!(lab.kernel.wait_frozen(template), Ok(()));
        let wants = toucher(&lab, free.0 * 2 / 3);
        assert_eq!(lab.finish(wants).end, End::MachineFull);
        assert_eq!(lab.kernel.wait_frozen(template), Ok(()));
    }
}

#[test]
fn a_cell_that_freezes_unasked_is_no_template() {
    for mut lab in Lab::each(ARENA, Config::default) {
        let free = lab.kernel.free();
        let pretender = hoarder(&mut lab, free.0 / 2, Hypercall::Freeze {});
        assert_eq!(lab.kernel.wait(pretender).map(drop), Err(OperatorError::Froze), "nobody waits for ever");
        let wants = toucher(&lab, free.0 * 2 / 3);
        assert_eq!(lab.finish(wants).end, End::Exited { status: 0 });
        assert_eq!(lab.kernel.collect(pretender).expect("it was ended").end, End::MachineFull);
    }
}

#[test]
fn a_cell_that_is_being_built_is_no_victim() {
    for mut lab in Lab::each(ARENA, Config::default) {
        let free = lab.kernel.free();
        let built = lab.cell_with(b"\x90", ARENA);
        let flags = MapFlags::eager(Permissions::READ_WRITE);
        lab.kernel.map(built, 0x2000_0000, PageCount(free.0 / 2), flags).expect("there is room");
        let wants = toucher(&lab, free.0 * 2 / 3);
        assert_eq!(lab.finish(wants).end, End::MachineFull);
        assert!(lab.kernel.inspect(built).is_ok());
    }
}

#[test]
fn the_operator_gets_memory_that_is_still_being_released() {
    for lab in Lab::each(ARENA, Config::default) {
        let free = lab.kernel.free();
        let flags = MapFlags::eager(Permissions::READ_WRITE);
        for _ in 0..3 {
            let id = lab.cell_with(b"\x90", ARENA);
            lab.kernel.map(id, 0x2000_0000, PageCount(free.0 * 2 / 3), flags).expect("the one before has ended");
            lab.kernel.end(id, End::Killed).expect("it lives");
        }
    }
}

#[test]
fn a_cell_that_waits_for_admission_gets_memory_that_a_flush_frees() {
    for mut lab in Lab::each(ARENA, Config::default) {
        let flags = MapFlags::lazy(Permissions::READ_WRITE);
        let hoard = lab.cell_with(b"\x90", ARENA);
        // Tables for a page every 2 MiB: most of its memory has to be flushed before it is free.
        let mut address = SLOT_SIZE;
        while lab.kernel.free() > PageCount(400) {
            lab.kernel.map(hoard, address, PageCount(1), flags).expect("there is room");
            address += 2 << 20;
        }
        let pages = PageCount(lab.kernel.free().0 - 300);
        lab.kernel.map(hoard, 0x2000_0000, pages, MapFlags::eager(Permissions::READ_WRITE)).expect("there is room");
        let small = lab.cell_with(b"\x90", PageCount(300));
        lab.kernel.map(small, 0x2000_0000, PageCount(lab.kernel.free().0 - 40), MapFlags::eager(Permissions::READ_WRITE)).expect("room");
        let waits = small;
        lab.kernel.start(waits).expect("it was not started before");
        assert_eq!(lab.kernel.inspect(waits).expect("it lives").0, RunState::AwaitingAdmission, "there is not enough for it to start");
        lab.kernel.end(hoard, End::Killed).expect("it lives");
        lab.run_all();
        assert!(lab.kernel.inspect(waits).is_err(), "it was let in, and ran into nothing");
    }
}

#[test]
fn a_flush_that_frees_nothing_but_tables_lets_the_waiting_cell_in() {
    for mut lab in Lab::each(ARENA, Config::default) {
        let flags = MapFlags::lazy(Permissions::READ_WRITE);
        let waits = lab.cell_with(b"\x90", PageCount(300));
        let filler = lab.cell_with(b"\x90", ARENA);
        let tables = lab.cell_with(b"\x90", ARENA);
        // All but the first pages of what this cell holds are tables, one for each 2 MiB: they are free after a flush, not before.
        let mut address = SLOT_SIZE;
        for _ in 0..100 {
            lab.kernel.map(tables, address, PageCount(1), flags).expect("there is room");
            address += 2 << 20;
        }
        let flags = MapFlags::eager(Permissions::READ_WRITE);
        lab.kernel.map(filler, 0x2000_0000, PageCount(lab.kernel.free().0 - 100), flags).expect("there is room");
        let mut address = SLOT_SIZE;
        while lab.kernel.free() > PageCount(10) {
            lab.kernel.map(filler, address, PageCount(1), flags).expect("there is room");
            address += 0x1000;
        }
        lab.kernel.start(waits).expect("it was not started before");
        assert_eq!(lab.kernel.inspect(waits).expect("it lives").0, RunState::AwaitingAdmission, "there is not enough for it to start");
        // The next flush is some time away: when it comes, all else is released.
        lab.kernel.free_unused_frames();
        lab.kernel.end(tables, End::Killed).expect("it lives");
        lab.run_all();
        assert!(lab.kernel.inspect(waits).is_err(), "it was let in, and ran into nothing");
    }
}
