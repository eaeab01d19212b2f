// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of situations that no cell can cause alone: the time between a fault's answer and its retry, when other vCPUs may do
//! anything, and an idle kernel. And of the checks that operations have in common.

use super::error::OperationError;
use super::invoke::Subject;
use super::state::{Notifications, State};
use super::{Config, Kernel, OperatorError};
use crate::cell::child_operation::{ChildLimits, ChildOperation};
use crate::cell::cpu_limit::{CpuLimit, Weight};
use crate::cell::end::End;
use crate::cell::freeze::FreezeMode;
use crate::cell::memory_operation::OperationProgress;
use crate::cell::operation::Operation;
use crate::cell::{CellConfig, CellId};
use crate::limits::{IDLE_BEFORE_TRIM, QUANTUM, RESERVED_HUGE_FRAMES, TRIM_INTERVAL};
use crate::memory::Frames;
use crate::sched::donation::Donation;
use pando_abi::layout::VIRTUAL_REGISTERS;
use pando_abi::{Event, HoldingName, MapFlags, Permissions, Refusal};
use pando_machine::sim::{Sim, SimConfig};
use pando_machine::{EntryIndex, Exception, Exit, FRAMES_PER_HUGE_FRAME, FrameId, HugeFrame, Machine, Nanos, PageCount};
use std::sync::Arc;
use std::time::{Duration, Instant};

const ADDRESS: u64 = 0x1000_0000;
/// An address for large pages.
const LARGE: u64 = 0x4000_0000;
/// Bits of a page fault's error code: present, write, user.
const WRITE_TO_PRESENT: u64 = 7;

fn kernel() -> Kernel {
    let machine = Sim::new(SimConfig { arena: PageCount(4096), ..SimConfig::default() }).expect("a small machine");
    Kernel::new(machine as Arc<dyn Machine>, Config::default())
}

/// All free frames, taken and released.
fn free_frames(frames: &mut Frames) -> Vec<FrameId> {
    let account = frames.open_account(PageCount(1 << 20), None);
    let taken: Vec<_> = std::iter::from_fn(|| frames.allocate(account, false).ok()).collect();
    taken.iter().for_each(|frame| frames.release(*frame));
    frames.close_account(account);
    taken
}

/// Brings a clone to its first write to a page that only it and its source share, just after the kernel has resolved the fault.
/// Returns the source, the clone and the frame of the shared page.
fn at_the_retry(kernel: &Kernel) -> (CellId, CellId, FrameId) {
    let quota = PageCount(1024);
    let source = kernel.create(CellConfig { quota, host_name: String::new() }).expect("room for a cell");
    let flags = MapFlags::eager(Permissions::READ_WRITE);
    kernel.map(source, ADDRESS, PageCount(1), flags).expect("room for a page");
    kernel.write(source, ADDRESS, b"shared").expect("the page is there");
    let clone = kernel.clone_cell(source, quota).expect("room for a clone");
    let mut state = kernel.shared.lock();
    let (live, frames) = state.living(clone).expect("it was just made");
    let space = live.cell.memory.current();
    let found = live.cell.memory.inspect(frames, space, ADDRESS).expect("the space is there").expect("the slot is in use");
    let shared = found.frame(0).expect("the page is there");
    let fault = Exception { vector: Exception::PAGE_FAULT, error: WRITE_TO_PRESENT, address: ADDRESS };
    assert!(fault.is_write());
    let _ = state.handle(clone, Exit::Exception(fault), Nanos(0), Nanos::NEVER);
    (source, clone, shared)
}

#[test]
fn a_replaced_page_is_kept_until_the_write_is_confirmed() {
    for exit in [Exit::Hypercall, Exit::Interrupted] {
        let kernel = kernel();
        let (source, clone, shared) = at_the_retry(&kernel);
        kernel.end(source, End::Killed).expect("it lives");
        kernel.free_unused_frames();
        assert!(!free_frames(&mut kernel.shared.lock().frames).contains(&shared), "the clone's vCPU may still read it");
        let _ = kernel.shared.lock().handle(clone, exit, Nanos(0), Nanos::NEVER);
        kernel.free_unused_frames();
        assert!(free_frames(&mut kernel.shared.lock().frames).contains(&shared), "nobody can read it any more");
    }
}

