// SPDX-License-Identifier: MIT OR Apache-2.0
//! A family may have the memory, cells and CPU time that its ancestors allow.

use crate::actor::{BYTES, QUOTA, call, clone_root, close, spinner, start, start_child, template, waits};
use pando_abi::holding::{ChildState, limit};
use pando_abi::layout::SLOT_SIZE;
use pando_abi::{HoldingName, Hypercall, MapFlags, Permissions, Refusal};
use pando_kernel::{CellId, Config, CpuLimit};
use pando_machine::PageCount;
use pando_testing::asm::Asm;
use pando_testing::asm::Register::Rbx;
use pando_testing::lab::Lab;
use std::time::Duration;

/// Maps `pages` present pages in an actor.
fn take(lab: &mut Lab, actor: CellId, address: u64, pages: u64) -> Result<u64, Refusal> {
    let flags = MapFlags::eager(Permissions::READ_WRITE).bits();
    call(lab, actor, Hypercall::Map { space: u64::MAX, address, pages, flags })
}

fn used(lab: &Lab, id: CellId) -> u64 {
    lab.kernel.inspect(id).expect("it lives").2.used.0
}

#[test]
fn the_memory_of_a_child_is_that_of_all_its_ancestors() {
    for mut lab in Lab::both() {
        let free = lab.kernel.free();
        let root = template(&lab);
        let grandparent = start(&mut lab, root, PageCount(1000), 10);
        let (_, parent) = start_child(&mut lab, grandparent, PageCount(100_000), 5).expect("room");
        let (_, child) = start_child(&mut lab, parent, PageCount(100_000), 0).expect("room");
        let before = [grandparent, parent, child].map(|id| used(&lab, id));
        assert!(before[0] > before[1] && before[1] > before[2], "each has its own memory as well: {before:?}");
        assert_eq!(take(&mut lab, child, 0x6000_0000, 200), Ok(0));
        let after = [grandparent, parent, child].map(|id| used(&lab, id));
        for (before, after) in before.into_iter().zip(after) {
            assert!((200..230).contains(&(after - before)), "{before} {after}");
        }
        // The child's own quota allows more, the grandparent's does not, and the grandparent can still work.
        assert_eq!(take(&mut lab, child, 0x7000_0000, 900), Err(Refusal::Quota));
        assert_eq!(call(&mut lab, child, Hypercall::Unmap { space: u64::MAX, address: 0x7000_0000, pages: 900 }), Ok(0));
        assert_eq!(take(&mut lab, grandparent, 0x6000_0000, 100), Ok(0));
        assert!([grandparent, parent, child].iter().all(|id| waits(&lab, *id)));
        close(&mut lab, &[grandparent, root], free);
    }
}

#[test]
fn a_quota_can_be_lowered_and_raised_while_the_child_lives() {
    for mut lab in Lab::both() {
        let free = lab.kernel.free();
        let root = template(&lab);
        let parent = start(&mut lab, root, PageCount(2000), 1);
        let (name, child) = start_child(&mut lab, parent, PageCount(300), 0).expect("room");
        let limit = |value| Hypercall::CellLimit { cell: name.bits(), kind: limit::MEMORY, value };
        assert_eq!(take(&mut lab, child, 0x6000_0000, 400), Err(Refusal::Quota));
        assert_eq!(call(&mut lab, parent, limit(800)), Ok(0));
        assert_eq!(take(&mut lab, child, 0x6000_0000, 400), Ok(0));
        assert_eq!(call(&mut lab, parent, limit(260)), Err(Refusal::Quota), "it uses more");
        let value = used(&lab, child);
        assert_eq!(call(&mut lab, parent, limit(value)), Ok(0));
        assert_eq!(take(&mut lab, child, 0x7000_0000, 100), Err(Refusal::Quota));
        assert_eq!(call(&mut lab, parent, limit(0)), Err(Refusal::BadArgument), "no cell works with that");
        assert_eq!(call(&mut lab, parent, limit(u64::MAX)), Ok(0));
        assert_eq!(take(&mut lab, child, 0x7000_0000, 100), Ok(0));
        close(&mut lab, &[parent, root], free);
    }
}

