// SPDX-License-Identifier: MIT OR Apache-2.0
//! What lies between a fault's answer and the retry of its instruction, where other vCPUs may do anything.

use super::{Config, Kernel};
use crate::cell::end::End;
use crate::cell::{CellConfig, CellId};
use crate::memory::Frames;
use pando_abi::{MapFlags, Permissions};
use pando_machine::sim::{Sim, SimConfig};
use pando_machine::{Exception, Exit, FrameId, Machine, Nanos, PageCount};
use std::sync::Arc;

const ADDRESS: u64 = 0x1000_0000;
/// Bits of a page fault's error code: present, write, user.
const WRITE_TO_PRESENT: u64 = 7;

fn kernel() -> Kernel {
    let machine = Sim::new(SimConfig { arena: PageCount(4096), ..SimConfig::default() }).expect("a small machine");
    Kernel::new(machine as Arc<dyn Machine>, Config::default())
}

/// Every frame that can be had, taken and given back.
fn free_frames(frames: &mut Frames) -> Vec<FrameId> {
    let account = frames.open_account(PageCount(1 << 20));
    let taken: Vec<_> = std::iter::from_fn(|| frames.take(account, false).ok()).collect();
    taken.iter().for_each(|frame| frames.release(*frame));
    frames.close_account(account);
    taken
}

/// A clone stands at its first write to a page that it shares with its source only; the kernel has just answered. The frame of the shared page.
fn at_the_retry(kernel: &Kernel) -> (CellId, CellId, FrameId) {
    let quota = PageCount(1024);
    let source = kernel.create(CellConfig { quota, host_name: String::new() }).expect("room for a cell");
    let flags = MapFlags::eager(Permissions::READ_WRITE);
    kernel.map(source, ADDRESS, PageCount(1), flags).expect("room for a page");
    kernel.write(source, ADDRESS, b"shared").expect("the page is there");
    let clone = kernel.clone_cell(source, quota).expect("room for a clone");
    let mut state = kernel.shared.lock();
    let (occupant, frames) = state.living(clone).expect("it was just made");
    let space = occupant.cell.memory.current();
    let found = occupant.cell.memory.inspect(frames, space, ADDRESS).expect("the space is there").expect("the slot is in use");
    let shared = found.frame(0).expect("the page is there");
    let fault = Exception { vector: Exception::PAGE_FAULT, error: WRITE_TO_PRESENT, address: ADDRESS };
    assert!(fault.is_write());
    let _ = state.handle(clone, Exit::Exception(fault), Nanos(0), Nanos::NEVER);
    (source, clone, shared)
}

#[test]
fn what_a_write_may_still_read_is_nobody_elses_until_the_write_is_confirmed() {
    for exit in [Exit::Hypercall, Exit::Interrupted] {
        let kernel = kernel();
        let (source, clone, shared) = at_the_retry(&kernel);
        kernel.end(source, End::Killed).expect("it lives");
        kernel.settle();
        assert!(!free_frames(&mut kernel.shared.lock().frames).contains(&shared), "the clone's vCPU may still read it");
        let _ = kernel.shared.lock().handle(clone, exit, Nanos(0), Nanos::NEVER);
        kernel.settle();
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
    kernel.settle();
    assert_eq!(kernel.free(), before);
}
