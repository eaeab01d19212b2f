// SPDX-License-Identifier: MIT OR Apache-2.0
//! The verbs of a parent.

use crate::actor::{ACTOR_CODE, BYTES, QUOTA, call, call_beside, clone_root, close, start, start_child, template, waits};
use pando_abi::holding::{ChildState, ConsoleReadResult, limit};
use pando_abi::layout::CONSOLE_RINGS;
use pando_abi::limits::MAX_DEPTH;
use pando_abi::ring::{ConsoleRings, Descriptor, OUTPUT, Ring};
use pando_abi::{Event, HoldingName, Hypercall, Refusal};
use pando_kernel::{CellId, RunState};
use pando_machine::PageCount;
use pando_testing::asm::Asm;
use pando_testing::lab::Lab;
use std::mem::offset_of;

/// An actor that was started: it never asks for input.
const STARTED: ChildState = ChildState::Started { wants_input: false };

/// The state of a child, as its parent learns it.
fn state(lab: &mut Lab, parent: CellId, child: HoldingName) -> Option<ChildState> {
    call(lab, parent, Hypercall::CellState { cell: child.bits(), fact: 0 }).ok().and_then(ChildState::from_bits)
}

#[test]
fn a_parent_runs_a_child_to_its_end() {
    for mut lab in Lab::both() {
        let free = lab.kernel.free();
        let root = template(&lab);
        let parent = start(&mut lab, root, QUOTA, 1);
        let (name, child) = clone_root(&mut lab, parent, PageCount(300), 0).expect("it may have one");
        assert_eq!(state(&mut lab, parent, name), Some(ChildState::New));
        assert_eq!(call(&mut lab, parent, Hypercall::CellRun { cell: name.bits() }), Ok(0));
        assert!(waits(&lab, child));
        assert_eq!(state(&mut lab, parent, name), Some(STARTED));
        // It cannot be started twice.
        assert_eq!(call(&mut lab, parent, Hypercall::CellRun { cell: name.bits() }), Err(Refusal::WrongState));
        // The parent lets it exit: a record in its memory, and an event.
        let exit = Hypercall::Exit { status: 7, signal: 0, address: 0, instruction: 0 }.record();
        let bytes: Vec<u8> = exit.into_iter().chain([1]).flat_map(u64::to_le_bytes).collect();
        lab.kernel.write(parent, BYTES, &bytes).expect("it waits");
        let write = Hypercall::Write { space: name.current_space(), address: BYTES - 0x1000, source: BYTES, bytes: bytes.len() as u64 };
        assert_eq!(call(&mut lab, parent, write), Ok(0));
        let wake = Hypercall::CellRaise { cell: name.bits(), event: Event::Interrupt as u64, value: 0 };
        assert_eq!(call(&mut lab, parent, wake), Ok(0));
        assert_eq!(state(&mut lab, parent, name), Some(ChildState::Exited(7)));
        assert_eq!(call(&mut lab, parent, wake), Err(Refusal::NoSuchHolding));
        assert_eq!(call(&mut lab, parent, Hypercall::Drop { holding: name.bits() }), Ok(0));
        assert_eq!(state(&mut lab, parent, name), None);
        close(&mut lab, &[parent, root], free);
    }
}

#[test]
fn names_that_a_cell_does_not_hold_are_refused() {
    for mut lab in Lab::both() {
        let free = lab.kernel.free();
        let root = template(&lab);
        let parent = start(&mut lab, root, QUOTA, 3);
        let unrelated = start(&mut lab, root, QUOTA, 3);
        let (name, child) = start_child(&mut lab, parent, PageCount(300), 0).expect("it may have some");
        let cell = name.bits();
        let calls = [
            Hypercall::CellRun { cell },
            Hypercall::CellEnd { cell },
            Hypercall::CellState { cell, fact: 0 },
            Hypercall::CellStop { cell, how: 1 },
            Hypercall::CellLimit { cell, kind: limit::CELLS, value: 100 },
            Hypercall::ConsoleRead { cell, address: BYTES, bytes: 10, port: 0 },
            Hypercall::Drop { holding: cell },
            Hypercall::Unmap { space: name.current_space(), address: ACTOR_CODE, pages: 1 },
            Hypercall::CellClone { source: cell, quota: 300, cells: 0 },
            Hypercall::Grant { cell, holding: cell, label: 0 },
        ];
        for wrong in calls {
            // Neither another cell nor the child itself has such a holding.
            for caller in [unrelated, child] {
                assert_eq!(call(&mut lab, caller, wrong), Err(Refusal::NoSuchHolding), "{wrong:?}");
            }
        }
        assert!(waits(&lab, child));
        // Only templates are granted.
        assert_eq!(call(&mut lab, parent, Hypercall::Grant { cell, holding: cell, label: 0 }), Err(Refusal::NoSuchHolding));
        // A template is held for clones only.
        for wrong in [Hypercall::CellEnd { cell: HoldingName::ROOT.bits() }, Hypercall::CellRun { cell: HoldingName::ROOT.bits() }] {
            assert_eq!(call(&mut lab, parent, wrong), Err(Refusal::NoSuchHolding), "{wrong:?}");
        }
        close(&mut lab, &[parent, unrelated, root], free);
    }
}

