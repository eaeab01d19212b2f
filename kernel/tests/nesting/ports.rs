// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ports of a child, and what its parent may learn of it.

use crate::actor::{BYTES, QUOTA, call, clone_root, close, start, start_child, template};
use pando_abi::holding::{ChildState, ConsoleReadResult, fact, port, stop};
use pando_abi::layout::{CONSOLE_RINGS, CONTROL_RINGS};
use pando_abi::ring::{ConsoleRings, ControlRings, Descriptor, ERRORS, NO_READER, OUTPUT, Ring};
use pando_abi::{HoldingName, Hypercall, Refusal};
use pando_kernel::CellId;
use pando_machine::PageCount;
use pando_testing::lab::Lab;
use std::mem::offset_of;

const REPORTS: u64 = CONTROL_RINGS + offset_of!(ControlRings, reports) as u64;
const TRANSMIT: u64 = CONSOLE_RINGS + offset_of!(ConsoleRings, transmit) as u64;

/// Posts the first descriptor of a cell's ring: its text lies where its bytes are.
fn post(lab: &Lab, cell: CellId, ring: u64, tag: u32, bytes: &[u8]) {
    lab.kernel.write(cell, BYTES, bytes).expect("it waits");
    let words = Descriptor { address: BYTES, length: bytes.len() as u32, tag }.to_words();
    let descriptor: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
    lab.kernel.write(cell, ring + offset_of!(Ring<1>, descriptors) as u64, &descriptor).expect("it waits");
    lab.kernel.write(cell, ring + offset_of!(Ring<1>, posted) as u64, &1_u64.to_le_bytes()).expect("it waits");
}

/// The length with which the kernel has completed the first descriptor of a ring.
fn completed(lab: &Lab, cell: CellId, ring: u64) -> u32 {
    let mut words = [0; 16];
    lab.kernel.read(cell, ring + offset_of!(Ring<1>, descriptors) as u64, &mut words).expect("it waits");
    Descriptor::from_words([0, 8].map(|at| u64::from_le_bytes(words[at..at + 8].try_into().expect("eight bytes")))).length
}

fn read(lab: &mut Lab, parent: CellId, child: HoldingName, port: u64) -> Result<ConsoleReadResult, Refusal> {
    call(lab, parent, Hypercall::ConsoleRead { cell: child.bits(), address: BYTES, bytes: 100, port }).map(ConsoleReadResult::from_bits)
}

#[test]
fn a_parent_has_a_control_channel_to_its_child() {
    for mut lab in Lab::both() {
        let free = lab.kernel.free();
        let root = template(&lab);
        let parent = start(&mut lab, root, QUOTA, 1);
        let (name, child) = start_child(&mut lab, parent, PageCount(300), 0).expect("it may have one");
        // The first call opens it.
        assert_eq!(read(&mut lab, parent, name, port::CONTROL), Ok(ConsoleReadResult::Nothing));
        post(&lab, child, REPORTS, OUTPUT, b"report");
        call(&mut lab, child, Hypercall::Doorbell {}).expect("the call exists");
        assert_eq!(read(&mut lab, parent, name, port::CONSOLE), Ok(ConsoleReadResult::Nothing), "it is not the console");
        assert_eq!(read(&mut lab, parent, name, port::CONTROL), Ok(ConsoleReadResult::Bytes { count: 6, stream: OUTPUT }));
        let order = Hypercall::ConsoleWrite { cell: name.bits(), address: BYTES, bytes: 5, port: port::CONTROL };
        assert_eq!(call(&mut lab, parent, order), Ok(5));
        assert_eq!(call(&mut lab, parent, Hypercall::CellEnd { cell: name.bits() }), Ok(0));
        // It was opened before the end, and is readable after it.
        assert_eq!(read(&mut lab, parent, name, port::CONTROL), Ok(ConsoleReadResult::End));
        assert_eq!(call(&mut lab, parent, Hypercall::Drop { holding: name.bits() }), Ok(0));
        // An ended child gets none.
        let (name, _) = start_child(&mut lab, parent, PageCount(300), 0).expect("there is room again");
        assert_eq!(call(&mut lab, parent, Hypercall::CellEnd { cell: name.bits() }), Ok(0));
        assert_eq!(read(&mut lab, parent, name, port::CONTROL), Err(Refusal::NoSuchHolding));
        assert_eq!(read(&mut lab, parent, HoldingName::ROOT, port::CONTROL), Err(Refusal::NoSuchHolding));
        close(&mut lab, &[parent, root], free);
    }
}

