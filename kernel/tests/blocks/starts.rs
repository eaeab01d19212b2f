// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starts: the blocks that a cell accesses are learned, and are there at the next start without a fault.

use crate::cell::{VIEW, block, exit, exit_if, sum, viewer};
use pando_abi::layout::SLOT_SIZE;
use pando_abi::memory::CURRENT_SPACE;
use pando_abi::{BlockNumber, DiskIndex, Event, Hypercall, MapFlags, PAGE_SIZE, Permissions};
use pando_kernel::{CellId, Config, DiskId, End, StartMode, StartTrace};
use pando_machine::PageCount;
use pando_testing::asm::Asm;
use pando_testing::asm::Register::{R13, Rax, Rbx};
use pando_testing::disk::TestDisk;
use pando_testing::lab::Lab;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

const BLOCKS: u32 = 3000;
/// The address of a segment.
const SEGMENT: u64 = 9 * SLOT_SIZE;

/// Reads the first words of pages, and adds them to R13.
fn touch(asm: &mut Asm, addresses: impl IntoIterator<Item = u64>) -> &mut Asm {
    addresses.into_iter().fold(asm, |asm, address| asm.mov_imm(Rbx, address).load(Rax, Rbx, 0).add(R13, Rax))
}

/// Maps blocks, to be read at once.
fn map(address: u64, pages: u64, block: u64, permissions: Permissions) -> Hypercall {
    Hypercall::MapBlocks { space: CURRENT_SPACE, address, pages, block, flags: MapFlags::eager(permissions).bits() }
}

/// Runs a cell to its successful end. Returns the trace of its start, and the number of its faults on blocks.
fn run(lab: &mut Lab, id: CellId, mode: StartMode) -> (StartTrace, u64) {
    lab.kernel.trace_start(id, mode).expect("it has not started");
    lab.kernel.start(id).expect("it was not started before");
    let outcome = lab.finish(id);
    assert_eq!(outcome.end, End::Exited { status: 0 });
    (outcome.start.expect("it was traced"), outcome.counters.block_faults)
}

fn numbers(trace: &StartTrace) -> BTreeSet<u32> {
    assert!(trace.blocks.iter().all(|(disk, _)| *disk == DiskIndex(0)));
    trace.blocks.iter().flat_map(|(_, range)| range.start.0..range.end.0).collect()
}

#[test]
fn the_accessed_blocks_are_learned() {
    for mut lab in Lab::both() {
        let disk = TestDisk::new(BLOCKS);
        let id = viewer(&lab, &disk, 1000, Permissions::READ, |asm| {
            // A mapping that is gone at the end, one that is replaced, one that is written, and one in a segment.
            asm.call_kernel(map(VIEW * 2, 64, 1000, Permissions::READ));
            touch(asm, [VIEW * 2 + 3 * PAGE_SIZE]).call_kernel(Hypercall::Unmap { space: CURRENT_SPACE, address: VIEW * 2, pages: 64 });
            asm.call_kernel(map(VIEW * 3, 64, 1100, Permissions::READ));
            touch(asm, [VIEW * 3]).call_kernel(map(VIEW * 3, 64, 1200, Permissions::READ_WRITE));
            asm.mov_imm(Rbx, VIEW * 3 + 7 * PAGE_SIZE).store_imm(Rbx, 0, 1);
            touch(asm, [VIEW + PAGE_SIZE, VIEW + 2 * PAGE_SIZE, VIEW + 600 * PAGE_SIZE, SEGMENT + 513 * PAGE_SIZE]).call_kernel(exit(0));
        });
        lab.kernel.mount_segment(id, SEGMENT).expect("the slot is free");
        lab.kernel.map_blocks(id, SEGMENT, PageCount(1000), block(2000), Permissions::READ).expect("room for tables");
        lab.kernel.begin_access_tracking();
        let (trace, faults) = run(&mut lab, id, StartMode::Record);
        let (wanted, found) = (BTreeSet::from([1, 2, 600, 1003, 1100, 1207, 2513]), numbers(&trace));
        // A CPU may also mark pages that it accessed speculatively.
        assert!(found.is_superset(&wanted) && found.len() <= wanted.len() + 8, "{found:?}");
        assert_eq!(trace.spans, [SEGMENT + 512 * PAGE_SIZE]);
        assert!(trace.misses >= faults && faults >= 3, "{trace:?}");
        assert!(disk.reads().len() > 200, "the mappings were read as requested");
    }
}