#[test]
fn the_end_of_a_cell_ends_all_below() {
    for mut lab in Lab::both() {
        let free = lab.kernel.free();
        let root = template(&lab);
        let parent = start(&mut lab, root, PageCount(8000), 100);
        let mut family = vec![parent];
        // Three levels: 1, 9, 27 cells.
        for _ in 0..3 {
            let (_, child) = start_child(&mut lab, parent, PageCount(4000), 40).expect("room");
            for _ in 0..3 {
                let (_, grandchild) = start_child(&mut lab, child, PageCount(1000), 10).expect("room");
                family.extend((0..2).map(|_| start_child(&mut lab, grandchild, PageCount(300), 0).expect("room").1));
                family.push(grandchild);
            }
            family.push(child);
        }
        assert_eq!(lab.kernel.cells(), family.len() + 1);
        assert!(family.iter().all(|id| waits(&lab, *id)));
        close(&mut lab, &[parent, root], free);
    }
}

#[test]
fn cells_nest_to_the_limit_and_no_deeper() {
    for mut lab in Lab::both() {
        let free = lab.kernel.free();
        let root = template(&lab);
        let first = start(&mut lab, root, PageCount(10_000), 100);
        let mut deepest = first;
        for level in 1..=MAX_DEPTH {
            deepest = start_child(&mut lab, deepest, PageCount(5000), 100).unwrap_or_else(|refusal| panic!("level {level}: {refusal:?}")).1;
        }
        assert_eq!(start_child(&mut lab, deepest, PageCount(5000), 100), Err(Refusal::TooMany));
        close(&mut lab, &[first, root], free);
    }
}

#[test]
fn a_stopped_child_is_a_template_for_others() {
    for mut lab in Lab::both() {
        let free = lab.kernel.free();
        let root = template(&lab);
        let parent = start(&mut lab, root, PageCount(2000), 5);
        let (name, _) = start_child(&mut lab, parent, PageCount(300), 0).expect("room");
        assert_eq!(call(&mut lab, parent, Hypercall::CellStop { cell: name.bits(), how: 1 }), Ok(0));
        assert_eq!(state(&mut lab, parent, name), Some(ChildState::Frozen));
        let copy = call(&mut lab, parent, Hypercall::CellClone { source: name.bits(), quota: 300, cells: 0 }).expect("it is frozen");
        assert_eq!(call(&mut lab, parent, Hypercall::CellRun { cell: copy }), Ok(0));
        let states: Vec<RunState> = lab.kernel.children(parent).expect("it lives").iter().map(|(_, id)| run_state(&lab, *id)).collect();
        assert!(matches!(states[..], [RunState::Frozen, RunState::Idle { .. }]), "{states:?}");
        close(&mut lab, &[parent, root], free);
    }
}