#[test]
fn a_cell_that_ends_before_its_retry_leaves_nothing_behind() {
    let kernel = kernel();
    let before = kernel.free();
    let (source, clone, _) = at_the_retry(&kernel);
    for cell in [clone, source] {
        kernel.end(cell, End::Killed).expect("it lives");
    }
    kernel.free_unused_frames();
    assert_eq!(kernel.free(), before);
}

#[test]
fn an_idle_kernel_gives_memory_back_and_has_it_all_the_same() {
    let machine = Sim::new(SimConfig { arena: PageCount(1 << 16), ..SimConfig::default() }).expect("a small machine");
    let kernel = Kernel::new(Arc::clone(&machine) as Arc<dyn Machine>, Config::default());
    let before = kernel.free();
    let huge_frames = || (1..machine.arena().huge_frames()).map(HugeFrame);
    let written = || huge_frames().filter(|huge_frame| machine.arena().load(huge_frame.first(), EntryIndex::new(0)) != 0).count();
    for _ in 0..2 {
        let cell = kernel.create(CellConfig { quota: before, host_name: String::new() }).expect("room for a cell");
        let pages = PageCount(before.0 * 9 / 10);
        let flags = MapFlags { permissions: Permissions::READ_WRITE, eager: true, large: true };
        kernel.map(cell, LARGE, pages, flags).expect("room for its pages");
        for page in 0..pages.0 {
            kernel.write(cell, LARGE + page * 4096, b"content.").expect("it is mapped");
        }
        assert!(written() > 2 * RESERVED_HUGE_FRAMES);
        kernel.end(cell, End::Killed).expect("it lives");
        kernel.free_unused_frames();
        while kernel.shared.give_back(kernel.shared.lock(), RESERVED_HUGE_FRAMES) {}
        assert!(written() <= RESERVED_HUGE_FRAMES + 2, "{} huge frames have content", written());
        assert_eq!(kernel.free(), before);
    }
}

/// The frames of a machine, without the machine's own, that contain something.
fn frames_with_content(machine: &Sim) -> usize {
    let frames = FRAMES_PER_HUGE_FRAME..machine.arena().frames();
    frames.filter(|frame| machine.arena().load_table(FrameId(*frame)).iter().any(|word| *word != 0)).count()
}

#[test]
fn an_idle_kernel_trims_its_memory_once() {
    let machine = Sim::new(SimConfig { arena: PageCount(1 << 13), ..SimConfig::default() }).expect("a small machine");
    let kernel = Kernel::new(Arc::clone(&machine) as Arc<dyn Machine>, Config { reclaims_idle_memory: true, ..Config::default() });
    let cell = kernel.create(CellConfig { quota: PageCount(4096), host_name: String::new() }).expect("room for a cell");
    let write = |content: &[u8], every: usize| {
        kernel.map(cell, ADDRESS, PageCount(2048), MapFlags::lazy(Permissions::READ_WRITE)).expect("room for its pages");
        (0..2048).step_by(every).for_each(|page| kernel.write(cell, ADDRESS + page * 4096, content).expect("it is mapped"));
    };
    write(b"content.", 1);
    // Replaces them by a sixteenth: scattered frames, between free ones that contain something.
    write(b"another.", 16);
    kernel.free_unused_frames();
    let free = kernel.free();
    assert!(frames_with_content(&machine) > 1024);
    assert!(!kernel.shared.trim(), "no cell has run");
    let ran = machine.now();
    kernel.shared.lock().trims.note_run(ran);
    assert!(!kernel.shared.trim(), "it has just run");
    machine.advance_to(ran + IDLE_BEFORE_TRIM);
    assert_eq!(kernel.shared.lock().next_trim(), ran + IDLE_BEFORE_TRIM);
    assert!(kernel.shared.trim());
    assert_eq!((kernel.free(), kernel.shared.lock().next_trim()), (free, Nanos::NEVER));
    let left = frames_with_content(&machine);
    assert!(left < 128 + 64, "{left} frames still contain something");
    let mut content = [0; 8];
    kernel.read(cell, ADDRESS + 16 * 4096, &mut content).expect("it is mapped");
    assert_eq!(&content, b"another.");
    // The next one waits for the interval.
    let now = machine.now();
    kernel.shared.lock().trims.note_run(now);
    assert_eq!(kernel.shared.lock().next_trim(), ran + IDLE_BEFORE_TRIM + TRIM_INTERVAL);
}

