// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sleep with vCPU threads: slow swap space, short memory, and storms of events.

use pando_abi::layout::VIRTUAL_REGISTERS;
use pando_abi::{Event, Hypercall, MapFlags, PAGE_SIZE, Permissions, Registers};
use pando_kernel::{CellConfig, CellId, Config, End, Kernel, OperatorError, RunState, SleepOutcome};
use pando_machine::kvm::{Kvm, KvmConfig, Omit};
use pando_machine::sim::{Sim, SimConfig};
use pando_machine::{Machine, PageCount};
use pando_testing::asm::Register::{R13, R14, R15, Rax, Rbx, Rsi};
use pando_testing::asm::{Asm, Condition};
use pando_testing::lab::{CODE, DATA, is_kvm_available, repetitions};
use pando_testing::swap::{SwapFault, TestSwap};
use std::iter;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// Exit status of a cell that finds wrong data.
const WRONG: u64 = 99;
/// After this long a test has failed.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Kernels of both kinds with their swap space.
fn kernels(arena: PageCount, vcpus: usize) -> Vec<(Kernel, Arc<TestSwap>)> {
    let sim = Sim::new(SimConfig { arena, vcpus, ..SimConfig::default() }).expect("memory for the software machine");
    iter::once(start(sim)).chain(on_kvm(arena, vcpus)).collect()
}

/// A kernel on KVM, where time passes by itself.
fn on_kvm(arena: PageCount, vcpus: usize) -> Option<(Kernel, Arc<TestSwap>)> {
    is_kvm_available().then(|| start(Kvm::new(KvmConfig { arena, vcpus, omit: Omit::NOTHING }).expect("KVM is there")))
}

fn start(machine: Arc<dyn Machine>) -> (Kernel, Arc<TestSwap>) {
    start_with(machine, None)
}

fn start_with(machine: Arc<dyn Machine>, sleep_after: Option<Duration>) -> (Kernel, Arc<TestSwap>) {
    let swap = Arc::new(TestSwap::default());
    let kernel = Kernel::new(machine, Config { swap: Some(Arc::clone(&swap) as _), sleep_after, ..Config::default() });
    kernel.start_vcpus().expect("vCPU threads start");
    (kernel, swap)
}

/// A cell that writes `pages` pages, and checks and rewrites them whenever [`Event::Console`] comes. [`Event::Interrupt`] ends it with
/// status 0, wrong data with [`WRONG`].
fn checker(kernel: &Kernel, pages: u64) -> CellId {
    let id = built_checker(kernel, pages);
    kernel.start(id).expect("it was not started before");
    id
}

/// The same cell, which is not started.
fn built_checker(kernel: &Kernel, pages: u64) -> CellId {
    let mut asm = Asm::new();
    let (wrong, done) = (asm.label(), asm.label());
    let exit = |asm: &mut Asm, status| {
        asm.call_kernel(Hypercall::Exit { status, signal: 0, address: 0, instruction: 0 });
    };
    let each = |asm: &mut Asm, body: &mut dyn FnMut(&mut Asm)| {
        asm.mov_imm(Rbx, DATA).mov_imm(R15, pages);
        let next = asm.here();
        body(asm);
        asm.add_imm(Rbx, PAGE_SIZE as i32).dec(R15).jump_if(Condition::NotZero, next);
    };
    // R13 counts the rounds, and is in every page.
    asm.mov_imm(R13, 1);
    let round = asm.here();
    each(&mut asm, &mut |asm| {
        asm.store(Rbx, 0, R13);
    });
    // Nothing is masked, and nothing pending.
    asm.mov_imm(Rbx, VIRTUAL_REGISTERS).store_imm(Rbx, 0, 0);
    asm.call_kernel(Hypercall::Idle { deadline: u64::MAX });
    asm.mov_imm(R14, 1 << Event::Interrupt as u64).and(Rax, R14).cmp(Rax, R14).jump_if(Condition::Zero, done);
    each(&mut asm, &mut |asm| {
        asm.load(Rsi, Rbx, 0).cmp(Rsi, R13).jump_if(Condition::NotZero, wrong);
    });
    asm.add_imm(R13, 1).jmp(round).bind(wrong);
    exit(&mut asm, WRONG);
    asm.bind(done);
    exit(&mut asm, 0);
    let code = asm.finish();
    let id = kernel.create(CellConfig { quota: PageCount(pages + 256), host_name: "test".into() }).expect("room for a cell");
    kernel.map(id, CODE, PageCount::covering(code.len() as u64), MapFlags::lazy(Permissions::READ_EXECUTE)).expect("room for its code");
    kernel.write(id, CODE, &code).expect("its code is mapped");
    kernel.map(id, DATA, PageCount(pages), MapFlags::lazy(Permissions::READ_WRITE)).expect("room for its data");
    kernel.set_registers(id, Registers { rip: CODE, ..Registers::default() }).expect("it is not running");
    id
}

