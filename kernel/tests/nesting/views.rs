// SPDX-License-Identifier: MIT OR Apache-2.0
//! Views of descendants, and families that are built from the records of others.

use crate::actor::{BYTES, call, clone_root, close, start, start_child, template};
use pando_abi::holding::{ChildState, stop};
use pando_abi::holding_record::{ChildRecord, HOLDING_WORDS, HoldingContent, HoldingRecord};
use pando_abi::watch::{HaltReason, REASON_WORDS, resume, state};
use pando_abi::{HoldingName, Hypercall, Refusal};
use pando_kernel::CellId;
use pando_machine::PageCount;
use pando_testing::lab::Lab;

const STARTED: ChildState = ChildState::Started { wants_input: false };
const CHILD_QUOTA: PageCount = PageCount(300);

/// A cell of the operator, its child, and the child's child, all of them started.
struct Line {
    lab: Lab,
    free: PageCount,
    root: CellId,
    top: CellId,
    middle: CellId,
    /// The name that the top has for the middle, and the middle for the lowest.
    names: [HoldingName; 2],
}

impl Line {
    fn new(mut lab: Lab) -> Line {
        let free = lab.kernel.free();
        let root = template(&lab);
        let top = start(&mut lab, root, PageCount(3000), 8);
        let (first, middle) = start_child(&mut lab, top, PageCount(900), 3).expect("room");
        let (second, _) = start_child(&mut lab, middle, CHILD_QUOTA, 0).expect("room");
        Line { lab, free, root, top, middle, names: [first, second] }
    }

    /// A call of the top.
    fn call(&mut self, wanted: Hypercall) -> Result<u64, Refusal> {
        call(&mut self.lab, self.top, wanted)
    }

    /// A call of the middle.
    fn call_of_middle(&mut self, wanted: Hypercall) -> Result<u64, Refusal> {
        call(&mut self.lab, self.middle, wanted)
    }

    fn view(&mut self, cell: HoldingName, name: HoldingName) -> Result<HoldingName, Refusal> {
        let view = self.call(Hypercall::CellChild { cell: cell.bits(), name: name.bits() })?;
        Ok(HoldingName::from_bits(view).expect("a name"))
    }

    fn state(&mut self, cell: HoldingName) -> Option<ChildState> {
        self.call(Hypercall::CellState { cell: cell.bits(), fact: 0 }).ok().and_then(ChildState::from_bits)
    }

    fn halt(&mut self, cell: HoldingName) {
        assert_eq!(self.call(Hypercall::CellStop { cell: cell.bits(), how: stop::HALT }), Ok(0));
        assert_eq!(self.state(cell), Some(ChildState::Halted));
    }

    fn read(&mut self, cell: HoldingName, kind: u64, bytes: u64) -> Result<Vec<u64>, Refusal> {
        let count = self.call(Hypercall::StateRead { cell: cell.bits(), kind, address: BYTES, bytes })?;
        let mut read = vec![0; count as usize];
        self.lab.kernel.read(self.top, BYTES, &mut read).expect("it waits");
        Ok(read.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect())
    }

    fn holdings(&mut self, cell: HoldingName) -> Vec<HoldingRecord> {
        let words = self.read(cell, state::HOLDINGS, 1024).expect("it is halted");
        words.as_chunks::<HOLDING_WORDS>().0.iter().map(|words| HoldingRecord::from_words(*words).expect("a record")).collect()
    }

    fn write(&mut self, cell: HoldingName, kind: u64, bytes: &[u8]) -> Result<u64, Refusal> {
        self.lab.kernel.write(self.top, BYTES, bytes).expect("it waits");
        self.call(Hypercall::StateWrite { cell: cell.bits(), kind, address: BYTES, bytes: bytes.len() as u64 })
    }

    fn add(&mut self, cell: HoldingName, records: &[HoldingRecord]) -> Result<u64, Refusal> {
        let bytes: Vec<u8> = records.iter().flat_map(|record| record.to_words()).flat_map(u64::to_le_bytes).collect();
        self.write(cell, state::HOLDINGS, &bytes)
    }