#[test]
fn a_stream_that_a_parent_has_closed_is_unread() {
    for mut lab in Lab::both() {
        let free = lab.kernel.free();
        let root = template(&lab);
        let parent = start(&mut lab, root, QUOTA, 1);
        let (name, child) = start_child(&mut lab, parent, PageCount(300), 0).expect("it may have one");
        let shut = |stream: u32| Hypercall::ConsoleRead { cell: name.bits(), address: stream.into(), bytes: 0, port: port::CONSOLE };
        assert_eq!(call(&mut lab, parent, shut(0)), Err(Refusal::BadArgument));
        for _ in 0..3 {
            assert_eq!(call(&mut lab, parent, shut(OUTPUT)), Ok(0));
        }
        post(&lab, child, TRANSMIT, OUTPUT, b"lost");
        call(&mut lab, child, Hypercall::Doorbell {}).expect("the call exists");
        assert_eq!(completed(&lab, child, TRANSMIT), NO_READER);
        assert_eq!(read(&mut lab, parent, name, port::CONSOLE), Ok(ConsoleReadResult::Nothing));
        assert_eq!(call(&mut lab, parent, shut(ERRORS)), Ok(0));
        close(&mut lab, &[parent, root], free);
    }
}

#[test]
fn a_parent_learns_what_its_child_uses() {
    for mut lab in Lab::both() {
        let free = lab.kernel.free();
        let root = template(&lab);
        let parent = start(&mut lab, root, QUOTA, 1);
        let (name, child) = start_child(&mut lab, parent, PageCount(300), 0).expect("it may have one");
        let learn = |lab: &mut Lab, fact| call(lab, parent, Hypercall::CellState { cell: name.bits(), fact });
        let (_, counters, usage) = lab.kernel.inspect(child).expect("it lives");
        assert_eq!(learn(&mut lab, fact::USED), Ok(usage.used.0));
        assert_eq!(learn(&mut lab, fact::EXITS), Ok(counters.exits));
        assert_eq!(learn(&mut lab, fact::CPU), Ok(counters.cpu.as_nanos() as u64));
        assert_eq!(learn(&mut lab, 5), Err(Refusal::BadArgument));
        assert_eq!(call(&mut lab, parent, Hypercall::CellEnd { cell: name.bits() }), Ok(0));
        assert_eq!(learn(&mut lab, fact::PEAK), Ok(usage.peak.0), "it is known after the end");
        close(&mut lab, &[parent, root], free);
    }
}

#[test]
fn a_request_to_freeze_can_be_withdrawn() {
    for mut lab in Lab::both() {
        let free = lab.kernel.free();
        let root = template(&lab);
        let parent = start(&mut lab, root, QUOTA, 2);
        let (name, _) = start_child(&mut lab, parent, PageCount(300), 0).expect("it may have some");
        let halt = |how| Hypercall::CellStop { cell: name.bits(), how };
        let state = |lab: &mut Lab| call(lab, parent, Hypercall::CellState { cell: name.bits(), fact: fact::STATE });
        // An actor never freezes itself.
        assert_eq!(call(&mut lab, parent, halt(stop::ASK)), Ok(0));
        assert_eq!(call(&mut lab, parent, halt(stop::WITHDRAW)), Ok(1));
        assert_eq!(state(&mut lab).ok().and_then(ChildState::from_bits), Some(ChildState::Started { wants_input: false }));
        assert_eq!(call(&mut lab, parent, halt(stop::FORCE)), Ok(0));
        assert_eq!(call(&mut lab, parent, halt(stop::WITHDRAW)), Ok(0), "it is too late");
        assert_eq!(state(&mut lab).ok().and_then(ChildState::from_bits), Some(ChildState::Frozen));
        // A frozen child can be cloned without running: the clone is a template for others.
        let clone = Hypercall::CellClone { source: name.bits(), quota: 300, cells: 0 };
        let kept = call(&mut lab, parent, clone).expect("it is frozen");
        assert_eq!(call(&mut lab, parent, Hypercall::Drop { holding: name.bits() }), Ok(0));
        let again = Hypercall::CellClone { source: kept, quota: 300, cells: 0 };
        assert!(call(&mut lab, parent, again).is_ok(), "the template outlives its source");
        assert!(clone_root(&mut lab, parent, PageCount(300), 0).is_err(), "both count");
        close(&mut lab, &[parent, root], free);
    }
}