/// Waits until a cell is in a state.
fn await_state(kernel: &Kernel, id: CellId, is_there: impl Fn(&RunState) -> bool) {
    let limit = Instant::now() + TIMEOUT;
    loop {
        let state = kernel.inspect(id).expect("it lives").0;
        if is_there(&state) {
            return;
        }
        assert!(Instant::now() < limit, "it is {state:?}: {:?}", kernel.statistics());
        std::thread::yield_now();
    }
}

/// Puts a cell to sleep as soon as it waits.
fn put_to_sleep(kernel: &Kernel, id: CellId) {
    while kernel.sleep(id) != Ok(SleepOutcome::Asleep) {
        std::thread::yield_now();
    }
}

/// Ends a cell by an event. An event that comes while it checks its pages may be lost, so it is repeated.
fn finish(kernel: &Kernel, id: CellId) {
    let limit = Instant::now() + TIMEOUT;
    let outcome = loop {
        assert!(Instant::now() < limit, "it does not end: {:?} {:?}", kernel.inspect(id), kernel.statistics());
        kernel.raise(id, Event::Interrupt);
        match kernel.collect(id) {
            Some(outcome) => break outcome,
            None => std::thread::yield_now(),
        }
    };
    assert_eq!(outcome.end, End::Exited { status: 0 });
}

/// Waits until all memory and swap space is free: a thread may still work on a cell that has ended.
fn check_empty(kernel: &Kernel, swap: &TestSwap, before: PageCount) {
    let limit = Instant::now() + TIMEOUT;
    loop {
        kernel.free_unused_frames();
        let left = (kernel.free(), swap.lengths().len());
        if left == (before, 0) {
            return;
        }
        assert!(Instant::now() < limit, "memory or records are left: {left:?}, {before:?} were free");
        std::thread::yield_now();
    }
}

#[test]
fn a_slow_read_holds_up_no_other_cell() {
    for (kernel, swap) in kernels(PageCount(1 << 14), 2) {
        let before = kernel.free();
        let cells: Vec<CellId> = (0..20).map(|_| checker(&kernel, 3)).collect();
        cells.iter().for_each(|id| put_to_sleep(&kernel, *id));
        let (begins, has_begun) = mpsc::channel();
        let (release, is_released) = mpsc::channel();
        let (ends, has_ended) = mpsc::channel();
        swap.before_read(move || {
            begins.send(()).expect("the test waits");
            let released = is_released.recv_timeout(TIMEOUT);
            ends.send(released).expect("the test waits");
        });
        let (slow, others) = cells.split_first().expect("there are some");
        kernel.raise(*slow, Event::Interrupt);
        has_begun.recv().expect("it is read");
        // They wake up, end, and others fall asleep meanwhile.
        let (last, others) = others.split_last().expect("there are some");
        others.iter().for_each(|id| finish(&kernel, *id));
        kernel.wake(*last).expect("it is asleep");
        assert_eq!(kernel.sleep(*last), Ok(SleepOutcome::Asleep));
        assert!(matches!(kernel.inspect(*slow).expect("it lives").0, RunState::Asleep { .. }));
        assert_eq!(kernel.sleep(*slow), Ok(SleepOutcome::Interrupted), "it wakes up");
        release.send(()).expect("the read waits");
        assert_eq!(has_ended.recv().expect("it is released"), Ok(()), "the others did not wait for it");
        finish(&kernel, *slow);
        finish(&kernel, *last);
        check_empty(&kernel, &swap, before);
    }
}