#[test]
fn a_start_that_follows_a_trace_finds_its_blocks_and_reads_no_others() {
    for mut lab in Lab::both() {
        let (before, disk) = (lab.kernel.free(), TestDisk::new(BLOCKS));
        let mut asm = Asm::new();
        asm.mov_imm(R13, 0).call_kernel(map(VIEW, 700, 100, Permissions::READ)).call_kernel(map(VIEW * 2, 16, 2000, Permissions::READ));
        let seen = [0, 1, 600].map(|page| VIEW + page * PAGE_SIZE).into_iter().chain([SEGMENT, VIEW * 2]);
        let wanted = [100, 101, 700, 2900, 2000].map(|number| sum(number, 1)).into_iter().fold(0, u64::wrapping_add);
        exit_if(touch(&mut asm, seen), wanted);
        let (id, disk_id) = cell(&lab, &asm.finish(), &disk);
        lab.kernel.mount_segment(id, SEGMENT).expect("the slot is free");
        lab.kernel.map_blocks(id, SEGMENT, PageCount(100), block(2900), Permissions::READ).expect("room for tables");
        for range in [100..102, 700..701, 2900..2901] {
            prefetch(&lab, disk_id, range);
        }
        // Addresses that are not mapped, or not a cell's, are left out.
        lab.kernel.map_resident(id, [SEGMENT + 5, u64::MAX, 1 << 46, VIEW * 5]).expect("it is at rest");
        let (trace, faults) = run(&mut lab, id, StartMode::Prefetched);
        assert_eq!(faults, 0, "{trace:?}");
        let read: BTreeSet<u32> = disk.reads().into_keys().collect();
        assert_eq!(read, BTreeSet::from_iter([100, 101, 700, 2900].into_iter().chain(2000..2016)), "an unknown file is read as requested");
        lab.kernel.free_unused_frames();
        assert_eq!(lab.kernel.free(), before);
    }
}

#[test]
fn a_start_is_over_when_the_cell_waits() {
    for mut lab in Lab::both() {
        let disk = TestDisk::new(BLOCKS);
        let mut asm = Asm::new();
        asm.mov_imm(R13, 0).call_kernel(map(VIEW, 64, 64, Permissions::READ));
        touch(&mut asm, [VIEW]).call_kernel(Hypercall::Idle { deadline: u64::MAX });
        exit_if(touch(asm.call_kernel(map(VIEW * 2, 64, 128, Permissions::READ)), [VIEW * 2]), sum(64, 1).wrapping_add(sum(128, 1)));
        let code = asm.finish();
        for mode in [StartMode::Record, StartMode::Prefetched] {
            let (id, disk_id) = cell(&lab, &code, &disk);
            if mode == StartMode::Record {
                lab.kernel.begin_access_tracking();
            } else {
                prefetch(&lab, disk_id, 128..129);
            }
            lab.kernel.trace_start(id, mode).expect("it has not started");
            lab.kernel.start(id).expect("it was not started before");
            lab.run_all();
            lab.kernel.raise(id, Event::Console);
            let trace = lab.finish(id).start.expect("it was traced");
            assert!(!numbers(&trace).contains(&128), "{trace:?}");
            assert_eq!(numbers(&trace).contains(&64), mode == StartMode::Record);
        }
        assert!(disk.reads().contains_key(&160), "after its start, a mapping is read as requested");
    }
}

#[test]
fn a_wrong_record_costs_nothing_but_its_reads() {
    for mut lab in Lab::both() {
        let disk = TestDisk::new(BLOCKS);
        disk.lose(40, true);
        let mut asm = Asm::new();
        asm.mov_imm(R13, 0);
        exit_if(touch(&mut asm, [VIEW, VIEW + 41 * PAGE_SIZE]), sum(0, 1).wrapping_add(sum(41, 1)));
        let (id, disk_id) = cell(&lab, &asm.finish(), &disk);
        lab.kernel.map_blocks(id, VIEW, PageCount(64), block(0), Permissions::READ).expect("room for tables");
        // An unreadable block, blocks behind the last one, no blocks, and a disk that is gone.
        for range in [40..41, BLOCKS - 1..BLOCKS + 100, BLOCKS + 5..u32::MAX, 7..7] {
            prefetch(&lab, disk_id, range);
        }
        let gone = lab.kernel.add_disk(TestDisk::new(1)).expect("room for a disk");
        lab.kernel.remove_disk(gone).expect("no cell uses it");
        prefetch(&lab, gone, 0..1);
        assert_eq!(lab.kernel.registry().used, PageCount(1), "one of these blocks exists");
        run(&mut lab, id, StartMode::Prefetched);
    }
}

#[test]
fn reads_in_advance_take_no_memory_from_others() {
    let lab = Lab::sim(1, PageCount(1 << 12), 1, Config { registry: PageCount(100), ..Config::default() });
    let disk = TestDisk::new(BLOCKS);
    let disk_id = lab.kernel.add_disk(disk).expect("room for a disk");
    prefetch(&lab, disk_id, 0..80);
    prefetch(&lab, disk_id, 1000..1050);
    assert_eq!(lab.kernel.registry().used, PageCount(80), "they do not fit");
    prefetch(&lab, disk_id, 1000..1020);
    assert_eq!(lab.kernel.registry().used, PageCount(100));
}

/// A cell with this code and an attached disk.
fn cell(lab: &Lab, code: &[u8], disk: &Arc<TestDisk>) -> (CellId, DiskId) {
    let id = lab.cell(code);
    let disk = lab.kernel.add_disk(Arc::clone(disk) as Arc<_>).expect("room for a disk");
    lab.kernel.attach(id, disk).expect("its first disk");
    (id, disk)
}

fn prefetch(lab: &Lab, disk: DiskId, range: Range<u32>) {
    lab.kernel.prefetch_blocks(disk, BlockNumber(range.start)..BlockNumber(range.end));
}
