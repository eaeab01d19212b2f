// SPDX-License-Identifier: MIT OR Apache-2.0
//! Prefetching: the pages that training clones access are present in later clones.

use crate::cell::{add_source, export, run, template};
use pando_abi::{Hypercall, MapFlags, Permissions, Registers};
use pando_kernel::{CellConfig, CellId, Disk, End, OperatorError, RunState, WrongState};
use pando_machine::PageCount;
use pando_testing::asm::Register::{Rax, Rbx, Rcx};
use pando_testing::asm::{Asm, Condition, Label};
use pando_testing::lab::{CODE, DATA, Lab, QUOTA};
use std::sync::Arc;
use std::sync::atomic::Ordering;

#[test]
fn pages_that_one_clone_accessed_are_present_in_later_ones() {
    for (index, mut lab) in Lab::both().into_iter().enumerate() {
        let (id, _) = template(&mut lab);
        let trainee = lab.kernel.clone_cell(id, QUOTA).expect("it is frozen");
        let before = run(&mut lab, trainee);
        assert_eq!(lab.kernel.prefetch_set(id), Ok(PageCount(0)), "who is not named teaches nothing");

        let trainee = lab.kernel.clone_cell(id, QUOTA).expect("it is frozen");
        lab.kernel.train(id, trainee).expect("it has not started");
        assert_eq!(run(&mut lab, trainee), before);
        let expected = lab.kernel.prefetch_set(id).expect("it lives");
        assert!(expected.0 > 0 && expected.0 <= before, "{expected:?} of {before}");
        let (image, pages) = export(&lab.kernel, id);

        let foreseen = lab.kernel.clone_cell(id, QUOTA).expect("it is frozen");
        assert!(matches!(lab.kernel.train(id, id), Err(OperatorError::WrongState(WrongState { state: RunState::Frozen, .. }))));
        let after = run(&mut lab, foreseen);
        assert!(after < before, "{after} faults, {before} before");
        lab.kernel.end(id, End::Killed).expect("it is frozen");
        drop(lab);

        // The same in another kernel, where none of its pages is in memory yet.
        let mut lab = Lab::both().swap_remove(index);
        let free = lab.kernel.free();
        let disks = [add_source(&lab.kernel)];
        let contents = lab.kernel.add_disk(Arc::clone(&pages) as Arc<_>).expect("room for a disk");
        let id = lab.kernel.import(&image, contents, &disks, QUOTA).expect("a sound image");
        assert_eq!(lab.kernel.prefetch_set(id), Ok(expected));
        let mut faults = [0; 2];
        for count in &mut faults {
            let clone = lab.kernel.clone_cell(id, QUOTA).expect("it is frozen");
            *count = run(&mut lab, clone);
            lab.kernel.prefetch(id).expect("its pages can be read");
        }
        assert!(faults[1] < faults[0], "{faults:?}");
        lab.kernel.end(id, End::Killed).expect("it is frozen");
        lab.kernel.free_unused_frames();
        assert_eq!(lab.kernel.free(), free);
    }
}

/// Two words that the test writes: the number of pages that a cell writes before its first wait, and after it.
const TOLD: u64 = DATA;
/// The pages, which lie in more than one large page.
const PAGES: u64 = DATA + 4096;
const COUNT: u64 = 1300;
/// Its quota: replaced tables stay charged until the machine is flushed.
const ROOM: PageCount = PageCount(3 * QUOTA.0);
const EARLY: u64 = 20;

/// Writes pages from `Rbx` on, as many as the word at `word` holds; each must hold a 1.
fn write_pages(asm: &mut Asm, word: u64, failed: Label) {
    asm.mov_imm(Rcx, word).load(Rcx, Rcx, 0);
    let next = asm.here();
    asm.load(Rax, Rbx, 0).cmp_imm(Rax, 1).jump_if(Condition::NotZero, failed);
    asm.store_imm(Rbx, 0, 2).add_imm(Rbx, 4096).dec(Rcx).jump_if(Condition::NotZero, next);
}