#[test]
fn a_cell_that_writes_its_record_slowly_holds_up_no_other_cell() {
    for (kernel, swap) in kernels(PageCount(1 << 14), 2) {
        let before = kernel.free();
        let [slow, other] = [(); 2].map(|()| checker(&kernel, 3));
        put_to_sleep(&kernel, other);
        while !matches!(kernel.inspect(slow).expect("it lives").0, RunState::Idle { .. }) {
            std::thread::yield_now();
        }
        let (begins, has_begun) = mpsc::channel();
        let (release, is_released) = mpsc::channel();
        swap.before_put(move || {
            begins.send(()).expect("the test waits");
            is_released.recv_timeout(TIMEOUT).expect("the other did not wait for it");
        });
        std::thread::scope(|scope| {
            let sleep = scope.spawn(|| kernel.sleep(slow));
            has_begun.recv().expect("it is written");
            finish(&kernel, other);
            release.send(()).expect("the write waits");
            assert_eq!(sleep.join().expect("no panic"), Ok(SleepOutcome::Asleep));
        });
        finish(&kernel, slow);
        check_empty(&kernel, &swap, before);
    }
}

#[test]
fn the_record_of_a_large_cell_is_written_and_read_in_chunks() {
    const CHUNK: usize = 512 << 10;
    for (kernel, swap) in kernels(PageCount(1 << 15), 1) {
        let before = kernel.free();
        // A line of 64 bytes and some more for each page.
        let cell = checker(&kernel, 20_000);
        while !matches!(kernel.inspect(cell).expect("it lives").0, RunState::Idle { .. }) {
            std::thread::yield_now();
        }
        // Swap space fills up with the second chunk: nothing is left in it.
        swap.fail(SwapFault::Room(CHUNK + 1));
        assert!(kernel.sleep(cell).expect_err("it has no room").to_string().ends_with("the swap space is full"));
        assert_eq!(swap.lengths(), [0_usize; 0]);
        swap.fail(SwapFault::None);
        for _ in 0..2 {
            put_to_sleep(&kernel, cell);
            let lengths = swap.lengths();
            assert!(lengths.len() == 3 && lengths.iter().all(|length| *length <= CHUNK), "{lengths:?}");
            kernel.raise(cell, Event::Console);
        }
        put_to_sleep(&kernel, cell);
        finish(&kernel, cell);
        // A chunk that is too short, or that is missing at the end, ends its cell alone.
        for length in [0, 1, CHUNK / 2] {
            let cell = checker(&kernel, 20_000);
            put_to_sleep(&kernel, cell);
            swap.fail(SwapFault::Short(length));
            assert!(matches!(kernel.wake(cell), Err(OperatorError::Ended { end: End::Host(_), .. })), "{length}");
            swap.fail(SwapFault::None);
            let _ = kernel.collect(cell);
        }
        check_empty(&kernel, &swap, before);
    }
}

#[test]
fn a_cell_waits_for_its_turn_to_sleep_and_others_wake_up_meanwhile() {
    for (kernel, swap) in kernels(PageCount(1 << 14), 2) {
        let before = kernel.free();
        // One record is written at a time, and one is read.
        kernel.limit_records(0);
        let [first, second, asleep] = [(); 3].map(|()| checker(&kernel, 3));
        put_to_sleep(&kernel, asleep);
        for id in [first, second] {
            while !matches!(kernel.inspect(id).expect("it lives").0, RunState::Idle { .. }) {
                std::thread::yield_now();
            }
        }
        let (begins, has_begun) = mpsc::channel();
        let (release, is_released) = mpsc::channel();
        swap.before_put(move || {
            begins.send(()).expect("the test waits");
            is_released.recv_timeout(TIMEOUT).expect("the others do not wait for it");
        });
        std::thread::scope(|scope| {
            let kernel = &kernel;
            let one = scope.spawn(move || kernel.sleep(first));
            has_begun.recv().expect("it is written");
            let other = scope.spawn(move || kernel.sleep(second));
            for _ in 0..1000 {
                kernel.wake(asleep).expect("it lives");
                let state = kernel.inspect(second).expect("it lives").0;
                assert!(matches!(state, RunState::Idle { .. }), "it is awake until it is its turn: {state:?}");
                std::thread::yield_now();
            }
            release.send(()).expect("the write waits");
            for sleep in [one, other] {
                assert_eq!(sleep.join().expect("no panic"), Ok(SleepOutcome::Asleep));
            }
        });
        [first, second, asleep].iter().for_each(|id| finish(&kernel, *id));
        check_empty(&kernel, &swap, before);
    }
}