#[test]
fn the_operators_calls_about_memory_are_checked_as_hypercalls_are() {
    let kernel = kernel();
    let cell = kernel.create(CellConfig { quota: PageCount(1024), host_name: String::new() }).expect("room for a cell");
    let (page, flags) = (PageCount(1), MapFlags::lazy(Permissions::READ_WRITE));
    let reserved = Err(OperatorError::Refused(Refusal::ReadOnly));
    assert_eq!(kernel.map(cell, VIRTUAL_REGISTERS, page, flags), reserved);
    assert_eq!(kernel.protect(cell, VIRTUAL_REGISTERS, page, Permissions::READ), reserved);
    assert!(matches!(kernel.map(cell, ADDRESS + 1, page, flags), Err(OperatorError::Refused(_))), "it is not aligned");
    assert_eq!(kernel.map(cell, ADDRESS, page, flags), Ok(()));
}

#[test]
fn a_cell_is_started_once() {
    let kernel = kernel();
    let cell = kernel.create(CellConfig { quota: PageCount(1024), host_name: String::new() }).expect("room for a cell");
    assert_eq!(kernel.start(cell), Ok(()));
    let again = kernel.start(cell).expect_err("it was started").to_string();
    assert_eq!(again, format!("cannot start cell {cell}: it is runnable; use a cell that was not started, such as a new clone"));
}

/// Invokes an operation on a cell that allows it.
fn invoke(state: &mut State, cell: CellId, mut operation: Operation) -> u64 {
    match state.invoke(Subject::Cell(cell), &mut operation) {
        Ok(OperationProgress::Done(result)) => result,
        other => panic!("{operation:?}: {other:?}"),
    }
}

/// A chain of cells that were not started, each the child of the one before.
fn chain(state: &mut State, top: CellId, children: usize) -> Vec<CellId> {
    let mut chain = vec![top];
    for _ in 0..children {
        let parent = *chain.last().expect("it has the top");
        invoke(state, parent, Operation::LimitCells(10));
        let root = invoke(state, parent, Operation::Grant { template: top });
        assert_eq!(root, HoldingName::ROOT.bits());
        let limits = ChildLimits { quota: PageCount(300), cells: 10 };
        let _ = state.act_on_holding(parent, &mut ChildOperation::Clone { source: HoldingName::ROOT, limits }).expect("room for a child");
        let (live, _) = state.living(parent).expect("it lives");
        let child = live.holdings.children().next().expect("it was just made").1;
        chain.push(child);
    }
    chain
}

#[test]
fn an_idle_vcpu_ends_the_family_of_a_cell_that_has_ended() {
    let kernel = kernel();
    let top = kernel.create(CellConfig { quota: PageCount(2000), host_name: String::new() }).expect("room for a cell");
    chain(&mut kernel.shared.lock(), top, 3);
    kernel.start_vcpus().expect("a vCPU thread starts");
    let deadline = Instant::now() + Duration::from_secs(30);
    while kernel.shared.lock().idle_workers == 0 {
        assert!(Instant::now() < deadline, "the vCPU has nothing to do");
        std::thread::yield_now();
    }
    {
        let mut state = kernel.shared.lock();
        state.end(top, End::Killed);
        kernel.shared.notify(&mut state);
    }
    while kernel.cells() > 0 {
        assert!(Instant::now() < deadline, "{} cells of the family still live", kernel.cells());
        std::thread::yield_now();
    }
}