/// A template that has a 1 in each page; the test sets how many pages its clones write.
fn writer(lab: &mut Lab, large: bool) -> CellId {
    let mut asm = Asm::new();
    let failed = asm.label();
    asm.call_kernel(Hypercall::Freeze {}).mov_imm(Rbx, PAGES);
    write_pages(&mut asm, TOLD, failed);
    asm.call_kernel(Hypercall::Idle { deadline: 0 });
    write_pages(&mut asm, TOLD + 8, failed);
    asm.call_kernel(Hypercall::Exit { status: 0, signal: 0, address: 0, instruction: 0 });
    asm.bind(failed).call_kernel(Hypercall::Exit { status: 1, signal: 0, address: 0, instruction: 0 });
    frozen(lab, &asm.finish(), large)
}

/// Runs code until it freezes, with memory in which each page has a 1.
fn frozen(lab: &mut Lab, code: &[u8], large: bool) -> CellId {
    let kernel = &lab.kernel;
    let id = kernel.create(CellConfig { quota: ROOM, host_name: "writer".into() }).expect("room for a cell");
    let data = MapFlags { large, ..MapFlags::lazy(Permissions::READ_WRITE) };
    for (address, pages, flags) in [(CODE, 1, MapFlags::lazy(Permissions::READ_EXECUTE)), (DATA, 3 * 512, data)] {
        kernel.map(id, address, PageCount(pages), flags).expect("room for tables");
    }
    kernel.write(id, CODE, code).expect("its code is mapped");
    for page in 0..COUNT {
        kernel.write(id, PAGES + page * 4096, &1u64.to_le_bytes()).expect("its pages are mapped");
    }
    kernel.set_registers(id, Registers { rip: CODE, ..Registers::default() }).expect("it is not running");
    kernel.start(id).expect("it was not started before");
    lab.run_all();
    lab.kernel.wait_frozen(id).expect("nothing fails before");
    id
}

/// Runs a clone that writes these numbers of pages before and after its first wait. Returns its number of faults and its peak
/// memory.
fn written(lab: &mut Lab, template: CellId, told: [u64; 2], trained_template: bool) -> (u64, u64) {
    let clone = lab.kernel.clone_cell(template, ROOM).expect("it is frozen");
    if trained_template {
        lab.kernel.train(template, clone).expect("it has not started");
    }
    lab.kernel.write(clone, TOLD, &told.map(u64::to_le_bytes).concat()).expect("it is mapped");
    lab.kernel.start(clone).expect("it was not started before");
    let outcome = lab.finish(clone);
    assert_eq!(outcome.end, End::Exited { status: 0 }, "what others wrote is not seen");
    (outcome.counters.faults, outcome.usage.peak.0)
}

#[test]
fn pages_are_copied_before_they_are_written_and_never_far_ahead() {
    const LATE: [u64; 3] = [1, 200, COUNT - EARLY];
    for (mut lab, large) in [false, true].into_iter().flat_map(|large| Lab::both().into_iter().map(move |lab| (lab, large))) {
        let id = writer(&mut lab, large);
        let plain = LATE.map(|late| written(&mut lab, id, [EARLY, late], false));
        let training = written(&mut lab, id, [EARLY, LATE[2]], true).0;
        assert!(training >= EARLY + LATE[2], "training records each page by a fault of its own: {training} faults");
        let foreseen = LATE.map(|late| written(&mut lab, id, [EARLY, late], false));
        for ((late, plain), foreseen) in LATE.into_iter().zip(plain).zip(foreseen) {
            assert!(foreseen.0 <= plain.0.min(16), "{} faults, {} without", foreseen.0, plain.0);
            assert!(plain.0 <= 40, "clusters grow where writes are dense: {} faults for {late} pages", plain.0);
            // Half as much again, a few at least, and replaced tables.
            assert!(foreseen.1 <= (EARLY + late) * 3 / 2 + 96, "{} pages for {late}", foreseen.1);
        }
        assert_eq!(foreseen[0].0, 1, "nothing is missing until it waits");
        lab.kernel.end(id, End::Killed).expect("it is frozen");
    }
}