/// More cells than fit: each event wakes one up, for which others fall asleep.
#[test]
fn a_storm_of_events_among_more_cells_than_fit_ends_none_of_them() {
    storm_among_more_cells_than_fit(u64::MAX);
}

/// A cell that wakes up waits for another one to fall asleep, and neither waits for a record of the other kind.
#[test]
fn a_storm_ends_no_cell_if_one_record_is_written_and_one_is_read_at_a_time() {
    storm_among_more_cells_than_fit(0);
}

fn storm_among_more_cells_than_fit(record_bytes: u64) {
    const PAGES: u64 = 48;
    if let Some((kernel, swap)) = on_kvm(PageCount(1 << 11), 2) {
        kernel.limit_records(record_bytes);
        let before = kernel.free();
        let cells: Vec<CellId> = (0..2 * before.0 / PAGES).map(|_| checker(&kernel, PAGES)).collect();
        // All of them write their pages before they wait, so that some have to sleep.
        let limit = Instant::now() + TIMEOUT;
        while kernel.sleep_counters().pressure_sleeps == 0 {
            assert!(Instant::now() < limit, "memory is not short: {:?}", kernel.statistics());
            std::thread::yield_now();
        }
        let storm = |seed: u64| {
            let mut random = fastrand::Rng::with_seed(seed);
            for _ in 0..repetitions(100, 1000, 20_000) {
                let id = cells[random.usize(..cells.len())];
                match random.u8(..8) {
                    0 => drop(kernel.sleep(id)),
                    1 => kernel.wake(id).expect("it lives"),
                    _ => kernel.raise(id, Event::Console),
                }
            }
        };
        std::thread::scope(|scope| {
            (0..3).for_each(|seed| drop(scope.spawn(move || storm(seed))));
        });
        cells.iter().for_each(|id| finish(&kernel, *id));
        let counters = kernel.sleep_counters();
        assert!(counters.restore_failures == 0, "{counters:?}");
        check_empty(&kernel, &swap, before);
    }
}

/// Memory that another thread frees is waited for: it ends neither the cell that falls asleep nor another one.
#[test]
fn a_cell_waits_until_another_one_has_fallen_asleep_on_request() {
    if let Some((kernel, swap)) = on_kvm(PageCount(1 << 13), 2) {
        let before = kernel.free();
        let large = checker(&kernel, 2000);
        await_state(&kernel, large, |state| matches!(state, RunState::Idle { .. }));
        let small = built_checker(&kernel, 300);
        kernel.free_unused_frames();
        kernel.withhold(PageCount(kernel.free().0 - 100));
        let (begins, has_begun) = mpsc::channel();
        let (release, is_released) = mpsc::channel();
        swap.before_put(move || {
            begins.send(()).expect("the test waits");
            is_released.recv_timeout(2 * TIMEOUT).expect("the test goes on");
        });
        std::thread::scope(|scope| {
            let sleep = scope.spawn(|| kernel.sleep(large));
            has_begun.recv().expect("the record is written");
            kernel.start(small).expect("it was not started before");
            await_state(&kernel, small, |state| matches!(state, RunState::AwaitingMemory));
            release.send(()).expect("the write waits");
            assert_eq!(sleep.join().expect("no panic"), Ok(SleepOutcome::Asleep));
        });
        await_state(&kernel, small, |state| matches!(state, RunState::Idle { .. }));
        kernel.withhold(PageCount(0));
        [large, small].iter().for_each(|id| finish(&kernel, *id));
        check_empty(&kernel, &swap, before);
    }
}