    /// A new child of the top with this many descendants, not started.
    fn new_child(&mut self, cells: u32) -> (HoldingName, CellId) {
        clone_root(&mut self.lab, self.top, PageCount(900), cells).expect("room")
    }

    fn close(mut self) {
        close(&mut self.lab, &[self.top, self.root], self.free);
    }
}

fn record(index: u32, content: HoldingContent) -> HoldingRecord {
    HoldingRecord { name: HoldingName::new(index, 1), content }
}

fn child(quota: u64) -> HoldingContent {
    let limits = ChildRecord { quota, cells: 0, weight: 100, cpu_limit: 0, mask: 0, is_halted_by_parent: false, has_control: false };
    HoldingContent::Child(limits)
}

#[test]
fn a_view_names_a_descendant_and_nothing_else() {
    for lab in Lab::both() {
        let mut line = Line::new(lab);
        let [middle, lowest] = line.names;
        let view = line.view(middle, lowest).expect("it is the middle's child");
        assert_eq!(line.state(view), Some(STARTED));
        line.halt(view);
        assert_eq!(line.call_of_middle(Hypercall::CellState { cell: lowest.bits(), fact: 0 }), Ok(ChildState::Halted.bits()));
        assert_eq!(line.call(Hypercall::CellResume { cell: view.bits(), how: resume::CONTINUE }), Ok(0));
        assert_eq!(line.state(view), Some(STARTED));
        for (cell, name) in [(middle, HoldingName::ROOT), (middle, HoldingName::new(7, 1)), (HoldingName::ROOT, lowest), (view, lowest)] {
            assert_eq!(line.view(cell, name), Err(Refusal::NoSuchHolding), "{cell:?} {name:?}");
        }
        // Its console and its CPU time are its parent's business, and a view is not given away.
        let (cell, address) = (view.bits(), BYTES);
        for refused in [
            Hypercall::ConsoleRead { cell, address, bytes: 8, port: 0 },
            Hypercall::ConsoleWrite { cell, address, bytes: 8, port: 0 },
            Hypercall::Donate { cell, time: 1 },
            Hypercall::Grant { cell: middle.bits(), holding: cell, label: 0 },
        ] {
            assert_eq!(line.call(refused), Err(Refusal::NoSuchHolding), "{refused:?}");
        }
        assert_eq!(line.call(Hypercall::Drop { holding: cell }), Ok(0));
        assert_eq!(line.call_of_middle(Hypercall::CellState { cell: lowest.bits(), fact: 0 }), Ok(STARTED.bits()));
        // The view of a cell that is gone is stale.
        let view = line.view(middle, lowest).expect("it lives");
        assert_eq!(line.call_of_middle(Hypercall::Drop { holding: lowest.bits() }), Ok(0));
        line.lab.run_all();
        assert_eq!(line.state(view), None);
        assert_eq!(line.call(Hypercall::CellRun { cell: view.bits() }), Err(Refusal::NoSuchHolding));
        line.close();
    }
}