#[test]
fn descendants_count_until_their_holdings_are_dropped() {
    for mut lab in Lab::both() {
        let free = lab.kernel.free();
        let root = template(&lab);
        let grandparent = start(&mut lab, root, PageCount(5000), 3);
        let (_, parent) = start_child(&mut lab, grandparent, PageCount(3000), 100).expect("room");
        let (first, _) = clone_root(&mut lab, parent, PageCount(300), 0).expect("the second of three");
        clone_root(&mut lab, parent, PageCount(300), 0).expect("the third of three");
        // The parent may have a hundred, but its own parent only three.
        assert_eq!(clone_root(&mut lab, parent, PageCount(300), 0), Err(Refusal::NoMoreCells));
        assert_eq!(clone_root(&mut lab, grandparent, PageCount(300), 0), Err(Refusal::NoMoreCells));
        // An ended cell counts until it is dropped.
        assert_eq!(call(&mut lab, parent, Hypercall::CellEnd { cell: first.bits() }), Ok(0));
        assert_eq!(clone_root(&mut lab, parent, PageCount(300), 0), Err(Refusal::NoMoreCells));
        assert_eq!(call(&mut lab, parent, Hypercall::Drop { holding: first.bits() }), Ok(0));
        let (last, _) = clone_root(&mut lab, parent, PageCount(300), 0).expect("two of three are left");
        assert_ne!(last, first, "the old name is stale");
        // A cell that was allowed none has none.
        let lonely = start(&mut lab, root, QUOTA, 0);
        assert_eq!(clone_root(&mut lab, lonely, PageCount(300), 0), Err(Refusal::NoMoreCells));
        close(&mut lab, &[grandparent, lonely, root], free);
    }
}

#[test]
fn a_child_that_needs_more_than_its_family_has_ends_alone() {
    for mut lab in Lab::both() {
        let free = lab.kernel.free();
        let root = template(&lab);
        let parent = start(&mut lab, root, PageCount(600), 2);
        let (name, child) = start_child(&mut lab, parent, PageCount(10_000), 0).expect("room");
        let flags = MapFlags::lazy(Permissions::READ_WRITE).bits();
        assert_eq!(call(&mut lab, child, Hypercall::Map { space: u64::MAX, address: 0x6000_0000, pages: 5000, flags }), Ok(0));
        // A populate that the family cannot pay is refused; touching the pages one by one ends the child.
        assert_eq!(call(&mut lab, child, Hypercall::Populate { space: u64::MAX, address: 0x6000_0000, pages: 5000 }), Err(Refusal::Quota));
        lab.kernel.write(child, BYTES, b"x").expect("it waits");
        let state = call(&mut lab, parent, Hypercall::CellState { cell: name.bits(), fact: 0 }).expect("it is held");
        assert!(matches!(ChildState::from_bits(state), Some(ChildState::Started { .. } | ChildState::Quota)));
        assert!(waits(&lab, parent));
        close(&mut lab, &[parent, root], free);
    }
}

/// Memory runs out at every step of a start in turn: in the bytes for the child, or in the child itself.
#[test]
fn memory_may_run_out_at_any_step_of_a_start() {
    for mut lab in Lab::both() {
        let free = lab.kernel.free();
        let root = template(&lab);
        let grandparent = start(&mut lab, root, PageCount(30_000), 10);
        let (name, parent) = start_child(&mut lab, grandparent, PageCount(5000), 5).expect("room");
        // More than the smallest quota.
        assert_eq!(take(&mut lab, parent, 0x6000_0000, 300), Ok(0));
        let (mut refused, mut ended, mut worked) = (0, 0, 0);
        for room in (0..60).step_by(4) {
            let value = used(&lab, parent) + room;
            assert_eq!(call(&mut lab, grandparent, Hypercall::CellLimit { cell: name.bits(), kind: limit::MEMORY, value }), Ok(0));
            let (child, _) = clone_root(&mut lab, parent, PageCount(1000), 0).expect("a clone takes no memory yet");
            let write = Hypercall::Write { space: child.current_space(), address: BYTES, source: BYTES, bytes: 8 };
            for step in [write, Hypercall::CellRun { cell: child.bits() }] {
                match call(&mut lab, parent, step) {
                    Err(Refusal::Quota) => refused += 1,
                    other => assert_eq!(other, Ok(0)),
                }
            }
            // The parent itself has room again, whatever the child did.
            let value = 5000;
            assert_eq!(call(&mut lab, grandparent, Hypercall::CellLimit { cell: name.bits(), kind: limit::MEMORY, value }), Ok(0));
            for (child, id) in lab.kernel.children(parent).expect("it lives") {
                let state =
                    call(&mut lab, parent, Hypercall::CellState { cell: child.bits(), fact: 0 }).ok().and_then(ChildState::from_bits);
                match state {
                    Some(ChildState::Quota) => ended += 1,
                    Some(ChildState::Started { .. }) if waits(&lab, id) => worked += 1,
                    other => panic!("{other:?}"),
                }
                assert_eq!(call(&mut lab, parent, Hypercall::Drop { holding: child.bits() }), Ok(0));
            }
        }
        assert!(refused > 0 && ended > 0 && worked > 0, "{refused} {ended} {worked}");
        close(&mut lab, &[grandparent, root], free);
    }
}