#[test]
fn pages_written_before_the_first_wait_are_copied_before_a_clone_runs() {
    for (mut lab, large) in [false, true].into_iter().flat_map(|large| Lab::both().into_iter().map(move |lab| (lab, large))) {
        let free = lab.kernel.free();
        let id = writer(&mut lab, large);
        let told = [COUNT - 1, 1];
        let plain = written(&mut lab, id, told, true);
        for _ in 0..3 {
            let faults = written(&mut lab, id, told, false).0;
            assert!(faults <= 1, "{faults} faults, {} without", plain.0);
        }
        lab.kernel.end(id, End::Killed).expect("it is frozen");
        lab.kernel.free_unused_frames();
        assert_eq!(lab.kernel.free(), free);
    }
}

#[test]
fn of_several_traces_the_pages_in_most_of_them_count() {
    const LATE: [u64; 3] = [COUNT - EARLY, 10, 200];
    for mut lab in Lab::both() {
        let id = writer(&mut lab, false);
        let mut expected = Vec::new();
        for late in LATE {
            let faults = written(&mut lab, id, [EARLY, late], true).0;
            assert!(faults >= EARLY + late, "training records each page by a fault of its own: {faults} faults for {late} pages");
            expected.push(lab.kernel.prefetch_set(id).expect("it lives").0);
        }
        assert!(expected[1] < expected[2] && expected[2] < expected[0], "{expected:?}: of two both, of three two");
        let most = written(&mut lab, id, [EARLY, LATE[2]], false).0;
        let one = written(&mut lab, id, [EARLY, LATE[0]], false).0;
        assert!(most <= 8 && one > most, "{most} and {one} faults");
        lab.kernel.end(id, End::Killed).expect("it is frozen");
    }
}

#[test]
fn prefetching_never_takes_the_last_memory() {
    for (mut lab, large) in [false, true].into_iter().flat_map(|large| Lab::both().into_iter().map(move |lab| (lab, large))) {
        let id = writer(&mut lab, large);
        written(&mut lab, id, [COUNT - 1, 1], true);
        let is_short = |quota: u64| {
            let clone = lab.kernel.clone_cell(id, PageCount(quota)).expect("it is frozen");
            lab.kernel.start(clone).expect("it was not started before");
            let used = lab.kernel.inspect(clone).expect("it lives").2.used;
            lab.kernel.end(clone, End::Killed).expect("it lives");
            lab.kernel.collect(clone);
            assert!(used.0 <= quota / 4 * 3, "{used:?} of {quota}");
            used.0 < COUNT
        };
        assert!([300, 600, 1200].into_iter().all(is_short) && !is_short(ROOM.0));
        // Another cell takes the machine's memory, except for less than the prefetch keeps in reserve.
        let free = lab.kernel.free();
        let glutton = lab.kernel.create(CellConfig { quota: free, host_name: "glutton".into() }).expect("room for a cell");
        let data = MapFlags { eager: true, ..MapFlags::lazy(Permissions::READ_WRITE) };
        lab.kernel.map(glutton, DATA, PageCount(free.0 - 600), data).expect("that much is free");
        let free = lab.kernel.free();
        assert!(is_short(ROOM.0), "{free:?}");
        lab.kernel.end(glutton, End::Killed).expect("it lives");
        lab.kernel.end(id, End::Killed).expect("it is frozen");
    }
}

