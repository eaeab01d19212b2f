// SPDX-License-Identifier: MIT OR Apache-2.0
//! The list of a cell's descendants, which the operator and its parent read.

use crate::actor::{BYTES, call, clone_root, close, start, start_child, template};
use pando_abi::holding::ChildState;
use pando_abi::watch::state;
use pando_abi::{DescendantRecord, HoldingName, Hypercall, Refusal};
use pando_kernel::CellId;
use pando_machine::PageCount;
use pando_testing::lab::Lab;

const SIZE: u64 = DescendantRecord::SIZE as u64;

/// The records of a child's descendants from `first` on, in a buffer of this length.
fn read(lab: &mut Lab, parent: CellId, child: HoldingName, first: u64, bytes: u64) -> Result<Vec<DescendantRecord>, Refusal> {
    let kind = state::DESCENDANTS | first << 32;
    let count = call(lab, parent, Hypercall::StateRead { cell: child.bits(), kind, address: BYTES, bytes })?;
    let mut read = vec![0; count as usize];
    lab.kernel.read(parent, BYTES, &mut read).expect("it waits");
    Ok(read.as_chunks().0.iter().map(|bytes| DescendantRecord::from_bytes(bytes).expect("the kernel writes records")).collect())
}

fn name(lab: &mut Lab, parent: CellId, child: HoldingName, name: &[u8]) {
    lab.kernel.write(parent, BYTES, name).expect("it waits");
    assert_eq!(call(lab, parent, Hypercall::CellName { cell: child.bits(), address: BYTES, bytes: name.len() as u64 }), Ok(0));
}

/// A cell that has held thousands of things hides no cell behind their empty places.
#[test]
fn empty_places_are_not_visited() {
    let mut lab = Lab::sim(1, PageCount(1 << 16), 1, pando_kernel::Config::default());
    let free = lab.kernel.free();
    let root = template(&lab);
    let parent = start(&mut lab, root, PageCount(3000), 9);
    let (first, child) = start_child(&mut lab, parent, PageCount(1000), 5).expect("it may have some");
    let fill = Hypercall::Grant { cell: 0, holding: HoldingName::ROOT.bits(), label: 0 };
    let mut filled = Vec::new();
    while let Ok(name) = call(&mut lab, child, fill) {
        filled.push(name);
    }
    let last = filled.pop().expect("there was room");
    assert!(filled.len() > 4000 && call(&mut lab, child, Hypercall::Drop { holding: last }) == Ok(0));
    clone_root(&mut lab, child, PageCount(300), 0).expect("the last place");
    for holding in filled {
        assert_eq!(call(&mut lab, child, Hypercall::Drop { holding }), Ok(0));
    }
    clone_root(&mut lab, parent, PageCount(300), 0).expect("room");
    let depths: Vec<u32> = lab.kernel.descendants(parent).expect("it lives").iter().map(|record| record.depth).collect();
    assert_eq!(depths, [1, 2, 1]);
    assert_eq!(read(&mut lab, parent, first, 0, 10 * SIZE).map(|records| records.len()), Ok(1));
    close(&mut lab, &[parent, root], free);
}

#[test]
fn parents_come_before_their_children() {
    for mut lab in Lab::both() {
        let free = lab.kernel.free();
        let root = template(&lab);
        let parent = start(&mut lab, root, PageCount(3000), 9);
        let (service, child) = start_child(&mut lab, parent, PageCount(1000), 5).expect("it may have some");
        let (first, _) = clone_root(&mut lab, child, PageCount(300), 0).expect("it may have some");
        name(&mut lab, child, first, b"first");
        let (_, second) = start_child(&mut lab, child, PageCount(300), 1).expect("it may have some");
        let (deep, _) = clone_root(&mut lab, second, PageCount(256), 0).expect("it may have some");
        name(&mut lab, second, deep, b"deep");
        let listed = lab.kernel.descendants(parent).expect("it lives");
        let depths: Vec<u32> = listed.iter().map(|record| record.depth).collect();
        assert_eq!(depths, [1, 2, 2, 3]);
        assert_eq!((listed[1].name(), listed[1].state, listed[3].name()), (&b"first"[..], ChildState::New, &b"deep"[..]));
        assert_eq!(listed[2].state, ChildState::Started { wants_input: false });
        assert!(listed[0].pages > listed[2].pages && listed[2].pages > listed[3].pages, "they include their descendants': {listed:?}");
        assert!(listed[2].cpu > 0 && listed[3].cpu == 0, "{listed:?}");
        // The parent reads the same of its child, also in pieces, and half of a record is not read.
        let below: Vec<_> = listed[1..].iter().map(|record| (record.depth - 1, record.name().to_vec())).collect();
        let seen = |records: Vec<DescendantRecord>| records.iter().map(|record| (record.depth, record.name().to_vec())).collect::<Vec<_>>();
        assert_eq!(read(&mut lab, parent, service, 0, 10 * SIZE).map(seen), Ok(below.clone()));
        assert_eq!(read(&mut lab, parent, service, 1, 2 * SIZE - 1).map(seen), Ok(below[1..2].to_vec()));
        assert_eq!(read(&mut lab, parent, service, 3, SIZE).map(seen), Ok(Vec::new()));
        assert_eq!(read(&mut lab, parent, service, u32::MAX.into(), SIZE).map(seen), Ok(Vec::new()));
        let write = Hypercall::StateWrite { cell: service.bits(), kind: state::DESCENDANTS, address: BYTES, bytes: SIZE };
        assert_eq!(call(&mut lab, parent, write), Err(Refusal::ReadOnly));
        assert_eq!(read(&mut lab, parent, HoldingName::new(7, 1), 0, SIZE), Err(Refusal::NoSuchHolding));
        close(&mut lab, &[parent, root], free);
        assert!(lab.kernel.descendants(parent).is_err());
    }
}

/// However many holdings there are, the kernel visits only so many.
#[test]
fn holdings_of_templates_are_not_visited() {
    for mut lab in Lab::both() {
        let free = lab.kernel.free();
        let root = template(&lab);
        let parent = start(&mut lab, root, PageCount(2000), 3);
        let (_, child) = start_child(&mut lab, parent, PageCount(300), 1).expect("it may have some");
        while lab.kernel.allow_children(child, 1, root).is_ok() {}
        assert_eq!(lab.kernel.descendants(parent).map(|listed| listed.len()), Ok(1));
        let second = start_child(&mut lab, parent, PageCount(300), 1).expect("it may have some").1;
        clone_root(&mut lab, second, PageCount(256), 0).expect("it may have one");
        assert_eq!(lab.kernel.descendants(second).map(|listed| listed.len()), Ok(1));
        assert_eq!(lab.kernel.descendants(parent).map(|listed| listed.len()), Ok(3));
        close(&mut lab, &[parent, root], free);
    }
}