/// The memory of a child that runs, or is about to run, is its own.
#[test]
fn a_child_that_runs_cannot_be_changed() {
    for mut lab in Lab::both() {
        let free = lab.kernel.free();
        let mut asm = Asm::new();
        let again = asm.here();
        asm.jmp(again);
        let (root, spinning) = (template(&lab), lab.cell(&asm.finish()));
        let parent = lab.kernel.clone_cell(root, PageCount(1000)).expect("room");
        assert_eq!(lab.kernel.allow_children(parent, 1, spinning), Ok(HoldingName::ROOT));
        lab.kernel.start(parent).expect("it was not started");
        lab.run_all();
        let (name, child) = clone_root(&mut lab, parent, PageCount(300), 0).expect("room");
        lab.kernel.start(child).expect("it was not started");
        lab.turn(0);
        assert_eq!(run_state(&lab, child), RunState::Ready);
        let space = name.current_space();
        for change in [
            Hypercall::Write { space, address: BYTES, source: BYTES, bytes: 8 },
            Hypercall::Unmap { space, address: ACTOR_CODE, pages: 1 },
            Hypercall::Map { space, address: 0x6000_0000, pages: 1, flags: 3 },
            Hypercall::Populate { space, address: ACTOR_CODE, pages: 1 },
            Hypercall::SpaceClone { space },
            Hypercall::CellClone { source: name.bits(), quota: 300, cells: 0 },
        ] {
            assert_eq!(call_beside(&mut lab, parent, change), Err(Refusal::WrongState), "{change:?}");
        }
        assert_eq!(call_beside(&mut lab, parent, Hypercall::CellEnd { cell: name.bits() }), Ok(0));
        close(&mut lab, &[parent, root, spinning], free);
    }
}

fn run_state(lab: &Lab, id: CellId) -> RunState {
    lab.kernel.inspect(id).expect("it lives").0
}

#[test]
fn bytes_travel_between_parent_and_child() {
    for mut lab in Lab::both() {
        let free = lab.kernel.free();
        let root = template(&lab);
        let parent = start(&mut lab, root, QUOTA, 1);
        let (name, child) = start_child(&mut lab, parent, PageCount(300), 0).expect("room");
        let read = Hypercall::ConsoleRead { cell: name.bits(), address: BYTES, bytes: 4, port: 0 };
        let progress = |lab: &mut Lab| call(lab, parent, read).map(ConsoleReadResult::from_bits);
        assert_eq!(progress(&mut lab), Ok(ConsoleReadResult::Nothing));
        // The child posts a descriptor: its text lies where its bytes are.
        lab.kernel.write(child, BYTES, b"output").expect("it waits");
        post(&lab, child, BYTES, 6);
        let woken = lab.kernel.inspect(parent).expect("it lives").1.hypercalls;
        call(&mut lab, child, Hypercall::Doorbell {}).expect("the call exists");
        assert!(lab.kernel.inspect(parent).expect("it lives").1.hypercalls > woken, "the output wakes the parent");
        assert_eq!(progress(&mut lab), Ok(ConsoleReadResult::Bytes { count: 4, stream: OUTPUT }));
        let mut seen = [0; 4];
        lab.kernel.read(parent, BYTES, &mut seen).expect("it waits");
        assert_eq!(&seen, b"outp");
        // Where nothing is mapped, nothing is lost.
        let lost = Hypercall::ConsoleRead { cell: name.bits(), address: 0x5000_0000, bytes: 4, port: 0 };
        assert_eq!(call(&mut lab, parent, lost), Err(Refusal::BadAddress));
        assert_eq!(call(&mut lab, parent, Hypercall::CellEnd { cell: name.bits() }), Ok(0));
        assert_eq!(progress(&mut lab), Ok(ConsoleReadResult::Bytes { count: 2, stream: OUTPUT }));
        assert_eq!(progress(&mut lab), Ok(ConsoleReadResult::End));
        assert_eq!(state(&mut lab, parent, name), Some(ChildState::Killed));
        // Input for an ended child is dropped, as by a closed terminal.
        assert_eq!(call(&mut lab, parent, Hypercall::ConsoleWrite { cell: name.bits(), address: BYTES, bytes: 4, port: 0 }), Ok(4));
        close(&mut lab, &[parent, root], free);
    }
}

/// Posts a descriptor of standard output in the console's transmit ring of a cell that has posted none.
fn post(lab: &Lab, id: CellId, address: u64, length: u32) {
    let ring = CONSOLE_RINGS + offset_of!(ConsoleRings, transmit) as u64;
    let words = Descriptor { address, length, tag: OUTPUT }.to_words();
    let bytes: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
    lab.kernel.write(id, ring + offset_of!(Ring<1>, descriptors) as u64, &bytes).expect("it waits");
    lab.kernel.write(id, ring + offset_of!(Ring<1>, posted) as u64, &1_u64.to_le_bytes()).expect("it waits");
}
