// SPDX-License-Identifier: MIT OR Apache-2.0
//! Batches of calls about children: a child is made, prepared and started at one exit.

use crate::actor::{BYTES, QUOTA, call, close, start, start_child, template, waits};
use pando_abi::holding::{ChildState, limit};
use pando_abi::memory::CURRENT_SPACE;
use pando_abi::{HoldingName, Hypercall, MapFlags, Permissions, Refusal};
use pando_kernel::CellId;
use pando_machine::PageCount;
use pando_testing::lab::Lab;
use pando_testing::virtual_registers::words;

const NEWEST: u64 = HoldingName::NEWEST.bits();
const CLONE: Hypercall = Hypercall::CellClone { source: HoldingName::ROOT.bits(), quota: 300, cells: 0 };

/// Lets an actor make a batch of calls, and returns their number and the name of the child that they made.
fn batch(lab: &mut Lab, actor: CellId, calls: &[Hypercall]) -> Result<(u64, Option<HoldingName>), Refusal> {
    let records: Vec<u8> = calls.iter().flat_map(|call| call.record()).flat_map(u64::to_le_bytes).collect();
    lab.kernel.write(actor, BYTES, &records).expect("it waits");
    let result = call(lab, actor, Hypercall::Batch { address: BYTES, calls: calls.len() as u64 })?;
    Ok((result & 0xffff_ffff, HoldingName::from_bits(result >> 32)))
}

fn state(lab: &mut Lab, parent: CellId, child: HoldingName) -> Option<ChildState> {
    call(lab, parent, Hypercall::CellState { cell: child.bits(), fact: 0 }).ok().and_then(ChildState::from_bits)
}

#[test]
fn a_child_is_made_prepared_and_started_at_one_exit() {
    for mut lab in Lab::both() {
        let free = lab.kernel.free();
        let root = template(&lab);
        let parent = start(&mut lab, root, PageCount(2000), 3);
        let space = HoldingName::NEWEST.current_space();
        let write = Hypercall::Write { space, address: BYTES, source: BYTES + 48, bytes: 8 };
        let exits = |lab: &Lab| lab.kernel.inspect(parent).expect("it lives").1.hypercalls;
        let before = exits(&lab);
        let grant = Hypercall::Grant { cell: NEWEST, holding: HoldingName::ROOT.bits(), label: 0 };
        let limit = Hypercall::CellLimit { cell: NEWEST, kind: limit::CPU, value: 500 };
        let calls = [CLONE, write, grant, limit, Hypercall::CellRun { cell: NEWEST }];
        let (made, name) = batch(&mut lab, parent, &calls).expect("it may have some");
        let name = name.expect("the result has its name");
        // The batch, and the wait of the actor.
        assert_eq!((made, exits(&lab) - before), (5, 2));
        assert_eq!(state(&mut lab, parent, name), Some(ChildState::Started { wants_input: false }));
        let child = lab.kernel.children(parent).expect("it lives")[0].1;
        let [written] = words::<1>(&lab, child, BYTES);
        assert_eq!(written, write.record()[0], "the bytes are those of the second record");
        assert!(waits(&lab, child));
        // Each clone is the newest from then on; own memory and children mix.
        let map = Hypercall::Map { space: CURRENT_SPACE, address: 0x7000_0000, pages: 1, flags: Permissions::READ.bits() };
        let (made, second) = batch(&mut lab, parent, &[CLONE, map, CLONE, Hypercall::CellRun { cell: NEWEST }]).expect("room");
        let second = second.expect("the result has its name");
        assert_eq!((made, state(&mut lab, parent, second)), (4, Some(ChildState::Started { wants_input: false })));
        close(&mut lab, &[parent, root], free);
    }
}