#[test]
fn a_family_is_built_with_the_same_names() {
    for lab in Lab::both() {
        let mut line = Line::new(lab);
        let [middle, lowest] = line.names;
        line.halt(middle);
        let records = line.holdings(middle);
        assert_eq!(records.len(), 2);
        assert_eq!((records[0].name, records[0].content), (HoldingName::ROOT, HoldingContent::Root));
        assert!(records[1].name == lowest && matches!(records[1].content, HoldingContent::Child(ChildRecord { quota: 300, .. })));
        let (built, cell) = line.new_child(3);
        assert_eq!(line.add(built, &records), Ok(0));
        let children = line.lab.kernel.children(cell).expect("it lives");
        assert!(children.len() == 1 && children[0].0 == lowest, "{children:?}");
        // The child of the new cell is another one, which has not started.
        let view = line.view(built, lowest).expect("it is built");
        assert_eq!(line.state(view), Some(ChildState::New));
        assert_eq!(line.call(Hypercall::CellRun { cell: view.bits() }), Ok(0));
        assert_eq!(line.call(Hypercall::CellRun { cell: built.bits() }), Ok(0));
        assert_eq!(line.state(view), Some(STARTED));
        assert_eq!(call(&mut line.lab, cell, Hypercall::CellState { cell: lowest.bits(), fact: 0 }), Ok(STARTED.bits()));
        assert_eq!(line.add(built, &records), Err(Refusal::WrongState));
        // It ends with its parent.
        assert_eq!(line.call(Hypercall::Drop { holding: built.bits() }), Ok(0));
        line.lab.run_all();
        assert_eq!(line.state(view), None);
        line.close();
    }
}

#[test]
fn records_that_no_table_has_are_refused() {
    for lab in Lab::both() {
        let mut line = Line::new(lab);
        let (built, cell) = line.new_child(1);
        let cells = line.lab.kernel.cells();
        let many = vec![record(0, HoldingContent::Nothing); 33];
        for wrong in [
            &[record(0, HoldingContent::Other)][..],
            &[record(1, HoldingContent::Root)],
            &[record(1, child(300))],
            &[record(0, child(0))],
            &many,
        ] {
            assert_eq!(line.add(built, wrong), Err(Refusal::BadArgument), "{wrong:?}");
            line.lab.run_all();
            assert_eq!((line.lab.kernel.cells(), line.lab.kernel.children(cell).expect("it lives").len()), (cells, 0));
        }
        for bytes in [&[0; 63][..], &[0xff; 64], &[1; 65]] {
            assert_eq!(line.write(built, state::HOLDINGS, bytes), Err(Refusal::BadArgument));
            assert_eq!(line.write(built, state::CONSOLE, bytes), Err(Refusal::BadArgument));
            assert_eq!(line.write(built, state::REASON, bytes), Err(Refusal::BadArgument));
        }
        // One child more than it may have.
        assert_eq!(line.add(built, &[record(0, child(300)), record(1, child(300))]), Err(Refusal::NoMoreCells));
        line.close();
    }
}

#[test]
fn a_cell_is_built_halted() {
    for lab in Lab::both() {
        let mut line = Line::new(lab);
        let [middle, lowest] = line.names;
        // Its parent has halted it, as a record reports. A cell above may clone it.
        assert_eq!(line.call_of_middle(Hypercall::CellStop { cell: lowest.bits(), how: stop::HALT }), Ok(0));
        line.halt(middle);
        let HoldingContent::Child(halted) = line.holdings(middle)[1].content else { panic!("a child") };
        assert!(halted.is_halted_by_parent);
        let view = line.view(middle, lowest).expect("it lives");
        assert!(line.call(Hypercall::CellClone { source: view.bits(), quota: 300, cells: 0 }).is_ok());
        let (built, _) = line.new_child(1);
        let reason = HaltReason::Taken { space: 1, address: 0x1000, number: 7 };
        let bytes: Vec<u8> = reason.to_words().into_iter().flat_map(u64::to_le_bytes).collect();
        assert_eq!(line.write(built, state::REASON, &bytes), Ok(0));
        assert_eq!(line.state(built), Some(ChildState::New));
        assert_eq!(line.call(Hypercall::CellRun { cell: built.bits() }), Ok(0));
        assert_eq!(line.state(built), Some(ChildState::Halted));
        assert_eq!(line.read(built, state::REASON, REASON_WORDS as u64 * 8), Ok(reason.to_words().to_vec()));
        assert_eq!(line.write(built, state::REASON, &bytes), Err(Refusal::WrongState));
        assert_eq!(line.call(Hypercall::CellResume { cell: built.bits(), how: resume::CONTINUE }), Ok(0));
        assert_eq!(line.state(built), Some(STARTED));
        line.close();
    }
}
