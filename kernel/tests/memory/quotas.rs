// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exhaustion of memory: each cell pays only for itself, and fresh memory is always zero.

use pando_abi::memory::CURRENT_SPACE;
use pando_abi::{Hypercall, MapFlags, PAGE_SIZE, Permissions, Refusal};
use pando_kernel::limits::FLUSH_INTERVAL;
use pando_kernel::{CellId, Config, End};
use pando_machine::PageCount;
use pando_machine::kvm::Omit;
use pando_testing::asm::Register::{R12, Rax, Rbx, Rcx, Rdi, Rdx, Rsi};
use pando_testing::asm::{Asm, Condition, Register};
use pando_testing::lab::{DATA, Lab, is_kvm_available, repetitions};

/// Address of the cells' own mappings: far from everything else, at the start of a large page.
const BIG: u64 = 0x4000_0000;
/// A quota that covers a cell's initial memory and little more.
const SMALL: PageCount = PageCount(300);
/// Exit status of a cell whose checks succeed.
const FINE: u64 = 7;
/// Exit status of a cell with a failed check.
const WRONG: u64 = 8;
/// A machine that is soon full: 7.5 large pages' worth of frames for cells.
const SMALL_ARENA: PageCount = PageCount(9 << 9);

const LAZY: MapFlags = MapFlags::lazy(Permissions::READ_WRITE);
const EAGER: MapFlags = MapFlags::eager(Permissions::READ_WRITE);

const fn exit(status: u64) -> Hypercall {
    Hypercall::Exit { status, signal: 0, address: 0, instruction: 0 }
}

const fn map(pages: u64, flags: MapFlags) -> Hypercall {
    Hypercall::Map { space: CURRENT_SPACE, address: BIG, pages, flags: flags.bits() }
}

const fn unmap(pages: u64) -> Hypercall {
    Hypercall::Unmap { space: CURRENT_SPACE, address: BIG, pages }
}

/// Exits with [`WRONG`] unless `register` holds `value`.
fn must_be(asm: &mut Asm, register: Register, value: u64) {
    let fine = asm.label();
    asm.mov_imm(Rsi, value).cmp(register, Rsi).jump_if(Condition::Zero, fine);
    asm.call_kernel(exit(WRONG));
    asm.bind(fine);
}

/// Writes a word into each of `pages` pages.
fn touch(asm: &mut Asm, pages: u64) {
    asm.mov_imm(Rcx, BIG).mov_imm(Rdx, pages);
    let again = asm.here();
    asm.store(Rcx, 0, Rcx).add_imm(Rcx, PAGE_SIZE as i32).dec(Rdx).jump_if(Condition::NotZero, again);
}

/// A cell with a quota, started.
fn launch(lab: &Lab, quota: PageCount, assemble: impl FnOnce(&mut Asm)) -> CellId {
    let mut asm = Asm::new();
    assemble(&mut asm);
    let id = lab.cell_with(&asm.finish(), quota);
    lab.kernel.start(id).expect("it was not started before");
    id
}

/// A cell that repeatedly writes into each of its pages and reads them again, and exits after `rounds` rounds.
fn neighbour(lab: &Lab, rounds: u64) -> CellId {
    lab.launch(|asm| {
        asm.mov_imm(Rbx, DATA).mov_imm(R12, rounds);
        let again = asm.here();
        for page in 0..8 {
            asm.store(Rbx, page * PAGE_SIZE as i32, R12);
        }
        asm.call_kernel(Hypercall::Relinquish {});
        for page in 0..8 {
            let fine = asm.label();
            asm.load(Rax, Rbx, page * PAGE_SIZE as i32).cmp(Rax, R12).jump_if(Condition::Zero, fine);
            asm.call_kernel(exit(WRONG));
            asm.bind(fine);
        }
        asm.dec(R12).jump_if(Condition::NotZero, again);
        asm.call_kernel(exit(FINE));
    })
}

/// Small machines of both kinds.
fn small_labs() -> Vec<Lab> {
    let mut labs = vec![Lab::sim(1, SMALL_ARENA, 1, Config::default())];
    if is_kvm_available() {
        labs.push(Lab::kvm(SMALL_ARENA, 1, Config::default(), Omit::NOTHING));
    }
    labs
}

fn assert_fine(lab: &mut Lab, id: CellId) {
    assert_eq!(lab.finish(id).end, End::Exited { status: FINE as u8 });
}

/// Checks that all cells have ended and all memory is free.
fn assert_clear(lab: &Lab, before: PageCount) {
    assert_eq!(lab.kernel.cells(), 0);
    lab.kernel.free_unused_frames();
    assert_eq!(lab.kernel.free(), before);
}