#[test]
fn a_cpu_limit_holds_for_a_turn_in_which_a_cell_of_the_family_ends() {
    let kernel = kernel();
    let top = kernel.create(CellConfig { quota: PageCount(2000), host_name: String::new() }).expect("room for a cell");
    let state = &mut *kernel.shared.lock();
    let chain = chain(state, top, 3);
    let limit = CpuLimit::new(0.5).expect("a part");
    invoke(state, top, Operation::LimitCpu(limit));
    invoke(state, chain[3], Operation::Start);
    assert!(state.admit_all());
    let slice = state.pick(Nanos(0), 0).expect("the last child is runnable");
    assert_eq!(slice.cell, chain[3]);
    state.end(chain[1], End::Killed);
    state.charge(&slice, limit.budget() / 5);
    let left = state.living(top).and_then(|(live, _)| live.cpu_budget.as_mut()).map(|cpu_budget| cpu_budget.left(Nanos(0)));
    assert_eq!(left, Some(Ok(limit.budget() * 4 / 5)));
}

#[test]
fn a_donation_takes_no_more_than_the_rest_of_the_donors_quantum() {
    let kernel = kernel();
    let top = kernel.create(CellConfig { quota: PageCount(2000), host_name: String::new() }).expect("room for a cell");
    let state = &mut *kernel.shared.lock();
    let chain = chain(state, top, 1);
    for id in &chain {
        invoke(state, *id, Operation::Start);
    }
    assert!(state.admit_all());
    let rest = QUANTUM / 3;
    let (live, _) = state.living(top).expect("it lives");
    live.donation = Some(Box::new(Donation::new(chain[1], Duration::MAX)));
    live.execution.quantum_left = rest;
    let slice = state.pick(Nanos(0), 0).expect("both are runnable");
    assert_eq!((slice.cell, slice.max), (chain[1], rest));
}

#[test]
fn a_cell_that_has_weight_0_no_more_wakes_a_vcpu() {
    let kernel = kernel();
    let cell = kernel.create(CellConfig { quota: PageCount(1024), host_name: String::new() }).expect("room for a cell");
    let state = &mut *kernel.shared.lock();
    let set_weight = |state: &mut State, weight| {
        state.notifications = Notifications::default();
        let weight = Weight::new(weight).expect("a weight");
        invoke(state, cell, Operation::SetWeight(weight));
        (state.notifications.has_runnable_cell, state.scheduler.is_empty())
    };
    assert_eq!(set_weight(state, 0), (false, true));
    invoke(state, cell, Operation::Start);
    assert!(state.admit_all());
    assert_eq!(set_weight(state, 0), (false, true));
    assert_eq!(set_weight(state, 100), (true, false));
    assert_eq!(set_weight(state, 50), (false, false));
}

#[test]
fn an_operation_without_its_subject_changes_nothing() {
    let kernel = kernel();
    let before = kernel.free();
    let cell = kernel.create(CellConfig { quota: PageCount(1024), host_name: String::new() }).expect("room for a cell");
    let operations = || {
        [
            Operation::Clone { quota: PageCount(1024) },
            Operation::Start,
            Operation::End(End::Killed),
            Operation::Freeze(FreezeMode::Cooperative),
            Operation::WithdrawFreeze,
            Operation::SetHostName("name".into()),
            Operation::Raise(Event::Interrupt),
        ]
    };
    for mut operation in operations() {
        let refused = kernel.shared.lock().invoke(Subject::Machine, &mut operation);
        assert!(matches!(refused, Err(OperationError::Memory(_))), "{operation:?}");
    }
    kernel.end(cell, End::Killed).expect("it lives");
    for mut operation in operations() {
        let ended = kernel.shared.lock().invoke(Subject::Cell(cell), &mut operation);
        assert!(matches!(ended, Err(OperationError::Ended { cell: id, end: End::Killed }) if id == cell), "{operation:?}");
    }
    kernel.collect(cell).expect("it has ended");
    for mut operation in operations() {
        let stale = kernel.shared.lock().invoke(Subject::Cell(cell), &mut operation);
        assert!(matches!(stale, Err(OperationError::NoSuchCell(id)) if id == cell), "{operation:?}");
    }
    kernel.free_unused_frames();
    assert_eq!(kernel.free(), before);
}