#[test]
fn a_queued_cell_is_admitted_when_less_memory_is_withheld() {
    for (kernel, swap) in kernels(PageCount(1 << 13), 1) {
        let before = kernel.free();
        let waits = built_checker(&kernel, 3);
        kernel.free_unused_frames();
        kernel.withhold(kernel.free());
        kernel.start(waits).expect("it was not started before");
        assert!(matches!(kernel.inspect(waits).expect("it lives").0, RunState::AwaitingAdmission));
        kernel.withhold(PageCount(0));
        await_state(&kernel, waits, |state| matches!(state, RunState::Idle { .. }));
        finish(&kernel, waits);
        check_empty(&kernel, &swap, before);
    }
}

/// Without room in swap space, memory that is short ends the largest cell, as without sleep. The others go on.
#[test]
fn if_swap_space_is_full_the_largest_cell_ends() {
    if let Some((kernel, swap)) = on_kvm(PageCount(1 << 11), 1) {
        let before = kernel.free();
        swap.fail(SwapFault::Full);
        let small = checker(&kernel, 3);
        let large = checker(&kernel, before.0 / 2);
        while !matches!(kernel.inspect(large).expect("it lives").0, RunState::Idle { .. }) {
            std::thread::yield_now();
        }
        let wants = checker(&kernel, before.0 / 3 * 2);
        assert_eq!(kernel.wait(large).expect("it ends").end, End::MachineFull);
        finish(&kernel, small);
        finish(&kernel, wants);
        check_empty(&kernel, &swap, before);
    }
}

#[test]
fn a_cell_that_could_not_sleep_is_tried_again_without_an_event() {
    if !is_kvm_available() {
        return;
    }
    let machine = Kvm::new(KvmConfig { arena: PageCount(1 << 13), vcpus: 1, omit: Omit::NOTHING }).expect("KVM is there");
    let (kernel, swap) = start_with(machine, Some(Duration::from_millis(1)));
    let before = kernel.free();
    // It masks all events, and waits for ever.
    let mut asm = Asm::new();
    asm.mov_imm(Rbx, VIRTUAL_REGISTERS).store_imm(Rbx, 8, -1).call_kernel(Hypercall::Idle { deadline: u64::MAX });
    let code = asm.finish();
    let id = kernel.create(CellConfig { quota: PageCount(256), host_name: "test".into() }).expect("room for a cell");
    kernel.map(id, CODE, PageCount::covering(code.len() as u64), MapFlags::lazy(Permissions::READ_EXECUTE)).expect("room for its code");
    kernel.write(id, CODE, &code).expect("its code is mapped");
    kernel.set_registers(id, Registers { rip: CODE, ..Registers::default() }).expect("it is not running");
    kernel.start(id).expect("it was not started before");
    let is_asleep = || matches!(kernel.inspect(id).expect("it lives").0, RunState::Asleep { .. });
    let wait_until = |condition: &dyn Fn() -> bool| {
        let limit = Instant::now() + TIMEOUT;
        while !condition() {
            assert!(Instant::now() < limit, "{:?} {:?}", kernel.inspect(id), kernel.statistics());
            std::thread::yield_now();
        }
    };
    wait_until(&is_asleep);
    kernel.raise(id, Event::Console);
    assert!(is_asleep(), "a masked event wakes nobody");
    // The write wakes it up. With the event unmasked, it cannot sleep again.
    kernel.write(id, VIRTUAL_REGISTERS + 8, &0_u64.to_le_bytes()).expect("it is mapped");
    let refused = kernel.sleep_counters().refused;
    wait_until(&|| kernel.sleep_counters().refused >= refused + 2);
    assert!(!is_asleep());
    kernel.write(id, VIRTUAL_REGISTERS + 8, &u64::MAX.to_le_bytes()).expect("it is mapped");
    wait_until(&is_asleep);
    kernel.end(id, End::Killed).expect("it lives");
    check_empty(&kernel, &swap, before);
}