#[test]
fn a_cell_that_touches_more_than_its_quota_ends_and_says_so() {
    for mut lab in Lab::both() {
        let before = lab.kernel.free();
        let friend = neighbour(&lab, 20);
        let greedy = launch(&lab, SMALL, |asm| {
            asm.call_kernel(map(10_000, LAZY));
            touch(asm, 10_000);
            asm.call_kernel(exit(WRONG));
        });
        let outcome = lab.finish(greedy);
        assert_eq!(outcome.end, End::Quota);
        assert!(outcome.usage.peak <= SMALL, "{:?}", outcome.usage);
        assert!(outcome.usage.peak.0 > SMALL.0 - 20, "it had nearly all of its quota: {:?}", outcome.usage);
        assert_fine(&mut lab, friend);
        assert_clear(&lab, before);
    }
}

#[test]
fn a_cell_ends_when_the_host_refuses_the_machine_memory_that_counts_as_free() {
    let mut lab = Lab::sim(1, SMALL_ARENA, 1, Config::default());
    let before = lab.kernel.free();
    lab.sim.as_ref().expect("the lab is on the software machine").limit_huge_frames(2);
    let greedy = launch(&lab, PageCount(4_000), |asm| {
        asm.call_kernel(map(2_000, LAZY));
        touch(asm, 2_000);
        asm.call_kernel(exit(WRONG));
    });
    let outcome = lab.finish(greedy);
    assert_eq!(outcome.end, End::MachineFull);
    assert!(outcome.usage.peak.0 > 490, "it had nearly all that the machine had: {:?}", outcome.usage);
    assert_clear(&lab, before);
}

#[test]
fn a_cell_that_asks_for_more_than_its_quota_at_once_is_refused_and_goes_on() {
    for mut lab in Lab::both() {
        let before = lab.kernel.free();
        let modest = launch(&lab, SMALL, |asm| {
            for flags in [EAGER, MapFlags { large: true, ..EAGER }] {
                asm.call_kernel(map(10_000, flags));
                must_be(asm, Rax, Refusal::Quota.to_result());
                asm.call_kernel(unmap(10_000));
                must_be(asm, Rax, 0);
                asm.call_kernel(map(100, EAGER));
                must_be(asm, Rax, 0);
                touch(asm, 100);
                asm.call_kernel(unmap(100));
            }
            asm.call_kernel(exit(FINE));
        });
        assert_fine(&mut lab, modest);
        assert_clear(&lab, before);
    }
}

#[test]
fn a_clone_is_charged_for_its_writes_and_ends_at_its_quota() {
    for mut lab in Lab::both() {
        let before = lab.kernel.free();
        let template = launch(&lab, PageCount(4_000), |asm| {
            asm.call_kernel(map(1_000, EAGER)).call_kernel(Hypercall::Freeze {});
            touch(asm, 1_000);
            asm.call_kernel(exit(FINE));
        });
        lab.run_all();
        let free = lab.kernel.free();
        let clones = [SMALL, PageCount(2_000)].map(|quota| lab.kernel.clone_cell(template, quota).expect("a template can be cloned"));
        assert_eq!(lab.kernel.free(), free, "a clone reserves nothing");
        for clone in clones {
            lab.kernel.start(clone).expect("it was not started before");
        }
        let [poor, rich] = clones.map(|clone| lab.finish(clone));
        assert_eq!((poor.end, rich.end), (End::Quota, End::Exited { status: FINE as u8 }));
        assert!(rich.usage.peak.0 > 1_000, "it has a copy of each page: {:?}", rich.usage);
        lab.kernel.end(template, End::Killed).expect("a template lives until it is ended");
        assert_clear(&lab, before);
    }
}

/// Maps, writes and unmaps `rounds` times: each round retires tables.
fn churn(asm: &mut Asm, rounds: u64) {
    asm.mov_imm(R12, rounds);
    let again = asm.here();
    asm.call_kernel(map(30, LAZY));
    must_be(asm, Rax, 0);
    touch(asm, 30);
    asm.call_kernel(unmap(30));
    must_be(asm, Rax, 0);
    asm.dec(R12).jump_if(Condition::NotZero, again);
    asm.call_kernel(exit(FINE));
}