#[test]
fn a_refused_call_ends_a_batch_and_the_child_that_it_made_has_a_name() {
    for mut lab in Lab::both() {
        let free = lab.kernel.free();
        let root = template(&lab);
        let parent = start(&mut lab, root, QUOTA, 2);
        // The name means nothing before a clone, and outside of a batch.
        let run = Hypercall::CellRun { cell: NEWEST };
        assert_eq!(batch(&mut lab, parent, &[run, CLONE]), Err(Refusal::NoSuchHolding));
        assert_eq!(call(&mut lab, parent, run), Err(Refusal::NoSuchHolding));
        let (made, name) = batch(&mut lab, parent, &[CLONE, run, run, CLONE]).expect("the first is well");
        let name = name.expect("the result has its name");
        assert_eq!(made, 2);
        assert_eq!(state(&mut lab, parent, name), Some(ChildState::Started { wants_input: false }));
        // It is not the newest of a later batch.
        assert_eq!(batch(&mut lab, parent, &[run]), Err(Refusal::NoSuchHolding));
        assert_eq!(batch(&mut lab, parent, &[Hypercall::Drop { holding: name.bits() }]), Ok((1, None)));
        assert_eq!(state(&mut lab, parent, name), None);
        // Calls that no batch may have.
        for wrong in [Hypercall::Batch { address: BYTES, calls: 1 }, Hypercall::Idle { deadline: 0 }, Hypercall::Relinquish {}] {
            assert_eq!(batch(&mut lab, parent, &[CLONE, wrong]).map(|(made, _)| made), Ok(1), "{wrong:?}");
            lab.kernel.children(parent).expect("it lives").into_iter().for_each(|(name, _)| {
                assert_eq!(call(&mut lab, parent, Hypercall::Drop { holding: name.bits() }), Ok(0));
            });
        }
        // More than it may have: the first clones stay.
        assert_eq!(batch(&mut lab, parent, &[CLONE, CLONE, CLONE]).map(|(made, _)| made), Ok(2));
        close(&mut lab, &[parent, root], free);
    }
}

/// A child cannot name what its parent has made.
#[test]
fn the_newest_child_is_that_of_the_caller() {
    for mut lab in Lab::both() {
        let free = lab.kernel.free();
        let root = template(&lab);
        let parent = start(&mut lab, root, PageCount(2000), 4);
        let (_, child) = start_child(&mut lab, parent, PageCount(1000), 2).expect("it may have some");
        batch(&mut lab, parent, &[CLONE]).expect("it may have some");
        assert_eq!(batch(&mut lab, child, &[Hypercall::CellRun { cell: NEWEST }]), Err(Refusal::NoSuchHolding));
        let (_, name) = batch(&mut lab, child, &[CLONE, Hypercall::CellRun { cell: NEWEST }]).expect("it may have some");
        assert!(name.is_some_and(|name| lab.kernel.children(child).is_ok_and(|children| children[0].0 == name)));
        close(&mut lab, &[parent, root], free);
    }
}

/// A batch stops where memory runs out, and the family gets all of it back.
#[test]
fn memory_may_run_out_at_any_call_of_a_batch() {
    for mut lab in Lab::both() {
        let free = lab.kernel.free();
        let root = template(&lab);
        let grandparent = start(&mut lab, root, PageCount(30_000), 10);
        let (name, parent) = start_child(&mut lab, grandparent, PageCount(5000), 5).expect("room");
        let flags = MapFlags::eager(Permissions::READ_WRITE).bits();
        let map = Hypercall::Map { space: CURRENT_SPACE, address: 0x6000_0000, pages: 300, flags };
        assert_eq!(batch(&mut lab, parent, &[map]), Ok((1, None)));
        let fill = Hypercall::Map { space: HoldingName::NEWEST.current_space(), address: 0x6000_0000, pages: 30, flags };
        let mut counts = [0; 4];
        for room in (0..60).step_by(4) {
            let used = lab.kernel.inspect(parent).expect("it lives").2.used.0;
            let limit_memory = |value| Hypercall::CellLimit { cell: name.bits(), kind: limit::MEMORY, value };
            assert_eq!(call(&mut lab, grandparent, limit_memory(used + room)), Ok(0));
            let clone = Hypercall::CellClone { source: HoldingName::ROOT.bits(), quota: 1000, cells: 0 };
            let made = batch(&mut lab, parent, &[clone, fill, Hypercall::CellRun { cell: NEWEST }]);
            counts[made.map_or(0, |(made, _)| made as usize)] += 1;
            assert_eq!(call(&mut lab, grandparent, limit_memory(5000)), Ok(0));
            for (child, _) in lab.kernel.children(parent).expect("it lives") {
                assert_eq!(call(&mut lab, parent, Hypercall::Drop { holding: child.bits() }), Ok(0));
            }
        }
        assert!(counts[1] > 0 && counts[3] > 0, "{counts:?}");
        close(&mut lab, &[grandparent, root], free);
    }
}