/// When the machine is full, the cell in the largest family ends that uses most itself, and no cell around it.
#[test]
fn the_largest_cell_of_the_largest_family_makes_room() {
    for mut lab in Lab::each(PageCount(1 << 13), Config::default) {
        let mut asm = Asm::new();
        let flags = MapFlags::lazy(Permissions::READ_WRITE).bits();
        asm.call_kernel(Hypercall::Map { space: u64::MAX, address: SLOT_SIZE, pages: 1 << 20, flags }).mov_imm(Rbx, SLOT_SIZE);
        let again = asm.here();
        asm.store(Rbx, 0, Rbx).add_imm(Rbx, 0x1000).jmp(again);
        let (root, filling) = (template(&lab), lab.cell(&asm.finish()));
        let bystander = start(&mut lab, root, PageCount(1000), 0);
        let parent = lab.kernel.clone_cell(root, PageCount(1 << 20)).expect("room");
        assert_eq!(lab.kernel.allow_children(parent, 5, filling), Ok(HoldingName::ROOT));
        lab.kernel.start(parent).expect("it was not started");
        lab.run_all();
        // The second child is started by the operator, so that the parent need not run beside it.
        let (quiet, _) = clone_root(&mut lab, parent, PageCount(1 << 20), 0).expect("room");
        let (hungry, id) = clone_root(&mut lab, parent, PageCount(1 << 20), 0).expect("room");
        lab.kernel.start(id).expect("it was not started");
        lab.run_all();
        for (child, wanted) in [(quiet, ChildState::New), (hungry, ChildState::MachineFull)] {
            let state = call(&mut lab, parent, Hypercall::CellState { cell: child.bits(), fact: 0 }).ok().and_then(ChildState::from_bits);
            assert_eq!(state, Some(wanted));
        }
        assert!(waits(&lab, parent) && waits(&lab, bystander));
    }
}

/// Two children that compute share the CPU time that their parent is allowed.
#[test]
fn a_family_shares_the_cpu_time_of_its_parent() {
    for mut lab in Lab::both() {
        let (root, spinning) = (template(&lab), spinner(&lab));
        let parent = lab.kernel.clone_cell(root, PageCount(1000)).expect("room");
        lab.kernel.set_cpu_limit(parent, CpuLimit::new(0.25).expect("a part")).expect("it lives");
        // Its holding is the cell that computes.
        assert_eq!(lab.kernel.allow_children(parent, 5, spinning), Ok(HoldingName::ROOT));
        lab.kernel.start(parent).expect("it was not started");
        lab.run_all();
        clone_root(&mut lab, parent, PageCount(300), 0).expect("room");
        let (limited, _) = clone_root(&mut lab, parent, PageCount(300), 0).expect("room");
        assert_eq!(call(&mut lab, parent, Hypercall::CellLimit { cell: limited.bits(), kind: limit::CPU, value: 100 }), Ok(0));
        let children: Vec<CellId> = lab.kernel.children(parent).expect("it lives").into_iter().map(|(_, id)| id).collect();
        children.iter().for_each(|id| lab.kernel.start(*id).expect("it was not started"));
        let begin = lab.kernel.now();
        while lab.kernel.now().since(begin) < Duration::from_secs(2) {
            lab.turn(0);
        }
        let cpu = |id: CellId| lab.kernel.inspect(id).expect("it lives").1.cpu;
        let wall = lab.kernel.now().since(begin);
        let [free, limited] = [children[0], children[1]].map(|id| cpu(id).as_secs_f64() / wall.as_secs_f64());
        assert!((0.15..0.30).contains(&(free + limited)), "both together: {free} + {limited}");
        assert!(limited < 0.13, "the second has its own limit: {limited}");
    }
}