#[test]
fn a_cell_that_churns_waits_for_its_own_quarantine_and_goes_on() {
    for mut lab in Lab::both() {
        let before = lab.kernel.free();
        let rounds = u64::from(repetitions(100, 500, 5_000));
        let started = lab.kernel.now();
        let churner = launch(&lab, SMALL, |asm| churn(asm, rounds));
        let friend = neighbour(&lab, 5);
        assert_fine(&mut lab, friend);
        // Where time is virtual, this is certain: the other cell did not wait for flushes.
        assert!(lab.sim.is_none() || lab.kernel.inspect(churner).is_ok());
        let outcome = lab.finish(churner);
        assert_eq!(outcome.end, End::Exited { status: FINE as u8 });
        assert!(outcome.usage.peak <= SMALL, "{:?}", outcome.usage);
        // It retires at least a table per round, and its quota bounds their number. Flushes come no faster than this.
        let flushes = rounds / SMALL.0;
        assert!(lab.kernel.now() >= started + FLUSH_INTERVAL * flushes.saturating_sub(1) as u32, "{flushes} flushes in no time");
        assert_clear(&lab, before);
    }
}

#[test]
fn on_a_full_machine_the_largest_cell_goes_and_its_neighbours_stay() {
    for mut lab in small_labs() {
        let before = lab.kernel.free();
        let friends: Vec<CellId> = (0..4).map(|_| neighbour(&lab, 100)).collect();
        let hog = launch(&lab, PageCount(1 << 20), |asm| {
            asm.call_kernel(map(1 << 20, LAZY));
            touch(asm, 1 << 20);
            asm.call_kernel(exit(WRONG));
        });
        assert_eq!(lab.finish(hog).end, End::MachineFull);
        for friend in friends {
            assert_fine(&mut lab, friend);
        }
        assert_clear(&lab, before);
    }
}

#[test]
fn on_a_full_machine_the_largest_cell_goes_also_when_another_needs_the_page() {
    for mut lab in small_labs() {
        let before = lab.kernel.free();
        let hog = launch(&lab, PageCount(1 << 20), |asm| {
            // Nearly all memory, and then it waits.
            asm.call_kernel(map(before.0 - 200, LAZY));
            touch(asm, before.0 - 200);
            asm.call_kernel(Hypercall::Idle { deadline: u64::MAX });
        });
        lab.run_all();
        let needy = launch(&lab, PageCount(4_000), |asm| {
            asm.call_kernel(map(500, LAZY));
            touch(asm, 500);
            asm.call_kernel(exit(FINE));
        });
        assert_fine(&mut lab, needy);
        assert_eq!(lab.kernel.collect(hog).map(|outcome| outcome.end), Some(End::MachineFull));
        assert_clear(&lab, before);
    }
}

#[test]
fn a_cell_that_asks_for_more_than_the_machine_has_is_refused_and_goes_on() {
    for mut lab in small_labs() {
        let before = lab.kernel.free();
        let friend = neighbour(&lab, 50);
        let hog = launch(&lab, PageCount(1 << 20), |asm| {
            asm.call_kernel(map(1 << 20, EAGER));
            must_be(asm, Rax, Refusal::NoMemory.to_result());
            asm.call_kernel(unmap(1 << 20));
            must_be(asm, Rax, 0);
            asm.call_kernel(map(100, EAGER));
            must_be(asm, Rax, 0);
            asm.call_kernel(exit(FINE));
        });
        assert_fine(&mut lab, hog);
        assert_fine(&mut lab, friend);
        assert_clear(&lab, before);
    }
}

#[test]
fn fresh_memory_is_zero_whoever_had_it_before() {
    const PAGES: u64 = 1_500;
    for mut lab in small_labs() {
        let before = lab.kernel.free();
        for flags in [LAZY, EAGER, MapFlags { large: true, ..LAZY }, MapFlags { large: true, ..EAGER }] {
            // Nearly every frame is written by a cell that is then ended.
            lab.kernel.free_unused_frames();
            let dirty = lab.cell_with(&[0xcc], PageCount(1 << 20));
            let pages = before.0 - 100;
            lab.kernel.map(dirty, BIG, PageCount(pages), LAZY).expect("room for tables");
            for page in 0..pages {
                lab.kernel.write(dirty, BIG + page * PAGE_SIZE, &[0xff; PAGE_SIZE as usize]).expect("room for the page");
            }
            lab.kernel.end(dirty, End::Killed).expect("it lives");
            let _ = lab.kernel.collect(dirty);
            lab.kernel.free_unused_frames();
            let reader = launch(&lab, PageCount(1 << 20), |asm| {
                asm.call_kernel(map(PAGES, flags));
                must_be(asm, Rax, 0);
                asm.mov_imm(Rbx, BIG).mov_imm(Rcx, PAGES * PAGE_SIZE / 8).mov_imm(Rdi, 0);
                let again = asm.here();
                asm.load(Rax, Rbx, 0).or(Rdi, Rax).add_imm(Rbx, 8).dec(Rcx).jump_if(Condition::NotZero, again);
                must_be(asm, Rdi, 0);
                asm.call_kernel(exit(FINE));
            });
            assert_fine(&mut lab, reader);
        }
        assert_clear(&lab, before);
    }
}