/// A clone of a template that has written this many pages, far from each other, and has frozen then. Its own clones write to the same
/// pages again.
fn rewriter(lab: &mut Lab, count: u64) -> (CellId, CellId) {
    // Further than the clusters in which dense pages are copied.
    const STEP: i32 = 67 * 4096;
    let mut asm = Asm::new();
    let failed = asm.label();
    for (before, after) in [(1, 2), (2, 3)] {
        asm.call_kernel(Hypercall::Freeze {}).mov_imm(Rbx, PAGES).mov_imm(Rcx, TOLD).load(Rcx, Rcx, 0);
        let next = asm.here();
        asm.load(Rax, Rbx, 0).cmp_imm(Rax, before).jump_if(Condition::NotZero, failed);
        asm.store_imm(Rbx, 0, after).add_imm(Rbx, STEP).dec(Rcx).jump_if(Condition::NotZero, next);
    }
    asm.call_kernel(Hypercall::Exit { status: 0, signal: 0, address: 0, instruction: 0 });
    asm.bind(failed).call_kernel(Hypercall::Exit { status: 1, signal: 0, address: 0, instruction: 0 });
    let template = frozen(lab, &asm.finish(), false);
    let cell = lab.kernel.clone_cell(template, ROOM).expect("it is frozen");
    lab.kernel.write(cell, TOLD, &count.to_le_bytes()).expect("it is mapped");
    lab.kernel.start(cell).expect("it was not started before");
    lab.run_all();
    lab.kernel.wait_frozen(cell).expect("nothing fails before");
    (template, cell)
}

#[test]
fn a_copy_of_a_cell_that_has_run_finds_the_pages_present_that_this_cell_wrote() {
    const WRITTEN: u64 = 19;
    for mut lab in Lab::both() {
        let free = lab.kernel.free();
        let (template, cell) = rewriter(&mut lab, WRITTEN);
        let faults = |lab: &mut Lab, of: CellId| {
            let clone = lab.kernel.clone_cell(of, ROOM).expect("it is frozen");
            run(lab, clone)
        };
        let plain = faults(&mut lab, cell);
        assert!(plain > 10, "{plain} faults: so it is worth it");
        let copy = lab.kernel.clone_cell(cell, ROOM).expect("it is frozen");
        for learned in [copy, cell] {
            lab.kernel.set_prefetch_from_writes(cell, learned).expect("both live");
            let expected = lab.kernel.prefetch_set(learned).expect("it lives").0;
            assert!((WRITTEN..WRITTEN + 8).contains(&expected), "{expected} pages: those that it wrote");
            let faults = faults(&mut lab, learned);
            assert!(faults <= 1, "{faults} faults, {plain} before");
        }
        // In a file they lie next to each other.
        let (image, pages) = export(&lab.kernel, cell);
        for id in [copy, cell, template] {
            lab.kernel.end(id, End::Killed).expect("it lives");
        }
        let contents = lab.kernel.add_disk(Arc::clone(&pages) as Arc<_>).expect("room for a disk");
        let id = lab.kernel.import(&image, contents, &[], ROOM).expect("a sound image");
        lab.kernel.prefetch(id).expect("its pages can be read");
        assert!(pages.reads.load(Ordering::Relaxed) <= 128, "{:?} of {} pages read", pages.reads, pages.blocks());
        assert!(faults(&mut lab, id) <= 1);
        lab.kernel.end(id, End::Killed).expect("it is frozen");
        lab.kernel.remove_disk(contents).expect("no cell uses it");
        lab.kernel.free_unused_frames();
        assert_eq!(lab.kernel.free(), free);
    }
}

#[test]
fn a_cell_that_has_written_much_teaches_nothing() {
    for mut lab in Lab::both() {
        let (template, cell) = rewriter(&mut lab, 19);
        lab.kernel.set_prefetch_from_writes(template, template).expect("it lives");
        let pages = lab.kernel.prefetch_set(template).expect("it lives").0;
        assert!(pages > 100, "{pages} pages: all that it wrote itself");
        let data = MapFlags { eager: true, ..MapFlags::lazy(Permissions::READ_WRITE) };
        lab.kernel.map(cell, DATA + (1 << 30), PageCount(2048), data).expect("room for pages");
        lab.kernel.set_prefetch_from_writes(cell, cell).expect("it lives");
        assert_eq!(lab.kernel.prefetch_set(cell), Ok(PageCount(0)), "data at rest is not copied for each clone");
        for id in [cell, template] {
            lab.kernel.end(id, End::Killed).expect("it is frozen");
        }
    }
}
